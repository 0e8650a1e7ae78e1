"""After a crash: the logs of a shard that have dirty ranges, and when it is tried to get back what is gone (`LogHealing`).

A bounded number of logs is worked on at a time and at a bounded rate. A log of which nothing could be done waits longer each time, since most
often something is not released yet, or a shard is away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Final

from logdevice_py.core.ids import LogId, PeerId, format_shard
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Timer
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.protocol.messages import Digested, Fetched, SeqState
from storage_node.epochs.purge import StartHistoryReader
from storage_node.log_state import LogState
from storage_node.log_store.interface import ReadResult
from storage_node.lsn_ranges import format_ranges
from storage_node.repair.fetching import IsMadeGood, nothing_is_made_good
from storage_node.repair.log_healing import LogHealing
from storage_node.repair.notices import Notice
from storage_node.repair.throttle import Throttle
from storage_node.shard import Shard

_RETRY_FIRST: Final = 500 * MILLISECOND
_LOGS_NAMED: Final = 5
"""In a line of the node's log."""


class _Waiting:
    """A dirty log that is not worked on."""

    __slots__ = ("delay", "not_before", "waits_for")

    def __init__(self) -> None:
        self.not_before = Micros(0)
        self.delay = _RETRY_FIRST
        self.waits_for = "its turn"
        """For people."""


