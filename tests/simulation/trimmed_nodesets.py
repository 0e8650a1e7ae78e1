"""Logs whose nodesets change again and again, that are trimmed, and read by those who keep up, fall behind, and begin anew.

1. A reader gets each record that was acknowledged and not asked to be trimmed, once and in order, and nothing is told to be lost.
2. What it is told is trimmed was asked to be.
3. Nodesets of what is trimmed are left out of histories.
4. Without faults every shard of the present nodeset soon releases all of the log.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from logdevice_py import LSN, Client, Gap, GapKind, LogDeviceError, Record, SimCluster
from logdevice_py.core.ids import LogId, node_of
from logdevice_py.core.lsn import LSN_OLDEST
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from sequencer.sequencer import SequencerPhase
from tests.simulation.stream_owners import persist

CHANGES: Final = 9
LOGS: Final = 1
_NODESETS: Final = ("node:2", "node:3")
_BOUND: Final = 60.0


@dataclass
class Moved:
    """What came of a run, of one log."""

    acknowledged: dict[bytes, LSN] = field(default_factory=dict)
    trim_asked: int = 0
    changes: int = 0
    history: int = 0
    """How many nodesets the history has in the end."""
    begins: int = 0
    """With which epoch."""

    def check(self, items: list[Record | Gap], start: int) -> None:
        """Assert the rules about what a reader got from `start` on."""
        told = [item for item in items if isinstance(item, Gap)]
        for gap in told:
            assert gap.kind is not GapKind.DATALOSS, f"rule 1: {gap} is told to be lost"
            wrong = gap.kind is GapKind.TRIM and gap.hi > self.trim_asked
            assert not wrong, f"rule 2: {gap} is told to be trimmed, {LSN(self.trim_asked)} was asked"
        read = [item for item in items if isinstance(item, Record)]
        lsns = [(record.lsn, record.batch_offset) for record in read]
        assert lsns == sorted(set(lsns)), "rule 1: not once and in order"
        got, last = {record.payload for record in read}, max(lsns, default=(0, 0))[0]
        least = max(start, self.trim_asked + 1)
        missing = [lsn for payload, lsn in self.acknowledged.items() if least <= lsn <= last and payload not in got]
        assert not missing, f"rule 1: {min(missing)} was acknowledged and is not read"


async def _write(cluster: SimCluster, log: int, told: Moved, stop: asyncio.Event) -> None:
    number = 0
    async with cluster.client() as client:
        while not stop.is_set():
            number += 1
            payload = b"%d" % number
            with suppress(LogDeviceError):
                told.acknowledged[payload] = (await client.append(log, payload, timeout=20)).lsn
            await asyncio.sleep(cluster.rng.uniform(0, 0.3))


async def _change(cluster: SimCluster, path: str, told: Moved) -> None:
    """Other nodesets, one after the other."""
    async with cluster.client() as client:
        for number in range(CHANGES):
            with suppress(LogDeviceError):
                await client.set_attributes(path, {"replicate": _NODESETS[number % 2]}, timeout=30)
                told.changes += 1
            await asyncio.sleep(cluster.rng.uniform(0.5, 2))


async def _trim(cluster: SimCluster, log: int, told: Moved, stop: asyncio.Event) -> None:
    async with cluster.client() as client:
        while not stop.is_set():
            await asyncio.sleep(cluster.rng.uniform(0.3, 1.5))
            known = sorted(told.acknowledged.values())
            if known:
                lsn = known[cluster.rng.randrange(len(known) * 4 // 5, len(known))]
                told.trim_asked = max(told.trim_asked, lsn)
                with suppress(LogDeviceError):
                    await client.trim(log, lsn, timeout=20)


async def _read(cluster: SimCluster, log: int, told: Moved, stop: asyncio.Event) -> None:
    """Begin at the oldest or at some place, and read slowly or as fast as it goes."""
    rng = cluster.rng
    while not stop.is_set():
        known = sorted(told.acknowledged.values())
        start = rng.choice([LSN_OLDEST, *known[:: max(1, len(known) // 5)]])
        pause, items = rng.choice((0, 0, 0.5, 2)), []
        async with cluster.client() as client, client.reader(log, start) as reader:
            for _ in range(rng.randint(1, 20)):
                try:
                    batch = await reader.read(rng.randint(1, 20), timeout=10)
                except LogDeviceError:
                    break
                items += list(batch)
                await asyncio.sleep(pause)
        told.check(items, start)
        await asyncio.sleep(rng.uniform(0, 2))


async def trimmed_nodesets(cluster: SimCluster) -> list[Moved]:
    """All of it, and the rules."""
    logs = []
    async with cluster.client() as client:
        for number in range(LOGS):
            path = f"/moving{number}"
            with suppress(LogDeviceError):
                await client.make_log_group(path, 1, {"replicate": "node:3"}, timeout=600)
            logs.append((await persist(partial(client.get_log_group, path, timeout=600))).logs[0])
    stop, told = asyncio.Event(), [Moved() for _ in logs]
    async with asyncio.TaskGroup() as group:
        for number, log in enumerate(logs):
            for work in (_write, _trim, _read, _read):
                group.create_task(work(cluster, log, told[number], stop))
        changing = [asyncio.create_task(_change(cluster, f"/moving{number}", told[number])) for number in range(LOGS)]
        await asyncio.gather(*changing)
        stop.set()
    await cluster.calm()
    async with cluster.client() as client:
        for number, log in enumerate(logs):
            await _check_end(cluster, client, log, f"/moving{number}", told[number])
    return told


async def _check_end(cluster: SimCluster, client: Client, log: int, path: str, told: Moved) -> None:
    for attempt in range(4):
        # what was trimmed before is left out with the change after the next
        payload, replicate = b"last %d" % attempt, {"replicate": _NODESETS[attempt % 2]}
        await persist(partial(client.set_attributes, path, replicate, timeout=60))
        told.acknowledged[payload] = (await persist(partial(client.append, log, payload, timeout=60))).lsn
        await asyncio.sleep(5)
    tail = await client.tail_lsn(log, timeout=60)
    items: list[Record | Gap] = []
    async with client.reader(log, until=tail) as reader:
        while batch := await reader.read(timeout=_BOUND):
            items += list(batch)
    told.check(items, LSN_OLDEST)
    metadata = _metadata(cluster, log)
    told.history, told.begins = len(metadata.history), metadata.history[0].since
    for shard in metadata.current.shards:
        root = cluster.machines.nodes[node_of(shard)].root
        assert root is not None
        assert root.storage is not None
        state = root.storage.shards[shard].shard.find(LogId(log))
        released = None if state is None else state.last_released
        assert released is not None, f"rule 4: shard {shard} has not heard of the log"
        assert released >= tail, f"rule 4: shard {shard} has released {LSN(released)} of {LSN(tail)}"


def _metadata(cluster: SimCluster, log: int) -> EpochMetaData:
    for node in cluster.machines.nodes.values():
        if node.root is not None and node.root.sequencer is not None:
            sequencer = node.root.sequencer.sequencers.get(LogId(log))
            if sequencer is not None and sequencer.state is SequencerPhase.ACTIVE and sequencer.metadata is not None:
                return sequencer.metadata
    raise AssertionError("nobody sequences the log")
