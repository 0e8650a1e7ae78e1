"""Commands to the log tree: what they ask for, as bytes and as values, and the limits of all that comes from others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import msgpack

from client.replica.command_set import CommandField, CommandSet, ExpectedVersion, Flag, integer
from client.replica.commands import StateVersion, refuse
from logdevice_py.core.ids import TREE_LOG_ID_MAX, TREE_LOG_ID_MIN, LogId
from logdevice_py.core.status import Status

NAME_BYTES_MAX: Final = 255
DEPTH_MAX: Final = 32
"""Names in a path at most."""
LOGS_PER_GROUP_MAX: Final = 10_000
ATTRIBUTES_BYTES_MAX: Final = 4096
"""Of what one directory or group sets itself, as packed by `pack_attributes`."""
_ATTRIBUTES_MAX: Final = 64
_FORMAT: Final = 1
# What a name is belongs to the format of commands: all replicas must judge alike, whatever the cluster file allows one day.
NAME: Final = re.compile(r"[A-Za-z0-9_.-]+")

Attributes: TypeAlias = Mapping[str, str | int | bool]
"""By their keys in the cluster file, with values as written there. Whether they mean anything is not looked at by the state."""
Version: TypeAlias = StateVersion


def split_path(path: Any) -> list[str]:
    """The names in a path; none for the root, ``/``. CommandRefused when it is no path."""
    if type(path) is not str or not path.startswith("/"):
        raise refuse(Status.INVALID_PARAM, "a path begins with /, like /team/clicks")
    if path == "/":
        return []
    names = path[1:].split("/")
    if len(names) > DEPTH_MAX:
        raise refuse(Status.TOOBIG, f"a path of {len(names)} names; {DEPTH_MAX} are allowed")
    for name in names:
        if len(name) > NAME_BYTES_MAX or NAME.fullmatch(name) is None:
            shown = name[:20]
            raise refuse(
                Status.INVALID_PARAM,
                f"the name {shown!r} in the path: 1 to {NAME_BYTES_MAX} letters, digits, _, . and - are allowed",
            )
        if name.isdigit():
            raise refuse(
                Status.INVALID_PARAM, f"the name {name[:20]!r} is a number: those mean the logs within a group"
            )
    return names


def pack_attributes(attributes: Attributes) -> bytes:
    """Equal attributes have equal bytes."""
    packed: bytes = msgpack.packb({key: attributes[key] for key in sorted(attributes)})
    return packed


def checked_attributes(raw: Any) -> Attributes:
    """Attributes of a command; CommandRefused when they have another shape or are too many."""
    if type(raw) is not dict or len(raw) > _ATTRIBUTES_MAX:
        raise refuse(Status.INVALID_PARAM, f"a mapping of up to {_ATTRIBUTES_MAX} attributes expected")
    for key, value in raw.items():
        if type(key) is not str or type(value) not in (str, int, bool):
            raise refuse(Status.INVALID_PARAM, "an attribute is a name with a text, a number or a flag")
    if len(pack_attributes(raw)) > ATTRIBUTES_BYTES_MAX:
        raise refuse(Status.TOOBIG, f"attributes of more than {ATTRIBUTES_BYTES_MAX} bytes")
    return raw


def _names(raw: Any) -> Sequence[str]:
    if type(raw) not in (list, tuple) or len(raw) > _ATTRIBUTES_MAX or not all(type(name) is str for name in raw):
        raise refuse(Status.INVALID_PARAM, "names of attributes expected")
    return tuple(raw)


AttributesField: TypeAlias = Annotated[Attributes, CommandField(checked_attributes, dict)]


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """Make a directory, and with `parents` those above it that are missing."""

    VERB: ClassVar[int] = 1
    path: str
    attributes: AttributesField = field(default_factory=dict)
    parents: Flag = False


@dataclass(frozen=True, slots=True)
class MakeLogGroup:
    """Make a group of `count` logs, which get the next ids."""

    VERB: ClassVar[int] = 2
    path: str
    count: Annotated[int, integer(1, LOGS_PER_GROUP_MAX)] = 1
    attributes: AttributesField = field(default_factory=dict)
    parents: Flag = False


@dataclass(frozen=True, slots=True)
class SetAttributes:
    """Change what a directory or a group sets itself."""

    VERB: ClassVar[int] = 3
    path: str
    attributes: AttributesField = field(default_factory=dict)
    unset: Annotated[Sequence[str], CommandField(_names, list)] = ()
    expect: ExpectedVersion = None


@dataclass(frozen=True, slots=True)
class Rename:
    """Move a directory or a group, with all that is in it, to a path that is free."""

    VERB: ClassVar[int] = 4
    path: str
    to: str
    expect: ExpectedVersion = None


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove a directory that is empty, or begin to remove a group."""

    VERB: ClassVar[int] = 5
    path: str
    expect: ExpectedVersion = None


@dataclass(frozen=True, slots=True)
class Retired:
    """No log of a group that is being removed takes appends any more, whoever sequences it."""

    VERB: ClassVar[int] = 6
    lo: Annotated[LogId, integer(TREE_LOG_ID_MIN, TREE_LOG_ID_MAX)]
    """The first log of the group."""


TreeCommand: TypeAlias = MakeDirectory | MakeLogGroup | SetAttributes | Rename | Remove | Retired

COMMANDS: Final = CommandSet[TreeCommand]("the log tree", _FORMAT, TreeCommand)
encode: Final = COMMANDS.encode
decode: Final = COMMANDS.decode
