"""``python -m tests.hostile.costs``: what strangers cost one node: frames before HELLO, frames that are begun and do not go on, connections that do nothing."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import resource
import struct
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from google_crc32c import value as crc32c

from benchmarks.storage_figures.processes import cost_of_node
from server.dev.supervisor import Supervisor
from tests.hostile.attacks import bombs
from tests.hostile.wire import Cluster, Connection, encode, raw_frame
from tests.integration.process_cluster import process_cluster

_FRAME_BYTES_MAX = 68_157_440
_AT_ONCE = 50
"""Connections that are opened at the same time: a node takes no more than so many in a turn."""


@asynccontextmanager
async def connections(cluster: Cluster, count: int, *, introduced: bool = True) -> AsyncIterator[list[Connection]]:
    """Open connections, from as many addresses of this machine as it takes: a node bounds those of one address, and those that are not introduced."""
    peers = [Connection(cluster, 0, f"127.0.0.{2 + number // 4000}") for number in range(count)]
    async with contextlib.AsyncExitStack() as opened:
        for first in range(0, count, _AT_ONCE):
            part = peers[first : first + _AT_ONCE]
            await asyncio.gather(*(opened.enter_async_context(peer) for peer in part))
            if introduced:
                assert all(await asyncio.gather(*(peer.greet() for peer in part))), "the node does not take so many"
        yield peers


async def cost_before_hello(cluster: Cluster, supervisor: Supervisor, frame: bytes, count: int) -> float:
    """Processor milliseconds of the node for a connection that sends this and is ended, without that of one that sends nothing."""

    async def spent(frame: bytes) -> float:
        began = cost_of_node(supervisor, 0).cpu_seconds
        for _ in range(0, count, _AT_ONCE):
            async with connections(cluster, _AT_ONCE, introduced=False) as peers:
                if frame:
                    await asyncio.gather(*(peer.say(frame) for peer in peers))
                    ended = await asyncio.gather(*(peer.hear_the_end() for peer in peers))
                    assert all(ended), "the node takes such a frame before HELLO"
        return 1000 * (cost_of_node(supervisor, 0).cpu_seconds - began) / count

    nothing = await spent(b"")
    return await spent(frame) - nothing


async def measure(directory: Path, *, frames: int, begun: int, idle: int) -> bool:
    """Measure, and print. Whether all is within its bound."""
    held = True

    def tell(what: str, value: float, unit: str, bound: float) -> None:
        nonlocal held
        held = held and value <= bound
        print(f"{what}: {value:.2f} {unit}, at most {bound:g} {'' if value <= bound else '- EXCEEDED'}", flush=True)

    async with process_cluster(directory, nodes=1, racks=1, replicate="node:1") as processes:
        supervisor, cluster = processes.supervisor, Cluster.read(Path(processes.file))
        hello = Connection(cluster, 0).hello()
        worst = {f"msgpack bomb {number}": raw_frame(1, each) for number, each in enumerate(bombs(4000), 1)}
        worst["HELLO to another node"] = Connection(cluster, 0).hello(destination=9)
        worst["a message that is no HELLO"] = encode("GetSeqState", log=1)
        worst["64 KB that are no frame"] = os.urandom(65_000)
        for name, frame in worst.items():
            tell(
                f"before HELLO, {name}",
                await cost_before_hello(cluster, supervisor, frame, frames),
                "ms of a processor",
                1,
            )
        head = struct.pack(">IHBB", _FRAME_BYTES_MAX - 4, 0, 3, 0)
        head += crc32c(head).to_bytes(4, "big")
        before = cost_of_node(supervisor, 0).resident_bytes
        async with connections(cluster, begun) as peers:
            began = time.monotonic()
            await asyncio.gather(*(peer.say(head + bytes(1000)) for peer in peers))
            ended = await asyncio.gather(*(peer.hear_the_end(seconds=30) for peer in peers))
            took = time.monotonic() - began
        assert all(ended), f"{len(ended) - sum(ended)} connections stay"
        tell(
            f"{begun} begun frames of {_FRAME_BYTES_MAX >> 20} MiB",
            (cost_of_node(supervisor, 0).peak_bytes - before) / 2**20,
            "MiB",
            64,
        )
        tell(f"{begun} begun frames, until the last connection ended", took, "s", 11)
        before = cost_of_node(supervisor, 0).resident_bytes
        async with connections(cluster, idle):
            tell(f"{idle} idle connections", (cost_of_node(supervisor, 0).resident_bytes - before) / 2**20, "MiB", 256)
            async with Connection(cluster, 0) as another:
                await another.say(hello)
                print(f"one more is {'served' if await another.wait_for('Ack') else 'refused'}")
    return held


def main() -> int:
    """0: all is within its bound."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.costs", description=__doc__)
    parser.add_argument("--frames", type=int, default=2_000, help="connections for each kind of frame before HELLO")
    parser.add_argument("--begun", type=int, default=1_000, help="frames that are begun")
    parser.add_argument("--idle", type=int, default=10_000, help="connections that do nothing")
    arguments = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with tempfile.TemporaryDirectory(prefix="logdevice-costs-") as directory:
        held = asyncio.run(
            measure(Path(directory), frames=arguments.frames, begun=arguments.begun, idle=arguments.idle)
        )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
