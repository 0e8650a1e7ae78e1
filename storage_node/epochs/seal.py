"""SEAL: refuse STOREs of earlier epochs from then on, and tell recovery what each of those epochs has here.

From the moment that a SEAL is accepted STOREs of its epochs are refused. STOREs accepted before it lie in batches written before the seal's
own, and SEALED is sent after that is synced: so SEALED counts every copy of a sealed epoch that this shard will ever answer with OK.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Final

from logdevice_py.core.entry import EntryHeader, parse_header
from logdevice_py.core.ids import Generation, PeerId
from logdevice_py.core.lsn import (
    EPOCH_INVALID,
    ESN_INVALID,
    ESN_MAX,
    ESN_MIN,
    LSN_INVALID,
    Epoch,
    Esn,
    Lsn,
    compose_lsn,
    epoch_of,
    esn_of,
)
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.protocol.messages import (
    EPOCHS_PER_SEALED,
    EXTENSIONS_TOLD,
    FIELDS_BUDGET,
    EpochState,
    Seal,
    Sealed,
    SealedLog,
)
from logdevice_py.protocol.routing import handles
from storage_node.log_state import NO_NODE, LogState
from storage_node.log_store.interface import LogMetadataKind, ReadResult
from storage_node.shard import Shard
from storage_node.stored_metadata import encode_seal

_NO_TIME: Final = Timestamp(0)
_STATE_SIZE: Final = 47
_ROW_SIZE: Final = 33
"""Bytes that a state of an epoch without what `_tail_size` counts, and a row without its states, take in a message at most."""
_PAUSE_US: Final = 10_000
"""What one turn lists, `EPOCHS_PER_SEALED` epochs or logs, takes some 4 ms; the rest is left to others."""
_SEALS_QUEUED_MAX: Final = 64
Generations = Sequence[tuple[int, int]]


@dataclass(slots=True)
class EpochFacts:
    """What a shard has of one epoch."""

    epoch: Epoch
    status: Status
    """OK, or REBUILDING: entries may be missing here."""
    is_elsewhere: bool
    """It speaks of another generation of the shard: nothing of it is here."""
    lng: Esn = ESN_INVALID
    last_esn: Esn = ESN_INVALID
    last_timestamp: Timestamp = _NO_TIME
    tail_lsn: Lsn = LSN_INVALID
    tail_timestamp: Timestamp = _NO_TIME
    tail_records: int = 0
    tail_extensions: bytes = b""

    def tell_tail(self, header: EntryHeader) -> None:
        """The last entry up to the LNG is the one of that header."""
        self.tail_lsn, self.tail_timestamp, self.tail_records = header.lsn, header.timestamp, header.records
        self.tail_extensions = header.extensions if len(header.extensions) <= EXTENSIONS_TOLD else b""

    def row(self) -> EpochState:
        """As SEALED carries it."""
        return EpochState(
            self.epoch,
            self.status,
            self.lng,
            self.last_esn,
            self.last_timestamp,
            self.tail_lsn,
            self.tail_timestamp,
            self.tail_records,
            self.tail_extensions,
        )


@dataclass(slots=True)
class _Answer:
    """A SEALED in the making."""

    peer: PeerId
    message: Seal
    logs: list[tuple[LogState, Epoch, Status, list[EpochFacts]]] = field(default_factory=list)
    outstanding: int = 0


class SealHandler:
    """Takes the SEALs of one shard."""

    __slots__ = ("_queue", "_shard")

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._queue: deque[tuple[PeerId, Seal, Status, int]] = deque()
        """SEALs that are durable, or failed with that status, and which of their logs is answered next."""

    @handles(Seal)
    def on_seal(self, peer: PeerId, message: Seal, now: Micros) -> None:
        """Seal each log unless a higher seal holds."""
        shard = self._shard
        status = shard.status()
        if status is Status.OK and len(self._queue) >= _SEALS_QUEUED_MAX:
            hit("seals_queued_too_many")
            status = Status.AGAIN
        if status is not Status.OK:
            refused = [SealedLog(each.log, status, EPOCH_INVALID, NO_NODE, LSN_INVALID, []) for each in message.logs]
            self._send(peer, message, refused, Generation(0))
            return
        accepted: list[LogState] = []
        for each in message.logs:
            state = shard.log(each.log)
            if each.seal_epoch < max(state.sealed, state.soft_epoch):
                continue
            shard.metrics.seals += 1
            if each.seal_epoch > state.seal_epoch:
                state.seal_epoch, state.seal_node = each.seal_epoch, message.node
            accepted.append(state)
        if not accepted:
            self._on_sealed(peer, message, Status.OK, now)
            return
        shard.writes.close()
        group = shard.writes.group(True)
        for state in accepted:
            # A repeated SEAL is written again: the first one may not be durable yet.
            group.batch.put_log_metadata(
                state.log, LogMetadataKind.SEAL, encode_seal(state.seal_epoch, state.seal_node)
            )
        group.done.append(partial(self._on_sealed, peer, message))

    def _on_sealed(self, peer: PeerId, message: Seal, status: Status, now: Micros) -> None:
        """The seals are durable: gather what the epochs have, as much in a turn as keeps nobody else waiting."""
        idle = not self._queue
        self._queue.append((peer, message, status, 0))
        if idle:
            self._go_on(now)

    def _go_on(self, now: Micros) -> None:
        """Answer some of the logs of those in the queue, one after the other."""
        queue, room = self._queue, EPOCHS_PER_SEALED
        while queue and room > 0:
            peer, message, status, index = queue.popleft()
            index, room = self._answer(peer, message, Status.FAILED if self._shard.failed else status, index, room)
            if index < len(message.logs):
                hit("seal_goes_on_later")
                queue.append((peer, message, status, index))
        if queue:
            self._shard.timers.at(now + _PAUSE_US, self._go_on)

    def _answer(self, peer: PeerId, message: Seal, status: Status, index: int, room: int) -> tuple[int, int]:
        """Answer logs from that one on, as long as there is room. Returns which one is next, and the room that is left."""
        shard = self._shard
        answer = _Answer(peer, message, outstanding=1)
        while index < len(message.logs) and room > 0:
            each = message.logs[index]
            index += 1
            state = shard.log(each.log)
            outcome = status
            if status is Status.OK and each.seal_epoch < max(state.sealed, state.soft_epoch):
                # Also one that was accepted: a soft seal may have come while it was written.
                hit("seal_preempted")
                shard.metrics.seals_preempted += 1
                outcome = Status.PREEMPTED
            facts: list[EpochFacts] = []
            if outcome is Status.OK:
                facts = listed_epochs(state, each.clean_epoch, each.seal_epoch, each.generations, shard)
            answer.logs.append((state, each.seal_epoch, outcome, facts))
            for fact in facts:
                if not fact.is_elsewhere:
                    self._gather(answer, state, fact)
            room -= 1 + len(facts)
        self._arrived(answer)
        return index, room

    def _gather(self, answer: _Answer, state: LogState, fact: EpochFacts) -> None:
        """Fill in the last entry and the tail record, from memory if they are there."""
        first = compose_lsn(fact.epoch, ESN_MIN)

        def on_last(image: bytes | None) -> None:
            if image is not None:
                header = parse_header(image, alone=True)
                fact.last_esn, fact.last_timestamp = esn_of(header.lsn), header.timestamp

        def on_tail(image: bytes | None) -> None:
            if image is not None:
                header = parse_header(image, alone=True)
                if header.lsn >= fact.tail_lsn:
                    fact.tell_tail(header)

        if state.tail is not None:
            header = parse_header(state.tail, alone=True)
            if first <= header.lsn <= compose_lsn(fact.epoch, fact.lng):
                # What is released may be trimmed and gone.
                fact.tell_tail(header)
        self._last_in(answer, state, fact, first, compose_lsn(fact.epoch, ESN_MAX), on_last)
        if fact.lng:
            self._last_in(answer, state, fact, first, compose_lsn(fact.epoch, fact.lng), on_tail)

    def _last_in(
        self,
        answer: _Answer,
        state: LogState,
        fact: EpochFacts,
        first: Lsn,
        last: Lsn,
        take: Callable[[bytes | None], None],
    ) -> None:
        if state.highest < first:
            return
        if first >= state.in_memory_from:
            take(None if state.recent is None else state.recent.last_in(first, last))
            return
        answer.outstanding += 1

        def done(result: ReadResult, now: Micros) -> None:
            if result.status is not Status.OK:
                fact.status = Status.REBUILDING
            elif result.corrupt:
                # that concerns the damaged entries alone: a digest shows which ones they are
                hit("seal_met_damage")
                fact.last_esn = max(fact.last_esn, esn_of(min(result.corrupt[-1][1], last)))
            take(result.entries[0][1] if result.entries else None)
            self._arrived(answer)

        self._shard.reads.read_last_header(state.log, first, last, done)

    def _arrived(self, answer: _Answer) -> None:
        """One of the things that the answer waits for is there; send it after the last."""
        answer.outstanding -= 1
        if answer.outstanding:
            return
        logs = []
        for state, epoch, status, facts in answer.logs:
            holds = max(state.sealed, state.soft_epoch)
            if status is Status.OK and holds > epoch:
                hit("seal_preempted_while_gathering")
                status, facts = Status.PREEMPTED, []
            node = state.soft_node if state.soft_epoch > state.sealed else state.sealed_by
            logs.append(
                SealedLog(
                    state.log,
                    status,
                    max(holds, EPOCH_INVALID),
                    node,
                    state.trim_point,
                    _rows(facts),
                )
            )
        self._send(answer.peer, answer.message, logs, self._shard.generation)

    def _send(self, peer: PeerId, message: Seal, logs: list[SealedLog], generation: Generation) -> None:
        """One SEALED, or several when one could not hold all: each log is in one of them."""
        parts: list[list[SealedLog]] = [[]]
        size = 0
        for row in logs:
            cost = _ROW_SIZE + sum(_STATE_SIZE + _tail_size(each) for each in row.epochs)
            if size + cost > FIELDS_BUDGET and parts[-1]:
                hit("sealed_split")
                parts.append([])
                size = 0
            parts[-1].append(row)
            size += cost
        for part in parts:
            self._shard.out.send(
                peer,
                Sealed(request_id=message.request_id, shard=message.shard, logs=part, generation=generation),
            )


def _tail_size(told: EpochFacts | EpochState) -> int:
    """Bytes that the tail of an epoch takes in a message beyond its LSN and timestamp."""
    return 4 + 2 + len(told.tail_extensions) if told.tail_records else 0


def _rows(facts: list[EpochFacts]) -> list[EpochState]:
    """As SEALED carries them. When there is not enough room for all tails, the latest are told: recovery reads the others."""
    room = FIELDS_BUDGET - _ROW_SIZE - _STATE_SIZE * len(facts)
    for fact in reversed(facts):
        room -= _tail_size(fact)
        if room < 0:
            hit("sealed_without_tails")
            fact.tail_records, fact.tail_extensions = 0, b""
    return [fact.row() for fact in facts]


def released_in(state: LogState, epoch: int) -> Esn:
    """Up to where the epoch was released, and so fully replicated: entries that told of so high an LNG may be trimmed."""
    released = max(state.last_released, state.held_release)
    return esn_of(released) if epoch_of(released) == epoch else ESN_INVALID


def listed_epochs(
    state: LogState, clean_epoch: int, seal_epoch: int, generations: Generations, shard: Shard
) -> list[EpochFacts]:
    """The epochs of (clean, seal] that SEALED speaks of: those with something stored, and those that the shard is not authoritative for.

    The earliest ones if there are more than SEALED may list: who asks recovers those first, and asks again.
    """
    stored = state.epochs or {}
    recovered = () if state.recovered is None else state.recovered.between(clean_epoch + 1, seal_epoch)
    ended = dict(islice(recovered, EPOCHS_PER_SEALED + 1))
    spoken_of = (*stored, *ended, epoch_of(state.last_released))
    epochs = {epoch for epoch in spoken_of if clean_epoch < epoch <= seal_epoch}
    elsewhere: set[int] = set()
    for index, (since, generation) in enumerate(generations):
        if shard.is_other_generation(generation):
            end = generations[index + 1][0] if index + 1 < len(generations) else seal_epoch + 1
            first = max(since, clean_epoch + 1)
            elsewhere.update(range(first, min(end, seal_epoch + 1, first + EPOCHS_PER_SEALED + 1)))
            if len(elsewhere) > EPOCHS_PER_SEALED:
                break  # they ascend
    doubtful = set(elsewhere)
    for low, high in state.dirty or ():
        first = max(epoch_of(low), clean_epoch + 1)
        doubtful.update(range(first, min(epoch_of(high), seal_epoch, first + EPOCHS_PER_SEALED) + 1))
    facts = []
    listed = sorted(epochs | doubtful)
    if len(listed) > EPOCHS_PER_SEALED:
        hit("seal_of_too_many_epochs")
    for epoch in map(Epoch, listed[:EPOCHS_PER_SEALED]):
        lng = max(stored.get(epoch, ESN_INVALID), released_in(state, epoch))
        if epoch in ended:
            lng = max(lng, ended[epoch].lng)
        status = Status.REBUILDING if epoch in doubtful else Status.OK
        facts.append(EpochFacts(epoch, status, epoch in elsewhere, lng))
    return facts
