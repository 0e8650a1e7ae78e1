"""The safety check against brute force: clusters of up to eight shards, every set of shards that may go."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, ShardId, node_of, shard_id
from logdevice_py.core.lsn import Epoch
from logdevice_py.placement.failure_domains import labels_by_file
from logdevice_py.placement.impact import Loss, PlacedEpochs, ShardsNow, impact

PROPERTIES = ("node:1", "node:2", "node:3", "rack:2", "rack:2,node:3", "region:2,node:3", "region:2,rack:3", "rack:3")
CLUSTERS = 240


def subsets(shards: tuple[ShardId, ...]) -> Iterator[frozenset[ShardId]]:
    for count in range(len(shards) + 1):
        yield from map(frozenset, combinations(shards, count))


class Truth:
    """What is lost, by trying every copyset that the replication property allows; knows nothing of f-majorities."""

    def __init__(self, epochs: PlacedEpochs, places: dict[int, Location], now: ShardsNow) -> None:
        self.epochs = epochs
        self.now = now
        self.allowed = [
            chosen
            for chosen in map(frozenset, combinations(epochs.shards, epochs.replication.copies))
            if all(
                len({places[node_of(shard)].domain(scope, node_of(shard)) for shard in chosen}) >= factor
                for scope, factor in epochs.replication.factors
            )
        ]
        self.possible = [chosen for chosen in self.allowed if not chosen & now.emptied]
        self.entries = self.possible if epochs.copysets is None else list(epochs.copysets)

    def losses(self, going: frozenset[ShardId]) -> set[Loss]:
        epochs, now = self.epochs, self.now
        missing = (going | now.away | now.lost) - (now.emptied if epochs.copysets is None else frozenset())
        writable = frozenset(epochs.shards) - going - now.away - now.lost - now.emptied - now.unwritable
        unprovable = any(chosen <= missing for chosen in self.possible)
        can_store = any(chosen <= writable for chosen in self.allowed)
        found = set()
        if any(copyset <= missing for copyset in self.entries):
            found.add(Loss.DATA)
        if unprovable or Loss.DATA in found:
            found.add(Loss.READS)
        if epochs.is_current and not can_store:
            found.add(Loss.APPENDS)
        if (epochs.is_current or epochs.is_open) and unprovable:
            found.add(Loss.RECOVERY)
        if not can_store and any(copyset & missing for copyset in self.entries):
            found.add(Loss.REBUILDING)
        return found


def cluster(rng: random.Random) -> tuple[PlacedEpochs, dict[int, Location], ShardsNow]:
    count = rng.randint(2, 8)
    per_node = rng.choice((1, 1, 1, 2))
    shards = tuple(shard_id(NodeId(number // per_node), number % per_node) for number in range(count))
    regions, racks = rng.randint(1, 3), rng.randint(1, 4)
    places = {node: Location.parse(f"r{rng.randrange(regions)}....k{rng.randrange(racks)}") for node in range(count)}
    replication = ReplicationProperty.parse(rng.choice(PROPERTIES))
    labels = labels_by_file(shards, replication, lambda shard: places[node_of(shard)])
    states: dict[str, set[ShardId]] = {"": set(), "away": set(), "lost": set(), "emptied": set(), "unwritable": set()}
    for shard in shards:
        states[rng.choices(list(states), (12, 1, 1, 1, 1))[0]].add(shard)
    now = ShardsNow(*(frozenset(states[name]) for name in ("away", "lost", "emptied", "unwritable")))
    current = rng.random() < 0.7
    epochs = PlacedEpochs(Epoch(1), Epoch(3), shards, replication, labels, current, rng.random() < 0.5, now)
    possible = Truth(epochs, places, now).possible
    if possible and rng.random() < 0.5:
        known = frozenset(rng.sample(possible, min(len(possible), rng.randint(1, 4))))
        epochs = replace(epochs, copysets=known)
    return epochs, places, now


def test_never_safe_when_something_is_lost_and_hardly_ever_unsafe_without_need() -> None:
    rng = random.Random(30)
    said, needless = Counter[Loss](), Counter[Loss]()
    clusters = judged = lost = 0
    for number in range(CLUSTERS):
        epochs, places, now = cluster(rng)
        truth = Truth(epochs, places, now)
        if not truth.allowed:
            continue  # no log gets such a nodeset
        clusters += 1
        for going in subsets(epochs.shards):
            told = {each.loss for each in impact([epochs], going)}
            real = truth.losses(going)
            judged += 1
            lost += bool(real)
            assert told >= real, f"cluster {number}: {sorted(going)} of {epochs} with {now}: not told: {real - told}"
            said.update(told)
            needless.update(told - real)
    assert judged > 10_000
    assert 0.1 * judged < lost < 0.95 * judged
    assert set(said) == set(Loss), "each was told at least once"
    shares = {loss: needless[loss] / said[loss] for loss in said}
    told_of = ", ".join(f"{loss.name} {needless[loss]} of {said[loss]}" for loss in Loss)
    print(
        f"{judged} sets of shards of {clusters} clusters, {lost} of which lose something; told without need: {told_of}"
    )
    assert max(shares.values()) <= 0.02, shares
