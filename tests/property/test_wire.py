"""Frames: what is sent comes back, and no bytes do worse than being refused, without memory that the bytes ask for."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgpack
import pytest
from google_crc32c import extend, value
from hypothesis import given, settings
from hypothesis import strategies as st

from logdevice_py.core.status import ProtocolError, Status
from logdevice_py.protocol.declare import (
    CODECS,
    BoolKind,
    BytesKind,
    FieldKind,
    IntKind,
    ListKind,
    MessageCodec,
    StatusKind,
    TextKind,
    TupleKind,
)
from logdevice_py.protocol.framing import (
    FRAME_SIZE_MAX,
    FRAME_SIZE_MAX_BEFORE_HELLO,
    HEAD_SIZE,
    FrameReader,
    decode_frame,
    encode_frame,
)
from logdevice_py.protocol.messages import MessageType

EXAMPLES = 20


def values_of(kind: FieldKind) -> st.SearchStrategy[Any]:
    """Everything that a field's declaration allows; lists stay short so that a frame's fields stay below their limit."""
    if isinstance(kind, IntKind):
        return st.integers(kind.lo, kind.hi) | st.sampled_from([kind.lo, kind.hi])
    if isinstance(kind, BytesKind):
        return st.binary(max_size=kind.hi)
    if isinstance(kind, TextKind):
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
    if isinstance(kind, BoolKind):
        return st.booleans()
    if isinstance(kind, StatusKind):
        return st.sampled_from(Status)
    if isinstance(kind, ListKind):
        return st.lists(values_of(kind.element), max_size=4)
    assert isinstance(kind, TupleKind), kind
    return st.tuples(*map(values_of, kind.elements))


def messages_of(codec: MessageCodec) -> st.SearchStrategy[Any]:
    fields = {name: values_of(kind) for name, kind in codec.fields}
    if codec.payload is not None:
        fields[codec.payload] = st.binary(max_size=5000)
    return st.builds(codec.cls, **fields)


MESSAGES = st.sampled_from(sorted(CODECS)).flatmap(lambda number: messages_of(CODECS[number]))


def frame_of(message: Any) -> bytes:
    return b"".join(encode_frame(message))


def with_fields(number: int, fields: bytes, payload: bytes = b"") -> bytes:
    """A frame whose head is right, whatever its fields are."""
    head = (HEAD_SIZE - 4 + len(fields) + len(payload)).to_bytes(4, "big")
    head += len(fields).to_bytes(2, "big") + bytes([number, 0])
    return head + extend(value(head), fields).to_bytes(4, "big") + fields + payload


def received(data: bytes, frame_size_max: int = FRAME_SIZE_MAX) -> list[Any] | None:
    """The messages in `data`; None when it is refused. Any other exception than the declared one fails the test."""
    reader, at, messages = FrameReader(frame_size_max), 0, []
    while at < len(data):
        view = reader.get_buffer()
        count = min(len(view), len(data) - at)
        view[:count] = data[at : at + count]
        del view
        try:
            messages += reader.received(count)
        except ProtocolError:
            return None
        at += count
    return messages


@pytest.mark.parametrize("number", list(MessageType))
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_a_message_comes_back_as_it_was(number: MessageType, data: st.DataObject) -> None:
    message = data.draw(messages_of(CODECS[number]))
    assert decode_frame(frame_of(message)) == message


@given(st.lists(MESSAGES, min_size=1, max_size=4), st.data())
def test_frames_cut_anywhere_come_out_whole_and_in_order(sent: list[Any], data: st.DataObject) -> None:
    stream = b"".join(map(frame_of, sent))
    reader, got, at = FrameReader(), [], 0
    while at < len(stream):
        view = reader.get_buffer()
        count = min(data.draw(st.integers(1, 700)), len(view), len(stream) - at)
        view[:count] = stream[at : at + count]
        del view
        got += reader.received(count)
        at += count
    assert got == sent
    assert reader.pending == 0


@given(MESSAGES, st.data())
def test_a_truncated_frame_yields_no_message(message: Any, data: st.DataObject) -> None:
    frame = frame_of(message)
    assert received(frame[: data.draw(st.integers(0, len(frame) - 1))]) == []


@settings(max_examples=150)
@given(MESSAGES, st.data())
def test_damage_in_head_or_fields_is_refused_or_waits_for_more(message: Any, data: st.DataObject) -> None:
    """A damaged length may ask for more bytes than came. Payloads carry their own checksums."""
    frame = bytearray(frame_of(message))
    covered = HEAD_SIZE + int.from_bytes(frame[4:6], "big")
    at = data.draw(st.integers(0, covered - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    assert received(bytes(frame)) in (None, [])


@settings(max_examples=150)
@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_wait_for_more(data: bytes) -> None:
    assert received(data) in (None, [])


FIELDS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.binary(max_size=30)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.integers(0, 9), inner, max_size=2),
    max_leaves=20,
)


@settings(max_examples=200)
@given(st.sampled_from(sorted(CODECS)), st.lists(FIELDS, max_size=14), st.binary(max_size=20))
def test_fields_of_any_other_shape_are_refused_or_are_a_message_that_its_declaration_allows(
    number: int, fields: list[Any], payload: bytes
) -> None:
    got = received(with_fields(number, msgpack.packb(fields), payload))
    if got is not None:
        [message] = got
        for name, kind in CODECS[number].fields:
            kind.check(_as_wire(getattr(message, name)))


def _as_wire(value: Any) -> Any:
    """What msgpack makes of a value."""
    return [_as_wire(item) for item in value] if isinstance(value, list | tuple) else value


@settings(max_examples=150)
@given(st.sampled_from(sorted(CODECS)), st.binary(max_size=120))
def test_fields_that_are_no_msgpack_are_refused(number: int, fields: bytes) -> None:
    got = received(with_fields(number, fields))
    assert got is None or len(got) == 1


HUGE = [
    b"\xdd\xff\xff\xff\xff",  # array of 2^32 - 1
    b"\xdf\xff\xff\xff\xff",  # map
    b"\xc6\xff\xff\xff\xff",  # binary
    b"\xdb\xff\xff\xff\xff",  # text
    b"\xc9\xff\xff\xff\xff\x01",  # extension
    b"\x91" * 60_000,  # nested beyond every stack
    b"\xdc\xff\xff" + b"\x90" * 65_000,
]


@pytest.mark.parametrize("fields", HUGE, ids=["array", "map", "binary", "text", "extension", "nested", "many"])
@pytest.mark.parametrize("number", [MessageType.RELEASE, MessageType.APPEND])
def test_lengths_that_nothing_backs_allocate_nothing(number: MessageType, fields: bytes) -> None:
    frame = with_fields(number, fields)
    tracemalloc.start()
    try:
        assert received(frame) is None
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@given(st.integers(0, 2**32 - 1), st.sampled_from([FRAME_SIZE_MAX_BEFORE_HELLO, FRAME_SIZE_MAX]))
def test_a_declared_length_is_bounded_by_the_limit_in_force(length: int, limit: int) -> None:
    head = length.to_bytes(4, "big")
    allowed = HEAD_SIZE <= length + 4 <= limit
    assert received(head, limit) == ([] if allowed else None)
    reader = FrameReader(limit)
    view = reader.get_buffer()
    view[:4] = head
    del view
    if allowed:
        reader.received(4)
        assert len(reader.get_buffer()) <= max(limit, 16384) + (1 << 21)
