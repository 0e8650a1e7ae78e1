"""Giving logs other nodesets after the cluster changed, some logs at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from logdevice_py.core.ids import Generation, LogId, ShardId
from logdevice_py.core.units import Micros
from sequencer.context import SequencerContext
from sequencer.sequencer import Sequencer

_TICK_US: Final = 20_000


class Reconfiguration:
    """A sweep over all logs: each is asked whether it wants another epoch. A change during a sweep begins another one after it."""

    __slots__ = ("_again", "_context", "_generations", "_logs", "_sequencers", "_unread")

    def __init__(self, context: SequencerContext, sequencers: dict[LogId, Sequencer]) -> None:
        self._context = context
        self._sequencers = sequencers
        self._logs: deque[LogId] = deque()
        self._unread: deque[LogId] = deque()
        """Logs whose attributes were not compared with the latest configuration."""
        self._again = False
        self._generations = self._known_generations()

    def on_cluster_state(self, now: Micros) -> None:
        """A shard may have taken a new generation, or have been heard of for the first time."""
        generations = self._known_generations()
        if generations != self._generations:
            self._generations = generations
            self.start(now)

    def on_config(self, now: Micros) -> None:
        """There is another configuration: logs may have gone, or have other attributes."""
        waiting = bool(self._unread)
        self._unread = deque(self._sequencers)
        if not waiting:
            self._read_attributes(now)
        self._generations = self._known_generations()
        self.start(now)

    def _read_attributes(self, now: Micros) -> None:
        context = self._context
        for _ in range(min(context.settings.configuration_logs, len(self._unread))):
            log = self._unread.popleft()
            self._read(log, now)
        context.metrics.sequencers = len(self._sequencers)
        if self._unread:
            context.timers.at(now + _TICK_US, self._read_attributes)

    def on_logs_changed(self, logs: Iterable[range] | None, now: Micros) -> None:
        """The log tree says something else of these logs; None: perhaps of any."""
        if logs is None:
            self.on_config(now)
            return
        for each in logs:
            for log in each:
                sequencer = self._read(LogId(log), now)
                if sequencer is not None:
                    sequencer.reconsider(now)
        self._context.metrics.sequencers = len(self._sequencers)

    def _read(self, log: LogId, now: Micros) -> Sequencer | None:
        """Compare the attributes of a log, which may have gone. Its sequencer, if it still has one."""
        sequencer, attributes = self._sequencers.get(log), self._context.config.log(log)
        if sequencer is None:
            return None
        if attributes is None:
            sequencer.remove(now)
            del self._sequencers[log]
            return None
        if attributes is not sequencer.attributes:
            sequencer.on_attributes(attributes, now)
        return sequencer

    def start(self, now: Micros) -> None:
        """Look at all logs."""
        if self._logs:
            self._again = True
        elif self._sequencers:
            self._logs.extend(self._sequencers)
            self._context.timers.at(now + self._context.settings.reconfiguration_tick_us, self._on_tick)

    def _on_tick(self, now: Micros) -> None:
        settings = self._context.settings
        for _ in range(min(settings.reconfiguration_logs, len(self._logs))):
            sequencer = self._sequencers.get(self._logs.popleft())
            if sequencer is not None:
                sequencer.reconsider(now)
        if self._logs:
            self._context.timers.at(now + settings.reconfiguration_tick_us, self._on_tick)
        elif self._again:
            self._again = False
            self.start(now)

    def _known_generations(self) -> dict[ShardId, Generation]:
        cluster = self._context.cluster
        return {shard: cluster.generation(shard) for shard in self._context.config.storage_shards()}
