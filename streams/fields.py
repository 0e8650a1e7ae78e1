"""Fields of commands to a namespace and of its snapshots, and their limits. What is wrong is refused with a ValueError."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias, TypeGuard

from client.guards import Position
from client.replica.command_set import CommandField
from client.replica.commands import OFFSET_MAX, number_field
from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.ids import TREE_LOG_ID_MAX, TREE_LOG_ID_MIN, LogId
from logdevice_py.core.lsn import LSN, LSN_MAX

OWNER_BYTES_MAX: Final = 128
LEASE_US_MAX: Final = 86_400_000_000
BEATS_MAX: Final = (1 << 62) - 1


def stream_number(raw: Any) -> int:
    """The number of a stream."""
    return number_field(raw, 1, NUMBER_MAX)


def log_field(raw: Any) -> LogId:
    """The log of a stream, which the log tree gave."""
    return LogId(number_field(raw, TREE_LOG_ID_MIN, TREE_LOG_ID_MAX))


def position_field(lsn: Any, offset: Any) -> Position:
    """A position in a stream."""
    return Position(LSN(number_field(lsn, 0, LSN_MAX - 1)), number_field(offset, 0, OFFSET_MAX))


def is_owner(raw: Any) -> TypeGuard[str]:
    """Whether somebody may call himself so."""
    try:
        return type(raw) is str and 1 <= len(raw.encode()) <= OWNER_BYTES_MAX
    except UnicodeEncodeError:  # half of a surrogate pair
        return False


def owner_field(raw: Any) -> str:
    """How an owner calls itself."""
    if not is_owner(raw):
        raise ValueError(f"the name of an owner, up to {OWNER_BYTES_MAX} bytes, expected")
    return raw


StreamNumber: TypeAlias = Annotated[int, CommandField(stream_number)]
StreamLog: TypeAlias = Annotated[LogId, CommandField(log_field)]
