"""Waiting for a moment to some ten microseconds: the event loop's own timers are a millisecond apart."""

from __future__ import annotations

import asyncio
import ctypes
import os
import time
from typing import Final

_CLOCK_MONOTONIC: Final = 1
_TFD_NONBLOCK: Final = os.O_NONBLOCK
_TFD_CLOEXEC: Final = os.O_CLOEXEC
_ABSOLUTE: Final = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class PreciseTimer:
    """A Linux timerfd that the event loop watches. Moments are `time.monotonic_ns`; one task waits at a time."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK | _TFD_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Itimerspec()
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._loop.add_reader(self._file, self._on_readable)

    async def until(self, moment: int) -> None:
        """Return at `moment`, at once when it has passed. Always lets the event loop turn once."""
        if moment <= time.monotonic_ns():
            await asyncio.sleep(0)
            return
        self._spec.value.seconds, self._spec.value.nanoseconds = divmod(moment, 1_000_000_000)
        if self._libc.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(self._spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def close(self) -> None:
        """Release the file."""
        self._loop.remove_reader(self._file)
        os.close(self._file)

    def _on_readable(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:
            return
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
