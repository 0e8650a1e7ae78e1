"""``python -m streams.cold``: what a store of cold copies holds, without the cluster that made them."""

from __future__ import annotations

import argparse
import asyncio

from client.cli.options import ProgramParser
from client.cli.output import Printer
from client.cli.program import (
    EXIT_DATA_LOSS,
    EXIT_FAILED,
    EXIT_OK,
    compact_json,
    put,
    run_program,
    say,
    standard_output,
)
from logdevice_py.core.lsn import LSN
from streams.cold.cold_reader import ColdReader
from streams.cold.restoring import (
    ColdCatalogue,
    CopiedLog,
    append_again,
    file_urls,
    read_catalogue,
    verify_copies,
)
from streams.cold.store import ColdStore

_PROGRAM = "streams.cold"
_READ_AT_ONCE = 10_000


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = ProgramParser(
        prog=f"python -m {_PROGRAM}",
        description="Read cold copies of logs without the cluster that they were made from. "
        "Exits with 3 when a part of a log is missing or lost, with 1 when something is damaged.",
    )
    verbs = options.add_subparsers(dest="verb", required=True, metavar="VERB")

    def verb(name: str, text: str, *, log: bool = True) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=text)
        one.add_argument("store", metavar="URL", help="file:///directory or s3://bucket/folder")
        if log:
            one.add_argument("log", metavar="LOG", help="name of the stream, id of the log, or CLUSTER/ID")
        return one

    verb("list", "what the store holds, a JSON object a log", log=False)
    verb("verify", "read every copy and compare all of it with its checksums and proofs", log=False)
    verb("files", "the URLs of a log's Parquet files, for other programs")
    cat = verb("cat", "print the records of a log at their old positions")
    cat.add_argument("--from", dest="start", type=_position, default=LSN.OLDEST, metavar="LSN", help="the first one")
    cat.add_argument("--until", type=_position, metavar="LSN", help="the last one, inclusive")
    cat.add_argument("--format", choices=("raw", "json"), default="raw", help="each record and a newline, or as JSON")
    cat.add_argument("--proof", action="store_true", help="print no records but one JSON object that sums up the range")
    append = verb("append", "append the records of a log to an empty log of a cluster, where they get new positions")
    append.add_argument("-c", "--config", required=True, metavar="FILE", help="cluster file")
    append.add_argument("--to", required=True, metavar="LOG", help="id or path of the empty log")
    for one in (cat, append):
        one.add_argument("--accept-missing", action="store_true", help="read on behind what no copy holds")
    return options


def _position(text: str) -> LSN:
    try:
        return LSN.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def run(arguments: argparse.Namespace) -> int:
    """The program, with the options parsed."""
    store = ColdStore(arguments.store)
    catalogue = await asyncio.to_thread(read_catalogue, store)
    for text in catalogue.unreadable.values():
        say(_PROGRAM, text, alarm=True)
    status = EXIT_FAILED if catalogue.unreadable else EXIT_OK
    if arguments.verb in ("list", "verify"):
        return await _report(store, catalogue, status, verify=arguments.verb == "verify")
    log = catalogue.log(arguments.log)
    if arguments.verb == "files":
        for url in await asyncio.to_thread(file_urls, store, log.copies):
            put(standard_output(), url.encode() + b"\n")
        return status
    until = arguments.until if arguments.verb == "cat" else None
    start = arguments.start if arguments.verb == "cat" else LSN.OLDEST
    reader = ColdReader(store, log.copies, start, until, accept_missing=arguments.accept_missing)
    async with reader:
        return max(status, await (_cat if arguments.verb == "cat" else _append)(arguments, reader))


async def _report(store: ColdStore, catalogue: ColdCatalogue, status: int, *, verify: bool) -> int:
    for log in catalogue.logs:
        wrong = await verify_copies(store, log.copies) if verify else []
        for text in wrong:
            say(_PROGRAM, text, alarm=True)
            status = EXIT_FAILED
        for first, last in log.missing():
            say(_PROGRAM, f"log {log.log}: no copy holds {first} to {last}", alarm=True)
            status = status or EXIT_DATA_LOSS
        put(standard_output(), compact_json(_summary(log) | ({"damaged": len(wrong)} if verify else {})))
    return status


def _summary(log: CopiedLog) -> dict[str, object]:
    return {
        "cluster": log.cluster,
        "log": int(log.log),
        "stream": log.stream,
        "first": str(log.first),
        "last": str(log.last),
        "copies": len(log.copies),
        "records": sum(copy.records for copy in log.copies),
        "stored_bytes": sum(copy.stored_bytes for copy in log.copies),
        "missing": [[str(first), str(last)] for first, last in log.missing()],
    }


async def _cat(arguments: argparse.Namespace, reader: ColdReader) -> int:
    printer = Printer(_PROGRAM, as_json=arguments.format == "json")
    while batch := await reader.read(_READ_AT_ONCE):
        if arguments.proof:
            for gap in batch.gaps:
                printer.print_gap(batch.log, gap)
        else:
            printer.print_batch(batch)
    if arguments.proof:
        put(standard_output(), compact_json(reader.proof().as_json()))
    return printer.status


async def _append(arguments: argparse.Namespace, reader: ColdReader) -> int:
    from client.client import Client

    async with Client(arguments.config, name=_PROGRAM) as client:
        done = await append_again(reader, client, arguments.to)
    for gap in done.lost:
        say(_PROGRAM, f"{gap.lo} to {gap.hi} was lost before it was copied", alarm=True)
    summary = {
        "records": done.records,
        "damaged": done.damaged,
        "first": None if done.first is None else str(done.first),
        "last": None if done.last is None else str(done.last),
    }
    put(standard_output(), compact_json(summary))
    return EXIT_DATA_LOSS if done.lost else EXIT_OK


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit status."""
    arguments = parser().parse_args(argv)
    return run_program(_PROGRAM, lambda: run(arguments))
