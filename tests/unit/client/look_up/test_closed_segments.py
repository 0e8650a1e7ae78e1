"""What a client remembers of completed segments, and where it looks for transaction ids and times because of it."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from client.look_up.closed_segments import REMEMBERED_MAX, ClosedSegments, RememberedSegments
from client.look_up.segments import LogSegment, completed_segment, unknown_segment
from logdevice_py.core.epoch_summary import EpochSummary, SummaryFlags
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.units import Timestamp

COUNTED = int(SummaryFlags.COUNTED | SummaryFlags.AUTHORITATIVE | SummaryFlags.LISTED)


def segment(epoch: int, *, txid: int = 0, at: int = 0, counted: bool = True) -> LogSegment:
    """Five entries; its last transaction id is `txid`, its records have times from `at` on."""
    first = Timestamp(1000 * (at or epoch))
    summary = EpochSummary(
        COUNTED if counted else int(SummaryFlags.AUTHORITATIVE), Epoch(9), Esn(1), Esn(5), 5, 0, 5, 100,
        first, Timestamp(first + 5), Timestamp(first + 9), txid and txid - 1, txid,
    )  # fmt: skip
    return completed_segment(Epoch(epoch), summary, Lsn(0))


def closed(*segments: LogSegment) -> ClosedSegments:
    found = ClosedSegments(Epoch(1))
    found.add(segments, Epoch(segments[-1].epoch))
    return found


def end(epoch: int) -> Lsn:
    return compose_lsn(Epoch(epoch), Esn(5))


def test_what_is_added_again_is_known_once() -> None:
    found = closed(segment(1), segment(2))
    found.add([segment(2), segment(3)], Epoch(4))
    assert [each.epoch for each in found.after(Lsn(0), Lsn(0))] == [1, 2, 3]
    assert found.covered == 4, "the fourth epoch held nothing"


def test_a_segment_that_nobody_knows_is_asked_for_again() -> None:
    found = closed(segment(1))
    found.add([segment(2), unknown_segment(Epoch(3), Lsn(0)), segment(4)], Epoch(4))
    assert [each.epoch for each in found.after(Lsn(0), Lsn(0))] == [1, 2]
    assert found.covered == 2


def test_what_is_trimmed_is_left_out_and_the_rest_says_so() -> None:
    found = closed(segment(1), segment(2), segment(3))
    point = Lsn(end(2) - 2)
    listed = found.after(Lsn(0), point)
    assert [(each.epoch, each.trimmed_to) for each in listed] == [(2, point), (3, 0)]
    assert [each.trimmed_to for each in found.after(Lsn(0), Lsn(0))] == [0, 0, 0], "what is remembered is not changed"
    assert [each.epoch for each in found.after(end(3), point)] == [3]
    found.forget(end(2))
    assert [each.epoch for each in found.after(Lsn(0), Lsn(0))] == [3]


def test_a_transaction_id_lies_in_the_first_segment_that_reaches_it() -> None:
    found = closed(segment(1, txid=10), segment(2, txid=20), segment(4, txid=20), segment(5, txid=30))
    spans = {txid: found.span_of_transaction(txid) for txid in (1, 10, 11, 20, 21, 30)}
    assert {txid: span.last for txid, span in spans.items()} == {
        1: end(1), 10: end(1), 11: end(2), 20: end(2), 21: end(5), 30: end(5),
    }  # fmt: skip
    assert (spans[1].first, spans[11].first, spans[21].first) == (1, end(1) + 1, end(4) + 1)
    behind = found.span_of_transaction(31)
    assert (behind.first, behind.last) == (end(5) + 1, None)


def test_segments_without_ids_tell_nothing() -> None:
    found = closed(segment(1, txid=10), segment(2), segment(3), segment(4, txid=40), segment(5))
    span = found.span_of_transaction(20)
    assert span.first <= end(1) + 1
    assert span.last == end(4)
    assert found.span_of_transaction(41).last is None
    assert closed(segment(1), segment(2)).span_of_transaction(5).last is None


def test_times_are_looked_for_where_segments_follow_each_other_in_time() -> None:
    found = closed(segment(1), segment(2), segment(3))
    assert found.span_of_time(Timestamp(2003)).last == end(2)
    assert found.span_of_time(Timestamp(3006)).last is None
    gone_back = closed(segment(1), segment(2, at=9), segment(3))
    assert gone_back.span_of_time(Timestamp(2003)) == gone_back.span_of_time(Timestamp(99_999))
    assert closed(segment(1), segment(2, counted=False)).span_of_time(Timestamp(1003)).last is None


@given(st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=1, max_size=12), st.integers(1, 40))
def test_the_first_record_that_reaches_an_id_lies_within_the_span(steps: list[int | None], wanted: int) -> None:
    """Of each segment the first record has the id of the last one before it or more, and each of the five ids up to its last."""
    listed, records, last = [], [], 0
    for number, step in enumerate(steps, 1):
        ids = [0] * 5 if step is None else [last + min(each, step) + 1 for each in range(5)]
        last = max(last, *ids)
        listed.append(segment(number, txid=ids[-1]))
        records += [(compose_lsn(Epoch(number), Esn(esn)), txid) for esn, txid in enumerate(ids, 1) if txid]
    span = closed(*listed).span_of_transaction(wanted)
    place = bisect_left(records, wanted, key=lambda record: record[1])
    if place == len(records):
        assert span.last is None
    else:
        assert span.first <= records[place][0] <= (span.last or 0)


def test_another_beginning_is_asked_for_anew_and_an_old_log_is_forgotten() -> None:
    remembered = RememberedSegments()
    of_first = remembered.since(LogId(1), Epoch(3))
    assert remembered.since(LogId(1), Epoch(5)) is of_first
    assert remembered.since(LogId(1), Epoch(2)) is not of_first
    remembered.since(LogId(1), Epoch(2)).add([segment(2)], Epoch(2))
    large = remembered.since(LogId(2), Epoch(1))
    large._segments += [segment(1)] * REMEMBERED_MAX
    remembered.shrink()
    assert remembered.of(LogId(1)) is None
    assert remembered.of(LogId(2)) is large
