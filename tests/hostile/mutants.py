"""Frames in bulk: valid ones with values that nobody sends, and damaged ones."""

from __future__ import annotations

import random
from typing import Any

import msgpack
from google_crc32c import value as crc32c

from tests.hostile.wire import _HEAD, BOUNDS, HEAD_SIZE, LAYOUTS, Kind, Layout, raw_frame

_POOL = 64
"""Values of a field that are made once; frames take them in any combination."""
_LENGTHS = (0, 0, 0, 1, 1, 2, 3, 5, 20)


class FrameMutator:
    """Makes frames of all messages from a seed.

    A frame that `valid` makes is what its message's table allows, so that a node decodes and handles it; one that `damaged` makes differs from such a
    frame in some bytes or in the type of a field, mostly behind a checksum that is right.
    """

    def __init__(self, seed: int, *, logs: list[int], shards: list[int], names: list[str]) -> None:
        """
        Args:
            logs: ids that fields of kind log have.
            shards: likewise.
            names: of messages to send.
        """
        self._rng = rng = random.Random(seed)
        self._logs, self._shards = logs, shards
        self._payloads = [rng.randbytes(rng.choice((0, 1, 13, 56, 60, 64, 100, 400))) for _ in range(_POOL)]
        layouts = [LAYOUTS[name] for name in names]
        self._values = [
            (layout, [[self._value(kind) for _ in range(_POOL)] for _, kind in layout.fields]) for layout in layouts
        ]
        self._pack = msgpack.Packer(autoreset=True).pack

    def valid(self) -> bytes:
        """A frame that a decoder takes."""
        bits = self._rng.getrandbits(256)
        layout, pools = self._values[bits % len(self._values)]
        bits >>= 8
        fields = []
        for pool in pools:
            fields.append(pool[bits & 63])
            bits >>= 6
        packed = self._pack(fields)
        payload = self._payloads[bits & 63] if layout.has_payload else b""
        head = _HEAD.pack(8 + len(packed) + len(payload), len(packed), layout.number, 0)
        return head + crc32c(head + packed).to_bytes(4, "big") + packed + payload

    def damaged(self, *, certainly: bool = False) -> bytes:
        """A frame that a decoder should refuse, or finds incomplete.

        Args:
            certainly: one that it must refuse: a checksum that is wrong.
        """
        rng = self._rng
        frame = bytearray(self.valid())
        how = rng.randrange(6)
        if certainly:
            frame[8] ^= 1
            return bytes(frame)
        size = int.from_bytes(frame[4:6], "big")
        fields, payload = bytes(frame[HEAD_SIZE : HEAD_SIZE + size]), bytes(frame[HEAD_SIZE + size :])
        number = frame[6]
        if how == 0:  # any byte, and a checksum that is wrong
            frame[rng.randrange(len(frame))] ^= rng.randrange(1, 256)
            return bytes(frame)
        if how == 1:
            return raw_frame(rng.randrange(256), fields, payload, rng.choice((0, 1, 255)))
        if how == 2:
            return raw_frame(number, rng.randbytes(rng.randrange(200)), payload)
        if how == 3:  # another shape
            strange: list[Any] = [None, -1, 2**64 - 1, -(2**63), 1.5, "x" * 70, b"y" * 300, [[]] * 9, {1: 2}, True]
            values = msgpack.unpackb(fields)
            for _ in range(rng.choice((1, 1, 3))):
                values[rng.randrange(len(values))] = rng.choice(strange)
            return raw_frame(number, msgpack.packb(values), payload)
        if how == 4:  # cut, or with more behind it
            return raw_frame(
                number, rng.choice((fields[: rng.randrange(size)], fields + rng.randbytes(9), fields * 2)), payload
            )
        changed = bytearray(fields)
        for _ in range(rng.choice((1, 2, 8))):
            changed[rng.randrange(size)] = rng.randrange(256)
        return raw_frame(number, bytes(changed), payload)

    def _value(self, kind: Kind) -> Any:
        rng = self._rng
        if kind.name == "list":
            return [self._value(kind.elements[0]) for _ in range(min(kind.count_max, rng.choice(_LENGTHS)))]
        if kind.name == "tuple":
            return [self._value(element) for element in kind.elements]
        if kind.name == "log":
            return rng.choice(self._logs)
        if kind.name == "shard":
            return rng.choice(self._shards)
        if kind.name == "bool":
            return rng.random() < 0.5
        if kind.name == "status":
            return rng.choice((0, 1, 5, 34, 200, 99_999))
        if kind.name == "text up to 1024":
            return rng.choice(("", "x", "\0\n\x1b[31m", "ü" * 20, "y" * 1024))
        if kind.name == "up to 16 bytes":
            return rng.randbytes(rng.choice((0, 1, 15, 16)))
        if kind.name == "up to 1024 bytes":
            return rng.randbytes(rng.choice((0, 1, 20, 1024)))
        lo, hi = BOUNDS[kind.name]
        edges = (lo, lo + 1, hi, hi - 1, rng.randint(lo, hi), 0, 1, 2, 3, 7, 1 << 16, 1 << 32, (1 << 32) + 1, 5 << 32)
        return rng.choice([value for value in edges if lo <= value <= hi])


def layouts_with_payload() -> list[Layout]:
    """Messages that carry bytes behind their fields."""
    return [layout for layout in LAYOUTS.values() if layout.has_payload]
