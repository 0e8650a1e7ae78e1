"""``python -m tests.property.every_cluster``: what placement promises, checked for every small cluster, every property that fits, and every set of shards.

For each cluster of up to `--shards` shards in up to four regions, and of up to `--racked` shards in racks of up to four regions, with every property over
its scopes that fits:

1. no set of shards can both replicate and be complementary to an f-majority;
2. a set can replicate exactly when it lies in as many regions, racks and nodes as promised, so that every acknowledged set does;
3. with any subset of the regions alive each policy picks a copyset of living shards that keeps the promise, or none when there is none.

Shards of one rack are alike, racks of one size in a region are, and regions with the same racks are. So one set stands for all that become it when names are
changed; which shards it has is drawn at random. What sets stand for is counted, and has to be all sets of shards.

Clusters of up to `--spanned` shards in racks are too many for that. There one set stands for all that lie in as many regions, racks and nodes, drawn from
them at random, and one policy picks for each property.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, combinations_with_replacement, islice, product
from math import comb, factorial, prod
from multiprocessing import Pool
from typing import Final, TypeAlias

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Scope
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, ShardId, shard_id
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.policies import RackAware, RegionAware, Weighted
from logdevice_py.placement.settings import PlacementSettings
from logdevice_py.placement.topology import Topology
from tests.unit.logdevice_py.placement.clusters import cluster

Racks: TypeAlias = tuple[int, ...]
"""How many shards each rack of a region has, the largest first."""
Shape: TypeAlias = tuple[Racks, ...]
"""The regions of a cluster."""
REGIONS_MAX: Final = 4
_PICKS: Final = 2
_PARTS: Final = 8
"""Into which the largest sizes are cut, for several processes."""
_POLICIES: Final = (Weighted, RackAware, RegionAware)


@dataclass(slots=True)
class Checked:
    """How much was checked, and what was wrong."""

    clusters: int = 0
    properties: int = 0
    """Pairs of a cluster and a property that fits."""
    classes: int = 0
    """Sets that were looked at: one of all that are alike."""
    sets: int = 0
    """Sets that these stand for."""
    picks: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.clusters:,} clusters, {self.properties:,} times a property: {self.classes:,} sets of shards, which stand for {self.sets:,}, and "
            f"{self.picks:,} picks: {len(self.wrong)} wrong"
        )


@cache
def partitions(total: int, parts: int, largest: int | None = None) -> tuple[Racks, ...]:
    """Every way to write a number as a sum of up to so many, the largest first."""
    if total == 0:
        return ((),)
    if parts == 0:
        return ()
    return tuple(
        (first, *rest)
        for first in range(min(total, largest or total), 0, -1)
        for rest in partitions(total - first, parts - 1, first)
    )


def shapes(shards: int, *, racked: bool) -> Iterator[Shape]:
    """The clusters of so many shards in up to four regions; without racks each region is one."""
    for sizes in partitions(shards, REGIONS_MAX):
        if not racked:
            yield tuple((size,) for size in sizes)
            continue
        counts = [(size, sizes.count(size)) for size in dict.fromkeys(sizes)]
        for chosen in product(
            *(combinations_with_replacement(partitions(size, size), count) for size, count in counts)
        ):
            shape = tuple(chain(*chosen))
            if any(len(racks) > 1 for racks in shape):
                yield shape


def properties(shape: Shape) -> Iterator[ReplicationProperty]:
    """All that a cluster can satisfy, each once."""
    regions, racks, shards = len(shape), sum(map(len, shape)), sum(map(sum, shape))
    racked = racks > regions
    for region in range(1, regions + 1):
        for rack in range(region, racks + 1) if racked else (region,):
            for node in range(rack, shards + 1):
                scopes = {Scope.REGION: region, Scope.RACK: rack, Scope.NODE: node}
                yield ReplicationProperty.of(
                    {scope: factor for scope, factor in scopes.items() if factor > 1} or {Scope.NODE: 1}
                )


def built(shape: Shape) -> tuple[ClusterConfig, list[list[ShardId]], list[int]]:
    """A cluster of that shape, the shards of each rack, and its region."""
    places, racks, of = [], [], []
    for region, sizes in enumerate(shape):
        for rack, size in enumerate(sizes):
            racks.append([shard_id(NodeId(len(places) + index)) for index in range(size)])
            of.append(region)
            places += [f"r{region}.d.c.r.k{rack}"] * size
    return cluster(places), racks, of


def arrangements(alike: Sequence[object]) -> int:
    """In how many orders so many things can stand, of which equal ones are not told apart."""
    return factorial(len(alike)) // prod(factorial(count) for count in Counter(alike).values())


def span_classes(shape: Shape, rng: random.Random) -> Iterator[tuple[tuple[int, ...], int]]:
    """The same for one set of all that lie in as many regions, racks and nodes. Each of these is as likely."""
    found: _Spanned = {(0, 0, 0): ((), 1)}
    for racks in shape:
        region: _Spanned = {(0, 0, 0): ((), 1)}
        for size in racks:
            more: _Spanned = {}
            for (_, used, nodes), (counts, sets) in region.items():
                for count in range(size + 1):
                    key = (int(nodes + count > 0), used + bool(count), nodes + count)
                    _put(more, key, (*counts, count), sets * comb(size, count), rng)
            region = more
        both: _Spanned = {}
        for (key, (counts, sets)), (added, (rest, ways)) in product(found.items(), region.items()):
            total = (key[0] + added[0], key[1] + added[1], key[2] + added[2])
            _put(both, total, (*counts, *rest), sets * ways, rng)
        found = both
    yield from found.values()


_Spanned: TypeAlias = dict[tuple[int, int, int], tuple[tuple[int, ...], int]]
"""By regions, racks and nodes: how many shards of each rack one set has, and how many sets there are."""


def _put(into: _Spanned, key: tuple[int, int, int], counts: tuple[int, ...], sets: int, rng: random.Random) -> None:
    there = into.get(key)
    if there is None:
        into[key] = counts, sets
    else:
        all_sets = there[1] + sets
        into[key] = (counts if rng.randrange(all_sets) < sets else there[0]), all_sets


@cache
def region_classes(racks: Racks) -> tuple[tuple[tuple[int, ...], int], ...]:
    """How many shards of each rack of a region a set may have, one of all that are alike; and how many sets are."""
    found = []
    sizes = [(size, racks.count(size)) for size in dict.fromkeys(racks)]
    for chosen in product(*(combinations_with_replacement(range(size + 1), racks) for size, racks in sizes)):
        alike = prod(
            arrangements(counts) * prod(comb(size, count) for count in counts)
            for (size, _), counts in zip(sizes, chosen, strict=True)
        )
        found.append((tuple(chain(*chosen)), alike))
    return tuple(found)


def set_classes(shape: Shape) -> Iterator[tuple[tuple[int, ...], int]]:
    """How many shards of each rack of a cluster a set may have, one of all that are alike; and how many sets are. Equal regions and racks stand side by side."""
    regions = [(racks, shape.count(racks)) for racks in dict.fromkeys(shape)]
    for chosen in product(*(combinations_with_replacement(region_classes(racks), count) for racks, count in regions)):
        alike = prod(arrangements(classes) * prod(alike for _, alike in classes) for classes in chosen)
        yield tuple(chain(*(counts for classes in chosen for counts, _ in classes))), alike


def check(shape: Shape, checked: Checked, rng: random.Random, *, by_spans: bool = False) -> None:
    """All properties of one cluster.

    Args:
        by_spans: one set stands for all that lie in as many regions, racks and nodes, and one policy picks, once.
    """
    config, racks, region_of = built(shape)
    shards = config.storage_shards()
    checked.clusters += 1
    classes = []
    for counts, alike in span_classes(shape, rng) if by_spans else set_classes(shape):
        chosen = frozenset(chain(*(rng.sample(rack, count) for rack, count in zip(racks, counts, strict=True))))
        regions = len({region_of[index] for index, count in enumerate(counts) if count})
        spans = {Scope.REGION: regions, Scope.RACK: sum(map(bool, counts)), Scope.NODE: len(chosen)}
        classes.append((chosen, frozenset(shards) - chosen, spans, alike))
    if sum(alike for *_, alike in classes) != 1 << len(shards):
        checked.wrong.append(f"{shape}: not every set of shards is looked at")
    alive: dict[Shape, frozenset[ShardId]] = {}
    for up in range(1 << len(shape)):
        living = frozenset(chain(*(rack for index, rack in enumerate(racks) if up >> region_of[index] & 1)))
        alive.setdefault(tuple(sorted(region for index, region in enumerate(shape) if up >> index & 1)), living)
    topology = Topology.of(config)
    policies = [policy(PlacementSettings()) for policy in _POLICIES]
    for policy in policies:
        policy.on_cluster_changed(topology)
    for replication in properties(shape):
        checked.properties += 1
        domains = FailureDomains.by_file(shards, replication, config.location)
        for chosen, others, spans, alike in classes:
            checked.classes += 1
            checked.sets += alike
            promised = all(spans[scope] >= factor for scope, factor in replication.factors)
            able = domains.can_replicate(chosen)
            if able != promised:
                checked.wrong.append(f"{shape} {replication}: {sorted(chosen)} {able=} {promised=}")
            if able and domains.f_majority(others).is_authoritative:
                checked.wrong.append(f"{shape} {replication}: {sorted(chosen)} can replicate beside an f-majority")
        for policy in [policies[checked.properties % len(policies)]] if by_spans else policies:
            source = policy.copysets(domains, config.location(shards[0]), rng)
            for living in alive.values():
                possible = domains.can_replicate(living)
                for _ in range(_PICKS if possible and not by_spans else 1):
                    checked.picks += 1
                    copyset = source.pick(living.__contains__)
                    if (copyset is not None) != possible or (
                        copyset is not None and not _kept(domains, copyset, living)
                    ):
                        checked.wrong.append(
                            f"{shape} {replication}: {type(policy).__name__} picks {copyset} of {sorted(living)}"
                        )


def _kept(domains: FailureDomains, copyset: Sequence[ShardId], living: frozenset[ShardId]) -> bool:
    return (
        len(set(copyset)) == len(copyset) == domains.replication.copies
        and set(copyset) <= living
        and domains.can_replicate(copyset)
    )


def check_size(size: int, racked: bool, by_spans: bool, part: int) -> Checked:
    """Every cluster of one size, with or without racks; of some sizes one part of them."""
    checked, rng = Checked(), random.Random(f"{size} {part}")
    for shape in islice(shapes(size, racked=racked), part, None, _PARTS if by_spans else 1):
        check(shape, checked, rng, by_spans=by_spans)
    return checked


def check_all(shards: int, racked: int, spanned: int = 0, jobs: int = 1) -> Checked:
    """Every cluster up to these sizes: without racks, with racks, and with more racks, where one set stands for all that span as much."""
    work = [(size, False, False, 0) for size in range(1, shards + 1)]
    work += [(size, True, False, 0) for size in range(1, racked + 1)]
    work += [(size, True, True, part) for size in range(racked + 1, spanned + 1) for part in range(_PARTS)]
    work.sort(reverse=True)  # the longest first
    if jobs == 1:
        parts = [check_size(*each) for each in work]
    else:
        with Pool(jobs) as pool:
            parts = pool.starmap(check_size, work, chunksize=1)
    return Checked(
        *(
            sum(getattr(part, name) for part in parts)
            for name in ("clusters", "properties", "classes", "sets", "picks")
        ),
        wrong=[text for part in parts for text in part.wrong],
    )


def main() -> int:
    """The program."""
    parser = argparse.ArgumentParser(description="Check what placement promises on every small cluster.")
    parser.add_argument("--shards", type=int, default=16, help="largest cluster without racks")
    parser.add_argument("--racked", type=int, default=9, help="largest cluster with racks in its regions")
    parser.add_argument(
        "--spanned",
        type=int,
        default=11,
        help="largest cluster with racks of which one set stands for all that lie in as many regions, racks and nodes",
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    args = parser.parse_args()
    checked = check_all(args.shards, args.racked, args.spanned, args.jobs)
    print(checked)
    for text in checked.wrong[:20]:
        print(text, file=sys.stderr)
    return 1 if checked.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
