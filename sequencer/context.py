"""What all sequencers of a node share, so that one log's objects stay small."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol

from logdevice_py.config.attributes import LogAttributes
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core import marks
from logdevice_py.core.ids import Generation, LogId, NodeId, ShardId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData
from logdevice_py.placement.cluster_placement import ClusterPlacement
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.policy import CopysetSource
from logdevice_py.protocol.requests import Requests
from logdevice_py.shell.principal_quotas import PrincipalQuotas
from sequencer.effects import LogNotice
from sequencer.epoch_store_calls import EpochStoreCalls
from sequencer.frames import Answers
from sequencer.metrics import SequencerMetrics
from sequencer.recovery.result import EpochContents, RecoveryResult
from sequencer.releases import Releases
from sequencer.rolling import RollTurns
from sequencer.settings import SequencerSettings
from sequencer.store_availability import Reason, StoreAvailability
from sequencer.store_timeouts import StoreTimeouts, StoreTimers

_INTERNED_MAX: Final = 10_000
_NODESETS_MAX: Final = 4_096
WallClock = Callable[[], Timestamp]


class Recoveries(Protocol):
    """The part of `sequencer.recovery.node_recoveries.NodeRecoveries` that a log's sequencer uses."""

    def start(
        self,
        log: LogId,
        next_epoch: Epoch,
        metadata: EpochMetaData,
        on_done: Callable[[RecoveryResult, Micros], None],
        now: Micros,
        *,
        on_sealed: Callable[[Epoch, Micros], None],
    ) -> None:
        """Recover everything below `next_epoch`, after an older recovery of the log. `on_done` is called once. `on_sealed` gets `next_epoch` once nothing
        more can be stored whole below it, unless the result comes first; perhaps more than once."""

    def supersede(self, log: LogId, now: Micros) -> None:
        """The log is in a later epoch here: its recovery goes on if that is of use."""

    def abort(self, log: LogId, now: Micros) -> None:
        """Stop without a result."""


class Busy(Protocol):
    """Something that waits for answers to STOREs."""

    def on_peer_down(self, node: NodeId, now: Micros) -> None:
        """The connection to a node broke."""

    def on_shard_slow(self, shard: ShardId, now: Micros) -> None:
        """A shard came onto the graylist."""


class HistoryQuestions(Protocol):
    """Asks shards which intervals of histories nobody needs."""

    def ask(
        self, log: LogId, history: Sequence[EpochInterval], done: Callable[[Epoch, Micros], None], now: Micros
    ) -> None:
        """As `sequencer.history_trim.HistoryTrims.ask`."""


