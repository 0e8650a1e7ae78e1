"""The verbs of ``ldstream`` for segments, and for who trims and copies them."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from client.arguments import time_argument
from client.cli.program import EXIT_DATA_LOSS, EXIT_FAILED, EXIT_OK, compact_json, put, say, standard_output
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import format_size, utc_datetime
from streams.upkeep.janitor import Janitor, copy_now
from streams.upkeep.restoring import restore_all, restore_stream

if TYPE_CHECKING:
    from streams.cold.restoring import AppendedAgain
    from streams.namespace import Namespace
    from streams.stream import Stream

_PROGRAM: Final = "ldstream"
Options = Callable[[argparse.ArgumentParser], None]
Run = Callable[["Namespace", argparse.Namespace], Awaitable[int]]


async def _opened(namespace: Namespace, arguments: argparse.Namespace) -> Stream:
    name = str(arguments.stream).removeprefix(f"{namespace.path}/")
    return await namespace.open(name, timeout=arguments.timeout)


def _stream_argument(options: argparse.ArgumentParser) -> None:
    options.add_argument("stream", metavar="STREAM", help="its name, like orders or team/orders")


# Segments


def _segments_options(options: argparse.ArgumentParser) -> None:
    _stream_argument(options)
    options.add_argument("--json", action="store_true", help="one object a line")


async def _segments(namespace: Namespace, arguments: argparse.Namespace) -> int:
    stream = await _opened(namespace, arguments)
    segments = await stream.segments(timeout=arguments.timeout)
    if arguments.json:
        for segment in segments:
            put(standard_output(), compact_json(segment.as_json()))
        return 0
    rows = [("SEGMENT", "STATE", "FIRST", "LAST", "RECORDS", "BYTES", "COMPLETED", "COPIED")]
    for segment in segments:
        rows.append(
            (
                str(segment.number),
                segment.state.value,
                str(segment.first),
                "-" if segment.last is None else str(segment.last),
                "-" if segment.records is None else str(segment.records),
                "-" if segment.bytes is None else format_size(segment.bytes),
                "-" if segment.completed is None else f"{utc_datetime(segment.completed):%Y-%m-%dT%H:%M:%SZ}",
                "yes" if segment.is_copied else "no",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        put(standard_output(), line.rstrip().encode() + b"\n")
    return 0


def upkeep_info(namespace: Namespace, stream: Stream) -> dict[str, Any]:
    """Lines of ``ldstream info``: what is trimmed and copied of a stream, who does it, and what it did last."""
    upkeep, role = namespace.stream_entry(stream.number).upkeep, namespace.state.role
    return {
        "trimmed_to": str(upkeep.trimming_to) if upkeep.trimming_to else None,
        "copied_to": str(upkeep.copied_to) if upkeep.copied_to else None,
        "copies": len(upkeep.copies),
        "janitor": None if role.lease is None else role.lease.owner,
        "janitor_did": role.did or None,
        "janitor_at": f"{utc_datetime(role.at):%Y-%m-%dT%H:%M:%SZ}" if role.at else None,
    }


def unattended(namespace: Namespace, stream: Stream, now: datetime) -> str | None:
    """What people are told of a stream whose attributes nobody acts on; None: somebody does, or nobody need."""
    needed, role = list(stream.attributes.for_janitor), namespace.state.role
    if not needed:
        return None
    if role.lease is None:
        who = f"no janitor runs for {namespace.path}"
    elif role.is_silent(time_argument(now)):
        since = f"{utc_datetime(role.at):%Y-%m-%dT%H:%M:%SZ}"
        who = f"the janitor of {namespace.path}, {role.lease.owner}, has shown no life since {since}"
    else:
        return None
    return f"{who}, so nothing is done for {', '.join(needed)}: start ldstream janitor"


# The janitor


def _owner_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("--owner", metavar="NAME", help="how to call oneself (default: machine and process)")
    options.add_argument("--accept-loss", action="store_true", help="copy also what has lost records")


def _janitor_options(options: argparse.ArgumentParser) -> None:
    _owner_options(options)
    options.add_argument(
        "--lease",
        metavar="T",
        default="10s",
        help="after how long without a sign of life another one takes over (default: 10s)",
    )
    options.add_argument("--every", metavar="T", default="5s", help="how long to rest between two rounds (default: 5s)")


async def _janitor(namespace: Namespace, arguments: argparse.Namespace) -> int:
    janitor = Janitor(
        namespace,
        owner=arguments.owner,
        lease=arguments.lease,
        every=arguments.every,
        accept_loss=arguments.accept_loss,
        on_step=lambda step, stream: say(_PROGRAM, f"{stream}: {step}" if stream else step),
    )
    working = asyncio.ensure_future(janitor.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, working.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await working
    return 0


def _copy_cold_options(options: argparse.ArgumentParser) -> None:
    _stream_argument(options)
    _owner_options(options)


async def _copy_cold(namespace: Namespace, arguments: argparse.Namespace) -> int:
    stream = await _opened(namespace, arguments)
    await copy_now(namespace, stream.number, owner=arguments.owner, accept_loss=arguments.accept_loss)
    upkeep = namespace.stream_entry(stream.number).upkeep
    say(
        _PROGRAM,
        f"{stream.name}: everything that is completed is copied, up to {upkeep.copied_to}; {len(upkeep.copies)} copies",
    )
    return 0


def _restore_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("--from", dest="store", metavar="URL", required=True, help="the store that holds its copies")
    options.add_argument(
        "stream",
        metavar="NAME",
        nargs="?",
        help="a name that is free; without --source that of the copied stream, too",
    )
    options.add_argument("--all", action="store_true", help="all streams of the store, by their own names")
    options.add_argument("--source", metavar="LOG", help="which copies: the name of a stream, a log id, or CLUSTER/ID")
    options.add_argument("--accept-missing", action="store_true", help="go on behind what no copy holds")


async def _restore(namespace: Namespace, arguments: argparse.Namespace) -> int:
    if arguments.all:
        return await _restore_all(namespace, arguments)
    if arguments.stream is None:
        raise LogDeviceError(Status.INVALID_PARAM, "name the stream to restore, or give --all")
    name = str(arguments.stream).removeprefix(f"{namespace.path}/")
    done = await restore_stream(
        namespace, arguments.store, name, source=arguments.source, accept_missing=arguments.accept_missing
    )
    return _tell_restored(name, done)


async def _restore_all(namespace: Namespace, arguments: argparse.Namespace) -> int:
    if arguments.stream is not None or arguments.source is not None:
        raise LogDeviceError(Status.INVALID_PARAM, "--all takes neither a name nor --source")
    statuses = {EXIT_OK}
    async for name, done in restore_all(namespace, arguments.store, accept_missing=arguments.accept_missing):
        if isinstance(done, LogDeviceError):
            say(_PROGRAM, f"{name}: not restored: {done}" if name else str(done), alarm=True)
            statuses.add(EXIT_FAILED)
        else:
            statuses.add(_tell_restored(name, done))
    return EXIT_FAILED if EXIT_FAILED in statuses else max(statuses)


def _tell_restored(name: str, done: AppendedAgain) -> int:
    """Say what came of a stream; the exit status."""
    for gap in done.lost:
        say(_PROGRAM, f"{name}: {gap.lo} to {gap.hi} was lost before it was copied, or no copy holds it", alarm=True)
    if done.damaged:
        say(_PROGRAM, f"{name}: {done.damaged} records had been written damaged, and are left out", alarm=True)
    say(_PROGRAM, f"{name}: {done.records} records appended, with new positions")
    return EXIT_DATA_LOSS if done.lost else EXIT_OK


UPKEEP_VERBS: Final[tuple[tuple[str, str, Options, Run], ...]] = (
    ("segments", "the segments of a stream, and what they hold", _segments_options, _segments),
    ("janitor", "copy, trim and delete as streams' attributes say, until it is stopped", _janitor_options, _janitor),
    ("copy-cold", "copy all segments that are completed, now", _copy_cold_options, _copy_cold),
    ("restore", "make a stream from cold copies, by appending their records", _restore_options, _restore),
)
