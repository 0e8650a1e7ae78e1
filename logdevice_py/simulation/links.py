"""What a network does to what is on its way: faults of single directions between two machines."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.machine import Rng


@dataclass(slots=True, kw_only=True, eq=False)
class LinkFault:
    """One direction between two machines is bad, for as long as the fault is in force."""

    kind: str
    """Under which name its effects are counted."""
    bytes_per_second: int = 0
    """No more than this passes; 0: no limit."""
    flip: float = 0.0
    """Probability that a bit of a write is flipped without the transport's checksum noticing it."""
    cut: float = 0.0
    """Probability that the connection is reset when a part of a write has passed."""
    lag: int = 0
    """Every write takes up to this much longer, in microseconds."""


def flip_bit(data: bytes, rng: Rng) -> bytes:
    """The same bytes but for one bit."""
    bit = int(rng.random() * len(data) * 8)
    at = bit >> 3
    return b"".join((data[:at], bytes((data[at] ^ 1 << (bit & 7),)), data[at + 1 :]))
