"""A batch of records in one payload: what BufferedWriter and the coalescing of direct appends put into one APPEND frame.

Layout: ``u8 codec, u32 size of the unpacked array, array``; the array is msgpack (an array of binaries), packed by the codec. Only C code
touches the records' bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgpack
from google_crc32c import value as crc32c

from logdevice_py.core.compression import Compression, pack, unpack
from logdevice_py.core.entry import BODY_SIZE_MAX, Constituent, ConstituentFlags
from logdevice_py.core.record_keys import split_keys
from logdevice_py.core.sealed_batch import OpenBatches, is_sealed
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.unpacking import unpack_flat

BYTES_PER_RECORD: Final = 6
"""What a batch adds to a record at most, beside its key."""
BATCH_OVERHEAD: Final = 20
"""What a batch takes at most beside its records, the head of their keys included."""
_HEAD: Final = struct.Struct(">BI")
_BATCH: Final = int(ConstituentFlags.BATCH)
_KEYS: Final = int(ConstituentFlags.KEYS)
_BYTES: Final = {bytes}


def encode_batch(records: Sequence[bytes], compression: Compression = Compression.NONE) -> bytes:
    """A batch payload. Packing is dropped when it does not make the array smaller."""
    array: bytes = msgpack.packb(records)
    codec, packed = pack(array, compression)
    return _HEAD.pack(codec, len(array)) + packed


def decode_batch(payload: bytes, records: int) -> list[bytes]:
    """The records of a batch payload that was declared to hold `records`.

    The memory used is bounded by `BODY_SIZE_MAX` whatever the payload says.

    Raises:
        CorruptEntryError: the payload is no batch, or holds another number of records.
    """
    try:
        codec, size = _HEAD.unpack_from(payload)
        array = unpack(codec, memoryview(payload)[_HEAD.size :], size, BODY_SIZE_MAX)
        return unpack_flat(array, records, _BYTES, bin_size_max=size)
    except (struct.error, ValueError, msgpack.UnpackException) as error:
        raise CorruptEntryError(f"a batch declared {records} records and cannot be unpacked: {error}") from None


def unpacked_size(payload: bytes, flags: int) -> int:
    """Bytes that the records of a constituent take once they are unpacked, as far as it declares: 2 KB may stand for 64 MiB.

    Args:
        flags: `ConstituentFlags`.
    """
    if not flags & _BATCH:
        return len(payload)
    try:
        at = 4 + int.from_bytes(payload[:4], "big") if flags & _KEYS else 0
        codec, size = _HEAD.unpack_from(payload, at)
    except struct.error:
        return len(payload)  # it cannot be read
    return len(payload) if codec == Compression.NONE or size > BODY_SIZE_MAX else int(size)


def constituent_records(part: Constituent, opened: OpenBatches | None = None) -> list[bytes | None]:
    """The records of one constituent: exactly as many as it declares; None stands for each that cannot be read.

    A bad blob thus never shifts the positions of the records around it.

    Args:
        part: the constituent.
        opened: gives the batch within a sealed one, or raises LogDeviceError; None: records of sealed batches cannot be read.
    """
    if crc32c(part.payload) != part.crc:
        return [None] * part.records
    payload = part.payload
    try:
        if part.flags & _KEYS:
            payload = split_keys(payload, part.records)[1]
        if not part.flags & _BATCH:
            return [payload] if part.records == 1 else [None] * part.records
        if opened is not None and is_sealed(payload):
            payload = opened(payload, part.records)
        return list(decode_batch(payload, part.records))
    except CorruptEntryError:
        return [None] * part.records
