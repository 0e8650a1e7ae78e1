"""What lies in an extent: its header, twice, then blocks. Big-endian; recorded in `tests/golden/extents.txt`.

An extent, ``DATA_START`` bytes of header and then blocks, each at a multiple of `SECTOR`::

    header at 0 and at HEADER_COPY_AT:
      8s magic  u16 version  u16 0  16s cluster  u32 shard  u32 generation  u32 run  u64 extent  u64 salt
      u32 taken run  u64 taken block  40s boot id of the operating system  u32 crc32c of the above
    block:
      u32 magic  u32 run  u64 number  u64 synced  u32 control length  u64 bodies length
      u32 crc of control  u32 crc of bodies  u32 crc of the head so far
      control   bodies   zeros up to the next sector

The checksums of a block are crc32c over the extent's salt and then the bytes. So neither a block of an earlier use of the file nor a payload that
imitates one counts.

*taken*: the last block that was there when the run began. Blocks above it that belong to earlier runs count as never written.
*synced*: the greatest number of a block that was known to be durable when this one was written.

The control part is a msgpack array that is only ever extended at the end:
  1. copies of entries ``[log, lsn, rank, partition, length of the image, header or nil]``; the images lie in the bodies, in this order. The header
     is there where it is read apart from the body;
  2. copies that have their image elsewhere ``[log, lsn, rank, partition, length, header or nil, extent, offset]``;
  3. deletes ``[log, first, last, partition]``, which come before the copies of the block;
  4. rows of metadata ``[key, value or nil]``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgpack
from google_crc32c import extend as extend_crc32c
from google_crc32c import value as crc32c

from storage_node.log_store.extents.disk import SECTOR
from storage_node.log_store.later_format import LaterFormatError

EXTENT_VERSION: Final = 1
DATA_START: Final = 4096
HEADER_COPY_AT: Final = 2048
BLOCK_MAGIC: Final = b"\xb1\x0c\x4c\x44"
_EXTENT_MAGIC: Final = b"LDEXTENT"
_HEADER: Final = struct.Struct(">8sHH16sIIIQQIQ40s")
_HEAD: Final = struct.Struct(">4sIQQIQII")
_CRC: Final = struct.Struct(">I")
_SALT: Final = struct.Struct(">Q")
HEADER_SIZE: Final = _HEADER.size + _CRC.size
HEAD_SIZE: Final = _HEAD.size + _CRC.size
_ZEROS: Final = bytes(SECTOR)
_BODY_APART: Final = 64 << 10
"""Images from this size on are not copied to be written."""


class BadBlockError(Exception):
    """The bytes are not what should be there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtentHeader:
    """Of one use of an extent's file."""

    cluster: bytes
    shard: int
    generation: int
    run: int
    number: int
    salt: int
    taken_run: int
    taken_block: int
    boot: str = ""

    def encode(self) -> bytes:
        """The bytes before `DATA_START`."""
        fixed = _HEADER.pack(
            _EXTENT_MAGIC,
            EXTENT_VERSION,
            0,
            self.cluster,
            self.shard,
            self.generation,
            self.run,
            self.number,
            self.salt,
            self.taken_run,
            self.taken_block,
            self.boot.encode()[:40],
        )
        one = fixed + _CRC.pack(crc32c(fixed))
        return one.ljust(HEADER_COPY_AT, b"\0") + one.ljust(DATA_START - HEADER_COPY_AT, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> ExtentHeader:
        """From the first `DATA_START` bytes.

        Raises:
            BadBlockError: neither copy can be read.
            LaterFormatError: a later version wrote them.
        """
        for at in (0, HEADER_COPY_AT):
            one = data[at : at + HEADER_SIZE]
            if len(one) == HEADER_SIZE and _CRC.unpack_from(one, _HEADER.size)[0] == crc32c(one[: _HEADER.size]):
                magic, version, _, cluster, shard, generation, run, number, salt, taken_run, taken, boot = (
                    _HEADER.unpack_from(one)
                )
                if magic != _EXTENT_MAGIC:
                    raise BadBlockError("this is no extent")
                if version != EXTENT_VERSION:
                    raise LaterFormatError("an extent of the store", version, EXTENT_VERSION)
                return cls(
                    cluster=cluster,
                    shard=shard,
                    generation=generation,
                    run=run,
                    number=number,
                    salt=salt,
                    taken_run=taken_run,
                    taken_block=taken,
                    boot=boot.rstrip(b"\0").decode("utf-8", "replace"),
                )
        raise BadBlockError("neither copy of the extent's header matches its checksum")


@dataclass(frozen=True, slots=True)
class BlockHead:
    """What stands before a block's control part."""

    run: int
    number: int
    synced: int
    control_length: int
    bodies_length: int
    control_crc: int
    bodies_crc: int

    @property
    def bodies_at(self) -> int:
        """Where the bodies begin, from the begin of the block."""
        return HEAD_SIZE + self.control_length

    @property
    def size(self) -> int:
        """Bytes up to where the next block may begin."""
        return padded(HEAD_SIZE + self.control_length + self.bodies_length)


@dataclass(slots=True)
class Changes:
    """What a block changes, worked out: nothing in it depends on what is stored."""

    copies: list[tuple[int, int, int, int, int, bytes | None]] = field(default_factory=list)
    points: list[tuple[int, int, int, int, int, bytes | None, int, int]] = field(default_factory=list)
    deletes: list[tuple[int, int, int, int]] = field(default_factory=list)
    rows: list[tuple[bytes, bytes | None]] = field(default_factory=list)


def padded(size: int) -> int:
    """Up to the next sector."""
    return -(-size // SECTOR) * SECTOR


def seed_of(salt: int) -> int:
    """What the checksums of an extent begin with."""
    return int(crc32c(_SALT.pack(salt)))


def new_packer() -> Callable[[Any], bytes]:
    """For `encode_block`, of one thread: to make one each time takes as long as to use it."""
    pack: Callable[[Any], bytes] = msgpack.Packer().pack
    return pack


def encode_block(
    changes: Changes,
    images: Sequence[bytes],
    *,
    run: int,
    number: int,
    synced: int,
    seed: int,
    pack: Callable[[Any], bytes] = msgpack.packb,
) -> tuple[list[bytes], int, int]:
    """A block.

    Args:
        images: of `changes.copies`.
        seed: of the extent.
        pack: makes msgpack, for who has a packer of its own.

    Returns:
        the parts to write one behind the other, their bytes, and where the bodies begin.
    """
    control = pack((changes.copies, changes.points, changes.deletes, changes.rows))
    bodies = _joined(images)
    if len(bodies) == 1:
        crc, length = extend_crc32c(seed, bodies[0]), len(bodies[0])
    else:
        crc, length = seed, 0
        for part in bodies:
            crc = extend_crc32c(crc, part)
            length += len(part)
    head = _HEAD.pack(BLOCK_MAGIC, run, number, synced, len(control), length, extend_crc32c(seed, control), crc)
    bodies_at = HEAD_SIZE + len(control)
    rest = -(bodies_at + length) % SECTOR
    return (
        [head + _CRC.pack(extend_crc32c(seed, head)) + control, *bodies, _ZEROS[:rest]],
        bodies_at + length + rest,
        bodies_at,
    )


def _joined(images: Sequence[bytes]) -> list[bytes]:
    """The same bytes in fewer parts."""
    if len(images) == 1:
        return [images[0]]
    if not images or len(max(images, key=len)) < _BODY_APART:
        return [b"".join(images)]
    parts: list[bytes] = []
    small: list[bytes] = []
    for image in images:
        if len(image) < _BODY_APART:
            small.append(image)
            continue
        if small:
            parts.append(b"".join(small))
            small = []
        parts.append(image)
    if small:
        parts.append(b"".join(small))
    return parts


def decode_head(data: bytes, seed: int) -> BlockHead | None:
    """The head of a block; None where there is none of this use of the extent."""
    if len(data) < HEAD_SIZE or data[:4] != BLOCK_MAGIC:
        return None
    if _CRC.unpack_from(data, _HEAD.size)[0] != extend_crc32c(seed, data[: _HEAD.size]):
        return None
    _, run, number, synced, control_length, bodies_length, control_crc, bodies_crc = _HEAD.unpack_from(data)
    return BlockHead(run, number, synced, control_length, bodies_length, control_crc, bodies_crc)


def decode_control(head: BlockHead, data: bytes, seed: int) -> Changes:
    """What a block changes.

    Raises:
        BadBlockError: the bytes do not match their checksum.
    """
    if len(data) != head.control_length or extend_crc32c(seed, data) != head.control_crc:
        raise BadBlockError(f"the control part of block {head.number} does not match its checksum")
    fields: list[Any] = msgpack.unpackb(data, use_list=False)
    copies, points, deletes, rows = fields[:4]
    return Changes(list(copies), list(points), list(deletes), list(rows))


def bodies_match(head: BlockHead, data: bytes, seed: int) -> bool:
    """Whether these are the bodies of the block."""
    return len(data) == head.bodies_length and extend_crc32c(seed, data) == head.bodies_crc
