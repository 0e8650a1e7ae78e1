"""The judge of upgrades sees what it is there for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.upgrades.__main__ import renumbered
from tests.upgrades.experience import MeasuredSpan, failures, latencies, longest_wait, missed, stalled
from tests.upgrades.verdict import WriterJournal, trouble

LINES: list[list[Any]] = [
    ["ok", 1, 10, 0, 5000, 1.0],
    ["ok", 2, 11, 0, 6000, 2.0],
    ["unknown", 3, "?", 3.0],
    ["ok", 4, 13, 0, 7000, 4.0],
]
RECORDS: list[list[Any]] = [["record", 9 + number, 0, f"direct {number}", 0.0] for number in (1, 2, 3, 4)]


def found(*read: list[Any]) -> list[str]:
    return trouble("direct", WriterJournal.of(LINES), list(read))


def test_what_is_as_it_was_acknowledged_is_well_whether_the_unknown_is_there_or_not() -> None:
    assert found(*RECORDS) == []
    assert found(*RECORDS[:2], RECORDS[3]) == []
    assert found(["gap", "BRIDGE", 1, 9], *RECORDS) == []


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (RECORDS[:3], "4 was acknowledged at (13, 0) and is at None"),
        ([RECORDS[0], RECORDS[0], *RECORDS[1:]], "1 is at (10, 0) and at 10+0"),
        ([RECORDS[1], RECORDS[0], *RECORDS[2:]], "1 at 10+0 comes behind 2"),
        ([*RECORDS, ["record", 14, 0, "direct 5", 0.0]], "'direct 5' at 14+0 was not written"),
        ([*RECORDS, ["record", 14, 0, "buffered 3", 0.0]], "'buffered 3' at 14+0 was not written"),
        ([["gap", "DATALOSS", 1, 9], *RECORDS], "gap ['DATALOSS', 1, 9]"),
        ([["record", 12, 1, "direct 1", 0.0], *RECORDS[1:]], "1 was acknowledged at (10, 0) and is at (12, 1)"),
    ],
)
def test_what_is_lost_doubled_reordered_or_invented_is_told(read: list[list[Any]], text: str) -> None:
    assert text in found(*read)


def test_records_of_a_second_writer_go_on_behind_those_of_the_first() -> None:
    read = [["record", 20 + place, 0, f"direct {number}", 0.0] for place, number in enumerate((1, 2, 1, 2, 3))]
    assert [each[3] for each in renumbered(read)] == [f"direct {number}" for number in (1, 2, 3, 4, 5)]


def test_a_number_that_is_acknowledged_twice_is_told() -> None:
    with pytest.raises(AssertionError, match="acknowledged twice"):
        WriterJournal.of([LINES[0], LINES[0]])


def test_appends_count_in_the_span_in_which_they_were_due() -> None:
    journal = WriterJournal.of([*LINES, ["failed", 5, "no", 5.0], ["ok", 5, 14, 0, 9000, 5.0]])
    assert latencies([journal, journal], MeasuredSpan(2.0, 4.0)) == [6.0, 6.0]
    assert [failures([journal], span) for span in (MeasuredSpan(0, 3), MeasuredSpan(3, 5), MeasuredSpan(3, 6))] == [
        0,
        1,
        2,
    ]


def test_a_reader_that_gets_nothing_at_the_end_or_at_all_has_waited() -> None:
    assert longest_wait([0.5, 1.0, 1.5, 7.0], MeasuredSpan(1.0, 2.0)) == 0.5
    assert longest_wait([1.0, 1.5], MeasuredSpan(1.0, 4.0)) == 2.5
    assert longest_wait([], MeasuredSpan(1.0, 4.0)) == 3.0


@pytest.mark.parametrize(
    ("upgrade", "failed", "texts"),
    [
        ([30.0] * 100, 0, []),
        ([10.0] * 98 + [31.0] * 2, 0, ["p99 of appends is 3.1 times the control"]),
        ([10.0] * 100, 1, ["1 appends failed"]),
        ([], 0, ["nothing was appended"]),
    ],
)
def test_goals_of_appends_that_are_missed_are_told(upgrade: list[float], failed: int, texts: list[str]) -> None:
    found = missed([10.0] * 100, upgrade, failed)
    assert len(found) == len(texts)
    assert all(text in each for text, each in zip(texts, found, strict=True))


def test_a_reader_that_stalls_is_told() -> None:
    assert stalled([0.1, 2.0]) == []
    assert stalled([2.1, 0.1]) == ["a reader got nothing for 2.10 s (goal: 2)"]


def test_a_writer_keeps_up_when_its_last_append_was_not_late() -> None:
    assert not WriterJournal().keeps_up(1.0)
    assert [WriterJournal.of(LINES).keeps_up(late) for late in (0.006, 0.007)] == [False, True]
