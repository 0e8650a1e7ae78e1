"""How the commands to one kind of replicated state are declared, and the bytes that follow from the declarations.

A command is a dataclass with a verb, whose annotated fields are its layout: the format, the verb, then the fields in declared order make
one msgpack array. A field that is not annotated travels as it is: the state itself judges it.
"""

from __future__ import annotations

import dataclasses
import enum
import typing
from collections.abc import Callable, Iterable
from typing import Annotated, Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

import msgpack

from client.replica.commands import StateVersion, expected_field, flag_field, number_field, refuse, version_field
from logdevice_py.core.status import Status
from logdevice_py.core.unpacking import check_complete


class CommandClass(Protocol):
    """A dataclass that is a command."""

    VERB: ClassVar[int]
    """No other command of its set has it, nor ever had."""


C = TypeVar("C", bound=CommandClass)
T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class CommandField:
    """How a field of a command travels."""

    read: Callable[..., Any]
    """Makes the value of what was unpacked; ValueError, TypeError or CommandRefused for what is wrong."""
    write: Callable[[Any], Any] | None = None
    """Makes what is packed, where that is not the value itself."""
    places: int = 1
    """In the array. With more than one, `read` takes as many arguments, and `write` gives as many values."""


def integer(lo: int, hi: int) -> CommandField:
    """An integer within bounds."""
    return CommandField(lambda value: number_field(value, lo, hi))


def member(kind: type[enum.IntEnum]) -> CommandField:
    """One of an enumeration, by its number."""
    return CommandField(lambda value: kind(number_field(value, min(kind), max(kind))))


def _version(value: Any) -> StateVersion:
    lsn, offset = value
    return version_field(lsn, offset)


Flag: TypeAlias = Annotated[bool, CommandField(flag_field)]
Version: TypeAlias = Annotated[StateVersion, CommandField(_version)]
ExpectedVersion: TypeAlias = Annotated[StateVersion | None, CommandField(expected_field)]
"""Of what the command changes; None: any."""

_AS_IT_IS: Final = CommandField(lambda value: value)


class _Layout:
    """The fields of one command, in their order."""

    def __init__(self, command: type[Any]) -> None:
        hints = typing.get_type_hints(command, include_extras=True)
        self._class = command
        self._verb: int = command.VERB
        self._fields = [(field.name, _declared(hints[field.name])) for field in dataclasses.fields(command)]
        self._reads = [(field.read, field.places) for _, field in self._fields]
        self._places = 1 + sum(field.places for _, field in self._fields)

    def row(self, command: Any) -> list[Any]:
        row: list[Any] = [self._verb]
        for name, field in self._fields:
            value = getattr(command, name)
            if field.write is not None:
                value = field.write(value)
            if field.places == 1:
                row.append(value)
            else:
                row += value
        return row

    def command(self, row: list[Any]) -> Any:
        if len(row) != self._places:
            raise ValueError(f"{self._class.__name__} has {self._places - 1} places, not {len(row) - 1}")
        values, at = [], 1
        for read, places in self._reads:
            values.append(read(row[at]) if places == 1 else read(*row[at : at + places]))
            at += places
        return self._class(*values)


def _declared(hint: Any) -> CommandField:
    """How a field with such an annotation travels."""
    if any(typing.get_origin(part) is Annotated for part in typing.get_args(hint)):
        raise TypeError(f"{hint}: how a field travels has to stand around the whole of its type")
    found = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, CommandField)]
    return found[0] if found else _AS_IT_IS


class CommandSet(Generic[C]):
    """All commands to one kind of state, and their format.

    Args:
        addressee: what they go to, for whoever gets a refusal.
        commands: their classes, or a union of them.
    """

    def __init__(self, addressee: str, format_: int, commands: Any) -> None:
        self._addressee = addressee
        self._format = format_
        self._layouts: dict[int, _Layout] = {}
        for command in typing.get_args(commands):
            layout = _Layout(command)
            if self._layouts.setdefault(command.VERB, layout) is not layout:
                raise TypeError(f"two commands to {addressee} have the verb {command.VERB}")

    def encode(self, command: C) -> bytes:
        """The body of a command."""
        packed: bytes = msgpack.packb([self._format, *self._layouts[command.VERB].row(command)])
        return packed

    def decode(self, data: bytes) -> C:
        """From `encode`; CommandRefused for anything else."""
        command: C = self._unpacked(data, self._command)
        return command

    def encode_list(self, commands: Iterable[C]) -> bytes:
        """A body that holds several commands."""
        packed: bytes = msgpack.packb([self._format, [self._layouts[each.VERB].row(each) for each in commands]])
        return packed

    def decode_list(self, data: bytes, length_max: int) -> list[C]:
        """From `encode_list`, with at least one command; CommandRefused for anything else."""

        def commands(rest: list[Any]) -> list[C]:
            (rows,) = rest
            if type(rows) is not list or not 0 < len(rows) <= length_max:
                raise ValueError(f"1 to {length_max} commands expected")
            return [self._command(row) for row in rows]

        return self._unpacked(data, commands)

    def _unpacked(self, data: bytes, decoded: Callable[[list[Any]], T]) -> T:
        try:
            check_complete(data)
            raw = msgpack.unpackb(data)
            if type(raw) is not list:
                raise ValueError("an array expected")
            found, *rest = raw
            if found != self._format:
                raise refuse(Status.NOTSUPPORTED, f"a command of format {self._format} expected")
            return decoded(rest)
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise refuse(Status.INVALID_PARAM, f"this is no command to {self._addressee}: {str(error)[:100]}") from None

    def _command(self, row: Any) -> Any:
        if type(row) is not list or not row:
            raise ValueError("a verb expected")
        layout = self._layouts.get(row[0]) if type(row[0]) is int else None
        if layout is None:
            raise refuse(Status.NOTSUPPORTED, f"a verb of {self._addressee} expected")
        return layout.command(row)
