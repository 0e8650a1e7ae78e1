"""Batches that clients encrypt: what a sealed batch looks like. Nodes never look into one; who encrypts and decrypts is `client.encryption`.

Layout: ``u8 codec (SEALED), u32 size of the batch within, u8 length of the name, the name of the key``, in version 2 ``16 bytes stream, u64 number``, then
``12 bytes nonce``, and the batch as AES-256-GCM leaves it, with its 16 bytes of proof. It begins as every batch does, so whoever only counts bytes and
records need not know of it. What is proved beside the batch: the key's name, the log, the number of records, and in version 2 stream and number.

Version 2 is that of batches of write streams, version 1 that of direct appends, and of all that earlier programs sealed. The version stands behind the
name of the key: ``k1 (version 2)``. So programs that do not know it refuse the batch, as one whose key they do not have, and their error names it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import CorruptEntryError

SEALED: Final = 16
"""Instead of the codec of a batch."""
KEY_NAME_MAX: Final = 64
NONCE_SIZE: Final = 12
PROOF_SIZE: Final = 16
STREAM_SIZE: Final = 16
VERSION_MARK: Final = " (version "
"""Names of keys that writers use do not contain it."""
SEALED_VERSION: Final = 2
"""The latest one that this program opens."""
_PLACED: Final = f"{VERSION_MARK}{SEALED_VERSION})".encode()
_HEAD: Final = struct.Struct(">BIB")
_PLACE: Final = struct.Struct(f">{STREAM_SIZE}sQ")
SEALED_OVERHEAD: Final = _HEAD.size + KEY_NAME_MAX + NONCE_SIZE + PROOF_SIZE
"""Bytes that sealing adds at most, to a batch without a place."""
PLACED_OVERHEAD: Final = SEALED_OVERHEAD + len(_PLACED) + _PLACE.size
"""Bytes that sealing adds at most, to a batch with a place."""
_PROVED: Final = struct.Struct(">QI")
Seal = Callable[[bytes, int], bytes]
"""Seals a batch, of so many records, of the log that it was made for."""
OpenBatches = Callable[[bytes, int], bytes]
"""The batch within a sealed one, of so many records, of the entry that it was made for; batches of an entry come in order. It raises LogDeviceError when
the batch cannot be had."""
OpenSealed = Callable[[LogId, Lsn], OpenBatches]
"""Gives for an entry, each time that it is unpacked, what opens its batches."""


class BatchPlace(NamedTuple):
    """The place of a batch among those of its write stream, as the writer counts them when it seals. It never changes, also where the frame gets another
    number, or its stream another writer id."""

    stream: bytes
    """Random; of one write stream of one BufferedWriter."""
    number: int
    """Greater than that of every batch of the stream that comes before in the log."""


@dataclass(frozen=True, slots=True)
class SealedBatch:
    """A sealed batch taken apart, and not opened yet."""

    key_name: str
    nonce: bytes
    encrypted: bytes
    place: BatchPlace | None = None


def is_sealed(payload: bytes) -> bool:
    """Whether the payload of a batch, behind its keys, is sealed."""
    return payload[:1] == b"\x10"


def encode_sealed(sealed: SealedBatch, size: int) -> bytes:
    """The bytes of a sealed batch. size: of the batch within."""
    name, place = sealed.key_name.encode(), b""
    if sealed.place is not None:
        name, place = name + _PLACED, _PLACE.pack(*sealed.place)
    return _HEAD.pack(SEALED, size, len(name)) + name + place + sealed.nonce + sealed.encrypted


def decode_sealed(payload: bytes) -> SealedBatch:
    """A sealed batch taken apart.

    Raises:
        CorruptEntryError: it is no sealed batch.
    """
    place = None
    try:
        _, _, length = _HEAD.unpack_from(payload)
        at = _HEAD.size + length
        name = payload[_HEAD.size : at]
        if name.endswith(_PLACED):
            name, place = name[: -len(_PLACED)], BatchPlace._make(_PLACE.unpack_from(payload, at))
            at += _PLACE.size
        key_name = name.decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptEntryError(f"a sealed batch cannot be read: {error}") from None
    nonce, encrypted = payload[at : at + NONCE_SIZE], payload[at + NONCE_SIZE :]
    if len(encrypted) < PROOF_SIZE:
        raise CorruptEntryError("a sealed batch is cut off")
    return SealedBatch(key_name, nonce, encrypted, place)


def proved(key_name: str, log: LogId, records: int, place: BatchPlace | None = None) -> bytes:
    """What is proved beside the batch, and stands elsewhere."""
    name = key_name.encode()
    if place is None:
        return b"logdevice batch 1 " + _PROVED.pack(log, records) + name
    return b"logdevice batch 2 " + _PROVED.pack(log, records) + _PLACE.pack(*place) + name
