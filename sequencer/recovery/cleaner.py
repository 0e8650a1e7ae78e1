"""Tells the members of the mutation set that an epoch is final, until each has it on disk."""

from __future__ import annotations

from typing import Protocol

from logdevice_py.core.ids import NodeId, ShardId
from logdevice_py.core.lsn import LSN_INVALID, Epoch
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import CleanedLog, CleanLog
from sequencer.recovery.coalescing import AnswerSink
from sequencer.recovery.context import RecoveryContext
from sequencer.recovery.plan import Plan
from sequencer.recovery.recovery_shard import RecoveryShard, RecoveryShards, RecoveryShardState


class CleanerOwner(Protocol):
    """What the cleaner tells the recovery of the epoch."""

    def on_shard_cleaned(self, now: Micros) -> None:
        """A member has it on disk."""

    def on_shard_refused(self, shard: ShardId, status: Status, now: Micros) -> None:
        """A member cannot."""

    def on_preempted(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """A member was sealed by a later sequencer."""


class Cleaner:
    """Moves members from CLEANING to CLEAN. All of them must get there: one left out could tell readers something else."""

    def __init__(
        self, context: RecoveryContext, owner: CleanerOwner, sink: AnswerSink, plan: Plan, shards: RecoveryShards
    ) -> None:
        self._context = context
        self._owner = owner
        self._sink = sink
        self._plan = plan
        self._shards = shards

    def start(self, now: Micros) -> None:
        """Tell all members of the mutation set."""
        for member in self._shards.members.values():
            if member.state is RecoveryShardState.MUTATABLE:
                member.state = RecoveryShardState.CLEANING
                member.delay = self._context.settings.clean_retry_initial_us
                self._ask(member, now)

    def cancel(self) -> None:
        """Tell nobody any more; answers that are on their way do not count."""
        self._context.requests.withdraw_cleans(self._plan.log)

    @property
    def finished(self) -> bool:
        """Every member has it on disk."""
        return not self._shards.cleaning()

    def _ask(self, member: RecoveryShard, now: Micros) -> None:
        plan = self._plan
        tail = plan.tail_record
        row = CleanLog(
            plan.log,
            plan.epoch,
            plan.lng,
            plan.last,
            tail.lsn if tail is not None else LSN_INVALID,
            tail.timestamp if tail is not None else Timestamp(0),
            int(plan.authoritative),
            b"" if plan.summary is None else plan.summary.encode(),
        )
        self._context.requests.clean(self._sink, member.shard, plan.seal_epoch, row)

        def again(now: Micros) -> None:
            hit("recovery_clean_repeated")
            member.delay = min(2 * member.delay, self._context.settings.clean_retry_max_us)
            self._ask(member, now)

        member.timer = self._context.timers.at(now + member.delay, again)

    def on_cleaned(self, shard: ShardId, row: CleanedLog, now: Micros) -> None:
        """An answer."""
        status = row.status
        member = self._shards.members.get(shard)
        if member is None or row.epoch != self._plan.epoch or member.state is not RecoveryShardState.CLEANING:
            hit("recovery_cleaned_unasked")
        elif status is Status.OK:
            member.cancel_timer()
            member.state = RecoveryShardState.CLEAN
            self._owner.on_shard_cleaned(now)
        elif status is Status.PREEMPTED and row.seal_epoch > self._plan.seal_epoch:
            self._owner.on_preempted(row.seal_epoch, row.seal_node, now)
        elif status in (Status.AGAIN, Status.OVERLOADED, Status.PREEMPTED):
            hit("recovery_clean_again")  # repeated when the timer fires
        else:
            self._owner.on_shard_refused(shard, status, now)
