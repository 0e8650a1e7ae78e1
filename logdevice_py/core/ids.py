"""Names of things: logs, nodes, shards, connections, writers.

All are plain ints (or bytes) at run time; the NewTypes keep them apart for the type checker.
"""

from __future__ import annotations

from typing import Final, NewType

LogId = NewType("LogId", int)
"""A log: data logs are 1 to `USER_LOG_ID_MAX`; a metadata log is its data log's id with bit 62 set."""
NodeId = NewType("NodeId", int)
"""Index of a node in the cluster file, 0 to 32767; prints as N3."""
ShardId = NewType("ShardId", int)
"""A shard of a node: ``node << 8 | shard index``; prints as N3:S0."""
PeerId = NewType("PeerId", int)
"""Who a message comes from or goes to: a node's index when >= 0, a client's connection when negative."""
Generation = NewType("Generation", int)
"""How often a shard lost its data and started a new generation, from 1. Part of a shard's identity."""
InstanceId = NewType("InstanceId", int)
"""One run of a node's process; a later run of the same node has a greater one."""
WriterId = NewType("WriterId", bytes)
"""16 random bytes that name a write stream."""

_METADATA_LOG_BIT: Final = 1 << 62
LOG_ID_MAX: Final = LogId(_METADATA_LOG_BIT - 1)
USER_LOG_ID_MAX: Final = LogId(LOG_ID_MAX - 1000)
"""The thousand ids above are internal logs."""
EVENT_LOG_DELTAS: Final = LOG_ID_MAX
"""The internal log of what happens to shards: losses, rebuilding, draining."""
EVENT_LOG_SNAPSHOTS: Final = LogId(LOG_ID_MAX - 1)
"""The internal log of snapshots of what the events amount to."""
LOG_TREE_DELTAS: Final = LogId(LOG_ID_MAX - 2)
"""The internal log of commands to the log tree: logs that are made, renamed and removed at run time."""
LOG_TREE_SNAPSHOTS: Final = LogId(LOG_ID_MAX - 3)
"""The internal log of snapshots of what these commands amount to."""
MAINTENANCE_DELTAS: Final = LogId(LOG_ID_MAX - 4)
"""The internal log of commands to the maintenances: what operators want to take away."""
MAINTENANCE_SNAPSHOTS: Final = LogId(LOG_ID_MAX - 5)
"""The internal log of snapshots of what these commands amount to."""
INTERNAL_LOGS: Final = (
    EVENT_LOG_DELTAS,
    EVENT_LOG_SNAPSHOTS,
    LOG_TREE_DELTAS,
    LOG_TREE_SNAPSHOTS,
    MAINTENANCE_DELTAS,
    MAINTENANCE_SNAPSHOTS,
)
"""All that there may be; which there are follows from the cluster file."""
TREE_LOG_ID_MIN: Final = LogId(1 << 40)
"""The first id that the log tree gives."""
TREE_LOG_ID_MAX: Final = LogId((1 << 61) - 1)
"""The last one."""
NODE_ID_MAX: Final = NodeId(32767)
SHARD_INDEX_MAX: Final = 127
_DIGITS_MAX: Final = 5
NODESET_SIZE_MAX: Final = 127
COPYSET_SIZE_MAX: Final = 127


def metadata_log_of(log: LogId) -> LogId:
    """The metadata log that records the nodesets of a data log."""
    assert not is_metadata_log(log), log
    return LogId(log | _METADATA_LOG_BIT)


def data_log_of(log: LogId) -> LogId:
    """The data log of a metadata log; a data log's own id."""
    return LogId(log & ~_METADATA_LOG_BIT)


def is_metadata_log(log: LogId) -> bool:
    """Whether the log records nodesets rather than data."""
    return bool(log & _METADATA_LOG_BIT)


def is_internal_log(log: LogId) -> bool:
    """Whether the log, or the data log of a metadata log, is one that the cluster keeps for itself."""
    return data_log_of(log) > USER_LOG_ID_MAX


def format_log(log: LogId) -> str:
    """``7`` for a data log, ``metadata of 7`` for its metadata log."""
    return f"metadata of {data_log_of(log)}" if is_metadata_log(log) else str(log)


def shard_id(node: NodeId, index: int = 0) -> ShardId:
    """The shard `index` of a node."""
    assert 0 <= node <= NODE_ID_MAX, node
    assert 0 <= index <= SHARD_INDEX_MAX, index
    return ShardId(node << 8 | index)


def node_of(shard: ShardId) -> NodeId:
    """The node that a shard is part of."""
    return NodeId(shard >> 8)


def shard_index_of(shard: ShardId) -> int:
    """The index of a shard within its node."""
    return shard & 0xFF


def format_shard(shard: ShardId) -> str:
    """``N3:S0``."""
    return f"N{shard >> 8}:S{shard & 0xFF}"


def parse_shard(text: str) -> ShardId:
    """The shard that `format_shard` wrote.

    Raises:
        ValueError: it is none.
    """
    node, colon, index = text.removeprefix("N").partition(":S")
    if not (
        text.startswith("N")
        and colon
        and all(number.isdecimal() and len(number) <= _DIGITS_MAX for number in (node, index))
        and int(node) <= NODE_ID_MAX
        and int(index) <= SHARD_INDEX_MAX
    ):
        raise ValueError(f"{text!r} is no shard: write it like N3:S0")
    return shard_id(NodeId(int(node)), int(index))


def node_peer(shard: ShardId) -> PeerId:
    """The peer to which messages for a shard go: its node."""
    return PeerId(shard >> 8)


def is_client(peer: PeerId) -> bool:
    """Whether the peer is a client's connection rather than a node."""
    return peer < 0


def format_peer(peer: PeerId) -> str:
    """``N3`` for a node, ``C17`` for a client's connection."""
    return f"N{peer}" if peer >= 0 else f"C{-peer}"
