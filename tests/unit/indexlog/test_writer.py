"""A writer while raw logs are changed: whatever happens meanwhile, each call ends, and what is written is in order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from indexlog.manifest.parts import RoutingGeneration
from indexlog.records import decode_record
from indexlog.routing import raw_log_of
from indexlog.writer import IndexWriter
from logdevice_py.core.status import LogDeviceError, Status


class RawLogs:
    """In place of a `BufferedWriter`: it takes so many at a time, and answers them in order, some turns of the loop later."""

    def __init__(self, ended: Iterable[int], *, room: int = 100, unknown: Iterable[int] = ()) -> None:
        self.stored: dict[int, list[str]] = {}
        self._ended, self._unknown = set(ended), set(unknown)
        self._room = room
        self._under_way = 0
        self._answered = asyncio.Event()

    async def ready(self) -> None:
        while self._under_way >= self._room:
            self._answered.clear()
            await self._answered.wait()

    def append(self, log: int, payload: bytes) -> asyncio.Future[None]:
        if log in self._unknown:
            raise LogDeviceError(Status.NOTFOUND, f"log {log} is not in the cluster file")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way += 1
        self._later(10, log, payload, future)
        return future

    def _later(self, turns: int, log: int, payload: bytes, future: asyncio.Future[None]) -> None:
        if turns:
            asyncio.get_running_loop().call_soon(self._later, turns - 1, log, payload, future)
            return
        self._under_way -= 1
        self._answered.set()
        if log in self._ended:
            future.set_exception(LogDeviceError(Status.ENDED, "it has ended", maybe_applied=False))
        else:
            self.stored.setdefault(log, []).append(decode_record(payload).docid)
            future.set_result(None)

    async def close(self) -> None:
        """All was answered."""


def writer_of(generations: Iterable[tuple[int, ...]], logs: RawLogs) -> IndexWriter:
    """One that learns of one generation of raw logs after the other, whenever it looks."""
    left = iter([RoutingGeneration(number, of_one) for number, of_one in enumerate(generations)])
    state = SimpleNamespace(now=None)

    async def changes() -> AsyncIterator[None]:
        for each in left:
            state.now = each
            yield

    loop = asyncio.get_running_loop()
    manifest: Any = SimpleNamespace(changes=changes, state=SimpleNamespace(writable=lambda: state.now))
    client: Any = SimpleNamespace(buffered_writer=lambda: logs, future=loop.create_future, loop=loop)
    return IndexWriter(client, manifest)


def run(work: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(work, 10)

    asyncio.run(bounded())


def docids_in_order() -> list[str]:
    """Those that go to log 2 of logs 2 and 3 come first."""
    return sorted((f"d{number:02}" for number in range(60)), key=lambda each: raw_log_of("books", each, (2, 3)))


@pytest.mark.parametrize("room", [1, 4, 100])
def test_what_a_second_change_meets_goes_to_the_generation_behind_it(room: int) -> None:
    """Of the second generation one log has ended when the first refusals are sent to it, the other one has not."""

    async def work() -> None:
        logs = RawLogs({1, 2}, room=room)
        docids = docids_in_order()
        async with writer_of([(1,), (2, 3), (4,)], logs) as writer:
            await asyncio.gather(*(writer.put("books", docid, {}) for docid in docids))
        of_third = [docid for docid in docids if raw_log_of("books", docid, (2, 3)) == 2]
        assert 0 < len(of_third) < len(docids)
        assert set(logs.stored) <= {3, 4}
        assert [docid for docid in logs.stored[4] if docid in of_third] == of_third
        assert sorted(logs.stored.get(3, []) + logs.stored[4]) == sorted(docids)

    run(work())


def test_an_append_that_fails_at_once_fails_alone() -> None:
    """The cluster file that this process has does not know one of the new raw logs."""

    async def work() -> None:
        logs = RawLogs({1}, unknown={2})
        docids = docids_in_order()
        async with writer_of([(1,), (2, 3)], logs) as writer:
            found = await asyncio.gather(*(writer.put("books", docid, {}) for docid in docids), return_exceptions=True)
        failed = [docid for docid, result in zip(docids, found, strict=True) if isinstance(result, LogDeviceError)]
        assert failed == [docid for docid in docids if raw_log_of("books", docid, (2, 3)) == 2]
        assert logs.stored == {3: [docid for docid in docids if docid not in failed]}

    run(work())


def test_who_waits_is_told_when_there_is_no_next_generation() -> None:
    async def work() -> None:
        logs = RawLogs({1, 2}, room=4)
        async with writer_of([(1,), (2,)], logs) as writer:
            found = await asyncio.gather(
                *(writer.put("books", docid, {}) for docid in docids_in_order()), return_exceptions=True
            )
        assert len(found) == 60
        assert {getattr(each, "status", None) for each in found} == {Status.SHUTDOWN}
        assert logs.stored == {}

    run(work())
