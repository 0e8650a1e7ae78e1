"""Entry images and batches: what is encoded comes back, damage is noticed, and nothing unpacks beyond its limit."""

from __future__ import annotations

import struct
import tracemalloc
from typing import Any

import msgpack
import pytest
import zstandard
from google_crc32c import value as crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from client.read.decoding import entry_records, verify_image
from logdevice_py.core.batch import constituent_records, decode_batch, encode_batch
from logdevice_py.core.compression import Compression
from logdevice_py.core.entry import (
    BODY_SIZE_MAX,
    Constituent,
    ConstituentFlags,
    EntryFlags,
    EntryHeader,
    body_of,
    check_body,
    encode_body,
    encode_entry,
    header_size,
    pack_body,
    parse_constituents,
    parse_header,
)
from logdevice_py.core.extensions import Condition, Extensions, TailState, encode_extensions, parse_extensions
from logdevice_py.core.ids import LogId, ShardId, WriterId
from logdevice_py.core.lsn import ESN_MAX, LSN_MAX, Esn, Lsn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp

HEAD = struct.Struct(">BI")
RECORDS = st.lists(st.binary(max_size=60) | st.binary(max_size=3).map(lambda unit: unit * 300), max_size=12)


TAIL_STATES = st.builds(TailState, st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1), st.integers(0, 3))
CONDITIONS = st.builds(
    Condition, st.integers(0, 2**63 - 1), st.integers(0, LSN_MAX).map(Lsn), st.integers(0, 2**32 - 1)
)
OF_LATER_VERSIONS = st.binary(max_size=255).map(lambda content: bytes([100, len(content)]) + content)


@st.composite
def constituents(draw: st.DrawFn) -> Constituent:
    flags, records = 0, 1
    if draw(st.booleans()):
        batch = draw(RECORDS)
        payload, records, flags = encode_batch(batch, draw(st.sampled_from(Compression))), len(batch), 1
    else:
        payload = draw(st.binary(max_size=100))
    part = Constituent(payload, records, crc32c(payload), flags)
    if draw(st.booleans()):
        part.flags |= int(ConstituentFlags.WRITE_STREAM)
        part.writer = WriterId(draw(st.binary(min_size=16, max_size=16)))
        part.sequence = draw(st.integers(0, 2**64 - 1))
    return part


@st.composite
def entries(draw: st.DrawFn) -> tuple[EntryHeader, bytes, list[Constituent]]:
    parts = draw(st.lists(constituents(), max_size=4))
    body = pack_body(encode_body(parts), draw(st.sampled_from(Compression)))
    flags = draw(st.sampled_from([0, int(EntryFlags.WRITTEN_BY_RECOVERY), int(EntryFlags.WRITE_STREAM)]))
    header = EntryHeader(
        LogId(draw(st.integers(1, 2**63 - 1))),
        Lsn(draw(st.integers(1, LSN_MAX))),
        Timestamp(draw(st.integers(-(2**63), 2**63 - 1))),
        draw(st.integers(0, 2**32 - 1)),
        tuple(ShardId(shard) for shard in draw(st.lists(st.integers(0, 2**23 - 1), max_size=6))),
        Esn(draw(st.integers(0, ESN_MAX))),
        sum(part.records for part in parts),
        flags,
        len(body),
        crc32c(body),
        draw(st.just(b"") | st.builds(encode_extensions, TAIL_STATES, st.none() | CONDITIONS) | OF_LATER_VERSIONS),
    )
    return header, encode_entry(header, body), parts


@given(entries())
def test_an_entry_comes_back_as_it_was(entry: tuple[EntryHeader, bytes, list[Constituent]]) -> None:
    header, image, parts = entry
    parsed = parse_header(image)
    check_body(image, parsed)
    assert parsed == header
    assert parse_constituents(body_of(image)) == parts
    wanted = [record for part in parts for record in constituent_records(part)]
    assert None not in wanted
    assert entry_records(verify_image(header.log, header.lsn, image), image) == wanted


