"""Guards of appends: what an append asks of the end of its log, and the errors that say what is there instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from logdevice_py.core.lsn import LSN, Epoch, Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.protocol.messages import OFFSET_UNKNOWN, Append, Appended, GuardedAppend, GuardFlags

_TRANSACTION: Final = int(GuardFlags.TRANSACTION)
_EXPECT: Final = int(GuardFlags.EXPECT)
_FENCE: Final = int(GuardFlags.FENCE)
_ALONE: Final = int(GuardFlags.EXPECT | GuardFlags.RAISE | GuardFlags.END)
GUARD_REFUSALS: Final = frozenset(
    {Status.CONFLICT, Status.FENCED, Status.ENDED, Status.TRANSACTION_ID_TOO_LOW, Status.DATALOSS}
)
"""Answers that say that the end of the log is not as the append asks, or cannot be known."""


class Position(NamedTuple):
    """Where a record is in its log: epoch, ESN, and offset within the entry. Positions are ordered as the records are."""

    lsn: LSN
    batch_offset: int

    def __str__(self) -> str:
        return f"{self.lsn}+{self.batch_offset}"

    @property
    def epoch(self) -> int:
        """Which activation of the log's sequencer gave it."""
        return self.lsn.epoch

    @property
    def esn(self) -> int:
        """The number of its entry within the epoch, from 1."""
        return self.lsn.esn

    @property
    def following(self) -> Position:
        """The first position behind it, whether a record is there or not."""
        return Position(self.lsn, self.batch_offset + 1)

    @classmethod
    def parse(cls, text: str) -> Position:
        """From ``e3n17+2``, or ``e3n17`` for the first record of the entry; ``start``: no record.

        Raises:
            ValueError: the text is no position.
        """
        none = f"{text!r} is no position: write it like e3n17+2, or start"
        if not isinstance(text, str):
            raise ValueError(none)
        if text.strip() == "start":
            return START
        lsn, plus, offset = text.strip().partition("+")
        if plus and not (offset.isascii() and offset.isdecimal() and int(offset) < OFFSET_UNKNOWN):
            raise ValueError(none)
        try:
            return cls(LSN.parse(lsn), int(offset) if plus else 0)
        except ValueError as error:
            raise ValueError(str(error) if "range" in str(error) else none) from None


START: Final = Position(LSN(0), 0)
"""Expected by an append that is to be the first record of its log."""


@dataclass(frozen=True, slots=True)
class AppendGuard:
    """What one frame asks."""

    flags: int
    first: int = 0
    """The least transaction id in the frame; 0: none."""
    last: int = 0
    """The greatest."""
    expected: Position = START
    token: int = 0
    """Fence token; 0: none."""
    id: int = 0
    """The same in each try of a frame that is an entry of its own."""
    control: bool = False
    """The frame has no record: nothing but the end of the log changes."""

    @property
    def alone(self) -> bool:
        """The frame is an entry of its own, and its tries are known by their id: it may be repeated."""
        return bool(self.flags & _ALONE)

    def joined(self, other: AppendGuard | None) -> AppendGuard | None:
        """Of a frame that holds records with either guard, in this order; None: they need frames of their own."""
        if other is None:
            return None if self.flags & ~_TRANSACTION else self
        if self.alone or other.alone or self.token != other.token:
            return None
        if self.last and other.first and other.first < self.last:
            return None
        first, last = self.first or other.first, other.last or self.last
        return AppendGuard(self.flags | other.flags, first, last, START, self.token)

    def message(
        self,
        *,
        request_id: int,
        log: Any,
        flags: int,
        records: int,
        crc: int,
        seen_epoch: Epoch,
        writer: bytes = b"",
        sequence: int = 0,
        stream_epoch: Epoch = Epoch(0),
        payload: bytes,
    ) -> GuardedAppend:
        """The frame, to be sent."""
        return GuardedAppend(
            request_id=request_id,
            log=log,
            flags=flags,
            records=records,
            crc=crc,
            seen_epoch=seen_epoch,
            previous_lsn=Lsn(0),
            writer=writer,
            sequence=sequence,
            stream_epoch=stream_epoch,
            guards=self.flags,
            first_transaction=self.first,
            last_transaction=self.last,
            expected_lsn=Lsn(self.expected.lsn),
            expected_offset=self.expected.batch_offset,
            token=self.token,
            append_id=self.id,
            payload=payload,
        )


