"""The disk of the store in memory. It survives the store and can crash, fail and rot."""

from __future__ import annotations

import itertools
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgpack
from google_crc32c import value as crc32c
from sortedcontainers import SortedDict

from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Rng
from storage_node.log_store import keys
from storage_node.log_store.precedence import Bodies, Missing, resolve

_Rows = list[tuple[bytes, bytes | None]]
_RECORD_HEAD: Final = struct.Struct(">II")
_SECTOR: Final = 512
_DATA: Final = 0x64
_DATA_FIRST: Final = b"d"
_DATA_END: Final = b"e"


class MemoryDisk:
    """What a `MemoryLogStore` writes to. It outlives the store, as a disk outlives a process.

    Crash model: writes are applied at once and become durable by a sync; a crash takes back the batches since the last sync, or a
    suffix of them. A batch is never torn: what was under way lies in a log of checksummed records, which ends at the first bad one.
    """

    __slots__ = (
        "_claimed",
        "_undo",
        "_written",
        "boot",
        "destroyed",
        "fail_sync",
        "fail_write",
        "failed_note",
        "fired",
        "flipped",
        "lying",
        "overloaded",
        "rows",
        "taken",
        "total",
        "unreadable",
        "used",
    )

    def __init__(self, fired: Counter[str] | None = None, *, total: int = 1 << 40) -> None:
        """
        Args:
            fired: counts what faults of the disk did to somebody, by kind.
            total: bytes of its file system.
        """
        self.rows: SortedDict = SortedDict()
        self._undo: list[tuple[_Rows, dict[bytes, bytes | None]]] = []
        self._written = 0
        self._claimed = 0
        """How many of the batches that are not durable a lying sync said were."""
        self.fired: Counter[str] = Counter() if fired is None else fired
        self.boot = "boot 1"
        """Changes with `crash`."""
        self.failed_note = False
        self.fail_write = False
        """Every write fails."""
        self.fail_sync = False
        """Every sync fails."""
        self.lying = False
        """Syncs are answered OK and make nothing durable."""
        self.overloaded = False
        """The disk does not keep up."""
        self.unreadable: set[bytes] = set()
        """Keys of copies that the disk cannot read at present."""
        self.flipped: set[bytes] = set()
        """Keys of copies in which a bit was flipped."""
        self.destroyed: set[tuple[int, int]] = set()
        """(log, lsn) of entries of which durable copies were lost or damaged here."""
        self.total = total
        self.used = 0
        """Bytes of the rows."""
        self.taken = 0
        """Bytes that others take up of the file system."""

    @property
    def free(self) -> int:
        """Bytes that are free; set it, and others take up the rest."""
        return max(self.total - self.used - self.taken, 0)

    @free.setter
    def free(self, free: int) -> None:
        self.taken = self.total - self.used - free

    @property
    def unsynced(self) -> int:
        """How many batches a crash could take back."""
        return len(self._undo)

    @property
    def claimed(self) -> int:
        """How many of those a lying sync said were durable."""
        return self._claimed

    def apply(self, changes: dict[bytes, bytes | None]) -> None:
        """Apply the changes of one batch (None deletes); durable with the next sync."""
        rows = self.rows
        undo = [(key, rows.get(key)) for key in changes]
        for key, value in changes.items():
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        self.used += _bytes(changes.items()) - _bytes(undo)
        if self.flipped:
            self.flipped.difference_update(changes)
        if self.unreadable:
            self.unreadable.difference_update(changes)
        self._undo.append((undo, changes))
        self._written += 1

    def begin_sync(self) -> int:
        """A token for `finish_sync`: that sync covers what was applied up to here."""
        return self._written

    def finish_sync(self, token: int) -> None:
        """The sync begun with `begin_sync` is done."""
        durable = self._written - len(self._undo)
        if token <= durable:
            return
        if self.lying:
            self._claimed = max(self._claimed, token - durable)
            return
        del self._undo[: token - durable]
        self._claimed = max(0, self._claimed - (token - durable))

    def may_forget(self, log: int, lsn: int) -> bool:
        """Whether something is stored at an LSN, and a power cut now would leave nothing, though no sync lied of it."""
        begin, end = keys.data_bounds(log, lsn, lsn)
        held = set(self.rows.irange(begin, end, inclusive=(True, False)))
        some = bool(held)
        for undo, changes in itertools.islice(self._undo, self._claimed, None):
            for key in held.intersection(changes):
                if dict(undo)[key] is not None:
                    return False
                held.discard(key)
        return some and not held

    def crash(self, surviving: int = 0) -> None:
        """Power cut: of the unsynced batches only the first `surviving` remain."""
        self._lose(surviving)
        self._undo.clear()
        self._written = self._claimed = 0
        self.boot += "'"

    def power_cut(self, rng: Rng) -> None:
        """Power cut in the middle of writing: of the log of unsynced batches a random part reached the disk, and what is read back of it is what
        comes before its first bad record."""
        if self._undo:
            log = b"".join([_record(changes) for _, changes in self._undo])
            surviving, torn = _whole_records(_tear(log, rng))
            if torn:
                self.fired["torn_write"] += 1
            if surviving < len(self._undo):
                self.fired["unsynced_lost"] += 1
        else:
            surviving = 0
        self.crash(surviving)

    def drop_failed(self, rng: Rng) -> None:
        """After a failed sync the operating system takes what it could not write for written; until the store is opened again, some of it may
        have been dropped from memory as well."""
        if self._undo:
            surviving = int(rng.random() * (len(self._undo) + 1))
            if surviving < len(self._undo):
                self.fired["failing_sync"] += 1
            self._lose(surviving)
            self._written -= len(self._undo) - surviving
            del self._undo[surviving:]

    def _lose(self, surviving: int) -> None:
        if surviving < self._claimed:
            self.fired["lying_sync"] += 1
            for _, changes in self._undo[surviving : self._claimed]:
                self.destroyed.update(_position(key) for key in changes if key[0] == _DATA)
        for undo, changes in reversed(self._undo[surviving:]):
            self.used += _bytes(undo) - _bytes(changes.items())
            for key, value in undo:
                if value is None:
                    self.rows.pop(key, None)
                else:
                    self.rows[key] = value

    def wipe(self) -> None:
        """The disk was replaced by an empty one."""
        self.replace({})

    def snapshot(self) -> dict[bytes, bytes]:
        """What is on the disk, as a backup that is taken at this moment."""
        return dict(self.rows)

    def replace(self, rows: Mapping[bytes, bytes], *, own: bool = True) -> None:
        """The disk was replaced by one that holds something else.

        Args:
            own: what it held was this shard's, and counts as destroyed.
        """
        before = set(self.entries()) if own else set()
        self.rows.clear()
        self.rows.update(rows)
        self.used = _bytes(rows.items())
        self.destroyed.update(before.difference(self.entries()))
        self._undo.clear()
        self._written = self._claimed = 0
        self.unreadable.clear()
        self.flipped.clear()
        self.failed_note = False

    def entries(self) -> Iterator[tuple[int, int]]:
        """(log, lsn) of every copy, ascending."""
        for key in self.rows.irange(_DATA_FIRST, _DATA_END, inclusive=(True, False)):
            yield _position(key)

    def copies(self) -> list[bytes]:
        """The keys of all copies of entries, ascending."""
        return list(self.rows.irange(_DATA_FIRST, _DATA_END, inclusive=(True, False)))

    def bodies(self, log: int) -> Bodies:
        """What is stored as bodies of a log, apart from their headers."""

        def body(lsn: Lsn, rank: int) -> bytes | None:
            key = keys.body_key_at(log, lsn, rank)
            if key in self.unreadable:
                self.fired["read_error"] += 1
                return None
            found: bytes | None = self.rows.get(key)
            return found

        return body

    def counting(self, log: int, lsn: int) -> bytes | None:
        """The image that a shard answers with for an LSN when the disk works; None where nothing sound is stored."""
        begin, end = keys.data_bounds(log, lsn, lsn)
        found = [(keys.split_data_key(key)[1], self.rows[key]) for key in self.rows.irange(begin, end, (True, False))]
        if not found:
            return None
        image = resolve(LogId(log), Lsn(lsn), found, lambda at, rank: self.rows.get(keys.body_key_at(log, at, rank)))
        return None if isinstance(image, Missing) else image

    def holds(self, log: int, lsn: int) -> bool:
        """Whether a sound entry, which is no hole, is read at the LSN when the disk works."""
        image = self.counting(log, lsn)
        return image is not None and not parse_header(image).is_hole

    def length_of(self, key: bytes) -> int:
        """Bytes of a copy: of a large one those of its body's row, which begins with the header as well."""
        return len(self.rows.get(keys.body_key(key)) or self.rows[key])

    def flip(self, key: bytes, bit: int) -> None:
        """Flip one bit of a copy; of a large one's header where it lies alone, of its body where that lies."""
        body = keys.body_key(key)
        header = len(self.rows[key])
        at = key if body not in self.rows or (bit >> 3) % len(self.rows[body]) < header else body
        image = bytearray(self.rows[at])
        image[(bit >> 3) % len(image)] ^= 1 << (bit & 7)
        self.rows[at] = bytes(image)
        self.flipped.add(key)
        self.destroyed.add(_position(key))

    def corrupt(self, log: int, lsn: int) -> None:
        """Flip a bit in the last byte of every copy at an LSN, checksums excepted."""
        begin, end = keys.data_bounds(log, lsn, lsn)
        for key in list(self.rows.irange(begin, end, inclusive=(True, False))):
            self.flip(key, 8 * self.length_of(key) - 8)

    def remove(self, log: int, lsn: int) -> None:
        """Every copy at an LSN vanishes without a trace."""
        for begin, end in keys.copy_bounds(log, lsn, lsn):
            for key in list(self.rows.irange(begin, end, inclusive=(True, False))):
                del self.rows[key]


