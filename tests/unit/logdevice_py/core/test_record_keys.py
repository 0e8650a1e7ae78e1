"""Keys of records, from the payload of an APPEND to what a reader gets."""

from __future__ import annotations

import pytest
from google_crc32c import value as crc32c

from client.append.coalescing import cut_frames
from client.read.decoding import entry_keys, entry_records, verify_image
from client.settings import ClientSettings, WriterSettings
from client.write.batching import OpenBatch
from logdevice_py.core.batch import constituent_records, encode_batch
from logdevice_py.core.compression import Compression
from logdevice_py.core.entry import (
    Constituent,
    ConstituentFlags,
    EntryFlags,
    EntryHeader,
    encode_body,
    encode_entry,
)
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import Esn, Lsn
from logdevice_py.core.record_keys import KEY_BYTES_MAX, body_keys, constituent_keys, encode_keys, split_keys
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import AppendFlags
from sequencer.batching import split
from sequencer.frames import Frame

KEYS = int(ConstituentFlags.KEYS)
BATCH = int(ConstituentFlags.BATCH)


class Waiter:
    def done(self) -> bool:
        return False

    def set_result(self, result: object) -> None: ...

    def set_exception(self, error: BaseException) -> None: ...

    def exception(self) -> None: ...


def keyed(keys: list[bytes | None], records: list[bytes]) -> Constituent:
    payload = encode_keys(keys) + (records[0] if len(records) == 1 else encode_batch(records, Compression.ZSTD))
    return Constituent(payload, len(records), crc32c(payload), KEYS | (BATCH if len(records) > 1 else 0))


def test_records_and_keys_of_a_constituent_are_told_apart() -> None:
    for keys, records in (([b"k"], [b"one"]), ([b"a", None, b""], [b"x" * 1000, b"", b"y"])):
        part = keyed(keys, records)
        assert constituent_records(part) == records
        assert constituent_keys(part) == keys


@pytest.mark.parametrize(
    "payload",
    [b"", b"\0\0\0\x05", encode_keys([b"a"]), encode_keys([b"a", b"b", b"c"]), encode_keys([b"a", b"b"])[:-1]],
    ids=["empty", "longer than the payload", "too few", "too many", "cut short"],
)
def test_keys_that_do_not_fit_their_records_make_these_unreadable(payload: bytes) -> None:
    with pytest.raises(CorruptEntryError):
        split_keys(payload, 2)
    part = Constituent(payload, 2, crc32c(payload), KEYS | BATCH)
    assert constituent_records(part) == [None, None]
    assert constituent_keys(part) == [None, None]


def test_a_key_beyond_the_limit_is_no_key() -> None:
    with pytest.raises(CorruptEntryError):
        split_keys(encode_keys([b"k" * (KEY_BYTES_MAX + 1)]) + b"record", 1)


def test_a_reader_gets_keys_beside_records_of_the_same_entry_without() -> None:
    plain = Constituent(b"plain", 1, crc32c(b"plain"))
    parts = [keyed([b"a", None], [b"1", b"2"]), plain, keyed([b"z"], [b"3"])]
    body = encode_body(parts)
    header = EntryHeader(
        LogId(1), Lsn(9), Timestamp(5), 1, (ShardId(0),), Esn(0), 4, int(EntryFlags.KEYED), len(body), crc32c(body)
    )
    image = encode_entry(header, body)
    verified = verify_image(1, 9, image)
    assert entry_records(verified, image) == [b"1", b"2", b"plain", b"3"]
    assert entry_keys(verified, image) == [b"a", None, None, b"z"]
    assert body_keys(body) == [b"a", None, None, b"z"]
    header.flags = 0
    assert entry_keys(header, image) is None


def test_direct_appends_carry_keys_in_the_frames_of_their_records() -> None:
    payloads = [b"a" * 10, b"b" * 10, b"c" * 5000, b"d"]
    frames = list(cut_frames(payloads, ClientSettings(), 1 << 20, keys={1: b"k1", 2: b"k2"}))
    assert [(first, last) for first, last, *_ in frames] == [(0, 2), (2, 3), (3, 4)]
    seen: list[tuple[bytes | None, bytes | None]] = []
    for first, last, payload, crc, flags in frames:
        kinds = (BATCH if flags & AppendFlags.BATCH else 0) | (KEYS if flags & AppendFlags.KEYS else 0)
        part = Constituent(payload, last - first, crc, kinds)
        seen += zip(constituent_keys(part), constituent_records(part), strict=True)
    assert seen == list(zip([None, b"k1", b"k2", None], payloads, strict=True))
    assert not frames[-1][-1] & AppendFlags.KEYS


def test_a_writers_batch_carries_keys_and_stays_below_the_largest_payload() -> None:
    payload_max = 2000
    batch = OpenBatch(WriterSettings(size_trigger_bytes=64 << 20), payload_max)
    count = 0
    while batch.fits(len(b"record") + len(b"%03d" % count) + 5):
        batch.add(b"record", Waiter(), b"%03d" % count if count % 2 else None)
        count += 1
    size = 6 * count + sum(3 + 5 for index in range(count) if index % 2)
    frame = batch.cut(1, Micros(0))
    assert len(frame.payload) <= payload_max
    assert frame.size == size, "the memory of the writer counts keys, and gets back what it counted"
    part = Constituent(frame.payload, count, frame.crc, KEYS | BATCH)
    assert frame.flags & AppendFlags.KEYS
    assert constituent_keys(part) == [b"%03d" % index if index % 2 else None for index in range(count)]
    assert not batch.keys


def test_many_records_with_keys_are_cut_where_their_keys_fill_the_frame() -> None:
    from client.write.batching import ends_of
    from client.write.frame import ReceiptCollector

    payloads, keys = [b"x"] * 50, [b"k" * 100] * 50
    batch = OpenBatch(WriterSettings(size_trigger_bytes=1000), 1 << 20)
    ends = ends_of(payloads, keys)
    taken = batch.add_many(payloads, 10, ends, ReceiptCollector(Waiter(), 50), keys)
    assert 8 <= taken <= 10
    assert sorted(batch.keys) == list(range(taken))


def test_a_batch_that_is_taken_apart_leaves_each_record_its_key() -> None:
    part = keyed([b"a", None], [b"1", b"2"])
    one, two = split(Frame(part.payload, 2, part.crc, part.flags))
    assert (constituent_keys(one), constituent_records(one)) == ([b"a"], [b"1"])
    assert (constituent_keys(two), constituent_records(two)) == ([None], [b"2"])
    assert not two.flags & KEYS


@pytest.mark.parametrize("flags", [0, KEYS])
def test_a_body_that_declares_more_records_than_an_entry_may_have_is_refused(flags: int) -> None:
    """A list of as many places as this declares would take 32 GB of whoever reads it."""
    body = encode_body([Constituent(b"", 2**32 - 1, 0, flags), Constituent(b"", 1, 0)])
    with pytest.raises(CorruptEntryError, match="over the limit"):
        body_keys(body)
    header = EntryHeader(LogId(1), Lsn(1), Timestamp(0), 1, (ShardId(0),), Esn(0), 2, int(EntryFlags.KEYED))
    header.body_length, header.body_crc = len(body), crc32c(body)
    image = encode_entry(header, body)
    assert entry_keys(verify_image(1, 1, image), image) is None
    assert entry_records(header, image) == [None, None]
