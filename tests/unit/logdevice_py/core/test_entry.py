from __future__ import annotations

from dataclasses import replace

import pytest
from google_crc32c import value as crc32c

from logdevice_py.core.batch import constituent_records, decode_batch, encode_batch
from logdevice_py.core.compression import Compression
from logdevice_py.core.entry import (
    BODY_SIZE_MAX,
    RECORDS_PER_ENTRY_MAX,
    Constituent,
    ConstituentFlags,
    EntryFlags,
    EntryHeader,
    body_of,
    check_body,
    encode_body,
    encode_entry,
    encode_header,
    header_size,
    lacks_body,
    merged_header,
    pack_body,
    parse_constituents,
    parse_header,
    whole_size,
    with_copyset,
)
from logdevice_py.core.ids import LogId, ShardId, WriterId
from logdevice_py.core.lsn import Esn, compose_lsn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp


def raw(payload: bytes) -> Constituent:
    return Constituent(payload, 1, crc32c(payload))


def batch(records: list[bytes], compression: Compression = Compression.NONE) -> Constituent:
    payload = encode_batch(records, compression)
    return Constituent(payload, len(records), crc32c(payload), int(ConstituentFlags.BATCH))


def image_of(body: bytes, records: int = 1, flags: int = 0, extensions: bytes = b"") -> bytes:
    header = EntryHeader(
        LogId(7),
        compose_lsn(3, 4),
        Timestamp(1_000),
        wave=2,
        copyset=(ShardId(0), ShardId(256)),
        lng=Esn(3),
        records=records,
        flags=flags,
        body_length=len(body),
        body_crc=crc32c(body),
        extensions=extensions,
    )
    return encode_header(header) if flags & EntryFlags.AMEND else encode_entry(header, body)


class TestImage:
    def test_header_and_body_come_back_as_they_were(self) -> None:
        parts = [raw(b"one"), batch([b"two", b"", b"three"])]
        stream = raw(b"four")
        stream.flags, stream.writer, stream.sequence = int(ConstituentFlags.WRITE_STREAM), WriterId(b"w" * 16), 9
        body = encode_body([*parts, stream])
        image = image_of(body, records=5)
        header = parse_header(image)
        check_body(image, header)
        assert (header.log, header.lsn, header.wave, header.records) == (7, compose_lsn(3, 4), 2, 5)
        assert header.copyset == (0, 256)
        assert parse_constituents(body_of(image)) == [*parts, stream]

    @pytest.mark.parametrize("position", range(0, 60, 3))
    def test_any_flipped_header_byte_is_noticed(self, position: int) -> None:
        image = bytearray(image_of(encode_body([raw(b"x")])))
        image[position] ^= 0x40
        with pytest.raises(CorruptEntryError):
            parse_header(bytes(image))

    def test_flipped_body_byte_is_noticed(self) -> None:
        image = bytearray(image_of(encode_body([raw(b"payload")])))
        image[-1] ^= 1
        with pytest.raises(CorruptEntryError):
            check_body(bytes(image), parse_header(bytes(image)))

    @pytest.mark.parametrize("extensions", [b"", b"\x64\x03new"])
    def test_cut_image_is_noticed(self, extensions: bytes) -> None:
        image = image_of(encode_body([raw(b"payload")]), extensions=extensions)
        for size in range(len(image)):
            with pytest.raises(CorruptEntryError):
                parse_header(image[:size])

    def test_amend_speaks_for_a_body_that_it_does_not_carry(self) -> None:
        body = encode_body([raw(b"payload")])
        header = parse_header(image_of(body, flags=int(EntryFlags.AMEND)))
        assert header.is_amend
        assert header.body_length == len(body)

    def test_extensions_are_kept_and_make_another_version(self) -> None:
        body = encode_body([raw(b"payload")])
        plain, extended = image_of(body), image_of(body, extensions=b"\x64\x03new")
        assert (plain[0], extended[0]) == (1, 2)
        assert len(extended) == len(plain) + 2 + 5
        header = parse_header(extended)
        assert replace(header, extensions=b"") == parse_header(plain)
        moved = with_copyset(header, wave=3, copyset=(ShardId(5),), flags=header.flags)
        assert parse_header(encode_entry(moved, body_of(extended))).extensions == b"\x64\x03new"
        amend = replace(header, flags=int(EntryFlags.AMEND))
        assert encode_header(merged_header(amend)) + body == extended

    def test_version_two_without_extensions_is_no_entry(self) -> None:
        image = image_of(encode_body([raw(b"x")]), extensions=b"\x64\x00")
        end = header_size(image) - 4
        empty = image[: end - 4] + b"\x00\x00"
        empty += crc32c(empty).to_bytes(4, "big") + body_of(image)
        with pytest.raises(CorruptEntryError, match="has no extensions"):
            parse_header(empty)

    @pytest.mark.parametrize("extensions", [b"", b"\x64\x03new"])
    def test_a_header_that_stands_alone_is_told_from_whole_images(self, extensions: bytes) -> None:
        image = image_of(encode_body([raw(b"payload")]), extensions=extensions)
        alone = image[: header_size(image)]
        assert lacks_body(alone)
        assert whole_size(alone) == whole_size(image) == len(image)
        assert parse_header(alone, alone=True) == parse_header(image, alone=True) == parse_header(image)
        with pytest.raises(CorruptEntryError, match="bytes of body"):
            parse_header(alone)
        for cut in (alone[:-1], image[:-1], alone + b"x"):
            assert not lacks_body(cut)
            with pytest.raises(CorruptEntryError):
                parse_header(cut, alone=True)
        amend, hole = image_of(b"body", flags=EntryFlags.AMEND), image_of(b"", flags=EntryFlags.HOLE)
        assert not any(map(lacks_body, (image, amend, hole, b"", b"x")))

    def test_recovery_outranks_any_wave(self) -> None:
        by_wave = parse_header(image_of(b"", flags=0))
        by_recovery = parse_header(image_of(b"", flags=int(EntryFlags.WRITTEN_BY_RECOVERY)))
        by_wave.wave = 99
        assert by_recovery.rank > by_wave.rank


