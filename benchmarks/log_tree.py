"""What a large log tree costs, with real processes: ``python -m benchmarks.log_tree [--groups N]``; with ``--trouble``: how long a command takes with a node dead and a node paused."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from benchmarks.percentiles import percentile
from client.client import Client
from ldquery.session import LDQuery
from logdevice_py.core.ids import LOG_TREE_DELTAS, NodeId
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_acquainted
from server.dev.supervisor import Supervisor, write_cluster_file

_NODES = 5
_UNDER_WAY = 500
_ALONE = 200
_IN_TROUBLE = 500
_CALM_SECONDS = 2.0
"""From when on after nodes fail commands are counted."""


async def _until_known(client: Client) -> int:
    """Until the client has read the tree: how many groups there are."""
    tree = client.log_tree
    assert tree is not None
    while not tree.view.is_known:  # noqa: ASYNC110 - nothing else goes on, and this is what is measured
        await asyncio.sleep(0.01)
    return len(tree.view.state)


def _memory(supervisor: Supervisor) -> str:
    sizes = []
    for child in supervisor.children.values():
        status = Path(f"/proc/{child.process.pid}/status").read_text()
        sizes.append(int(status.partition("VmRSS:")[2].split()[0]) >> 10)
    return " ".join(map(str, sizes))


async def _make(client: Client, groups: int) -> None:
    gate = asyncio.Semaphore(_UNDER_WAY)

    async def make(number: int) -> None:
        async with gate:
            await client.make_log_group(f"/team{number % 100}/clicks-{number:06}", 1, {"backlog": "7d"}, timeout=120)

    for team in range(100):
        await client.make_directory(f"/team{team}")
    began = time.monotonic()
    await asyncio.gather(*map(make, range(groups)))
    took = time.monotonic() - began
    print(f"{groups} groups made in {took:.1f} s: {groups / took:.0f} a second")


async def _make_alone(client: Client, name: str = "alone", commands: int = _ALONE) -> None:
    took = []
    for number in range(commands):
        began = time.monotonic()
        await client.make_log_group(f"/{name}-{number}")
        took.append(1e3 * (time.monotonic() - began))
    numbers = (
        f"median {statistics.median(took):.1f} ms, p99 {percentile(took, 0.99):.1f} ms, longest {max(took):.1f} ms"
    )
    print(f"one command: {numbers}")


async def _measure_in_trouble(supervisor: Supervisor, file: str) -> None:
    """The node that sequences the tree is killed, and another one stopped, at the same time."""
    async with Client(file) as client:
        await _make_alone(client, "well")
        dead = int((await client.sequencer(int(LOG_TREE_DELTAS))).node)
        paused = (dead + 1) % _NODES
        await asyncio.gather(supervisor.kill(dead), supervisor.pause(paused))
        failed = time.monotonic()
        await client.make_log_group("/first", timeout=60)
        print(
            f"N{dead}, which sequenced the tree, dead and N{paused} paused: the next command took {time.monotonic() - failed:.1f} s"
        )
        await asyncio.sleep(max(0.0, failed + _CALM_SECONDS - time.monotonic()))
        await _make_alone(client, "troubled", _IN_TROUBLE)
        await supervisor.resume(paused)


async def _measure(supervisor: Supervisor, file: str, groups: int) -> None:
    print(f"memory of nodes before: {_memory(supervisor)} MB")
    async with Client(file) as client:
        await _make(client, groups)
        await _make_alone(client)
    print(f"memory of nodes after: {_memory(supervisor)} MB")
    for _ in range(3):
        began = time.monotonic()
        async with Client(file) as client:
            found = await _until_known(client)
        print(f"a client opened and knew {found} groups in {time.monotonic() - began:.1f} s")
    await supervisor.kill(3)
    began = time.monotonic()
    await supervisor.start(3)

    def known() -> bool:
        with LDQuery(file, deadline=20) as session:
            return bool(session.query("SELECT 1 FROM log_tree_replicas WHERE node_id = 3 AND is_known = 1").rows)

    while not await asyncio.to_thread(known):  # noqa: ASYNC110 - another process is waited for
        await asyncio.sleep(0.1)
    print(f"a node that was killed knew them {time.monotonic() - began:.1f} s after its start")


async def run(groups: int, *, trouble: bool) -> None:
    """Start a cluster, measure, stop it."""
    with tempfile.TemporaryDirectory(prefix="logdevice-") as path:
        directory = Path(path)
        config = make_config(
            directory, nodes=_NODES, logs=1, replicate="node:3", racks=1, epoch_store=None, log_tree=True
        )
        supervisor = Supervisor(directory, config)
        write_cluster_file(directory, supervisor.config)
        await supervisor.listen()
        try:
            await supervisor.start_all()
            await wait_until_acquainted(
                config, lambda: list(map(NodeId, range(_NODES))), timeout=60, access=supervisor.admin_access
            )
            file = str(layout.cluster_file(directory))
            await (_measure_in_trouble(supervisor, file) if trouble else _measure(supervisor, file, groups))
        finally:
            await supervisor.stop_all()


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="benchmarks.log_tree", description=__doc__)
    parser.add_argument("--groups", type=int, default=100_000, help="how many (default 100000)")
    parser.add_argument("--trouble", action="store_true", help="few groups, with a node dead and a node paused")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.groups, trouble=arguments.trouble))


if __name__ == "__main__":
    main()
