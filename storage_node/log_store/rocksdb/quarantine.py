"""The quarantine: stores that do not count for their shard are renamed, and lie beside the one in use until an operator deletes them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

from logdevice_py.tables.storage import QuarantineReason
from storage_node.log_store.rocksdb.files import fsync_directory

_REASONS: Final = {reason.name.lower(): reason for reason in QuarantineReason}
_SUFFIX: Final = re.compile(rf"\.({'|'.join(_REASONS)})-([1-9][0-9]*)")
_BLOCK: Final = 512
"""Bytes that `os.stat` calls a block, whatever the file system does."""


@dataclass(frozen=True, slots=True)
class QuarantinedStore:
    """A store that was quarantined."""

    directory: str
    reason: QuarantineReason


def quarantine(directory: str, reason: QuarantineReason) -> str:
    """Rename a store that does not count here to ``<directory>.<reason>-<n>``, durably; returns where it is."""
    number = 1
    while os.path.exists(aside := f"{directory}.{reason.name.lower()}-{number}"):
        number += 1
    os.rename(directory, aside)
    fsync_directory(os.path.dirname(os.path.abspath(directory)))
    return aside


def quarantined_stores(directory: str) -> list[QuarantinedStore]:
    """The stores that were quarantined from a directory and are still there, the oldest of each reason first."""
    parent, name = os.path.split(os.path.abspath(directory))
    found: list[tuple[str, int, str]] = []
    with os.scandir(parent) as entries:
        for entry in entries:
            suffix = _SUFFIX.fullmatch(entry.name.removeprefix(name)) if entry.name.startswith(name) else None
            if suffix is not None and entry.is_dir(follow_symlinks=False):
                found.append((suffix[1], int(suffix[2]), entry.path))
    return [QuarantinedStore(path, _REASONS[reason]) for reason, _, path in sorted(found)]


def bytes_in(directory: str) -> int | None:
    """What the files below a directory take on disk; None where they cannot be looked at."""
    files: dict[tuple[int, int], int] = {}
    try:
        for parent, _, names in os.walk(directory, onerror=_raise):
            for name in names:
                found = os.lstat(os.path.join(parent, name))
                # a file that is about to be deleted has a second name
                files[found.st_dev, found.st_ino] = found.st_blocks * _BLOCK
    except OSError:
        return None
    return sum(files.values())


def _raise(error: OSError) -> None:
    raise error