@given(TAIL_STATES, st.none() | CONDITIONS, OF_LATER_VERSIONS, st.data())
def test_extensions_come_back_as_they_were(
    tail: TailState, condition: Condition | None, unknown: bytes, data: st.DataObject
) -> None:
    encoded = encode_extensions(tail, condition)
    meant = Extensions(tail, condition)
    assert (
        parse_extensions(encoded) == parse_extensions(unknown + encoded) == parse_extensions(encoded + unknown) == meant
    )
    assert parse_extensions(encoded + b"\x80\x00") == Extensions(tail, condition, readable=False)
    with pytest.raises(CorruptEntryError):
        parse_extensions((encoded + unknown)[: -data.draw(st.integers(1, len(unknown) - 1))])


@settings(max_examples=200)
@given(entries(), st.data())
def test_a_changed_or_cut_image_is_noticed(
    entry: tuple[EntryHeader, bytes, list[Constituent]], data: st.DataObject
) -> None:
    header, image, _ = entry
    at = data.draw(st.integers(0, len(image) - 1))
    if data.draw(st.booleans()):
        damaged = image[:at]
    else:
        damaged = image[:at] + bytes([image[at] ^ data.draw(st.integers(1, 255))]) + image[at + 1 :]
    with pytest.raises(CorruptEntryError):
        verify_image(header.log, header.lsn, damaged)


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_any_bytes_are_no_entry(data: bytes) -> None:
    with pytest.raises(CorruptEntryError):
        parse_header(data)


