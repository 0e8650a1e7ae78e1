"""Recovery of one log: seals every epoch below the sequencer's own and recovers them one after the other.

Owners normally do not build a `LogRecovery` themselves: `sequencer.recovery.node_recoveries.NodeRecoveries` does, limits how many run at the
same time, merges their requests into few frames and routes the answers.
"""

from __future__ import annotations

import enum
from collections.abc import Callable

from epoch_store.interface import GetLastCleanEpoch, LastCleanEpoch, Result
from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, is_metadata_log, node_peer
from logdevice_py.core.lsn import EPOCH_INVALID, Epoch, Lsn
from logdevice_py.core.machine import Timer
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochMetaData, TailRecord
from logdevice_py.protocol.messages import CleanedLog, Mutated, SealedLog
from sequencer.recovery.context import RecoveryContext
from sequencer.recovery.epoch_recovery import EpochRecovery
from sequencer.recovery.epoch_store_call import EpochStoreCall
from sequencer.recovery.result import EpochContents, RecoveryOutcome, RecoveryResult
from sequencer.recovery.seal_request import SealRequest, SealState


class LogRecoveryState(enum.Enum):
    """How far the recovery of a log is."""

    IDLE = 1  # not started
    READING_LAST_CLEAN_EPOCH = 2  # asks the epoch store where to begin
    NO_SHARDS = 3  # none of the shards that may hold something is in the cluster file: waits for one that has them
    RECOVERING = 4  # seals shards, recovers one epoch after the other
    DONE = 5  # `on_done` was called, or it was aborted


def nobody_waits(next_epoch: Epoch, now: Micros) -> None:
    """Of who only wants the result."""


