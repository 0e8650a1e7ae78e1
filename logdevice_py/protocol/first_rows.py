"""Frames as the first release reads them: it refuses a row that has more places than it knows, where later versions ignore what stands behind.

So a connection on which an earlier version of the protocol was agreed carries rows without the places that were added since; whoever reads them takes the
defaults, as from a process that does not know them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgpack

from logdevice_py.protocol.declare import CODECS, FieldKind, ListKind, TupleKind
from logdevice_py.protocol.framing import HEAD_SIZE, TYPE_AT, framed

_FIELDS_AT: Final = 4


def with_first_rows(frame: list[bytes]) -> list[bytes]:
    """The pieces of a frame as the first release reads it: the same where none of its rows ever got a further place."""
    head = frame[0]
    growing = _growing(head[TYPE_AT])
    if not growing:
        return frame
    size = int.from_bytes(head[_FIELDS_AT : _FIELDS_AT + 2], "big")
    fields = msgpack.unpackb(head[HEAD_SIZE : HEAD_SIZE + size], strict_map_key=False)
    for place, kind in growing:
        if place < len(fields):
            fields[place] = _cut(kind, fields[place])
    packed: bytes = msgpack.packb(fields)
    behind = [head[HEAD_SIZE + size :], *frame[1:]]
    return [framed(head[TYPE_AT], packed, sum(map(len, behind))), *filter(None, behind)]


@lru_cache
def _growing(number: int) -> tuple[tuple[int, FieldKind], ...]:
    """Which fields of a message have rows with places that were added."""
    return tuple((place, kind) for place, (_, kind) in enumerate(CODECS[number].fields) if _has_grown(kind))


def _has_grown(kind: FieldKind) -> bool:
    if isinstance(kind, ListKind):
        return _has_grown(kind.element)
    return isinstance(kind, TupleKind) and (_added(kind) > 0 or any(map(_has_grown, kind.elements)))


def _added(kind: TupleKind) -> int:
    return len(getattr(kind.row, "_field_defaults", ()))


def _cut(kind: FieldKind, value: Any) -> Any:
    if isinstance(kind, ListKind):
        return [_cut(kind.element, each) for each in value]
    if isinstance(kind, TupleKind):
        first = kind.elements[: len(kind.elements) - _added(kind)]
        return [_cut(element, each) for element, each in zip(first, value, strict=False)]
    return value
