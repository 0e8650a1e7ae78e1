"""Small files that are there as a whole or not at all, whatever stops in between."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


def write_durably(path: Path, text: str, *, alone: bool = False) -> None:
    """Replace a file in one step; it is on disk when this returns. Who could read the one before can read this one.

    Args:
        alone: nobody else writes this file meanwhile. What a crash leaves of it then has a fixed name, and goes with the next write. Of
            several writers each needs a name of its own, and nobody can tell what a crash left from what is being written.
    """
    descriptor, unfinished = _begin(path) if alone else tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(descriptor, "w") as file:
            with contextlib.suppress(FileNotFoundError):
                os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(unfinished)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def remove_written(path: Path) -> None:
    """Remove a file that is written `alone`, and what a crash left of it; harmless where there is neither."""
    path.unlink(missing_ok=True)
    _unfinished(path).unlink(missing_ok=True)


def _begin(path: Path) -> tuple[int, str]:
    unfinished = _unfinished(path)
    # another user may have left it, whose file cannot be written to
    unfinished.unlink(missing_ok=True)
    return os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), str(unfinished)


def _unfinished(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")
