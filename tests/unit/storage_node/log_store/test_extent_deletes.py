"""What was deleted of a log: ranges against a dictionary, and what is forgotten."""

from __future__ import annotations

import random

import pytest

from storage_node.log_store.extents.deletes import DeletedRanges, Deletes
from storage_node.log_store.extents.rows import key_of

LSNS = 24


def hidden(ranges: DeletedRanges, block: int) -> list[int]:
    return [lsn for lsn in range(LSNS) if ranges.hide(key_of(lsn, 1), block)]


class TestRanges:
    @pytest.mark.parametrize("seed", range(20))
    def test_the_last_block_that_deleted_an_lsn_counts_in_whatever_order_they_come(self, seed: int) -> None:
        rng = random.Random(seed)
        ranges, last = DeletedRanges(), dict[int, int]()
        for _ in range(30):
            first = rng.randrange(LSNS)
            through = rng.randrange(first, min(LSNS, first + 8))
            block = rng.randrange(1, 20)
            ranges = ranges.with_range(first, through, block)
            for lsn in range(first, through + 1):
                last[lsn] = max(block, last.get(lsn, 0))
            for asked in (0, block - 1, block, 10):
                assert hidden(ranges, asked) == [lsn for lsn in range(LSNS) if asked < last.get(lsn, 0)]

    def test_they_do_not_overlap(self) -> None:
        ranges = DeletedRanges().with_range(2, 9, 3).with_range(4, 5, 7).with_range(0, 3, 5)
        assert [*ranges] == [(0, 3, 5), (4, 5, 7), (6, 9, 3)]

    def test_one_that_covers_all_others_takes_their_place(self) -> None:
        ranges = DeletedRanges()
        for lsn in range(0, LSNS, 2):
            ranges = ranges.with_range(lsn, lsn, 1 + lsn)
        assert [*ranges.with_range(0, LSNS, 99)] == [(0, LSNS, 99)]

    def test_what_was_there_stays_as_it_is(self) -> None:
        before = DeletedRanges().with_range(1, 9, 3)
        before.with_range(4, 5, 7)
        assert [*before] == [(1, 9, 3)]

    def test_thousands_are_found_by_bisection(self) -> None:
        ranges = DeletedRanges((2 * lsn, 2 * lsn, lsn + 1) for lsn in range(10_000))

        class Counted(list[int]):
            looked = 0

            def __getitem__(self, at: int) -> int:  # type: ignore[override]
                Counted.looked += 1
                return super().__getitem__(at)

        ranges._lasts, ranges._blocks = Counted(ranges._lasts), Counted(ranges._blocks)
        assert ranges.hide(key_of(19_998, 0), 9_999)
        assert not ranges.hide(key_of(19_997, 0), 1)
        assert Counted.looked <= 4


class TestDeletes:
    def test_partitions_are_apart(self) -> None:
        deletes = Deletes()
        deletes.add(7, 1, 5, 3, 1)
        deletes.add(7, 4, 9, 4, 2)
        assert hidden(deletes.of(7, 1), 0) == [1, 2, 3, 4, 5]
        deletes.drop_partitions({2})
        assert not len(deletes.of(7, 2))
        assert deletes.logs() == {7}

    def test_a_table_takes_over_what_blocks_up_to_one_deleted(self) -> None:
        deletes = Deletes()
        deletes.add(7, 1, 5, 3, 0)
        deletes.add(7, 4, 9, 4, 0)
        deletes.add(8, 1, 1, 3, 0)
        deletes.drop_through(0, 3)
        assert [*deletes.of(7, 0)] == [(4, 9, 4)]
        assert deletes.logs() == {7}
