"""APPEND frames on their way through the sequencer, and their answers."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core import marks
from logdevice_py.core.entry import NO_WRITER, Constituent
from logdevice_py.core.ids import LogId, NodeId, PeerId, ShardId, WriterId
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.machine import Outbox
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.constituents import CONSTITUENT_FLAGS, KEPT_FLAGS
from logdevice_py.protocol.messages import (
    FIELDS_BUDGET,
    SPLIT_RUNS_MAX,
    Append,
    Appended,
    AppendedFlags,
    AppendFlags,
    Durability,
    GuardedAppend,
    SplitRun,
    StoreFlags,
)
from sequencer.guard import Guard, guard_of
from sequencer.metrics import SequencerMetrics

NO_NODE = NodeId(-1)
NOBODY = PeerId(0)
NO_TIMESTAMP = Timestamp(0)
_WRITE_STREAM = int(AppendFlags.WRITE_STREAM)
_SYNC = int(AppendFlags.SYNC)
_ATOMIC = int(AppendFlags.ATOMIC)
_STORE_SYNC = int(StoreFlags.SYNC)
_NOT_REPLICATED = int(AppendedFlags.NOT_REPLICATED)
_NUMBER_TAKEN = int(AppendedFlags.NUMBER_TAKEN)
_APPENDED_BYTES = 1000
"""At most, of an APPENDED without its runs."""
_RUN_BYTES = 20
"""At most, of a run without its copyset."""
_SHARD_BYTES = 5
assert FIELDS_BUDGET // _RUN_BYTES < SPLIT_RUNS_MAX


class SplitAppend:
    """A frame whose records got an LSN each; it is answered once, when all of them came to their end."""

    __slots__ = ("_stored", "lsn", "missing", "not_replicated", "status")

    def __init__(self, records: int) -> None:
        self.missing = records
        """Records whose entries are in flight."""
        self.lsn: Lsn = LSN_INVALID
        """Of the first record; the others follow without a gap."""
        self.status = Status.OK
        self.not_replicated = True
        self._stored: list[SplitRun | None] = [None] * records

    @property
    def records(self) -> int:
        """How many the frame holds."""
        return len(self._stored)

    def stored(self, lsn: Lsn, timestamp: Timestamp, durability: int, copyset: list[ShardId]) -> None:
        """One entry is fully replicated; each may be on other shards."""
        self.missing -= 1
        self.not_replicated = False
        self._stored[lsn - self.lsn] = SplitRun(1, timestamp, durability, copyset)

    def runs(self) -> list[SplitRun]:
        """What became of the records, all of which are stored. What would not go into one answer is not told, beyond how many there are."""
        runs: list[SplitRun] = []
        size = 0
        for done, stored in enumerate(self._stored):
            assert stored is not None
            if runs and runs[-1][1:] == stored[1:]:
                runs[-1] = stored._replace(records=runs[-1].records + 1)
            else:
                size += _RUN_BYTES + _SHARD_BYTES * len(stored.copyset)
                if size > FIELDS_BUDGET - _APPENDED_BYTES:
                    marks.hit("split_append_not_told_whole")
                    runs.append(SplitRun(self.records - done, Timestamp(0), int(Durability.ASYNC), []))
                    break
                runs.append(stored)
        return runs

    @property
    def failure(self) -> Status:
        """What to answer unless all are stored. When several records got LSNs and some may be stored, what became of the first does not tell
        what became of the others: the append must not be resolved by its position."""
        return self.status if self.not_replicated or self.records == 1 else Status.ABORTED


@dataclass(slots=True)
class Frame(Constituent):
    """One APPEND frame: a constituent of its entry, and whom to answer. The payload is dropped once the entry is encoded."""

    peer: PeerId = NOBODY
    request_id: int = 0
    offset: int = 0
    """Of the first record within the LSN."""
    split: SplitAppend | None = None
    store_flags: int = 0
    """StoreFlags that it wants for its entry."""
    length: int = 0
    """Write streams only: of the payload, also when that was dropped."""
    lsn: Lsn = LSN_INVALID
    """Write streams and conditional appends only: the position, once it is known."""
    timestamp: Timestamp = NO_TIMESTAMP
    """Likewise: that of the entry, once the frame was acknowledged; 0 before."""
    durability: int = 0
    """Likewise: as it was acknowledged."""
    repeats: dict[PeerId, int] | None = None
    """Write streams and conditional appends only: who waits for an answer to a repetition of this frame, and to which request. Of one connection the
    last counts, as for who sent it: nobody makes a frame that takes long have any number of answers."""
    guard: Guard | None = None
    """What it asks of the end of the log."""
    atomic: bool = False
    """One entry holds all of its records."""

    def repeated_by(self, other: Frame) -> None:
        """Another try came while this one is under way: it is answered when this one is."""
        if self.repeats is None:
            self.repeats = {}
        self.repeats[other.peer] = other.request_id

    def repeats_as_stored(self, other: Frame) -> bool:
        """Whether another frame of the same writer and number has the same content, as far as `ContentMark` tells."""
        return (self.crc, self.length, self.records, self.flags) == (
            other.crc,
            other.length,
            other.records,
            other.flags,
        )


def frame_of(peer: PeerId, append: Append | GuardedAppend) -> Frame:
    """The frame of a request that was checked."""
    flags = append.flags
    part, payload = CONSTITUENT_FLAGS[flags & KEPT_FLAGS], append.payload
    if flags & _WRITE_STREAM:
        writer = WriterId(append.writer)
        frame = Frame(payload, append.records, append.crc, part, writer, append.sequence, peer, append.request_id)
        frame.length = len(payload)
    else:
        frame = Frame(payload, append.records, append.crc, part, NO_WRITER, 0, peer, append.request_id)
    if flags & _SYNC:
        frame.store_flags = _STORE_SYNC
    if flags & _ATOMIC:
        frame.atomic = True
    if append.__class__ is GuardedAppend:
        frame.guard = guard_of(append)
    return frame


class Answers:
    """Builds APPENDED messages."""

    __slots__ = ("_metrics", "_outbox")

    def __init__(self, outbox: Outbox, metrics: SequencerMetrics) -> None:
        self._outbox = outbox
        self._metrics = metrics

    def acknowledge(
        self,
        frame: Frame,
        log: LogId,
        lsn: Lsn,
        timestamp: Timestamp,
        durability: int,
        copyset: list[ShardId],
    ) -> None:
        """The frame's entry is fully replicated."""
        split = frame.split
        if split is not None:
            split.stored(lsn, timestamp, durability, copyset)
            if split.missing:
                return
            lsn = split.lsn
            if split.status is not Status.OK:
                marks.hit("split_append_stored_in_part")
                self.refuse(frame.peer, frame.request_id, log, split.failure, lsn=lsn)
                return
            self._acknowledge_split(frame, log, split)
            return
        metrics = self._metrics
        metrics.frames_acknowledged += 1
        metrics.records_acknowledged += frame.records
        self._outbox.send(
            frame.peer,
            Appended(
                request_id=frame.request_id,
                log=log,
                status=Status.OK,
                flags=0,
                lsn=lsn,
                batch_offset=frame.offset,
                timestamp=timestamp,
                redirect=NO_NODE,
                durability=durability,
                copyset=copyset,
            ),
        )
        if frame.lsn:
            frame.timestamp = timestamp
            frame.durability = durability
            for peer, request_id in (frame.repeats or {}).items():
                self.repeat(peer, request_id, log, frame)
            frame.repeats = None

    def _acknowledge_split(self, frame: Frame, log: LogId, split: SplitAppend) -> None:
        self._metrics.frames_acknowledged += 1
        self._metrics.records_acknowledged += split.records
        runs = split.runs()
        first = runs[0]
        self._outbox.send(
            frame.peer,
            Appended(
                request_id=frame.request_id,
                log=log,
                status=Status.OK,
                flags=0,
                lsn=split.lsn,
                batch_offset=0,
                timestamp=first.timestamp,
                redirect=NO_NODE,
                durability=first.durability,
                copyset=first.copyset,
                split=runs,
            ),
        )

    def repeat(self, peer: PeerId, request_id: int, log: LogId, frame: Frame) -> None:
        """A write stream's frame that was acknowledged before came once more: it has its first position."""
        self._metrics.frames_acknowledged += 1
        self._outbox.send(
            peer,
            Appended(
                request_id=request_id,
                log=log,
                status=Status.OK,
                flags=0,
                lsn=frame.lsn,
                batch_offset=frame.offset,
                timestamp=frame.timestamp,
                redirect=NO_NODE,
                durability=frame.durability,
                copyset=[],
            ),
        )

    def fail(
        self,
        frame: Frame,
        log: LogId,
        status: Status,
        *,
        lsn: Lsn = LSN_INVALID,
        not_replicated: bool = True,
        redirect: NodeId = NO_NODE,
    ) -> None:
        """The frame's entry was aborted, or never got an LSN."""
        split = frame.split
        if split is not None:
            split.missing -= 1
            split.status = status
            split.not_replicated = split.not_replicated and not_replicated
            if split.missing > 0:
                return
            lsn, not_replicated, status = split.lsn, split.not_replicated, split.failure
        for peer, request_id in ((frame.peer, frame.request_id), *(frame.repeats or {}).items()):
            self.refuse(
                peer,
                request_id,
                log,
                status,
                lsn=lsn,
                batch_offset=frame.offset,
                not_replicated=not_replicated,
                redirect=redirect,
            )
        frame.repeats = None

    def refuse(
        self,
        peer: PeerId,
        request_id: int,
        log: LogId,
        status: Status,
        *,
        lsn: Lsn = LSN_INVALID,
        batch_offset: int = 0,
        not_replicated: bool = False,
        number_taken: bool = False,
        redirect: NodeId = NO_NODE,
        there: int = 0,
    ) -> None:
        """Anything but OK. `not_replicated`: the append is certainly not applied. With an LSN that it may have got, `batch_offset` completes
        the position. `number_taken`: that of a write stream has other content there. `there`: what refused it, see APPENDED."""
        self._metrics.frames_refused += 1
        flags = (_NOT_REPLICATED if not_replicated else 0) | (_NUMBER_TAKEN if number_taken else 0)
        self._outbox.send(
            peer,
            Appended(
                request_id=request_id,
                log=log,
                status=status,
                flags=flags,
                lsn=lsn,
                batch_offset=batch_offset,
                timestamp=Timestamp(0),
                redirect=redirect,
                durability=0,
                copyset=[],
                there=there,
            ),
        )