class TestPackedBody:
    @pytest.mark.parametrize("compression", [Compression.LZ4, Compression.ZSTD])
    def test_constituents_come_back_with_their_checksums(self, compression: Compression) -> None:
        parts = [raw(b"payload" * 50), batch([b"one"] * 100), batch([b"packed by its client"] * 100, Compression.LZ4)]
        body = encode_body(parts)
        packed = pack_body(body, compression)
        assert len(packed) < len(body) // 2
        image = image_of(packed, records=201)
        check_body(image, parse_header(image))
        assert parse_constituents(body_of(image)) == parts

    def test_what_becomes_no_smaller_stays_as_it_is(self) -> None:
        body = encode_body([raw(bytes(range(256)))])
        assert pack_body(body, Compression.ZSTD) is body
        assert pack_body(encode_body([raw(b"x" * 500)]), Compression.NONE) == encode_body([raw(b"x" * 500)])

    def test_who_does_not_know_of_packing_sees_more_constituents_than_there_can_be(self) -> None:
        packed = pack_body(encode_body([raw(b"x" * 500)]), Compression.ZSTD)
        assert int.from_bytes(packed[:4], "big") > RECORDS_PER_ENTRY_MAX

    def test_a_body_is_packed_once(self) -> None:
        twice = pack_body(pack_body(encode_body([raw(b"x" * 100_000)]), Compression.LZ4), Compression.LZ4)
        with pytest.raises(CorruptEntryError, match="constituents is over the limit"):
            parse_constituents(twice)

    def test_it_unpacks_to_what_it_declares_and_no_more_than_a_body_may_have(self) -> None:
        packed = bytearray(pack_body(encode_body([raw(bytes(100_000))]), Compression.ZSTD))
        for size in (99_999, BODY_SIZE_MAX + 1, 2**32 - 1):
            packed[4:8] = size.to_bytes(4, "big")
            with pytest.raises(CorruptEntryError):
                parse_constituents(bytes(packed))
        with pytest.raises(CorruptEntryError, match="codec 7 is not known"):
            parse_constituents(b"\xff\xff\xff\x07" + bytes(10))
        with pytest.raises(CorruptEntryError):
            parse_constituents(b"\xff\xff\xff\x02")


class TestBatch:
    @pytest.mark.parametrize("compression", list(Compression))
    def test_records_come_back_as_they_were(self, compression: Compression) -> None:
        records = [b"", b"x" * 1000, b"\x00\xff"] * 100
        assert decode_batch(encode_batch(records, compression), 300) == records

    @pytest.mark.parametrize("declared", [0, 1, 2, 4])
    def test_another_number_of_records_yields_exactly_the_declared_number_of_corrupt_items(self, declared: int) -> None:
        part = batch([b"a", b"b", b"c"])
        part.records = declared
        assert constituent_records(part) == [None] * declared

    def test_bytes_that_do_not_match_their_checksum_are_all_corrupt(self) -> None:
        part = batch([b"a", b"b"])
        part.payload = part.payload[:-1] + b"!"
        assert constituent_records(part) == [None, None]

    @pytest.mark.parametrize(
        "payload",
        [
            b"",
            b"\x00",
            b"\x00\xff\xff\xff\xff" + b"x" * 10,
            b"\x01\x00\x00\x00\x10garbage",
            b"\x02\x00\x00\x00\x10garbage",
            b"\x09\x00\x00\x00\x01\x90",
            b"\x00\x00\x00\x00\x01\xc0",
            b"\x00\x00\x00\x00\x05\xdd\xff\xff\xff\xff",
        ],
    )
    def test_hostile_payloads_are_refused(self, payload: bytes) -> None:
        with pytest.raises(CorruptEntryError):
            decode_batch(payload, 1)

    def test_a_bomb_does_not_unpack_beyond_its_declared_size(self) -> None:
        bomb = bytearray(encode_batch([b"\x00" * 10_000_000], Compression.ZSTD))
        bomb[1:5] = (100).to_bytes(4, "big")
        with pytest.raises(CorruptEntryError):
            decode_batch(bytes(bomb), 1)
