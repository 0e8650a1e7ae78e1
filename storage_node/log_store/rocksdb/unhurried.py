"""Work that has time, in a thread of its own beside a busy event loop."""

from __future__ import annotations

import threading
import time
from typing import Final

_PIECE: Final = 0.00025
"""Seconds of work between two rests: the interpreter, which the loop needs as well, is held no longer."""


class BrokenOffError(Exception):
    """The work is not wanted any more."""


class Unhurried:
    """Keeps work to a share of a thread's time: it calls `rest` often, which returns when it may go on."""

    def __init__(self, share_percent: int) -> None:
        """
        Args:
            share_percent: 1 to 100.
        """
        self._rest_for_each = 100 / share_percent - 1
        self._stopped = threading.Event()
        self._began = time.perf_counter()

    def begin(self) -> None:
        """The work begins here; what the thread did before does not count."""
        self._began = time.perf_counter()

    def rest(self) -> None:
        """Between two pieces of the work.

        Raises:
            BrokenOffError: after `stop`.
        """
        took = time.perf_counter() - self._began
        if took >= _PIECE:
            self._stopped.wait(took * self._rest_for_each)
            self._began = time.perf_counter()
        if self._stopped.is_set():
            raise BrokenOffError

    def stop(self) -> None:
        """Break the work off; from any thread."""
        self._stopped.set()