class SequencerContext:
    """Seams and shared tables of one node's sequencers."""

    __slots__ = (
        "_acquainted_by",
        "_empty_epochs",
        "_histories",
        "_intervals",
        "_nodesets",
        "_selectors",
        "_shard_sets",
        "answers",
        "availability",
        "busy",
        "cluster",
        "config",
        "epoch_store",
        "history_trims",
        "metadata_moves",
        "metrics",
        "node",
        "outbox",
        "placement",
        "placement_version",
        "quotas",
        "recoveries",
        "releases",
        "requests",
        "rng",
        "roll_turns",
        "settings",
        "store_timeouts",
        "store_timers",
        "timers",
        "wall",
    )

    def __init__(
        self,
        node: NodeId,
        config: ClusterConfig,
        settings: SequencerSettings,
        outbox: Outbox,
        timers: TimerQueue,
        rng: Rng,
        wall: WallClock,
        cluster: ClusterView,
        requests: Requests,
        quotas: PrincipalQuotas | None = None,
    ) -> None:
        self.quotas = PrincipalQuotas(config) if quotas is None else quotas
        self.node = node
        self.config = config
        self.settings = settings
        self.outbox = outbox
        self.timers = timers
        self.rng = rng
        self.wall = wall
        self.cluster = cluster
        self.requests = requests
        self.metrics = SequencerMetrics()
        self.placement = ClusterPlacement(config, self._on_policy_refused)
        self.answers = Answers(outbox, self.metrics)
        self.roll_turns = RollTurns(settings, timers, rng, self.metrics)
        self.releases: Releases
        self.recoveries: Recoveries
        self.history_trims: HistoryQuestions
        self.availability = StoreAvailability(config, settings, outbox, timers, cluster, self.metrics, requests)
        self.store_timeouts = StoreTimeouts(settings, timers, self.metrics.store_latency)
        self.store_timers = StoreTimers(timers)
        self.epoch_store = EpochStoreCalls(settings, outbox, timers)
        self.busy: dict[Busy, None] = {}
        """Everything with entries on their way, in order of beginning: only these care for a broken connection."""
        self.placement_version = 1
        """Grows with every change of cluster state or configuration: what it decided must be decided again."""
        self.metadata_moves = 0
        """How often shards were taken out of the nodeset of metadata logs: what was written before has copies less."""
        self._selectors: dict[Hashable, CopysetSource] = {}
        self._intervals: dict[tuple[tuple[ShardId, Generation], ...], Mapping[ShardId, Generation]] = {}
        self._histories: dict[tuple[EpochInterval, ...], tuple[EpochInterval, ...]] = {}
        self._empty_epochs: dict[tuple[EpochContents, ...], tuple[EpochContents, ...]] = {}
        self._nodesets: dict[LogId, tuple[LogAttributes, tuple[ShardId, ...] | None]] = {}
        """Of logs that were asked for lately: an activation asks several times."""
        self._shard_sets: dict[tuple[ShardId, ...], tuple[ShardId, ...]] = {}
        self._acquainted_by: Micros | None = None

    def _on_policy_refused(self, text: str) -> None:
        self.metrics.placement_refusals += 1
        self.outbox.emit(LogNotice(LogId(0), "placement policy", f"{text}; the policy weighted chooses instead"))

    def acquainted_by(self, now: Micros) -> Micros:
        """From when on nobody waits to hear of shards that were not heard of. Asked when the first log of the node needs a nodeset."""
        if self._acquainted_by is None:
            self._acquainted_by = Micros(now + self.settings.acquaintance_us)
        return self._acquainted_by

    def use_settings(self, settings: SequencerSettings) -> None:
        """Go on with other settings; what was begun keeps its times, and write streams that are known their limits."""
        self.settings = self.roll_turns.settings = settings
        self.availability.use_settings(settings)
        self.store_timeouts.use_settings(settings)
        self.epoch_store.use_settings(settings)
        self.releases.use_settings(settings)

    def selector(self, domains: FailureDomains) -> CopysetSource:
        """Who chooses the copysets of a nodeset; logs of the same nodeset and domains share one."""
        key = domains.key
        selector = self._selectors.get(key)
        if selector is None:
            if len(self._selectors) >= _INTERNED_MAX:
                self._selectors.clear()
            here = self.config.nodes.get(self.node)
            at = None if here is None else here.location
            selector = self._selectors[key] = self.placement.copysets(domains, at, self.rng)
        return selector

    def generations(self, interval: EpochInterval) -> Mapping[ShardId, Generation]:
        """The generation of each shard of an interval; equal nodesets share one mapping."""
        known = self._intervals.get(interval.nodeset)
        if known is None:
            if len(self._intervals) >= _INTERNED_MAX:
                self._intervals.clear()
            known = self._intervals[interval.nodeset] = dict(interval.nodeset)
        return known

    def interned(self, metadata: EpochMetaData) -> EpochMetaData:
        """The same metadata; logs with equal histories share one object of them."""
        if len(self._histories) >= _INTERNED_MAX:
            self._histories.clear()
        history = self._histories.setdefault(metadata.history, metadata.history)
        return replace(metadata, history=history)

    def nodeset(self, log: LogId, attributes: LogAttributes) -> tuple[ShardId, ...] | None:
        """The nodeset that the configuration gives new epochs of a log; None when it asks for more than its shards can give."""
        known = self._nodesets.get(log)
        if known is not None and known[0] is attributes:
            return known[1]
        shards = None
        try:
            shards = self._shared(self.placement.select_nodeset(log, attributes))
        except LogDeviceError:
            marks.hit("no_nodeset")
        if len(self._nodesets) >= _NODESETS_MAX:
            self._nodesets.clear()
        self._nodesets[log] = attributes, shards
        return shards

    def interned_contents(self, epochs: tuple[EpochContents, ...]) -> tuple[EpochContents, ...]:
        """The same epochs; logs whose epochs held nothing share one object of them, others have their own."""
        if not all(epoch.nothing for epoch in epochs):
            return epochs
        if len(self._empty_epochs) >= _INTERNED_MAX:
            self._empty_epochs.clear()
        return self._empty_epochs.setdefault(epochs, epochs)

    def all_shards(self, metadata: EpochMetaData) -> tuple[ShardId, ...]:
        """The shards of all nodesets that a log ever had, ascending; equal sets share one tuple."""
        return self._shared(tuple(sorted({shard for interval in metadata.history for shard in interval.shards})))

    def _shared(self, shards: tuple[ShardId, ...]) -> tuple[ShardId, ...]:
        if len(self._shard_sets) >= _INTERNED_MAX:
            self._shard_sets.clear()
        return self._shard_sets.setdefault(shards, shards)

    def set_config(self, config: ClusterConfig) -> None:
        """There is another version of the cluster file."""
        if not set(self.config.metadata_log.nodeset) <= set(config.metadata_log.nodeset):
            self.metadata_moves += 1
        self.config = config
        self.placement.set_config(config)
        self.placement_version += 1
        self.forget_placement()

    def graylist(self, shard: ShardId, now: Micros) -> None:
        """A shard let a STORE time out while others answered: new waves avoid it, and those that are out do not wait for it much longer."""
        known = self.availability.reason(shard) is not None
        self.availability.block(shard, Reason.SLOW, now)
        if not known:
            for busy in list(self.busy):
                busy.on_shard_slow(shard, now)

    def forget_placement(self) -> None:
        """The configuration changed: weights, locations and nodesets may be others."""
        self._selectors.clear()
        self._nodesets.clear()
