"""Small files that are there as a whole or not at all, whatever stops in between."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path


def write_durably(path: Path, text: str) -> None:
    """Replace a file in one step; it is on disk when this returns. Who could read the one before can read this one."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
        with contextlib.suppress(FileNotFoundError):
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
