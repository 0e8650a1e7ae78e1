"""What several writers have of a history comes to that history, as long as each millisecond is in the files of one of them."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexlog.raw_files import RawSource, TimeRange, aligned, covered, merged_sources
from indexlog.records import LogRecord, Modification, fold
from tests.property.indexlog.changes import records

CHOICES = st.lists(records(1, 1), max_size=6)


def is_within(part: list[LogRecord], whole: list[LogRecord]) -> bool:
    """All of it is there, in its order."""
    rest = iter(whole)
    return all(record in rest for record in part)


@given(CHOICES, CHOICES)
def test_both_are_in_what_they_come_to_and_nothing_else(one: list[LogRecord], other: list[LogRecord]) -> None:
    merged = list(aligned(one, other))
    assert is_within(one, merged)
    assert is_within(other, merged)
    assert len(merged) <= len(one) + len(other)
    assert list(aligned(one, one)) == one
    if is_within(other, one):
        assert merged == one


def history(rng: Random, count: int) -> list[LogRecord]:
    """Modifications in their order; many are of the same millisecond, and some are the same."""
    found, time = [], 100
    for _ in range(count):
        time += rng.choice((0, 0, 1, 5))
        change = Modification(
            rng.random() < 0.3,
            {"n": rng.choice("ab")} if rng.random() < 0.7 else None,
            {},
            {"c": rng.choice("xy")},
            time,
        )
        found.append(LogRecord("books", rng.choice(("a", "b")), change))
    return found


def folded(changes: list[LogRecord]) -> dict[str, Modification | None]:
    steps: defaultdict[str, list[Modification]] = defaultdict(list)
    for record in changes:
        steps[record.docid].append(record.change)
    return {docid: fold(of_document) for docid, of_document in steps.items()}


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_writers_with_gaps_come_to_the_whole_history(first: int) -> None:
    merged_more = 0
    for seed in range(first, first + 100):
        rng = Random(seed)
        written = history(rng, rng.randint(1, 40))
        end = written[-1].change.timestamp + 1
        sources, had = [], []
        for rank in range(rng.randint(2, 4)):
            at, number = 0, 0
            while at < len(written):  # files, cut anywhere; of some, none is left
                until = min(len(written), at + rng.randint(1, 15))
                if rng.random() < 0.6:
                    part = written[at:until]
                    sources.append(RawSource(rank, number, part[0].change.timestamp, part.__iter__))
                    had += [part]
                at, number = until, number + 1
        for time in range(100, end):  # and who has what nobody has whole
            of_time = [record for record in written if record.change.timestamp == time]
            if of_time and not any(set(map(id, of_time)) <= set(map(id, part)) for part in had):
                sources.append(RawSource(9, time, time, of_time.__iter__))
        merged = list(merged_sources(reversed(sources)))
        assert folded(merged) == folded(written)
        assert len(merged) <= len(written)
        merged_more += sum(len(part) for part in had) > len(written)
    assert merged_more > 20


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 8)), max_size=8))
def test_what_no_range_covers_lies_between_those_that_are_told(pairs: list[tuple[int, int]]) -> None:
    ranges = [TimeRange(begin, begin + length) for begin, length in pairs]
    told = covered(ranges)
    for time in range(40):
        assert any(each.begin <= time < each.end for each in told) == any(
            each.begin <= time < each.end for each in ranges
        )
    assert all(one.end < other.begin for one, other in pairwise(told))
