"""Frames of other versions, made from recorded ones: by their bytes alone, as a process that shares no code with this one."""

from __future__ import annotations

from typing import Any

import msgpack
from google_crc32c import value as crc32c

from tests.golden.record import DIRECTORY, read_path

HEAD_SIZE = 12
RECORDED = {
    name.removesuffix(", usual"): each.data
    for name, each in read_path(DIRECTORY / "messages.txt").items()
    if name.endswith(", usual")
}
"""By name of the message."""
FIELDS = {
    name.removesuffix(", usual"): list(each.fields)
    for name, each in read_path(DIRECTORY / "messages.txt").items()
    if name.endswith(", usual")
}


def fields_of(frame: bytes) -> list[Any]:
    """What stands in its array."""
    size = int.from_bytes(frame[4:6], "big")
    fields: list[Any] = msgpack.unpackb(frame[HEAD_SIZE : HEAD_SIZE + size])
    return fields


def with_fields(frame: bytes, fields: list[Any], payload: bytes | None = None) -> bytes:
    """The same message with another array, and another payload if one is given."""
    size = int.from_bytes(frame[4:6], "big")
    packed = msgpack.packb(fields)
    payload = frame[HEAD_SIZE + size :] if payload is None else payload
    head = (8 + len(packed) + len(payload)).to_bytes(4, "big") + len(packed).to_bytes(2, "big") + frame[6:8]
    return head + crc32c(head + packed).to_bytes(4, "big") + packed + payload


def recorded(message: str, *, payload: bytes | None = None, later: tuple[Any, ...] = (), **changes: Any) -> bytes:
    """A recorded frame with some fields changed, and with fields behind them that a later version added."""
    fields = fields_of(RECORDED[message])
    for name, value in changes.items():
        fields[FIELDS[message].index(name)] = value
    return with_fields(RECORDED[message], [*fields, *later], payload)
