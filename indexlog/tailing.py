"""Follows the raw logs for all readers of a process, so that each modification is read once, and who waits for an index hears of it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from client.client import Client
from client.read.items import GapKind
from client.replica.replica import Replica
from indexlog.backlog import Backlog
from indexlog.effects import RawRange
from indexlog.manifest.state import ManifestState
from indexlog.paging import PageToken
from indexlog.recent import RecentRecords
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import Timestamp

TAIL_BYTES: Final = 64_000_000
_READ_AT_ONCE: Final = 5000
_BEHIND_SECONDS: Final = 0.25
"""So long a range is waited for that is not read yet; then whoever asks reads it by itself."""
_RETRY_SECONDS: Final = 1.0


class RawTailer:
    """The newest records of all raw logs that are read now. Use it as ``async with RawTailer(client, manifest) as tailer``."""

    def __init__(self, client: Client, manifest: Replica[ManifestState], *, bytes_max: int = TAIL_BYTES) -> None:
        """
        Args:
            client: an open client.
            manifest: of the index log; close this before it.
            bytes_max: that all records take at most, about.
        """
        self._client = client
        self._manifest = manifest
        self._bytes_max = bytes_max
        self._recent: dict[int, RecentRecords] = {}
        self._backlogs: dict[int, Backlog] = {}
        self._reading: dict[int, asyncio.Task[None]] = {}
        self._following: asyncio.Task[None] | None = None
        self._waiting: dict[str, set[asyncio.Future[None]]] = {}
        """By index, whoever waits for a record of it."""
        self._progress: set[asyncio.Future[None]] = set()
        """Whoever waits until more is read."""

    def __repr__(self) -> str:
        return f"<RawTailer: {self.size} bytes of {len(self._recent)} raw logs>"

    async def __aenter__(self) -> RawTailer:
        self._following = self._client.loop.create_task(self._follow(), name="raw logs of an index log")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop. Whoever waits goes on."""
        tasks = [*self._reading.values(), *filter(None, [self._following])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._reading.clear()
        self._following = None
        self._wake_all()

    @property
    def size(self) -> int:
        """Bytes that are held, about."""
        return sum(each.size for each in self._recent.values())

    def backlogs(self) -> list[Backlog]:
        """What is not dealt, as far as it was read, of each raw log that is read now."""
        return list(self._backlogs.values())

    @property
    def waiting(self) -> int:
        """How many wait for something to be written."""
        return sum(map(len, self._waiting.values()))

    async def _follow(self) -> None:
        """Read what the manifest says is written to."""
        seen: tuple[int, int, tuple[int, ...]] | None = None
        async for _ in self._manifest.changes():
            state = self._manifest.state
            logs = tuple(log for each in state.readable() for log in each.logs)
            for log in set(self._recent) - set(logs):
                self._reading.pop(log).cancel()
                del self._recent[log], self._backlogs[log]
            for log in set(logs) - set(self._recent):
                self._recent[log] = RecentRecords(state.dealt[log] + 1, max(1, self._bytes_max // len(logs)))
                self._backlogs[log] = Backlog()
                self._reading[log] = self._client.loop.create_task(self._read(log), name=f"tail of raw log {log}")
            for log, backlog in self._backlogs.items():
                backlog.deal(state.dealt[log])
            if seen != (now := (state.drops, len(state.generations), logs)):
                seen = now
                self._wake_all()

    async def _read(self, log: int) -> None:
        """Read one log for ever, or until it ends."""
        recent, backlog = self._recent[log], self._backlogs[log]
        while True:
            try:
                async with self._client.reader(log, recent.next) as reader:
                    while batch := await reader.read(_READ_AT_ONCE):
                        lost = [gap for gap in batch.gaps if gap.kind in (GapKind.DATALOSS, GapKind.TRIM)]
                        if lost:  # who asks for it is told when it reads by itself
                            recent.restart(lost[-1].hi + 1)
                        of_indexes: set[str | None] = set()
                        for lsn, payload, time in zip(batch.lsns, batch.payloads, batch.timestamps, strict=True):
                            of_indexes.add(recent.add(lsn, payload))
                            backlog.add(lsn, len(payload or b""), Timestamp(time))
                        backlog.deal(self._manifest.state.dealt.get(log, 0))
                        # a batch that is full may end within an entry
                        whole = len(batch) < _READ_AT_ONCE
                        recent.advance(reader.next_lsn if whole else batch.lsns[-1])
                        self._wake(of_indexes)
                    if reader.ended:
                        return
            except LogDeviceError:  # also when the client is closed; whoever asks meanwhile reads by itself
                await asyncio.sleep(_RETRY_SECONDS)

    def _wake(self, indexes: set[str | None]) -> None:
        for index in indexes:
            if index is not None:
                _release(self._waiting.get(index, ()))
        _release(self._progress)

    def _wake_all(self) -> None:
        for waiting in self._waiting.values():
            _release(waiting)
        _release(self._progress)

    # Asking

    async def range(self, index: str, log: int, start: int, until: int, bytes_max: int) -> RawRange | None:
        """The records of an index in [start, until] of a log, as `ReadRange`; None: they are not all here."""
        deadline = self._client.loop.time() + _BEHIND_SECONDS
        while (recent := self._recent.get(log)) is not None and start >= recent.first:
            found = recent.take(index, start, until, bytes_max)
            if found is not None or not await self._wait(self._progress, deadline):
                return found
        return None

    async def news(self, token: PageToken, seconds: float) -> bool:
        """Wait until there is a record behind the last page of an index, or it was dropped, or raw logs are other ones.

        Args:
            token: of the last page that was read.
            seconds: to wait at most.

        Returns:
            Whether there may be something.
        """
        deadline = self._client.loop.time() + seconds
        index, positions = token.index, token.positions
        waiting = self._waiting.setdefault(index, set())
        try:
            while True:
                if self._is_news(index, positions, token.drop):
                    return True
                if not await self._wait(waiting, deadline):
                    return False
        finally:
            if not waiting and self._waiting.get(index) is waiting:
                del self._waiting[index]

    def _is_news(self, index: str, positions: Mapping[int, int], drop: int) -> bool:
        state = self._manifest.state
        newest = state.readable()[-1]
        if state.last_drop(index) != drop or set(newest.logs) != set(positions):
            return True
        return any(
            (recent := self._recent.get(log)) is not None and recent.has_since(index, position)
            for log, position in positions.items()
        )

    async def _wait(self, among: set[asyncio.Future[None]], deadline: float) -> bool:
        """Until it is worth looking again; False: the time is up."""
        left = deadline - self._client.loop.time()
        if left <= 0:
            return False
        future: asyncio.Future[None] = self._client.future()
        among.add(future)
        try:
            await asyncio.wait_for(future, left)
        except TimeoutError:
            return False
        finally:
            among.discard(future)
        return True


def _release(waiting: Iterable[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
