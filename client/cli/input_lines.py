"""Lines of standard input, read in a thread of its own: a read that waits for a person must not hold up anything else."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

from client.cli.program import InputError

CHUNK = 1 << 20


def split_lines(chunks: Iterator[bytes], end: bytes = b"\n") -> Iterator[list[bytes]]:
    """Lists of lines without their end, in order. Only `end`, one byte, ends a line; empty lines count, and so does a last line without one."""
    rest: list[bytes] = []
    for chunk in chunks:
        lines = chunk.split(end)
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


def _read_chunks(descriptor: int) -> Iterator[bytes]:
    """What the stream has ready, up to a chunk at a time."""
    while chunk := os.read(descriptor, CHUNK):
        yield chunk


def standard_input() -> int:
    """The descriptor of standard input.

    Raises:
        InputError: it was closed before the program started.
    """
    if sys.stdin is None:
        raise InputError("standard input is closed")
    return sys.stdin.fileno()


class InputLines:
    """Lists of lines in order, from a descriptor."""

    def __init__(self, descriptor: int, end: bytes = b"\n") -> None:
        self._descriptor = descriptor
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[list[bytes] | InputError | None] = asyncio.Queue(2)
        threading.Thread(target=self._feed, name="standard input", daemon=True).start()

    def _feed(self) -> None:
        try:
            try:
                for lines in split_lines(_read_chunks(self._descriptor), self._end):
                    if lines:
                        self._hand_over(lines)
                self._hand_over(None)
            except OSError as error:
                self._hand_over(InputError(f"standard input: {error.strerror}"))
        except (RuntimeError, CancelledError):
            return  # the loop is gone: the program ends

    def _hand_over(self, item: list[bytes] | InputError | None) -> None:
        work = self._queue.put(item)
        try:
            asyncio.run_coroutine_threadsafe(work, self._loop).result()
        finally:
            work.close()

    async def next(self) -> list[bytes] | None:
        """The next lines, one at least; None at the end.

        Raises:
            InputError: it cannot be read.
        """
        item = await self._queue.get()
        if isinstance(item, InputError):
            raise item
        return item
