from __future__ import annotations

import dataclasses
import itertools
import random
import tracemalloc
from typing import Any, NamedTuple

import pytest
from google_crc32c import extend, value

from logdevice_py.core.ids import LogId, NodeId, ShardId
from logdevice_py.core.lsn import EPOCH_INVALID, Epoch, compose_lsn
from logdevice_py.core.status import ProtocolError, Status
from logdevice_py.protocol.declare import (
    CODECS,
    FIELDS_SIZE_MAX,
    LOG,
    LSN,
    U32,
    BoolKind,
    BytesKind,
    EpochField,
    FieldKind,
    IntKind,
    ListKind,
    Log,
    StatusKind,
    TextKind,
    TupleKind,
    pair_of,
    row_of,
)
from logdevice_py.protocol.framing import (
    FRAME_SIZE_MAX_BEFORE_HELLO,
    FrameReader,
    InputMemory,
    decode_frame,
    encode_frame,
)
from logdevice_py.protocol.messages import MessageType, Release, Stored


def sample(kind: FieldKind, rng: random.Random) -> Any:
    """A value that the declaration allows."""
    if isinstance(kind, IntKind):
        return rng.choice([kind.lo, kind.hi, rng.randint(kind.lo, kind.hi)])
    if isinstance(kind, BytesKind):
        return rng.randbytes(rng.randint(0, kind.hi))
    if isinstance(kind, TextKind):
        return "é" * rng.randint(0, 20)
    if isinstance(kind, BoolKind):
        return rng.random() < 0.5
    if isinstance(kind, StatusKind):
        return rng.choice(list(Status))
    if isinstance(kind, ListKind):
        return [sample(kind.element, rng) for _ in range(rng.randint(0, 3))]
    assert isinstance(kind, TupleKind)
    return tuple(sample(element, rng) for element in kind.elements)


def sample_message(number: int, rng: random.Random) -> Any:
    codec = CODECS[number]
    values = {name: sample(kind, rng) for name, kind in codec.fields}
    if codec.payload is not None:
        values[codec.payload] = rng.randbytes(rng.randint(0, 100))
    return codec.cls(**values)


def stored(wave: int = 1) -> Stored:
    return Stored(
        log=LogId(1),
        lsn=compose_lsn(1, 1),
        shard=ShardId(0),
        wave=wave,
        status=Status.OK,
        flags=0,
        seal_epoch=EPOCH_INVALID,
        seal_node=NodeId(-1),
    )


class TestEveryMessage:
    @pytest.mark.parametrize("number", list(MessageType))
    def test_comes_back_as_it_was(self, number: MessageType) -> None:
        rng = random.Random(int(number))
        for _ in range(20):
            message = sample_message(number, rng)
            assert decode_frame(b"".join(encode_frame(message))) == message

    def test_every_type_number_has_a_message(self) -> None:
        assert set(CODECS) == set(MessageType)

    @pytest.mark.parametrize("number", list(MessageType))
    def test_every_field_is_checked(self, number: MessageType) -> None:
        rng = random.Random(1)
        message = sample_message(number, rng)
        for field in dataclasses.fields(message):
            if field.name == CODECS[number].payload:
                continue
            wrong = dataclasses.replace(message, **{field.name: {"a": 1}})
            with pytest.raises(ProtocolError):
                decode_frame(b"".join(encode_frame(wrong)))


class LaterRow(NamedTuple):
    """A row whose third place a later version added."""

    log: Log
    epoch: EpochField
    wave: U32 = 7


class TestRows:
    row = row_of(LaterRow)

    def test_a_row_is_read_by_name(self) -> None:
        read = self.row.check([1, 2, 3])
        assert isinstance(read, LaterRow)
        assert (read.log, read.epoch, read.wave) == (1, 2, 3)

    def test_places_that_an_earlier_version_does_not_send_have_their_default(self) -> None:
        assert self.row.check([1, 2]) == LaterRow(LogId(1), Epoch(2), 7)
        with pytest.raises(ValueError, match="1 places, at least 2 needed"):
            self.row.check([1])

    def test_places_that_a_later_version_added_are_ignored(self) -> None:
        assert self.row.check([1, 2, 3, "x", []]) == LaterRow(LogId(1), Epoch(2), 3)
        assert pair_of(log=LOG, lsn=LSN).check([1, 2, 3]) == (1, 2)

    @pytest.mark.parametrize("wrong", [[-1, 2, 3], [1, 2**31, 3], [1, 2, True], [1, 2, None], (1, 2, 3), 5])
    def test_every_place_is_checked(self, wrong: Any) -> None:
        with pytest.raises(ValueError, match="expected"):
            self.row.check(wrong)


