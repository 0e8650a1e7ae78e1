"""Sticky copysets: one copyset for a block of entries of an epoch, so that readers find long runs on few shards."""

from __future__ import annotations

from logdevice_py.config.attributes import LogAttributes
from logdevice_py.core.ids import ShardId
from logdevice_py.core.units import Micros
from logdevice_py.placement.extra_copies import ExtraCopies
from logdevice_py.placement.policy import CopysetSource
from sequencer.store_availability import StoreAvailability

Copyset = tuple[ShardId, ...]


class StickyCopyset:
    """The current block of one epoch of one log.

    A block ends when it is large or old, when one of its shards is not available, or when a wave to its copyset failed; and, while it lacks extra copies, when
    another shard may be available.
    """

    __slots__ = ("_bytes", "_lacks_extras", "_started", "_version", "copyset")

    def __init__(self) -> None:
        self.copyset: Copyset | None = None
        self._bytes = 0
        self._started = Micros(0)
        self._version = 0
        self._lacks_extras = False
        """Fewer extra copies were available than are wanted."""

    def pick(
        self,
        size: int,
        tried: Copyset | None,
        attributes: LogAttributes,
        selector: CopysetSource,
        availability: StoreAvailability,
        lost: frozenset[ShardId],
        now: Micros,
        extras: ExtraCopies | None = None,
    ) -> Copyset | None:
        """The copyset for an entry of `size` bytes whose last wave, if any, went to `tried`, without the shards of `lost`. None: there is none at
        present.

        Args:
            extras: who chooses the extra copies; None: there are none.
        """
        copyset = self.copyset
        if (
            copyset is not None
            and copyset is not tried
            and self._bytes < attributes.sticky_block_bytes
            and now - self._started < attributes.sticky_block_age_us
            and (self._version == availability.version or self._still_available(availability))
        ):
            self._bytes += size
            return copyset
        copyset = chosen = select(selector, availability, lost)
        if chosen is not None and extras is not None:
            copyset = extras.add(chosen, lambda shard: shard not in lost and availability.is_available(shard))
            self._lacks_extras = len(copyset) < len(chosen) + extras.count
        if copyset is not None and attributes.sticky_copysets:
            self.copyset = copyset
            self._bytes = size
            self._started = now
            self._version = availability.version
        return copyset

    def end_block(self) -> None:
        """The next entry begins another block."""
        self.copyset = None

    def _still_available(self, availability: StoreAvailability) -> bool:
        assert self.copyset is not None
        if self._lacks_extras:
            return False  # another shard may be there by now
        if not all(availability.is_available(shard) for shard in self.copyset):
            return False
        self._version = availability.version
        return True


def select(
    selector: CopysetSource, availability: StoreAvailability, lost: frozenset[ShardId] = frozenset()
) -> Copyset | None:
    """A copyset of available shards; the graylist gives way when there is none without its shards."""

    def is_available(shard: ShardId) -> bool:
        return shard not in lost and availability.is_available(shard)

    copyset = selector.pick(is_available)
    if copyset is None and availability.forgive_slow(selector.nodeset):
        copyset = selector.pick(is_available)
    return copyset
