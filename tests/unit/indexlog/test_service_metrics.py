"""Ages that the service of an index log tells are by the clock of the index log."""

from __future__ import annotations

from typing import Any, cast

from indexlog.backlog import Backlog
from indexlog.index_log import IndexLog
from indexlog.manifest.state import ManifestState
from indexlog.serving.metrics import SeenParts
from logdevice_py.core.units import Timestamp


class _Seen:
    """As much of an index log as is looked at."""

    def __init__(self, seconds: int) -> None:
        self.state = ManifestState()
        self.state.jobs = {3: 2_000_000, 4: 5_000_000}
        self.backlog = Backlog()
        self.seconds = seconds

    def backlogs(self) -> list[Backlog]:
        return [self.backlog]

    def now(self) -> Timestamp:
        return Timestamp(self.seconds * 1_000_000)


def test_ages_are_by_the_clock_of_the_index_log() -> None:
    seen = _Seen(9)
    seen.backlog.add(1, 10, Timestamp(4_000_000))
    parts, log = SeenParts(), cast(Any, seen)
    found = parts.look(cast(IndexLog, log))
    assert (found.undealt_age, found.job_age, found.jobs_running) == (5_000_000, 7_000_000, 2)
    seen.seconds = 1  # the clocks of nodes are ahead
    found = parts.look(log)
    assert (found.undealt_age, found.job_age) == (0, 0)
    seen.backlog.deal(1)
    seen.state.jobs.clear()
    seen.seconds = 9
    found = parts.look(log)
    assert (found.undealt_age, found.undealt_records, found.job_age) == (0, 0, 0)
