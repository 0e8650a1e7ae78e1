"""Arguments of guarded appends: what is accepted, and an error that says so for everything else."""

from __future__ import annotations

import itertools
from typing import Any, Final

from client.arguments import is_integer, lsn_argument
from client.guards import START, AppendGuard, Guards, Position, key_of_transaction
from logdevice_py.core.extensions import NUMBER_MAX
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.protocol.messages import OFFSET_UNKNOWN, GuardFlags

_TRANSACTION: Final = int(GuardFlags.TRANSACTION)
_EXPECT: Final = int(GuardFlags.EXPECT)
_FENCE: Final = int(GuardFlags.FENCE)
_ALONE: Final = int(GuardFlags.EXPECT | GuardFlags.RAISE | GuardFlags.END)


def number_argument(name: str, value: Any) -> int:
    """A transaction id or fence token.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    if not is_integer(value) or not 1 <= value <= NUMBER_MAX:
        raise LogDeviceError(Status.INVALID_PARAM, f"{name} is {value!r}; it must be an integer from 1 to 2^63 - 1")
    return int(value)


def position_argument(value: Any, name: str = "expect") -> Position:
    """The position of a record; `name` is that of the argument.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    if (
        not isinstance(value, tuple)
        or len(value) != 2
        or not is_integer(value[1])
        or not 0 <= value[1] < OFFSET_UNKNOWN
    ):
        text = f"{name} is {value!r}; it must be the position of a record, like receipt.position, or START"
        raise LogDeviceError(Status.INVALID_PARAM, text)
    return Position(LSN(lsn_argument(name, value[0])), value[1])


def guard_argument(
    txid: Any, expect: Any, fence: Any, new_id: int, flags: GuardFlags = GuardFlags.NONE, *, control: bool = False
) -> AppendGuard:
    """The guard of one record, or of a frame without one.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    asked, transaction, token, expected = int(flags), 0, 0, START
    if txid is not None:
        asked, transaction = asked | _TRANSACTION, number_argument("txid", txid)
    if expect is not None:
        asked, expected = asked | _EXPECT, position_argument(expect)
    if fence is not None:
        asked, token = asked | _FENCE, number_argument("fence", fence)
    return AppendGuard(asked, transaction, transaction, expected, token, new_id if asked & _ALONE else 0, control)


def transaction_key(guard: AppendGuard, key: bytes | None) -> bytes | None:
    """The key of a record: `find_key` positions readers at a transaction id.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    if not guard.first:
        return key
    if key is not None:
        text = "a record has a key or a txid: a transaction id is the record's key, its 8 bytes, the most significant first"
        raise LogDeviceError(Status.INVALID_PARAM, text)
    return key_of_transaction(guard.first)


def guards_argument(txids: Any, fence: Any, records: int, expect: Any = None, new_id: int = 0) -> Guards | None:
    """Of the records of one `append_many`; None: none is guarded. `expect`: of an atomic batch, which gets `new_id`.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    if txids is None and fence is None and expect is None:
        return None
    token = 0 if fence is None else number_argument("fence", fence)
    expected = None if expect is None else position_argument(expect)
    append_id = 0 if expected is None else new_id
    if txids is None:
        return Guards(None, token, expected, append_id)
    numbers = [number_argument(f"txids[{index}]", txid) for index, txid in enumerate(txids)]
    if len(numbers) != records or any(two < one for one, two in itertools.pairwise(numbers)):
        text = f"{len(numbers)} txids for {records} records: give one for each, none below the one before it"
        raise LogDeviceError(Status.INVALID_PARAM, text)
    return Guards(numbers, token, expected, append_id)


def batch_keys(guards: Guards | None, keys: list[bytes | None] | None) -> list[bytes | None] | None:
    """The keys of the records of one `append_many`: those given, or their transaction ids.

    Raises:
        LogDeviceError: INVALID_PARAM: both were given.
    """
    numbers = None if guards is None else guards.keys()
    if numbers is not None and keys is not None:
        raise LogDeviceError(Status.INVALID_PARAM, "records have keys or txids: a transaction id is the key")
    return keys if numbers is None else numbers
