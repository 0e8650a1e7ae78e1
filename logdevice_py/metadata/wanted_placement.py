"""Where the next epoch of a log shall be stored, as one node sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core import marks
from logdevice_py.core.ids import Generation, ShardId
from logdevice_py.core.lsn import EPOCH_MIN
from logdevice_py.metadata.epoch_metadata import EpochInterval


@dataclass(frozen=True, slots=True)
class WantedPlacement:
    """Where the next epoch of a log shall be stored, as far as this node knows the generations of the shards."""

    shards: tuple[ShardId, ...]
    writable: frozenset[ShardId]
    replication: ReplicationProperty
    generations: Mapping[ShardId, Generation]
    """Of the shards that were heard of."""
    location: Callable[[ShardId], Location | None]
    config_version: int
    """Of the cluster file that asks for it."""
    excluded_known: bool = True
    """Which shards are lost or drained is known."""
    extra_copies: int = 0

    @classmethod
    def of(
        cls,
        shards: tuple[ShardId, ...],
        replication: ReplicationProperty,
        config: ClusterConfig,
        generation: Callable[[ShardId], Generation],
        extra_copies: int = 0,
    ) -> WantedPlacement:
        """The shards chosen by a cluster file, in the generations that `generation` says; 0: not heard of."""
        return cls(
            shards,
            frozenset(config.writable_shards()),
            replication,
            {shard: known for shard in shards if (known := generation(shard))},
            config.location,
            config.version,
            config.excluded_known,
            extra_copies,
        )

    def unheard(self) -> list[ShardId]:
        """Those that should be listed, and cannot be yet."""
        return [shard for shard in self.shards if shard in self.writable and shard not in self.generations]

    def interval(self, current: EpochInterval | None) -> EpochInterval | None:
        """The interval to ask for. A shard that was not heard of keeps the generation that the current interval lists, or is left out; None
        when the rest cannot replicate, or the current interval was chosen from a later cluster file."""
        if current is not None and self.config_version < current.config_version:
            marks.hit("nodeset_of_older_cluster_file")  # whoever is behind does not undo what others did
            return None
        if current is not None and not self.excluded_known:
            # A shard that joins might be drained: what it gets then counts as re-replicated elsewhere. It joins when that is known.
            fewer = replace(self, shards=tuple(sorted(set(self.shards) & set(current.shards))), excluded_known=True)
            if interval := fewer.interval(current):
                marks.hit("nodeset_grows_later")
                return interval
        nodeset = []
        for shard in self.shards:
            before = current.generation(shard) if current is not None else None
            generation = max(self.generations.get(shard, Generation(0)), before or Generation(0))
            if generation:
                nodeset.append((shard, generation))
        if not nodeset:
            return None
        wanted = EpochInterval(
            EPOCH_MIN, tuple(nodeset), self.replication, self.config_version, extra_copies=self.extra_copies
        )
        wanted = wanted.labelled(self.location)
        if not wanted.domains(self.location).can_replicate([shard for shard, _ in nodeset if shard in self.writable]):
            return None
        return wanted
