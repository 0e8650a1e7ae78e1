"""What is not dealt is counted until it is, in steps of a megabyte or a second."""

from __future__ import annotations

from indexlog.backlog import BUCKET_BYTES, BUCKET_US, Backlog


def told(backlog: Backlog) -> tuple[int, int, int | None]:
    return backlog.records, backlog.bytes, backlog.since


def test_what_is_dealt_counts_no_more() -> None:
    backlog = Backlog()
    assert told(backlog) == (0, 0, None)
    for lsn in range(1, 6):
        backlog.add(lsn, 100, 1000 + lsn * BUCKET_US)
    assert told(backlog) == (5, 500, 1000 + BUCKET_US)
    backlog.deal(3)
    assert told(backlog) == (2, 200, 1000 + 4 * BUCKET_US)
    backlog.deal(9)
    assert told(backlog) == (0, 0, None)


def test_neighbours_count_until_the_last_of_them_is_dealt() -> None:
    backlog = Backlog()
    for lsn, size in ((1, 10), (2, BUCKET_BYTES), (3, 5)):
        backlog.add(lsn, size, 7 + lsn)
    backlog.deal(1)
    assert told(backlog) == (3, BUCKET_BYTES + 15, 8)
    backlog.deal(2)
    assert told(backlog) == (1, 5, 10)
