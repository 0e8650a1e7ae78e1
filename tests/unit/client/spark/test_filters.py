"""What filters leave of a plan, and what Spark is left to do."""

from __future__ import annotations

import datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    Not,
)

from client.spark.filters import restrict
from client.spark.planning import Restriction

LOG, LSN, TIME = ("log_id",), ("lsn",), ("timestamp",)
WHEN = datetime.datetime(2026, 1, 31, 12, tzinfo=datetime.UTC)
MICROS = int(WHEN.timestamp()) * 1_000_000


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([EqualTo(LOG, 7)], Restriction(logs=frozenset({7}))),
        ([In(LOG, (7, 8)), EqualTo(LOG, 7)], Restriction(logs=frozenset({7}))),
        ([GreaterThan(LSN, 5), LessThan(LSN, 9)], Restriction(lo=6, hi=8)),
        ([GreaterThanOrEqual(LSN, 5), GreaterThanOrEqual(LSN, 3)], Restriction(lo=5)),
        ([EqualTo(LSN, 5)], Restriction(lo=5, hi=5)),
    ],
)
def test_what_is_enforced_is_not_given_back(filters: list[Filter], left: Restriction) -> None:
    assert restrict(filters, rows_without_lsn=False) == (left, [])


@pytest.mark.parametrize(
    ("each", "left"),
    [
        (In(LSN, (5, 9)), Restriction(lo=5, hi=9)),
        (GreaterThan(TIME, WHEN), Restriction(since=MICROS + 1)),
        (LessThan(TIME, WHEN), Restriction(until=MICROS - 1)),
        (IsNotNull(LSN), Restriction()),
        (Not(EqualTo(LOG, 7)), Restriction()),
        (EqualTo(("payload",), b"x"), Restriction()),
        (EqualTo(LOG, None), Restriction()),
        (GreaterThan(("batch_offset",), 5), Restriction()),
    ],
)
def test_what_is_not_enforced_to_the_letter_is_given_back_itself(each: Filter, left: Restriction) -> None:
    restriction, rest = restrict([each], rows_without_lsn=False)
    assert restriction == left
    assert [id(one) for one in rest] == [id(each)]


def test_rows_that_are_no_records_leave_comparisons_to_spark() -> None:
    filters = [EqualTo(LOG, 7), GreaterThan(LSN, 5)]
    restriction, rest = restrict(filters, rows_without_lsn=True)
    assert restriction == Restriction(logs=frozenset({7}), lo=6)
    assert rest == filters[1:]
