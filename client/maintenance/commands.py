"""Commands to the maintenances: what they ask for, as bytes and as values, and the limits of all that comes from others."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from client.replica.command_set import CommandField, CommandSet, ExpectedVersion, Version, integer, member
from client.replica.commands import number_field
from logdevice_py.core.ids import NODE_ID_MAX, SHARD_INDEX_MAX, NodeId, ShardId
from logdevice_py.core.units import SECOND

TEXT_BYTES_MAX: Final = 200
"""Of a reason, and of who asks."""
TARGETS_MAX: Final = 1000
"""Nodes, or shards, of one maintenance or rolling restart."""
NUMBER_MAX: Final = (1 << 53) - 1
FOR_US_MAX: Final = 366 * 86_400 * SECOND
INSTANCE_MAX: Final = (1 << 63) - 1
_SHARD_MAX: Final = NODE_ID_MAX << 8 | SHARD_INDEX_MAX
_FORMAT: Final = 1


class MaintenanceKind(enum.IntEnum):
    """What a maintenance is for. Numbers stand in commands."""

    AWAY = 1  # shards may disappear for a while, with what they hold
    DRAIN = 2  # shards are emptied, and may disappear then


class EndCause(enum.IntEnum):
    """Why a maintenance is over. Numbers stand in commands."""

    DONE = 1  # who asked for it has what it took away back
    EXPIRED = 2  # its time was over
    LEFT = 3  # everything that it concerns left the cluster file
    CANCELLED = 4  # somebody took it back


def text_field(value: Any) -> str:
    """A reason, or who asks; ValueError when it is none."""
    if type(value) is not str or len(value.encode(errors="surrogatepass")) > TEXT_BYTES_MAX:
        raise ValueError(f"a text of up to {TEXT_BYTES_MAX} bytes expected")
    value.encode()  # refuses what is no text
    return value


def node_field(value: Any) -> NodeId:
    """A node; ValueError when it is none."""
    return NodeId(number_field(value, 0, NODE_ID_MAX))


def nodes_field(value: Any) -> tuple[NodeId, ...]:
    """Nodes, each once; ValueError when it is something else."""
    return tuple(_distinct([node_field(each) for each in _bounded(value)]))


def shards_field(value: Any) -> tuple[ShardId, ...]:
    """Shards, each once; ValueError when it is something else."""
    return tuple(_distinct([ShardId(number_field(each, 0, _SHARD_MAX)) for each in _bounded(value)]))


def _bounded(value: Any) -> list[Any]:
    if type(value) is not list or len(value) > TARGETS_MAX:
        raise ValueError(f"an array of up to {TARGETS_MAX} expected")
    return value


def _distinct(values: list[Any]) -> list[Any]:
    if len(set(values)) != len(values):
        raise ValueError("something is named twice")
    return values


def maintenance_number(value: Any) -> int:
    """The number of a maintenance or rolling restart; ValueError when it is none."""
    return number_field(value, 1, NUMBER_MAX)


def _some_nodes(value: Any) -> tuple[NodeId, ...]:
    nodes = nodes_field(value)
    if not nodes:
        raise ValueError("nodes expected")
    return nodes


Number: TypeAlias = Annotated[int, CommandField(maintenance_number)]
Text: TypeAlias = Annotated[str, CommandField(text_field)]
Node: TypeAlias = Annotated[NodeId, CommandField(node_field)]


@dataclass(frozen=True, slots=True)
class ApplyMaintenance:
    """Somebody wants to take something away. The result is the number of the maintenance."""

    VERB: ClassVar[int] = 1
    kind: Annotated[MaintenanceKind, member(MaintenanceKind)]
    nodes: Annotated[Sequence[NodeId], CommandField(nodes_field)]
    """That go as a whole, with their sequencers."""
    shards: Annotated[Sequence[ShardId], CommandField(shards_field)]
    """Those of the nodes included."""
    for_us: Annotated[int, integer(0, FOR_US_MAX)]
    """How long from the moment it is granted, and how long it may wait; 0: as long as it takes."""
    by: Text
    reason: Text
    restart: Annotated[int, integer(0, NUMBER_MAX)] = 0
    """The rolling restart that it is a part of; 0: none."""

    def __post_init__(self) -> None:
        if not self.nodes and not self.shards:
            raise ValueError("nodes or shards expected")


@dataclass(frozen=True, slots=True)
class GrantMaintenance:
    """It is safe, beside all that was granted as of `basis`."""

    VERB: ClassVar[int] = 2
    number: Number
    basis: Version
    """`MaintenancesState.basis` as of which it was judged."""


@dataclass(frozen=True, slots=True)
class WithdrawMaintenance:
    """It is not safe any more, and nothing was taken away: it waits again."""

    VERB: ClassVar[int] = 3
    number: Number
    expect: Version
    """Of the maintenance."""


@dataclass(frozen=True, slots=True)
class ShardsDrained:
    """All of its shards are empty."""

    VERB: ClassVar[int] = 4
    number: Number
    expect: Version


@dataclass(frozen=True, slots=True)
class EndMaintenance:
    """It is over. Where shards were drained, they are to be used again first."""

    VERB: ClassVar[int] = 5
    number: Number
    cause: Annotated[EndCause, member(EndCause)]
    expect: ExpectedVersion = None
    """Of the maintenance; None: whatever became of it."""


@dataclass(frozen=True, slots=True)
class ShardsReturned:
    """Nobody drains the shards of a maintenance that ends."""

    VERB: ClassVar[int] = 6
    number: Number
    expect: Version


@dataclass(frozen=True, slots=True)
class BeginRestart:
    """Nodes are to be started again, one after the other. The result is the number of the rolling restart."""

    VERB: ClassVar[int] = 7
    nodes: Annotated[Sequence[NodeId], CommandField(_some_nodes)]
    by: Text
    reason: Text


@dataclass(frozen=True, slots=True)
class TakeRestart:
    """A process goes on with the rolling restart; the one before may do nothing any more. The result is the token of this one."""

    VERB: ClassVar[int] = 8
    number: Number
    by: Text


@dataclass(frozen=True, slots=True)
class RestartNode:
    """The node is about to be started again."""

    VERB: ClassVar[int] = 9
    number: Number
    token: Number
    node: Node
    instance: Annotated[int, integer(0, INSTANCE_MAX)]
    """The run of it that is to end."""


@dataclass(frozen=True, slots=True)
class NodeRestarted:
    """The node is back and well: the next one may follow."""

    VERB: ClassVar[int] = 10
    number: Number
    token: Number
    node: Node


@dataclass(frozen=True, slots=True)
class AbandonRestart:
    """The nodes that are left stay as they are."""

    VERB: ClassVar[int] = 11
    number: Number


MaintenanceCommand: TypeAlias = (
    ApplyMaintenance
    | GrantMaintenance
    | WithdrawMaintenance
    | ShardsDrained
    | EndMaintenance
    | ShardsReturned
    | BeginRestart
    | TakeRestart
    | RestartNode
    | NodeRestarted
    | AbandonRestart
)

COMMANDS: Final = CommandSet[MaintenanceCommand]("maintenances", _FORMAT, MaintenanceCommand)
encode: Final = COMMANDS.encode
decode: Final = COMMANDS.decode
