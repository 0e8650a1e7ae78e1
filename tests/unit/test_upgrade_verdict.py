"""The judge of upgrades sees what it is there for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.upgrades.__main__ import renumbered
from tests.upgrades.verdict import WriterJournal, trouble

LINES: list[list[Any]] = [["ok", 1, 10, 0, 5], ["ok", 2, 11, 0, 5], ["unknown", 3, "?"], ["ok", 4, 13, 0, 5]]
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
