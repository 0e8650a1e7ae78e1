"""Keeps RocksDB from writing its OPTIONS file when a family is dropped.

RocksDB writes the options of all families anew, and reads them back, whenever one is made or dropped: a quarter of a millisecond for each
that there is, for which the interpreter stands still. There is no way to turn that off. The file is of no use here: options are given on
opening. It is written last, when the drop is already in the manifest, and its name is known but for a number that RocksDB counts up. A
directory of that name makes the writing fail at once.

Where the number was guessed wrong, the drop is as slow as it would be otherwise, and nothing else happens.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from typing import Final

OPTIONS_REFUSED: Final = "IO error: Unable to persist options"
"""How the text of the error begins that a hurdle makes."""
_NUMBERED: Final = re.compile(r"(?:OPTIONS-|MANIFEST-)?(\d+)")
_HURDLES: Final = 24
"""Flushes and compactions take numbers, too, while a family is dropped."""


class OptionsHurdles:
    """The directories that stand where the next OPTIONS files would."""

    __slots__ = ("_lock", "_path")

    def __init__(self, path: str) -> None:
        """
        Args:
            path: the directory of the database. What an earlier run left there is removed.
        """
        self._path = path
        self._lock = threading.Lock()
        with contextlib.suppress(FileNotFoundError):
            for name in os.listdir(path):
                if name.startswith("OPTIONS-") and name.endswith(".dbtmp"):
                    self._remove(name)

    def _remove(self, name: str) -> None:
        # one of RocksDB's own, left by a crash, is a file: RocksDB removes it
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.rmdir(os.path.join(self._path, name))

    @contextlib.contextmanager
    def set_up(self) -> Iterator[None]:
        """While they stand, RocksDB refuses to write OPTIONS files."""
        with self._lock, self._standing():
            yield

    def kept_down(self) -> threading.Lock:
        """Hold it while another thread has an OPTIONS file written."""
        return self._lock

    @contextlib.contextmanager
    def _standing(self) -> Iterator[None]:
        found = (_NUMBERED.match(name) for name in os.listdir(self._path))
        last = max((int(each[1]) for each in found if each is not None), default=0)
        names = [f"OPTIONS-{number:06d}.dbtmp" for number in range(last + 1, last + 1 + _HURDLES)]
        stand = []
        try:
            for name in names:
                with contextlib.suppress(OSError):  # a full disk, for one: then the file cannot be written either
                    os.mkdir(os.path.join(self._path, name))
                    stand.append(name)
            yield
        finally:
            for name in stand:
                self._remove(name)