def _bytes(rows: Iterable[tuple[bytes, bytes | None]]) -> int:
    return sum([len(key) + len(value) for key, value in rows if value is not None])


def _position(key: bytes) -> tuple[int, int]:
    return int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:17], "big")


def _record(changes: dict[bytes, bytes | None]) -> bytes:
    packed: bytes = msgpack.packb(list(changes.items()))
    return _RECORD_HEAD.pack(len(packed), crc32c(packed)) + packed


def _tear(log: bytes, rng: Rng) -> bytes:
    """What a disk may hold of a log that was being written when the power went: a prefix, of which the last sectors may be missing while later
    ones are there."""
    torn = bytearray(log[: int(rng.random() * 1.2 * len(log))])
    if rng.random() < 0.5:
        for sector in range(max(0, len(torn) // _SECTOR - 4), len(torn) // _SECTOR):
            if rng.random() < 0.3:
                torn[sector * _SECTOR : (sector + 1) * _SECTOR] = bytes(_SECTOR)
    return bytes(torn)


def _whole_records(log: bytes) -> tuple[int, bool]:
    """How many records can be read from the beginning on, and whether something that is none follows."""
    at = count = 0
    while len(log) - at >= _RECORD_HEAD.size:
        length, crc = _RECORD_HEAD.unpack_from(log, at)
        record = log[at + _RECORD_HEAD.size : at + _RECORD_HEAD.size + length]
        if not length or len(record) < length or crc32c(record) != crc:
            break
        at += _RECORD_HEAD.size + length
        count += 1
    return count, at < len(log)
