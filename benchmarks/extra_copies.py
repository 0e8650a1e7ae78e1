"""What a slow shard costs appends and readers: with the copies that a log asks for, with an early second wave of STOREs, and with an extra copy.

``python -m benchmarks.extra_copies`` runs the same load on simulated clusters, in virtual time: figures say what the protocol waits for, and nothing of
processors. The early second wave is an experiment that lives here only: when a first wave is not complete after as long as 95 of 100 STOREs take, another
one goes to those that have the entry and to others in place of the late ones. They differ from real waves in that nobody is avoided afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import struct
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from client.client import Client
from logdevice_py.core.histogram import longer_than
from logdevice_py.core.ids import LogId, NodeId, ShardId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.units import MILLISECOND, Micros
from sequencer.appender import Appender
from sequencer.epoch_sequencer import EpochSequencer
from server.simulation.cluster import SimCluster, simulate

MODES: Final = ("copies only", "second wave", "extra copy")
_COUNTED: Final = ("waves_repeated", "shards_graylisted")
_LOG: Final = LogId(1)
_WARM_UP: Final = 300
_KNOWN: Final = 100
"""STOREs of a shard from which on it is known what is usual."""
_LATE: Final = 0.05
_STAMP: Final = struct.Struct(">d")


class EarlyAppender(Appender):
    """An appender whose first wave is followed by a second one early."""

    __slots__ = ()

    def on_timeout(self, now: Micros) -> None:
        """As of an appender, but for the early wave."""
        silent = self.unanswered
        super().on_timeout(now)
        for shard in silent if self.wave == 2 else ():
            self.context.store_timeouts.note(shard, now - self._sent_at, now)

    def _choose(self, now: Micros) -> tuple[ShardId, ...] | None:
        owner = cast(EpochSequencer, self.owner)
        available, silent = self.context.availability.is_available, frozenset(self.missing)
        source = owner._copyset_source()
        kept = [shard for shard in self.copyset if shard not in silent]
        early = source.replace(kept, lambda shard: shard not in silent and available(shard)) if self._hurried else None
        return early or super()._choose(now)

    def _send(self, copyset: tuple[ShardId, ...], body: bytes, length: int, crc: int, now: Micros) -> None:
        super()._send(copyset, body, length, crc, now)
        recent = self.context.store_timeouts.recent() if self.wave == 1 else {}
        counts = [recent[shard] for shard in copyset if sum(recent.get(shard, ())) >= _KNOWN]
        if counts:
            self._hurried = True  # nobody is avoided because the wave took so long
            self._arm(min(self.deadline, now + max(longer_than(each, _LATE) for each in counts)))


@contextmanager
def _appenders(of_type: type[Appender]) -> Iterator[None]:
    before = EpochSequencer._appender_type
    EpochSequencer._appender_type = of_type
    try:
        yield
    finally:
        EpochSequencer._appender_type = before


# What goes wrong


def _others(cluster: SimCluster) -> list[NodeId]:
    """The nodes that do not sequence the log: nothing helps where the sequencer itself is away."""
    roots = {node: machine.root for node, machine in cluster.machines.nodes.items()}
    epochs = {
        node: root.sequencer.sequencers[_LOG].epoch
        for node, root in roots.items()
        if root is not None and root.sequencer is not None and _LOG in root.sequencer.sequencers
    }
    latest = max(epochs, key=lambda node: epochs[node])
    return [node for node in roots if node != latest]


async def _nothing(cluster: SimCluster, rng: random.Random) -> None:
    """All is well: a sync takes 0.1 to 2 ms, a message up to 0.5 ms."""


async def _hiccups(cluster: SimCluster, rng: random.Random) -> None:
    """Twice a second the disk of some node needs 20 to 80 ms for a sync, for as long."""
    while True:
        await asyncio.sleep(rng.expovariate(2.0))
        settings = cluster.node(rng.randrange(len(cluster.machines.nodes))).disk_settings
        before = settings.sync_min, settings.sync_max
        stall = rng.randint(20 * MILLISECOND, 80 * MILLISECOND)
        settings.sync_min = settings.sync_max = stall
        await asyncio.sleep(stall / 1e6)
        settings.sync_min, settings.sync_max = before


async def _far(cluster: SimCluster, rng: random.Random) -> None:
    """From the beginning on, one node is 50 ms away from the others and back."""
    distances, far = cluster.machines.network.distances, rng.choice(_others(cluster))
    for node in cluster.machines.nodes:
        if node != far:
            distances[far, node] = distances[node, far] = 25 * MILLISECOND


async def _pauses(cluster: SimCluster, rng: random.Random) -> None:
    """Every two seconds a node that does not sequence the log stalls for half a second."""
    while True:
        await asyncio.sleep(1.5)
        node = rng.choice(_others(cluster))
        await cluster.pause_node(node)
        await asyncio.sleep(0.5)
        await cluster.resume_node(node)


TROUBLES: Final[dict[str, Callable[[SimCluster, random.Random], Coroutine[Any, Any, None]]]] = {
    "none": _nothing,
    "disks hiccup": _hiccups,
    "a node 50 ms away": _far,
    "nodes pause for 0.5 s": _pauses,
}


@dataclass(slots=True)
class ModeLatencies:
    """ModeLatencies in milliseconds, and what sequencers counted."""

    appends: list[float] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    """From the append to the reader that follows the log."""
    counted: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppendLoad:
    """The cluster and what is appended."""

    nodes: int
    replicate: str
    rate: float
    seconds: float


async def _append(client: Client, load: AppendLoad, rng: random.Random, appends: list[float]) -> None:
    loop = asyncio.get_running_loop()

    async def one() -> None:
        began = loop.time()
        await client.append(_LOG, _STAMP.pack(began))
        appends.append((loop.time() - began) * 1e3)

    end = loop.time() + load.seconds
    async with asyncio.TaskGroup() as group:
        while loop.time() < end:
            group.create_task(one())
            await asyncio.sleep(rng.expovariate(load.rate))


async def _follow(client: Client, start: LSN, reads: list[float]) -> None:
    loop = asyncio.get_running_loop()
    async with client.reader(_LOG, start=start) as reader:
        while True:
            batch = await reader.read()
            reads += [
                (loop.time() - _STAMP.unpack(payload)[0]) * 1e3 for payload in batch.payloads if payload is not None
            ]


def measure(mode: str, trouble: str, load: AppendLoad, seed: int, found: ModeLatencies) -> None:
    """One run; adds to what was found."""

    async def application(cluster: SimCluster) -> None:
        rng = random.Random(seed)
        network = cluster.machines.network
        # what delays the client's own messages would hide the rest
        network.settings = replace(network.settings, slow_probability=0.0)
        async with cluster.client() as client, cluster.client() as other:
            for _ in range(_WARM_UP):
                tail = (await client.append(_LOG, b"warm up!")).lsn
            tasks = [
                asyncio.create_task(_follow(other, LSN(tail + 1), found.reads)),
                asyncio.create_task(TROUBLES[trouble](cluster, rng)),
            ]
            await _append(client, load, rng, found.appends)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        for node in cluster.machines.nodes.values():
            if node.root is not None and node.root.sequencer is not None:
                metrics = node.root.sequencer.context.metrics
                found.counted.update({name: getattr(metrics, name) for name in _COUNTED})

    attributes: dict[str, Any] = {"sequencer_batching": False}
    if mode == "extra copy":
        attributes["extra_copies"] = 1
    with _appenders(EarlyAppender if mode == "second wave" else Appender):
        simulate(
            application,
            seed=seed,
            nodes=load.nodes,
            logs=1,
            replicate=load.replicate,
            attributes=attributes,
            virtual_seconds=load.seconds + 300,
        )


def _points(latencies: Sequence[float]) -> str:
    ordered = sorted(latencies)
    return " ".join(
        f"{ordered[min(len(ordered) - 1, int(len(ordered) * part))]:7.1f}" for part in (0.5, 0.95, 0.99, 0.999)
    )


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=MODES)
    parser.add_argument("--troubles", nargs="*", default=list(TROUBLES), choices=list(TROUBLES))
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--replicate", default="node:2")
    parser.add_argument("--rate", type=float, default=100.0, help="appends a second")
    parser.add_argument("--seconds", type=float, default=20.0, help="of virtual time")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    load = AppendLoad(nodes=options.nodes, replicate=options.replicate, rate=options.rate, seconds=options.seconds)
    print(f"{load}, {options.seeds} seeds; milliseconds")
    parts = "".join(f"{name:>8}" for name in ("p50", "p95", "p99", "p99.9"))
    print(f"{'':<22} {'':<12} {'appends':<32} {'read':<31} {'waves':>6} {'avoided':>7}\n{'':<35}{parts}{parts}")
    for trouble in options.troubles:
        for mode in options.modes:
            found = ModeLatencies()
            for seed in range(options.seeds):
                measure(mode, trouble, load, seed, found)
            counts = f"{found.counted['waves_repeated']:>6} {found.counted['shards_graylisted']:>7}"
            print(f"{trouble:<22} {mode:<12} {_points(found.appends)} {_points(found.reads)} {counts}", flush=True)


if __name__ == "__main__":
    main()
