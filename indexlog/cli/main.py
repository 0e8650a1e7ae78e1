"""``ldindex``: makes an index log, writes to it, deals, optimizes, reads, and looks after it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from client.cli.options import ProgramParser, cluster_option, program_options
from client.cli.program import (
    EXIT_FAILED,
    EXIT_OK,
    EXIT_STATUSES,
    InputError,
    parse_timeout,
    put,
    run_program,
    say,
    standard_output,
)
from logdevice_py.core.status import LogDeviceError, Status

if TYPE_CHECKING:
    from client.client import Client
    from indexlog.index_log import IndexLog
    from indexlog.records import LogRecord, Modification

PROGRAM: Final = "ldindex"


def parser() -> argparse.ArgumentParser:
    """The options."""
    from indexlog.cli.delta import delta_options
    from indexlog.cli.raw_files import export_options, import_options

    options = ProgramParser(
        prog=PROGRAM,
        description="An index log: modifications of documents of many search indexes, dealt out into files by index, and read index by index.",
        epilog=EXIT_STATUSES,
    )
    cluster_option(options)
    options.add_argument(
        "--path", default="/indexlog", metavar="DIR", help="its directory in the log tree (default: /indexlog)"
    )
    program_options(options)
    verbs = options.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, run: Callable[..., Awaitable[int]], text: str) -> argparse.ArgumentParser:
        own: argparse.ArgumentParser = verbs.add_parser(name, help=text, description=f"{text}.")
        own.set_defaults(run=run)
        return own

    init = verb("init", _init, "make an index log")
    init.add_argument(
        "--store", required=True, metavar="URL", help="where files go: file:///DIRECTORY, s3://BUCKET/PATH"
    )
    init.add_argument("--raw-logs", type=_count, default=4, metavar="N", help="raw logs (default: 4)")
    verb("bulk", _bulk, "write the modifications that standard input has, a JSON object a line")
    import_options(verb("import", _import, "write what raw files of independent writers hold, as one history"))
    export_options(verb("export", _export, "write what the raw logs hold into raw files"))
    delta_options(
        verb("export-delta", _export_delta, "make a table of Delta Lake the documents of all indexes, or of some")
    )
    deal = verb("deal", _deal, "deal what raw logs hold into files")
    _repeating(deal)
    deal.add_argument("--jobs", type=_count, default=1, metavar="N", help="so many at once (default: 1)")
    optimize = verb("optimize", _optimize, "sort and optimize as far as that pays")
    _repeating(optimize)
    optimize.add_argument("--all", action="store_true", help="merge everything that can be merged")
    optimize.add_argument("--index", metavar="INDEX", help="of this index only")
    optimize.add_argument("--jobs", type=_count, default=4, metavar="N", help="so many at once (default: 4)")
    read = verb("read", _read, "print the documents of an index")
    read.add_argument("index", metavar="INDEX")
    read.add_argument("--json", action="store_true", help="a JSON object a line")
    status = verb("status", _status, "print how far dealing is, and what there is")
    status.add_argument("--json", action="store_true", help="as JSON")
    verb("indexes", _indexes, "print the indexes")
    files = verb("files", _files, "print what an index consists of, oldest first")
    files.add_argument("index", metavar="INDEX")
    verify = verb("verify", _verify, "compare the pages of all indexes, or of some, with the raw logs")
    verify.add_argument("indexes", nargs="*", metavar="INDEX")
    collect = verb("gc", _collect, "delete files that nobody needs")
    collect.add_argument(
        "--grace",
        type=parse_timeout,
        default=1800.0,
        metavar="T",
        help="keep what was replaced for so long, for readers (default: 30min)",
    )
    collect.add_argument(
        "--end-job",
        type=_count,
        action="append",
        default=[],
        metavar="N",
        help="a job that nobody does any more: see status",
    )
    collect.add_argument(
        "--trim-raw",
        type=parse_timeout,
        metavar="T",
        help="trim raw logs too: what is dealt and older than this, like 24h. Readers that are away for longer begin again, and verify cannot compare any more",
    )
    drop = verb("drop", _drop, "drop an index, with all that was written to it")
    drop.add_argument("index", metavar="INDEX")
    route = verb("route", _route, "go on with other raw logs")
    route.add_argument("--raw-logs", type=_count, required=True, metavar="N", help="how many")
    return options


def _repeating(options: argparse.ArgumentParser) -> None:
    how = options.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="and end (the default)")
    how.add_argument("--every", type=parse_timeout, metavar="T", help="again after so long, until interrupted")


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 1 << 62:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 on")
    return int(text)


async def run(arguments: argparse.Namespace) -> int:
    """The program, with the options parsed."""
    from client.client import Client
    from indexlog.index_log import IndexLog

    async with Client(arguments.config, name=PROGRAM) as client:
        if arguments.verb == "init":
            return await _init(client, arguments)
        try:
            log = IndexLog(client, arguments.path)
        except LogDeviceError as error:
            if error.status is Status.NOTFOUND:
                error = LogDeviceError(
                    Status.NOTFOUND, f"there is no index log at {arguments.path}: ldindex init makes one"
                )
            raise error from None
        async with log:
            status: int = await arguments.run(log, arguments)
            return status


def _print(*lines: str) -> None:
    put(standard_output(), "".join(f"{line}\n" for line in lines).encode())


async def _init(client: Client, arguments: argparse.Namespace) -> int:
    from indexlog.index_log import make_index_log

    await make_index_log(client, arguments.store, path=arguments.path, raw_logs=arguments.raw_logs)
    return EXIT_OK


async def _bulk(log: IndexLog, arguments: argparse.Namespace) -> int:
    async with log.writer() as writer:
        count = await writer.bulk(_records(sys.stdin.buffer))
    say(PROGRAM, f"{count} modifications written")
    return EXIT_OK


async def _import(log: IndexLog, arguments: argparse.Namespace) -> int:
    from indexlog.cli.raw_files import import_files

    return await import_files(log, arguments, PROGRAM)


async def _export(log: IndexLog, arguments: argparse.Namespace) -> int:
    from indexlog.cli.raw_files import export_files

    return await export_files(log, arguments, PROGRAM)


async def _export_delta(log: IndexLog, arguments: argparse.Namespace) -> int:
    from indexlog.cli.delta import export_table

    return await export_table(log, arguments, PROGRAM)


def _records(lines: Any) -> Iterator[LogRecord]:
    from indexlog.writer import record_of

    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if type(row) is not dict:
                raise ValueError("a JSON object expected")
            yield record_of(row)
        except (ValueError, LogDeviceError) as error:
            text = error.detail if isinstance(error, LogDeviceError) else str(error)
            raise InputError(f"standard input, line {number}: {text}; the lines before are written") from None


async def _repeat(arguments: argparse.Namespace, work: Callable[[], Awaitable[str]]) -> int:
    import asyncio

    while True:
        say(PROGRAM, await work())
        if arguments.every is None:
            return EXIT_OK
        await asyncio.sleep(arguments.every)


async def _deal(log: IndexLog, arguments: argparse.Namespace) -> int:
    async def work() -> str:
        done = await log.deal(jobs=arguments.jobs)
        unreadable = f", {done.unreadable} records are no modifications" if done.unreadable else ""
        return f"dealt {done.records} modifications, {done.bytes} bytes, into {done.containers} containers{unreadable}"

    return await _repeat(arguments, work)


async def _optimize(log: IndexLog, arguments: argparse.Namespace) -> int:
    from indexlog.planning import ALL_AT_ONCE, STANDARD_POLICY

    async def work() -> str:
        policy = ALL_AT_ONCE if arguments.all else STANDARD_POLICY
        done = await log.optimize(policy, index=arguments.index, jobs=arguments.jobs)
        return f"sorted {done.sorted} and optimized {done.optimized} times, {done.records} documents written, {done.bytes} bytes unpacked"

    return await _repeat(arguments, work)


def _as_json(docid: str, found: Modification) -> dict[str, Any]:
    told = {
        "docid": docid,
        "fields": found.fields,
        "variables": {str(number): worth for number, worth in sorted(found.variables.items())},
        "categories": dict(sorted(found.categories.items())),
    }
    return {name: value for name, value in told.items() if value not in (None, {})}


async def _read(log: IndexLog, arguments: argparse.Namespace) -> int:
    found = await log.documents(arguments.index)
    for docid in sorted(found):
        told = _as_json(docid, found[docid])
        if arguments.json:
            _print(json.dumps(told, ensure_ascii=False))
        else:
            rest = {name: value for name, value in told.items() if name != "docid"}
            _print(f"{docid}  {json.dumps(rest, ensure_ascii=False)}")
    return EXIT_OK


async def _status(log: IndexLog, arguments: argparse.Namespace) -> int:
    told = await log.describe()
    if arguments.json:
        _print(json.dumps(told))
        return EXIT_OK
    for name in ("store", "state", "indexes", "parts", "records", "bytes", "retired_parts", "forgotten", "unreadable"):
        _print(f"{name:14} {told[name]}")
    for each in told["raw_logs"]:
        _print(
            f"raw log {each['log']}: generation {each['generation']}, dealt up to {each['dealt']}, ends at {each['tail']}"
        )
    for each in told["jobs"]:
        _print(f"job {each['token']}: began at {each['began']} and has not ended")
    return EXIT_OK


async def _indexes(log: IndexLog, arguments: argparse.Namespace) -> int:
    for index, parts in sorted(log.state.indexes.items()):
        _print(f"{index}  {len(parts)} parts, {sum(part.records for part in parts)} records")
    return EXIT_OK


async def _files(log: IndexLog, arguments: argparse.Namespace) -> int:
    for part in log.state.parts(arguments.index):
        _print(f"{part.name}  {part.bytes} bytes  {part.path}")
    return EXIT_OK


async def _verify(log: IndexLog, arguments: argparse.Namespace) -> int:
    from indexlog.verifying import verify

    checked, wrong = 0, 0
    async for report in verify(log, arguments.indexes or None):
        checked += 1
        if report.trouble:
            wrong += 1
            _print(f"{report.index}: {report.trouble}")
    say(PROGRAM, f"{checked} indexes compared with the raw logs, {wrong} of them differ", alarm=wrong > 0)
    return EXIT_FAILED if wrong else EXIT_OK


async def _collect(log: IndexLog, arguments: argparse.Namespace) -> int:
    for token in arguments.end_job:
        await log.end_job(token)
    done = await log.collect(grace=arguments.grace)
    say(PROGRAM, f"{done.files} files deleted, {done.bytes} bytes")
    if arguments.trim_raw is not None:
        from indexlog.trimming import trim_raw_logs

        for raw, lsn in (await trim_raw_logs(log, keep=arguments.trim_raw)).items():
            say(PROGRAM, f"raw log {raw} is trimmed up to {lsn}")
    return EXIT_OK


async def _drop(log: IndexLog, arguments: argparse.Namespace) -> int:
    await log.drop(arguments.index)
    return EXIT_OK


async def _route(log: IndexLog, arguments: argparse.Namespace) -> int:
    await log.change_routing(arguments.raw_logs)
    return EXIT_OK


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit status."""
    arguments = parser().parse_args(argv)
    return run_program(PROGRAM, lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
