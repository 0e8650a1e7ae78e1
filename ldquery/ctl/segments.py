"""``ldctl logs segments``: one row a segment of a log."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, Final

from client.cli.options import Words, complete_words
from client.cli.program import EXIT_OK
from ldquery.ctl.verb import Verb, format_size, show, show_rows
from logdevice_py.core.lsn import LSN

if TYPE_CHECKING:
    from client.client import Client
    from client.look_up.segments import LogSegment

_SHOWN: Final = ("epoch", "state", "first", "last", "records", "size", "first record", "completed", "txids", "lost")


def _options(options: argparse.ArgumentParser) -> None:
    complete_words(
        options.add_argument("log", metavar="LOG", help="id of the log, or its path like /team/clicks"), Words.LOGS
    )
    options.add_argument(
        "--from",
        dest="start",
        metavar="LSN",
        type=LSN.parse,
        default=LSN.OLDEST,
        help="leave out those that end before",
    )
    options.add_argument("--limit", metavar="N", type=int, help="at most so many, the first ones")


async def _segments(client: Client, arguments: argparse.Namespace) -> int:
    found = await client.segments(
        arguments.log, start=arguments.start, limit=arguments.limit, timeout=arguments.timeout
    )
    if arguments.json:
        for segment in found:
            show(arguments, as_told(segment))
    else:
        show_rows(arguments, [_readable(segment) for segment in found], _SHOWN)
    return EXIT_OK


def as_told(segment: LogSegment) -> dict[str, Any]:
    """A segment with all that is known of it."""
    return {
        "epoch": segment.epoch,
        "state": segment.state.value,
        "first_lsn": str(segment.first_lsn),
        "last_lsn": None if segment.last_lsn is None else str(segment.last_lsn),
        "entries": segment.entries,
        "records": segment.records,
        "bytes": segment.bytes,
        "first_timestamp": segment.first_timestamp,
        "last_timestamp": segment.last_timestamp,
        "completed": segment.completed,
        "first_txid": segment.first_txid,
        "last_txid": segment.last_txid,
        "lost": segment.lost,
        "authoritative": segment.authoritative,
        "trimmed_to": str(segment.trimmed_to) if segment.trimmed_to else None,
    }


def _readable(segment: LogSegment) -> dict[str, Any]:
    told = as_told(segment)
    txids = None if segment.first_txid is None else f"{segment.first_txid}..{segment.last_txid}"
    return {
        "epoch": segment.epoch,
        "state": segment.state.value,
        "first": told["first_lsn"],
        "last": told["last_lsn"],
        "records": segment.records,
        "size": None if segment.bytes is None else format_size(segment.bytes),
        "first record": segment.first_timestamp,
        "completed": segment.completed,
        "txids": txids,
        "lost": segment.lost,
    }


VERBS: tuple[Verb, ...] = (
    Verb(
        "logs segments",
        "one row a segment of a log: where it begins and ends, and what it holds",
        "Print the segments of a log, which are its non-empty epochs. What they hold is known of logs that roll (roll_every, roll_bytes) or are guarded; of "
        "others it is known where they end. Segments that are trimmed whole are left out. With --json an object a line.",
        _options,
        _segments,
    ),
)
