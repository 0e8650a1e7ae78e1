"""CLEAN: an epoch is recovered, and what this shard holds of it is final.

How the epoch ended (its epoch recovery metadata) and the local last clean epoch are durable, in one batch, before CLEANED. So a globally
clean epoch has its recovery metadata on every shard of the mutation set, where shards that missed the recovery find it.

An epoch may be recovered again, when the sequencer died before the epoch store knew that it was clean. The later recovery's end takes the place of the first one's, with
an LNG that is perhaps higher: shards that purge go by what the members of the last mutation set say.

Recovery goes through epochs in order. A CLEAN before which other epochs are not clean here shows that this shard missed their recovery:
they are purged first.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from logdevice_py.core.epoch_summary import SUMMARY_SIZE
from logdevice_py.core.ids import PeerId
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import ANSWERS_PER_FRAME, Clean, Cleaned, CleanedLog, CleanLog
from logdevice_py.protocol.routing import handles
from storage_node.log_state import LogState
from storage_node.log_store.interface import EpochMetadataKind, LogMetadataKind
from storage_node.reading.release import PurgeStarter
from storage_node.shard import Shard
from storage_node.stored_metadata import RecoveredEpoch, encode_epoch
from storage_node.writing.shard_writes import WriteGroup


class CleanHandler:
    """Takes the CLEANs of one shard. One answer covers what can be written at once; logs that are purged first get their own."""

    __slots__ = ("_clean_moved", "_purges", "_shard")

    def __init__(self, shard: Shard, purges: PurgeStarter, clean_moved: Callable[[LogState, Micros], None]) -> None:
        self._shard = shard
        self._purges = purges
        self._clean_moved = clean_moved

    @handles(Clean)
    def on_clean(self, peer: PeerId, message: Clean, now: Micros) -> None:
        """Write what may be written, hold back the rest."""
        self._clean(peer, message, message.logs, now)

    def retry(self, state: LogState, now: Micros) -> None:
        """The last clean epoch moved: see what can be done about the CLEANs that waited for it."""
        held, state.held_cleans = state.held_cleans, None
        for epoch in sorted(held or ()):
            assert held is not None
            held[epoch](now)

    def _clean(self, peer: PeerId, message: Clean, logs: list[CleanLog], now: Micros) -> None:
        shard = self._shard
        status = shard.status()
        answers: list[CleanedLog] = []
        writing: list[tuple[LogState, CleanLog]] = []
        for item in logs:
            state, epoch = shard.log(item.log), item.epoch
            if status is not Status.OK:
                answers.append(self._answer(state, epoch, Status.FAILED))
            elif state.sealed > message.seal_epoch:
                hit("clean_preempted")
                answers.append(self._answer(state, epoch, Status.PREEMPTED))
            elif epoch <= state.clean_epoch:
                if ends_anew(state, message.seal_epoch, item):
                    hit("clean_of_epoch_recovered_twice")
                    writing.append((state, item))
                else:
                    answers.append(self._answer(state, epoch, Status.OK))
            elif epoch > state.clean_epoch + 1 or self._purges.is_purging(state):
                # Beside a purge, whose write may be on its way, that of a lower epoch would turn the last clean epoch back.
                hit("clean_waits_for_purge")
                state.fence = max(state.fence, Epoch(epoch - 1))
                self._hold(peer, message, state, item, now)
            else:
                writing.append((state, item))
        if writing:
            group = shard.writes.group(True)
            for state, item in writing:
                self._put(group, message, state, item)
            group.done.append(partial(self._on_written, peer, message, writing, answers))
        elif answers:
            self._send(peer, message, answers)

    def _hold(self, peer: PeerId, message: Clean, state: LogState, item: CleanLog, now: Micros) -> None:
        if state.held_cleans is None:
            state.held_cleans = {}
        epoch = item.epoch
        state.held_cleans[epoch] = partial(self._clean, peer, message, [item])
        if not state.clean_in_flight and epoch > state.clean_epoch + 1:
            self._purges.start(state, Epoch(epoch - 1), now)

    @staticmethod
    def _put(group: WriteGroup, message: Clean, state: LogState, item: CleanLog) -> None:
        state.clean_in_flight += 1
        epoch = item.epoch
        value = recovered_epoch(message.seal_epoch, item).encode()
        group.batch.put_epoch_metadata(state.log, epoch, EpochMetadataKind.RECOVERY, value)
        if epoch > state.clean_epoch:
            group.batch.put_log_metadata(state.log, LogMetadataKind.LAST_CLEAN, encode_epoch(epoch))

    def _on_written(
        self,
        peer: PeerId,
        message: Clean,
        writing: list[tuple[LogState, CleanLog]],
        answers: list[CleanedLog],
        status: Status,
        now: Micros,
    ) -> None:
        for state, item in writing:
            state.clean_in_flight -= 1
            epoch = item.epoch
            if status is Status.OK:
                is_known = state.recovered is not None and epoch in state.recovered
                # what was clean and is not known was trimmed meanwhile, and its end is forgotten
                if epoch > state.clean_epoch or is_known:
                    state.note_recovered(epoch, recovered_epoch(message.seal_epoch, item).encode())
                self._shard.metrics.epochs_cleaned += epoch > state.clean_epoch
                state.raise_clean_epoch(epoch)
                self._shard.forget_lng(state)
                self._shard.consolidate_later(state, epoch, item.lng + 1, item.last_esn)
                answers.append(self._answer(state, epoch, Status.OK))
            else:
                failed = status is Status.FAILED
                answers.append(self._answer(state, epoch, Status.FAILED if failed else Status.AGAIN))
        self._send(peer, message, answers)
        for state, _ in writing:
            self._clean_moved(state, now)

    @staticmethod
    def _answer(state: LogState, epoch: Epoch, status: Status) -> CleanedLog:
        return CleanedLog(state.log, epoch, status, state.sealed, state.sealed_by)

    def _send(self, peer: PeerId, message: Clean, answers: list[CleanedLog]) -> None:
        for begin in range(0, len(answers), ANSWERS_PER_FRAME):
            part = answers[begin : begin + ANSWERS_PER_FRAME]
            self._shard.out.send(peer, Cleaned(request_id=message.request_id, shard=message.shard, logs=part))


def ends_anew(state: LogState, seal_epoch: Epoch, item: CleanLog) -> bool:
    """Whether a later recovery ended than is known here, and proves no less."""
    known = None if state.recovered is None else state.recovered.get(item.epoch)
    return known is not None and known.seal_epoch < seal_epoch and bool(item.authoritative) >= known.authoritative


def recovered_epoch(seal_epoch: Epoch, item: CleanLog) -> RecoveredEpoch:
    """What CLEAN says of one epoch."""
    return RecoveredEpoch(
        seal_epoch,
        item.lng,
        item.last_esn,
        item.tail_lsn,
        item.tail_timestamp,
        bool(item.authoritative),
        item.summary if len(item.summary) == SUMMARY_SIZE else b"",
    )
