"""Applications that append."""

from __future__ import annotations

from typing import TYPE_CHECKING

from client.receipt import Receipts
from client.write.write_streams import WriteStreams
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from server.simulation.faults.attacks import ATTACKS
from server.simulation.machines import SimPromise
from tests.simulation.application import Application
from tests.simulation.history import key_of

if TYPE_CHECKING:
    from tests.simulation.workload import Applications

WAITING_MAX = 40
"""Appends of one application that may be without an answer."""
FRAMES_WAITING_MAX = 80
"""About so many frames of one application may be without an answer: each of them must have one before the run can end."""
RECORDS_MAX = 6000
"""Records that one application appends at most: a run must end."""
RECORDS_MANY = 3000
"""When so many were appended to all logs, calls are small: a record more costs as much as the first, and finds less."""
_FORGED = ATTACKS["send_under_the_id_of_another"].counted_as
_SIZES = [0, 10, 10, 100, 100, 1000, 5000]
_SMALL = 20


class StreamWriter(Application):
    """Appends through a BufferedWriter, a few records or many at a time."""

    batch_bytes_max = 200 * 5100
    """Of one call."""

    def __init__(self, run: Applications, name: str) -> None:
        super().__init__(run, name)
        self.settings = run.scenario.writer_settings(self.rng)
        self.streams: WriteStreams = self.client.writer(self.settings)
        self.earlier: list[WriteStreams] = []
        """Those with a stream that somebody else sent under the id of; their other streams have outcomes to come."""
        self.sequence = 0
        self.waiting = 0
        self.frames_waiting = 0

    def act(self, now: Micros) -> None:
        if self.waiting >= WAITING_MAX or self.frames_waiting >= FRAMES_WAITING_MAX or self.sequence >= RECORDS_MAX:
            return
        log = self.pick_log()
        history = self.run.histories[log]
        rng = self.rng
        count = rng.choice([1, 1, 3, 10, 40, 120])
        if sum(len(each.attempts) for each in self.run.histories.values()) >= RECORDS_MANY:
            count = min(count, 3)
        size = rng.choice(_SIZES if count < 40 else [0, 10, _SMALL])
        first = self.sequence + 1
        payloads = [f"{self.name}-{first + index}-".encode() + bytes(size) for index in range(count)]
        self.sequence += count
        frames = min(count, 1 + sum(map(len, payloads)) // self.settings.size_trigger_bytes)
        floor = self.floor[log]
        # each writer keeps the order of its own records
        stream, streams = f"{self.name} {len(self.earlier)}", self.streams
        attempts = [history.attempt(payload, floor, stream, first + index) for index, payload in enumerate(payloads)]

        def done(promise: SimPromise) -> None:
            self.run.pending -= 1
            self.waiting -= 1
            self.frames_waiting -= frames
            if not self.alive:
                return
            if isinstance(promise.error, LogDeviceError):
                self.cluster.note(self.client.name, "stream failed", promise.error)
                self.run.failures[promise.error.status] = self.run.failures.get(promise.error.status, 0) + 1
                for attempt in attempts:
                    # some of the records may have been acknowledged
                    history.note_failure(attempt, maybe_applied=promise.error.maybe_applied or len(attempts) > 1)
                if promise.error.status is Status.ABORTED:
                    history.overtaken += attempts
                if promise.error.status is Status.WRITE_STREAM_BROKEN and streams is self.streams:
                    assert not promise.error.retriable
                    assert self.cluster.fault_effects[_FORGED], "nobody sent under the id of another"
                    self.earlier.append(self.streams)
                    self.streams = self.client.writer(self.settings)
                return
            assert promise.error is None, promise.error
            receipts: Receipts = promise.result
            assert len(receipts) == len(attempts)
            for attempt, receipt in zip(attempts, receipts, strict=True):
                self.acknowledged(log, attempt, receipt.lsn, receipt.batch_offset, receipt.timestamp)

        self.run.pending += 1
        self.waiting += 1
        self.frames_waiting += frames
        try:
            self.streams.append_many(log, payloads, SimPromise(done), now, list(map(key_of, payloads)))
        except LogDeviceError as error:
            if error.status is not Status.NOBUFS:
                raise
            self.run.pending -= 1
            self.waiting -= 1
            self.frames_waiting -= frames
            for attempt in attempts:
                history.note_failure(attempt, maybe_applied=False)


class PlainWriter(Application):
    """Appends directly; some wait for each answer before the next record."""

    def __init__(self, run: Applications, name: str) -> None:
        super().__init__(run, name)
        self.number = 0
        self.one_by_one = self.rng.random() < 0.4
        self.waiting = 0

    def act(self, now: Micros) -> None:
        if self.waiting >= (1 if self.one_by_one else WAITING_MAX):
            return
        log = self.pick_log()
        for _ in range(1 if self.one_by_one else self.rng.choice([1, 1, 4, 20])):
            self._append(log, now)

    def _append(self, log: LogId, now: Micros) -> None:
        history = self.run.histories[log]
        self.number += 1
        payload = f"{self.name}-{self.number}-".encode() + bytes(self.rng.choice(_SIZES))
        attempt = history.attempt(payload, self.floor[log])

        def done(promise: SimPromise) -> None:
            self.run.pending -= 1
            self.waiting -= 1
            if not self.alive:
                return
            if isinstance(promise.error, LogDeviceError):
                self.run.failures[promise.error.status] = self.run.failures.get(promise.error.status, 0) + 1
                history.note_failure(attempt, maybe_applied=promise.error.maybe_applied)
                return
            assert promise.error is None, promise.error
            receipt = promise.result
            self.acknowledged(log, attempt, receipt.lsn, receipt.batch_offset, receipt.timestamp)

        self.run.pending += 1
        self.waiting += 1
        timeout = self.rng.choice([300 * MILLISECOND, 2 * SECOND, 10 * SECOND])
        self.client.session.append(log, attempt.payload, SimPromise(done), timeout, key_of(attempt.payload))
