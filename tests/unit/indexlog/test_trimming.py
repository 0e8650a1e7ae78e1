"""Raw logs are trimmed as far as they are dealt and old, by the clock of the index log."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from indexlog.index_log import IndexLog
from indexlog.manifest.parts import RoutingGeneration
from indexlog.manifest.state import ManifestState
from indexlog.trimming import trim_raw_logs
from logdevice_py.core.lsn import LSN
from logdevice_py.core.units import Timestamp

FIRST = LSN(1 << 32 | 1)
"""Of records that are a second apart: the first one is of 1970."""


class _Stepped:
    """As much of an index log, its manifest and its client as is used; raw log 1."""

    def __init__(self, dealt: int) -> None:
        self.seconds = 0
        self.state = ManifestState()
        self.state.generations = [RoutingGeneration(0, (1,))]
        self.state.dealt = {1: dealt}
        self.trimmed: list[int] = []
        self.manifest = self.client = self
        self.path = "/indexlog"

    async def current(self) -> None:
        pass

    def now(self) -> Timestamp:
        return Timestamp(self.seconds * 1_000_000)

    async def find_time(self, log: int, when: datetime) -> LSN:
        assert log == 1
        seconds = (when - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1)
        return LSN(FIRST + max(0, seconds))

    async def trim(self, log: int, until: LSN) -> None:
        self.trimmed.append(until)


async def test_what_is_old_goes_as_far_as_it_is_dealt() -> None:
    log = _Stepped(FIRST + 50)
    seen = cast(IndexLog, cast(Any, log))
    for seconds, until in ((10, FIRST - 1), (100, FIRST + 39), (200, FIRST + 50)):
        log.seconds = seconds
        assert await trim_raw_logs(seen, keep=60) == {1: until}
    assert log.trimmed[-2:] == [FIRST + 39, FIRST + 50]


async def test_what_is_not_dealt_stays_however_old() -> None:
    log = _Stepped(0)
    log.seconds = 1_000_000
    assert await trim_raw_logs(cast(IndexLog, cast(Any, log)), keep=0) == {1: LSN(0)}
    assert log.trimmed == []
