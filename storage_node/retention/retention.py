"""Retention: the trim points of a shard's logs follow their `backlog_us`, and the space that the disk has left.

By time, partition by partition, each shard for itself. A partition is expired for a log when the youngest of its entries, by what the
store says of it, is older than the log's backlog and a margin, and all partitions before it are expired too; then everything that the log
has there is trimmed, as far as it is released.

Clocks are not trusted alone. An entry counts as old only when both agree: its record's timestamp (a sequencer's clock) and the time when its
partition was closed (this node's clock). The present is the earliest of this node's clock, the newest record's timestamp, and what half of the
other nodes' clocks have reached, as `TrimExchange` hears them; the latter two with the time that has passed since. What a partition holds that was
closed in this run is no younger than the time since then by the monotonic clock. So a clock that is wrong makes retention late and not early; except
one that was behind while a node both sequenced and stored, if that node was restarted before it was put right.
A shard that nothing is written to and that was started again is late by the time for which it was down; one that does not hear of half of the others waits.

By space, where that is asked for: when the disk runs full, the oldest partitions are trimmed for all logs, as far as they are released.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Final

from logdevice_py.core.ids import TREE_LOG_ID_MIN, LogId, NodeId
from logdevice_py.core.lsn import ESN_MAX, Lsn, compose_lsn, epoch_of
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros, Timestamp
from storage_node.log_state import LogState
from storage_node.log_store.interface import NO_RECORD, DirectoryResult
from storage_node.log_store.keys import is_partitioned
from storage_node.retention.trim import TrimHandler
from storage_node.shard import Shard

_CONFIRMED_US: Final = 30 * SECOND
"""For so long after the log tree was known whole, what it says of backlogs holds."""
_LONG_AGO: Final = Micros(-(1 << 62))


class AgreedClock:
    """A time that this node's clock has reached, that the newest record says has been reached, and that half of the other nodes say so too."""

    __slots__ = ("_heard", "_newest", "_others", "_seen_at", "_wall")

    def __init__(self, wall: Callable[[], Timestamp], others: Callable[[], Collection[NodeId]] = tuple) -> None:
        """
        Args:
            wall: this node's clock.
            others: the other storage nodes, as the cluster file says.
        """
        self._wall = wall
        self._others = others
        self._newest = NO_RECORD
        self._seen_at = Micros(0)
        self._heard: dict[NodeId, tuple[Timestamp, Micros]] = {}
        """What other nodes' clocks said, and when that was heard."""

    def observe(self, newest: Timestamp, now: Micros) -> None:
        """A record of this timestamp is stored."""
        if newest > self._newest:
            self._newest, self._seen_at = newest, now

    def hear(self, node: NodeId, wall: Timestamp, now: Micros) -> None:
        """What another node's clock said a moment ago."""
        self._heard[node] = (wall, now)

    def wall(self) -> Timestamp:
        """This node's clock, to be told to others."""
        return self._wall()

    def read(self, now: Micros) -> Timestamp:
        """The time; 0 as long as there is no record, or too few other nodes were heard of."""
        if self._newest == NO_RECORD:
            return Timestamp(0)
        present = min(self._wall(), self._newest + (now - self._seen_at))
        others = self._others()
        if others:
            needed = (len(others) + 1) // 2
            told = sorted(
                (wall + (now - at) for node, (wall, at) in self._heard.items() if node in others), reverse=True
            )
            present = min(present, told[needed - 1]) if len(told) >= needed else 0
        return Timestamp(max(present, 0))


def beside_bridge(state: LogState, point: Lsn) -> Lsn:
    """Where to trim instead of `point` so that the end of an epoch stays explained: the rest of an epoch whose bridge is gone would look lost.

    With its bridge the whole rest of the epoch goes; the bridge stays when it is the last that is released, and where it is not known here
    whether it is one.
    """
    epoch = epoch_of(point)
    if not epoch or epoch > state.clean_epoch:
        return point  # no bridge of it is released
    ended = None if state.recovered is None else state.recovered.get(epoch)
    bridge = Lsn(point) if ended is None else compose_lsn(epoch, ended.last_digest_esn)
    if point < bridge:
        return point
    if ended is None or epoch == epoch_of(state.last_released):
        hit("retention_stops_before_bridge")
        return Lsn(bridge - 1)
    hit("retention_takes_bridge")
    return compose_lsn(epoch, ESN_MAX)


