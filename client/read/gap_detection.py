"""When the silence of shards proves that an LSN holds nothing that can be had."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable

from client.read.sender_state import Sender
from logdevice_py.config.location import Location
from logdevice_py.core.ids import ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.failure_domains import Authority, FMajority


class GapVerdict(enum.Enum):
    """What the shards' statements about the next LSN come to."""

    WAIT = enum.auto()  # a shard that has not spoken may hold the only copy
    GRACE = enum.auto()  # every copyset is covered, but some shards that count have not spoken
    GAP = enum.auto()  # nobody who could still speak may hold a copy


class GapDetector:
    """The f-majority rule over the read set of one interval."""

    __slots__ = ("_domains", "_last", "_verdict", "authoritative")

    def __init__(self, interval: EpochInterval, location: Callable[[ShardId], Location | None]) -> None:
        """
        Args:
            location: as in `EpochInterval.domains`.
        """
        self._domains = interval.domains(location)
        self._last: tuple[Lsn, tuple[ShardId, ...], tuple[ShardId, ...]] | None = None
        self._verdict = GapVerdict.WAIT
        self.authoritative = True
        """The last verdict, unless it was WAIT, rests on shards that lost nothing."""

    def set_lost(self, shard: ShardId, lost: bool, *, empty: bool = False) -> None:
        """The shard lost what it was given to keep (or, after all, did not). `empty`: others have stored it again, so nothing is missed with it."""
        authority = Authority.AUTHORITATIVE_EMPTY if empty else Authority.UNDERREPLICATION
        if not lost:
            authority = Authority.FULLY_AUTHORITATIVE
        if self._domains.authority(shard) is not authority:
            self._domains.set_authority(shard, authority)
            self._last = None

    def can_replicate(self, shards: Iterable[ShardId]) -> bool:
        """Whether these shards alone could hold an entry, so that single-copy delivery among them makes sense."""
        return self._domains.can_replicate(list(shards))

    def verdict(self, lsn: Lsn, senders: Iterable[Sender]) -> GapVerdict:
        """What those senders that have passed `lsn` without an entry come to."""
        gap: list[ShardId] = []
        under_replicated: list[ShardId] = []
        for sender in senders:
            if sender.next_lsn > lsn:
                (under_replicated if sender.is_unable(lsn) else gap).append(sender.shard)
        question = (lsn, tuple(gap), tuple(under_replicated))
        if question != self._last:
            self._last = question
            self._verdict = self._decide(gap, under_replicated)
        return self._verdict

    def _decide(self, gap: list[ShardId], under_replicated: list[ShardId]) -> GapVerdict:
        domains = self._domains
        result = domains.f_majority(gap)
        if under_replicated and result in (FMajority.NONE, FMajority.INCOMPLETE):
            wider = domains.f_majority(gap + under_replicated)
            if wider in (FMajority.COMPLETE, FMajority.NON_AUTHORITATIVE):
                result = FMajority.COMPLETE if result is FMajority.INCOMPLETE else FMajority.NON_AUTHORITATIVE
        self.authoritative = result.is_authoritative
        if result is FMajority.NONE:
            return GapVerdict.WAIT
        if result is FMajority.INCOMPLETE:
            return GapVerdict.GRACE
        return GapVerdict.GAP
