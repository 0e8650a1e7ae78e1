"""The thread that syncs a store."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Callable

from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND
from storage_node.log_store.interface import LogStore


class SyncThread:
    """One thread that syncs a store, one sync at a time."""

    def __init__(self, store: LogStore, delay_us: int, done: Callable[[Status, int], None]) -> None:
        """
        Args:
            delay_us: makes every sync take this much longer.
            done: called on the loop with the outcome and the time that it took, in microseconds.
        """
        self.ended_ns = 0
        """When the last sync ended, by the monotonic clock. The next one changes it, after it was asked for."""
        self._store = store
        self._delay = delay_us / SECOND
        self._done = done
        self._loop = asyncio.get_running_loop()
        self._requests: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="log-store-sync", daemon=True)
        self._thread.start()

    def request(self) -> None:
        """Sync what is written by now."""
        self._requests.put(True)

    def stop(self) -> None:
        """End the thread after the sync that it is in. Blocks until then."""
        self._requests.put(False)
        self._thread.join()

    def _run(self) -> None:
        while self._requests.get():
            began = time.monotonic_ns()
            if self._delay:
                time.sleep(self._delay)
            status = self._store.sync()
            self.ended_ns = time.monotonic_ns()
            took = (self.ended_ns - began) // 1000
            # the loop may be gone when the process ends without an orderly close
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._done, status, took)
