"""Logs that no node uses: the node that they are located at takes them to another epoch when shards of their open epochs depart.

The last epoch of a log is open: nobody can say what it holds before an f-majority of its shards was sealed. While the log is used, its sequencer
takes another epoch as soon as a shard departs, which recovers the last one. Of a log that no sequencer looks after shards could depart one by one,
until too few are left to prove that its last epoch is empty, and readers are told of a loss that is none.

A shard has departed when it left the cluster file, takes no new records (also because the event log says that it is lost or drained), or began
anew with a later generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from epoch_store.interface import GetLastCleanEpoch, LastCleanEpoch, ReadMetadata, Result
from logdevice_py.core.ids import (
    INTERNAL_LOGS,
    Generation,
    LogId,
    NodeId,
    ShardId,
)
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import HISTORY_MAX, EpochInterval, EpochMetaData
from logdevice_py.placement.sequencer_locator import locate_sequencer
from sequencer.activation import wanted_placement
from sequencer.context import SequencerContext
from sequencer.sequencer import Sequencer, SequencerPhase

if TYPE_CHECKING:
    from sequencer.sequencer import Sequencer

_TICK_US: Final = 20_000
_RETRY_US: Final = 1_000_000
"""After this a log of which the epoch store did not tell is asked for again."""


class IdleLogPasses:
    """A pass over all logs after each change of the cluster; a change during a pass begins another one after it."""

    __slots__ = (
        "_again",
        "_asked",
        "_context",
        "_failed",
        "_known",
        "_logs",
        "_moving",
        "_planned",
        "_sequencers",
        "_start_recovery",
    )

    def __init__(
        self,
        sequencers: Mapping[LogId, Sequencer],
        start_recovery: Callable[[LogId, Micros], tuple[Status, NodeId]],
        context: SequencerContext,
    ) -> None:
        self._sequencers = sequencers
        self._start_recovery = start_recovery
        self._context = context
        self._known: object = None
        self._planned = False
        self._again = False
        self._logs: Iterator[LogId] | None = None
        """What the pass has not looked at yet; None: no pass is under way."""
        self._asked: set[LogId] = set()
        """Logs of which the epoch store is to tell."""
        self._failed: list[LogId] = []
        """Logs of which it did not tell."""
        self._moving: set[LogId] = set()
        """Logs whose earlier epochs were not all recovered when the pass came to them."""

    @property
    def departures_handled(self) -> bool:
        """Whether no open epoch of the logs that are located here lists a shard that departed, as far as others can take its place."""
        is_known = self._context.config.all_logs_known
        return is_known and not self._planned and self._logs is None and not self.waiting()

    @property
    def passing(self) -> bool:
        """Whether a pass is planned or under way."""
        return self._planned or self._logs is not None

    def waiting(self) -> list[LogId]:
        """The logs that are on their way to an epoch whose shards are all there, ascending."""
        self._moving = {log for log in self._moving if self._is_moving(log)}
        return sorted(self._moving)

    def on_change(self, now: Micros) -> None:
        """The cluster file, the event log, the log tree or the state of nodes may say something else than before."""
        context = self._context
        cluster, config = context.cluster, context.config
        known = (
            config.writable_shards(),
            config.storage_shards(),
            tuple(cluster.generation(shard) for shard in config.storage_shards()),
            tuple(node for node in config.sequencer_nodes() if cluster.may_sequence(node)),
            config.all_logs_known,
        )
        if known == self._known:
            return
        self._known = known
        if self._planned:
            return
        if self._logs is not None:
            self._again = True
            return
        self._planned = True
        context.timers.at(now + context.settings.idle_logs_delay_us, self._begin)

    def _begin(self, now: Micros) -> None:
        self._planned = False
        self._logs = self._all_logs()
        self._on_tick(now)

    def _all_logs(self) -> Iterator[LogId]:
        for log in INTERNAL_LOGS:
            if self._context.config.log(log) is not None:
                yield log
        yield from self._context.config.log_ids()

    def _on_tick(self, now: Micros) -> None:
        context = self._context
        assert self._logs is not None
        looked_at = 0
        if len(self._asked) < context.settings.idle_logs_asked:
            for log in islice(self._logs, context.settings.idle_logs_per_step):
                looked_at += 1
                self._look_at(log, now)
        if looked_at or self._asked:
            context.timers.at(now + _TICK_US, self._on_tick)
        elif self._failed:
            hit("idle_logs_asked_for_again")
            self._logs, self._failed = iter(self._failed), []
            context.timers.at(now + _RETRY_US, self._on_tick)
        else:
            self._logs = None
            if self._again:
                self._again = False
                self._planned = True
                context.timers.at(now + context.settings.idle_logs_delay_us, self._begin)

    def _look_at(self, log: LogId, now: Micros) -> None:
        context = self._context
        sequencer = self._sequencers.get(log)
        if sequencer is not None and self._is_used(sequencer):
            sequencer.reconsider(now)
            if self._is_moving(log):
                self._moving.add(log)
        elif self._is_ours(log):
            self._asked.add(log)
            context.epoch_store.submit(ReadMetadata(log), partial(self._on_metadata, log), now)

    @staticmethod
    def _is_used(sequencer: Sequencer) -> bool:
        return sequencer.state is SequencerPhase.ACTIVE or sequencer.activation is not None

    def _is_ours(self, log: LogId) -> bool:
        context = self._context
        cluster = context.cluster
        if not cluster.may_sequence(context.node) or cluster.isolated():
            return False
        return locate_sequencer(log, context.config, cluster.may_sequence) == context.node

    def _is_moving(self, log: LogId) -> bool:
        """Whether the sequencer here has an epoch or wants one, and what was before is not recovered."""
        sequencer = self._sequencers.get(log)
        if sequencer is None or not self._is_used(sequencer):
            return False
        return sequencer.activation is not None or not sequencer.is_released

    def _on_metadata(self, log: LogId, result: Result | None, now: Micros) -> None:
        if result is None or result.status not in (Status.OK, Status.EMPTY):
            self._asked.discard(log)
            self._failed.append(log)
            return
        metadata = result.value
        if (
            not isinstance(metadata, EpochMetaData)
            or metadata.disabled
            or not any(map(self._departed, metadata.history))
        ):
            self._asked.discard(log)
            return
        operation = GetLastCleanEpoch(log)
        self._context.epoch_store.submit(operation, partial(self._on_last_clean_epoch, log, metadata), now)

    def _on_last_clean_epoch(self, log: LogId, metadata: EpochMetaData, result: Result | None, now: Micros) -> None:
        self._asked.discard(log)
        if result is None or result.status is not Status.OK:
            self._failed.append(log)
            return
        assert isinstance(result.value, LastCleanEpoch), result
        sequencer = self._sequencers.get(log)
        if (sequencer is not None and self._is_used(sequencer)) or not self._is_ours(log):
            return
        if self._needs_epoch(log, metadata, result.value.epoch):
            hit("idle_log_leaves_departed_shards")
            status, _ = self._start_recovery(log, now)
            if status is Status.OK:
                self._moving.add(log)

    def _departed(self, interval: EpochInterval) -> list[tuple[ShardId, Generation]]:
        """The shards of an interval that are not, or not what they were, when it began."""
        config, cluster = self._context.config, self._context.cluster
        if config.version < interval.config_version:
            return []
        return [
            (shard, generation)
            for shard, generation in interval.nodeset
            if not config.is_writable(shard) or cluster.generation(shard) > generation
        ]

    def _needs_epoch(self, log: LogId, metadata: EpochMetaData, clean: Epoch) -> bool:
        """Whether another epoch would recover one that lists departed shards, without listing them itself."""
        following = [interval.since for interval in metadata.history[1:]]
        for interval, since in zip(metadata.history, following, strict=False):
            if since - 1 > clean and self._departed(interval):
                return True
        current = metadata.current
        departed = self._departed(current)
        if departed and clean + 1 < metadata.given_epoch:
            return True  # several epochs are open
        attributes = self._context.config.log(log)
        if not departed or attributes is None or len(metadata.history) >= HISTORY_MAX:
            return False
        placement = wanted_placement(log, attributes, self._context)
        wanted = None if placement is None else placement.interval(current)
        return wanted is not None and not set(departed) <= set(wanted.nodeset)
