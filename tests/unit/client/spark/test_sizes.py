"""What the cluster says of sizes decides how much a log is cut, and where."""

from __future__ import annotations

from typing import Any

import pytest

from client.spark import sizes
from client.spark.ranges import Segment
from client.spark.survey import Sample, Stretch
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError, Status

LOG = LogId(3)
HOUR = 3_600_000_000
Question = tuple[int | None, int | None]


class Shards:
    """A client whose cluster knows the size of some stretches of time."""

    def __init__(self, known: dict[Question, int]) -> None:
        self._known = known
        self.asked: list[Question] = []

    async def data_size(self, log: int, start: int | None, end: int | None, *, timeout: float) -> int:
        self.asked.append((start, end))
        if (start, end) not in self._known:
            raise LogDeviceError(Status.PARTIAL, "too few shards answered")
        return self._known[start, end]


def stretch(lo: int, bytes_: float, hours: float) -> Stretch:
    return Stretch(Segment(lo, lo + 99, bytes_), round(hours * HOUR))


async def sized(shards: Any, stretches: list[Stretch], whole: int | None) -> list[float]:
    return [each.bytes for each in await sizes.sized(shards, LOG, stretches, whole, 1.0)]


async def test_stretches_far_apart_in_time_have_the_bytes_that_the_cluster_says() -> None:
    stretches = [stretch(1, 50, 0), stretch(101, 50, 0.1), stretch(201, 1, 5), stretch(301, 7, 9)]
    shards = Shards({(0, 5 * HOUR - 1): 400, (5 * HOUR, 9 * HOUR - 1): 300, (9 * HOUR, None): 100})
    assert await sized(shards, stretches, 800) == [200, 200, 300, 100]


async def test_of_a_short_time_the_cluster_is_asked_once_and_entries_that_were_read_say_how_it_is_spread() -> None:
    shards = Shards({})
    assert await sized(shards, [stretch(1, 30, 0), stretch(101, 10, 0.2)], 4000) == [3000, 1000]
    assert not shards.asked


async def test_where_the_cluster_does_not_answer_the_estimates_hold() -> None:
    stretches = [stretch(1, 30, 0), stretch(101, 10, 7)]
    assert await sized(Shards({}), stretches, 400) == [300, 100]
    assert await sized(Shards({}), stretches, None) == [30, 10]
    assert await sized(Shards({}), [], 400) == []


@pytest.mark.parametrize(
    ("lo", "hi", "question"),
    [(1, 500, (None, None)), (100, 500, (100, None)), (1, 400, (None, 400)), (100, 400, (100, 400))],
)
async def test_the_size_of_a_range_is_asked_for_by_the_times_of_its_ends(
    monkeypatch: pytest.MonkeyPatch, lo: int, hi: int, question: Question
) -> None:
    async def sample(client: Any, log: int, lsn: int, last: int) -> Sample | None:
        return Sample(lsn, 1.0, lsn) if lsn <= last else None

    monkeypatch.setattr(sizes, "sample", sample)
    shards: Any = Shards({question: 77})
    assert await sizes.size_between(shards, LOG, lo, hi, 500, 1.0) == 77
    assert await sizes.size_between(Shards({}), LOG, lo, hi, 500, 1.0) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(("lo", "size"), [(1, 0), (100, None)])
async def test_no_bytes_where_there_is_a_record_are_no_size(
    monkeypatch: pytest.MonkeyPatch, lo: int, size: int | None
) -> None:
    async def sample(client: Any, log: int, lsn: int, last: int) -> Sample | None:
        return Sample(lsn, 1.0, lsn)

    monkeypatch.setattr(sizes, "sample", sample)
    shards: Any = Shards({(None, None): 0, (100, None): 0})
    assert await sizes.size_between(shards, LOG, lo, 500, 500, 1.0) == size
