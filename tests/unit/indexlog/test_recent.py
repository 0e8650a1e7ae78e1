"""The newest records of a raw log in memory: all of a range or nothing, whole entries, and never more bytes than agreed."""

from __future__ import annotations

import tracemalloc

from indexlog.effects import RawRange
from indexlog.recent import RECORD_BYTES, RecentRecords
from indexlog.records import LogRecord, Modification, encode_record, peek_index

PAYLOADS = {
    index: encode_record(LogRecord(index, "doc", Modification(True, {"body": "x" * 100})))
    for index in ("books", "songs")
}
SIZE = len(PAYLOADS["books"])


def recent(lsns: int, bytes_max: int = 1 << 20) -> RecentRecords:
    """Two records of each index at every LSN from 10 on."""
    found = RecentRecords(10, bytes_max)
    for lsn in range(10, 10 + lsns):
        for index in ("books", "songs", "books", "songs"):
            assert found.add(lsn, PAYLOADS[index]) == index
        found.advance(lsn + 1)
    return found


def test_a_range_is_given_whole_and_of_one_index() -> None:
    found = recent(5).take("books", 11, 12, 1 << 20)
    assert found == RawRange(12, [(lsn, PAYLOADS["books"]) for lsn in (11, 11, 12, 12)])
    assert recent(5).take("films", 11, 12, 1 << 20) == RawRange(12, [])


def test_what_is_not_here_is_not_given() -> None:
    assert recent(5).take("books", 9, 12, 1 << 20) is None
    assert recent(5).take("books", 12, 15, 1 << 20) is None, "15 was not read yet"
    lacks = recent(5)
    lacks.add(15, PAYLOADS["books"])
    assert lacks.take("books", 12, 15, 1 << 20) is None, "others of the entry may follow"


def test_a_range_of_many_bytes_ends_between_two_entries() -> None:
    found = recent(5).take("books", 11, 14, 2 * SIZE + 1)
    assert found == RawRange(12, [(lsn, PAYLOADS["books"]) for lsn in (11, 11, 12, 12)])


def test_the_oldest_entries_go_when_there_is_no_room() -> None:
    entry = 4 * (SIZE + RECORD_BYTES)
    found = recent(50, 3 * entry)
    assert found.size <= 3 * entry
    assert found.first == 57
    assert found.take("books", 56, 59, 1 << 20) is None
    assert found.take("books", 57, 59, 1 << 20) is not None
    assert found.has_since("books", 56), "there may have been one"
    assert found.has_since("books", 59)
    assert not found.has_since("books", 60)
    assert not found.has_since("films", 57)


def test_an_entry_that_is_larger_than_the_room_is_not_kept() -> None:
    found = recent(3, SIZE)
    assert (found.first, found.next, found.size) == (13, 13, 0)
    assert found.take("books", 12, 12, 1 << 20) is None


def test_after_a_loss_it_goes_on_behind_it() -> None:
    found = recent(3)
    found.restart(20)
    assert found.take("books", 12, 12, 1 << 20) is None
    found.add(20, PAYLOADS["songs"])
    found.advance(21)
    assert found.take("songs", 20, 20, 1) == RawRange(20, [(20, PAYLOADS["songs"])])


def test_what_is_older_than_a_loss_goes_and_the_loss_stays() -> None:
    """A batch of a reader has records on both sides of a gap, which is told first."""
    entry = SIZE + RECORD_BYTES
    found = RecentRecords(10, 3 * entry)
    found.restart(20)
    for lsn in (10, 11, 20, 21, 22):
        found.add(lsn, PAYLOADS["books"])
    found.advance(23)
    assert (found.first, found.size) == (20, 3 * entry)
    assert found.take("books", 12, 22, 1 << 20) is None, "of 12 to 19 nobody knows"
    assert found.has_since("films", 19)
    assert found.take("books", 20, 22, 1) is not None
    found.add(23, PAYLOADS["books"])
    assert found.first == 21


def test_what_is_no_modification_has_no_index() -> None:
    found = RecentRecords(1, 1000)
    wrong = (
        None,
        b"",
        b"\xc1",
        b"\x98\x01",
        b"\x98\x02\xa5books",
        b"\x97\x01\xa5books",
        b"\x98\x01\xa1/",
        b"\x98\x01\x07",
    )
    assert [found.add(1, payload) for payload in wrong] == [None] * len(wrong)
    assert found.size == 0
    assert peek_index(b"\x98\x01\xa5books") == "books"


def test_what_is_no_modification_is_seen_to_be_none_in_little_memory() -> None:
    """Arrays that declare a million elements, one in the other."""
    wrong = b"\x98" + b"\xdd\x00\x0f\xff\xff" * 200
    tracemalloc.start()
    try:
        assert peek_index(wrong) is None
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 4_000_000
    assert [peek_index(b"\x98\x01" + each) for each in (b"\x80", b"\xdf\x00\x0f\xff\xff", b"\xd4\x01a")] == [None] * 3