@settings(max_examples=200)
@given(entries(), st.data())
def test_any_body_yields_as_many_records_as_its_header_declares(
    entry: tuple[EntryHeader, bytes, list[Constituent]], data: st.DataObject
) -> None:
    """A writer may put into a body what it likes, with checksums that are right."""
    header, image, _ = entry
    body = bytearray(body_of(image))
    for _ in range(data.draw(st.integers(0, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    body = body[: data.draw(st.integers(0, len(body)))]
    header.body_length, header.body_crc = len(body), crc32c(bytes(body))
    forged = encode_entry(header, bytes(body))
    records = entry_records(verify_image(header.log, header.lsn, forged), forged)
    assert len(records) == header.records
    assert all(record is None or type(record) is bytes for record in records)


@settings(max_examples=200)
@given(st.binary(max_size=200))
def test_any_body_is_a_table_or_refused(body: bytes) -> None:
    try:
        parts = parse_constituents(body)
    except CorruptEntryError:
        return
    assert len(encode_body(parts)) == len(body) or body.startswith(b"\xff\xff\xff"), "or it is packed"


@given(st.lists(constituents(), max_size=4), st.sampled_from(Compression))
def test_a_packed_body_is_the_same_constituents_in_fewer_bytes(
    parts: list[Constituent], compression: Compression
) -> None:
    body = encode_body(parts)
    packed = pack_body(body, compression)
    assert packed == body or len(packed) < len(body)
    assert parse_constituents(packed) == parts, "their checksums are those of clients"


@settings(max_examples=200)
@given(st.sampled_from((Compression.LZ4, Compression.ZSTD)), st.integers(0, 2**32 - 1), st.binary(max_size=200))
def test_a_packed_body_takes_no_more_memory_than_a_body_may_have(
    compression: Compression, size: int, data: bytes
) -> None:
    body = struct.pack(">II", 0xFFFFFF00 + compression, size) + data
    tracemalloc.start()
    try:
        parse_constituents(body)
    except CorruptEntryError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak <= 2 * BODY_SIZE_MAX


@given(RECORDS, st.sampled_from(Compression))
def test_a_batch_comes_back_as_it_was(records: list[bytes], compression: Compression) -> None:
    payload = encode_batch(records, compression)
    assert len(payload) <= HEAD.size + len(msgpack.packb(records))
    assert decode_batch(payload, len(records)) == records


@settings(max_examples=200)
@given(RECORDS, st.sampled_from(Compression), st.data())
def test_a_damaged_batch_is_refused_or_holds_what_it_declares(
    records: list[bytes], compression: Compression, data: st.DataObject
) -> None:
    payload = bytearray(encode_batch(records, compression))
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    declared = data.draw(st.integers(0, 20))
    try:
        unpacked = decode_batch(bytes(payload[: data.draw(st.integers(0, len(payload)))]), declared)
    except CorruptEntryError:
        return
    assert len(unpacked) == declared
    assert all(type(record) is bytes for record in unpacked)


ITEMS = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary(max_size=9) | st.text("ab"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.integers(0, 9), inner, max_size=2),
    max_leaves=8,
)


@settings(max_examples=200)
@given(ITEMS, st.integers(0, 6), st.sampled_from(Compression))
def test_an_array_of_anything_but_binaries_is_no_batch(item: Any, declared: int, compression: Compression) -> None:
    array = msgpack.packb(item)
    payload = HEAD.pack(0, len(array)) + array
    if compression is Compression.ZSTD:
        payload = HEAD.pack(2, len(array)) + zstandard.ZstdCompressor(write_content_size=True).compress(array)
    valid = type(item) is list and len(item) == declared and all(type(each) is bytes for each in item)
    if valid:
        assert decode_batch(payload, declared) == item
    else:
        with pytest.raises(CorruptEntryError):
            decode_batch(payload, declared)


def zstd_bomb(size: int, *, declares: bool) -> bytes:
    compressor = zstandard.ZstdCompressor(level=19, write_content_size=declares)
    if declares:
        return compressor.compress(bytes(size))
    stream = compressor.compressobj()
    return stream.compress(bytes(size)) + stream.flush()


def lz4_bomb(size: int) -> bytes:
    """A block that copies one byte `size` times."""
    return b"\x1f\x00\x01\x00" + b"\xff" * (size // 255) + b"\x00" + b"\x50aaaaa"


class TestBombs:
    """Small payloads that unpack to much. The bound is the declared size, and that is bounded by the limit of a body."""

    SIZE = 48 << 20

    @pytest.mark.parametrize("declared", [0, 1, 1000, 1 << 20])
    @pytest.mark.parametrize("codec", ["zstd", "zstd without size", "lz4"])
    def test_no_payload_unpacks_beyond_what_it_declares(self, codec: str, declared: int) -> None:
        packed = lz4_bomb(self.SIZE) if codec == "lz4" else zstd_bomb(self.SIZE, declares=codec == "zstd")
        assert len(packed) < 1 << 20
        payload = HEAD.pack(1 if codec == "lz4" else 2, declared) + packed
        tracemalloc.start()
        try:
            with pytest.raises(CorruptEntryError):
                decode_batch(payload, 1)
            assert tracemalloc.get_traced_memory()[1] < declared + (4 << 20)
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("codec", list(Compression))
    @pytest.mark.parametrize("declared", [BODY_SIZE_MAX + 1, 2**32 - 1])
    def test_more_than_a_body_may_hold_cannot_be_declared(self, codec: Compression, declared: int) -> None:
        payload = HEAD.pack(codec, declared) + zstd_bomb(1000, declares=True)
        with pytest.raises(CorruptEntryError, match="over the limit"):
            decode_batch(payload, 1)

    def test_a_count_that_nothing_backs_allocates_nothing(self) -> None:
        array = b"\xdd\x00\xff\xff\xff"
        with pytest.raises(CorruptEntryError):
            decode_batch(HEAD.pack(0, len(array)) + array, 65_535)
        with pytest.raises(CorruptEntryError):
            parse_constituents(b"\xff\xff\xff\xff" + b"\x00" * 100)


def test_a_header_of_any_copyset_size_ends_where_it_says() -> None:
    for size in (0, 1, 255):
        header = EntryHeader(LogId(1), Lsn(1), Timestamp(0), 1, tuple(map(ShardId, range(size))), Esn(0), 0)
        image = encode_entry(header, b"")
        assert header_size(image) == len(image)
        assert parse_header(image).copyset == header.copyset
