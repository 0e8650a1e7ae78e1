"""Small files that are there as a whole or not at all, whatever stops in between."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_durably(path: Path, text: str) -> None:
    """Replace a file in one step; it is on disk when this returns."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(file.name, path)
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
