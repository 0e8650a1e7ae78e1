"""The end of a guarded log, as its sequencer knows it: judges guarded appends, and says in each entry what the log is like behind it.

There is one for an epoch, made when the epochs before are recovered. Three rules:

1. A guard is judged against everything that got an LSN and what waits in the open batch, stored or not.
2. What waits in the open batch and gets no LSN leaves no trace.
3. A repetition is answered as the first try was, before its guard is judged.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from logdevice_py.core import marks
from logdevice_py.core.extensions import (
    NO_TAIL_STATE,
    Condition,
    TailFlags,
    TailState,
    encode_extensions,
)
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.status import Status
from logdevice_py.metadata.epoch_metadata import TailRecord
from logdevice_py.protocol.messages import OFFSET_UNKNOWN, GuardFlags
from sequencer.frames import Frame
from sequencer.guard import ALONE, Guard

_TRANSACTION: Final = int(GuardFlags.TRANSACTION)
_EXPECT: Final = int(GuardFlags.EXPECT)
_FENCE: Final = int(GuardFlags.FENCE)
_RAISE: Final = int(GuardFlags.RAISE)
_END: Final = int(GuardFlags.END)
_ACCEPT_LOSS: Final = int(GuardFlags.ACCEPT_LOSS)
_ENDED: Final = int(TailFlags.ENDED)
_LOST: Final = int(TailFlags.LOST)
REMEMBERED_MAX: Final = 128
"""Conditional appends of which a repetition is known."""


class Refusal(NamedTuple):
    """Why a guard refuses an append, and what is there instead."""

    status: Status
    lsn: Lsn = LSN_INVALID
    """CONFLICT, ENDED: of the last record."""
    offset: int = 0
    there: int = 0
    """FENCED: the fence token; TRANSACTION_ID_TOO_LOW: the greatest transaction id."""


class Tail:
    """The end of one guarded log in one epoch."""

    __slots__ = ("_entered", "_id", "_remembered", "lsn", "offset", "record_lsn", "state")

    def __init__(self, record: TailRecord | None) -> None:
        """`record`: of the epochs before; without a tail state when nobody guarded them. None: the log never held anything."""
        self.lsn = LSN_INVALID if record is None else record.lsn
        """Of the last entry that got an LSN."""
        self.offset = 0
        """Of its last record; OFFSET_UNKNOWN: a version that did not note it recovered the log."""
        if record is not None and record.lsn:
            self.offset = max(record.records, 1) - 1 if record.records is not None else OFFSET_UNKNOWN
        self.state: TailState = NO_TAIL_STATE if record is None or record.state is None else record.state
        """Behind the open batch."""
        self.record_lsn = self.lsn
        """Of the last entry of the epochs before."""
        self._id = 0 if record is None else record.condition
        self._entered = self.state
        self._remembered: OrderedDict[int, Frame] = OrderedDict()

    def first_try(self, guard: Guard) -> Frame | None:
        """The frame of this epoch that is repeated; None: it is not remembered."""
        return self._remembered.get(guard.id) if guard.flags & ALONE else None

    def is_tail_record(self, guard: Guard) -> bool:
        """Whether the append is the last of the epochs before."""
        return bool(guard.flags & ALONE) and guard.id == self._id

    def judge(self, guard: Guard | None) -> Refusal | None:
        """Whether an append may get the next LSN; a guard that is alone only while no batch is open. None: it may."""
        state = self.state
        flags = 0 if guard is None else guard.flags
        if state.flags & _LOST and not flags & _ACCEPT_LOSS:
            return Refusal(Status.DATALOSS, self.lsn, self.offset)
        if state.flags & _ENDED:
            return Refusal(Status.ENDED, self.lsn, self.offset)
        if guard is None:
            return Refusal(Status.FENCED, there=state.fence) if state.fence else None
        if flags & _FENCE or state.fence:
            least = state.fence + 1 if flags & _RAISE else state.fence
            if not flags & _FENCE or guard.token < least:
                return Refusal(Status.FENCED, there=state.fence)
        if flags & _EXPECT and (guard.lsn, guard.offset) != (self.lsn, self.offset):
            return Refusal(Status.CONFLICT, self.lsn, self.offset)
        if flags & _TRANSACTION and guard.first < state.transaction:
            return Refusal(Status.TRANSACTION_ID_TOO_LOW, there=state.transaction)
        return None

    def take(self, guard: Guard | None) -> None:
        """The append was judged and goes into an entry."""
        if guard is None or not guard.flags & (_TRANSACTION | _RAISE | _END):
            return
        state, flags = self.state, guard.flags
        if flags & _TRANSACTION:
            state = replace(state, transaction=guard.last)
        if flags & _RAISE:
            marks.hit("fence_raised")
            state = replace(state, fence=guard.token, flags=state.flags & ~_LOST)
        if flags & _END:
            marks.hit("log_ended")
            state = replace(state, flags=state.flags | _ENDED)
        self.state = state

    def extensions(self, frames: Sequence[Frame]) -> bytes:
        """Of the entry that these frames, which were all that was taken since the last one, become."""
        guard = frames[0].guard
        if guard is None or not guard.flags & ALONE:
            return encode_extensions(self.state)
        return encode_extensions(self.state, Condition(guard.id, self.lsn, min(self.offset, OFFSET_UNKNOWN)))

    def entered(self, lsn: Lsn, frames: Sequence[Frame]) -> None:
        """The frames became the entry at `lsn`."""
        self._entered = self.state
        last = frames[-1]
        self.lsn, self.offset = lsn, max(last.offset + last.records, 1) - 1
        guard = last.guard
        if guard is not None and guard.flags & ALONE:
            last.lsn = lsn
            self._remembered[guard.id] = last
            if len(self._remembered) > REMEMBERED_MAX:
                self._remembered.popitem(last=False)

    def give_back(self) -> None:
        """The frames got no LSN after all."""
        self.state = self._entered
