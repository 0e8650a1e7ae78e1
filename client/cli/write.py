"""``ldwrite``: appends the lines of standard input to a log."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Awaitable, Iterator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, BinaryIO

from logdevice_py.core.status import LogDeviceError, Status

if TYPE_CHECKING:
    from client.buffered_writer import BufferedWriter
    from client.receipt import Receipts

CHUNK = 1 << 20
CHUNKS_IN_FLIGHT = 16
EXIT_OK, EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 0, 1, 2, 130
_USAGE = frozenset({Status.NOTFOUND, Status.INVALID_PARAM, Status.INVALID_CONFIG})


def split_lines(chunks: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Lists of lines without their newline, in order. Only ``\\n`` ends a line; empty lines count, and so does a last line without one."""
    rest: list[bytes] = []
    for chunk in chunks:
        lines = chunk.split(b"\n")
        if len(lines) == 1:
            rest.append(chunk)  # a line longer than a chunk: joined once, when its end comes
            continue
        if rest:
            rest.append(lines[0])
            lines[0] = b"".join(rest)
        last = lines.pop()
        rest = [last] if last else []
        yield lines
    if rest:
        yield [b"".join(rest)]


def read_chunks(stream: BinaryIO) -> Iterator[bytes]:
    """What the stream has ready, up to a chunk at a time."""
    descriptor = stream.fileno()
    while chunk := os.read(descriptor, CHUNK):
        yield chunk


class WriteProgress:
    """What was done so far; shown on a terminal four times a second."""

    def __init__(self, *, shown: bool) -> None:
        self.records = self.bytes = self.acknowledged = 0
        self.first: str | None = None
        self.last: str | None = None
        self.error = ""
        self.misused = False
        """The cluster file or the log does not exist."""
        self._start = time.monotonic()
        self._shown = shown
        self._drawn = False

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._start

    async def show(self) -> None:
        """Draw until cancelled."""
        while self._shown:
            await asyncio.sleep(0.25)
            self.draw()

    def draw(self) -> None:
        """One line, over the one before."""
        rate = self.acknowledged / max(self.seconds, 1e-9)
        print(
            f"\r{self.acknowledged:,} of {self.records:,} records acknowledged, {rate:,.0f}/s\x1b[K",
            end="",
            file=sys.stderr,
            flush=True,
        )
        self._drawn = True

    def clear(self) -> None:
        """Leave no half line behind."""
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def summary(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "records": self.records,
            "bytes": self.bytes,
            "acknowledged": self.acknowledged,
            "failed": self.records - self.acknowledged,
            "seconds": round(self.seconds, 6),
            "first": self.first,
            "last": self.last,
        }


def feed(stream: BinaryIO, loop: asyncio.AbstractEventLoop, queue: asyncio.Queue[list[bytes] | None]) -> None:
    """Read in a thread of its own: a read that waits for a person at a terminal must not hold up anything else."""
    try:
        for lines in split_lines(read_chunks(stream)):
            if lines:
                asyncio.run_coroutine_threadsafe(queue.put(lines), loop).result()
        asyncio.run_coroutine_threadsafe(queue.put(None), loop).result()
    except (RuntimeError, CancelledError):
        return  # the loop is gone: interrupted


async def write_lines(writer: BufferedWriter, log: int, stream: BinaryIO, progress: WriteProgress) -> None:
    """Append every line. Reading goes on while earlier lines are on their way."""
    batches: asyncio.Queue[list[bytes] | None] = asyncio.Queue(2)
    pending: asyncio.Queue[tuple[int, Awaitable[Receipts]] | None] = asyncio.Queue(CHUNKS_IN_FLIGHT)
    threading.Thread(
        target=feed, args=(stream, asyncio.get_running_loop(), batches), name="standard input", daemon=True
    ).start()
    async with asyncio.TaskGroup() as group:
        group.create_task(collect(pending, progress))
        while (lines := await batches.get()) is not None:
            await writer.ready()
            progress.records += len(lines)
            progress.bytes += sum(map(len, lines))
            await pending.put((len(lines), writer.append_many(log, lines)))
        await pending.put(None)


async def collect(pending: asyncio.Queue[tuple[int, Awaitable[Receipts]] | None], progress: WriteProgress) -> None:
    """Note what became of the lines, in order."""
    while (item := await pending.get()) is not None:
        count, outcome = item
        try:
            receipts = await outcome
        except LogDeviceError as error:
            progress.error = progress.error or str(error)
            continue
        progress.acknowledged += count
        progress.first = progress.first or str(receipts[0].lsn)
        progress.last = str(receipts[-1].lsn)


async def run(arguments: argparse.Namespace) -> int:
    """The program, with the options parsed."""
    from client.client import Client

    progress = WriteProgress(shown=sys.stderr.isatty() and not arguments.quiet)
    interrupted = False
    try:
        async with Client(arguments.config, name="ldwrite") as client:
            log = client.log_id(arguments.log)
            shower = asyncio.create_task(progress.show())
            try:
                async with client.buffered_writer(compression=arguments.compression) as writer:
                    await write_lines(writer, log, sys.stdin.buffer, progress)
            finally:
                shower.cancel()
                await asyncio.gather(shower, return_exceptions=True)
                progress.clear()
    except* LogDeviceError as errors:
        error = errors.exceptions[0]
        progress.error = progress.error or str(error)
        progress.misused = not progress.records and isinstance(error, LogDeviceError) and error.status in _USAGE
    except* (asyncio.CancelledError, KeyboardInterrupt):
        interrupted = True
    return report(progress, arguments, interrupted=interrupted)


def report(progress: WriteProgress, arguments: argparse.Namespace, *, interrupted: bool) -> int:
    """Say what came of it; the exit status."""
    if progress.misused:
        print(f"ldwrite: {progress.error}", file=sys.stderr)
        return EXIT_USAGE
    if arguments.json:
        print(json.dumps(progress.summary()), flush=True)
    elif not arguments.quiet or progress.error:
        rate = progress.acknowledged / max(progress.seconds, 1e-9)
        place = f", {progress.first} to {progress.last}" if progress.first else ""
        print(
            f"ldwrite: {progress.acknowledged} of {progress.records} records acknowledged in {progress.seconds:.3f} s "
            f"({rate:,.0f}/s){place}",
            file=sys.stderr,
        )
    if progress.error:
        print(f"ldwrite: {progress.error}", file=sys.stderr)
    if interrupted:
        return EXIT_INTERRUPTED
    return EXIT_OK if progress.acknowledged == progress.records and not progress.error else EXIT_FAILED


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="ldwrite",
        description="Append each line of standard input, without its newline, to a log. Lines keep their order and none is stored twice. "
        "Exits with 0 only when every line was acknowledged.",
    )
    options.add_argument("-c", "--config", required=True, metavar="FILE", help="the cluster file")
    options.add_argument("log", metavar="LOG", help="id of the log, or its path like /team/clicks")
    options.add_argument(
        "--compression", choices=("none", "lz4", "zstd"), default="none", help="of batches (default: none)"
    )
    options.add_argument(
        "--json", action="store_true", help="print one JSON object about the outcome on standard output"
    )
    options.add_argument("-q", "--quiet", action="store_true", help="no progress and no summary, errors only")
    return options


def main(argv: list[str] | None = None) -> int:
    """Entry point; the exit status."""
    arguments = parser().parse_args(argv)
    try:
        status = asyncio.run(run(arguments))
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    return status


if __name__ == "__main__":
    sys.exit(main())
