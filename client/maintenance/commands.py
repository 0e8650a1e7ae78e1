"""Commands to the maintenances: what they ask for, as bytes and as values, and the limits of all that comes from others."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from client.replica.commands import StateVersion, decode_body, encode_body, number_field, version_field
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


@dataclass(frozen=True, slots=True)
class ApplyMaintenance:
    """Somebody wants to take something away. The result is the number of the maintenance."""

    VERB: ClassVar[int] = 1
    kind: MaintenanceKind
    nodes: Sequence[NodeId]
    """That go as a whole, with their sequencers."""
    shards: Sequence[ShardId]
    """Those of the nodes included."""
    for_us: int
    """How long from the moment it is granted, and how long it may wait; 0: as long as it takes."""
    by: str
    reason: str
    restart: int = 0
    """The rolling restart that it is a part of; 0: none."""


@dataclass(frozen=True, slots=True)
class GrantMaintenance:
    """It is safe, beside all that was granted as of `basis`."""

    VERB: ClassVar[int] = 2
    number: int
    basis: StateVersion
    """`MaintenancesState.basis` as of which it was judged."""


@dataclass(frozen=True, slots=True)
class WithdrawMaintenance:
    """It is not safe any more, and nothing was taken away: it waits again."""

    VERB: ClassVar[int] = 3
    number: int
    expect: StateVersion
    """Of the maintenance."""


@dataclass(frozen=True, slots=True)
class ShardsDrained:
    """All of its shards are empty."""

    VERB: ClassVar[int] = 4
    number: int
    expect: StateVersion


@dataclass(frozen=True, slots=True)
class EndMaintenance:
    """It is over. Where shards were drained, they are to be used again first."""

    VERB: ClassVar[int] = 5
    number: int
    cause: EndCause
    expect: StateVersion | None = None
    """Of the maintenance; None: whatever became of it."""


@dataclass(frozen=True, slots=True)
class ShardsReturned:
    """Nobody drains the shards of a maintenance that ends."""

    VERB: ClassVar[int] = 6
    number: int
    expect: StateVersion


@dataclass(frozen=True, slots=True)
class BeginRestart:
    """Nodes are to be started again, one after the other. The result is the number of the rolling restart."""

    VERB: ClassVar[int] = 7
    nodes: Sequence[NodeId]
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class TakeRestart:
    """A process goes on with the rolling restart; the one before may do nothing any more. The result is the token of this one."""

    VERB: ClassVar[int] = 8
    number: int
    by: str


@dataclass(frozen=True, slots=True)
class RestartNode:
    """The node is about to be started again."""

    VERB: ClassVar[int] = 9
    number: int
    token: int
    node: NodeId
    instance: int
    """The run of it that is to end."""


@dataclass(frozen=True, slots=True)
class NodeRestarted:
    """The node is back and well: the next one may follow."""

    VERB: ClassVar[int] = 10
    number: int
    token: int
    node: NodeId


@dataclass(frozen=True, slots=True)
class AbandonRestart:
    """The nodes that are left stay as they are."""

    VERB: ClassVar[int] = 11
    number: int


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


def encode(command: MaintenanceCommand) -> bytes:
    """The body of a command."""
    return encode_body(_FORMAT, command.VERB, _fields(command))


def _fields(command: MaintenanceCommand) -> list[Any]:
    match command:
        case ApplyMaintenance():
            nodes, shards = list(command.nodes), list(command.shards)
            return [int(command.kind), nodes, shards, command.for_us, command.by, command.reason, command.restart]
        case GrantMaintenance(number, basis):
            return [number, list(basis)]
        case WithdrawMaintenance(number, expect) | ShardsDrained(number, expect) | ShardsReturned(number, expect):
            return [number, list(expect)]
        case EndMaintenance():
            return [command.number, int(command.cause), None if command.expect is None else list(command.expect)]
        case BeginRestart():
            return [list(command.nodes), command.by, command.reason]
        case TakeRestart(number, by):
            return [number, by]
        case RestartNode(number, token, node, instance):
            return [number, token, node, instance]
        case NodeRestarted(number, token, node):
            return [number, token, node]
        case AbandonRestart(number):
            return [number]


def decode(data: bytes) -> MaintenanceCommand:
    """From `encode`; CommandRefused for anything else."""
    return decode_body(data, _FORMAT, "maintenances", _decoded)


def _decoded(verb: Any, fields: list[Any]) -> MaintenanceCommand:
    reader = _READERS.get(verb) if type(verb) is int else None
    if reader is None:
        raise ValueError("there is no such command")
    return reader(*fields)


# Fields, which snapshots have as well


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


def _version(value: Any) -> StateVersion:
    lsn, offset = value
    return version_field(lsn, offset)


def _apply(kind: Any, nodes: Any, shards: Any, for_us: Any, by: Any, reason: Any, restart: Any) -> ApplyMaintenance:
    wanted = ApplyMaintenance(
        MaintenanceKind(number_field(kind, 1, 255)),
        nodes_field(nodes),
        shards_field(shards),
        number_field(for_us, 0, FOR_US_MAX),
        text_field(by),
        text_field(reason),
        number_field(restart, 0, NUMBER_MAX),
    )
    if not wanted.nodes and not wanted.shards:
        raise ValueError("nodes or shards expected")
    return wanted


def _end(number: Any, cause: Any, expect: Any) -> EndMaintenance:
    cause = EndCause(number_field(cause, 1, 255))
    return EndMaintenance(maintenance_number(number), cause, None if expect is None else _version(expect))


def _begin_restart(nodes: Any, by: Any, reason: Any) -> BeginRestart:
    command = BeginRestart(nodes_field(nodes), text_field(by), text_field(reason))
    if not command.nodes:
        raise ValueError("nodes expected")
    return command


def _restart_node(number: Any, token: Any, node: Any, instance: Any) -> RestartNode:
    return RestartNode(
        maintenance_number(number), maintenance_number(token), node_field(node), number_field(instance, 0, INSTANCE_MAX)
    )


_READERS: Final[dict[int, Callable[..., MaintenanceCommand]]] = {
    ApplyMaintenance.VERB: _apply,
    GrantMaintenance.VERB: lambda number, basis: GrantMaintenance(maintenance_number(number), _version(basis)),
    WithdrawMaintenance.VERB: lambda number, expect: WithdrawMaintenance(maintenance_number(number), _version(expect)),
    ShardsDrained.VERB: lambda number, expect: ShardsDrained(maintenance_number(number), _version(expect)),
    EndMaintenance.VERB: _end,
    ShardsReturned.VERB: lambda number, expect: ShardsReturned(maintenance_number(number), _version(expect)),
    BeginRestart.VERB: _begin_restart,
    TakeRestart.VERB: lambda number, by: TakeRestart(maintenance_number(number), text_field(by)),
    RestartNode.VERB: _restart_node,
    NodeRestarted.VERB: lambda number, token, node: NodeRestarted(
        maintenance_number(number), maintenance_number(token), node_field(node)
    ),
    AbandonRestart.VERB: lambda number: AbandonRestart(maintenance_number(number)),
}
