"""Temporary directories that go away with the process that made them, however it ends."""

from __future__ import annotations

import subprocess
import tempfile
import weakref
from pathlib import Path

_SWEEPER = """
read -r _
for _ in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- "$1" 2>/dev/null && exit; sleep 0.2; done
"""
"""Its standard input ends when the maker closes it or is gone. Children of a maker that was killed may write for a moment longer."""


class ScratchDirectory:
    """A directory with a process of its own that deletes it, because no handler runs in a process that is killed.

    Signal handlers belong to the program that uses us: there are none here.
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix)).resolve()
        sweeper = subprocess.Popen(
            ["/bin/sh", "-c", _SWEEPER, "sweeper", str(self.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,  # Ctrl-C at the terminal is not for it
        )
        self._remove = weakref.finalize(self, _end, sweeper)

    def remove(self) -> None:
        """Delete it; blocks until that is done. Harmless when it was done before."""
        self._remove()


def _end(sweeper: subprocess.Popen[bytes]) -> None:
    assert sweeper.stdin is not None
    sweeper.stdin.close()
    sweeper.wait()
