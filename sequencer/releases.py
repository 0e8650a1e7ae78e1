"""Tells storage shards up to where each log may be read.

A release goes to the shards that stored the entry in one message a shard and turn: at once where a reader waits for the entry, else as soon
as there is another message to the node, or after a moment. All other shards of all nodesets of the log get it within `release_retry_us`. Logs that were released lately are sent once more every `release_broadcast_us`, and so is, bit by bit, every
idle log. A node that comes back is told about all logs. There is no timer per log, and nothing is kept for an idle one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Final, Protocol

from logdevice_py.core.ids import LogId, NodeId, ShardId, node_of, node_peer
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Outbox, TimerQueue
from logdevice_py.core.units import Micros
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.protocol.messages import LOGS_PER_FRAME, Release
from sequencer.settings import SequencerSettings

_TICK_US: Final = 20_000


class Released(Protocol):
    """What a log's sequencer says of its release."""

    log: LogId
    last_released: Lsn
    """0: nothing is released yet."""
    release_shards: tuple[ShardId, ...]
    """Of all nodesets of the log, ascending."""
    release_copyset: tuple[ShardId, ...]
    """The shards that were told of `last_released` already."""


class Releases:
    """Sends RELEASE for all logs of a node."""

    __slots__ = (
        "_batch",
        "_behind",
        "_broadcast_waiting",
        "_catching_up",
        "_cluster",
        "_connected",
        "_due",
        "_logs",
        "_outbox",
        "_recent",
        "_retry_waiting",
        "_settings",
        "_sweep",
        "_timers",
        "_urgent",
        "_waited_for",
    )

    def __init__(
        self,
        node: NodeId,
        logs: Mapping[LogId, Released],
        settings: SequencerSettings,
        outbox: Outbox,
        timers: TimerQueue,
        cluster: ClusterView,
    ) -> None:
        self._logs = logs
        self._settings = settings
        self._outbox = outbox
        self._timers = timers
        self._cluster = cluster
        self._connected = {node}
        self._batch: dict[ShardId, dict[LogId, Lsn]] = {}
        self._waited_for: dict[LogId, set[ShardId]] = {}
        """Shards at which readers wait for the next release of a log."""
        self._urgent: set[ShardId] = set()
        """Shards whose readers wait for what this turn released."""
        self._behind: dict[LogId, None] = {}
        """Released to the copyset of their last entry only."""
        self._recent: dict[LogId, None] = {}
        """Released since the last broadcast."""
        self._due: dict[LogId, None] = {}
        """What is left of the last broadcast."""
        self._sweep: deque[LogId] = deque()
        self._catching_up: dict[NodeId, deque[LogId]] = {}
        self._retry_waiting = False
        self._broadcast_waiting = False

    def use_settings(self, settings: SequencerSettings) -> None:
        """Go on with other settings; what was begun keeps its times."""
        self._settings = settings

    def waited_for(self, log: LogId, shard: ShardId) -> None:
        """The shard has a reader that gets its next entry when it is released."""
        if log in self._logs:
            self._waited_for.setdefault(log, set()).add(shard)

    def moved(self, log: Released, copyset: tuple[ShardId, ...], now: Micros) -> None:
        """The release pointer of a log moved; the shards of `copyset` (perhaps none) are told in this turn."""
        batch, log_id, lsn = self._batch, log.log, log.last_released
        for shard in copyset:
            logs = batch.get(shard)
            if logs is None:
                batch[shard] = {log_id: lsn}
            else:
                logs[log_id] = lsn
        if self._waited_for:
            waiting = self._waited_for.pop(log_id, None)
            if waiting is not None:
                self._urgent |= waiting
        self._behind[log_id] = None
        if not self._retry_waiting:
            self._retry_waiting = True
            self._timers.at(now + self._settings.release_retry_us, self._on_retry)

    def on_turn_end(self) -> None:
        """Send what the turn released."""
        if not self._batch:
            return
        for shard in sorted(self._batch):
            pairs: list[tuple[int, int]] = list(self._batch[shard].items())
            for start in range(0, len(pairs), LOGS_PER_FRAME):
                message = Release(shard=shard, logs=pairs[start : start + LOGS_PER_FRAME])
                if shard in self._urgent:
                    self._outbox.send(node_peer(shard), message)
                else:
                    self._outbox.send_deferrable(node_peer(shard), message)
        self._batch = {}
        self._urgent.clear()

    def on_peer_down(self, node: NodeId) -> None:
        """What was sent to a node may not have arrived; it is told everything when it is back."""
        self._connected.discard(node)
        self._catching_up.pop(node, None)

    def on_peer_up(self, node: NodeId, now: Micros) -> None:
        """Tell a node about all logs, some in each turn."""
        self._connected.add(node)
        if not self._logs:
            return
        if not self._catching_up:
            self._timers.at(now, self._on_catch_up)
        self._catching_up[node] = deque(self._logs)

    def _tell(self, log: Released, told: tuple[ShardId, ...] = ()) -> None:
        for shard in log.release_shards:
            if shard not in told and self._reachable(node_of(shard)):
                self._batch.setdefault(shard, {})[log.log] = log.last_released

    def reachable(self, shards: tuple[ShardId, ...]) -> tuple[ShardId, ...]:
        """Those that can be told."""
        return tuple(shard for shard in shards if self._reachable(node_of(shard)))

    def _reachable(self, node: NodeId) -> bool:
        return node in self._connected or self._cluster.is_alive(node)

    def _on_retry(self, now: Micros) -> None:
        self._retry_waiting = False
        behind = self._behind
        for log_id in list(islice(behind, self._settings.release_sweep_logs)):
            del behind[log_id]
            log = self._logs.get(log_id)
            if log is not None and log.last_released:  # 0: it left the cluster file and came back meanwhile
                self._tell(log, log.release_copyset)
                self._recent[log_id] = None
        if behind:
            self._retry_waiting = True
            self._timers.at(now + _TICK_US, self._on_retry)
        if not self._broadcast_waiting:
            self._broadcast_waiting = True
            self._timers.at(now + self._settings.release_broadcast_us, self._on_broadcast)

    def _on_broadcast(self, now: Micros) -> None:
        if not self._due:
            self._timers.at(now, self._on_due)
        if not self._sweep:
            self._sweep.extend(self._logs)
        idle = [self._sweep.popleft() for _ in range(min(self._settings.release_idle_logs, len(self._sweep)))]
        self._due.update(self._recent)
        self._due.update(dict.fromkeys(idle))
        self._recent = {}
        self._broadcast_waiting = bool(self._logs)
        if self._broadcast_waiting:
            self._timers.at(now + self._settings.release_broadcast_us, self._on_broadcast)

    def _on_due(self, now: Micros) -> None:
        due = self._due
        for log_id in list(islice(due, self._settings.release_sweep_logs)):
            del due[log_id]
            log = self._logs.get(log_id)
            if log is not None and log.last_released:
                self._tell(log)
        if due:
            self._timers.at(now + _TICK_US, self._on_due)

    def _on_catch_up(self, now: Micros) -> None:
        for node in sorted(self._catching_up):
            waiting = self._catching_up[node]
            for log_id in list(islice(waiting, self._settings.release_sweep_logs)):
                waiting.popleft()
                log = self._logs.get(log_id)
                if log is None or not log.last_released:
                    continue
                for shard in log.release_shards:
                    if node_of(shard) == node:
                        self._batch.setdefault(shard, {})[log_id] = log.last_released
            if not waiting:
                del self._catching_up[node]
        if self._catching_up:
            self._timers.at(now + _TICK_US, self._on_catch_up)
