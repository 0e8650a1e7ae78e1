"""Trimming: every shard that may hold a part of the log is told, and the answer is OK only when all have made it durable."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from client.links import Links
from client.request_history import RequestHistory, describe_timeout, name_awaited
from client.settings import ClientSettings
from logdevice_py.core.ids import LogId, ShardId, format_shard, node_peer
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Rng, Timer, TimerQueue, backoff
from logdevice_py.core.status import TRAITS, Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Trim, Trimmed
from logdevice_py.protocol.requests import Requests


class TrimRequest:
    """One trim. Trimming twice is harmless, so a shard that does not answer is told again until the time is up."""

    __slots__ = (
        "_began",
        "_done",
        "_failed",
        "_history",
        "_links",
        "_log",
        "_lsn",
        "_missing",
        "_pauses",
        "_requests",
        "_timer",
        "_timers",
        "_until",
        "total",
    )

    def __init__(
        self,
        log: LogId,
        lsn: Lsn,
        shards: Iterable[ShardId],
        until: int,
        done: Callable[[Status, list[ShardId], Micros], None],
        *,
        links: Links,
        timers: TimerQueue,
        rng: Rng,
        requests: Requests,
        settings: ClientSettings,
    ) -> None:
        """
        Args:
            log: a data log.
            lsn: everything up to here is trimmed.
            shards: all that may hold something.
            until: the deadline.
            done: gets OK, PARTIAL (some answered), ACCESS (the client may not trim) or FAILED (none did), and the shards that are missing.
            links: where messages go.
            timers: the client's.
            rng: for pauses.
            requests: of the client.
            settings: of the client.
        """
        self._log = log
        self._lsn = lsn
        self._missing: dict[ShardId, int] = dict.fromkeys(sorted(set(shards)), 0)
        self._failed: set[ShardId] = set()
        self.total = len(self._missing)
        self._until = until
        self._done = done
        self._links = links
        self._timers = timers
        self._requests = requests
        self._timer: Timer | None = None
        self._history = RequestHistory()
        self._began: Micros | None = None
        self._pauses = backoff(rng, initial_us=settings.unanswered_us, max_us=settings.attempt_us)

    def start(self, now: Micros) -> None:
        """Tell every shard that has not answered."""
        if self._began is None:
            self._began = now
        missing = [shard for shard in self._missing if shard not in self._failed]
        if not missing or now >= self._until:
            self._finish(now)
            return
        for shard in missing:
            if self._missing[shard] not in self._requests:
                self._missing[shard] = self._requests.ask_shard(shard, Trimmed, self._on_trimmed, once=False)
            self._links.send(
                node_peer(shard), Trim(request_id=self._missing[shard], log=self._log, shard=shard, lsn=self._lsn)
            )
        self._timer = self._timers.at(min(now + next(self._pauses), self._until), self.start)

    def _on_trimmed(self, answer: Trimmed, now: Micros) -> None:
        if answer.log != self._log:
            return
        if answer.status is Status.OK:
            self._requests.forget(self._missing.pop(answer.shard))
        else:
            self._history.refused(format_shard(answer.shard), answer.status)
            if TRAITS[answer.status].retriable:
                return
            self._failed.add(answer.shard)
        if len(self._failed) == len(self._missing):
            self._finish(now)

    def explain(self, now: Micros) -> str:
        """What the shards that did not do it say, and which are silent."""
        awaited = name_awaited((shard for shard in self._missing if shard not in self._failed), self._links)
        waited = now - (now if self._began is None else self._began)
        return describe_timeout(waited, self._history.explain(awaited or "nobody"))

    def _finish(self, now: Micros) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for request in self._missing.values():
            self._requests.forget(request)
        done, self._done = self._done, _ignore
        missing = list(self._missing)
        status = Status.OK if not missing else Status.PARTIAL if len(missing) < self.total else Status.FAILED
        if status is Status.FAILED and self._history.tells_of(Status.ACCESS):
            status = Status.ACCESS
        done(status, missing, now)


def _ignore(status: Status, missing: list[ShardId], now: Micros) -> None:
    """It was told already."""
