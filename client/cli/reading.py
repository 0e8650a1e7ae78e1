"""What ``ldcat`` and ``ldtail`` share."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from client.cli.encryption_keys import keys_option
from client.cli.output import Printer
from client.cli.program import Attendant, common_options
from client.cli.record_lines import record_options
from client.cluster_file import LOCATION_VARIABLE
from client.encryption import KEYS_VARIABLE
from client.location import region
from client.read.batch import RecordBatch
from client.read.items import Gap, RecordRun
from logdevice_py.config.location import Location

if TYPE_CHECKING:
    from client.client import Client
    from client.merged_reader import MergedReader
    from logdevice_py.core.ids import LogId
    from logdevice_py.core.lsn import LSN

READ_AT_ONCE = 10_000


def reading_options(options: argparse.ArgumentParser) -> None:
    """Options of both programs."""
    common_options(
        options,
        many=True,
        timeout="default: 10s for the answer where the log ends, and no limit for records that are there",
    )
    record_options(options, raw="each record and a newline", null="end raw records with")
    options.add_argument("--local-time", action="store_true", help="times of JSON in this machine's zone, not in UTC")
    keys_option(options, f"keys of records that are encrypted (default: ${KEYS_VARIABLE})")
    stands = options.add_mutually_exclusive_group()
    stands.add_argument(
        "--location",
        metavar="PLACE",
        help=f"where this program stands, as region.datacenter.cluster.row.rack: the nearest copies are read (default: ${LOCATION_VARIABLE}, else the cluster file says)",
    )
    stands.add_argument("--from-region", dest="region", type=_region, metavar="REGION", help="the same, of a region")
    options.add_argument("-v", "--verbose", action="store_true", help="also report gaps that nobody misses")


def _region(text: str) -> Location:
    try:
        return region(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no region: letters, digits, _ and - only") from None


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
    work: Callable[[Client, list[LogId], Attendant], Awaitable[int]],
) -> int:
    """Open a client and do the work while an attendant looks after it."""
    from client.client import Client

    place = arguments.location if arguments.region is None else arguments.region
    async with Client(arguments.config, name=program, location=place) as client:
        attendant = Attendant(program, client, timeout=arguments.timeout)

        async def look_up_and_work() -> int:
            logs = await attendant.find(client.known_logs(*arguments.logs, timeout=arguments.timeout))
            return await work(client, logs, attendant)

        return await attendant.attend(look_up_and_work())


async def find_tails(client: Client, logs: list[LogId], attendant: Attendant, timeout: float | None) -> list[LSN]:
    """The tail of each log; the attendant says so when that takes long."""
    what = f"log {logs[0]}" if len(logs) == 1 else f"{len(logs)} logs"
    attendant.waits_for = lambda: f"the sequencer of {what} to say where the log ends"
    tails = await asyncio.gather(*(client.tail_lsn(log, timeout=timeout) for log in logs))
    attendant.waits_for = lambda: f"records of {what}, to look positions up"
    return tails


def watch_reader(attendant: Attendant, client: Client, merged: MergedReader, tails: Sequence[LSN | None]) -> None:
    """Have the attendant look after a reader of logs with these tails. Behind a tail nobody knows when the next record is written; where a tail was not
    asked for (None), all of the range is waited for."""
    readers = merged.readers

    def waits_for() -> str | None:
        for reader, tail in zip(readers, tails, strict=True):
            if tail is None or reader.next_lsn <= tail:
                return reader.waiting_for()
        if merged.holds:
            return f"{merged.waiting_for()} (records of other logs are here)"
        return None if client.connectivity().connected else readers[0].waiting_for()

    attendant.waits_for = waits_for
    attendant.progress = lambda: [reader.next_lsn for reader in readers]


def first_of(batch: RecordBatch, count: int) -> RecordBatch:
    """The first records of a batch, with the gaps before the last of them."""
    if len(batch) < count:
        return batch
    kept = RecordBatch(batch.log)
    for part in batch.runs_and_gaps():
        if isinstance(part, Gap):
            kept.add_gap(part)
            continue
        payloads, run = part
        left = min(count - len(kept), run.count)
        keys = None if run.keys is None else run.keys[:left]
        kept.add_records(payloads[:left], RecordRun(run.lsn, run.timestamp, run.batch_offset, left, keys))
        if len(kept) == count:
            break
    return kept


def nothing_to_print(start: LSN, until: LSN, tail: LSN | None) -> str:
    """Why a range holds nothing; `tail`: None where nobody asked for it."""
    if tail is not None and not tail:
        return "nothing there: the log is empty"
    if tail is not None and start > tail:
        return f"nothing there: the log ends at {tail}"
    return f"nothing there: {start} lies behind {until}"
