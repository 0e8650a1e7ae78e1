"""Is the write-ahead log whole? Looked at before RocksDB opens it.

RocksDB takes the first record that does not match its checksum for the end of what was written, and forgets what follows: right after a power
cut, when the end may be torn, and wrong where a bit flipped in what had been synced and acknowledged. As long as the machine did not go
down nothing is torn, so that the two can be told apart.

The format is that of LevelDB's log: blocks of 32 KiB; records, none of which spans blocks, of a masked crc32c, a length, a type and the data.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from google_crc32c import value as crc32c

_BLOCK: Final = 32 << 10
_HEADER: Final = struct.Struct("<IHB")
_RECYCLABLE: Final = frozenset((5, 6, 7, 8, 11))
_LOG_NUMBER: Final = 4
_MASK_DELTA: Final = 0xA282EAD8


@dataclass(frozen=True, slots=True)
class LogFileDamage:
    """Where a file of this format cannot be read on."""

    path: str
    at: int
    reason: str
    last: bool
    """Nothing was written after the file."""


def _go_on() -> None: ...


def find_log_damage(path: str, *, last: bool = True, pause: Callable[[], None] = _go_on) -> LogFileDamage | None:
    """The first place of a file that is damaged; None: it is whole.

    Args:
        last: nothing was written after the file, so that its last record may be incomplete: the process ended while it wrote.
        pause: called between blocks.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        begin = 0
        while begin < size:
            block = file.read(_BLOCK)
            found = _check_block(block, tail=last and begin + len(block) >= size)
            if found is not None:
                at, reason = found
                return None if reason == "" else LogFileDamage(path, begin + at, reason, last)
            begin += len(block)
            pause()
    return None


def _check_block(block: bytes, *, tail: bool) -> tuple[int, str] | None:
    """None: whole; otherwise where it ends, and why (empty: in order)."""
    at = 0
    while len(block) - at >= _HEADER.size:
        crc, length, kind = _HEADER.unpack_from(block, at)
        if not (crc or length or kind):
            # space that was allocated and not used
            return (at, "") if not any(block[at:]) else (at, "bytes behind the end")
        end = at + _HEADER.size + (_LOG_NUMBER if kind in _RECYCLABLE else 0) + length
        if end > len(block):
            return (at, "") if tail and len(block) < _BLOCK else (at, "a record that does not fit its block")
        if _mask(crc32c(block[at + 6 : end])) != crc:
            return at, "a record that does not match its checksum"
        at = end
    return None


def _mask(crc: int) -> int:
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def find_lasting_damage(database: str, pause: Callable[[], None] = _go_on) -> str:
    """The first damaged place of the manifest or the write-ahead log of a database that is open, for people; empty: they are whole.

    What was only being written when it was looked at does not count, nor do files that vanish meanwhile.
    """
    found = _find_manifest_damage(database, pause) or find_wal_damage(database, pause)
    if found is None:
        return ""
    again = None
    with suppress(FileNotFoundError):
        again = find_log_damage(found.path, last=found.last, pause=pause)
    return "" if again != found else f"{found.path} has {found.reason} at byte {found.at}"


def _find_manifest_damage(database: str, pause: Callable[[], None]) -> LogFileDamage | None:
    with suppress(FileNotFoundError):
        manifests = [name for name in os.listdir(database) if name.startswith("MANIFEST-")]
        newest = max(manifests, key=lambda name: int(name.partition("-")[2]), default=None)
        if newest is not None:
            return find_log_damage(os.path.join(database, newest), pause=pause)
    return None


def find_wal_damage(database: str, pause: Callable[[], None] = _go_on) -> LogFileDamage | None:
    """The first damaged place of the write-ahead log of a database; None: it is whole."""
    names: list[str] = []
    with suppress(FileNotFoundError):
        names = sorted(name for name in os.listdir(database) if name.endswith(".log"))
    for name in names:
        with suppress(FileNotFoundError):  # one that is not needed any more
            found = find_log_damage(os.path.join(database, name), last=name == names[-1], pause=pause)
            if found is not None:
                return found
    return None
