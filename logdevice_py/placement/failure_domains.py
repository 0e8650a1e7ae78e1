"""Which shards must have answered before nothing can be hidden, and which suffice to store a record.

An f-majority is a set of shards that meets every possible copyset. For one scope with factor r a copyset touches r domains, so a set that
lacks part of at most r - 1 domains meets it. One such scope suffices. A copyset, on the other hand, must satisfy every scope.

Besides the scopes of the replication property there is that of single shards, with the factor of the smallest scope. A scope with fewer domains
than its factor proves nothing: no set of domains could be missing from it then.

The domains of an epoch are what its metadata says (`EpochInterval.domains`), whatever the cluster file says by now: a proof must be about the copysets
that were allowed when entries were stored. Only what has no epoch metadata goes by the cluster file (`FailureDomains.by_file`).
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import TypeAlias

from logdevice_py.config.location import Location, Scope
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import ShardId, node_of


class Authority(enum.Enum):
    """What the absence of a record on a shard proves."""

    FULLY_AUTHORITATIVE = 0  # never stored there, as far as the shard answers
    UNDERREPLICATION = 1  # nothing: the shard lost data
    AUTHORITATIVE_EMPTY = 2  # nothing, and its records were copied elsewhere: leave the shard out of account
    UNAVAILABLE = 3  # waited for like FULLY_AUTHORITATIVE: the data may come back with the shard


class FMajority(enum.Enum):
    """How much a set of shards that answered proves."""

    COMPLETE = enum.auto()  # every shard that has something to say answered
    INCOMPLETE = enum.auto()  # enough answered: every copyset is met
    NON_AUTHORITATIVE = (
        enum.auto()
    )  # all that can answer did, but too many shards lost data: copysets may have been missed
    NONE = enum.auto()  # wait for more

    @property
    def is_authoritative(self) -> bool:
        """Every copyset is met."""
        return self is FMajority.COMPLETE or self is FMajority.INCOMPLETE


def domain_labels(
    shard: ShardId, replication: ReplicationProperty, location: Callable[[ShardId], Location | None]
) -> tuple[str, ...]:
    """The domain of a shard at each scope of the replication property, large to small.

    A node whose location is not known is a domain of its own at every scope.
    """
    node, place = node_of(shard), location(shard)
    if place is None:
        return (f"?N{node}",) * len(replication.factors)
    return tuple(place.domain(scope, node) for scope, _ in replication.factors)


Labels: TypeAlias = tuple[tuple[int, ...], ...]
"""In which domains the shards of a nodeset lie: for each scope above NODE that the replication property names, large to small, a number for each shard,
in ascending order of shards. Shards of one domain have the same number; domains are numbered in the order of their first shard, so that equal
groups of shards have equal labels, whatever the domains are called."""


def labelled_scopes(replication: ReplicationProperty) -> tuple[Scope, ...]:
    """The scopes of a replication property that labels tell of, large to small. Nodes follow from the shards themselves."""
    return tuple(scope for scope, _ in replication.factors if scope is not Scope.NODE)


def labels_by_file(
    shards: Iterable[ShardId], replication: ReplicationProperty, location: Callable[[ShardId], Location | None]
) -> Labels:
    """The labels of shards as the cluster file says.

    Args:
        location: None for a shard whose node is not in the cluster file. Such a node counts as a domain of its own at every scope: splitting a
            domain never makes an f-majority that is none.
    """
    ordered = tuple(sorted(set(shards)))
    return _labels_at(ordered, replication, tuple(map(location, ordered)))


# Looked up for every log that is activated: without this, making the labels takes most of the time.
@lru_cache(maxsize=1024)
def _labels_at(
    shards: tuple[ShardId, ...], replication: ReplicationProperty, places: tuple[Location | None, ...]
) -> Labels:
    location = dict(zip(shards, places, strict=True)).__getitem__
    names = [domain_labels(shard, replication, location) for shard in shards]
    levels = range(len(labelled_scopes(replication)))
    return tuple(numbered([each[level] for each in names]) for level in levels)


def numbered(names: Sequence[Hashable]) -> tuple[int, ...]:
    """A number for each domain of a list, in the order in which they come first."""
    numbers: dict[Hashable, int] = {}
    return tuple([numbers.setdefault(name, len(numbers)) for name in names])


class _Structure:
    """The domains of a nodeset as bit masks over its shards; shared by all logs with the same nodeset and the same domains."""

    __slots__ = ("bits", "harmless", "labels", "levels", "proving", "scopes")

    def __init__(self, shards: tuple[ShardId, ...], replication: ReplicationProperty, labels: Labels):
        assert len(labels) == len(labelled_scopes(replication)), (labels, replication)
        self.bits = {shard: 1 << index for index, shard in enumerate(shards)}
        nodes = tuple(map(node_of, shards))
        self.labels = labels
        self.levels: tuple[tuple[int, ...], ...] = labels
        """The domain of each shard at each scope of the property, large to small."""
        if replication.factors[-1][0] is Scope.NODE:
            self.levels = (*labels, nodes)
        copies = replication.copies
        scopes: list[tuple[int, tuple[int, ...]]] = [(copies, tuple(self.bits.values()))]
        for (_, factor), level in zip(replication.factors, self.levels, strict=True):
            masks: dict[int, int] = {}
            for shard, domain in zip(shards, level, strict=True):
                masks[domain] = masks.get(domain, 0) | self.bits[shard]
            # Domains that are single shards say the same as the scope of shards.
            if len(masks) < len(shards) or factor != copies:
                scopes.append((factor, tuple(masks.values())))
        self.scopes = tuple(scopes)
        self.proving = tuple((factor, masks) for factor, masks in scopes if len(masks) >= factor)
        """Those that a copyset can satisfy."""
        self.harmless = copies if len(shards) >= copies else 1
        """Fewer shards than this hide nothing, whichever they are."""


# Found for every log that is activated, as are labels.
_structure = lru_cache(maxsize=8192)(_Structure)


class FailureDomains:
    """The domains of one nodeset, and the authority of its shards.

    Args:
        shards: the nodeset.
        replication: that of the epoch.
        labels: that of the epoch.
    """

    __slots__ = ("_empty", "_lost", "_structure", "_unavailable", "replication", "shards")

    def __init__(self, shards: Iterable[ShardId], replication: ReplicationProperty, labels: Labels) -> None:
        self.shards = tuple(sorted(set(shards)))
        self.replication = replication
        self._structure = _structure(self.shards, replication, labels)
        self._lost = self._empty = self._unavailable = 0

    @classmethod
    def by_file(
        cls,
        shards: Iterable[ShardId],
        replication: ReplicationProperty,
        location: Callable[[ShardId], Location | None],
    ) -> FailureDomains:
        """The domains as the cluster file says: for what has no epoch metadata, such as nodesets to come and metadata logs.

        Args:
            location: as in `labels_by_file`.
        """
        shards = tuple(shards)
        return cls(shards, replication, labels_by_file(shards, replication, location))

    def relocate(self, location: Callable[[ShardId], Location | None]) -> None:
        """The cluster file says of more shards where they stand."""
        labels = labels_by_file(self.shards, self.replication, location)
        self._structure = _structure(self.shards, self.replication, labels)

    @property
    def key(self) -> Hashable:
        """Equal for equal domains, whatever is known of the shards' authority."""
        return self.shards, self.replication, self._structure.levels

    @property
    def labels(self) -> Labels:
        """Those of the nodeset."""
        return self._structure.labels

    @property
    def by_shard(self) -> dict[ShardId, tuple[int, ...]]:
        """The domain of each shard at each scope of the replication property, large to small."""
        return dict(zip(self.shards, zip(*self._structure.levels, strict=True), strict=True))

    def set_authority(self, shard: ShardId, authority: Authority) -> None:
        """Note what a shard's answers are worth. A shard outside the nodeset is ignored."""
        bit = self._structure.bits.get(shard, 0)
        self._lost &= ~bit
        self._empty &= ~bit
        self._unavailable &= ~bit
        if authority is Authority.UNDERREPLICATION:
            self._lost |= bit
        elif authority is Authority.AUTHORITATIVE_EMPTY:
            self._empty |= bit
        elif authority is Authority.UNAVAILABLE:
            self._unavailable |= bit

    def authority(self, shard: ShardId) -> Authority:
        """What was last noted of a shard; FULLY_AUTHORITATIVE when nothing was."""
        bit = self._structure.bits.get(shard, 0)
        if self._lost & bit:
            return Authority.UNDERREPLICATION
        if self._empty & bit:
            return Authority.AUTHORITATIVE_EMPTY
        return Authority.UNAVAILABLE if self._unavailable & bit else Authority.FULLY_AUTHORITATIVE

    def f_majority(self, shards: Collection[ShardId]) -> FMajority:
        """What the answers of `shards` prove. Shards outside the nodeset do not count, those that lost data prove nothing."""
        missing = self._everything() & ~self._empty & ~self._mask(shards)
        # A shard that lost data keeps its domain from being complete, whether it answers or not.
        blocked = missing | self._lost
        structure = self._structure
        met = blocked.bit_count() < structure.harmless or any(
            self._touched(masks, blocked) < factor for factor, masks in structure.proving
        )
        if missing & ~self._lost == 0:
            return FMajority.COMPLETE if met else FMajority.NON_AUTHORITATIVE
        return FMajority.INCOMPLETE if met else FMajority.NONE

    def can_replicate(self, shards: Collection[ShardId]) -> bool:
        """Whether a copyset can be made of `shards` alone."""
        mask = self._mask(shards)
        return all(self._touched(masks, mask) >= factor for factor, masks in self._structure.scopes)

    def _everything(self) -> int:
        return (1 << len(self.shards)) - 1

    def _mask(self, shards: Collection[ShardId]) -> int:
        bits = self._structure.bits
        mask = 0
        for shard in shards:
            mask |= bits.get(shard, 0)
        return mask

    @staticmethod
    def _touched(masks: tuple[int, ...], mask: int) -> int:
        """How many domains hold a shard of the mask."""
        count = 0
        for domain in masks:
            if domain & mask:
                count += 1
        return count
