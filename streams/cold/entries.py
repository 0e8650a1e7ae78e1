"""An entry as cold files keep it: its records and keys unpacked, and what its proof and its checks need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgpack
from google_crc32c import value as crc32c

from client.read.decoding import entry_keys, entry_records, no_keys
from client.read.items import Gap
from logdevice_py.core.entry import EntryHeader
from logdevice_py.core.sealed_batch import OpenSealed

_NO_RECORD: Final = frozenset({None})


@dataclass(slots=True)
class UnpackedEntry:
    """One entry of a log with its records unpacked."""

    lsn: int
    timestamp: int
    flags: int
    """`EntryFlags`."""
    size: int
    """Bytes of its body as the cluster stores it."""
    crc: int
    """crc32c of that body: what proofs are made of."""
    extensions: bytes
    """Of its header."""
    records: list[bytes | None]
    """None: a record that was appended damaged."""
    keys: list[bytes | None] | None = None
    """One for each record; None: none has a key. A damaged record has none."""

    @property
    def unpacked_bytes(self) -> int:
        """What its records and keys take."""
        keys = 0 if self.keys is None else sum(map(len, filter(None, self.keys)))
        return keys + sum(map(len, filter(None, self.records)))

    def record_checksums(self) -> list[int | None]:
        """crc32c of each payload; None for a damaged record."""
        if None in self.records:
            return [None if record is None else crc32c(record) for record in self.records]
        return list(map(crc32c, self.records))

    def digest(self, log: int, checksums: Sequence[int | None]) -> int:
        """crc32c over all that a cold file keeps of this entry.

        Args:
            checksums: what `record_checksums` gives, or what a file says in its place.
        """
        fields = (log, self.lsn, self.timestamp, self.flags, self.size, self.crc, self.extensions, checksums, self.keys)
        packed: bytes = msgpack.packb(fields)
        return int(crc32c(packed))


UnpackedItem = UnpackedEntry | Gap


def unpack_entry(header: EntryHeader, image: bytes, open_sealed: OpenSealed = no_keys) -> UnpackedEntry:
    """A verified entry unpacked.

    Raises:
        LogDeviceError: NOKEY, MISPLACED, or what else `open_sealed` raises: its records are encrypted.
    """
    records, keys = entry_records(header, image, open_sealed), entry_keys(header, image)
    if keys is not None and None in records:
        keys = [None if record is None else key for record, key in zip(records, keys, strict=True)]
    if keys is not None and set(keys) <= _NO_RECORD:
        keys = None
    return UnpackedEntry(
        int(header.lsn),
        int(header.timestamp),
        int(header.flags),
        header.body_length,
        header.body_crc,
        header.extensions,
        records,
        keys,
    )