class TestHostileBytes:
    def test_every_flipped_bit_of_header_or_fields_is_refused(self) -> None:
        frame = b"".join(encode_frame(stored()))
        for position in range(4 * 8, len(frame) * 8):
            broken = bytearray(frame)
            broken[position // 8] ^= 1 << position % 8
            with pytest.raises(ProtocolError):
                decode_frame(bytes(broken))

    def test_a_damaged_length_is_refused_at_once_and_not_waited_for(self) -> None:
        frame = b"".join(encode_frame(stored()))
        for bit in range(32):
            broken = bytearray(frame)
            broken[bit // 8] ^= 1 << bit % 8
            reader = FrameReader()
            reader.get_buffer()[: len(broken)] = broken
            with pytest.raises(ProtocolError):
                reader.received(len(broken))

    def test_a_length_over_the_limit_is_refused_before_anything_is_allocated(self) -> None:
        reader = FrameReader(FRAME_SIZE_MAX_BEFORE_HELLO)
        view = reader.get_buffer()
        view[:4] = (FRAME_SIZE_MAX_BEFORE_HELLO + 1).to_bytes(4, "big")
        del view
        with pytest.raises(ProtocolError, match="are allowed"):
            reader.received(4)

    def test_random_bytes_never_raise_anything_else(self) -> None:
        rng = random.Random(5)
        for _ in range(2000):
            size = rng.randint(0, 60)
            data = size.to_bytes(4, "big") + rng.randbytes(size) if rng.random() < 0.7 else rng.randbytes(size)
            reader = FrameReader()
            view = reader.get_buffer()
            view[: len(data)] = data
            del view
            try:
                reader.received(len(data))
            except ProtocolError:
                continue

    def test_unknown_type_is_refused_by_number(self) -> None:
        frame = bytearray(b"".join(encode_frame(stored())))
        frame[6] = 250
        with pytest.raises(ProtocolError):
            decode_frame(bytes(frame))


class TestStream:
    def test_frames_cut_anywhere_come_out_whole_and_in_order(self) -> None:
        rng = random.Random(3)
        sent = [sample_message(rng.choice(list(MessageType)), rng) for _ in range(300)]
        data = b"".join(b"".join(encode_frame(message)) for message in sent)
        reader, received, at = FrameReader(), [], 0
        while at < len(data):
            view = reader.get_buffer()
            count = min(rng.randint(1, 3000), len(view), len(data) - at)
            view[:count] = data[at : at + count]
            del view
            received += reader.received(count)
            at += count
        assert received == sent

    def test_a_frame_larger_than_the_buffer_grows_it_and_small_ones_shrink_it_again(self) -> None:
        reader = FrameReader()
        logs = [(n, n) for n in range(1, 4000)]
        frame = b"".join(encode_frame(Release(shard=ShardId(0), logs=logs)))
        for _ in range(3):
            at, out = 0, []
            while at < len(frame):
                view = reader.get_buffer()
                count = min(1000, len(view), len(frame) - at)
                view[:count] = frame[at : at + count]
                del view
                out += reader.received(count)
                at += count
            assert len(out) == 1


@pytest.mark.parametrize("piece", [1, 100, 5000, 1 << 20])
def test_a_reader_with_a_small_buffer_is_fed_bytes_in_pieces_of_any_size(piece: int) -> None:
    rng = random.Random(piece)
    sent = [sample_message(number, rng) for number in sorted(CODECS) for _ in range(3)]
    data = b"".join(b"".join(encode_frame(message)) for message in sent)
    reader = FrameReader(shared=bytearray(1 << 10))
    got: list[Any] = []
    for at in range(0, len(data), piece):
        got += reader.feed(data[at : at + piece])
    assert got == sent
    assert not reader.pending


def _frame(number: int, fields: bytes) -> bytes:
    head = (8 + len(fields)).to_bytes(4, "big") + len(fields).to_bytes(2, "big") + bytes([number, 0])
    return head + extend(value(head), fields).to_bytes(4, "big") + fields


@pytest.mark.parametrize("number", CODECS, ids=lambda number: CODECS[number].name)
def test_a_message_reserves_memory_for_what_it_holds_and_not_for_what_it_declares(number: int) -> None:
    declared = CODECS[number].array_len_max
    nested = (b"\xdc" + declared.to_bytes(2, "big")) * min(500, CODECS[number].fields_size_max // 3)
    tracemalloc.start()
    try:
        for fields in (nested, b"\xdc" + (declared + 1).to_bytes(2, "big") + b"\x90" * (declared + 1)):
            with pytest.raises(ProtocolError):
                decode_frame(_frame(number, fields))
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("number", CODECS, ids=lambda number: CODECS[number].name)
def test_fields_are_no_longer_than_their_declaration_allows(number: int) -> None:
    limit = CODECS[number].fields_size_max
    if limit < FIELDS_SIZE_MAX:
        with pytest.raises(ProtocolError, match="bytes of fields, at most"):
            decode_frame(_frame(number, b"\xc4\x00" * ((limit + 2) // 2)))


def large_message(size: int) -> Any:
    rng = random.Random(1)
    codec = next(codec for codec in CODECS.values() if codec.payload is not None)
    message = sample_message(codec.number, rng)
    setattr(message, codec.payload or "", rng.randbytes(size))
    return message


def test_a_begun_frame_takes_memory_for_what_came_of_it() -> None:
    memory = InputMemory(1 << 30)
    reader = FrameReader(memory=memory)
    assert reader.feed((1 << 24).to_bytes(4, "big")) == []
    assert 0 < memory.used <= 4096
    reader.close()
    assert memory.used == 0


def test_a_large_frame_grows_as_it_comes_and_is_given_back() -> None:
    memory = InputMemory(1 << 30)
    shared = bytearray(1 << 12)
    message = large_message(300_000)
    frame = b"".join(encode_frame(message))
    reader = FrameReader(shared=shared, memory=memory)
    for at in range(0, len(frame) - 1000, 1000):
        assert not reader.feed(frame[at : at + 1000])
        assert memory.used <= max(4096, 2 * (at + 1000))
    assert reader.feed(frame[reader.pending :]) == [message]
    assert memory.used == 0
    assert not reader.pending


def test_a_peer_that_sends_large_frames_has_each_further_one_read_in_one_piece() -> None:
    # the buffer for what continues no frame always ends within one
    frame = b"".join(encode_frame(large_message(250_000)))
    reader, stream = FrameReader(shared=bytearray(256 << 10)), frame * 12
    reads, at = 0, 0
    while at < len(stream):
        view = reader.get_buffer()
        size = min(len(view), len(stream) - at)
        view[:size] = stream[at : at + size]
        view.release()
        reader.received(size)
        at += size
        if reader.completed:
            reads += 1
    assert reader.completed == 12
    assert reads <= 18  # the first that is begun grows in five steps


def test_buffers_of_large_frames_go_from_one_connection_to_another_and_few_are_kept() -> None:
    memory, shared = InputMemory(1 << 30), bytearray(1 << 14)
    rng = random.Random(4)
    sizes = [rng.choice([100, 70_000, 200_000, 1_500_000, 5_000_000]) for _ in range(40)]
    messages = [large_message(size) for size in sizes]
    streams = [b"".join(b"".join(encode_frame(each)) for each in messages[part::8]) for part in range(8)]
    readers = [FrameReader(shared=shared, memory=memory) for _ in streams]
    got: list[list[Any]] = [[] for _ in streams]
    at = [0] * len(streams)
    while any(at[part] < len(stream) for part, stream in enumerate(streams)):
        part = rng.randrange(len(streams))
        piece = streams[part][at[part] : at[part] + rng.choice([7, 5000, 400_000])]
        got[part] += readers[part].feed(piece)
        at[part] += len(piece)
    assert got == [messages[part::8] for part in range(8)]
    assert memory.used == 0
    assert 0 < memory.spare_bytes <= 8 << 20


def test_a_newcomer_gets_its_first_frame_read_and_no_more_than_that_may_be_and_more_where_it_sends_as_much() -> None:
    reader = FrameReader(FRAME_SIZE_MAX_BEFORE_HELLO)
    assert len(reader.get_buffer()) == FRAME_SIZE_MAX_BEFORE_HELLO
    frame = b"".join(encode_frame(stored()))
    reader.feed(frame)
    assert len(reader.get_buffer()) == FRAME_SIZE_MAX_BEFORE_HELLO
    data = frame * (2 * FRAME_SIZE_MAX_BEFORE_HELLO // len(frame) + 1)
    reader.feed(data[:FRAME_SIZE_MAX_BEFORE_HELLO])
    reader.feed(data[FRAME_SIZE_MAX_BEFORE_HELLO : len(data) // len(frame) * len(frame)])
    assert len(reader.get_buffer()) == 2 * FRAME_SIZE_MAX_BEFORE_HELLO


def test_messages_that_nobody_took_come_later_and_in_order() -> None:
    reader = FrameReader(memory=(memory := InputMemory(1 << 30)))
    frames = [b"".join(encode_frame(stored(number))) for number in range(100)]
    data = b"".join(frames)
    view = reader.get_buffer()
    view[: len(data) - 5] = data[:-5]
    view.release()
    taken: list[Any] = []

    def take(message: Any) -> bool:
        taken.append(message)
        return len(taken) % 30 == 0

    for calls in range(1, 4):
        reader.read(len(data) - 5 if calls == 1 else 0, take)
        assert (len(taken), reader.completed, reader.stopped) == (30 * calls, 30 * calls, True)
        assert reader.pending == len(data) - 5 - sum(map(len, frames[: 30 * calls])) <= memory.used
    reader.read(0, take)
    assert (len(taken), reader.stopped, reader.pending) == (99, False, len(frames[99]) - 5)
    assert reader.feed(data[-5:]) == [stored(99)]
    assert taken == [stored(number) for number in range(99)]
    assert (memory.used, reader.pending) == (0, 0)


def test_no_more_is_read_at_a_time_than_was_handled_the_last_time() -> None:
    reader = FrameReader(shared=bytearray(1 << 19))
    frame = b"".join(encode_frame(stored()))
    data = frame * ((1 << 19) // len(frame))
    reader.get_buffer()[: len(data)] = data
    counter = itertools.count(1)
    reader.read(len(data), lambda message: next(counter) == 200)
    reader.read(0, lambda message: None)
    assert len(reader.get_buffer()) == max(4096, 200 * len(frame))


def test_only_messages_with_a_payload_that_the_peer_may_send_are_large() -> None:
    reader = FrameReader()
    reader.large_types = frozenset({int(MessageType.APPEND)})
    head = (1 << 20).to_bytes(4, "big") + bytes(2)
    assert reader.feed(head + bytes([MessageType.APPEND, 0])) == []
    for number in (MessageType.STORE, MessageType.TRIM, 250):
        other = FrameReader()
        other.large_types = reader.large_types
        with pytest.raises(ProtocolError, match="may have"):
            other.feed(head + bytes([number, 0]) + bytes(4))


def test_the_frame_begun_longest_ago_makes_way() -> None:
    memory = InputMemory(10_000)
    ended: list[str] = []
    readers = {name: FrameReader(memory=memory) for name in ("node", "first", "second")}
    for name, reader in readers.items():
        if name != "node":
            reader.makes_way = lambda name=name: ended.append(name)  # type: ignore[misc]
        reader.feed((1 << 20).to_bytes(4, "big"))
    assert ended == ["first"]
    assert memory.used == 2 * 4096
