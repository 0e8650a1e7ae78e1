"""Small files beside and within the database."""

from __future__ import annotations

import os
import re
from typing import Final

from logdevice_py.core.marks import hit

_MANIFEST: Final = re.compile(r"MANIFEST-(\d+)")


def fsync_directory(path: str) -> None:
    """Make the creation or renaming of files in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_text(path: str) -> str:
    """What a file says; empty where there is none, or none that can be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def write_text(path: str, text: str) -> None:
    """Replace a file, durably: it says the old or the new, whatever happens."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text + "\n")
        file.flush()
        os.fsync(file.fileno())
    os.rename(path + ".new", path)
    fsync_directory(os.path.dirname(path))


def repair_current(database: str) -> bool:
    """Write CURRENT again where it names no manifest that exists and there is only one; returns whether that was done.

    CURRENT says nothing but that name.
    """
    try:
        manifests = [name for name in os.listdir(database) if _MANIFEST.fullmatch(name)]
    except FileNotFoundError:
        return False
    current = os.path.join(database, "CURRENT")
    if len(manifests) != 1 or read_text(current) in manifests:
        return False
    write_text(current, manifests[0])
    hit("log_store_current_repaired")
    return True
