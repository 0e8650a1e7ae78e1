"""Measures the memory of nodes under full write load: ``python -m benchmarks.node_memory --help``.

Three nodes that sequence and store are written to until so many bytes of payloads are acknowledged. Memory depends on how much was written, hardly on how fast,
so that a machine that does other things as well gives the same figures.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import shutil
import tempfile
from collections import deque
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from benchmarks.ldbench.resources import parse_status
from benchmarks.node_memory.inside import TELL
from benchmarks.storage_figures.processes import WRITABLE_WITHIN, load, say
from client.client import Client, read_cluster_file
from logdevice_py.core.ids import NodeId
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_writable
from server.dev.supervisor import Supervisor, write_cluster_file
from storage_node.log_store.settings import STORE_KINDS

_MIB: Final = 1 << 20
_SETTLE_SECONDS: Final = 3
_TOLD_WITHIN: Final = 600
_TURN_RECORDS: Final = 500


class _Nodes(Supervisor):
    """Node processes that tell what holds their memory when they are asked."""

    def report(self, node: NodeId) -> Path:
        """Where a node's report goes."""
        return self.directory / f"memory-N{node}.json"

    def command(self, node: NodeId) -> list[str]:
        """As without it, with the report in between."""
        command = super().command(node)
        at = command.index("server.logdeviced")
        command[at:at] = ["benchmarks.node_memory.inside", str(self.report(node))]
        return command

    def memory(self, node: NodeId) -> dict[str, int]:
        """Resident bytes of a node: the most so far, now, and what of that is anonymous memory."""
        text = Path(f"/proc/{self.children[node].process.pid}/status").read_text()
        peak, resident = parse_status(text)
        anonymous = next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("RssAnon"))
        return {"peak": peak, "resident": resident, "anonymous": anonymous}

    async def objects(self, node: NodeId) -> dict[str, Any]:
        """What a node says of its memory."""
        path = self.report(node)
        path.unlink(missing_ok=True)
        os.kill(self.children[node].process.pid, TELL)
        async with asyncio.timeout(_TOLD_WITHIN):
            while not path.exists():  # noqa: ASYNC110 - another process writes it
                await asyncio.sleep(0.1)
        told: dict[str, Any] = json.loads(path.read_text())
        return told


def _figures(nodes: _Nodes) -> str:
    told = {node: nodes.memory(node) for node in sorted(nodes.children)}
    return "; ".join(
        f"N{node} {each['peak'] / 1e6:.0f}, {each['resident'] / 1e6:.0f}, {each['anonymous'] / 1e6:.0f}"
        for node, each in told.items()
    )


async def _write(nodes: _Nodes, client: Client, arguments: argparse.Namespace, written: int) -> None:
    """Have so many bytes acknowledged, a window of records under way all the while."""
    size = arguments.payload
    payload = os.urandom(size)
    turn = max(1, min(_TURN_RECORDS, arguments.window // 8))
    logs, under_way, left, told = cycle(range(1, arguments.logs + 1)), deque[Any](), written // size, written
    while left > 0 or under_way:
        if left > 0 and len(under_way) * turn < arguments.window:
            log = next(logs)
            under_way.append([client.append(log, payload) for _ in range(turn)])
            left -= turn
        else:
            for receipt in under_way.popleft():
                await receipt
        if told - left * size >= arguments.each * _MIB:
            told = left * size
            say(f"{(written - max(0, told)) / 1e6:.0f} MB written: {_figures(nodes)}")


async def _run(arguments: argparse.Namespace, directory: Path) -> None:
    made = make_config(
        directory, nodes=3, logs=arguments.logs, replicate="node:3", racks=1, epoch_store=None, store=arguments.store
    )
    settings = {section: dict(values) for section, values in made.settings.items()}
    for setting in arguments.set:
        name, _, value = setting.partition("=")
        section, _, key = name.partition(".")
        settings.setdefault(section, {})[key] = value
    write_cluster_file(directory, dataclasses.replace(made, settings=settings))
    file = layout.cluster_file(directory)
    nodes = _Nodes(directory, read_cluster_file(file))
    await nodes.listen()
    try:
        await nodes.start_all()
        await wait_until_writable(file, timeout=WRITABLE_WITHIN)
        say(f"stores in {arguments.store}, {load()}. Most, now and anonymous, in MB")
        say(f"at first: {_figures(nodes)}")
        async with Client(str(file)) as client:
            await _write(nodes, client, arguments, int(arguments.megabytes * 1e6))
            say(f"all is written: {_figures(nodes)}")
            await asyncio.sleep(_SETTLE_SECONDS)
            say(f"{_SETTLE_SECONDS} s later: {_figures(nodes)}")
            if arguments.objects:
                told = await nodes.objects(NodeId(0))
                say("N0: " + ", ".join(f"{name} {size / 1e6:.0f} MB" for name, size in told["allocator"].items()))
                for name, each in told["objects"].items():
                    print(f"  {each['bytes'] / 1e6:8.2f} MB {each['count']:9,} {name}", flush=True)
    finally:
        await nodes.stop_all()


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.node_memory", description=__doc__)
    parser.add_argument("--store", choices=STORE_KINDS, default=STORE_KINDS[0], help="what shards are stored in")
    parser.add_argument("--logs", type=int, default=4, help="that are written to in turn (4)")
    parser.add_argument("--payload", type=int, default=100, help="bytes of a record (100)")
    parser.add_argument("--window", type=int, default=30_000, help="records under way (30,000)")
    parser.add_argument("--megabytes", type=float, default=500, help="of payloads that are written (500)")
    parser.add_argument("--each", type=int, default=100, help="figures after so many MiB (100)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="another setting (may be repeated)"
    )
    parser.add_argument("--objects", action="store_true", help="also which objects one of the nodes holds at the end")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="node-memory-"))
    try:
        asyncio.run(_run(arguments, directory))
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
