"""Which shards get extra copies: those of a nodeset that share the fewest domains with the copies that there are.

A policy chooses copysets that satisfy the replication property; extra copies are chosen here, the same for all policies. They stand behind the copyset, so
readers get records from those whom the policy chose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from logdevice_py.core.ids import ShardId
from logdevice_py.core.machine import Rng


class ExtraCopies:
    """Chooses the extra copies of one nodeset.

    Args:
        count: how many are wanted beside a copyset.
        domains: of each shard of the nodeset at each scope of the replication property, large to small, as the epoch's metadata say.
        weight: how many extra copies a shard should get relative to the others.
        rng: where choices come from.
    """

    __slots__ = ("_domains", "_rng", "_weight", "count")

    def __init__(
        self,
        count: int,
        domains: Mapping[ShardId, tuple[int, ...]],
        weight: Callable[[ShardId], float],
        rng: Rng,
    ) -> None:
        self.count = count
        self._domains = domains
        self._weight = weight
        self._rng = rng

    def add(self, copyset: Sequence[ShardId], available: Callable[[ShardId], bool]) -> tuple[ShardId, ...]:
        """The copyset, then as many other available shards as are wanted, or all that there are; each in the domains, from large to small, that hold the
        fewest copies so far."""
        chosen = list(copyset)
        rest = [shard for shard in self._domains if shard not in chosen and available(shard)]
        for _ in range(min(self.count, len(rest))):
            best = self._best(chosen, rest)
            chosen.append(best)
            rest.remove(best)
        return tuple(chosen)

    def _best(self, chosen: Sequence[ShardId], rest: Sequence[ShardId]) -> ShardId:
        copies = Counter((level, domain) for shard in chosen for level, domain in enumerate(self._domains[shard]))

        def crowd(shard: ShardId) -> list[int]:
            return [copies[level, domain] for level, domain in enumerate(self._domains[shard])]

        fewest = min(map(crowd, rest))
        found = [shard for shard in rest if crowd(shard) == fewest]
        point = self._rng.random() * sum(map(self._weight, found))
        for shard in found:
            point -= self._weight(shard)
            if point < 0:
                return shard
        return found[-1]
