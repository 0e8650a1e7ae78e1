"""What follows from the declarations of commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeAlias

import msgpack
import pytest

from client.replica.command_set import CommandField, CommandSet, ExpectedVersion, Flag, integer
from client.replica.commands import CommandRefused, StateVersion, refusal
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status


def _pair(left: Any, right: Any) -> tuple[int, int]:
    return int(left), int(right)


@dataclass(frozen=True, slots=True)
class PutInto:
    VERB: ClassVar[int] = 1
    key: str
    place: Annotated[tuple[int, int], CommandField(_pair, tuple, places=2)]
    count: Annotated[int, integer(1, 9)] = 1
    over: Flag = False


@dataclass(frozen=True, slots=True)
class TakeAway:
    VERB: ClassVar[int] = 4
    key: str
    expect: ExpectedVersion = None


ShelfCommand: TypeAlias = PutInto | TakeAway
COMMANDS = CommandSet[ShelfCommand]("a shelf", 3, ShelfCommand)


@pytest.mark.parametrize(
    ("command", "array"),
    [
        (PutInto("a", (5, 6), 2, True), [3, 1, "a", 5, 6, 2, True]),
        (TakeAway("a"), [3, 4, "a", None]),
        (TakeAway("a", StateVersion(Lsn(7), 1)), [3, 4, "a", [7, 1]]),
    ],
)
def test_a_command_is_its_fields_in_their_order_and_comes_back(command: ShelfCommand, array: list[Any]) -> None:
    assert msgpack.unpackb(COMMANDS.encode(command)) == array
    assert COMMANDS.decode(COMMANDS.encode(command)) == command


@pytest.mark.parametrize(
    ("array", "status", "text"),
    [
        ([2, 4, "a", None], Status.NOTSUPPORTED, "a command of format 3 expected"),
        ([3, 2, "a", None], Status.NOTSUPPORTED, "a verb of a shelf expected"),
        ([3, [], "a", None], Status.NOTSUPPORTED, "a verb of a shelf expected"),
        ([3], Status.INVALID_PARAM, "a verb expected"),
        ([], Status.INVALID_PARAM, "not enough values"),
        ([3, 4, "a"], Status.INVALID_PARAM, "TakeAway has 2 places, not 1"),
        ([3, 4, "a", None, 1], Status.INVALID_PARAM, "TakeAway has 2 places, not 3"),
        ([3, 1, "a", 5, 6, 10, True], Status.INVALID_PARAM, "an integer from 1 to 9 expected"),
        ([3, 1, "a", 5, "x", 1, True], Status.INVALID_PARAM, "invalid literal"),
        ([3, 1, "a", 5, 6, 1, 1], Status.INVALID_PARAM, "a flag expected"),
        ({"a": 1}, Status.INVALID_PARAM, "an array expected"),
    ],
)
def test_anything_else_is_refused_with_what_was_expected(array: Any, status: Status, text: str) -> None:
    with pytest.raises(CommandRefused) as refused:
        COMMANDS.decode(msgpack.packb(array))
    found, reason = refusal(str(refused.value))
    assert found is status
    assert text in reason


def test_several_in_one_body_are_each_read_or_none() -> None:
    both = [TakeAway("a"), PutInto("b", (1, 2))]
    assert COMMANDS.decode_list(COMMANDS.encode_list(both), 2) == both
    for commands, most in ((both, 1), ([], 2)):
        with pytest.raises(CommandRefused, match=f"1 to {most} commands expected"):
            COMMANDS.decode_list(COMMANDS.encode_list(commands), most)
    with pytest.raises(CommandRefused, match="a verb of a shelf expected"):
        COMMANDS.decode_list(msgpack.packb([3, [[4, "a", None], [9]]]), 5)


def test_two_commands_never_have_one_verb() -> None:
    @dataclass(frozen=True, slots=True)
    class SameVerb:
        VERB: ClassVar[int] = 4

    with pytest.raises(TypeError, match="two commands to a shelf have the verb 4"):
        CommandSet[Any]("a shelf", 3, PutInto | TakeAway | SameVerb)


def test_what_would_travel_unread_by_mistake_is_no_declaration() -> None:
    with pytest.raises(TypeError, match="the whole of its type"):
        CommandSet[Any]("a shelf", 3, PutInto | HalfRead)


@dataclass(frozen=True, slots=True)
class HalfRead:
    VERB: ClassVar[int] = 5
    count: Annotated[int, integer(1, 9)] | None
