"""What the donors of one node share: their surroundings and their requests to other shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import Generation, LogId, ShardId, node_peer
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.machine import Outbox, Rng, TimerQueue
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros
from logdevice_py.event_log.events import RebuildMode
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.event_log.settings import RebuildingMetrics, RebuildingSettings
from logdevice_py.membership.cluster_view import ClusterView, metadata_logs_writable
from logdevice_py.metadata.epoch_metadata import HISTORY_MAX, EpochInterval
from logdevice_py.metadata.wanted_placement import WantedPlacement
from logdevice_py.metadata.widening import lacks_places, widened
from logdevice_py.placement.cluster_placement import ClusterPlacement
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.protocol.messages import RebuildStore, RebuildStored, SeqStateFlags
from logdevice_py.protocol.requests import Requests
from storage_node.epochs.purge import StartHistoryReader
from storage_node.rebuilding.pace import AppendPressure
from storage_node.rebuilding.receiver import CopiesStored

SequencerAnswered = Callable[[Status, Micros], None]
AskSequencer = Callable[[LogId, Epoch, SeqStateFlags, SequencerAnswered, Micros], None]
"""(data log, epoch in which it must be at least, what is wanted of it, called once: OK when that is so; now). What is wanted: WAIT_FOR_RECOVERY, all epochs before the
sequencer's are recovered, and its metadata record is in the metadata log; WIDEN, the same, with an epoch that makes earlier nodesets wider first, where that helps;
STORE_METADATA, it stores its metadata record again."""


class RebuildRequests:
    """The REBUILD_STOREs under way from one node."""

    __slots__ = ("_out", "_pressure", "_requests", "_settings")

    def __init__(
        self,
        out: Outbox,
        requests: Requests,
        settings: RebuildingSettings,
        pressure: AppendPressure,
    ) -> None:
        self._out = out
        self._requests = requests
        self._settings = settings
        self._pressure = pressure

    def send(
        self,
        shard: ShardId,
        generation: Generation,
        log: LogId,
        images: list[tuple[Lsn, bytes]],
        done: CopiesStored,
        now: Micros,
    ) -> None:
        """Have copies stored by a shard; `done` is called once, in a later turn."""

        def answered(message: RebuildStored, now: Micros) -> None:
            self._pressure.hear(shard, message.append_percent, now)
            done(message.status, [Lsn(lsn) for lsn in message.lacking], now)

        request = self._requests.ask_shard(
            shard,
            RebuildStored,
            answered,
            failed=lambda status, now: done(status, [], now),
            deadline=now + self._settings.store_timeout_us,
        )
        self._out.send(
            node_peer(shard),
            RebuildStore(
                request_id=request,
                shard=shard,
                generation=generation,
                log=log,
                entries=[(int(lsn), len(image)) for lsn, image in images],
                images=b"".join(image for _, image in images),
            ),
        )


class TryLimit:
    """Of one donor in one round: who once waited in vain for a place does not wait as long for every record and log."""

    __slots__ = ("_tries_max", "exhausted")

    def __init__(self, tries_max: int) -> None:
        self._tries_max = tries_max
        self.exhausted = False

    def is_over(self, tries: int) -> bool:
        """Whether so many tries are enough."""
        over = tries > (1 if self.exhausted else self._tries_max)
        self.exhausted = self.exhausted or over
        return over


class DonorContext:
    """Of one node."""

    __slots__ = (
        "ask_sequencer",
        "cluster",
        "config",
        "metrics",
        "placement",
        "pressure",
        "requests",
        "rng",
        "set",
        "settings",
        "start_reader",
        "timers",
    )

    def __init__(
        self,
        config: ClusterConfig,
        settings: RebuildingSettings,
        metrics: RebuildingMetrics,
        out: Outbox,
        timers: TimerQueue,
        rng: Rng,
        cluster: ClusterView,
        requests: Requests,
        start_reader: StartHistoryReader,
        ask_sequencer: AskSequencer,
    ) -> None:
        self.config = config
        self.placement: Final = ClusterPlacement(config)
        self.settings: Final = settings
        self.metrics: Final = metrics
        self.timers: Final = timers
        self.rng: Final = rng
        self.cluster: Final = cluster
        self.start_reader: Final = start_reader
        self.ask_sequencer: Final = ask_sequencer
        self.pressure: Final = AppendPressure()
        self.requests: Final = RebuildRequests(out, requests, settings, self.pressure)
        self.set = RebuildingSet()

    def set_config(self, config: ClusterConfig) -> None:
        """There is another version of the cluster's configuration."""
        self.config = config
        self.placement.set_config(config)

    def affected(self, interval: EpochInterval) -> Mapping[ShardId, RebuildMode]:
        """The shards of a nodeset that are lost or being emptied, in the generation that the epochs list: which of both."""
        return {
            shard: RebuildMode.RESTORE if generation <= entry.lost else RebuildMode.RELOCATE
            for shard, generation in interval.nodeset
            if (entry := self.set.find(shard, generation)) is not None
        }

    def is_eligible(self, shard: ShardId, interval: EpochInterval) -> bool:
        """Whether the shard may take copies of entries of these epochs at this moment."""
        return (
            self.cluster.serves(shard)
            and self.cluster.generation(shard) == interval.generation(shard)
            and self.config.is_writable(shard)
            and self.config.location(shard) is not None
        )

    def is_left_soon(self, log: LogId, history: Sequence[EpochInterval]) -> bool:
        """Whether the log gets an epoch without the shards that are lost or being emptied as soon as its sequencer knows of them, as far as this node sees.
        False: something is in the way that nobody may ever clear."""
        config, attributes = self.config, self.config.log(log)
        if attributes is None or len(history) >= HISTORY_MAX or not metadata_logs_writable(config, self.cluster):
            return False
        try:
            shards = self.placement.select_nodeset(log, attributes)
        except LogDeviceError:
            return False
        placement = WantedPlacement.of(shards, attributes.replication, config, self.cluster.generation)
        wanted = placement.interval(history[-1])
        return wanted is not None and not self.affected(wanted)

    def lacks_places(self, interval: EpochInterval) -> bool:
        """Whether the shards of a nodeset that are left cannot hold a copyset, whoever is dead at the moment."""
        return lacks_places(interval, self.config, self.cluster, self.affected(interval))

    def may_widen(self, interval: EpochInterval) -> bool:
        """Whether there are shards which would make the nodeset one on which new copysets fit, as far as this node sees."""
        open_shards = [entry.shard for entry in self.set.open_shards]
        return widened(interval, (), self.config, self.cluster, open_shards) is not None

    def is_removed(self, log: LogId) -> bool:
        """Whether the log is in the cluster file and the log tree no more. An old file says nothing of logs that came after it, whoever has it."""
        return self.config.is_absent(log) and self.cluster.config_version <= self.config.version

    def re_replicated_by_now(self) -> Callable[[ShardId, Generation], bool]:
        """What tells, by the events up to now, whether all that a shard held in some generation was certainly re-replicated."""
        restored = {shard: min(entry.restored, entry.generation) for shard, entry in self.set.shards.items()}
        return lambda shard, generation: generation <= restored.get(shard, 0)

    def is_unrecoverable(self, shard: ShardId, generation: Generation) -> bool:
        """Whether the shard serves nobody, and nobody waits for what it held in that generation."""
        is_gone = not self.cluster.serves(shard) and not self.cluster.isolated()
        return is_gone and self.set.authority(shard, generation) is not Authority.FULLY_AUTHORITATIVE

    def is_taken_for_lost(self, shard: ShardId, generation: Generation) -> bool:
        """Whether the shard began anew after that generation, or others restore what it held. It may come back with its data."""
        entry = self.set.shards.get(shard)
        return generation < self.cluster.generation(shard) or (entry is not None and generation <= entry.lost)

    def is_present(self, shard: ShardId, generation: Generation) -> bool:
        """Whether that is the generation of the shard, as far as this node has heard of it."""
        return self.cluster.generation(shard) == generation

    def may_hide_records(self, shards: Iterable[tuple[ShardId, Generation]]) -> list[ShardId]:
        """Those among `shards` that are lost in that generation, and whose records have not certainly been re-replicated: if a copyset fits on these
        alone, a record may be gone."""
        return [
            shard
            for shard, generation in shards
            if (entry := self.set.find(shard, generation)) is not None and entry.restored < generation <= entry.lost
        ]
