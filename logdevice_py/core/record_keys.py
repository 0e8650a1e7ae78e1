"""The keys of records: what a constituent with `ConstituentFlags.KEYS` begins with.

Layout: ``u32 length, array``, then the record or batch as it would be without keys. The array is msgpack, with a binary for each record, nil
for one without a key. It is never packed by a codec, so that a look-up by key need not unpack records.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgpack

from logdevice_py.core.entry import Constituent, ConstituentFlags, parse_constituents
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.unpacking import unpack_flat

KEY_BYTES_MAX: Final = 4096
"""Of one key."""
KEY_OVERHEAD: Final = 5
"""Bytes that a key takes at most beside its own."""
KEYS_HEAD: Final = 9
"""Bytes that keys take at most beside each key's."""
_LENGTH: Final = struct.Struct(">I")
_KEYS: Final = int(ConstituentFlags.KEYS)
_KINDS: Final[set[type]] = {bytes, type(None)}


def encode_keys(keys: Sequence[bytes | None]) -> bytes:
    """What stands before the payload of records with these keys, one each."""
    array: bytes = msgpack.packb(keys)
    return _LENGTH.pack(len(array)) + array


def split_keys(payload: bytes, records: int) -> tuple[list[bytes | None], bytes]:
    """(the keys, the payload without them) of a constituent that declares `records`.

    Raises:
        CorruptEntryError: it does not begin with that many keys.
    """
    try:
        (length,) = _LENGTH.unpack_from(payload)
        begin = _LENGTH.size
        if length > len(payload) - begin:
            raise CorruptEntryError("the keys are longer than their payload")
        keys = unpack_flat(payload[begin : begin + length], records, _KINDS, bin_size_max=KEY_BYTES_MAX)
    except (struct.error, ValueError, msgpack.UnpackException) as error:
        raise CorruptEntryError(f"{records} records do not have a key or nil each: {error}") from None
    return keys, payload[begin + length :]


def constituent_keys(part: Constituent) -> list[bytes | None]:
    """The keys of one constituent's records, None for each that has none or cannot be read. Its checksum is not looked at."""
    if part.flags & _KEYS:
        try:
            return split_keys(part.payload, part.records)[0]
        except CorruptEntryError:
            pass
    return [None] * part.records


def body_keys(body: bytes | memoryview) -> list[bytes | None]:
    """The keys of all records of a data entry's body.

    Raises:
        CorruptEntryError: the body is none.
    """
    keys: list[bytes | None] = []
    for part in parse_constituents(body):
        keys += constituent_keys(part)
    return keys
