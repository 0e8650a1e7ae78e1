"""Which epochs of a log may be short of copies because shards have lost what they held, judged by the log's epoch metadata alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from logdevice_py.config.location import Location
from logdevice_py.core.ids import Generation, ShardId, format_shard
from logdevice_py.core.lsn import ESN_MAX, Epoch, Lsn, compose_lsn
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData

_UNKNOWN = Generation(0)


@dataclass(frozen=True, slots=True)
class ShardsPresent:
    """The shards of the cluster as one node knows them: their present generations, and what was re-replicated elsewhere of earlier ones."""

    generations: tuple[tuple[ShardId, Generation], ...]
    """Of each shard of the cluster file; 0: not heard of yet."""
    restored: tuple[tuple[ShardId, Generation], ...] = ()
    """What a shard held in its generations up to this one has all its copies on other shards."""

    def has_lost(self, shard: ShardId, generation: Generation) -> bool:
        """Whether the copies that a shard held in this generation are gone, and were not made again elsewhere."""
        if generation == _UNKNOWN or generation <= dict(self.restored).get(shard, _UNKNOWN):
            return False
        # a shard that left the cluster file has nothing that anybody could read
        present = dict(self.generations).get(shard)
        return present is None or present > generation


def restored_by(state: RebuildingSet) -> tuple[tuple[ShardId, Generation], ...]:
    """What the event log says of copies that were made again."""
    return tuple((shard, entry.restored) for shard, entry in sorted(state.shards.items()) if entry.restored)


@dataclass(frozen=True, slots=True)
class LossyEpochs:
    """Consecutive epochs of a log with one nodeset, of which some shards have lost what they held."""

    since: Epoch
    until: Epoch
    lost: tuple[tuple[ShardId, Generation], ...]
    """The shards, with the generations that these epochs list."""
    intact: tuple[ShardId, ...]
    """All other shards of the nodeset."""
    may_be_gone: bool
    """The lost shards suffice for a copyset: records may have no copy left."""

    @property
    def first(self) -> Lsn:
        """The first LSN of the epochs."""
        return compose_lsn(self.since, 1)

    @property
    def last(self) -> Lsn:
        """The last LSN of the epochs."""
        return compose_lsn(self.until, ESN_MAX)

    @property
    def tellers(self) -> frozenset[ShardId]:
        """The shards that tell of records that may be gone: those that know how far the log is trimmed, if there are any."""
        return frozenset(self.intact or (shard for shard, _ in self.lost))

    def describe_lost(self) -> str:
        """The lost shards and generations, like ``N1:S0=1, N3:S0=2``."""
        return ", ".join(f"{format_shard(shard)}={generation}" for shard, generation in self.lost)


def lossy_epochs(
    metadata: EpochMetaData, present: ShardsPresent, location: Callable[[ShardId], Location | None]
) -> list[LossyEpochs]:
    """The epochs of a log whose nodesets list shards that have lost what they held, ascending."""
    found = []
    following = [each.since for each in metadata.history[1:]]
    for interval, after in itertools.zip_longest(metadata.history, following):
        assert interval is not None
        each = _judge(interval, metadata.given_epoch if after is None else Epoch(after - 1), present, location)
        if each is not None:
            found.append(each)
    return found


def _judge(
    interval: EpochInterval, until: Epoch, present: ShardsPresent, location: Callable[[ShardId], Location | None]
) -> LossyEpochs | None:
    lost = tuple(sorted((shard, listed) for shard, listed in interval.nodeset if present.has_lost(shard, listed)))
    if not lost:
        return None
    gone = [shard for shard, _ in lost]
    return LossyEpochs(
        interval.since,
        until,
        lost,
        tuple(shard for shard in interval.shards if shard not in gone),
        interval.domains(location).can_replicate(gone),
    )
