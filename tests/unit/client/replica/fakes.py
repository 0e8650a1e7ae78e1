"""Logs in memory, and replicas that read and append there: what happens between them is up to the test."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from client.append.sequencer_questions import SequencerQuestions
from client.links import Links
from client.read.items import DataLoss, Gap, GapKind, Record
from client.read.read_set import ReadRequest
from client.replica import log_replica
from client.replica.command_replica import CommandReplica
from client.replica.commands import CommandOutcome
from client.session import ClientSession
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.machine import TimerQueue
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Micros, Timestamp
from tests.unit.client.replica.registers import REGISTERS, Registers, set_command
from tests.unit.server.event_log.test_replica import CONFIG

COMMANDS = LogId(1)
SNAPSHOTS = LogId(2)
BEGUN = Micros(1_000_000)


class MemoryLog:
    """One log."""

    def __init__(self) -> None:
        self.entries: list[list[bytes]] = []
        """The first one has LSN 1."""
        self.trimmed = 0
        self.lost: set[int] = set()

    @property
    def tail(self) -> int:
        return len(self.entries)

    def append(self, *payloads: bytes) -> int:
        """One entry; its LSN."""
        self.entries.append(list(payloads))
        return self.tail


class MemoryStream:
    """Reads a log."""

    def __init__(self, log: MemoryLog, request: ReadRequest, on_ready: Callable[[], None]) -> None:
        self._log, self._until, self.on_ready = log, request.until, on_ready
        self.next_lsn = int(request.first)
        self._queue: list[Any] = []
        self.is_held = False
        """Nothing comes for the moment."""

    @property
    def stream(self) -> MemoryStream:
        return self

    def start(self, now: Micros) -> None:
        pass

    def stop(self) -> None:
        self.is_held = True

    @property
    def finished(self) -> bool:
        return self.next_lsn > self._until and not self._queue

    @property
    def ready(self) -> bool:
        reads = self.next_lsn <= min(self._log.tail, self._until)
        return not self.is_held and (bool(self._queue) or reads or self.finished)

    def take(self, records_max: int, now: Micros) -> list[Any]:
        if not self._queue and self.next_lsn <= min(self._log.tail, self._until):
            self._read()
        taken, self._queue = self._queue[:records_max], self._queue[records_max:]
        return taken

    def _read(self) -> None:
        lsn, log = self.next_lsn, self._log
        if lsn <= log.trimmed:
            self._queue.append(Gap(GapKind.TRIM, LSN(lsn), LSN(log.trimmed)))
            self.next_lsn = log.trimmed + 1
            return
        self.next_lsn = lsn + 1
        if lsn in log.lost:
            self._queue.append(Gap(GapKind.DATALOSS, LSN(lsn), LSN(lsn), DataLoss(True, ())))
            return
        for offset, payload in enumerate(log.entries[lsn - 1]):
            self._queue.append(Record(COMMANDS, LSN(lsn), offset, Timestamp(1000 * lsn), payload))

    def waiting_for(self) -> str:
        return "nothing"


class MemoryReceipt:
    """As much of one as is looked at."""

    def __init__(self, lsn: int) -> None:
        self.lsn = LSN(lsn)


class MemorySequencers(SequencerQuestions):
    """Sequencers that know the ends of `MemoryLogs`."""

    logs: MemoryLogs

    def tail_lsn(self, log: LogId, promise: Any, now: Micros, timeout_us: int | None = None) -> None:
        """At once."""
        if self.logs.refused is not None:
            promise.set_exception(self.logs.refused)
        else:
            promise.set_result(LSN(self.logs[log].tail))


class MemorySession(ClientSession):
    """A session of which operations touch `MemoryLogs` only."""

    logs: MemoryLogs

    def append(
        self, log: LogId, payload: bytes, promise: Any, timeout_us: int | None = None, *rest: Any, **more: Any
    ) -> Any:
        """What becomes of it the test may decide."""
        self.logs.on_append(log, payload, promise)

    def trim(self, log: LogId, lsn: int, shards: Any, promise: Any, now: Micros, timeout_us: int | None = None) -> None:
        """At once, unless the test holds trims back."""
        self.logs.trims.append((log, lsn))
        if self.logs.may_trim:
            self.logs[log].trimmed = max(self.logs[log].trimmed, lsn)
        promise.set_result(None)


class MemoryLogs:
    """The two logs, and replicas of what is in them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._logs = {COMMANDS: MemoryLog(), SNAPSHOTS: MemoryLog()}
        self.trims: list[tuple[LogId, int]] = []
        self.may_trim = True
        self.now = BEGUN
        self.replicas: list[CommandReplica[Registers]] = []
        self.held: list[tuple[LogId, bytes, Any]] | None = None
        """Appends that wait for the test; None: each is done at once."""
        self.refused: LogDeviceError | None = None
        """Why nobody may read."""
        self.changes = 0
        """How often replicas told of one."""
        monkeypatch.setattr(log_replica, "SessionStream", self._open)

    def __getitem__(self, log: LogId) -> MemoryLog:
        return self._logs[log]

    @property
    def commands(self) -> MemoryLog:
        return self._logs[COMMANDS]

    @property
    def snapshots(self) -> MemoryLog:
        return self._logs[SNAPSHOTS]

    def _open(self, session: Any, request: ReadRequest, *, on_ready: Callable[[], None], **_: Any) -> MemoryStream:
        return MemoryStream(self._logs[request.log], request, on_ready)

    def on_append(self, log: LogId, payload: bytes, promise: Any) -> None:
        if self.held is None:
            promise.set_result(MemoryReceipt(self._logs[log].append(payload)))
        else:
            self.held.append((log, payload, promise))

    def _on_change(self, now: Micros) -> None:
        self.changes += 1

    def replica(self, config: ClusterConfig = CONFIG, snapshot_every: int = 0) -> CommandReplica[Registers]:
        """A further one, which begins to read."""
        session = MemorySession(config, TimerQueue(), random.Random(len(self.replicas)), links=Links())
        session.logs = self
        session.sequencers = sequencers = MemorySequencers(session.questions, session.routes, session.settings)
        sequencers.logs = self
        made = CommandReplica(session, REGISTERS, COMMANDS, SNAPSHOTS, self._on_change, snapshot_every=snapshot_every)
        self.replicas.append(made)
        made.start(self.now)
        self.run()
        return made

    def run(self, micros: int = 0) -> None:
        """Let time pass, and all replicas do what they can."""
        end = Micros(self.now + micros)
        while True:
            for _ in range(200):
                self.now = Micros(self.now + 1)
                for replica in self.replicas:
                    stream = replica._reading
                    if stream is not None and stream.stream.ready:
                        stream.on_ready()  # type: ignore[attr-defined]
                    replica.session.timers.advance(self.now)
                    replica.session.on_turn_end(self.now)
            if self.now >= end:
                return
            self.now = Micros(min(end, self.now + SECOND // 10))

    def propose(
        self, replica: CommandReplica[Registers], command: bytes, timeout_us: int = 10 * SECOND, request: Any = None
    ) -> Answer:
        """Begin to."""
        answer = Answer()
        replica.propose(command, answer, self.now, timeout_us, request)
        return answer

    def set(self, replica: CommandReplica[Registers], name: str, value: str) -> CommandOutcome:
        """Set a register, and wait for that."""
        answer = self.propose(replica, set_command(name, value))
        self.run()
        return answer.outcome


class Answer:
    """A promise of an outcome."""

    def __init__(self) -> None:
        self._result: Any = None
        self.error: LogDeviceError | None = None

    def done(self) -> bool:
        return self._result is not None or self.error is not None

    def set_result(self, result: Any, /) -> None:
        self._result = result

    def set_exception(self, exception: BaseException, /) -> None:
        assert isinstance(exception, LogDeviceError)
        self.error = exception

    def exception(self) -> BaseException | None:
        return self.error

    @property
    def outcome(self) -> CommandOutcome:
        assert isinstance(self._result, CommandOutcome), self.error
        return self._result

    @property
    def failed(self) -> tuple[Status, bool]:
        """How, and whether the command may have been applied."""
        assert self.error is not None
        return self.error.status, self.error.maybe_applied
