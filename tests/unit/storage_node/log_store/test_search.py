"""How many reads a look-up takes, whatever LSNs a log has."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Timestamp
from storage_node.log_store.interface import LogSpan, ReadResult
from storage_node.log_store.search import SearchResult, search_time
from tests.unit.storage_node.fakes import image, lsn


class Log:
    """Entries in memory; a read gives one, as where entries are large."""

    def __init__(self, stamps: dict[Lsn, int]) -> None:
        self.images = {at: image(at, timestamp=Timestamp(stamp)) for at, stamp in stamps.items()}
        self.lsns = sorted(stamps)
        self.span = LogSpan(
            self.lsns[0], self.lsns[-1], Timestamp(min(stamps.values())), Timestamp(max(stamps.values())), 1
        )
        self.reads = 0

    def find(self, timestamp: int) -> SearchResult:
        search = search_time([self.span], Timestamp(timestamp), self.span.first, self.span.last)
        self.reads, result = 0, None
        while True:
            try:
                low, high = next(search) if result is None else search.send(result)
            except StopIteration as done:
                found: SearchResult = done.value
                return found
            self.reads += 1
            result = self.read(low, high)

    def read(self, low: Lsn, high: Lsn) -> ReadResult:
        at = bisect_left(self.lsns, low)
        if at == len(self.lsns) or self.lsns[at] > high:
            return ReadResult(Status.OK, high)
        return ReadResult(Status.OK, self.lsns[at], [(self.lsns[at], self.images[self.lsns[at]])])


@pytest.mark.parametrize("epochs", [(1,), (1, 2), (1, 2, 900_000), (5, 6, 7, 8)])
@pytest.mark.parametrize("count", [1, 80, 3_000])
def test_unused_ends_of_epochs_cost_a_few_reads(epochs: tuple[int, ...], count: int) -> None:
    stamps: dict[Lsn, int] = {}
    for epoch in epochs:
        for esn in range(1, count + 1):
            stamps[lsn(epoch, esn)] = SECOND * (len(stamps) + 1)
    log = Log(stamps)
    reads = []
    for index in range(0, len(stamps), max(1, len(stamps) // 200)):
        found = log.find(SECOND * (index + 1))
        assert found.reached == log.lsns[index]
        assert found.before == (log.lsns[index - 1] if index else log.span.first - 1)
        reads.append(log.reads)
    assert max(reads) <= 30
    assert sum(reads) / len(reads) <= 16
