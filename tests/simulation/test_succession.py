"""The rule by which records of successive writers count, and the check that goes with it."""

from __future__ import annotations

import pytest

from logdevice_py.core.ids import LogId
from tests.simulation.history import LogHistory, Observation, TimeAnswer, Violation
from tests.simulation.succession import CountedRecords, check_succession


def last(*payloads: bytes) -> int:
    return CountedRecords(payloads).last


def test_records_count_in_their_order_whoever_else_writes() -> None:
    assert last(b"h1-fence-7", b"h1-1-", b"w2-1-", b"h1-2-x") == 2


def test_what_a_process_gets_in_after_the_fence_of_a_later_one_does_not_count() -> None:
    records = CountedRecords([b"h1-fence-7", b"h1-1-", b"h4-fence-9", b"h1-2-", b"h4-2-", b"h1-3-"])
    assert records.last == 2
    assert records.counted == {b"h1-1-", b"h4-2-"}


def test_a_late_fence_of_an_earlier_process_takes_nothing_over() -> None:
    assert last(b"h4-fence-9", b"h4-1-", b"h1-fence-7", b"h1-2-", b"h4-2-") == 2


def test_what_follows_a_record_that_is_missing_does_not_count() -> None:
    assert last(b"h1-fence-7", b"h1-1-", b"h1-3-") == 1


def history_of(acknowledged: list[bytes]) -> tuple[LogHistory, Observation]:
    """Of records that were all acknowledged, at one LSN after another."""
    history, whole = LogHistory(LogId(1)), Observation("whole", 1)
    for lsn, payload in enumerate(acknowledged, start=1):
        name, what = payload.decode().split("-")[:2]
        number = 0 if what == "fence" else int(what)
        attempt = history.attempt(payload, (0, 0), name if number else "", number)
        history.acknowledge(attempt, lsn, 0)
        whole.records.append((lsn, 0, payload))
    return history, whole


def test_a_hand_over_without_loss_passes() -> None:
    check_succession(*history_of([b"h1-fence-7", b"h1-1-", b"h1-2-", b"h4-fence-9", b"h4-3-", b"h1-3-"]))


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_successor_that_goes_on_at_a_wrong_number_is_noticed(number: int) -> None:
    made = history_of([b"h1-fence-7", b"h1-1-", b"h1-2-", b"h4-fence-9", b"h4-%d-" % number])
    with pytest.raises(Violation, match="does not count"):
        check_succession(*made)


def test_an_acknowledged_record_behind_one_that_failed_need_not_count() -> None:
    history, whole = history_of([b"h1-fence-7", b"h1-1-"])
    history.note_failure(history.attempt(b"h1-2-", (0, 0), "h1", 2), maybe_applied=True)
    attempt = history.attempt(b"h1-3-", (0, 0), "h1", 3)
    history.acknowledge(attempt, 9, 0)
    whole.records.append((9, 0, b"h1-3-"))
    check_succession(history, whole)


def test_a_fence_that_is_not_above_the_tail_is_noticed() -> None:
    history, _ = history_of([b"a-1", b"a-2"])
    fence = history.attempt(b"h1-fence-7", (5, 1 << 30))
    with pytest.raises(Violation, match="was sent when"):
        history.acknowledge(fence, 5, 3)


def test_an_entry_of_the_right_age_before_the_time_found_is_noticed() -> None:
    history, whole = history_of([])
    for lsn, stamp in ((1, 10), (2, 20), (3, 30)):
        attempt = history.attempt(b"a-%d" % lsn, (0, 0))
        history.acknowledge(attempt, lsn, 0, stamp)
        whole.records.append((lsn, 0, attempt.payload))
    for when, lsn in ((5, 1), (10, 1), (11, 2), (30, 3), (31, 4)):
        history.times = [TimeAnswer("f1", when, lsn, 3)]
        history.check_end(whole)
    for when, lsn in ((10, 2), (11, 1), (11, 3), (31, 3), (20, 4)):
        history.times = [TimeAnswer("f1", when, lsn, 3)]
        with pytest.raises(Violation, match="looked for"):
            history.check_end(whole)
