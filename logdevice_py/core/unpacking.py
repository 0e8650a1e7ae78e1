"""Unpacks msgpack that others made: what it costs is bounded by its bytes, whatever it declares.

msgpack reserves memory for as many elements as an array declares before one of them is there. Arrays that are nested and never completed
make 1.5 KB reserve 256 MB, and an array of empty arrays costs a hundred times the bytes that it takes.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final

from msgpack import Unpacker, unpackb

UNCHECKED_SIZE: Final = 256
"""Bytes that may be unpacked without `check_complete`: arrays nested in them reserve some 200 KB at most."""
_UNCHECKED_COUNT: Final = 64
"""Elements of an array that may be unpacked without `check_complete` when no array in it is longer: nested ones reserve as much."""
_PIECE: Final = 1 << 14
"""Bytes looked at in one go: they stay in the processor's cache."""


def check_complete(data: bytes | memoryview) -> None:
    """Check that an object is there with all that it declares, without making it; this takes 1.5 ns a byte.

    Each element of a complete object takes a byte at least, so to unpack it never reserves more than 8 bytes for each of its own.

    Raises:
        ValueError, msgpack.UnpackException: it is cut short, nested too deeply, or no msgpack.
    """
    size = len(data)
    Unpacker(_Pieces(data), read_size=min(size, _PIECE), max_buffer_size=size).skip()


class _Pieces:
    """Bytes to be read a piece at a time, of which no other copy is made."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes | memoryview) -> None:
        self._data = data
        self._at = 0

    def read(self, size: int) -> bytes:
        """The next piece."""
        at = self._at
        self._at = at + size
        return bytes(self._data[at : at + size])


def unpack_flat(data: bytes | memoryview, count: int, kinds: AbstractSet[type], *, bin_size_max: int) -> list[Any]:
    """An array of `count` binaries or nils without anything nested.

    Args:
        kinds: types that its elements may have.

    Raises:
        ValueError, msgpack.UnpackException: it is something else.
    """
    if count > _UNCHECKED_COUNT:
        check_complete(data)
    unpacked = unpackb(
        data,
        raw=True,
        list_hook=partial(_check_flat, count, kinds),  # called for an inner array first
        max_array_len=count,
        max_bin_len=bin_size_max,
        max_str_len=0,
        max_map_len=0,
        max_ext_len=0,
    )
    if type(unpacked) is not list:
        raise ValueError("an array expected")
    return unpacked


def _check_flat(count: int, kinds: AbstractSet[type], elements: list[Any]) -> list[Any]:
    found = list(map(type, elements))
    if len(found) != count or sum(map(found.count, kinds)) != count:  # counting takes half as long as a set of them
        raise ValueError(f"an array of {count} elements of the declared types expected")
    return elements
