"""Hashes that are the same in every process and version: placement rests on them, so they never change."""

from __future__ import annotations

from typing import Final

MASK_64: Final = (1 << 64) - 1


def mix64(number: int) -> int:
    """A 64-bit integer whose bits all depend on all bits of `number` (the finalizer of splitmix64)."""
    number = (number + 0x9E3779B97F4A7C15) & MASK_64
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & MASK_64
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & MASK_64
    return number ^ (number >> 31)


def unit_interval(hashed: int) -> float:
    """A 64-bit hash as a number above 0 and up to 1."""
    return ((hashed >> 11) + 1) / (1 << 53)


def jump_hash(key: int, buckets: int) -> int:
    """The bucket of a 64-bit key; one bucket more moves only the keys that go into it (Lamping and Veach, 2014)."""
    assert buckets > 0, buckets
    bucket, following = -1, 0
    while following < buckets:
        bucket = following
        key = (key * 2862933555777941757 + 1) & MASK_64
        following = int((bucket + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return bucket
