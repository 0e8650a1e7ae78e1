"""Of which entries a read wants the body: decided by the header, before a body that lies apart is read."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from logdevice_py.core.entry import HEADER_SIZE_MIN, EntryFlags
from logdevice_py.core.ids import ShardId

Wants = Callable[[bytes], bool]
"""Given an entry's image or header: is its body wanted?"""
_HOLE: Final = int(EntryFlags.HOLE)
_KEYED_HIGH: Final = int(EntryFlags.KEYED) >> 8
_KEYED_LOW: Final = int(EntryFlags.KEYED) & 0xFF
_FLAGS_HIGH_AT: Final = 2
_FLAGS_LOW_AT: Final = 3
_COPYSET_AT: Final = HEADER_SIZE_MIN - 4
_TIER: Final = struct.Struct(">IB")
_TIER_LAST: Final = 256
"""Of shards that an order does not name."""
_DECIDED_MAX: Final = 256
"""Copysets of which an `OrderedCopy` remembers what it decided; a log has few at a time."""
_ALL: Final = "all"
_NONE: Final = "none"


def members(image: bytes) -> tuple[int, ...]:
    """The copyset in the header of a sound image."""
    found: tuple[int, ...] = struct.unpack_from(f">{image[1]}I", image, _COPYSET_AT)
    return found


def no_body(header: bytes) -> bool:
    """Headers are enough."""
    return False


def keyed_bodies(header: bytes) -> bool:
    """Only the bodies in which there are keys."""
    return bool(header[_FLAGS_HIGH_AT] & _KEYED_HIGH or header[_FLAGS_LOW_AT] & _KEYED_LOW)


def ships(copyset: Sequence[int], shard: ShardId, known_down: frozenset[int], replication: int) -> bool:
    """Whether single-copy delivery leaves an entry (not a hole) to this shard.

    The first member of the copyset that is not known down delivers; one that is known down delivers too when it comes before that, which is
    how it is noticed to be back. A copyset larger than the replication was put together by recovery or rebuilding and may differ between
    copies: then its last members deliver as well.
    """
    extras = len(copyset) - replication if replication else 0
    if extras > 0:
        for member in reversed(copyset):
            if member == shard:
                return True
            if member not in known_down:
                extras -= 1
                if not extras:
                    break
    for member in copyset:
        if member == shard:
            return True
        if member not in known_down:
            return False
    return False


@dataclass(frozen=True, slots=True)
class SingleCopy:
    """Wants what single copy delivery leaves to a shard."""

    shard: ShardId
    known_down: frozenset[int]
    """Shards that the reader gets nothing from."""
    replication: int

    def __call__(self, image: bytes) -> bool:
        """Whether this shard sends the entry."""
        if image[_FLAGS_LOW_AT] & _HOLE:
            return True
        return ships(members(image), self.shard, self.known_down, self.replication)


@dataclass(frozen=True, slots=True)
class OrderedCopy(SingleCopy):
    """Wants what single copy delivery leaves to a shard when the reader says whom it wants to send, of those that could.

    Members of a copyset count by their tiers, and where these are equal by their places in the header. All shards of a stream are given the same order, so
    they agree on who sends.
    """

    order: tuple[tuple[int, int], ...] = ()
    """Shards and their tiers, the lowest first to send."""
    _tiers: Mapping[int, int] = field(init=False, repr=False, compare=False)
    _decided: dict[tuple[int, ...], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_tiers", dict(self.order))
        object.__setattr__(self, "_decided", {})

    def __call__(self, image: bytes) -> bool:
        """Whether this shard sends the entry."""
        if image[_FLAGS_LOW_AT] & _HOLE:
            return True
        copyset, decided = members(image), self._decided
        found = decided.get(copyset)
        if found is None:
            if len(decided) >= _DECIDED_MAX:
                decided.clear()
            tiers = self._tiers
            ordered = sorted(copyset, key=lambda member: tiers.get(member, _TIER_LAST))
            found = decided[copyset] = ships(ordered, self.shard, self.known_down, self.replication)
        return found


def pack_shards(shards: Iterable[int]) -> bytes:
    """A set of shards as bytes, which take a twentieth of the memory of a set."""
    distinct = sorted(set(shards))
    return struct.pack(f">{len(distinct)}I", *distinct)


def unpack_shards(packed: bytes) -> frozenset[int]:
    """The set that `pack_shards` was given."""
    return frozenset(struct.unpack(f">{len(packed) // 4}I", packed))


@lru_cache(maxsize=256)
def pack_order(order: tuple[tuple[int, int], ...]) -> bytes:
    """Shards and their tiers as bytes; empty when there are none. Readers that stand together have the same order: they share it."""
    return b"".join(_TIER.pack(shard, tier) for shard, tier in sorted(dict(order).items()))


def unpack_order(packed: bytes) -> tuple[tuple[int, int], ...]:
    """What `pack_order` was given, ascending."""
    return tuple(_TIER.iter_unpack(packed))


@lru_cache(maxsize=256)
def single_copy(shard: ShardId, known_down: bytes, replication: int, order: bytes = b"") -> SingleCopy:
    """The one `SingleCopy` for these. The few that are in use at a time are kept; a reader needs to keep its packed set only.

    Args:
        known_down: as of `pack_shards`.
        order: as of `pack_order`; empty: by the places in the header.
    """
    if order:
        return OrderedCopy(shard, unpack_shards(known_down), replication, unpack_order(order))
    return SingleCopy(shard, unpack_shards(known_down), replication)


def encode_wants(wants: Wants | None) -> str:
    """As one word, for another process that reads ahead. What has no word is taken for all."""
    if wants is no_body:
        return _NONE
    if isinstance(wants, SingleCopy):
        word = ":".join([str(wants.shard), str(wants.replication), *map(str, sorted(wants.known_down))])
        if isinstance(wants, OrderedCopy):
            word += "/" + ":".join(f"{shard}.{tier}" for shard, tier in wants.order)
        return word
    return _ALL


def decode_wants(word: str) -> Wants | None:
    """The opposite. ValueError where it is none."""
    if word == _NONE:
        return no_body
    if word == _ALL:
        return None
    single, _, order = word.partition("/")
    shard, replication, *known_down = map(int, single.split(":"))
    if order:
        tiers = [each.split(".") for each in order.split(":")]
        ordered = tuple((int(member), int(tier)) for member, tier in tiers)
        return OrderedCopy(ShardId(shard), frozenset(known_down), replication, ordered)
    return SingleCopy(ShardId(shard), frozenset(known_down), replication)