class HealingQueue:
    """The dirty logs of one shard. Which there are is known when it is opened; there are no more until it is opened anew."""

    def __init__(
        self,
        shard: Shard,
        cluster: ClusterView,
        start_reader: StartHistoryReader,
        request_ids: Iterator[int],
        found_damage: Callable[[LogState, ReadResult], None],
    ) -> None:
        """
        Args:
            found_damage: gets reads that met damage.
        """
        self.is_made_good: IsMadeGood = nothing_is_made_good
        self._shard = shard
        self._cluster = cluster
        self._start_reader = start_reader
        self._request_ids = request_ids
        self._found_damage = found_damage
        self._throttle = Throttle(shard.settings.healing_bytes_per_s)
        self._waiting: dict[LogId, _Waiting] = {
            log: _Waiting() for log, state in sorted(shard.logs.items()) if state.dirty is not None
        }
        self._due: list[tuple[Micros, LogId]] = [(Micros(0), log) for log in self._waiting]
        """When the turn of each waiting log comes, as a heap; logs that wait for something else by now are passed over."""
        self._running: dict[LogId, tuple[LogHealing, _Waiting]] = {}
        self._timer: Timer | None = None
        self._began: Micros | None = None
        self._restored = 0
        self._given_up = 0
        shard.metrics.dirty_logs += len(self._waiting)

    @property
    def dirty_logs(self) -> int:
        """Logs with dirty ranges."""
        return len(self._waiting) + len(self._running)

    def explain(self, state: LogState) -> str | None:
        """What the healing of a log does or waits for, for people; None: there is nothing to heal."""
        running = self._running.get(state.log)
        if running is not None:
            return running[0].state.value
        waiting = self._waiting.get(state.log)
        return None if waiting is None else f"waits for {waiting.waits_for}"

    def start(self, now: Micros) -> None:
        """Begin to heal; harmless when that was done."""
        if self._began is None:
            self._began = now
            if self._waiting:
                self._say("dirty ranges", self._opening_words())
                self._begin(now)

    def on_fetched(self, message: Fetched, now: Micros) -> None:
        """An answer of another shard."""
        for healing, _ in list(self._running.values()):
            healing.on_fetched(message, now)

    def on_seq_state(self, message: SeqState, now: Micros) -> None:
        """An answer of a sequencer."""
        running = self._running.get(message.log)
        if running is not None:
            running[0].on_seq_state(message, now)

    def on_digested(self, message: Digested, now: Micros) -> None:
        """An answer to the reader of a metadata log."""
        for healing, _ in list(self._running.values()):
            healing.on_digested(message, now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """Questions to the peer may be lost."""
        for healing, _ in list(self._running.values()):
            healing.on_peer_down(peer, now)

    def on_peer_up(self, now: Micros) -> None:
        """What was waited for may be there: do not wait for the retry."""
        if self._began is not None and self._waiting:
            soon = Micros(now + _RETRY_FIRST)
            for log, waiting in self._waiting.items():
                if waiting.not_before > soon:
                    self._wait(log, waiting, soon)
            self._begin(now)

    def stop_all(self) -> None:
        """The disk failed."""
        for healing, _ in self._running.values():
            healing.stop()
        self._shard.metrics.dirty_logs -= self.dirty_logs
        self._running.clear()
        self._waiting.clear()
        self._due.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _opening_words(self) -> str:
        named = []
        for log in list(self._waiting)[:_LOGS_NAMED]:
            dirty = self._shard.logs[log].dirty
            named.append(f"log {log} from {format_ranges(dirty or [])}")
        more = len(self._waiting) - len(named)
        rest = f" and {more} others" if more else ""
        return (
            f"the machine went down before all was on disk that was acknowledged of asynchronous logs: {len(self._waiting)} logs may lack "
            f"records here ({'; '.join(named)}{rest}); they are fetched from other shards, and readers get them from these meanwhile"
        )

    def _begin(self, now: Micros) -> None:
        """Take up the logs whose turn it is, or wait for one."""
        shard = self._shard
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if shard.failed:
            return
        while self._due and len(self._running) < shard.settings.healing_logs_max and self._due[0][0] <= now:
            due, log = heappop(self._due)
            waiting = self._waiting.get(log)
            if waiting is None or waiting.not_before != due:
                continue
            del self._waiting[log]
            state = shard.logs[log]
            state.forget_dirty(Lsn(0), state.trim_point)
            if state.dirty is None:
                shard.metrics.dirty_logs -= 1
                continue
            healing = LogHealing(
                shard,
                state,
                self._cluster,
                self._start_reader,
                self._request_ids,
                self._throttle,
                self._found_damage,
                self.is_made_good,
                self._on_finished,
            )
            shard.metrics.healings += 1
            self._running[log] = healing, waiting
            healing.start(now)
        if self._waiting and len(self._running) < shard.settings.healing_logs_max:
            self._timer = shard.timers.at(self._due[0][0], self._begin)
        elif not self.dirty_logs:
            self._closing_words(now)

    def _on_finished(self, healing: LogHealing, now: Micros) -> None:
        state = healing.log
        _, waiting = self._running.pop(state.log)
        self._restored += healing.restored
        if healing.given_up:
            self._given_up += 1
            self._shard.metrics.healings_given_up += 1
            text = (
                f"log {state.log}: entries from {format_ranges(healing.given_up)} may have lost all their copies, on several shards, when machines "
                "went down before they were on disk; every shard that could have one has answered, so what is not there is gone, and "
                "readers are told DATALOSS"
            )
            self._say("lost in a crash", text)
        if state.dirty is None:
            self._shard.metrics.dirty_logs -= 1
        else:
            if healing.progress:
                waiting.delay = _RETRY_FIRST
            not_before = Micros(now + waiting.delay)
            waiting.delay = min(2 * waiting.delay, max(_RETRY_FIRST, self._shard.settings.healing_retry_max_us))
            shards = ", ".join(map(format_shard, sorted(healing.waits_for)))
            waiting.waits_for = shards or healing.hindrance
            self._waiting[state.log] = waiting
            self._wait(state.log, waiting, not_before)
        self._begin(now)

    def _wait(self, log: LogId, waiting: _Waiting, until: Micros) -> None:
        waiting.not_before = until
        heappush(self._due, (until, log))

    def _closing_words(self, now: Micros) -> None:
        assert self._began is not None
        seconds = (now - self._began) / SECOND
        lost = f"; of {self._given_up} logs some may be gone for good" if self._given_up else ""
        text = (
            f"nothing is missing here any more because the machine went down: {self._restored} copies were stored again in "
            f"{seconds:.1f} s{lost}"
        )
        self._say("dirty ranges healed", text)

    def _say(self, kind: str, text: str) -> None:
        self._shard.out.emit(Notice(self._shard.shard, kind, text))