class Retention:
    """Trims one shard's logs."""

    __slots__ = (
        "_clock",
        "_closed_at",
        "_done",
        "_ends",
        "_incomplete",
        "_logs",
        "_looked",
        "_running",
        "_shard",
        "_space_done",
        "_space_end",
        "_trim",
    )

    def __init__(self, shard: Shard, trim: TrimHandler, clock: AgreedClock) -> None:
        self._shard = shard
        self._trim = trim
        self._clock = clock
        self._closed_at: dict[int, Micros] = {}
        """When each partition was first seen to be closed, by the monotonic clock; of those that were closed when the process began: never."""
        self._looked = False
        self._running = False
        self._ends: dict[int, int] = {}
        """Per backlog, the last partition that is expired for it."""
        self._done: dict[int, int] = {}
        """The same as it was when all logs were last looked at."""
        self._logs: Iterator[LogState] = iter(())
        self._space_end = 0
        """The last partition that goes because the disk runs full; 0: none."""
        self._space_done = 0
        """Everything up to here was trimmed for space, as far as it is released."""
        self._incomplete = False
        """Logs may have expired entries that were left: these were not all released, or logs are to be kept for another time since."""

    def start(self, now: Micros) -> None:
        """Begin to look after the logs; once."""
        self._arm(now)

    def on_config(self) -> None:
        """A newer cluster file, or log tree."""
        self._incomplete = True

    def _arm(self, now: Micros) -> None:
        self._shard.timers.at(Micros(now + self._shard.settings.retention_interval_us), self._check)

    def _check(self, now: Micros) -> None:
        shard = self._shard
        if shard.status() is not Status.OK:
            return
        self._arm(now)
        if not self._running:
            self._running = True
            shard.reads.read_directory([], self._on_partitions)

    def _backlogs(self) -> set[int]:
        return {backlog for backlog in self._shard.config.values_in_use("backlog_us") if backlog}

    def _on_partitions(self, result: DirectoryResult, now: Micros) -> None:
        """How old the partitions are."""
        self._running = False
        if result.status is not Status.OK:
            return
        self._clock.observe(result.newest_record, now)
        limit = self._clock.read(now) - self._shard.settings.retention_margin_us
        self._note_closed(result, now)
        closed_at = self._closed_at
        self._ends = {}
        for backlog in sorted(self._backlogs()):
            for number, youngest in result.partitions:
                if youngest + backlog > limit or closed_at[number] + backlog > now:
                    break
                self._ends[backlog] = number
        space_end = self._next_for_space(result)
        if (self._ends and (self._ends != self._done or self._incomplete)) or space_end:
            self._space_end = space_end
            self._running = True
            self._incomplete = False
            self._logs = iter(list(self._shard.logs.values()))
            self._ask(now)

    def _note_closed(self, result: DirectoryResult, now: Micros) -> None:
        """What was written before a partition was closed is not younger than the time since then, whatever any wall clock says."""
        first_seen = now if self._looked else _LONG_AGO
        self._closed_at = {number: self._closed_at.get(number, first_seen) for number, _ in result.partitions}
        self._looked = True

    def _next_for_space(self, result: DirectoryResult) -> int:
        """The last partition to trim so that space comes back. When everything up to the one asked for is trimmed as far as it can be, and that
        did not suffice, the next one goes as well."""
        if not result.space_end:
            self._space_done = 0
        elif result.space_end <= self._space_done:
            return next((number for number, _ in result.partitions if number > self._space_done), 0)
        return result.space_end

    def _ask(self, now: Micros) -> None:
        """Ask what the next logs have in expired partitions."""
        shard, ends = self._shard, self._ends
        left = shard.settings.retention_logs_per_turn
        asked: list[tuple[LogId, int]] = []
        for state in self._logs:
            if is_partitioned(state.log):
                attributes = shard.config.log(state.log)
                end = 0 if attributes is None else ends.get(attributes.backlog_us, 0)
                if end and state.log >= TREE_LOG_ID_MIN and not self._is_confirmed(state.log, now):
                    end, self._incomplete = 0, True
                if end or self._space_end:
                    asked.append((state.log, max(end, self._space_end)))
            left -= 1
            if not left:
                break
        else:
            if not asked:
                self._running = False
                self._done = ends
                if self._space_end:
                    self._space_done, self._space_end = self._space_end, 0
                return
        shard.reads.read_directory(asked, self._on_logs)

    def _is_confirmed(self, log: LogId, now: Micros) -> bool:
        """Whether its backlog is known to be what it is now: that it was raised may not have come here yet."""
        config = self._shard.config
        since = config.run_time_logs.confirmed_since()
        if config.logs.group(log) is not None or (since >= 0 and now - since <= _CONFIRMED_US):
            return True
        hit("retention_awaits_log_tree")
        return False

    def _on_logs(self, result: DirectoryResult, now: Micros) -> None:
        """What they have there."""
        if result.status is not Status.OK:
            self._running = False
            return
        moved = []
        for log, highest in result.highest:
            state = self._shard.logs[log]
            if state.last_released < highest:
                self._incomplete = True
            point = beside_bridge(state, min(highest, state.last_released))
            if point > state.trim_point:
                state.trim_point = point
                moved.append(state)
        if moved:
            if self._space_end:
                hit("space_trimmed")
                self._shard.metrics.space_trims += len(moved)
            else:
                hit("retention_trimmed")
                self._shard.metrics.retention_trims += len(moved)
            self._trim.expire(moved)
        self._ask(now)
