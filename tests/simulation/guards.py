"""Guarded appends under faults: an application that writes with them, and the rules that what is read must keep.

1. Transaction ids never fall.
2. An append that was acknowledged for its predecessor has that predecessor.
3. Nothing of a lower token, or without one, lies behind a fence.
4. Nothing lies behind an end.
5. What was acknowledged is there, once; what certainly is not applied is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from logdevice_py import (
    START,
    BufferedWriter,
    Client,
    GuardError,
    LogDeviceError,
    Position,
    Receipt,
    Record,
    SimCluster,
    Status,
)

CHAIN, NUMBERS, OWNED, ENDED = 1, 2, 3, 4
"""Logs: of conditional appends, of transaction ids, with a fence, that is ended."""
EPISODES = 30


@dataclass
class Told:
    """What the application was told."""

    acknowledged: dict[bytes, tuple[int, Position]] = field(default_factory=dict)
    """By payload: log and position."""
    refused: set[bytes] = field(default_factory=set)
    """Certainly not applied."""
    expected: dict[bytes, Position] = field(default_factory=dict)
    """By payload of an acknowledged conditional append."""
    tokens: dict[bytes, int] = field(default_factory=dict)
    fences: list[tuple[int, Position]] = field(default_factory=list)
    """Tokens of fences that were raised, with where."""
    end: Position | None = None
    outcomes: dict[str, int] = field(default_factory=dict)

    def count(self, name: str) -> None:
        self.outcomes[name] = self.outcomes.get(name, 0) + 1


async def _outcome(told: Told, payload: bytes, log: int, append: Any) -> Receipt | LogDeviceError:
    try:
        receipt: Receipt = await append
    except LogDeviceError as error:
        told.count(error.status.name + (", unknown" if error.maybe_applied else ""))
        if not error.maybe_applied:
            told.refused.add(payload)
        return error
    told.count("OK")
    told.acknowledged[payload] = log, receipt.position
    return receipt


@asynccontextmanager
async def _writer_of(client: Client) -> AsyncIterator[BufferedWriter]:
    writer = client.buffered_writer(timeout="1min")
    yield writer
    with suppress(LogDeviceError):  # records that failed were told of one by one
        await writer.close()


async def _contend(cluster: SimCluster, told: Told, name: str) -> None:
    """Appends behind what it takes for the last record."""
    async with cluster.client() as client, _writer_of(client) as writer:
        last = START
        for number in range(EPISODES):
            payload = f"{name} {number}".encode()
            buffered = cluster.rng.random() < 0.3
            append = (writer if buffered else client).append(CHAIN, payload, expect=last)
            outcome = await _outcome(told, payload, CHAIN, append)
            if isinstance(outcome, Receipt):
                told.expected[payload] = last
                last = outcome.position
            elif isinstance(outcome, GuardError) and outcome.position is not None:
                last = outcome.position  # of a record that may not be stored yet
                if cluster.rng.random() < 0.7:
                    continue
            await asyncio.sleep(cluster.rng.uniform(0, 0.15))


async def _disturb(cluster: SimCluster, told: Told, name: str) -> None:
    """Appends between those of others, and does not wait."""
    async with cluster.client() as client, asyncio.TaskGroup() as group:
        for number in range(EPISODES):
            payload = f"{name} {number}".encode()
            append = client.append(CHAIN, payload, timeout=5)
            group.create_task(_outcome(told, payload, CHAIN, append))
            await asyncio.sleep(cluster.rng.uniform(0, 0.3))


async def _count(cluster: SimCluster, told: Told, name: str, numbers: Any) -> None:
    """Appends transaction ids that rise over all writers, some of them too late."""
    async with cluster.client() as client, _writer_of(client) as writer:
        for number in range(EPISODES):
            txid = next(numbers)
            payload = f"{txid} {name} {number}".encode()
            if cluster.rng.random() < 0.2:
                await asyncio.sleep(cluster.rng.uniform(0, 0.3))
            append = (writer if cluster.rng.random() < 0.5 else client).append(NUMBERS, payload, txid=txid)
            await _outcome(told, payload, NUMBERS, append)
            await asyncio.sleep(cluster.rng.uniform(0, 0.1))


async def _own(cluster: SimCluster, told: Told, name: str, tokens: Any) -> None:
    """Takes the log over now and then, and appends until somebody else has it; sometimes as if it had never heard of fences."""
    async with cluster.client() as client:
        token: int | None = None
        for number in range(EPISODES):
            if token is None:
                wanted = next(tokens)
                try:
                    receipt = await client.raise_fence(OWNED, wanted)
                    told.fences.append((wanted, receipt.position))
                    token = wanted
                except LogDeviceError as error:
                    told.count(f"raise {error.status.name}")
            plain = cluster.rng.random() < 0.2
            payload = f"{name} {number}".encode()
            told.tokens[payload] = 0 if plain else token or 0
            outcome = await _outcome(
                told, payload, OWNED, client.append(OWNED, payload, fence=None if plain else token)
            )
            if isinstance(outcome, LogDeviceError) and outcome.status is Status.FENCED and not plain:
                token = None
            await asyncio.sleep(cluster.rng.uniform(0, 0.15))


async def _end(cluster: SimCluster, told: Told, name: str, *, ends: bool) -> None:
    """Appends; one of them ends the log in the middle."""
    async with cluster.client() as client:
        for number in range(EPISODES):
            if ends and number == EPISODES // 2:
                while told.end is None:
                    try:
                        told.end = (await client.mark_end(ENDED)).position
                    except LogDeviceError as error:
                        if error.status is Status.ENDED:
                            told.end = getattr(error, "position", None)
                        await asyncio.sleep(0.1)
            payload = f"{name} {number}".encode()
            await _outcome(told, payload, ENDED, client.append(ENDED, payload))
            await asyncio.sleep(cluster.rng.uniform(0, 0.1))


def _rising(cluster: SimCluster) -> Any:
    number = 0
    while True:
        number += cluster.rng.randint(1, 3)
        yield number


async def guarded_appends(cluster: SimCluster) -> Told:
    """All of it, and the rules."""
    told, numbers, tokens = Told(), _rising(cluster), _rising(cluster)
    async with asyncio.TaskGroup() as group:
        group.create_task(_disturb(cluster, told, "between"))
        for name in ("a", "b", "c"):
            group.create_task(_contend(cluster, told, f"chain {name}"))
            group.create_task(_count(cluster, told, name, numbers))
            group.create_task(_own(cluster, told, f"owned {name}", tokens))
            group.create_task(_end(cluster, told, f"ended {name}", ends=name == "b"))
    await cluster.calm()
    read = {log: await _read(cluster, log) for log in (CHAIN, NUMBERS, OWNED, ENDED)}
    check(told, read)
    return told


async def _read(cluster: SimCluster, log: int) -> list[Record]:
    async with cluster.client() as client:
        records = []
        async with client.reader(log, until=await client.tail_lsn(log, timeout=60)) as reader:
            async for item in reader:
                if isinstance(item, Record):
                    records.append(item)
        return records


def check(told: Told, read: dict[int, list[Record]]) -> None:
    """Assert the rules."""
    places = {log: {record.payload: position_of(record) for record in records} for log, records in read.items()}
    for log, records in read.items():
        assert len(places[log]) == len(records), f"rule 5: log {log} holds a record twice"
    for payload, (log, position) in told.acknowledged.items():
        assert places[log].get(payload) == position, f"rule 5: {payload!r} of log {log} at {position} is lost"
    for records in read.values():
        found = told.refused.intersection(record.payload for record in records)
        assert not found, f"rule 5: {found} are there and were refused"
    ids = [int(record.payload.split()[0]) for record in read[NUMBERS] if record.payload[:1].isdigit()]
    assert ids == sorted(ids), "rule 1: transaction ids fall"
    before = START
    for record in read[CHAIN]:
        expected = told.expected.get(record.payload)
        assert expected in (None, before), f"rule 2: {record.payload!r} follows {before}, not {expected}"
        before = position_of(record)
    for record in read[OWNED]:
        fence = max((token for token, position in told.fences if position < position_of(record)), default=0)
        assert told.tokens.get(record.payload, 0) >= fence, f"rule 3: {record.payload!r} lies behind fence {fence}"
    end = told.end
    assert end is not None
    for record in read[ENDED]:
        assert position_of(record) <= end, f"rule 4: {record.payload!r} lies behind the end {end}"


def position_of(record: Record) -> Position:
    return Position(record.lsn, record.batch_offset)
