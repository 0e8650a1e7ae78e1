"""Values of rows that the store keeps for itself, packed by msgpack: read back with their types checked."""

from __future__ import annotations

from typing import Any

import msgpack

from logdevice_py.core.unpacking import check_complete


class UnknownRowError(Exception):
    """A row of the metadata that this version does not know: a later version wrote it, or it is damaged. Nothing is guessed."""


def unpack_integer(value: bytes, what: str) -> int:
    """A value that is one integer.

    Args:
        what: the row, for the error.

    Raises:
        UnknownRowError: it is none.
    """
    found = _unpack(value, what)
    if type(found) is not int:
        raise UnknownRowError(f"{what}: an integer expected")
    return found


def unpack_integers(value: bytes, what: str, count: int | None = None) -> list[int]:
    """A value that is an array of integers, of `count` if that is given.

    Raises:
        UnknownRowError: it is none.
    """
    return _integers(_unpack(value, what), what, count)


def unpack_pairs(value: bytes, what: str) -> list[tuple[int, int]]:
    """A value that is an array of pairs of integers.

    Raises:
        UnknownRowError: it is none.
    """
    found = _unpack(value, what)
    if type(found) is not list:
        raise UnknownRowError(f"{what}: an array expected")
    pairs = [_integers(each, what, 2) for each in found]
    return [(first, last) for first, last in pairs]


def _unpack(value: bytes, what: str) -> Any:
    try:
        check_complete(value)
        return msgpack.unpackb(value, max_map_len=0, max_ext_len=0)
    except (ValueError, msgpack.UnpackException) as error:
        raise UnknownRowError(f"{what}: {type(error).__name__} {error}") from None


def _integers(found: Any, what: str, count: int | None) -> list[int]:
    if type(found) is not list or any(type(each) is not int for each in found) or count not in (None, len(found)):
        raise UnknownRowError(f"{what}: an array of {'' if count is None else f'{count} '}integers expected")
    return found