class LogRecovery:
    """Makes every epoch in (last clean epoch, next_epoch) final.

    It never fails: it retries until it is done (`on_done` with OK), finds a later sequencer (`on_done` with PREEMPTED) or is aborted.
    `on_done` is called once, from within a handler, and must not destroy the context. There is exactly one LogRecovery for an activation: it
    remembers what it decided in an attempt that was cut short, and one built anew for the same epoch would not. An owner that aborts
    one must get another epoch before it recovers again. The owner itself sees to it that the metadata of `next_epoch` are written before
    it releases anything.

    Args:
        log: a data log.
        next_epoch: the epoch of the sequencer; everything below it is sealed and recovered.
        metadata: with the full history of nodesets.
        context: what the recoveries of the node share.
        on_done: gets the result.
        on_sealed: gets `next_epoch` once nothing more can be stored whole below it, if that is before the result; perhaps more than once.
    """

    def __init__(
        self,
        log: LogId,
        next_epoch: Epoch,
        metadata: EpochMetaData,
        context: RecoveryContext,
        *,
        on_done: Callable[[RecoveryResult, Micros], None],
        on_sealed: Callable[[Epoch, Micros], None] = nobody_waits,
    ) -> None:
        assert not is_metadata_log(log), log
        assert next_epoch > 0
        self.state = LogRecoveryState.IDLE
        self.began: Micros | None = None
        self.is_resting = False
        """It waits for its next turn."""
        self.log = log
        self.next_epoch = next_epoch
        self.seal_epoch = Epoch(next_epoch - 1)
        self._metadata = metadata
        self._context = context
        self._on_done = on_done
        self._on_sealed = on_sealed
        self._last_clean_epoch = EPOCH_INVALID
        self._tail: TailRecord | None = None
        self._seals: dict[ShardId, SealRequest] = {}
        self._epoch: EpochRecovery | None = None
        self._recovered: list[EpochContents] = []
        self.earlier: tuple[EpochContents, ...] = ()
        """What recoveries found that this one follows."""
        self._store_call: EpochStoreCall | None = None
        self._next_epoch_timer: Timer | None = None
        self._no_shards_since = Micros(0)

    @property
    def recovered(self) -> tuple[EpochContents, ...]:
        """The epochs that this recovery has recovered, ascending."""
        return tuple(self._recovered)

    @property
    def found(self) -> tuple[EpochContents, ...]:
        """What is known of epochs below `next_epoch`, ascending."""
        return self.earlier + self.recovered

    @property
    def current(self) -> EpochRecovery | None:
        """The recovery of the epoch that it is at, to look at."""
        return self._epoch

    def start(self, now: Micros) -> None:
        """Begin: ask for the last clean epoch."""
        assert self.state is LogRecoveryState.IDLE
        self.began = now
        self.state = LogRecoveryState.READING_LAST_CLEAN_EPOCH
        self._store_call = EpochStoreCall(
            self._context, GetLastCleanEpoch(self.log), (Status.OK,), self._on_last_clean_epoch
        )

    def abort(self) -> None:
        """Stop without a result: cancels timers, ignores all that comes."""
        if self.state is LogRecoveryState.DONE:
            return
        self.state = LogRecoveryState.DONE
        if self._store_call is not None:
            self._store_call.cancel()
        if self._next_epoch_timer is not None:
            self._next_epoch_timer.cancel()
        for seal in self._seals.values():
            seal.cancel()
        if self._epoch is not None:
            self._epoch.cancel()
            self._epoch = None
        self._context.requests.forget(self.log)

    @property
    def waits_since(self) -> Micros | None:
        """Since when it has heard from none of the shards without which it cannot go on; None: it goes on."""
        if self.state is LogRecoveryState.NO_SHARDS:
            return self._no_shards_since
        return None if self._epoch is None else self._epoch.waits_since

    def rest(self) -> None:
        """Let others take their turn: hold nothing and ask nobody. Nothing that happens until `resume` is told."""
        assert self.waits_since is not None
        self.is_resting = True
        for seal in self._seals.values():
            seal.reset()
            seal.cancel()
        if self._epoch is not None:
            self._epoch.rest()
        self._context.requests.forget(self.log)

    def resume(self, now: Micros) -> None:
        """Go on, and ask anew: shards may have lost what they held."""
        self.is_resting = False
        if self.state is LogRecoveryState.NO_SHARDS:
            self._begin(now)
            return
        for seal in self._seals.values():
            seal.send_at_once(now)
        self._seal_new_shards(now)
        assert self._epoch is not None
        self._epoch.resume(now)

    # --- events ------------------------------------------------------------------------------------------------------------

    def _on_last_clean_epoch(self, result: Result, now: Micros) -> None:
        assert isinstance(result.value, LastCleanEpoch), result
        self._last_clean_epoch = result.value.epoch
        self._tail = result.value.tail
        if self._last_clean_epoch >= self.next_epoch:
            hit("recovery_last_clean_epoch_beyond")
            self._finish_preempted(self._last_clean_epoch, NodeId(-1), now)
        elif self._last_clean_epoch == self.seal_epoch:
            self._finish_ok(now)
        else:
            self._begin(now)

    def on_sealed(self, shard: ShardId, generation: Generation, row: SealedLog, now: Micros) -> None:
        """The log's part of a SEALED."""
        seal = self._seals.get(shard)
        if self.state is not LogRecoveryState.RECOVERING or seal is None:
            return
        if row.status is Status.PREEMPTED and row.seal_epoch > self.seal_epoch:
            self._finish_preempted(row.seal_epoch, row.seal_node, now)
        elif seal.on_sealed(generation, row, now):
            self._tell_epoch(shard, seal, now)

    def on_digested(
        self, shard: ShardId, status: Status, covered: Lsn, images: list[tuple[Lsn, bytes]], now: Micros
    ) -> None:
        """The log's part of a DIGESTED."""
        if self._epoch is not None:
            self._epoch.on_digested(shard, status, covered, images, now)

    def on_mutated(self, message: Mutated, now: Micros) -> None:
        """A shard's answer to a STORE."""
        if self._epoch is not None:
            self._epoch.on_mutated(message, now)

    def on_cleaned(self, shard: ShardId, row: CleanedLog, now: Micros) -> None:
        """The log's part of a CLEANED."""
        if self._epoch is not None:
            self._epoch.on_cleaned(shard, row, now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """The connection to a node was lost: its shards are sealed again, for they may have lost what they held."""
        if self.state is not LogRecoveryState.RECOVERING:
            return
        for shard, seal in self._seals.items():
            if node_peer(shard) == peer:
                seal.send_later(now)
        if self._epoch is not None:
            self._epoch.on_peer_down(peer, now)

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """A node can be reached again."""
        if self.state is not LogRecoveryState.RECOVERING:
            return
        for shard, seal in self._seals.items():
            if node_peer(shard) == peer and seal.state is SealState.UNSEALED:
                seal.send_at_once(now)

    def on_cluster_changed(self, now: Micros) -> None:
        """Nodes died or came back, the cluster file or the authority of shards changed."""
        if self.state is LogRecoveryState.NO_SHARDS:
            self._begin(now)
        elif self.state is LogRecoveryState.RECOVERING:
            self._seal_new_shards(now)
            if self._epoch is not None:
                self._epoch.on_cluster_changed(now)

    # --- what the recovery of an epoch asks for ----------------------------------------------------------------------------

    def reseal(self, shard: ShardId, now: Micros) -> None:
        """Seal the shard again after a while."""
        seal = self._seals.get(shard)
        if seal is not None:
            seal.send_later(now)

    def on_preempted(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        """A shard was sealed by a later sequencer."""
        self._finish_preempted(epoch, node, now)

    def on_enough_sealed(self, epoch: Epoch, now: Micros) -> None:
        """Nothing more can be stored whole in an epoch; those before it are clean."""
        if epoch == self.seal_epoch:
            self._on_sealed(self.next_epoch, now)

    def on_epoch_recovered(self, recovered: EpochContents, tail: TailRecord | None, now: Micros) -> None:
        """An epoch is clean."""
        self._recovered.append(recovered)
        self._tail = tail
        self._last_clean_epoch = recovered.epoch
        self._epoch = None
        # From the timer rather than from within: many empty epochs must not nest.
        self._next_epoch_timer = self._context.timers.at(now, self._recover_next_epoch)

    # --- progress ----------------------------------------------------------------------------------------------------------

    def _begin(self, now: Micros) -> None:
        self._seal_new_shards(now)
        if not self._seals and self._shards_below():
            hit("recovery_no_shards")
            self.state = LogRecoveryState.NO_SHARDS
            self._no_shards_since = now
            return
        self.state = LogRecoveryState.RECOVERING
        self._recover_next_epoch(now)

    def _shards_below(self) -> dict[ShardId, list[tuple[Epoch, Generation]]]:
        """The shards of every epoch that is to be recovered, each with its generations."""
        shards: dict[ShardId, list[tuple[Epoch, Generation]]] = {}
        history = self._metadata.history
        for index, interval in enumerate(history):
            ended = index + 1 < len(history) and history[index + 1].since <= self._last_clean_epoch + 1
            if ended or interval.since > self.seal_epoch:
                continue
            for shard, generation in interval.nodeset:
                generations = shards.setdefault(shard, [])
                if not generations or generations[-1][1] != generation:
                    generations.append((interval.since, generation))
        return shards

    def _seal_new_shards(self, now: Micros) -> None:
        for shard, generations in sorted(self._shards_below().items()):
            if shard not in self._seals and self._context.cluster.in_cluster(shard):
                seal = SealRequest(
                    self.log, shard, self.seal_epoch, generations, self._context, self, lambda: self._last_clean_epoch
                )
                self._seals[shard] = seal
                seal.send(now)

    def _recover_next_epoch(self, now: Micros) -> None:
        epoch = Epoch(self._last_clean_epoch + 1)
        if epoch > self.seal_epoch:
            self._finish_ok(now)
            return
        interval = self._metadata.interval(epoch)
        if interval is None:
            hit("recovery_epoch_without_metadata")  # before the log's first nodeset: nothing was ever stored
            assert self._metadata.history[0].since > epoch
            self._last_clean_epoch = Epoch(min(self._metadata.history[0].since - 1, self.seal_epoch))
            self._next_epoch_timer = self._context.timers.at(now, self._recover_next_epoch)
            return
        since = self._metadata.guarded_since
        self._epoch = EpochRecovery(
            self.log,
            epoch,
            interval,
            self.seal_epoch,
            self._context,
            self,
            self._tail,
            guarded=bool(since) and epoch >= since,
        )
        for shard, seal in sorted(self._seals.items()):
            if self._epoch is None or self._epoch.epoch != epoch:
                return
            self._tell_epoch(shard, seal, now)
        if self._epoch is not None and self._epoch.epoch == epoch:
            self._epoch.start(now)

    def _tell_epoch(self, shard: ShardId, seal: SealRequest, now: Micros) -> None:
        current = self._epoch
        if current is None or current.generation(shard) is None:
            return
        sealed = seal.sealed_epoch(current.epoch)
        if sealed is not None:
            current.on_sealed(sealed, shard, now)
        elif seal.state is SealState.SEALED:
            hit("recovery_seal_answer_too_short")  # too many epochs for one answer: the next one begins further up
            seal.send_later(now)

    def _finish_ok(self, now: Micros) -> None:
        self.abort()
        self._on_done(
            RecoveryResult(self.log, self.next_epoch, RecoveryOutcome.OK, self._tail, self.found),
            now,
        )

    def _finish_preempted(self, epoch: Epoch, node: NodeId, now: Micros) -> None:
        hit("recovery_preempted")
        self.abort()
        self._on_done(
            RecoveryResult(
                self.log, self.next_epoch, RecoveryOutcome.PREEMPTED, preempted_by_epoch=epoch, preempted_by_node=node
            ),
            now,
        )

    def explain(self) -> str:
        """What is waited for, for people."""
        text = self._epoch.explain() if self._epoch is not None else self.state.name
        return f"its turn; {text}" if self.is_resting else text
