from __future__ import annotations

import pytest
from google_crc32c import value as crc32c

from client.read.decoding import entry_records, rank_of, verify_image
from logdevice_py.core.batch import encode_batch
from logdevice_py.core.compression import Compression
from logdevice_py.core.entry import Constituent, ConstituentFlags, EntryFlags, EntryHeader, encode_body, encode_entry
from logdevice_py.core.lsn import Esn, Lsn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp
from tests.unit.client.read.fakes import HOLE, LOG, damaged, lsn, make_image

BATCH = int(ConstituentFlags.BATCH)


def image_of(parts: list[Constituent], records: int, flags: int = 0, extensions: bytes = b"") -> bytes:
    body = encode_body(parts)
    header = EntryHeader(LOG, Lsn(9), Timestamp(0), 1, (), Esn(0), records, flags, len(body), crc32c(body), extensions)
    return encode_entry(header, body)


def batch_part(records: list[bytes], declared: int, compression: Compression = Compression.NONE) -> Constituent:
    payload = encode_batch(records, compression)
    return Constituent(payload, declared, crc32c(payload), BATCH)


def single(payload: bytes) -> Constituent:
    return Constituent(payload, 1, crc32c(payload))


def decode(image: bytes) -> list[bytes | None]:
    return entry_records(verify_image(LOG, 9, image), image)


@pytest.mark.parametrize("compression", list(Compression))
def test_constituents_follow_each_other_in_order(compression: Compression) -> None:
    batch = [b"b" * 50, b"c" * 50, b"d" * 50]
    image = image_of([single(b"a"), batch_part(batch, 3, compression), single(b"e")], 5)
    assert decode(image) == [b"a", *batch, b"e"]


def test_a_wrong_count_yields_that_many_corrupt_items_and_shifts_nobody() -> None:
    image = image_of([single(b"a"), batch_part([b"b", b"c", b"d"], 2), single(b"e")], 4)
    assert decode(image) == [b"a", None, None, b"e"]


def test_a_constituent_that_the_client_sent_damaged_is_corrupt_alone() -> None:
    bad = Constituent(b"b", 1, 12345)
    assert decode(image_of([single(b"a"), bad, single(b"c")], 3)) == [b"a", None, b"c"]


def test_a_body_whose_form_is_of_a_later_version_is_corrupt_and_an_unknown_remark_is_passed_over() -> None:
    assert decode(image_of([single(b"a"), single(b"b")], 2, extensions=b"\x80\x01x")) == [None, None]
    assert decode(image_of([single(b"a"), single(b"b")], 2, extensions=b"\x7f\x01x")) == [b"a", b"b"]
    assert decode(image_of([single(b"a"), single(b"b")], 2, extensions=b"\x7f\x02x")) == [None, None]


def test_a_body_that_is_no_table_is_corrupt_as_a_whole() -> None:
    body = b"\xff\xff\xff\xff"
    header = EntryHeader(LOG, Lsn(9), Timestamp(0), 1, (), Esn(0), 3, 0, len(body), crc32c(body))
    assert decode(encode_entry(header, body)) == [None, None, None]


def test_a_header_that_counts_other_records_than_the_table_is_believed() -> None:
    assert decode(image_of([single(b"a"), single(b"b")], 3)) == [None, None, None]


def test_a_count_over_the_limit_is_refused_before_anything_is_allocated() -> None:
    with pytest.raises(CorruptEntryError, match="limit"):
        verify_image(LOG, 9, image_of([single(b"a")], 2**32 - 1))


def test_a_damaged_body_or_another_entry_is_refused() -> None:
    image = image_of([single(b"a")], 1)
    for log, at, bad in ((LOG, 9, damaged(image)), (LOG, 8, image), (LOG + 1, 9, image), (LOG, 9, image[:20])):
        with pytest.raises(CorruptEntryError):
            verify_image(log, at, bad)


def test_a_header_without_its_body_is_refused() -> None:
    header = EntryHeader(LOG, Lsn(9), Timestamp(0), 1, (), Esn(0), 1, int(EntryFlags.AMEND), 10, 5)
    with pytest.raises(CorruptEntryError, match="body"):
        verify_image(LOG, 9, encode_entry(header, b""))


def test_rank_is_read_without_parsing() -> None:
    for image in (make_image(lsn(1, 1), wave=77), make_image(lsn(1, 1), flags=HOLE, wave=3)):
        assert rank_of(image) == verify_image(LOG, lsn(1, 1), image).rank
