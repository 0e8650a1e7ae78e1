"""``ldtail``: prints the end of a log, and what is appended to it."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from client.cli.encryption_keys import keys_of
from client.cli.options import ProgramParser
from client.cli.positions import HELP, parse_position, resolve
from client.cli.program import Attendant, run_program, say
from client.cli.reading import (
    READ_AT_ONCE,
    find_tails,
    nothing_to_print,
    printer_of,
    reading_options,
    watch_reader,
    with_attendant,
)
from client.cli.record_lines import check_record_options
from client.encryption import EncryptionKeys
from client.merged_reader import MergedReader
from client.read.batch import RecordBatch
from client.read.items import Gap, RecordRun
from logdevice_py.core.lsn import LSN, LSN_MAX, compose_lsn

if TYPE_CHECKING:
    from client.client import Client
    from logdevice_py.core.ids import LogId


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = ProgramParser(
        prog="ldtail",
        description="Print the last records of a log, or of several together; with -f go on with what is appended, until interrupted. Gaps go to standard error.",
    )
    reading_options(options)
    options.add_argument("-f", "--follow", action="store_true", help="wait for further records")
    where = options.add_mutually_exclusive_group()
    where.add_argument(
        "-n",
        "--lines",
        "--last",
        type=parse_count,
        default=10,
        metavar="N",
        help="how many records to begin with, of all logs together (default: 10)",
    )
    where.add_argument("--from", dest="start", type=parse_position, metavar="P", help=f"begin here instead: {HELP}")
    return options


def parse_count(text: str) -> int:
    """A number of records, 0 at least; for `argparse`."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of records")
    return int(text)


async def last_records(
    client: Client, log: LogId, tail: LSN, count: int, keys: EncryptionKeys | None = None
) -> RecordBatch:
    """The last records up to the tail. Looks through the tail's epoch first, then from ever earlier ones on."""
    if not count or not tail.epoch:
        return RecordBatch(log)
    starts = [compose_lsn(tail.epoch, max(1, tail.esn - count + 1))]
    starts += [compose_lsn(epoch, 1) for epoch in range(tail.epoch, max(0, tail.epoch - 3), -1)] + [compose_lsn(0, 1)]
    kept = RecordBatch(log)
    for start in starts:
        kept = RecordBatch(log)
        async with client.reader(log, start, tail, encryption=keys) as reader:
            while batch := await reader.read(READ_AT_ONCE):
                kept = last_of_two(kept, batch, count)
        if len(kept) >= count:
            break
    return kept


def last_of_two(kept: RecordBatch, batch: RecordBatch, count: int) -> RecordBatch:
    """The last records of two batches; gaps are dropped."""
    merged = RecordBatch(kept.log)
    surplus = len(kept) + len(batch) - count
    for part in (kept, batch):
        at = 0
        for run in part.runs:
            payloads = part.payloads[at : at + run.count]
            at += run.count
            skip = min(max(surplus, 0), run.count)
            surplus -= skip
            if skip < run.count:
                keys = None if run.keys is None else run.keys[skip:]
                merged.add_records(
                    payloads[skip:], RecordRun(run.lsn, run.timestamp, run.batch_offset + skip, run.count - skip, keys)
                )
    return merged


def last_of_all(batches: list[RecordBatch], count: int) -> list[RecordBatch]:
    """The last records of several logs, in the order of time: a batch a run."""
    parts = [(batch.log, part) for batch in batches for part in batch.runs_and_gaps() if not isinstance(part, Gap)]
    parts.sort(key=lambda of_log: of_log[1][1].timestamp)
    surplus = sum(map(len, batches)) - count
    kept = []
    for log, (payloads, run) in parts:
        whole = RecordBatch(log)
        whole.add_records(payloads, run)
        skip = min(max(surplus, 0), run.count)
        surplus -= skip
        if skip < run.count:
            kept.append(last_of_two(RecordBatch(log), whole, run.count - skip))
    return kept


async def run(arguments: argparse.Namespace) -> int:
    """The program, with the options parsed."""
    printer = printer_of("ldtail", arguments)

    async def work(client: Client, logs: list[LogId], attendant: Attendant) -> int:
        tails = await find_tails(client, logs, attendant, arguments.timeout)
        starts, printer.names_logs = [LSN(tail + 1) for tail in tails], len(logs) > 1
        keys = keys_of(arguments)
        if arguments.start is None:
            for batch in last_of_all(
                [
                    await last_records(client, log, tail, arguments.lines, keys)
                    for log, tail in zip(logs, tails, strict=True)
                ],
                arguments.lines,
            ):
                printer.print_batch(batch)
        else:
            starts = [
                await resolve(client, log, arguments.start, start) for log, start in zip(logs, starts, strict=True)
            ]
            if not arguments.follow and all(start > tail for start, tail in zip(starts, tails, strict=True)):
                say("ldtail", nothing_to_print(starts[0], tails[0], tails[0]))
        readers = [
            client.reader(log, start, LSN_MAX if arguments.follow else tail, encryption=keys)
            for log, start, tail in zip(logs, starts, tails, strict=True)
        ]
        async with MergedReader(
            readers, by_time=len(logs) > 1 and not arguments.follow, tail_lsn=client.tail_lsn
        ) as merged:
            watch_reader(attendant, client, merged, tails)
            while (read := await merged.read(READ_AT_ONCE)) is not None:
                printer.print_batch(read)
        return printer.status

    return await with_attendant("ldtail", arguments, work)


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    check_record_options(options, arguments)
    return run_program("ldtail", lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
