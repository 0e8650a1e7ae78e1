"""``ldcat``: prints a range of a log."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from client.cli.contents import ContentDigest
from client.cli.options import ProgramParser
from client.cli.positions import HELP, Anchor, NamedPosition, parse_position, resolve
from client.cli.program import Attendant, compact_json, put, run_program, say, standard_output
from client.cli.reading import (
    READ_AT_ONCE,
    find_tail,
    nothing_to_print,
    printer_of,
    reading_options,
    watch_reader,
    with_attendant,
)
from client.cli.record_lines import check_record_options
from logdevice_py.core.lsn import LSN

if TYPE_CHECKING:
    from client.client import Client
    from logdevice_py.core.ids import LogId

_PROGRESS_SECONDS = 1.0


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = ProgramParser(
        prog="ldcat",
        description="Print the records of a log, up to its tail at the start of the program. Gaps go to standard error. "
        "Exits with 3 when data loss was reported.",
    )
    reading_options(options)
    options.add_argument(
        "--from",
        dest="start",
        type=parse_position,
        default=NamedPosition(Anchor.LSN, LSN.OLDEST),
        metavar="P",
        help=f"first position (default: oldest): {HELP}",
    )
    options.add_argument(
        "--until",
        type=parse_position,
        default=NamedPosition(Anchor.TAIL),
        metavar="P",
        help="last position, inclusive (default: tail)",
    )
    options.add_argument(
        "--proof",
        action="store_true",
        help="print no records but one JSON object that sums up the range: equal for all readers that saw the same; bytes are those of the stored entries; contents is equal for all logs whose records have the same keys and payloads in the same order",
    )
    return options


async def run(arguments: argparse.Namespace) -> int:
    """The program, with the options parsed."""
    printer = printer_of("ldcat", arguments)
    shows_progress = sys.stderr.isatty() and (arguments.proof or not sys.stdout.isatty())

    async def work(client: Client, log: LogId, attendant: Attendant) -> int:
        tail = await find_tail(client, log, attendant, arguments.timeout)
        start = await resolve(client, log, arguments.start, tail)
        until = await resolve(client, log, arguments.until, tail)
        if start > until and (start > LSN.OLDEST or until != tail):
            say("ldcat", nothing_to_print(start, until, tail))
        elif until > tail:
            say("ldcat", f"the log ends at {tail} so far: waits for records up to {until}")
        shown_at = time.monotonic()
        contents = ContentDigest()
        async with client.reader(log, start, until) as reader:
            watch_reader(attendant, client, reader, tail)
            while batch := await reader.read(READ_AT_ONCE):
                if arguments.proof:
                    for gap in batch.gaps:
                        printer.print_gap(gap)
                    printer.records += len(batch)
                    contents.add(batch)
                else:
                    printer.print_batch(batch)
                if shows_progress and time.monotonic() - shown_at > _PROGRESS_SECONDS:
                    shown_at = time.monotonic()
                    print(f"\r{printer.records:,} records, at {reader.next_lsn}\x1b[K", end="", file=sys.stderr)
            if shows_progress:
                print("\r\x1b[K", end="", file=sys.stderr)
            if arguments.proof:
                summary = reader.proof().as_json() | {"contents": contents.digest()}
                put(standard_output(), compact_json(summary))
        return printer.status

    return await with_attendant("ldcat", arguments, work)


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit status."""
    options = parser()
    arguments = options.parse_args(argv)
    check_record_options(options, arguments)
    return run_program("ldcat", lambda: run(arguments))


if __name__ == "__main__":
    sys.exit(main())
