"""``ldstream``'s verbs for subscriptions: how far they are, and commits by hand."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from client.cli.program import compact_json, put, say, standard_output
from client.guards import Position
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import format_duration
from streams.subscriptions.positions import before

if TYPE_CHECKING:
    from streams.namespace import Namespace
    from streams.stream import Stream
    from streams.stream_subscriptions import StreamSubscription

PROGRAM: Final = "ldstream"


def _name(arguments: argparse.Namespace, given: str) -> str:
    return given.removeprefix(f"{arguments.namespace.rstrip('/')}/")


async def _opened(namespace: Namespace, arguments: argparse.Namespace) -> Stream:
    return await namespace.open(_name(arguments, arguments.stream), timeout=arguments.timeout)


async def list_subscriptions(namespace: Namespace, arguments: argparse.Namespace) -> int:
    """``ldstream subscriptions``."""
    if arguments.stream is None:
        entries = await namespace.subscriptions(timeout=arguments.timeout)
    else:
        entries = await (await _opened(namespace, arguments)).subscriptions(timeout=arguments.timeout)
    if arguments.json:
        for entry in entries:
            put(standard_output(), compact_json(_as_json(entry)))
        return 0
    rows = [("SUBSCRIPTION", "STREAM", "POSITION", "AGE", "OWNER")]
    for entry in entries:
        position = "-" if entry.position is None else str(entry.position)
        rows.append((entry.subscription, entry.stream, position, _age(entry), entry.owner or "-"))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        put(standard_output(), line.rstrip().encode() + b"\n")
    return 0


def _age(entry: StreamSubscription) -> str:
    age = entry.age
    return "-" if age is None else format_duration(round(age.total_seconds()) * 1_000_000)


def _as_json(entry: StreamSubscription) -> dict[str, Any]:
    age = entry.age
    return {
        "subscription": entry.subscription,
        "stream": entry.stream,
        "number": entry.number,
        "position": None if entry.position is None else str(entry.position),
        "version": None if entry.version is None else str(entry.version),
        "committed": None if entry.committed is None else entry.committed.isoformat(),
        "age_seconds": None if age is None else round(age.total_seconds(), 3),
        "commits": entry.commits,
        "shared": entry.is_shared,
        "owner": entry.owner,
        "token": entry.token,
    }


def _refuse_behind(end: Position, stream: Stream, position: Position) -> LogDeviceError:
    """What nobody has written yet would be passed over, for good."""
    text = f"nothing is written at {position} yet: stream {stream.name} ends at {end}, and records to come would be passed over"
    return LogDeviceError(Status.INVALID_PARAM, text)


async def commit(namespace: Namespace, arguments: argparse.Namespace) -> int:
    """``ldstream commit``."""
    stream = await _opened(namespace, arguments)
    end = await stream.end(timeout=arguments.timeout)
    if arguments.position >= end:
        raise _refuse_behind(end, stream, arguments.position)
    try:
        await stream.commit(arguments.subscription, arguments.position, timeout=arguments.timeout)
    except LogDeviceError as error:
        if error.status is not Status.STALE:
            raise
        text = f"{error.detail}: ldstream reset goes back"
        raise LogDeviceError(error.status, text, retriable=False, maybe_applied=False) from None
    say(PROGRAM, f"{arguments.subscription}: has handled {stream.name} up to {arguments.position}")
    return 0


async def reset(namespace: Namespace, arguments: argparse.Namespace) -> int:
    """``ldstream reset``."""
    stream = await _opened(namespace, arguments)
    place = arguments.place
    if place == "oldest":
        place = stream.oldest
    else:
        end = await stream.end(timeout=arguments.timeout)
        place = end if place == "end" else place
        if place > end:
            raise _refuse_behind(end, stream, place)
    await stream.commit(arguments.subscription, before(place), reset=True, timeout=arguments.timeout)
    say(PROGRAM, f"{arguments.subscription}: goes on in {stream.name} at {place}")
    return 0


def _parse_place(text: str) -> Position | str:
    if text in ("oldest", "end"):
        return text
    try:
        return Position.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{error}; or write oldest, or end") from None


def list_options(options: argparse.ArgumentParser) -> None:
    """Of ``ldstream subscriptions``."""
    options.add_argument("stream", metavar="STREAM", nargs="?", help="only those of this stream")
    options.add_argument("--json", action="store_true", help="one object a line")


def _subject_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("subscription", metavar="SUBSCRIPTION", help="its name")
    options.add_argument("stream", metavar="STREAM", help="the stream's name, like orders or team/orders")


def commit_options(parse_position: Callable[[str], Position]) -> Callable[[argparse.ArgumentParser], None]:
    """Of ``ldstream commit``."""

    def add(options: argparse.ArgumentParser) -> None:
        _subject_options(options)
        options.add_argument(
            "position", metavar="POSITION", type=parse_position, help="of the last record that is handled, like e3n17+2"
        )

    return add


def reset_options(options: argparse.ArgumentParser) -> None:
    """Of ``ldstream reset``."""
    _subject_options(options)
    options.add_argument(
        "place",
        metavar="PLACE",
        type=_parse_place,
        help="of the first record that is to be handled: oldest, end, or a position like e3n17+2",
    )
