"""Batches that clients encrypt: what a sealed batch looks like. Nodes never look into one; who encrypts and decrypts is `client.encryption`.

Layout: ``u8 codec (SEALED), u32 size of the batch within, u8 length of the key's name, its name, 12 bytes nonce``, then the batch as AES-256-GCM leaves
it, with its 16 bytes of proof. It begins as every batch does, so whoever only counts bytes and records need not know of it. What is proved beside the
batch: the key's name, the log and the number of records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

from logdevice_py.core.ids import LogId
from logdevice_py.core.status import CorruptEntryError

SEALED: Final = 16
"""Instead of the codec of a batch."""
KEY_NAME_MAX: Final = 64
NONCE_SIZE: Final = 12
PROOF_SIZE: Final = 16
_HEAD: Final = struct.Struct(">BIB")
SEALED_OVERHEAD: Final = _HEAD.size + KEY_NAME_MAX + NONCE_SIZE + PROOF_SIZE
"""Bytes that sealing adds at most."""
_PROVED: Final = struct.Struct(">QI")
Seal = Callable[[bytes, int], bytes]
"""Seals a batch, of so many records, of the log that it was made for."""
OpenSealed = Callable[[LogId, bytes, int], bytes]
"""The batch within a sealed one, of a log, of so many records. It raises LogDeviceError when it cannot be had."""


def is_sealed(payload: bytes) -> bool:
    """Whether the payload of a batch, behind its keys, is sealed."""
    return payload[:1] == b"\x10"


def encode_sealed(key_name: str, nonce: bytes, size: int, encrypted: bytes) -> bytes:
    """A sealed batch. size: of the batch within."""
    name = key_name.encode()
    return _HEAD.pack(SEALED, size, len(name)) + name + nonce + encrypted


def decode_sealed(payload: bytes) -> tuple[str, bytes, bytes]:
    """Name of the key, nonce, and what is encrypted.

    Raises:
        CorruptEntryError: it is no sealed batch.
    """
    try:
        _, _, length = _HEAD.unpack_from(payload)
        name = payload[_HEAD.size : _HEAD.size + length].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise CorruptEntryError(f"a sealed batch cannot be read: {error}") from None
    at = _HEAD.size + length
    nonce, encrypted = payload[at : at + NONCE_SIZE], payload[at + NONCE_SIZE :]
    if len(encrypted) < PROOF_SIZE:
        raise CorruptEntryError("a sealed batch is cut off")
    return name, nonce, encrypted


def proved(key_name: str, log: LogId, records: int) -> bytes:
    """What is proved beside the batch, and stands elsewhere."""
    return b"logdevice batch 1 " + _PROVED.pack(log, records) + key_name.encode()
