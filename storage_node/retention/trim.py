"""TRIM: delete the oldest part of a log; CHECK_SEAL: what seals hold."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from logdevice_py.core.ids import LogId, PeerId, is_metadata_log
from logdevice_py.core.lsn import (
    EPOCH_INVALID,
    EPOCH_MAX,
    ESN_MAX,
    LSN_MAX,
    LSN_OLDEST,
    Epoch,
    Lsn,
    compose_lsn,
    epoch_of,
)
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import ANSWERS_PER_FRAME, CheckedLog, CheckSeal, SealChecked, Trim, Trimmed
from logdevice_py.protocol.routing import handles
from storage_node.log_state import NO_NODE, LogState
from storage_node.log_store.interface import EpochMetadataKind, LogMetadataKind
from storage_node.shard import Shard
from storage_node.stored_metadata import encode_lsn, encode_seal


def judge(state: LogState, lsn: Lsn) -> Status:
    """Whether a log may be trimmed up to an LSN.

    A trim point never shrinks, so one beyond what is released would take what is acknowledged later. Whatever is released is told to all shards of
    all nodesets of a log again and again: a shard that is behind can judge after a while.

    Returns:
        OK, or AGAIN: it is not known here that the log is released so far.
    """
    if lsn > max(state.trim_point, state.known_released):
        hit("trim_beyond_release")
        return Status.AGAIN
    return Status.OK


class TrimHandler:
    """Takes the TRIMs of one shard. Trim points only grow, and are durable before TRIMMED."""

    __slots__ = ("_moved", "_owed", "_shard")

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._moved: dict[LogId, LogState] = {}
        self._owed: dict[LogId, LogState] = {}
        """Logs whose trim point moved in memory and was refused by the disk."""

    def take_moved(self) -> list[LogState]:
        """Logs whose trim points moved here since the last call, not because another shard said so."""
        moved, self._moved = self._moved, {}
        return list(moved.values())

    @handles(Trim)
    def on_trim(self, peer: PeerId, message: Trim, now: Micros) -> None:
        """Move the trim point."""
        shard = self._shard
        status = shard.status()
        unknown = shard.find(message.log) is None and not shard.may_exist(message.log)
        if status is Status.OK and (unknown or is_metadata_log(message.log)):
            # a metadata log is the history of its log: nobody may trim it
            status = Status.NOTFOUND
        if status is Status.OK and message.lsn >= LSN_MAX:
            status = Status.INVALID_PARAM
        if status is not Status.OK:
            self._answer(peer, message, status)
            return
        state = shard.log(message.log)
        status = judge(state, message.lsn)
        if status is not Status.OK:
            self._answer(peer, message, status)
            return
        if message.lsn > state.trim_point:
            state.trim_point = message.lsn
            shard.metrics.trims += 1
            self._moved[state.log] = state
        # Also a TRIM that moves nothing waits for a sync: the one that moved the point may not be durable yet.
        shard.writes.close()
        self._write(state)
        shard.writes.group(True).done.append(lambda status, _: self._answer(peer, message, status))

    def expire(self, states: Sequence[LogState]) -> None:
        """Write the trim points of logs, which were moved because this shard found that their records are not to be kept longer."""
        self._moved.update((state.log, state) for state in states)
        self.write(states)

    def delete_log(self, state: LogState, last: Epoch) -> None:
        """Trim all of a log that nobody will read or recover any more, released or not.

        Args:
            last: of what is here; it was ended with `end_epochs`.
        """
        # the whole rest of the epoch with it: without its bridge it would look lost, should the log come back
        state.trim_point = compose_lsn(last, ESN_MAX)
        self._moved[state.log] = state
        self.write([state])
        # with the trim point or after it: what a power cut between the two leaves must not look lost, should the log come back
        self._shard.writes.group(True).batch.delete_entries(state.log, LSN_OLDEST, state.trim_point)
        if state.recovered is not None:
            self._forget(state, EpochMetadataKind.RECOVERY, state.recovered.forget_before(EPOCH_MAX))

    def end_epochs(self, state: LogState, last: Epoch) -> None:
        """A log that left the cluster file is deleted to the end of an epoch. A sequencer that stalled meanwhile and has not heard of that may not go
        on with the epoch should the log come back: what it got stored would be trimmed."""
        if state.seal_epoch < last:
            hit("removed_log_sealed")
            state.seal_epoch, state.seal_node = last, NO_NODE
            self._write_seal(state)

    def _write_seal(self, state: LogState) -> None:
        batch = self._shard.writes.group(True).batch
        batch.put_log_metadata(state.log, LogMetadataKind.SEAL, encode_seal(state.seal_epoch, state.seal_node))

    def write(self, states: Sequence[LogState]) -> None:
        """Write the trim points of logs, which were moved. What the disk refuses is written again after a while."""
        shard = self._shard
        done = partial(self._on_written, list(states))
        shard.writes.close()
        group = shard.writes.group(True)
        group.done.append(done)
        for state in states:
            self._write(state)
            if shard.writes.group(True) is not group:
                # the batch was full: another one goes on
                group = shard.writes.group(True)
                group.done.append(done)

    def _on_written(self, states: list[LogState], status: Status, now: Micros) -> None:
        if status is Status.OK:
            return
        shard = self._shard
        if not self._owed:
            shard.timers.at(Micros(now + shard.settings.last_released_persist_interval_us), self._pay)
        self._owed.update((state.log, state) for state in states)

    def _pay(self, now: Micros) -> None:
        owed, self._owed = self._owed, {}
        if self._shard.status() is Status.OK:
            self.write(list(owed.values()))

    def _write(self, state: LogState) -> None:
        if state.seal_epoch and state.seal_node == NO_NODE:
            # a trim point that ends an epoch is not to outlive the seal of that epoch, which the disk may have refused
            self._write_seal(state)
        batch = self._shard.writes.group(True).batch
        batch.put_log_metadata(state.log, LogMetadataKind.TRIM_POINT, encode_lsn(state.trim_point))
        self._delete(state)
        if state.streams is not None:
            for stream in state.streams:
                stream.wake()

    def _delete(self, state: LogState) -> None:
        """Delete what is trimmed and released. What is not released is left alone: recovery may still have to look at it."""
        shard = self._shard
        batch = shard.writes.group(True).batch
        last = min(state.trim_point, state.last_released)
        if last:
            batch.delete_entries(state.log, LSN_OLDEST, last)
            # With the entries goes what they told of the LNG; the release pointer, written lazily else, says as much.
            batch.put_log_metadata(state.log, LogMetadataKind.LAST_RELEASED, encode_lsn(state.last_released))
            if state.recent is not None:
                shard.recent.drop_until(state.recent, last)
        # Who asks how a trimmed epoch ended is told that it is trimmed; the one of the trim point is kept because it may be trimmed in part.
        ended = min(epoch_of(state.trim_point), state.clean_epoch)
        if state.recovered is not None:
            self._forget(state, EpochMetadataKind.RECOVERY, state.recovered.forget_before(ended))
        if state.epochs is not None:
            trimmed = [epoch for epoch in state.epochs if epoch < ended]
            for epoch in trimmed:
                del state.epochs[epoch]
            self._forget(state, EpochMetadataKind.MUTABLE, trimmed)

    def _forget(self, state: LogState, kind: EpochMetadataKind, epochs: list[Epoch]) -> None:
        for epoch in epochs:
            self._shard.writes.group(True).batch.delete_epoch_metadata(state.log, epoch, kind)

    def _answer(self, peer: PeerId, message: Trim, status: Status) -> None:
        self._shard.out.send(
            peer, Trimmed(request_id=message.request_id, log=message.log, shard=message.shard, status=status)
        )


def check_seals(shard: Shard, peer: PeerId, message: CheckSeal) -> None:
    """Answer CHECK_SEAL: the seals as they hold in memory, which may be a little ahead of the disk."""
    logs = []
    for log in message.logs:
        state = shard.find(LogId(log))
        if state is None:
            logs.append(CheckedLog(LogId(log), EPOCH_INVALID, NO_NODE))
        elif state.soft_epoch > state.sealed:
            logs.append(CheckedLog(state.log, state.soft_epoch, state.soft_node))
        else:
            logs.append(CheckedLog(state.log, state.sealed, state.sealed_by))
    for begin in range(0, max(len(logs), 1), ANSWERS_PER_FRAME):
        part = logs[begin : begin + ANSWERS_PER_FRAME]
        shard.out.send(peer, SealChecked(request_id=message.request_id, shard=message.shard, logs=part))
