"""Is the write-ahead log whole? Looked at before RocksDB opens it.

RocksDB takes the first record that does not match its checksum for the end of what was written, and forgets what follows: right after a power
cut, when the end may be torn, and wrong where a bit flipped in what had been synced and acknowledged. As long as the machine did not go
down nothing is torn, so that the two can be told apart.

The format is that of LevelDB's log: blocks of 32 KiB; records, none of which spans blocks, of a masked crc32c, a length, a type and the data.
"""

from __future__ import annotations

import os
import struct
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


def find_log_damage(path: str, *, last: bool = True) -> LogFileDamage | None:
    """The first place of a file that is damaged; None: it is whole.

    Args:
        last: nothing was written after the file, so that its last record may be incomplete: the process ended while it wrote.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        begin = 0
        while begin < size:
            block = file.read(_BLOCK)
            found = _check_block(block, tail=last and begin + len(block) >= size)
            if found is not None:
                at, reason = found
                return None if reason == "" else LogFileDamage(path, begin + at, reason)
            begin += len(block)
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


def find_damage_in_use(database: str) -> LogFileDamage | None:
    """The first damaged place of the manifest or the write-ahead log of a database that is open; None: they are whole."""
    try:
        manifests = [name for name in os.listdir(database) if name.startswith("MANIFEST-")]
        newest = max(manifests, key=lambda name: int(name.partition("-")[2]), default=None)
        found = None if newest is None else find_log_damage(os.path.join(database, newest))
    except FileNotFoundError:
        return None  # replaced meanwhile
    try:
        return found or find_wal_damage(database)
    except FileNotFoundError:
        return found


def find_lasting_damage(database: str) -> str:
    """The same, for people; empty: they are whole. What was only being written when it was looked at does not count."""
    found = find_damage_in_use(database)
    again = None if found is None else find_damage_in_use(database)
    return "" if again is None or again != found else f"{again.path} has {again.reason} at byte {again.at}"


def find_wal_damage(database: str) -> LogFileDamage | None:
    """The first damaged place of the write-ahead log of a database; None: it is whole."""
    try:
        names = sorted(name for name in os.listdir(database) if name.endswith(".log"))
    except FileNotFoundError:
        return None
    for name in names:
        found = find_log_damage(os.path.join(database, name), last=name == names[-1])
        if found is not None:
            return found
    return None
