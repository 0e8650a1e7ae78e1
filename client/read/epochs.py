"""Which shards hold which epochs of a log, as far as the reader knows for certain."""

from __future__ import annotations

from bisect import bisect_right

from logdevice_py.core.lsn import EPOCH_INVALID, EPOCH_MIN, ESN_MAX, LSN_MAX, Epoch, Lsn, compose_lsn, epoch_of
from logdevice_py.metadata.epoch_metadata import EpochInterval


class EpochHistory:
    """The intervals of epochs that share a nodeset, and up to which epoch they are certain.

    The nodeset of an epoch is in the metadata log before anything of the epoch is released. A history that was read after an LSN was seen
    released is therefore right for the LSN's epoch; for later ones its last interval is only where to listen.
    """

    __slots__ = ("_certain", "_intervals", "_since", "trimmed_before")

    def __init__(self) -> None:
        self._intervals: tuple[EpochInterval, ...] = ()
        self._since: list[int] = []
        self._certain: Epoch = EPOCH_INVALID
        self.trimmed_before: Epoch = EPOCH_INVALID
        """Everything of the epochs before this one is trimmed: their nodesets were left out of the history."""

    def update(self, intervals: tuple[EpochInterval, ...], *, certain: int) -> None:
        """Take a history whose reading began after an LSN of epoch `certain` was seen released (0: none was)."""
        assert intervals, "an empty history says nothing"
        if not self._intervals or intervals[-1].since >= self._intervals[-1].since:
            first = intervals[0].since
            known = {interval.since: interval for interval in self._intervals}
            # no shard leaves a nodeset: where one that was known is wider, what was read now is an earlier record
            intervals = tuple(
                before
                if (before := known.get(interval.since)) is not None and before.widened > interval.widened
                else interval
                for interval in intervals
            )
            # whoever reads one of the intervals that were left out since knows it by its index
            self._intervals = (*(each for each in self._intervals if each.since < first), *intervals)
            self._since = [interval.since for interval in self._intervals]
            if first > EPOCH_MIN:
                self.trimmed_before = max(self.trimmed_before, first)
        self._certain = Epoch(max(self._certain, certain, self._since[-1]))

    @property
    def known(self) -> bool:
        """There is at least one interval."""
        return bool(self._intervals)

    @property
    def certain(self) -> Epoch:
        """The nodesets of all epochs up to this one are known for certain."""
        return self._certain

    @property
    def first_epoch(self) -> Epoch:
        """The log has no epoch before this one."""
        return Epoch(self._since[0])

    def index_of(self, lsn: int) -> int:
        """Which interval holds the LSN; the first one for LSNs before it."""
        return max(0, bisect_right(self._since, epoch_of(lsn)) - 1)

    def interval(self, index: int) -> EpochInterval:
        """An interval by its index."""
        return self._intervals[index]

    def is_closed(self, index: int) -> bool:
        """A later interval exists, so this one gets no more epochs."""
        return index + 1 < len(self._intervals)

    def end_of(self, index: int) -> Lsn:
        """The last LSN of an interval; `LSN_MAX` for the last one."""
        if not self.is_closed(index):
            return LSN_MAX
        return Lsn(compose_lsn(self._since[index + 1], 0) - 1)

    def certain_end_of(self, index: int) -> Lsn:
        """The last LSN of an interval that is certain to belong to it."""
        return Lsn(min(self.end_of(index), compose_lsn(self._certain, ESN_MAX)))
