"""Partitions of what only cold copies of a stream have."""

from __future__ import annotations

from client.guards import Position
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, Epoch, compose_lsn
from streams.attributes import TransactionIds
from streams.cold.copies import ColdCopy
from streams.spark.planning import StreamRange, copied_cuts

LOG = LogId(7)


def lsn(epoch: int, esn: int) -> LSN:
    return LSN(compose_lsn(Epoch(epoch), esn))


def copy(epoch: int, first: LSN, size: int = 100) -> ColdCopy:
    return ColdCopy("cluster", LOG, f"a{epoch}", first, lsn(epoch, 9), "hash", 1, size, 9, 9, size, 0)


COPIES = (copy(1, lsn(0, 1)), copy(2, LSN(lsn(1, 9) + 1)), copy(4, LSN(lsn(2, 9) + 1)), copy(5, LSN(lsn(4, 9) + 1)))


def cuts(first: LSN, last: LSN, *, trimmed: LSN, bytes_max: int = 150) -> list[tuple[int, int]]:
    found = StreamRange(LOG, TransactionIds.TIME, Position(first, 0), Position(last, 0), "file:///x", COPIES, trimmed)
    return [(each.lo, each.hi) for each in copied_cuts(found, "/s", first, last, bytes_max)]


def test_each_partition_ends_with_a_copy_and_they_touch() -> None:
    assert cuts(lsn(0, 1), lsn(9, 1), trimmed=lsn(4, 9)) == [
        (lsn(0, 1), lsn(1, 9)),
        (lsn(1, 9) + 1, lsn(2, 9)),
        (lsn(2, 9) + 1, lsn(4, 9)),
    ], "what the log has is read from it"


def test_small_copies_share_a_partition() -> None:
    assert cuts(lsn(0, 1), lsn(9, 1), trimmed=lsn(4, 9), bytes_max=250) == [
        (lsn(0, 1), lsn(2, 9)),
        (lsn(2, 9) + 1, lsn(4, 9)),
    ]


def test_nothing_before_or_behind_what_is_read() -> None:
    assert cuts(lsn(2, 4), lsn(4, 3), trimmed=lsn(5, 9)) == [(lsn(2, 4), lsn(2, 9)), (lsn(2, 9) + 1, lsn(4, 3))]
    assert cuts(lsn(6, 1), lsn(9, 1), trimmed=lsn(5, 9)) == []
    assert cuts(lsn(0, 1), lsn(9, 1), trimmed=LSN(0)) == []


def test_a_segment_that_is_trimmed_in_part_is_read_from_its_copy() -> None:
    assert cuts(lsn(0, 1), lsn(9, 1), trimmed=lsn(2, 4))[-1] == (lsn(1, 9) + 1, lsn(2, 9))
