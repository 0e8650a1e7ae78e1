"""A shared stream that rolls, is written by several, truncated, and has its truncations taken back, under faults.

1. When truncations are taken back, all that was acknowledged is read, once.
2. What is counted is what is read.
3. Who begins to read when a truncation is known gets nothing from before it.
4. Transaction ids, which are times, never fall, whatever clocks do.
5. Nothing that was begun after the end of the stream was told is acknowledged, and nothing lies behind it.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from logdevice_py import LogDeviceError, Position, SimCluster
from streams.attributes import Roll
from streams.namespace import Namespace
from streams.stream import Stream
from tests.simulation.stream_owners import created, persist

NAME = "cut"
WRITERS = 2
WRITES = 30
CUTS = 8


@dataclass
class Truncated:
    """What writers and those who truncate were told."""

    acknowledged: dict[bytes, Position] = field(default_factory=dict)
    cuts: int = 0
    taken_back: int = 0


async def _write(cluster: SimCluster, told: Truncated, name: int) -> None:
    async with cluster.client() as client:
        namespace = Namespace(client)
        await persist(namespace.start)
        stream = await persist(lambda: namespace.open(NAME))
        writer = stream.writer()
        await writer.__aenter__()
        for number in range(WRITES):
            payload = b"%d %d" % (name, number)
            with suppress(LogDeviceError):
                told.acknowledged[payload] = (await writer.write(payload)).position
            await asyncio.sleep(cluster.rng.uniform(0, 0.4))
        writer.abandon()
        await namespace.close()


async def _cut(cluster: SimCluster, told: Truncated) -> None:
    rng = cluster.rng
    async with cluster.client() as client:
        namespace = Namespace(client)
        await persist(namespace.start)
        stream = await persist(lambda: namespace.open(NAME))
        for _ in range(CUTS):
            await asyncio.sleep(rng.uniform(0, 2))
            try:
                if rng.random() < 0.3:
                    await stream.untruncate(timeout=10)
                    told.taken_back += 1
                elif told.acknowledged:
                    position = rng.choice(sorted(told.acknowledged.values()))
                    await stream.truncate(position, timeout=10)
                    told.cuts += 1
                    least = stream.min_active
                    async with stream.reader(until=position.following) as reader:
                        while batch := await reader.read(timeout=10):
                            early = [record.position for record in batch if record.position < least]
                            assert not early, f"rule 3: {early[0]} is read, {least} is known"
            except LogDeviceError:
                pass
        await namespace.close()


async def _read(stream: Stream) -> list[tuple[Position, bytes | None, int | None]]:
    read = []
    async with stream.reader(until="tail") as reader:
        while batch := await reader.read(timeout=120):
            assert batch.losses == []
            read += [(record.position, record.payload, record.txid) for record in batch]
    return read


def check_times(txids: list[int | None]) -> None:
    """Assert the rule about transaction ids."""
    assert None not in txids, "rule 4: a record has no transaction id"
    for before, after in pairwise(txids):
        assert before is not None is not after
        assert before <= after, f"rule 4: {after} follows {before}"


async def stream_truncations(cluster: SimCluster) -> Truncated:
    """All of it, and the rules."""
    told = Truncated()
    async with cluster.client() as client:
        namespace = Namespace(client)
        await persist(namespace.start)
        roll = Roll(every=cluster.rng.choice(("500ms", "2s")), bytes=cluster.rng.choice((None, "2KiB")))
        stream = await created(namespace, NAME, roll=roll, truncated_retention="1h", timeout=30)
        async with asyncio.TaskGroup() as group:
            group.create_task(_cut(cluster, told))
            for name in range(WRITERS):
                group.create_task(_write(cluster, told, name))
        await cluster.calm()
        await persist(lambda: stream.untruncate(timeout=60))
        read = await _read(stream)
        places = {payload: position for position, payload, _ in read}
        assert len(places) == len(read), "rule 1: read twice"
        check_times([txid for _, _, txid in read])
        lost = {payload for payload, position in told.acknowledged.items() if places.get(payload) != position}
        assert not lost, f"rule 1: {lost} are acknowledged and not read"
        counted = await stream.count(timeout=120)
        assert counted == len(read), f"rule 2: {counted} records are counted, {len(read)} are read"
        await persist(lambda: stream.mark_end(timeout=60))
        writer = stream.writer()
        await writer.__aenter__()
        late = await asyncio.gather(writer.write(b"late"), return_exceptions=True)
        writer.abandon()
        assert isinstance(late[0], LogDeviceError), "rule 5: an append behind the end is acknowledged"
        assert len(await _read(stream)) == len(read), "rule 5: something lies behind the end"
        await namespace.close()
    return told
