"""Has large files of dropped families deleted bit by bit.

A file system that tells its disk what was freed (ext4 mounted with `discard`) holds up every sync meanwhile: 12 to 26 ms for a file of 64 MB, and RocksDB
deletes files as a whole. So before a family is dropped its files get a second name, in a directory beside the database. When RocksDB
has removed the first one, the file is cut off from its end piece by piece, each piece durably, before the second one goes too.

Which files are of the family RocksDB does not tell, so that all large ones get a second name. A name is all that is ever taken away from a file that has
another one.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

PIECE: Final = 2 << 20
"""What is cut off at a time."""
_PAUSE: Final = 0.004
"""Seconds between two pieces: some 400 MB/s in all."""
_POLL: Final = 0.05
_LINGER: Final = 2.0
"""Seconds for which RocksDB has time to delete the files of a family that was dropped; what it does later, it does at once."""
_KINDS: Final = (".sst", ".blob")


class GradualDeletion:
    """Of the files of one database. Calls of the thread that writes."""

    def __init__(self, database: str, names: str) -> None:
        """Deletes what an earlier run left as well.

        Args:
            names: the directory of second names, in the same file system. It is made when it is needed.
        """
        self._database = database
        self._names = names
        self._lock = threading.Lock()
        self._dropping = 0
        self._known: set[str] = set()
        """Files that were looked at since the thread began: most have a second name."""
        self._running = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        if self._second_names():
            with self._lock:
                self._begin()

    @property
    def bytes_left(self) -> int:
        """What files still take of which RocksDB has removed its name."""
        total = 0
        with suppress(OSError):  # no file can be opened just now
            for name in self._deleted():
                with suppress(FileNotFoundError):
                    total += os.stat(os.path.join(self._names, name)).st_blocks * 512
        return total

    @contextmanager
    def instead(self) -> Iterator[None]:
        """What is dropped within is deleted gradually."""
        with self._lock:
            self._dropping += 1
        try:
            with suppress(OSError):  # what has none is deleted at once
                self._give_second_names()
            yield
        finally:
            with self._lock:
                self._dropping -= 1
                self._begin()

    def close(self) -> None:
        """Stop after the present piece."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _give_second_names(self) -> None:
        os.makedirs(self._names, exist_ok=True)
        with os.scandir(self._database) as entries:
            for entry in entries:
                if entry.name.endswith(_KINDS) and entry.name not in self._known:
                    self._known.add(entry.name)
                    # it went meanwhile, has one, or the file system knows no second names: then it is deleted at once
                    with suppress(OSError):
                        if entry.stat().st_size > PIECE:
                            os.link(entry.path, os.path.join(self._names, entry.name))

    def _second_names(self) -> list[str]:
        try:
            return os.listdir(self._names)
        except FileNotFoundError:
            return []

    def _deleted(self) -> list[str]:
        """Second names of files without a first one."""
        second = self._second_names()
        if not second:
            return []
        first = set(os.listdir(self._database))
        return [name for name in second if name not in first]

    def _begin(self) -> None:
        if not self._running:
            self._running = True
            self._thread = threading.Thread(target=self._run, name="log-store-deletion", daemon=True)
            self._thread.start()

    # ---- the thread

    def _run(self) -> None:
        waited = 0.0
        while not self._stop.is_set():
            with suppress(OSError):  # no file can be opened just now
                deleted = self._deleted()
                for name in sorted(deleted):
                    self._delete(os.path.join(self._names, name))
                with self._lock:
                    waited = 0.0 if deleted or self._dropping else waited + _POLL
                    if waited > _LINGER:
                        for name in self._second_names():
                            with suppress(OSError):
                                os.unlink(os.path.join(self._names, name))
                        self._known.clear()
                        self._running = False
                        return
            self._stop.wait(_POLL)

    def _delete(self, path: str) -> None:
        try:
            descriptor = os.open(path, os.O_RDWR)
        except OSError:
            return
        try:
            left = os.fstat(descriptor).st_size
            # somebody may have given it another name, to keep it
            while left > 0 and os.fstat(descriptor).st_nlink == 1 and not self._stop.is_set():
                left = max(0, left - PIECE)
                os.ftruncate(descriptor, left)
                os.fsync(descriptor)
                self._stop.wait(_PAUSE)
        except OSError:
            pass  # it goes at once, or the next opening finds it
        finally:
            os.close(descriptor)
        if not self._stop.is_set():
            with suppress(OSError):
                os.unlink(path)
