"""What one append asks of the end of its log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

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


class Guard(NamedTuple):
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


def is_guarded_well(append: GuardedAppend) -> bool:
    """Whether the fields of a message's guard go together."""
    flags = append.guards
    if not flags or flags & ~_ALL:
        return False
    if flags & _TRANSACTION and not 1 <= append.first_transaction <= append.last_transaction <= NUMBER_MAX:
        return False
    if append.token > NUMBER_MAX or append.append_id > NUMBER_MAX:
        return False
    if (flags & _RAISE and not flags & _FENCE) or (flags & _ACCEPT_LOSS and not flags & _RAISE):
        return False
    return bool((append.token or not flags & _FENCE) and (append.append_id or not flags & ALONE))


def guard_of(append: GuardedAppend) -> Guard:
    """The guard of a message that `is_guarded_well`."""
    return Guard(
        append.guards,
        append.first_transaction,
        append.last_transaction,
        append.expected_lsn,
        append.expected_offset,
        append.token,
        append.append_id,
    )
