"""Wider nodesets for epochs that have ended, so that rebuilding finds places for copies where too few shards of the nodeset are left.

Only a nodeset whose epochs are all clean is widened, and no shard ever leaves one. Why that hides nothing:

1. *Copies follow the record*: a donor stores on a shard that joined only when the wider nodeset is fully stored in the metadata log.
2. *Old copysets*: the labels of those that were there stay as they are, and every scope could be satisfied before. A set of shards that misses fewer domains of
   the wider nodeset than a copyset has, misses no more of the narrower one: an f-majority of the wider nodeset meets every copyset of the narrower.
3. *What joined* never held anything of the epochs, so that it has nothing says the truth. How the epochs ended only the others know (`EpochInterval.original`).
4. *Who has an older history* goes wrong only where lost shards are left out of account, or too many are lost: then it has to be read again (`client/read`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.core.ids import NODESET_SIZE_MAX, Generation, ShardId
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.failure_domains import FailureDomains, Labels, domain_labels, labelled_scopes, numbered


class ShardsHeard(Protocol):
    """What this node has heard of shards."""

    def generation(self, shard: ShardId) -> Generation:
        """The latest generation of the shard that was heard of; 0 if none."""

    def serves(self, shard: ShardId) -> bool:
        """Its node is alive, and did not say that the shard's disk failed."""


@dataclass(frozen=True, slots=True)
class Widening:
    """A nodeset of epochs that are all clean, and the wider one that replaces it."""

    narrow: EpochInterval
    wide: EpochInterval
    """Its `widened` is that of `narrow`: with which epoch it is changed is not known yet."""


def lacks_places(
    interval: EpochInterval, config: ClusterConfig, cluster: ShardsHeard, gone: Collection[ShardId] = ()
) -> bool:
    """Whether the shards of a nodeset that are left, as the cluster file and the event log say, whoever is dead at the moment, cannot hold a copyset.

    Args:
        gone: shards that are not left, whatever else is said.
    """
    left = _left(interval, config, cluster, gone)
    return not interval.domains(config.location).can_replicate(left)


def widened(
    interval: EpochInterval,
    wanted: Iterable[ShardId],
    config: ClusterConfig,
    cluster: ShardsHeard,
    gone: Collection[ShardId] = (),
) -> Widening | None:
    """The nodeset with as many more shards that serve as make it one on which new copysets fit; None: it needs none, or none would help.

    Args:
        wanted: the shards on which new epochs of the log are to be stored. All of them join before any other does, so that they share what is to be stored.
        gone: shards that are not left, whatever else is said.
    """
    old = set(interval.shards)
    left = _left(interval, config, cluster, gone)
    usable = [shard for shard in left if cluster.serves(shard)]
    domains = interval.domains(config.location)
    if interval.labels is None or domains.can_replicate(usable) or not domains.can_replicate(interval.shards):
        return None
    if len(left) == len(old):
        return None  # those that are away come back
    others = [
        shard
        for shard in config.writable_shards()
        if shard not in old and shard not in gone and _may_join(shard, config, cluster)
    ]
    first = [shard for shard in wanted if shard in others]
    rest = [shard for shard in others if shard not in first]
    for count in range(len(rest) + 1):
        added = sorted([*first, *rest[:count]])
        if not added:
            continue
        if len(old) + len(added) > NODESET_SIZE_MAX:
            return None
        wide = _with(interval, added, config, cluster)
        if wide.domains(config.location).can_replicate([*usable, *added]):
            return Widening(interval, wide)
    return None


def _left(
    interval: EpochInterval, config: ClusterConfig, cluster: ShardsHeard, gone: Collection[ShardId]
) -> list[ShardId]:
    return [
        shard
        for shard, generation in interval.nodeset
        if config.is_writable(shard) and cluster.generation(shard) == generation and shard not in gone
    ]


def _may_join(shard: ShardId, config: ClusterConfig, cluster: ShardsHeard) -> bool:
    return config.location(shard) is not None and bool(cluster.generation(shard)) and cluster.serves(shard)


def _with(
    interval: EpochInterval, added: Sequence[ShardId], config: ClusterConfig, cluster: ShardsHeard
) -> EpochInterval:
    domains = interval.domains(config.location)
    nodeset = (*interval.nodeset, *((shard, cluster.generation(shard)) for shard in added))
    return replace(
        interval,
        nodeset=tuple(sorted(nodeset)),
        labels=extended_labels(domains, added, config.location),
        config_version=max(interval.config_version, config.version),
        joined=tuple(sorted({*interval.joined, *added})),
    )


def extended_labels(
    domains: FailureDomains, added: Iterable[ShardId], location: Callable[[ShardId], Location | None]
) -> Labels:
    """The labels of a nodeset with more shards. Those of the shards that are there do not change, whatever the cluster file says of them by now. One that joins is put
    into the smallest domain in which the file says that another one of the nodeset is, and is alone in the smaller ones."""
    replication = domains.replication
    levels = range(len(labelled_scopes(replication)))
    names: dict[ShardId, tuple[object, ...]] = {
        shard: labels[: len(levels)] for shard, labels in sorted(domains.by_shard.items())
    }
    by_file = {shard: domain_labels(shard, replication, location) for shard in names}
    for shard in added:
        mine = domain_labels(shard, replication, location)
        label: tuple[object, ...] = tuple((shard, level) for level in levels)
        for level in reversed(levels):
            near = next((other for other, place in by_file.items() if place[level] == mine[level]), None)
            if near is not None:
                label = (*names[near][: level + 1], *label[level + 1 :])
                break
        names[shard], by_file[shard] = label, mine
    return tuple(numbered([label[level] for _, label in sorted(names.items())]) for level in levels)
