"""What ``ldcat`` and ``ldtail`` share."""

from __future__ import annotations

import argparse
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from client.cli.output import Printer
from client.cli.program import Attendant, common_options
from client.cli.record_lines import record_options

if TYPE_CHECKING:
    from client.client import Client
    from client.reader import Reader
    from logdevice_py.core.ids import LogId
    from logdevice_py.core.lsn import LSN

READ_AT_ONCE = 10_000


def reading_options(options: argparse.ArgumentParser) -> None:
    """Options of both programs."""
    common_options(
        options, timeout="default: 10s for the answer where the log ends, and no limit for records that are there"
    )
    record_options(options, raw="each record and a newline", null="end raw records with")
    options.add_argument("--local-time", action="store_true", help="times of JSON in this machine's zone, not in UTC")
    options.add_argument("-v", "--verbose", action="store_true", help="also report gaps that nobody misses")


def printer_of(program: str, arguments: argparse.Namespace) -> Printer:
    """How records are printed, as the options say."""
    return Printer(
        program,
        as_json=arguments.format == "json",
        terminator=b"\0" if arguments.null else b"\n",
        key_delimiter=arguments.key_delimiter,
        local=arguments.local_time,
        verbose=arguments.verbose,
    )


async def with_attendant(
    program: str,
    arguments: argparse.Namespace,
    work: Callable[[Client, LogId, Attendant], Awaitable[int]],
) -> int:
    """Open a client and do the work while an attendant looks after it."""
    from client.client import Client

    async with Client(arguments.config, name=program) as client:
        log = client.log_id(arguments.log)
        attendant = Attendant(program, client, log, timeout=arguments.timeout)
        return await attendant.attend(work(client, log, attendant))


async def find_tail(client: Client, log: LogId, attendant: Attendant, timeout: float | None) -> LSN:
    """The tail of the log; the attendant says so when that takes long."""
    attendant.waits_for = lambda: f"the sequencer of log {log} to say where the log ends"
    tail = await client.tail_lsn(log, timeout=timeout)
    attendant.waits_for = lambda: f"records of log {log}, to look positions up"
    return tail


def watch_reader(attendant: Attendant, client: Client, reader: Reader, tail: LSN) -> None:
    """Have the attendant look after a reader. Behind the tail nobody knows when the next record is written."""

    def waits_for() -> str | None:
        if reader.next_lsn <= tail or not client.reach().connected:
            return reader.waiting_for()
        return None

    attendant.waits_for = waits_for
    attendant.progress = lambda: reader.next_lsn


def nothing_to_print(start: LSN, until: LSN, tail: LSN) -> str:
    """Why a range holds nothing."""
    if not tail:
        return "nothing there: the log is empty"
    if start > tail:
        return f"nothing there: the log ends at {tail}"
    return f"nothing there: {start} lies behind {until}"
