"""A cluster of node processes to measure, and what they use."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from benchmarks.ldbench.resources import ProcessCost, cost_of
from client.client import read_cluster_file
from logdevice_py.config.logs import Durability
from logdevice_py.core.ids import NodeId
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_writable
from server.dev.supervisor import Supervisor, write_cluster_file

WRITABLE_WITHIN: float = 120


@asynccontextmanager
async def node_processes(
    directory: Path,
    *,
    nodes: int,
    logs: int,
    replicate: str,
    settings: Mapping[str, Mapping[str, Any]],
) -> AsyncIterator[Supervisor]:
    """Nodes as child processes, writable, on what the directory holds, with its cluster file if it has one; all are gone afterwards, and the data stays."""
    file = layout.cluster_file(directory)
    if not file.exists():
        made = make_config(
            directory,
            nodes=nodes,
            logs=logs,
            replicate=replicate,
            racks=1,
            epoch_store=None,
            durability=Durability.SYNC,
        )
        write_cluster_file(directory, dataclasses.replace(made, settings=settings))
    supervisor = Supervisor(directory, read_cluster_file(file))
    await supervisor.listen()
    try:
        await supervisor.start_all()
        await wait_until_writable(file, timeout=WRITABLE_WITHIN)
        yield supervisor
    finally:
        await supervisor.stop_all()


async def lose(supervisor: Supervisor, node: int) -> int:
    """Kill a node and delete its data; how many bytes its entries took."""
    await supervisor.kill(node)
    lost = bytes_of(supervisor.directory, node)
    await asyncio.to_thread(shutil.rmtree, layout.node_directory(supervisor.directory, NodeId(node)))
    return lost


def bytes_of(directory: Path, node: int) -> int:
    """What the files of a node's shards take up on the disk, the write-ahead log excepted."""
    sizes: dict[int, int] = {}  # by inode: a file that is being deleted has two names for a moment
    for folder, _, names in os.walk(layout.node_directory(directory, NodeId(node))):
        for name in names:
            if name.endswith((".sst", ".blob")):
                try:
                    found = os.stat(Path(folder, name))
                except FileNotFoundError:
                    continue  # dropped meanwhile
                sizes[found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())


def cost_of_node(supervisor: Supervisor, node: int) -> ProcessCost:
    """What a node's process, which must be alive, uses and has used."""
    cost = cost_of(supervisor.children[NodeId(node)].process.pid)
    assert cost is not None, f"N{node} is gone"
    return cost


def load() -> str:
    """What else the machine does."""
    return f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors"


def say(text: str) -> None:
    """A line of the report, with the time."""
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)
