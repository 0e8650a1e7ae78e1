"""Which shards store an entry.

Shards stand in a line, domain beside domain in random order, each as wide as the number of copies it should get on average. Points one
copy apart, thrown onto the line together, pick the copyset (systematic sampling). Every domain then gets its average rounded up or
down, and each shard exactly its share. Shares follow the weights, but no domain's exceeds what leaves enough copies for other domains.
A throw that still misses the replication property is repeated; a property so tight that this happens often is met by choosing
domain after domain.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Final

from logdevice_py.config.location import Scope
from logdevice_py.core.ids import ShardId
from logdevice_py.core.machine import Rng
from logdevice_py.core.marks import hit
from logdevice_py.placement.failure_domains import FailureDomains

_THROWS: Final = 16
_THROWS_PER_ORDER: Final = 8
"""How many copysets are drawn before the line is shuffled again, which costs more than the draw."""
_PLANS_MAX: Final = 64
_NEGLIGIBLE: Final = 1e-9
"""Weight of a shard that is to be chosen only when nothing else will do, relative to the heaviest."""
_LOCAL_PREFERENCE: Final = 1e6


@dataclass(frozen=True, slots=True)
class Level:
    """A kind of domains that copies are spread over.

    Attributes:
        domains: the domain of each shard, by any name.
        limit: how many copies one domain may have at most; infinite: as many as it has shards.
        equal: domains get equal shares, whatever the weights of their shards.
    """

    domains: Mapping[ShardId, Hashable]
    limit: float = inf
    equal: bool = False


class _Domain:
    """A domain of the available shards; one shard is a domain without parts."""

    __slots__ = ("limit", "parts", "shard", "share", "weight")

    def __init__(
        self, parts: list[_Domain], limit: float, *, shard: ShardId | None = None, weight: float | None = None
    ):
        self.parts = parts
        self.shard = shard
        self.weight: float = weight if weight is not None else sum(part.weight for part in parts)
        self.limit: float = min(limit, sum(part.limit for part in parts)) if parts else limit
        self.share = 0.0

    def give(self, copies: float) -> None:
        """Distribute copies among the parts by weight; what exceeds the limit of one goes to the others."""
        self.share = copies
        open_parts = self.parts
        while open_parts:
            weight = sum(part.weight for part in open_parts)
            full = [part for part in open_parts if copies * part.weight >= part.limit * weight]
            if not full:
                for part in open_parts:
                    part.give(copies * part.weight / weight)
                return
            for part in full:
                part.give(part.limit)
            copies = max(0.0, copies - sum(part.limit for part in full))
            open_parts = [part for part in open_parts if part not in full]

    def shares(self) -> dict[ShardId, float]:
        """Of each shard."""
        if self.shard is not None:
            return {self.shard: self.share}
        return {shard: share for part in self.parts for shard, share in part.shares().items()}

    def shuffled(self, rng: Rng) -> Iterable[_Domain]:
        """The shards in random order, those of a domain side by side."""
        if not self.parts:
            return (self,)
        rng.shuffle(self.parts)
        return [shard for part in self.parts for shard in part.shuffled(rng)]


class _Line:
    """The available shards in an order, with their shares."""

    __slots__ = ("_ends", "_rng", "_root", "_shards", "_throws")

    def __init__(self, root: _Domain, rng: Rng) -> None:
        self._root = root
        self._rng = rng
        self._throws = 0
        self._shards: list[ShardId] = []
        self._ends: list[float] = []

    def throw(self, copies: int) -> list[ShardId]:
        """`copies` shards, with repetitions and of any domains if it goes wrong."""
        if self._throws % _THROWS_PER_ORDER == 0:
            self._shuffle()
        self._throws += 1
        start, shards, ends, last = self._rng.random(), self._shards, self._ends, len(self._ends) - 1
        return [shards[min(bisect_right(ends, start + index), last)] for index in range(copies)]

    def _shuffle(self) -> None:
        self._shards, self._ends, end = [], [], 0.0
        for domain in self._root.shuffled(self._rng):
            assert domain.shard is not None
            end += domain.share
            self._shards.append(domain.shard)
            self._ends.append(end)


def property_levels(domains: FailureDomains) -> list[Level]:
    """A level for each scope of the replication property; each of the other domains that the scope asks for must be left a copy."""
    labels, copies = domains.by_shard, domains.replication.copies
    return [
        Level({shard: names[index] for shard, names in labels.items()}, float(copies - factor + 1))
        for index, (_, factor) in enumerate(domains.replication.factors)
    ]


class CopysetSelector:
    """Chooses copysets within one nodeset.

    Args:
        domains: those of the epoch.
        weight: how many of the records a shard should get relative to the others; one of weight 0 is chosen only when there is no other way.
        is_near: where copies beyond what other domains must hold should be, such as near the sequencer; None spreads them, and so does a property of
            nodes alone.
        levels: over what copies are spread, large to small, such that domains of a level lie within domains of the one before; None: over the scopes
            of the replication property.
        rng: where the choices come from.
    """

    def __init__(
        self,
        domains: FailureDomains,
        *,
        weight: Callable[[ShardId], float],
        is_near: Callable[[ShardId], bool] | None = None,
        levels: Sequence[Level] | None = None,
        rng: Rng,
    ) -> None:
        self.nodeset = domains.shards
        self.replication = domains.replication
        self._rng = rng
        self._labels = domains.by_shard
        heaviest = max((weight(shard) for shard in self.nodeset), default=0.0) or 1.0
        self._weights = {shard: max(weight(shard) / heaviest, _NEGLIGIBLE) for shard in self.nodeset}
        if is_near is not None and self.replication.factors[0][0] is not Scope.NODE:
            for shard in self.nodeset:
                if is_near(shard):
                    self._weights[shard] *= _LOCAL_PREFERENCE
        self._levels = property_levels(domains) if levels is None else levels
        self._lines: dict[int, _Line | None] = {}

    def pick(self, available: Callable[[ShardId], bool]) -> tuple[ShardId, ...] | None:
        """A copyset of available shards, in random order; None exactly when they cannot satisfy the property."""
        mask, bit = 0, 1
        for shard in self.nodeset:
            if available(shard):
                mask |= bit
            bit <<= 1
        line = self._line(mask)
        if line is None:
            return None
        copies = self.replication.copies
        for _ in range(_THROWS):
            chosen = line.throw(copies)
            if self._satisfied(chosen):
                self._rng.shuffle(chosen)
                return tuple(chosen)
        hit("copyset_chosen_domain_by_domain")
        added = self._extend([], self._of_mask(mask))
        assert added is not None, "the available shards can replicate"
        assert self._satisfied(added), added
        self._rng.shuffle(added)
        return tuple(added)

    def replace(self, kept: Sequence[ShardId], available: Callable[[ShardId], bool]) -> tuple[ShardId, ...] | None:
        """`kept`, then as few available shards as make the whole satisfy the property; None when they cannot.

        Shards of `kept` count whether they are available or not. Those outside the nodeset do not count: nobody asks them when it is to be
        proven that there is no entry.
        """
        kept = list(dict.fromkeys(kept))
        added = self._extend(kept, [shard for shard in self.nodeset if shard not in kept and available(shard)])
        return None if added is None else (*kept, *added)

    def shares(self) -> dict[ShardId, float]:
        """How many copies of an entry each shard gets on average while all are available; empty when they cannot satisfy the property."""
        if not self.satisfied_by(self.nodeset):
            return {}
        return self._tree(list(self.nodeset)).shares()

    def satisfied_by(self, shards: Iterable[ShardId]) -> bool:
        """Whether these shards hold enough copies far enough apart. There may be more of them than copies are asked for; those outside the nodeset
        do not count."""
        labels = self._labels_of(shards)
        return all(
            len({names[level] for names in labels}) >= factor
            for level, (_, factor) in enumerate(self.replication.factors)
        )

    def _satisfied(self, chosen: list[ShardId]) -> bool:
        # The smallest scope has as many domains as there are copies, so no shard is there twice.
        return len(chosen) == self.replication.copies and self.satisfied_by(chosen)

    def _labels_of(self, shards: Iterable[ShardId]) -> list[tuple[int, ...]]:
        return [self._labels[shard] for shard in shards if shard in self._labels]

    def _of_mask(self, mask: int) -> list[ShardId]:
        return [shard for index, shard in enumerate(self.nodeset) if mask >> index & 1]

    def _line(self, mask: int) -> _Line | None:
        """The line of a set of available shards; None when they cannot satisfy the property."""
        try:
            return self._lines[mask]
        except KeyError:
            pass
        if len(self._lines) >= _PLANS_MAX:
            self._lines.clear()
        shards = self._of_mask(mask)
        line = _Line(self._tree(shards), self._rng) if self.satisfied_by(shards) else None
        self._lines[mask] = line
        return line

    def _tree(self, shards: list[ShardId]) -> _Domain:
        levels, copies = self._levels, self.replication.copies

        def grow(members: list[ShardId], index: int) -> list[_Domain]:
            if index == len(levels):
                return [_Domain([], 1.0, shard=shard, weight=self._weights[shard]) for shard in members]
            level = levels[index]
            groups: dict[Hashable, list[ShardId]] = {}
            for shard in members:
                groups.setdefault(level.domains[shard], []).append(shard)
            weight = 1.0 if level.equal else None
            return [_Domain(grow(group, index + 1), level.limit, weight=weight) for group in groups.values()]

        root = _Domain(grow(shards, 0), float(copies))
        root.give(float(copies))
        return root

    def _extend(self, kept: Sequence[ShardId], candidates: list[ShardId]) -> list[ShardId] | None:
        """As few candidates as satisfy the property together with `kept`.

        A domain that is not touched yet at a large scope is not touched at smaller ones either, so going from large to small adds
        the largest of the deficits and no more, and finds a way whenever there is one.
        """
        added: list[ShardId] = []
        for level, (_, factor) in enumerate(self.replication.factors):
            touched = {labels[level] for labels in self._labels_of((*kept, *added))}
            while len(touched) < factor:
                untouched = [shard for shard in candidates if self._labels[shard][level] not in touched]
                if not untouched:
                    return None
                shard = self._draw(self._fewest_copies(untouched, (*kept, *added)))
                added.append(shard)
                touched.add(self._labels[shard][level])
        return added

    def _fewest_copies(self, candidates: list[ShardId], copyset: Sequence[ShardId]) -> list[ShardId]:
        """Of domains that get equal shares, the candidates in those that have the fewest copies of an entry so far."""
        for level in self._levels:
            if level.equal:
                domains = level.domains
                copies = Counter(domains[shard] for shard in copyset if shard in domains)
                fewest = min(copies[domains[shard]] for shard in candidates)
                candidates = [shard for shard in candidates if copies[domains[shard]] == fewest]
        return candidates

    def _draw(self, shards: list[ShardId]) -> ShardId:
        point = self._rng.random() * sum(self._weights[shard] for shard in shards)
        for shard in shards:
            point -= self._weights[shard]
            if point < 0:
                return shard
        return shards[-1]