def key_of_transaction(txid: int) -> bytes:
    """The key of a record with a transaction id: keys are compared as bytes, and `find_key` then finds ids."""
    return txid.to_bytes(8, "big")


class Guards:
    """What the records of one `append_many` ask."""

    __slots__ = ("_expected", "_id", "_token", "_txids")

    def __init__(
        self, txids: Sequence[int] | None, token: int, expected: Position | None = None, append_id: int = 0
    ) -> None:
        """`expected`: of an atomic batch, with an id of its own."""
        self._txids = txids
        self._token = token
        self._expected = expected
        self._id = append_id

    def part(self, start: int, stop: int) -> AppendGuard:
        """Of a frame that holds the records from `start` on, before `stop`."""
        flags = (_FENCE if self._token else 0) | (0 if self._expected is None else _EXPECT)
        first = last = 0
        if self._txids is not None:
            flags, first, last = flags | _TRANSACTION, self._txids[start], self._txids[stop - 1]
        return AppendGuard(flags, first, last, self._expected or START, self._token, self._id)

    def keys(self) -> list[bytes | None] | None:
        """The keys of the records; None: they have no transaction ids."""
        return None if self._txids is None else [key_of_transaction(txid) for txid in self._txids]


AnyAppend = Append | GuardedAppend


class GuardError(LogDeviceError):
    """An append was refused for how its log ends. What is known of the end stands in the attributes; None: not told."""

    def __init__(
        self,
        status: Status,
        detail: str,
        *,
        maybe_applied: bool,
        position: Position | None,
        fence: int | None,
        txid: int | None,
    ) -> None:
        super().__init__(status, detail, maybe_applied=maybe_applied)
        self.position = position
        """CONFLICT, ENDED: of the last record; `START` when there is none."""
        self.fence = fence
        """FENCED: the token that the log asks for at least."""
        self.txid = txid
        """TRANSACTION_ID_TOO_LOW: the greatest transaction id of the log."""


def guard_error(guard: AppendGuard | None, answer: Appended, *, repeated: bool = False) -> GuardError:
    """What an answer of `GUARD_REFUSALS` means: what was expected, and what is there.

    Args:
        guard: of the frame; None: it had none.
        repeated: the outcome of an earlier try is not known: it may be that one which stands in the way.
    """
    status, log = answer.status, answer.log
    position: Position | None = None
    fence: int | None = None
    txid: int | None = None
    if status in (Status.CONFLICT, Status.ENDED):
        position = Position(LSN(answer.lsn), answer.batch_offset)
    if status is Status.CONFLICT:
        assert guard is not None
        found = f"the last record is {position}" if answer.lsn else "the log has no record"
        if answer.batch_offset == OFFSET_UNKNOWN:
            position, found = (
                None,
                f"only that it ends within {LSN(answer.lsn)} is known: append a record without expect",
            )
        wanted = f"ends with {guard.expected}" if guard.expected.lsn else "has no record"
        detail = f"log {log}: expected that it {wanted}; {found}"
    elif status is Status.FENCED:
        fence = answer.there
        token = f"token {guard.token}" if guard is not None and guard.token else "no token"
        detail = f"log {log}: its fence is {fence}, the append has {token}"
    elif status is Status.ENDED:
        detail = f"log {log}: it was ended with {position}; nothing follows"
    elif status is Status.DATALOSS:
        detail = (
            f"log {log}: entries at its end were lost, so nobody knows its last record, fence and transaction ids; whoever accepts "
            "that raises the fence with accept_loss=True"
        )
    else:
        assert guard is not None
        txid = answer.there
        detail = f"log {log}: transaction id {guard.first} is below {txid}, the greatest of the log"
    if repeated:
        detail += "; an earlier try of this append may be in the log"
    return GuardError(status, detail, maybe_applied=repeated, position=position, fence=fence, txid=txid)
