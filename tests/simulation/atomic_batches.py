"""Atomic batches under faults: an application that appends them, and the rules that what is read must keep.

1. Of each batch all records are there, behind each other at one LSN, or none is.
2. A reader that reads up to the tail, while batches are being written, never sees a part of one.
3. What was acknowledged is there, once; what certainly is not applied is not.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from logdevice_py import START, Client, GuardError, LogDeviceError, Record, SimCluster
from server.simulation.faults.attacks import FORGED

SHARED, CHAIN = 5, 6
"""Logs: of batches and other records, of batches that expect their predecessor."""
EPISODES = 25


@dataclass
class Batches:
    """What the application was told, by the name of the batch."""

    sizes: dict[str, int] = field(default_factory=dict)
    acknowledged: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    seen: list[list[Record]] = field(default_factory=list)
    """By readers, meanwhile."""


async def _write(cluster: SimCluster, told: Batches, name: str) -> None:
    async with cluster.client() as client:
        writer = client.buffered_writer(timeout="1min", size_trigger="512B")
        last = START
        for number in range(EPISODES):
            batch, size = f"{name}-{number}", cluster.rng.randint(1, 40)
            told.sizes[batch] = size
            payloads = [f"{batch} {index} ".encode() + bytes(cluster.rng.randint(0, 200)) for index in range(size)]
            expect = last if cluster.rng.random() < 0.4 else None
            log = SHARED if expect is None else CHAIN
            via = writer if cluster.rng.random() < 0.5 else client
            if expect is None and cluster.rng.random() < 0.5:
                via.append(log, f"between {batch}".encode())
            try:
                receipts = await via.append_many(log, payloads, expect=expect, atomic=True)
            except LogDeviceError as error:
                if isinstance(error, GuardError) and error.position is not None:
                    last = error.position
                if not error.maybe_applied:
                    told.refused.add(batch)
            else:
                told.acknowledged[batch] = list(zip(receipts.lsns(), receipts.batch_offsets(), strict=True))
                if expect is not None:
                    last = receipts[-1].position
            await asyncio.sleep(cluster.rng.uniform(0, 0.1))
        with suppress(LogDeviceError):
            await writer.close()


async def _look(cluster: SimCluster, told: Batches, stop: asyncio.Event) -> None:
    async with cluster.client() as client:
        while not stop.is_set():
            for log in (SHARED, CHAIN):
                with suppress(LogDeviceError):
                    told.seen.append(await _read(client, log, timeout=5))
            await asyncio.sleep(0.5)


async def _read(client: Client, log: int, timeout: float) -> list[Record]:
    records: list[Record] = []
    async with client.reader(log, until=await client.tail_lsn(log, timeout=timeout)) as reader:
        while batch := await reader.read(50, timeout=timeout):
            records += batch.records()
    return records


async def atomic_batches(cluster: SimCluster) -> Batches:
    """All of it, and the rules."""
    told, stop = Batches(), asyncio.Event()
    async with asyncio.TaskGroup() as everything:
        everything.create_task(_look(cluster, told, stop))
        async with asyncio.TaskGroup() as writers:
            for name in ("a", "b", "c"):
                writers.create_task(_write(cluster, told, name))
        stop.set()
    await cluster.calm()
    async with cluster.client() as client:
        read = [await _read(client, log, timeout=60) for log in (SHARED, CHAIN)]
    check(told, read)
    return told


def check(told: Batches, read: list[list[Record]]) -> None:
    """Assert the rules."""
    for records in told.seen:
        for batch, places in _places(records).items():
            assert len(places) == told.sizes[batch], f"rule 2: {len(places)} of {told.sizes[batch]} records of {batch}"
    places: dict[str, list[tuple[int, int]]] = {}
    for records in read:
        places.update(_places(records))
    for batch, found in places.items():
        assert len(found) == told.sizes[batch], f"rule 1: {len(found)} of {told.sizes[batch]} records of {batch}"
        (lsn, first) = found[0]
        assert found == [(lsn, first + index) for index in range(len(found))], f"rule 1: {batch} is at {found}"
    for batch, acknowledged in told.acknowledged.items():
        assert places.get(batch) == acknowledged, f"rule 3: {batch} was acknowledged at {acknowledged[0]}"
    applied = told.refused.intersection(places)
    assert not applied, f"rule 3: {applied} are there and were refused"


def _places(records: list[Record]) -> dict[str, list[tuple[int, int]]]:
    """Where the records of each batch are, in their order; a record that is there twice fails."""
    found: dict[str, list[tuple[int, int]]] = {}
    counts: Counter[bytes] = Counter()
    for record in records:
        if record.payload.startswith((b"between", FORGED)):
            continue
        batch, index, _ = record.payload.split(b" ", 2)
        counts[batch] += 1
        assert int(index) == counts[batch] - 1, f"rule 3: record {index!r} of {batch!r} is the {counts[batch]}. of it"
        found.setdefault(batch.decode(), []).append((int(record.lsn), record.batch_offset))
    return found


class ProcessesAsCluster:
    """What the application uses of a simulated cluster, of real processes."""

    def __init__(self, file: str, rng: Any) -> None:
        self._file = file
        self.rng = rng

    def client(self) -> Client:
        """Another client."""
        return Client(self._file)

    async def calm(self) -> None:
        """Nothing is broken when the application has written."""
