"""How long a trim and its preview wait for what lies where they end."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import pytest

from client.look_up.answers import LogHead
from client.questions import LogQuestions
from client.read.items import Gap, GapKind
from client.settings import ClientSettings
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN, LSN_INVALID, compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Micros

REQUEST = 7
"""Seconds that a request may take."""
STEP = 2
"""Seconds that each read of the log takes."""


class SlowReader:
    """A reader that takes its time: each read but the last one delivers a hole."""

    def __init__(self, client: SlowClient, reads: int) -> None:
        self._client = client
        self._reads = reads

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open."""

    async def read_entries(self, entries_max: int = 1000, *, timeout: float | None = None) -> list[Any]:
        assert timeout is not None, "it would wait without end"
        self._client.timeouts.append(timeout)
        self._client.clock += STEP * SECOND
        self._reads -= 1
        if timeout < STEP:
            raise LogDeviceError(Status.TIMEDOUT, "nothing came")
        return [Gap(GapKind.HOLE, LSN(1), LSN(1))] if self._reads else []


class SlowClient(LogQuestions):
    """A client whose clock the reads move."""

    def __init__(self, tail_takes: int) -> None:
        """`tail_takes`: seconds until it is known where the log ends."""
        super().__init__()
        self.tail_takes = tail_takes
        self.settings = ClientSettings(request_timeout_us=Micros(REQUEST * SECOND))
        self.clock = 0
        self.timeouts: list[float] = []

    def now(self) -> Micros:
        return Micros(self.clock)

    async def known_log(self, log: int | str, timeout: float | None = None) -> LogId:
        return LogId(int(log))

    async def tail_lsn(self, log: int | str, *, timeout: float | None = None) -> LSN:
        self.clock += self.tail_takes * SECOND
        return LSN(compose_lsn(1, 9))

    async def head(self, log: int | str, *, timeout: float | None = None) -> LogHead:
        assert timeout is not None
        return LogHead(LSN(LSN_INVALID), None, None)

    def reader(self, *args: Any, **options: Any) -> Any:
        return SlowReader(self, 4 if self.timeouts else 1)


@pytest.mark.parametrize(("given", "left"), [(None, REQUEST - 6), (6.5, 0.5)])
@pytest.mark.parametrize("operation", ["trim", "trim_preview"])
async def test_what_lies_at_the_lsn_is_waited_for_no_longer_than_a_request_may_take(
    operation: str, given: float | None, left: float
) -> None:
    client = SlowClient(tail_takes=6)
    with pytest.raises(LogDeviceError) as caught:
        await getattr(client, operation)(7, compose_lsn(1, 5), timeout=given)
    assert caught.value.status is Status.TIMEDOUT
    assert client.timeouts == [left]


@pytest.mark.parametrize(("given", "left"), [(None, [REQUEST] * 4), (30, [27, 25, 23, 21])])
async def test_a_preview_reads_on_while_something_comes(given: float | None, left: list[float]) -> None:
    client = SlowClient(tail_takes=1)
    preview = await client.trim_preview(7, compose_lsn(1, 5), timeout=given)
    assert (preview.trim_point, preview.records) == (compose_lsn(1, 5), 0)
    assert client.timeouts[1:] == left
