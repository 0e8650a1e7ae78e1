"""Positions in a log as people write them on a command line."""

from __future__ import annotations

import argparse
import datetime
import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

from client.guards import Position
from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.lsn import LSN
from logdevice_py.core.units import parse_duration

if TYPE_CHECKING:
    from client.client import Client
    from logdevice_py.core.ids import LogId

HELP = "e3n17, an integer, oldest, tail, a time with its zone like 2026-01-31T12:00:00Z, or -1h for an hour ago"
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Anchor(enum.Enum):
    """What a position is counted from."""

    LSN = enum.auto()  # itself
    TAIL = enum.auto()  # the last LSN that can be read when the program starts
    TIME = enum.auto()  # the first entry that is not older


@dataclass(frozen=True)
class NamedPosition:
    """A position before it is looked up."""

    anchor: Anchor
    value: int = 0
    """An LSN, or Unix UTC microseconds."""


def parse_position(text: str) -> NamedPosition:
    """``e3n17``, an integer, ``oldest``, ``tail``, an ISO 8601 time with a zone, or ``-1h``: so long ago; for `argparse`."""
    word = text.strip().lower()
    if word == "oldest":
        return NamedPosition(Anchor.LSN, LSN.OLDEST)
    if word == "tail":
        return NamedPosition(Anchor.TAIL)
    try:
        return NamedPosition(Anchor.LSN, LSN.parse(word))
    except ValueError as error:
        if "range" in str(error):
            raise argparse.ArgumentTypeError(str(error)) from None
    if word.startswith("-"):
        try:
            return NamedPosition(Anchor.TIME, _now() - parse_duration(word[1:]))
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
    try:
        when = datetime.datetime.fromisoformat(text.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no position: write {HELP}") from None
    if when.tzinfo is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} has no time zone: write {when.isoformat()}Z for UTC, or +02:00 and the like"
        )
    return NamedPosition(Anchor.TIME, (when - _EPOCH) // datetime.timedelta(microseconds=1))


def _now() -> int:
    return (datetime.datetime.now(datetime.UTC) - _EPOCH) // datetime.timedelta(microseconds=1)


async def resolve(client: Client, log: LogId, position: NamedPosition, tail: LSN) -> LSN:
    """The LSN of a position; `tail` is what `Anchor.TAIL` stands for."""
    if position.anchor is Anchor.TAIL:
        return tail
    if position.anchor is Anchor.LSN:
        return LSN(position.value)
    return await client.find_time(log, position.value)


async def resolve_end(client: Client, log: LogId, position: NamedPosition, tail: LSN) -> LSN:
    """The last LSN of a range that ends with a position. One that ends with a time has what is older, as far as there is any yet."""
    if position.anchor is not Anchor.TIME:
        return await resolve(client, log, position, tail)
    return min(LSN(await client.find_time(log, position.value) - 1), tail)


def parse_guard_number(text: str) -> int:
    """A transaction id or fence token. For `argparse`."""
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= NUMBER_MAX):
        raise argparse.ArgumentTypeError(f"{text!r} is no integer from 1 to 2^63 - 1")
    return int(text)


def parse_record_position(text: str) -> Position:
    """The position of a record, like ``e3n17+2``. For `argparse`."""
    try:
        return Position.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
