"""Keeps RocksDB from writing its OPTIONS file when a family is dropped.

RocksDB writes the options of all families anew, and reads them back, whenever one is made or dropped: a quarter of a millisecond for each
that there is, for which the interpreter is blocked. There is no way to turn that off. The file is of no use here: options are given on
opening. It is written last, when the drop is already in the manifest, and its name is known but for a number that RocksDB counts up. A link of
that name that leads nowhere makes the writing fail at once. One is made, and its other names are hard links to it: to make and remove directories, or
links of their own, takes more time than the drop.

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
_NOWHERE: Final = "no/such/directory"
_HURDLES: Final = 24
"""Flushes and compactions take numbers, too, while a family is dropped."""


class OptionsHurdles:
    """The links that stand where the next OPTIONS files would."""

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
        # RocksDB removes it as well, and what it left itself
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self._path, name))

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
        stand: list[str] = []
        try:
            for name in names:
                with contextlib.suppress(OSError):  # a full disk, for one: then the file cannot be written either
                    self._put(name, stand[0] if stand else None)
                    stand.append(name)
            yield
        finally:
            for name in stand:
                self._remove(name)

    def _put(self, name: str, same: str | None) -> None:
        path = os.path.join(self._path, name)
        if same is not None:
            with contextlib.suppress(OSError):  # not every file system can
                os.link(os.path.join(self._path, same), path, follow_symlinks=False)
                return
        os.symlink(_NOWHERE, path)
