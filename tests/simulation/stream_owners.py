"""Owners of an exclusive stream who follow each other under faults, and are paused for longer than their leases.

1. A write that an owner begins after somebody else owned the stream is refused with FENCED.
2. A token has one owner, and in the stream tokens never fall.
3. What was acknowledged is read, once.
4. Who owns a stream has all in front of it that was acknowledged to owners before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from logdevice_py import LogDeviceError, SimCluster, Status
from streams.namespace import Namespace
from streams.stream import Stream
from streams.writers import ExclusiveWriter

OWNERS = 2
ROUNDS = 3
WRITES = 8


@dataclass
class Told:
    """What owners were told."""

    tokens: set[int] = field(default_factory=set)
    token: int = 0
    """The greatest with which somebody owned the stream."""
    acknowledged: list[bytes] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    late: int = 0
    """Writes that were begun when somebody else owned the stream."""


async def persist(work: Callable[[], Any]) -> Any:
    """Until it is done: what breaks is repaired."""
    while True:
        try:
            return await work()
        except LogDeviceError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(0.5)


async def created(namespace: Namespace, name: str, **options: Any) -> Stream:
    """A stream that nobody else creates: it is there as well when the answer to a try was lost."""

    async def create() -> Stream:
        try:
            return await namespace.create(name, **options)
        except LogDeviceError as error:
            if error.status is not Status.EXISTS:
                raise
            return await namespace.open(name)

    stream: Stream = await persist(create)
    return stream


async def own(cluster: SimCluster, told: Told, name: int) -> None:
    """Own the stream, write, be paused for longer than the lease, go on writing."""
    async with cluster.client() as client:
        namespace = Namespace(client)
        await persist(namespace.start)
        stream = await persist(lambda: namespace.open("ledger"))
        for round_ in range(ROUNDS):
            writer = stream.exclusive_writer(owner=f"owner-{name}", lease="2s")
            before = list(told.acknowledged)
            try:
                await writer.__aenter__()
            except LogDeviceError as error:
                told.outcomes[f"not owned: {error.status.name}"] += 1
                continue
            assert writer.token not in told.tokens, f"rule 2: token {writer.token} has two owners"
            told.tokens.add(writer.token)
            told.token = max(told.token, writer.token)
            if writer.token == told.token:
                await check_last(stream, writer, before)
            for number in range(WRITES):
                if number == WRITES // 2 and (round_ + name) % 2:
                    assert writer._lease.renewing is not None
                    writer._lease.renewing.cancel()  # the process is paused
                    await asyncio.sleep(8)
                await write(writer, b"%d %d %d %d" % (writer.token, name, round_, number), told)
                await asyncio.sleep(cluster.rng.random() * 0.2)
            writer.abandon()
            await writer._lease.release()
        await namespace.close()


async def check_last(stream: Stream, writer: ExclusiveWriter, before: list[bytes]) -> None:
    """Rule 4."""
    if not before:
        return
    assert writer.last is not None, "rule 4: the stream is empty for its owner"
    read = []
    async with stream.reader(until=writer.last.position.following) as reader:
        while batch := await reader.read():
            read += batch.payloads
    assert set(before) <= set(read), f"rule 4: {set(before) - set(read)} not in front of token {writer.token}"


async def write(writer: ExclusiveWriter, payload: bytes, told: Told) -> None:
    is_late = told.token > writer.token
    told.late += is_late
    try:
        await writer.write(payload)
        outcome = "OK"
        told.acknowledged.append(payload)
    except LogDeviceError as error:
        outcome = "AGAIN" if error.retriable else error.status.name
    told.outcomes[outcome] += 1
    assert not is_late or outcome in ("FENCED", "AGAIN"), f"rule 1: {payload!r}: {outcome}, below token {told.token}"


async def owners(cluster: SimCluster) -> Told:
    """Owners that follow each other, and what the stream holds in the end."""
    told = Told()
    async with cluster.client() as client:
        namespace = Namespace(client)
        await persist(namespace.start)
        stream = await created(namespace, "ledger", writers="exclusive")
        await asyncio.gather(*(own(cluster, told, name) for name in range(OWNERS)))
        await cluster.calm()
        read = []
        async with stream.reader(until="tail") as reader:
            while batch := await reader.read():
                assert batch.losses == []
                read += batch.payloads
        await namespace.close()
    tokens = [int(payload.split()[0]) for payload in read if payload is not None]
    assert tokens == sorted(tokens), f"rule 2: {tokens}"
    assert len(set(read)) == len(read), "rule 3: read twice"
    assert set(told.acknowledged) <= set(read), f"rule 3: lost {set(told.acknowledged) - set(read)}"
    return told
