"""The end of a guarded log against a model that keeps every record and decides by looking at all of them."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from logdevice_py.core.extensions import TailState, parse_extensions
from logdevice_py.core.lsn import LSN_INVALID, Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import TailRecord
from logdevice_py.protocol.messages import GuardFlags
from sequencer.frames import Frame
from sequencer.guard import Guard
from sequencer.tail import Tail

_ALONE = GuardFlags.EXPECT | GuardFlags.RAISE | GuardFlags.END
NUMBERS = st.integers(1, 6)


@dataclass
class TakenFrame:
    """One frame that was taken."""

    guard: Guard | None
    records: int


class GuardedLog(RuleBasedStateMachine):
    """Frames are taken into an open batch, which becomes an entry or not; now and then another sequencer goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.tail = Tail(None)
        self.entries: list[list[TakenFrame]] = []
        self.open: list[TakenFrame] = []
        self.frames: list[Frame] = []
        self.ids = 0
        self.header: bytes = b""

    @property
    def taken(self) -> list[Guard | None]:
        """The guards of all that is taken, in order."""
        return [each.guard for entry in [*self.entries, self.open] for each in entry]

    def position(self) -> tuple[int, int]:
        """Of the last record of an entry."""
        if not self.entries:
            return 0, 0
        records = sum(each.records for each in self.entries[-1])
        return compose_lsn(1, len(self.entries)), max(records, 1) - 1

    def expected_refusal(self, guard: Guard | None) -> Status | None:
        asked = GuardFlags(0 if guard is None else guard.flags)
        before = [each for each in self.taken if each is not None]
        if any(each.flags & GuardFlags.END for each in before):
            return Status.ENDED
        fence = max((each.token for each in before if each.flags & GuardFlags.RAISE), default=0)
        token = guard.token if guard is not None and asked & GuardFlags.FENCE else 0
        if token < fence or (asked & GuardFlags.RAISE and token == fence):
            return Status.FENCED
        if guard is not None and asked & GuardFlags.EXPECT and (guard.lsn, guard.offset) != self.position():
            return Status.CONFLICT
        greatest = max((each.last for each in before if each.flags & GuardFlags.TRANSACTION), default=0)
        if guard is not None and asked & GuardFlags.TRANSACTION and guard.first < greatest:
            return Status.TRANSACTION_ID_TOO_LOW
        return None

    @rule(
        first=st.none() | NUMBERS,
        more=st.integers(0, 2),
        token=st.none() | NUMBERS,
        alone=st.sampled_from([GuardFlags.NONE] * 3 + [GuardFlags.EXPECT, GuardFlags.RAISE, GuardFlags.END]),
        right=st.booleans(),
        records=st.integers(1, 3),
    )
    def append(
        self, first: int | None, more: int, token: int | None, alone: GuardFlags, right: bool, records: int
    ) -> None:
        if alone and self.open:
            self.cut(stored=True)
        if alone is GuardFlags.RAISE and token is None:
            token = 1
        flags = alone
        flags |= GuardFlags.TRANSACTION if first is not None else GuardFlags.NONE
        flags |= GuardFlags.FENCE if token is not None else GuardFlags.NONE
        self.ids += 1
        lsn, offset = self.position() if right else (compose_lsn(1, 99), 0)
        guard = None
        if flags:
            guard = Guard(int(flags), first or 0, (first or 0) + more, Lsn(lsn), offset, token or 0, self.ids)
        refusal = self.tail.judge(guard)
        assert (None if refusal is None else refusal.status) == self.expected_refusal(guard)
        if refusal is not None:
            return
        self.tail.take(guard)
        frame = Frame(b"", records, 0)
        frame.offset = sum(each.records for each in self.open)
        frame.guard = guard
        self.frames.append(frame)
        self.open.append(TakenFrame(guard, records))
        if alone:
            self.cut(stored=True)
            assert guard is not None
            assert self.tail.first_try(guard) is frame

    @precondition(lambda self: self.open)
    @rule(stored=st.booleans())
    def cut(self, stored: bool) -> None:
        if stored:
            self.header = self.tail.extensions(self.frames)
            self.entries.append(self.open)
            self.tail.entered(Lsn(compose_lsn(1, len(self.entries))), self.frames)
        else:
            self.tail.give_back()
        self.open, self.frames = [], []
        assert (self.tail.lsn, self.tail.offset) == self.position()

    @precondition(lambda self: not self.open)
    @rule()
    def another_sequencer_goes_on(self) -> None:
        """It knows the header of the last entry, and no more."""
        if not self.entries:
            self.tail = Tail(None)
            return
        told = parse_extensions(self.header)
        records = sum(each.records for each in self.entries[-1])
        condition = told.condition.id if told.condition is not None else 0
        self.tail = Tail(TailRecord(Lsn(self.position()[0]), Timestamp(1), records, told.tail, condition))
        last = self.entries[-1][-1].guard
        if last is not None and last.flags & _ALONE:
            assert self.tail.is_tail_record(last)


GuardedLog.TestCase.settings = settings(max_examples=100, stateful_step_count=30)
TestGuardedLog = GuardedLog.TestCase


def test_a_log_that_never_held_anything_has_no_state() -> None:
    tail = Tail(None)
    assert (tail.state, tail.lsn, tail.offset) == (TailState(), LSN_INVALID, 0)
