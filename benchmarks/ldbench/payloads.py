"""Payloads that can be recognised when they are read back, made before anything is timed."""

from __future__ import annotations

import enum
import random
import struct
from typing import Final

HEADER: Final = struct.Struct(">QQ")
"""Writer, number of the payload in its pool."""
POOL_BYTES: Final = 64 << 20
POOL_MIN: Final = 64
POOL_MAX: Final = 1 << 16
_WORDS: Final = (
    b"request response user session GET POST PUT /api/v1/orders /api/v1/items status=200 status=404 status=500 "
    b"latency_ms= region=eu-west region=us-east error warning info debug trace retry timeout connection closed opened "
    b"accepted cache hit miss query rows bytes host= pod= container= cluster= namespace= level= message= id= "
).split()


class Content(enum.Enum):
    """What payloads consist of."""

    RANDOM = "random"
    """Cannot be compressed."""
    COMPRESSIBLE = "compressible"
    """Words as in logs of requests: lz4 makes about a third of large payloads of it."""


class PayloadPool:
    """The payloads of one writer. Its record number n is payload n modulo the size of the pool.

    A pool is far larger than the number of records under way, so a record that was read names its number without doubt.
    """

    def __init__(self, writer: int, size: int, content: Content, *, limit: int = POOL_BYTES) -> None:
        """
        Args:
            writer: unique in a measurement.
            size: bytes of a payload, at least those of the header.
            content: of the bytes behind the header.
            limit: bytes that the pool may take.
        """
        if size < HEADER.size:
            raise ValueError(f"a payload of {size} bytes has no room for the header of {HEADER.size}")
        self.writer = writer
        self.size = size
        count = max(POOL_MIN, min(POOL_MAX, limit // size))
        rng = random.Random(writer << 32 | size)
        body = _random_bodies if content is Content.RANDOM else _compressible_bodies
        self.payloads = [
            HEADER.pack(writer, number) + rest for number, rest in enumerate(body(rng, size - HEADER.size, count))
        ]

    def __len__(self) -> int:
        return len(self.payloads)

    def slice(self, start: int, count: int) -> list[bytes]:
        """Payloads of the records [start, start + count)."""
        payloads = self.payloads
        at = start % len(payloads)
        if at + count <= len(payloads):
            return payloads[at : at + count]
        taken = payloads[at:]
        while len(taken) < count:
            taken += payloads[: count - len(taken)]
        return taken


def _random_bodies(rng: random.Random, size: int, count: int) -> list[bytes]:
    return [rng.randbytes(size) for _ in range(count)]


def _compressible_bodies(rng: random.Random, size: int, count: int) -> list[bytes]:
    text = b" ".join(rng.choice(_WORDS) + str(rng.randrange(100)).encode() for _ in range(max(20_000, size // 4)))
    text *= size // len(text) + 2
    return [text[at : at + size] for at in (rng.randrange(len(text) - size) for _ in range(count))]


def writer_and_number(payload: bytes) -> tuple[int, int]:
    """Whose payload it is, and which of the pool's.

    Raises:
        ValueError: it is too short for a payload of ours.
    """
    if len(payload) < HEADER.size:
        raise ValueError(f"a record of {len(payload)} bytes was read")
    writer, number = HEADER.unpack_from(payload)
    return writer, number
