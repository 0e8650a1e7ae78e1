"""Arguments and joining of guards, and what their errors say."""

from __future__ import annotations

from typing import Any

import pytest

from client.guard_arguments import guard_argument, guards_argument, transaction_key
from client.guards import START, AppendGuard, Position, guard_error
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.lsn import LSN, Lsn, compose_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.messages import OFFSET_UNKNOWN, Appended, GuardFlags

HERE = Position(LSN(compose_lsn(3, 17)), 2)


def answer(status: Status, **fields: Any) -> Appended:
    told: dict[str, Any] = {"lsn": Lsn(0), "batch_offset": 0, **fields}
    return Appended(
        request_id=1,
        log=LogId(7),
        status=status,
        flags=0,
        timestamp=Timestamp(0),
        redirect=NodeId(-1),
        durability=0,
        copyset=[],
        **told,
    )


def test_positions_are_written_and_read() -> None:
    assert Position.parse(str(HERE)) == HERE
    assert Position.parse("e3n17") == Position(HERE.lsn, 0)
    assert Position.parse("start") is START
    for wrong in ("e3n17+", "e3n17+x", "x", "", "+1", "e3n17+-1"):
        with pytest.raises(ValueError, match="is no position: write it like"):
            Position.parse(wrong)
    with pytest.raises(ValueError, match="None is no position"):
        Position.parse(None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="out of range"):
        Position.parse("e3n4294967296")


def test_an_argument_that_is_given_is_asked_for() -> None:
    guard = guard_argument(5, HERE, 3, 99)
    assert guard.flags == GuardFlags.TRANSACTION | GuardFlags.EXPECT | GuardFlags.FENCE
    assert (guard.first, guard.last, guard.expected, guard.token, guard.id) == (5, 5, HERE, 3, 99)
    assert guard_argument(5, None, None, 99) == AppendGuard(int(GuardFlags.TRANSACTION), 5, 5)
    assert guard_argument(None, START, None, 99).alone
    assert transaction_key(guard, None) == b"\0" * 7 + b"\5"
    with pytest.raises(LogDeviceError, match="a key or a txid"):
        transaction_key(guard, b"key")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ((0, None, None), "txid is 0"),
        ((2**63, None, None), "txid is"),
        ((True, None, None), "txid is True"),
        ((None, None, "x"), "fence is 'x'"),
        ((None, 17, None), "expect is 17; it must be the position"),
        ((None, (LSN(1), -1), None), "expect is"),
        ((None, (-1, 0), None), "expect is -1"),
    ],
)
def test_anything_else_is_refused(given: tuple[Any, Any, Any], text: str) -> None:
    with pytest.raises(LogDeviceError, match=text) as refused:
        guard_argument(*given, 1)
    assert refused.value.status is Status.INVALID_PARAM


def test_an_id_that_cannot_be_is_named_by_its_record() -> None:
    with pytest.raises(LogDeviceError, match=r"txids\[1\] is 0; it must be an integer from 1"):
        guards_argument([1, 0], None, 2)


def test_many_records_have_ids_that_do_not_fall() -> None:
    guards = guards_argument([1, 1, 4], 9, 3)
    assert guards is not None
    assert guards.part(1, 3) == AppendGuard(int(GuardFlags.TRANSACTION | GuardFlags.FENCE), 1, 4, token=9)
    assert guards.keys() == [n.to_bytes(8, "big") for n in (1, 1, 4)]
    assert guards_argument(None, None, 3) is None
    for wrong in ([1, 2], [1, 3, 2], [0, 1, 2]):
        with pytest.raises(LogDeviceError, match="txid"):
            guards_argument(wrong, None, 3)


def txid(number: int, token: int | None = None) -> AppendGuard:
    return guard_argument(number, None, token, 1)


def test_records_share_a_frame_while_one_guard_can_speak_for_both() -> None:
    assert txid(3).joined(txid(3)) == AppendGuard(int(GuardFlags.TRANSACTION), 3, 3)
    assert txid(3).joined(txid(7)) == AppendGuard(int(GuardFlags.TRANSACTION), 3, 7)
    assert txid(3).joined(txid(2)) is None, "the sequencer judges the first and the last"
    assert txid(3).joined(None) == txid(3)
    token = guard_argument(None, None, 5, 1)
    assert token.joined(None) is None
    assert token.joined(txid(3)) is None
    both = token.joined(txid(3, 5))
    assert both is not None
    assert (both.first, both.last, both.token) == (3, 3, 5)
    alone = guard_argument(None, START, None, 1)
    assert alone.joined(txid(3)) is txid(3).joined(alone) is alone.joined(None) is None


@pytest.mark.parametrize(
    ("guard", "told", "text"),
    [
        (
            guard_argument(None, START, None, 1),
            answer(Status.CONFLICT, lsn=Lsn(HERE.lsn), batch_offset=2),
            "CONFLICT: log 7: expected that it has no record; the last record is e3n17+2",
        ),
        (
            guard_argument(None, HERE, None, 1),
            answer(Status.CONFLICT),
            "CONFLICT: log 7: expected that it ends with e3n17+2; the log has no record",
        ),
        (
            guard_argument(None, HERE, None, 1),
            answer(Status.CONFLICT, lsn=Lsn(HERE.lsn), batch_offset=OFFSET_UNKNOWN),
            "only that it ends within e3n17 is known: append a record without expect",
        ),
        (None, answer(Status.FENCED, there=5), "FENCED: log 7: its fence is 5, the append has no token"),
        (guard_argument(None, None, 4, 1), answer(Status.FENCED, there=5), "its fence is 5, the append has token 4"),
        (None, answer(Status.ENDED, lsn=Lsn(HERE.lsn), batch_offset=2), "it was ended with e3n17+2; nothing follows"),
        (
            guard_argument(4, None, None, 1),
            answer(Status.TRANSACTION_ID_TOO_LOW, there=5),
            "transaction id 4 is below 5, the greatest of the log",
        ),
        (None, answer(Status.DATALOSS), "raises the fence with accept_loss=True"),
    ],
)
def test_errors_say_what_was_expected_and_what_is_there(guard: AppendGuard | None, told: Appended, text: str) -> None:
    error = guard_error(guard, told)
    assert text in str(error)
    assert not error.maybe_applied
    assert not error.retriable
    assert guard_error(guard, told, repeated=True).maybe_applied
