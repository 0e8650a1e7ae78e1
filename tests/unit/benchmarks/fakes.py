"""A log system in memory, which may be told to do wrong."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from benchmarks.ldbench.engine import AppendError, Mode, ServerProcess, Setting, StartAt, StartOptions

Damage = Callable[[list[bytes], bytes], None]
"""Adds a record to a log, or does something else."""


def store(log: list[bytes], record: bytes) -> None:
    log.append(record)


class MemoryProducer:
    def __init__(self, running: "MemoryRunning", log: str) -> None:
        self._running = running
        self._log = log

    def append_many(self, records: Sequence[bytes]) -> Awaitable[object]:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        refused = self._running.refuse()
        if not refused:
            for record in records:
                self._running.engine.damage(self._running.logs[self._log], record)
        asyncio.get_running_loop().call_soon(self._acknowledge, future, refused)
        return future

    def _acknowledge(self, future: asyncio.Future[object], refused: bool) -> None:
        if refused:
            future.set_exception(AppendError("refused"))
        else:
            future.set_result(None)
        self._running.wake()

    async def ready(self) -> None:
        return

    async def close(self) -> None:
        return


class MemoryConsumer:
    def __init__(self, running: "MemoryRunning", log: str, at: int) -> None:
        self._running = running
        self._log = running.logs[log]
        self._at = at

    async def read(self, max_records: int = 10_000) -> Sequence[bytes]:
        while len(self._log) <= self._at:
            await self._running.changed.wait()
        records = self._log[self._at : self._at + max_records]
        self._at += len(records)
        return records

    async def close(self) -> None:
        return


class MemoryRunning:
    def __init__(self, engine: "MemoryEngine") -> None:
        self.engine = engine
        self.logs: dict[str, list[bytes]] = {}
        self.changed = asyncio.Event()
        self.refuse: Callable[[], bool] = lambda: False

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    async def create_logs(self, count: int) -> Sequence[str]:
        names = [f"log{len(self.logs) + number}" for number in range(count)]
        self.logs |= {name: [] for name in names}
        return names

    async def producer(self, log: str, mode: Mode, setting: Setting, *, timeout: float = 30.0) -> MemoryProducer:
        return MemoryProducer(self, log)

    async def consumer(self, log: str, start: StartAt) -> MemoryConsumer:
        return MemoryConsumer(self, log, 0 if start is StartAt.BEGINNING else len(self.logs[log]))

    def processes(self) -> Sequence[ServerProcess]:
        return ()

    async def leader(self, log: str) -> str:
        return "memory"

    async def followers(self, log: str) -> Sequence[str]:
        return ()

    async def kill(self, name: str) -> None:
        raise NotImplementedError

    async def pause(self, name: str) -> None:
        raise NotImplementedError

    async def resume(self, name: str) -> None:
        raise NotImplementedError

    async def restart(self, name: str) -> None:
        raise NotImplementedError

    async def whole(self, log: str) -> bool:
        return True

    def sample(self, on: bool) -> None:
        return

    def configuration(self) -> Mapping[str, str]:
        return {}

    async def stop(self) -> None:
        return


class MemoryEngine:
    name = "memory"
    title = "a list"
    has_leaders = True
    single_writer = False

    def __init__(self, damage: Damage = store, *, ordered: bool = True, ordered_through_faults: bool = True) -> None:
        self.damage = damage
        self.ordered = ordered
        self.ordered_through_faults = ordered_through_faults

    def unavailable(self, options: StartOptions) -> str | None:
        return None

    def versions(self) -> Mapping[str, str]:
        return {}

    def settings(self, mode: Mode) -> Sequence[Setting]:
        return (Setting(name="only", description="a list", records_in_flight=400, records_per_call=20),)

    def lone_setting(self) -> Setting:
        return self.settings(Mode.SINGLE)[0]

    def acknowledgement(self, options: StartOptions) -> str:
        return "it is in the list"

    async def start(self, options: StartOptions) -> MemoryRunning:
        return MemoryRunning(self)
