"""The image of a log entry: one bytes object that is replicated, stored and read without being taken apart.

The sequencer (or recovery) encodes it once per wave. The same bytes are the payload of every STORE of the wave, the value on disk and
the payload that readers get.

Layout, big-endian::

    u8  version (1, 2)   u8  copyset size     u16 flags            u32 wave, or seal epoch when WRITTEN_BY_RECOVERY
    u32 LNG (an ESN)     u32 records          u32 body length      u32 crc32c of the body
    i64 timestamp (us)   u64 log              u64 lsn
    u32 x copyset size: shard ids
    version 2 only: u16 length of extensions  extensions, see logdevice_py.core.extensions
    u32 crc32c of the header above
    body

An entry without extensions is of version 1. A copy keeps the extensions of its entry, also those that whoever copies does not know.

The body of a data entry holds one or more constituents (an APPEND frame each): a u32 count, a table row for each, then their payloads.
A row is ``u32 length, u32 records, u32 crc32c (made by the client), u8 flags`` and, for a frame of a write stream, ``16 bytes writer id,
u64 sequence number``. A constituent is one record, or a batch of records (`logdevice_py.core.batch`), before which
the records' keys may stand. Holes and bridges have no body.
The sequencer may have packed a body as a whole: ``u32 0xffffff00 + codec (1 lz4, 2 zstd), u32 size of the body, the body packed``. Length
and checksum of the header are those of the packed body, the checksums of the table those of the payloads, as ever.
An AMEND has no body either, but keeps the records, length and checksum of the body that it speaks for.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from google_crc32c import value as crc32c

from logdevice_py.core.compression import Compression, pack, unpack
from logdevice_py.core.ids import LogId, ShardId, WriterId
from logdevice_py.core.lsn import Esn, Lsn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp

ENTRY_VERSION: Final = 2
"""Of entries with extensions."""
_PLAIN_VERSION: Final = 1
_FIXED: Final = struct.Struct(">BBHIIIIIqQQ")
_U16: Final = struct.Struct(">H")
_U32: Final = struct.Struct(">I")
_ROW: Final = struct.Struct(">IIIB")
_STREAM: Final = struct.Struct(">16sQ")
HEADER_SIZE_MIN: Final = _FIXED.size + 4
BODY_LENGTH: Final = slice(16, 20)
"""Where in an image the length of its body is."""
_RECORDS: Final = slice(12, 16)
_PACKED: Final = struct.Struct(">II")
_PACKED_FROM: Final = 0xFFFFFF00
"""No body has so many constituents: who does not know of packing takes the body for damaged, never for another one."""
_FLAGS_LOW_AT: Final = 3
_NO_LENGTH: Final = bytes(4)
RECORDS_PER_ENTRY_MAX: Final = 65_536
BODY_SIZE_MAX: Final = 64 << 20
"""Hard limit of a body; `max_payload_size` of the log is below it."""


NO_WRITER: Final = WriterId(b"")


class EntryFlags(enum.IntFlag):
    """What an entry is. Values are on disk and on the wire: never reused."""

    NONE = 0
    HOLE = 1  # nothing was acknowledged at this LSN; written by recovery
    BRIDGE = 2  # the epoch ends here; always with HOLE and WRITTEN_BY_RECOVERY
    WRITTEN_BY_RECOVERY = 4  # the wave field holds the seal epoch of the recovery that wrote it
    AMEND = 8  # header only: replaces wave and copyset of the copy below it
    WRITE_STREAM = 16  # all constituents are frames of write streams
    EPOCH_BEGIN = 32  # no entry of this epoch lies before it
    METADATA = 64  # the body is an epoch metadata record
    KEYED = 128  # some records of the body have a key
    CONDITIONAL = 256  # acknowledged for what is before it: recovery makes a hole of it behind a hole of its epoch
    CONTROL = 512  # its records speak to sequencers and readers, not to applications


class ConstituentFlags(enum.IntFlag):
    """What one constituent of a body is."""

    NONE = 0
    BATCH = 1  # a batch of records, see logdevice_py.core.batch; without it: one record, as it is
    WRITE_STREAM = 2  # writer id and sequence number follow in the table
    KEYS = 4  # the payload begins with the keys of its records, see logdevice_py.core.record_keys


_HOLE = int(EntryFlags.HOLE)
_AMEND = int(EntryFlags.AMEND)
_WRITTEN_BY_RECOVERY = int(EntryFlags.WRITTEN_BY_RECOVERY)
_STREAM_FLAG = int(ConstituentFlags.WRITE_STREAM)


@dataclass(slots=True)
class EntryHeader:
    """What an image says of its entry besides the body."""

    log: LogId
    lsn: Lsn
    timestamp: Timestamp
    """When the sequencer gave the LSN; a plug has that of the entry before it."""
    wave: int
    """Number of the wave that stored this copy, or the seal epoch of the recovery that wrote it."""
    copyset: tuple[ShardId, ...]
    lng: Esn
    """LNG of the epoch when the wave was sent."""
    records: int
    flags: int = 0
    body_length: int = 0
    body_crc: int = 0
    extensions: bytes = b""
    """As they are in the image."""

    @property
    def rank(self) -> tuple[int, int]:
        """Precedence among copies of one LSN: recovery beats sequencer, then the higher seal epoch or wave."""
        return (1 if self.flags & _WRITTEN_BY_RECOVERY else 0, self.wave)

    @property
    def is_hole(self) -> bool:
        """A plug or a bridge."""
        return bool(self.flags & _HOLE)

    @property
    def is_bridge(self) -> bool:
        """The end of an epoch."""
        return bool(self.flags & EntryFlags.BRIDGE)

    @property
    def is_amend(self) -> bool:
        """A header without its body."""
        return bool(self.flags & _AMEND)


@dataclass(slots=True)
class Constituent:
    """One APPEND frame within an entry."""

    payload: bytes
    records: int
    crc: int
    flags: int = 0
    writer: WriterId = NO_WRITER
    sequence: int = 0


def encode_header(header: EntryHeader) -> bytes:
    """The bytes before the body."""
    copyset, extensions = header.copyset, header.extensions
    fixed = _FIXED.pack(
        ENTRY_VERSION if extensions else _PLAIN_VERSION,
        len(copyset),
        header.flags,
        header.wave,
        header.lng,
        header.records,
        header.body_length,
        header.body_crc,
        header.timestamp,
        header.log,
        header.lsn,
    ) + struct.pack(f">{len(copyset)}I", *copyset)
    if extensions:
        fixed += _U16.pack(len(extensions)) + extensions
    return fixed + _U32.pack(crc32c(fixed))


def encode_body(constituents: Sequence[Constituent]) -> bytes:
    """The body of a data entry. The payloads are joined once, by C."""
    table = [_U32.pack(len(constituents))]
    for part in constituents:
        table.append(_ROW.pack(len(part.payload), part.records, part.crc, part.flags))
        if part.flags & _STREAM_FLAG:
            table.append(_STREAM.pack(part.writer, part.sequence))
    table.extend(part.payload for part in constituents)
    return b"".join(table)


def pack_body(body: bytes, compression: Compression) -> bytes:
    """The body packed as a whole, or as it is when that makes it no smaller."""
    codec, packed = pack(body, compression)
    if codec is Compression.NONE or len(packed) + _PACKED.size >= len(body):
        return body
    return _PACKED.pack(_PACKED_FROM + codec, len(body)) + packed


def _unpack_body(body: bytes | memoryview) -> bytes | memoryview:
    """The body as it was before it was packed, if it is.

    Raises:
        CorruptEntryError: it cannot be unpacked, or to more than `BODY_SIZE_MAX`.
    """
    first, size = _PACKED.unpack_from(body)
    return unpack(first - _PACKED_FROM, body[_PACKED.size :], size, BODY_SIZE_MAX)


def encode_entry(header: EntryHeader, body: bytes) -> bytes:
    """A full image. `header.body_length` and `body_crc` must already describe `body`, unless it is an AMEND (no body)."""
    assert not header.is_amend or not body, "an AMEND carries no body"
    assert header.is_amend or header.body_length == len(body), (header.body_length, len(body))
    return encode_header(header) + body


def header_size(image: bytes) -> int:
    """Where the body begins."""
    size = HEADER_SIZE_MIN + 4 * image[1]
    if image[0] == ENTRY_VERSION:
        size += 2 + int.from_bytes(image[size - 4 : size - 2], "big")
    return size


def parse_header(image: bytes, *, alone: bool = False) -> EntryHeader:
    """The header, checked against its own checksum and the length of the image, but not the body against its checksum.

    Args:
        alone: the header without its body will do as well, see `lacks_body`.

    Raises:
        CorruptEntryError: the bytes are no image.
    """
    if len(image) < HEADER_SIZE_MIN:
        raise CorruptEntryError(f"an entry of {len(image)} bytes is shorter than a header")
    version, size, flags, wave, lng, records, body_length, body_crc, timestamp, log, lsn = _FIXED.unpack_from(image)
    if version != _PLAIN_VERSION and version != ENTRY_VERSION:
        raise CorruptEntryError(f"entry version {version} is not known, this program knows up to {ENTRY_VERSION}")
    end = header_size(image) - 4
    if len(image) < end + 4 or _U32.unpack_from(image, end)[0] != crc32c(image[:end]):
        raise CorruptEntryError("the header of the entry does not match its checksum")
    if len(image) - end - 4 != (0 if flags & _AMEND else body_length) and not (alone and len(image) == end + 4):
        raise CorruptEntryError(f"the entry has {len(image) - end - 4} bytes of body, its header says {body_length}")
    copyset = struct.unpack_from(f">{size}I", image, _FIXED.size)
    extensions = b"" if version == _PLAIN_VERSION else image[_FIXED.size + 4 * size + 2 : end]
    if not extensions and version != _PLAIN_VERSION:
        raise CorruptEntryError(f"an entry of version {version} has no extensions")
    return EntryHeader(log, lsn, timestamp, wave, copyset, lng, records, flags, body_length, body_crc, extensions)


def records_of(image: bytes) -> int:
    """How many records the entry of an image holds, which is not checked; a hole has none."""
    return int.from_bytes(image[_RECORDS], "big")


def lacks_body(image: bytes) -> bool:
    """Whether this is the header alone of an entry that has a body. An AMEND is whole without one."""
    return (
        HEADER_SIZE_MIN <= len(image) == header_size(image)
        and not image[_FLAGS_LOW_AT] & _AMEND
        and image[BODY_LENGTH] != _NO_LENGTH
    )


def whole_size(image: bytes) -> int:
    """How many bytes the image has when the body is with it, also where the header stands alone."""
    return header_size(image) + int.from_bytes(image[BODY_LENGTH], "big")


def body_of(image: bytes) -> bytes:
    """The bytes after the header (a copy)."""
    return image[header_size(image) :]


def body_view(image: bytes) -> memoryview:
    """The bytes after the header (no copy)."""
    return memoryview(image)[header_size(image) :]


def check_body(image: bytes, header: EntryHeader) -> None:
    """Compare the body with its checksum.

    Raises:
        CorruptEntryError: they differ.
    """
    if header.is_amend:
        return
    if crc32c(image[header_size(image) :]) != header.body_crc:
        raise CorruptEntryError("the body of the entry does not match its checksum")


def parse_constituents(body: bytes | memoryview) -> list[Constituent]:
    """The constituents of a data entry's body, packed or not; their payloads are not checked against their checksums.

    Raises:
        CorruptEntryError: the table does not fit the body, or declares more records than an entry may have, or the body is packed and
            cannot be unpacked.
    """
    try:
        (count,) = _U32.unpack_from(body)
        if count > _PACKED_FROM:
            body = _unpack_body(body)
            (count,) = _U32.unpack_from(body)
        if count > RECORDS_PER_ENTRY_MAX:
            raise CorruptEntryError(f"an entry of {count} constituents is over the limit of {RECORDS_PER_ENTRY_MAX}")
        at = 4
        total = 0
        rows = []
        for _ in range(count):
            length, records, crc, flags = _ROW.unpack_from(body, at)
            at += _ROW.size
            total += records
            writer, sequence = b"", 0
            if flags & _STREAM_FLAG:
                writer, sequence = _STREAM.unpack_from(body, at)
                at += _STREAM.size
            rows.append((length, records, crc, flags, writer, sequence))
    except struct.error:
        raise CorruptEntryError("the table of constituents is longer than the body") from None
    if total > RECORDS_PER_ENTRY_MAX:
        # who makes a list of as many places as are declared would run out of memory
        raise CorruptEntryError(f"an entry of {total} records is over the limit of {RECORDS_PER_ENTRY_MAX}")
    parts = []
    for length, records, crc, flags, writer, sequence in rows:
        parts.append(Constituent(bytes(body[at : at + length]), records, crc, flags, WriterId(writer), sequence))
        at += length
    if at != len(body):
        raise CorruptEntryError(f"the constituents take {at} bytes, the body has {len(body)}")
    return parts


def merged_header(amend: EntryHeader) -> EntryHeader:
    """The header of the copy that an AMEND and the body that it speaks for make together."""
    return replace(amend, flags=amend.flags & ~_AMEND)


def with_copyset(header: EntryHeader, *, wave: int, copyset: tuple[ShardId, ...], flags: int) -> EntryHeader:
    """The header of another wave of the same entry."""
    return replace(header, wave=wave, copyset=copyset, flags=flags)
