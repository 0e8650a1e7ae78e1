"""Where a development cluster keeps its things, and which addresses its nodes have.

Every cluster has a loopback range of its own, 127.x.y.N, chosen by its directory, so that fixed ports never collide with another
cluster's and a restarted node keeps its address. Where regions are played its nodes are at 10.x.y.N instead, each in a network namespace.
"""

from __future__ import annotations

import errno
import hashlib
import socket
from pathlib import Path

from logdevice_py.core.ids import NodeId, ShardId, node_of, shard_index_of

NODE_PORT = 4440
ADMIN_PORT = 4441
CONTROL_PORT = 4439
ZOOKEEPER_PORT = 2181
NODES_MAX = 250
REGION_NODES_MAX = 200
"""Where regions are played: further machines follow."""
FORWARDED_NODES_MAX = 120
"""Where they are played without namespaces: as many addresses follow, where the nodes' processes stand."""


def _digest(directory: Path) -> bytes:
    return hashlib.blake2b(str(directory.resolve()).encode(), digest_size=2).digest()


def address_range(directory: Path) -> str:
    """The first three numbers of the cluster's addresses."""
    digest = _digest(directory)
    return f"127.{64 + digest[0] % 128}.{digest[1]}"


def is_free(directory: Path) -> bool:
    """Whether no cluster runs at these addresses: that of another directory may have the same, one of 32,768."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that ended a moment ago do not matter
        try:
            probe.bind((node_host(directory, NodeId(0)), NODE_PORT))
        except OSError as error:
            return error.errno != errno.EADDRINUSE
        return True


def node_host(directory: Path, node: NodeId) -> str:
    """The address of a node."""
    return f"{address_range(directory)}.{node + 1}"


def standing_host(directory: Path, node: NodeId) -> str:
    """Where a node's process stands if connections to its address are forwarded to it."""
    return f"{address_range(directory)}.{FORWARDED_NODES_MAX + node + 1}"


def region_host(directory: Path, number: int) -> str:
    """The address of a node, or of another machine, of a cluster whose regions are played."""
    digest = _digest(directory)
    return f"10.{64 + digest[0] % 128}.{digest[1]}.{number + 1}"


def machine_name(directory: Path, machine: str) -> str:
    """Of its network namespace and interface, where regions are played."""
    return f"ld{_digest(directory).hex()}{machine}"


def regions_file(directory: Path) -> Path:
    """What regions are played; it is not there where none are."""
    return directory / "regions.json"


def control_host(directory: Path) -> str:
    """Where the cluster's supervisor listens."""
    return f"{address_range(directory)}.254"


def zookeeper_host(directory: Path) -> str:
    """Where a ZooKeeper server of the cluster's own listens."""
    return f"{address_range(directory)}.253"


def zookeeper_directory(directory: Path) -> Path:
    """The data of that server."""
    return directory / "zookeeper"


def cluster_file(directory: Path) -> Path:
    """The cluster file."""
    return directory / "cluster.toml"


def node_directory(directory: Path, node: NodeId) -> Path:
    """The data of a node."""
    return directory / f"n{node}"


def store_directory(directory: Path, shard: ShardId) -> Path:
    """The store of a shard."""
    return node_directory(directory, node_of(shard)) / f"shard{shard_index_of(shard)}"


def node_log(directory: Path, node: NodeId) -> Path:
    """What a node's process printed. Outside of its data, which may be deleted."""
    return directory / f"n{node}.log"


def control_token(directory: Path) -> Path:
    """The secret that lets commands reach the supervisor; readable by the owner only."""
    return directory / "control.token"
