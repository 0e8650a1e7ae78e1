"""What a log loses while some shards are away: appends, reads, recovery, rebuilding, data. Worked out from nodesets, and from copysets where they are known."""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import ShardId
from logdevice_py.core.lsn import Epoch
from logdevice_py.placement.failure_domains import Authority, FailureDomains, Labels


class Loss(enum.Enum):
    """What is not to be had; the value says so of a log."""

    DATA = "records may have no copy left but those of the shards that go"
    READS = "readers stall: too few shards are left to tell a gap from records that are away"
    APPENDS = "appends stall: the shards that are left cannot hold all copies of a record"
    RECOVERY = "when its sequencer dies, its next one waits: too few shards are left to know what the epoch holds"
    REBUILDING = "copies that are missing cannot be restored: too few shards are left to hold them"


@dataclass(frozen=True, slots=True)
class ShardsNow:
    """What is known of shards before any of them goes."""

    away: frozenset[ShardId] = frozenset()
    """They do not answer. Their data is there when they come back."""
    lost: frozenset[ShardId] = frozenset()
    """They lost what they held, and not all of it was restored elsewhere."""
    emptied: frozenset[ShardId] = frozenset()
    """What they held has all its copies elsewhere: drained or rebuilt."""
    unwritable: frozenset[ShardId] = frozenset()
    """They take no records: read-only, disabled, full or drained."""


@dataclass(frozen=True, slots=True)
class PlacedEpochs:
    """Consecutive epochs of a log with one nodeset."""

    since: Epoch
    until: Epoch
    shards: tuple[ShardId, ...]
    replication: ReplicationProperty
    labels: Labels
    is_current: bool = False
    """Appends go here."""
    is_open: bool = False
    """It holds an epoch that is not recovered yet; the current ones always do."""
    now: ShardsNow = ShardsNow()
    """Of its shards, in the generations that these epochs list."""
    copysets: frozenset[frozenset[ShardId]] | None = None
    """The shards that have copies, of all entries; None: not known, so that entries may be on any shards that the replication property allows."""


@dataclass(frozen=True, slots=True)
class Impact:
    """Something that a log loses."""

    loss: Loss
    since: Epoch
    until: Epoch
    shards: tuple[ShardId, ...]
    """Of the nodeset, those that are missing then, ascending."""
    is_new: bool
    """False: it is lost already, before anything goes."""


def impact(epochs: Iterable[PlacedEpochs], going: Collection[ShardId]) -> list[Impact]:
    """What a log loses while shards are away, the worst first; empty: nothing, whichever way the copies lie.

    Args:
        epochs: all of the log of which something is not trimmed.
        going: shards that go at the same time. Whether they come back is not asked: what must not be lost for good is lost here already
            when its last copies are on shards that go.
    """
    found = []
    for each in epochs:
        before, now = _losses(each, frozenset()), each.now
        missing = tuple(sorted(shard for shard in each.shards if shard in (now.away | now.lost | frozenset(going))))
        for loss in _losses(each, frozenset(going)):
            found.append(Impact(loss, each.since, each.until, missing, loss not in before))
    order = list(Loss)
    return sorted(found, key=lambda each: (not each.is_new, order.index(each.loss), each.since))


def _losses(epochs: PlacedEpochs, going: frozenset[ShardId]) -> list[Loss]:
    now = epochs.now
    domains = FailureDomains(epochs.shards, epochs.replication, epochs.labels)
    for shard in now.lost:
        domains.set_authority(shard, Authority.UNDERREPLICATION)
    for shard in now.emptied:
        domains.set_authority(shard, Authority.AUTHORITATIVE_EMPTY)
    away = now.away | going
    missing = away | now.lost
    left = [shard for shard in epochs.shards if shard not in missing]
    writable = [shard for shard in left if shard not in now.unwritable and shard not in now.emptied]
    proves = domains.f_majority(left).is_authoritative
    found = []
    if epochs.copysets is None:
        held = [shard for shard in epochs.shards if shard in missing and shard not in now.emptied]
        if domains.can_replicate(held):
            found.append(Loss.DATA)
    elif any(copyset <= missing for copyset in epochs.copysets):
        found.append(Loss.DATA)
    if not proves or Loss.DATA in found:
        found.append(Loss.READS)
    if epochs.is_current and not domains.can_replicate(writable):
        found.append(Loss.APPENDS)
    if (epochs.is_current or epochs.is_open) and not proves:
        found.append(Loss.RECOVERY)
    if _must_restore(epochs, missing - now.emptied) and not domains.can_replicate(writable):
        found.append(Loss.REBUILDING)
    return found


def _must_restore(epochs: PlacedEpochs, missing: frozenset[ShardId]) -> bool:
    """Whether there may be copies on what is missing."""
    if epochs.copysets is None:
        return not missing.isdisjoint(epochs.shards)
    return any(not copyset.isdisjoint(missing) for copyset in epochs.copysets)
