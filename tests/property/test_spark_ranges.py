"""Partitions of a plan: whatever the estimates say, every LSN is in one of them."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from client.spark.ranges import Cut, LogRange, Segment, cut, spread
from logdevice_py.core.ids import LogId


@st.composite
def log_ranges(draw: st.DrawFn, log: int) -> LogRange:
    lo = draw(st.integers(1, 1 << 40))
    width = draw(st.integers(1, 1 << 36) | st.integers(1, 20))
    hi = lo + width - 1
    bounds = sorted(draw(st.lists(st.integers(lo, hi), max_size=8, unique=True)))
    segments = tuple(
        Segment(bounds[index], bounds[index + 1] - 1, draw(st.floats(0, 1e12)))
        for index in range(0, len(bounds) - 1, 2)
    )
    return LogRange(LogId(log), "/group", lo, hi, segments)


@given(st.data(), st.integers(1, 1 << 36), st.integers(0, 50))
def test_no_lsn_is_left_out_and_none_is_in_two(data: st.DataObject, bytes_max: int, partitions_min: int) -> None:
    ranges = [data.draw(log_ranges(log)) for log in range(1, data.draw(st.integers(1, 4)) + 1)]
    if sum(each.bytes for each in ranges) / bytes_max > 5000:
        bytes_max = 1 << 40
    pieces = cut(ranges, bytes_max=bytes_max, partitions_min=partitions_min)
    for each in ranges:
        own = [piece for piece in pieces if piece.log == each.log]
        assert own[0].lo == each.lo
        assert own[-1].hi == each.hi
        assert all(piece.lo <= piece.hi for piece in own)
        assert all(before.hi + 1 == after.lo for before, after in pairwise(own))


@given(
    st.lists(st.tuples(st.integers(1, 1 << 40), st.integers(0, 1 << 36) | st.integers(0, 20)), max_size=5),
    st.integers(0, 50),
)
def test_pieces_of_a_micro_batch_leave_no_lsn_out_and_are_as_many_as_there_can_be(
    extents: list[tuple[int, int]], partitions_min: int
) -> None:
    whole = [Cut(LogId(log), "/group", lo, lo + more) for log, (lo, more) in enumerate(extents, start=1)]
    pieces = spread(whole, partitions_min)
    share = -(-partitions_min // len(whole)) if whole else 0
    for each in whole:
        own = [piece for piece in pieces if piece.log == each.log]
        assert (own[0].lo, own[-1].hi) == (each.lo, each.hi)
        assert all(piece.lo <= piece.hi for piece in own)
        assert all(before.hi + 1 == after.lo for before, after in pairwise(own))
        in_last_epoch = each.hi - max(each.lo, each.hi >> 32 << 32) + 1
        assert len(own) >= min(share, in_last_epoch)
    assert pieces == spread(whole, partitions_min)


def test_epochs_before_the_last_one_of_a_micro_batch_stay_one_piece() -> None:
    lo, hi = (3 << 32) + 7, (5 << 32) + 99
    pieces = spread([Cut(LogId(1), "/group", lo, hi)], 4)
    assert [piece.lo for piece in pieces] == [lo, 5 << 32, (5 << 32) + 25, (5 << 32) + 50, (5 << 32) + 75]


def test_pieces_hold_about_the_same_and_reach_the_wanted_number() -> None:
    dense, sparse = Segment(1, 1000, 1e6), Segment(1 << 32, (1 << 32) + 999, 1e6)
    whole = LogRange(LogId(1), "/group", 1, (1 << 32) + 999, (dense, sparse))
    assert len(cut([whole], bytes_max=1 << 40, partitions_min=0)) == 1
    pieces = cut([whole], bytes_max=500_000, partitions_min=0)
    assert [piece.lo for piece in pieces] == [1, 501, 1 << 32, (1 << 32) + 500]
    assert len(cut([whole], bytes_max=1 << 40, partitions_min=10)) == 10


def test_estimates_that_are_next_to_nothing_make_no_piece_of_their_own() -> None:
    tiny = LogRange(LogId(1), "/group", 1, 4, (Segment(1, 1, 1.0), Segment(3, 3, 5e-324)))
    assert cut([tiny, tiny], bytes_max=1, partitions_min=5)
    nothing = LogRange(LogId(1), "/group", 1, 2, (Segment(1, 1, 5e-324),))
    assert [(piece.lo, piece.hi) for piece in cut([nothing], bytes_max=1, partitions_min=2)] == [(1, 2)]
