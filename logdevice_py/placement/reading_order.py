"""In which order a reader should ask the shards that have copies: near ones first, soon one that cannot have failed together with them."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from logdevice_py.config.location import Location, Scope
from logdevice_py.core.ids import NodeId, ShardId, format_shard, node_of
from logdevice_py.core.machine import Rng

_SOMEBODY: Final = NodeId(0)
_SCOPES: Final = tuple(scope for scope in Scope if scope is not Scope.NODE)
_FARTHEST: Final = len(_SCOPES) + 1


class ReadHealth(enum.IntEnum):
    """What a reader knows of a shard, best first: all of one kind are asked before any of the next."""

    WELL = 0  # takes records, and did not fail lately
    FAILED = 1  # takes records; did not answer, or was slow, a while ago
    READ_ONLY = 2  # takes no records
    VANISHED = 3  # in no configuration any more


Place = Callable[[ShardId], Location | None]
Health = Callable[[ShardId], ReadHealth]


def distance(here: Location | None, there: Location | None) -> int:
    """0: the same rack, 1: the same row, and so on to 5: nothing in common but the cluster; 6: it is not known where one of them stands."""
    if here is None or there is None:
        return _FARTHEST
    return next(
        (
            index
            for index, scope in enumerate(_SCOPES)
            if here.domain(scope, _SOMEBODY) == there.domain(scope, _SOMEBODY)
        ),
        len(_SCOPES),
    )


def reading_tiers(shards: Iterable[ShardId], at: Location | None, place: Place, health: Health) -> dict[ShardId, int]:
    """How early each shard should be asked, 0 first: kinds of health follow one another, in each the near ones come first. Those of a tier are equal."""
    return {shard: health(shard) * (_FARTHEST + 1) + distance(at, place(shard)) for shard in shards}


def shown_order(order: Iterable[tuple[int, int]]) -> str:
    """Shards and their tiers, for people: those of a tier with commas, tiers apart."""
    by_tier: dict[int, list[str]] = {}
    for shard, tier in sorted(order):
        by_tier.setdefault(tier, []).append(format_shard(ShardId(shard)))
    return " | ".join(", ".join(by_tier[tier]) for tier in sorted(by_tier))


def nearest_first(
    shards: Iterable[ShardId], at: Location | None, place: Place, health: Health, rng: Rng
) -> list[ShardId]:
    """First the nearest shard, then the nearest in another rack than that, then the nearest in another region, then the others as they are near.

    Shards that are equally near come in random order, so that readers share them. Kinds of health follow one another, each in that order.

    Args:
        at: where the reader stands; None: all are equally far.
    """
    found: list[ShardId] = []
    for group in _by_health(shards, health):
        left = _by_distance(group, at, place, rng)
        chosen: list[ShardId] = []
        for scope in (Scope.NODE, Scope.RACK, Scope.REGION):
            taken = {_domain(shard, place, scope) for shard in chosen}
            elsewhere = next((shard for shard in left if _domain(shard, place, scope) not in taken), None)
            if elsewhere is not None:
                left.remove(elsewhere)
                chosen.append(elsewhere)
        found += chosen + left
    return found


def local_first(
    shards: Iterable[ShardId],
    at: Location | None,
    place: Place,
    health: Health,
    rng: Rng,
    *,
    locals_per_remote: int = 2,
) -> list[ShardId]:
    """Shards of the reader's region and of others in turn: after every two local ones a remote one. Near ones come first among both, in random order where
    they are equally near. Kinds of health follow one another, each in that order; those that take no records, or are gone, by distance alone."""
    found: list[ShardId] = []
    for group in _by_health(shards, health):
        ordered = _by_distance(group, at, place, rng)
        if group and health(group[0]) > ReadHealth.FAILED:
            found += ordered
            continue
        local = [shard for shard in ordered if distance(at, place(shard)) < len(_SCOPES)]
        remote = [shard for shard in ordered if shard not in local]
        while local or remote:
            found += local[:locals_per_remote] + remote[:1]
            del local[:locals_per_remote], remote[:1]
    return found


def _by_health(shards: Iterable[ShardId], health: Health) -> list[list[ShardId]]:
    groups: dict[ReadHealth, list[ShardId]] = {each: [] for each in ReadHealth}
    for shard in shards:
        groups[health(shard)].append(shard)
    return list(groups.values())


def _by_distance(shards: Sequence[ShardId], at: Location | None, place: Place, rng: Rng) -> list[ShardId]:
    ordered = list(shards)
    rng.shuffle(ordered)
    return sorted(ordered, key=lambda shard: distance(at, place(shard)))


def _domain(shard: ShardId, place: Place, scope: Scope) -> str:
    location = place(shard)
    return f"?{shard}" if location is None else location.domain(scope, node_of(shard))
