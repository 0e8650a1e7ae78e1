"""The changes that are made to epoch metadata. Pure functions of what is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from epoch_store.interface import UpdateMetadata
from logdevice_py.config.location import Location
from logdevice_py.core import marks
from logdevice_py.core.ids import LogId, NodeId, ShardId
from logdevice_py.core.lsn import EPOCH_INVALID, EPOCH_MAX, EPOCH_MIN, Epoch
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import (
    HISTORY_MAX,
    JOINED_MAX,
    TIMESTAMP_UNKNOWN,
    EpochInterval,
    EpochMetaData,
)
from logdevice_py.metadata.widening import Widening

NOBODY = NodeId(-1)


@dataclass(frozen=True, slots=True)
class ToNextEpoch:
    """Take the next epoch. The activation got `EpochMetaData.given_epoch` of the result.

    Refusals, in this order: EMPTY (there is no metadata, and `provision` is off), ABORTED (the next epoch is not `acceptable_epoch`: another
    node was faster), DISABLED, TOOBIG (the epochs are used up).
    """

    interval: EpochInterval | None = None
    """The nodeset and replication that are wanted (its `since` is ignored). They take effect with the epoch that is given, unless the
    current interval is not in the metadata log yet: then that one stays, and the caller sees in the result that it does. None: leave it."""
    acceptable_epoch: Epoch | None = None
    """Take this epoch or none."""
    provision: bool = False
    """Create the metadata of a log that has none, with epoch 1."""
    timestamp: Timestamp = TIMESTAMP_UNKNOWN
    """When; only shown to people."""
    location: Callable[[ShardId], Location | None] | None = None
    """By which intervals without labels get them, for good; the current one as well, which thereby does not become another one. None: they stay
    without."""
    trimmed_before: Epoch = EPOCH_INVALID
    """Intervals that end before this epoch are left out when one is added: everything of them is trimmed everywhere."""
    widenings: tuple[Widening, ...] = ()
    """Nodesets of earlier epochs, all clean, that the next history has wider. As a wanted nodeset does, they wait until the metadata log has the current interval."""

    def __post_init__(self) -> None:
        assert not self.provision or self.interval is not None, "a log cannot be provisioned without a nodeset"

    def __call__(self, current: EpochMetaData | None) -> EpochMetaData | Status:
        if current is None and not self.provision:
            return Status.EMPTY
        epoch = EPOCH_MIN if current is None else current.epoch
        if self.acceptable_epoch is not None and epoch != self.acceptable_epoch:
            return Status.ABORTED
        if current is None:
            assert self.interval is not None
            history: tuple[EpochInterval, ...] = (self._interval(self.interval, epoch),)
            return EpochMetaData(Epoch(epoch + 1), history, False, False, NOBODY, self.timestamp, self.timestamp)
        if current.disabled:
            return Status.DISABLED
        if epoch >= EPOCH_MAX:
            return Status.TOOBIG
        taken = replace(current, epoch=Epoch(epoch + 1), epoch_given_at=self.timestamp)
        if self.location is not None and any(interval.labels is None for interval in current.history):
            marks.hit("older_epochs_get_labels")
            history = tuple([interval.labelled(self.location) for interval in current.history])
            taken = replace(taken, history=history, written=False)
        if self.widenings and current.written:
            taken = self._widened(taken, epoch)
        if self.interval is None or self.interval.same_placement(taken.current):
            return taken
        if self.interval.config_version < current.current.config_version:
            marks.hit(
                "nodeset_of_older_cluster_file"
            )  # whoever is behind does not undo what others did by a later file
            return taken
        if not current.written:
            marks.hit("nodeset_change_waits_for_metadata_log")
            return taken
        needed = needed_history(taken.history, self.trimmed_before)
        if len(needed) >= HISTORY_MAX:
            marks.hit("metadata_history_is_full")
            return taken
        if len(needed) < len(taken.history):
            marks.hit("trimmed_history_left_out")
        history = (*needed, self._interval(self.interval, epoch))
        return replace(taken, history=history, written=False, replication_changed_at=self.timestamp)

    def _widened(self, taken: EpochMetaData, epoch: Epoch) -> EpochMetaData:
        wider = {each.narrow.since: each for each in self.widenings}
        history = list(taken.history)
        for at, interval in enumerate(history[:-1]):
            each = wider.get(interval.since)
            if each is not None and each.narrow == interval:
                history[at] = replace(each.wide, widened=epoch)
        if history == list(taken.history):
            marks.hit("nodesets_are_others_than_those_to_widen")
            return taken
        if sum(len(interval.joined) for interval in history) > JOINED_MAX:
            return taken  # the sequencer does not ask for that: more may have joined since
        marks.hit("earlier_nodesets_widened")
        return replace(taken, history=tuple(history), written=False)

    @staticmethod
    def _interval(wanted: EpochInterval, since: Epoch) -> EpochInterval:
        return replace(wanted, since=since, nodeset=tuple(sorted(wanted.nodeset)))


def needed_history(history: tuple[EpochInterval, ...], trimmed_before: Epoch) -> tuple[EpochInterval, ...]:
    """A history without the intervals at its beginning that end before an epoch; the last one stays."""
    first = sum(interval.since <= trimmed_before for interval in history[1:])
    return history[first:]


@dataclass(frozen=True, slots=True)
class ToWritten:
    """Note that the present history is in the metadata log. STALE when the history is another one; EMPTY when there is none."""

    history: tuple[EpochInterval, ...]
    """The history that was written to the metadata log. Its last interval would not do: who notes it late, because an answer was lost, must not say that of a history of
    which earlier nodesets are wider since."""

    def __call__(self, current: EpochMetaData | None) -> EpochMetaData | Status:
        if current is None:
            return Status.EMPTY
        if current.history != self.history:
            return Status.STALE
        return current if current.written else replace(current, written=True)


@dataclass(frozen=True, slots=True)
class Retire:
    """Forbid the activation of sequencers for good, if `epoch` is the last one that was taken; ABORTED when a later one was. Nothing changes when that was done
    before. EMPTY when there is no metadata."""

    epoch: Epoch

    def __call__(self, current: EpochMetaData | None) -> EpochMetaData | Status:
        if current is None:
            return Status.EMPTY
        if current.disabled:
            return current
        return replace(current, disabled=True) if current.given_epoch == self.epoch else Status.ABORTED


@dataclass(frozen=True, slots=True)
class SetDisabled:
    """Forbid or allow the activation of sequencers for a log; its epochs go on where they were. EMPTY when it has no metadata."""

    disabled: bool = True

    def __call__(self, current: EpochMetaData | None) -> EpochMetaData | Status:
        if current is None:
            return Status.EMPTY
        return replace(current, disabled=self.disabled)


def bump_many(updates: dict[LogId, ToNextEpoch], writer: NodeId) -> list[UpdateMetadata]:
    """The batch of operations that takes the next epoch of many logs, in the order of the dictionary."""
    return [UpdateMetadata(log, updater, writer) for log, updater in updates.items()]
