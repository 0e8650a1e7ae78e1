"""``ldcat``: prints a range of a log."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING

from client.cli.contents import ContentDigest
from client.cli.encryption_keys import keys_of
from client.cli.options import ProgramParser, hint_at
from client.cli.positions import HELP, Anchor, NamedPosition, parse_position, resolve, resolve_end
from client.cli.program import Attendant, compact_json, put, run_program, say, standard_output
from client.cli.reading import (
    READ_AT_ONCE,
    find_tails,
    first_of,
    nothing_to_print,
    printer_of,
    reading_options,
    watch_reader,
    with_attendant,
)
from client.cli.record_lines import check_record_options
from client.merged_reader import MergedReader
from logdevice_py.core.lsn import LSN

if TYPE_CHECKING:
    from client.client import Client
    from logdevice_py.core.ids import LogId

_PROGRESS_SECONDS = 1.0


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = ProgramParser(
        prog="ldcat",
        description="Print the records of logs, several in the order of time, up to their tails at the start of the program. Gaps go to standard error. "
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
        help="last position, inclusive (default: tail); of a time: what is older",
    )
    hint_at(
        options,
        "-n",
        "--lines",
        "--last",
        text="the last records are printed by ldtail: ldtail --last 5 LOG; the first ones by --count 5",
    )
    options.add_argument(
        "--as-it-comes", action="store_true", help="records of several logs as they come, not in the order of time"
    )
    what = options.add_mutually_exclusive_group()
    what.add_argument(
        "--count",
        type=_count,
        metavar="N",
        help="stop after N records, of all logs together; data loss behind them is not told",
    )
    what.add_argument(
        "--proof",
        action="store_true",
        help="print no records but one JSON object a log that sums up the range: equal for all readers that saw the same; bytes are those of the stored entries; contents is equal for all logs whose records have the same keys and payloads in the same order",
    )
    return options


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of records, which is 1 at least")
    return int(text)


async def run(arguments: argparse.Namespace) -> int:
    """The program, with the options parsed."""
    printer = printer_of("ldcat", arguments)
    shows_progress = sys.stderr.isatty() and (arguments.proof or not sys.stdout.isatty())

    async def work(client: Client, logs: list[LogId], attendant: Attendant) -> int:
        tails: list[LSN | None] = [None] * len(logs)
        if not arguments.start.anchor is arguments.until.anchor is Anchor.LSN:
            tails = [*await find_tails(client, logs, attendant, arguments.timeout)]
        readers, printer.names_logs = [], len(logs) > 1
        keys = keys_of(arguments)
        nothing: list[str] = []
        for log, tail in zip(logs, tails, strict=True):
            start = await resolve(client, log, arguments.start, tail or LSN(0))
            until = await resolve_end(client, log, arguments.until, tail or LSN(0))
            of_log = f"log {log}: " if len(logs) > 1 else ""
            if start > until and (start > LSN.OLDEST or until != tail):
                nothing.append(of_log + nothing_to_print(start, until, tail))
            elif tail is not None and until > tail:
                say("ldcat", f"{of_log}the log ends at {tail} so far: waits for records up to {until}")
            readers.append(client.reader(log, start, until, encryption=keys))
        if len(nothing) == 1:
            say("ldcat", nothing[0])
        elif nothing:
            which = "all" if len(nothing) == len(logs) else f"{len(nothing)} of the"
            say("ldcat", f"{which} {len(logs)} logs have nothing in this range")
        shown_at = time.monotonic()
        contents = {log: ContentDigest() for log in logs}
        by_time = len(logs) > 1 and not arguments.proof and not arguments.as_it_comes
        async with MergedReader(readers, by_time=by_time, tail_lsn=client.tail_lsn) as merged:
            watch_reader(attendant, client, merged, tails)
            left = arguments.count
            while left != 0:
                batch = await merged.read(READ_AT_ONCE if left is None else min(left, READ_AT_ONCE))
                if batch is None:
                    break
                if left is not None:
                    batch = first_of(batch, left)
                    left -= len(batch)
                if arguments.proof:
                    for gap in batch.gaps:
                        printer.print_gap(batch.log, gap)
                    printer.records += len(batch)
                    contents[batch.log].add(batch)
                else:
                    printer.print_batch(batch)
                if shows_progress and time.monotonic() - shown_at > _PROGRESS_SECONDS:
                    shown_at = time.monotonic()
                    place = f", at {readers[0].next_lsn}" if len(logs) == 1 else ""
                    print(f"\r{printer.records:,} records{place}\x1b[K", end="", file=sys.stderr)
            if shows_progress:
                print("\r\x1b[K", end="", file=sys.stderr)
            if arguments.proof:
                for reader in readers:
                    summary = reader.proof().as_json() | {"contents": contents[reader.log].digest()}
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
