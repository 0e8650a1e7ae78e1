"""From Spark's filters to what a plan leaves out."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from client.spark.planning import Restriction

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def restrict(filters: Iterable[Filter], *, rows_without_lsn: bool) -> tuple[Restriction, list[Filter]]:
    """What all the filters leave, and those that Spark has to apply to the rows as well.

    Args:
        filters: all of them hold at once.
        rows_without_lsn: there are rows that are no records. They have a log but no LSN, which no comparison holds for, so Spark drops them.
    """
    restriction, rest = Restriction(), []
    for each in filters:
        narrowed, exact = _narrow(restriction, each)
        restriction = narrowed
        if not exact or (rows_without_lsn and each.attribute != ("log_id",)):  # type: ignore[attr-defined]
            rest.append(each)
    return restriction, rest


def _narrow(before: Restriction, each: Filter) -> tuple[Restriction, bool]:
    """What a filter leaves, and whether that is all that it says."""
    values = _values(each)
    if values is not None:
        if not values:
            return before, False
        if each.attribute == ("log_id",):  # type: ignore[attr-defined]
            logs = frozenset(values)
            return dataclasses.replace(before, logs=logs if before.logs is None else before.logs & logs), True
        narrowed = _between(before, each.attribute, min(values), max(values))  # type: ignore[attr-defined]
        return narrowed, len(values) == 1 and each.attribute == ("lsn",)  # type: ignore[attr-defined]
    if isinstance(each, GreaterThan | GreaterThanOrEqual):
        lo = _number(each.value)
        if lo is None:
            return before, False
        above = isinstance(each, GreaterThan)
        return _between(before, each.attribute, lo + above, None), each.attribute == ("lsn",)
    if isinstance(each, LessThan | LessThanOrEqual):
        hi = _number(each.value)
        if hi is None:
            return before, False
        below = isinstance(each, LessThan)
        return _between(before, each.attribute, None, hi - below), each.attribute == ("lsn",)
    return before, False


def _values(each: Filter) -> list[int] | None:
    """The values that an equality allows; empty when they cannot be compared here; None: the filter is no equality."""
    if isinstance(each, EqualTo | EqualNullSafe):
        given = [each.value]
    elif isinstance(each, In):
        given = [value for value in each.value if value is not None]
    else:
        return None
    numbers = [_number(value) for value in given]
    return [] if None in numbers else [number for number in numbers if number is not None]


def _number(value: Any) -> int | None:
    """An integer, or a point in time as Unix UTC microseconds."""
    if isinstance(value, datetime.datetime):
        aware = value.astimezone(datetime.UTC)  # a naive one is of this process's zone
        return (aware - _EPOCH) // datetime.timedelta(microseconds=1)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _between(before: Restriction, attribute: tuple[str, ...], lo: int | None, hi: int | None) -> Restriction:
    if attribute == ("lsn",):
        return dataclasses.replace(
            before,
            lo=before.lo if lo is None else max(before.lo, lo),
            hi=before.hi if hi is None else min(before.hi, hi),
        )
    if attribute == ("timestamp",):
        since = before.since if lo is None else max(lo, lo if before.since is None else before.since)
        until = before.until if hi is None else min(hi, hi if before.until is None else before.until)
        return dataclasses.replace(before, since=since, until=until)
    return before
