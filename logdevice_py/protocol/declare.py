"""How a message is declared, and the codec that follows from the declaration.

A message is a dataclass whose annotated types are its layout: fields in declared order form one msgpack array, a field of kind `Payload`
travels raw behind it. What repeats in a message is a list of rows (`row_of`), each an array likewise. Fields of messages and places of rows are
only ever added at the end, with a default; a decoder ignores those that it does not know.
Decoding checks every type, range and length, so handlers never meet a value that the declaration does not allow.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Protocol, TypeVar, dataclass_transform

import msgpack

from logdevice_py.core.ids import Generation, InstanceId, LogId, NodeId, ShardId
from logdevice_py.core.lsn import EPOCH_MAX, LSN_MAX, Epoch, Esn, Lsn
from logdevice_py.core.principal import Permission
from logdevice_py.core.status import ProtocolError, Status
from logdevice_py.core.units import Timestamp

T = TypeVar("T")


FIELDS_SIZE_MAX: Final = 65_535
"""Bytes that the fields of any message take at most."""
_INTEGER_SIZE: Final = 9
_HEAD_SIZE: Final = 5
"""Bytes before the content of a text, of bytes or of an array, at most."""
_LATER_FIELDS_SIZE: Final = 4096
"""Bytes that fields may take which a later version adds to a message."""
_LATER_FIELDS: Final = 64
"""How many fields a later version may add, and how long an array in them may be where no array was before."""


class Needs(enum.Enum):
    """What its sender has to be permitted before a message is obeyed, where permissions are on."""

    NOTHING = None  # anybody may send it
    NODE = "node"  # who proves to be a node of the cluster; a client never may, whether permissions are on or not
    ANY = "any"  # any permission for the log
    APPEND = Permission.APPEND
    READ = Permission.READ
    TRIM = Permission.TRIM
    ADMIN = Permission.ADMIN


class FieldKind(Protocol):
    """How one field looks on the wire, for the checker and for the docs."""

    @property
    def name(self) -> str:
        """How the kind is called in docs and errors."""

    @property
    def size_max(self) -> int:
        """Bytes that a value takes on the wire at most."""

    @property
    def array_len_max(self) -> int:
        """Elements of the longest array in a value; 0 when it has none."""

    def check(self, value: Any) -> Any:
        """The value that the message holds; ValueError when the wire value is not allowed."""


@dataclass(frozen=True)
class IntKind:
    """An integer between two bounds."""

    name: str
    lo: int
    hi: int

    @property
    def size_max(self) -> int:
        return _INTEGER_SIZE

    @property
    def array_len_max(self) -> int:
        return 0

    def check(self, value: Any) -> int:
        if type(value) is not int or not self.lo <= value <= self.hi:
            raise ValueError(f"{self.name} expected")
        return value


@dataclass(frozen=True)
class BytesKind:
    """Bytes up to a length."""

    name: str
    hi: int

    @property
    def size_max(self) -> int:
        return _HEAD_SIZE + self.hi

    @property
    def array_len_max(self) -> int:
        return 0

    def check(self, value: Any) -> bytes:
        if type(value) is not bytes or len(value) > self.hi:
            raise ValueError(f"{self.name} expected")
        return value


@dataclass(frozen=True)
class TextKind:
    """UTF-8 text up to a number of characters."""

    name: str
    hi: int

    @property
    def size_max(self) -> int:
        return _HEAD_SIZE + 4 * self.hi

    @property
    def array_len_max(self) -> int:
        return 0

    def check(self, value: Any) -> str:
        if type(value) is not str or len(value) > self.hi:
            raise ValueError(f"{self.name} expected")
        return value


@dataclass(frozen=True)
class BoolKind:
    """True or false."""

    name: str = "bool"

    @property
    def size_max(self) -> int:
        return 1

    @property
    def array_len_max(self) -> int:
        return 0

    def check(self, value: Any) -> bool:
        if type(value) is not bool:
            raise ValueError("bool expected")
        return value


_STATUS_BY_NUMBER: Final = {int(status): status for status in Status}


@dataclass(frozen=True)
class StatusKind:
    """A status code; one that this version does not know is read as INTERNAL."""

    name: str = "status"

    @property
    def size_max(self) -> int:
        return _INTEGER_SIZE

    @property
    def array_len_max(self) -> int:
        return 0

    def check(self, value: Any) -> Status:
        if type(value) is not int:
            raise ValueError("status expected")
        return _STATUS_BY_NUMBER.get(value, Status.INTERNAL)


@dataclass(frozen=True)
class ListKind:
    """Up to `hi` elements of one kind."""

    name: str
    element: FieldKind
    hi: int

    def __post_init__(self) -> None:
        element = self.element
        object.__setattr__(self, "_check", element._check if isinstance(element, TupleKind) else element.check)  # type: ignore[attr-defined]

    @property
    def size_max(self) -> int:
        return _HEAD_SIZE + self.hi * self.element.size_max

    @property
    def array_len_max(self) -> int:
        return max(self.hi, self.element.array_len_max)

    def check(self, value: Any) -> list[Any]:
        if type(value) is not list or len(value) > self.hi:
            raise ValueError(f"{self.name} expected")
        check = self._check  # type: ignore[attr-defined]
        return [check(item) for item in value]


@dataclass(frozen=True)
class TupleKind:
    """A fixed sequence of kinds, each with a name: a msgpack array of so many elements."""

    name: str
    places: tuple[tuple[str, FieldKind], ...]
    row: type[tuple[Any, ...]] = tuple
    """What it is decoded as: a plain tuple, or the NamedTuple that declares the places."""

    def __post_init__(self) -> None:
        # lists of tuples are most of what large messages hold: straight-line code is three times as fast as a loop over the elements
        object.__setattr__(self, "_check", _tuple_checker(self.name, self.places, self.row))

    @property
    def elements(self) -> tuple[FieldKind, ...]:
        """The kinds of its places."""
        return tuple(kind for _, kind in self.places)

    @property
    def size_max(self) -> int:
        return _HEAD_SIZE + sum(kind.size_max for kind in self.elements)

    @property
    def array_len_max(self) -> int:
        return max(len(self.places), *(kind.array_len_max for kind in self.elements))

    def check(self, value: Any) -> tuple[Any, ...]:
        checked: tuple[Any, ...] = self._check(value)  # type: ignore[attr-defined]
        return checked


def _tuple_checker(
    name: str, places: tuple[tuple[str, FieldKind], ...], row: type[tuple[Any, ...]]
) -> Callable[[Any], tuple[Any, ...]]:
    scope: dict[str, Any] = {f"check{index}": kind.check for index, (_, kind) in enumerate(places)}
    scope.update(new=tuple.__new__, row=row, fit=_row_fitter(name, len(places), row))
    items = "".join(f"v{index}, " for index in range(len(places)))
    lines = [
        "def check(value):",
        f"    if type(value) is not list: raise ValueError({name + ' expected'!r})",
        f"    if len(value) != {len(places)}: value = fit(value)",
        f"    {items}= value",
    ]
    for index, (place, kind) in enumerate(places):
        if isinstance(kind, IntKind):
            lines.append(
                f"    if type(v{index}) is not int or not {kind.lo} <= v{index} <= {kind.hi}: "
                f"raise ValueError({f'{place}: {kind.name} expected'!r})"
            )
        elif row is tuple:
            lines.append(f"    v{index} = check{index}(v{index})")
        else:
            lines.append(f"    value[{index}] = check{index}(v{index})")
    # The unpacked array is nobody else's. A row made from it takes 50 ns more than a plain tuple; one made from a tuple, or by its own name, 200 ns more.
    lines.append(f"    return ({items})" if row is tuple else "    return new(row, value)")
    exec("\n".join(lines), scope)
    return typing.cast(Callable[[Any], tuple[Any, ...]], scope["check"])


def _row_fitter(name: str, count: int, row: type[tuple[Any, ...]]) -> Callable[[list[Any]], list[Any]]:
    """Makes a row of another version one of this."""
    defaults = list(getattr(row, "_field_defaults", {}).values())

    def fit(value: list[Any]) -> list[Any]:
        lacking = count - len(value)
        if lacking > len(defaults):
            raise ValueError(f"{name}: {len(value)} places, at least {count - len(defaults)} needed")
        return value[:count] if lacking < 0 else value + defaults[len(defaults) - lacking :]

    return fit


@dataclass(frozen=True)
class PayloadKind:
    """The raw bytes behind the fields; at most one a message, not part of the array."""

    name: str = "payload"

    @property
    def size_max(self) -> int:
        return 0

    @property
    def array_len_max(self) -> int:
        return 0

    def check(self, value: Any) -> bytes:
        raise AssertionError("payloads do not pass through the array")


def list_of(element: FieldKind, hi: int) -> ListKind:
    """A list kind."""
    return ListKind(f"list of {element.name}", element, hi)


def pair_of(**places: FieldKind) -> TupleKind:
    """A plain tuple of two, for what hot paths make by the thousand; more places than two are a row."""
    assert len(places) == 2, places
    return TupleKind(
        "(" + ", ".join(f"{name}: {kind.name}" for name, kind in places.items()) + ")", tuple(places.items())
    )


def row_of(row: type[tuple[Any, ...]]) -> TupleKind:
    """The kind of a row: a NamedTuple of which the annotations are its layout, as those of a message are. Places are added as fields are: at the
    end, with a default."""
    hints = typing.get_type_hints(row, include_extras=True)
    return TupleKind(row.__name__, tuple((name, hint.__metadata__[0]) for name, hint in hints.items()), row)


U8K: Final = IntKind("u8", 0, 2**8 - 1)
U16K: Final = IntKind("u16", 0, 2**16 - 1)
U32K: Final = IntKind("u32", 0, 2**32 - 1)
U64K: Final = IntKind("u64", 0, 2**64 - 1)
LOG: Final = IntKind("log", 0, 2**63 - 1)
LSN: Final = IntKind("lsn", 0, LSN_MAX)
EPOCH: Final = IntKind("epoch", 0, EPOCH_MAX)
ESN: Final = IntKind("esn", 0, 2**32 - 1)
SHARD: Final = IntKind("shard", 0, 2**23 - 1)
NODE: Final = IntKind("node, or -1", -1, 32767)
STAMP: Final = IntKind("timestamp", -(2**63), 2**63 - 1)
STATUS: Final = StatusKind()
TEXT: Final = TextKind("text up to 1024", 1024)

U8 = Annotated[int, U8K]
U16 = Annotated[int, U16K]
U32 = Annotated[int, U32K]
U64 = Annotated[int, U64K]
Log = Annotated[LogId, LOG]
LsnField = Annotated[Lsn, LSN]
EpochField = Annotated[Epoch, EPOCH]
EsnField = Annotated[Esn, ESN]
Shard = Annotated[ShardId, SHARD]
Node = Annotated[NodeId, NODE]
GenerationField = Annotated[Generation, U32K]
Instance = Annotated[InstanceId, U64K]
Stamp = Annotated[Timestamp, STAMP]
StatusField = Annotated[Status, STATUS]
Bool = Annotated[bool, BoolKind()]
Text = Annotated[str, TEXT]
Blob16 = Annotated[bytes, BytesKind("up to 16 bytes", 16)]
Extension = Annotated[bytes, BytesKind("up to 1024 bytes", 1024)]
Payload = Annotated[bytes, PayloadKind()]


@dataclass(frozen=True)
class MessageCodec:
    """The codec of one message class."""

    number: int
    name: str
    cls: type[Any]
    fields: tuple[tuple[str, FieldKind], ...]
    payload: str | None
    fields_size_max: int
    """Bytes that its fields may take: what the declaration allows, and room for what later versions add."""
    array_len_max: int
    """Elements that an array in its fields may have, likewise."""
    pack: Callable[[Any], bytes]
    """Fields of a message as a msgpack array."""
    unpack: Callable[[Any, bytes], Any]
    """A message from the unpacked array and the raw payload; ProtocolError when they do not fit the declaration."""
    since: int
    """The version of the protocol that it came with."""
    needs: Needs
    """What its sender has to be permitted."""
    logs_of: Callable[[Any], Iterable[LogId]]
    """The logs for which that is asked."""


LEFT_OUT: Final = {"left out": True}
"""Metadata of a last field of a message that is not sent while it is empty: who does not use it sends what versions without it send."""

CODECS: Final[dict[int, MessageCodec]] = {}
CODEC_OF: Final[dict[type[Any], MessageCodec]] = {}


@dataclass_transform(kw_only_default=True)
def message(number: enum.IntEnum, *, needs: Needs, since: int = 1) -> Callable[[type[T]], type[T]]:
    """Declare a wire message: the annotations are its layout.

    Args:
        needs: what its sender has to be permitted. There is no default: who declares a message thinks of it.
        since: the version of the protocol that it comes with. Peers that speak only earlier ones do not get it.
    """

    def wrap(cls: type[T]) -> type[T]:
        made = dataclass(slots=True, kw_only=True)(cls)
        assert int(number) not in CODECS, number
        codec = _codec(int(number), made, since, needs)
        CODECS[int(number)] = codec
        CODEC_OF[made] = codec
        return made

    return wrap


def _codec(number: int, cls: type[Any], since: int, needs: Needs) -> MessageCodec:
    hints = typing.get_type_hints(cls, include_extras=True)
    kinds = [(field.name, hints[field.name].__metadata__[0]) for field in dataclasses.fields(cls)]
    payload = next((name for name, kind in kinds if isinstance(kind, PayloadKind)), None)
    wire = [(name, kind) for name, kind in kinds if not isinstance(kind, PayloadKind)]
    required = sum(1 for field in dataclasses.fields(cls) if _is_required(field) and field.name != payload)
    size_max = _HEAD_SIZE + sum(kind.size_max for _, kind in wire) + _LATER_FIELDS_SIZE
    return MessageCodec(
        number,
        cls.__name__,
        cls,
        tuple(wire),
        payload,
        min(size_max, FIELDS_SIZE_MAX),
        max(len(wire) + _LATER_FIELDS, *(kind.array_len_max for _, kind in wire)),
        _packer(cls, wire),
        _unpacker(cls, wire, payload, required),
        since,
        needs,
        _logs_getter(cls, wire, needs),
    )


def _logs_getter(cls: type[Any], wire: list[tuple[str, FieldKind]], needs: Needs) -> Callable[[Any], Iterable[LogId]]:
    """Tells the logs that a message names. TypeError: it names none, and needs a permission for some."""
    if needs in (Needs.NOTHING, Needs.NODE):
        return lambda message: ()
    for name, kind in wire:
        if name == "log":
            return lambda message: (message.log,)
        row = kind.element if isinstance(kind, ListKind) else None
        if isinstance(row, TupleKind) and any(place == "log" for place, _ in row.places):
            rows = operator.attrgetter(name)
            return lambda message: (each.log for each in rows(message))
    raise TypeError(f"{cls.__name__} needs a permission and names no log")


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _packer(cls: type[Any], wire: list[tuple[str, FieldKind]]) -> Callable[[Any], bytes]:
    left_out = {field.name for field in dataclasses.fields(cls) if field.metadata.get("left out")}
    names = [name for name, _ in wire]
    source = "def pack(m):\n"
    while names and names[-1] in left_out:
        source += f"    if m.{names[-1]}: return packb((" + "".join(f"m.{name}, " for name in names) + "))\n"
        left_out.remove(names.pop())
    assert not left_out, f"{cls.__name__}: only last fields can be left out"
    source += "    return packb((" + "".join(f"m.{name}, " for name in names) + "))\n"
    scope: dict[str, Any] = {"packb": msgpack.Packer(autoreset=True).pack}
    exec(source, scope)
    return typing.cast(Callable[[Any], bytes], scope["pack"])


def _unpacker(
    cls: type[Any], wire: list[tuple[str, FieldKind]], payload: str | None, required: int
) -> Callable[[Any, bytes], Any]:
    """Straight-line code for each message: integers are checked inline, the rest by its kind."""
    names = [name for name, _ in wire]
    scope: dict[str, Any] = {"cls": cls, "new": object.__new__, "ProtocolError": ProtocolError}
    lines = ["def unpack(f, payload):", "    n = len(f)"]
    lines.append(
        f"    if n < {required}: raise ProtocolError('{cls.__name__}: %d fields, at least {required} needed' % n)"
    )
    lines.append("    try:")
    for index, (name, kind) in enumerate(wire):
        if isinstance(kind, IntKind):
            read = (
                f"v{index} = f[{index}]\n"
                f"{{0}}if type(v{index}) is not int or not {kind.lo} <= v{index} <= {kind.hi}: "
                f"raise ValueError('{name}: {kind.name} expected')"
            )
        else:
            scope[f"check{index}"] = kind.check
            read = f"v{index} = check{index}(f[{index}])"
        if index < required:
            lines.append("        " + read.format("        "))
        else:
            scope[f"default{index}"] = next(x for x in dataclasses.fields(cls) if x.name == name)
            lines.append(f"        if n > {index}:")
            lines.append("            " + read.format("            "))
            lines.append("        else:")
            lines.append(f"            v{index} = make_default(default{index})")
    scope["make_default"] = _default
    lines.append("        pass")
    lines.append("    except ValueError as error:")
    lines.append(f"        raise ProtocolError('{cls.__name__}: %s' % error) from None")
    if payload is None:
        lines.append(f"    if payload: raise ProtocolError('{cls.__name__} carries no payload')")
    # Every field is set here, so `__init__` with its keywords is left out: that is a third of the time.
    lines.append("    m = new(cls)")
    lines += [f"    m.{name} = v{index}" for index, name in enumerate(names)]
    if payload is not None:
        lines.append(f"    m.{payload} = payload")
    lines.append("    return m")
    exec("\n".join(lines), scope)
    return typing.cast(Callable[[Any, bytes], Any], scope["unpack"])


def _default(field: dataclasses.Field[Any]) -> Any:
    factory = field.default_factory
    return field.default if factory is dataclasses.MISSING else factory()
