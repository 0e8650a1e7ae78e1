"""What one append asks of the end of its log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.lsn import Lsn
from logdevice_py.protocol.messages import GuardedAppend, GuardFlags

_TRANSACTION: Final = int(GuardFlags.TRANSACTION)
_FENCE: Final = int(GuardFlags.FENCE)
_RAISE: Final = int(GuardFlags.RAISE)
_ACCEPT_LOSS: Final = int(GuardFlags.ACCEPT_LOSS)
ALONE: Final = int(GuardFlags.EXPECT | GuardFlags.RAISE | GuardFlags.END)
"""GuardFlags of an append that is an entry of its own."""
_ALL: Final = sum(int(flag) for flag in GuardFlags)


@dataclass(frozen=True, slots=True)
class Guard:
    """What an append asks of the end of the log."""

    flags: int
    first: int
    """The least transaction id in the frame."""
    last: int
    """The greatest."""
    lsn: Lsn
    """Of the record that is expected to be the last; 0: there is none."""
    offset: int
    token: int
    id: int

    @property
    def alone(self) -> bool:
        """The frame is an entry of its own, acknowledged only when all before it is stored."""
        return bool(self.flags & ALONE)


class Guarded(Protocol):
    """What may have a guard."""

    guard: Guard | None


def transaction_ids(frames: Iterable[Guarded]) -> tuple[int, int]:
    """The first and the last transaction id of what is one entry; 0 and 0: it has none."""
    first = last = 0
    for frame in frames:
        guard = frame.guard
        if guard is not None and guard.flags & _TRANSACTION:
            first, last = first or guard.first, guard.last
    return first, last


def guard_of(append: GuardedAppend) -> Guard | None:
    """The guard of a message; None: its fields do not go together."""
    flags = append.guards
    if not flags or flags & ~_ALL:
        return None
    if flags & _TRANSACTION and not 1 <= append.first_transaction <= append.last_transaction <= NUMBER_MAX:
        return None
    if append.token > NUMBER_MAX or append.append_id > NUMBER_MAX:
        return None
    if (flags & _RAISE and not flags & _FENCE) or (flags & _ACCEPT_LOSS and not flags & _RAISE):
        return None
    if (flags & _FENCE and not append.token) or (flags & ALONE and not append.append_id):
        return None
    return Guard(
        flags,
        append.first_transaction,
        append.last_transaction,
        append.expected_lsn,
        append.expected_offset,
        append.token,
        append.append_id,
    )
