"""A few frames of every message: values follow from the declarations, so a new message or field has some at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.protocol.declare import (
    CODECS,
    BoolKind,
    BytesKind,
    FieldKind,
    IntKind,
    ListKind,
    StatusKind,
    TextKind,
    TupleKind,
)
from logdevice_py.protocol.framing import decode_frame, encode_frame
from logdevice_py.protocol.messages import MessageType
from tests.golden.record import GoldenCase

_STATUSES = (Status.OK, Status.PREEMPTED, Status.REBUILDING)
_PAYLOAD = b"payload"


def message_cases() -> Iterator[GoldenCase]:
    """Usual values, the least and the greatest, of every message."""
    for number in sorted(CODECS):
        codec = CODECS[number]
        name = MessageType(number).name
        made: dict[str, Callable[[FieldKind], Any]] = {
            "usual": partial(_usual, numbers=count(1)),
            "least": _least,
            "greatest": _greatest,
        }
        for kind_of, value_of in made.items():
            values = {field: value_of(kind) for field, kind in codec.fields}
            if codec.payload is not None:
                values[codec.payload] = _PAYLOAD if kind_of != "least" else b""
            frame = b"".join(encode_frame(codec.cls(**values)))
            yield GoldenCase(f"{name}, {kind_of}", frame, decode_frame)


def _usual(kind: FieldKind, numbers: Iterator[int]) -> Any:
    """A value in the middle, another for each field."""
    if isinstance(kind, ListKind):
        return [_usual(kind.element, numbers) for _ in range(2)]
    if isinstance(kind, TupleKind):
        return tuple.__new__(kind.row, [_usual(each, numbers) for each in kind.elements])
    number = next(numbers)
    if isinstance(kind, IntKind):
        by_name = {
            "lsn": compose_lsn(number, number + 1),
            "shard": number << 8 | 1,
            "timestamp": 1_700_000_000_000_000 + number,
            "u16": 300 + number,
            "u32": 70_000 + number,
            "u64": 5_000_000_000 + number,
        }
        return min(by_name.get(kind.name, number), kind.hi)
    if isinstance(kind, BytesKind):
        return bytes(range(number, number + 16))[: kind.hi]
    if isinstance(kind, TextKind):
        return f"text {number} é"
    if isinstance(kind, StatusKind):
        return _STATUSES[number % 3]
    assert isinstance(kind, BoolKind)
    return True


def _least(kind: FieldKind) -> Any:
    if isinstance(kind, TupleKind):
        return tuple.__new__(kind.row, [_least(each) for each in kind.elements])
    if isinstance(kind, IntKind):
        return kind.lo
    if isinstance(kind, StatusKind):
        return Status.OK
    return {ListKind: [], BytesKind: b"", TextKind: "", BoolKind: False}[type(kind)]  # type: ignore[index]


def _greatest(kind: FieldKind) -> Any:
    """Of integers and in one element of lists: the greatest; the texts and bytes short of theirs, to be looked at."""
    if isinstance(kind, ListKind):
        return [_greatest(kind.element)]
    if isinstance(kind, TupleKind):
        return tuple.__new__(kind.row, [_greatest(each) for each in kind.elements])
    if isinstance(kind, IntKind):
        return kind.hi
    if isinstance(kind, StatusKind):
        return Status.INTERNAL
    return {BytesKind: b"\xff" * 16, TextKind: "\N{EARTH GLOBE EUROPE-AFRICA}" * 3, BoolKind: True}[type(kind)]  # type: ignore[index]
