"""Segments under faults: an application that writes to logs that roll, and the rules that segments must keep.

1. A segment holds what a reader gets of its epoch: first and last LSN, entries, records, bytes at least of the payloads, transaction ids.
2. Every record lies in a segment, and no segment is empty.
3. A roll adds no nodeset: neighbours in the history of a log differ.
4. A log to which nobody appends keeps the epoch that it has.
5. A client that has listed segments before, again and again, and remembers them, is told the same as one that never has, also when some are trimmed.
6. A transaction id is found where the first record is that has it or a greater one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from client.look_up.segments import LogSegment, SegmentState
from logdevice_py import LSN, Client, LogDeviceError, Record, SimCluster
from logdevice_py.core.ids import LogId
from sequencer.sequencer import Sequencer

EPISODES: Final = 40
LOGS: Final = 3


@dataclass
class Rolled:
    """What came of a run."""

    segments: dict[int, list[LogSegment]] = field(default_factory=dict)
    """By log."""


async def _append(cluster: SimCluster, log: int, name: str, numbers: Iterator[int] | None) -> None:
    """Appends in bursts, so that what an epoch leaves behind has holes."""

    async def one(client: Client, payload: bytes, txid: int | None) -> None:
        with suppress(LogDeviceError):
            await client.append(log, payload, txid=txid, timeout=20)

    async with cluster.client() as client, asyncio.TaskGroup() as group:
        for burst in range(EPISODES):
            for number in range(cluster.rng.randint(1, 6)):
                payload = f"{name} {burst}.{number} ".encode() + bytes(cluster.rng.randint(0, 200))
                group.create_task(one(client, payload, None if numbers is None else next(numbers)))
                await asyncio.sleep(cluster.rng.choice((0, 0.001, 0.003)))
            await asyncio.sleep(cluster.rng.uniform(0, 0.4))


async def _list_again_and_again(cluster: SimCluster, client: Client, logs: list[int]) -> None:
    while True:
        with suppress(LogDeviceError):
            await client.segments(cluster.rng.choice(logs), timeout=20)
        await asyncio.sleep(cluster.rng.uniform(0, 1))


async def _check_remembered(cluster: SimCluster, client: Client, log: int, records: list[Record]) -> None:
    """What a client that listed the segments before is told, before and after a part of them is trimmed."""
    for trimmed in (None, records[len(records) // 3].lsn):
        if trimmed is not None:
            await client.trim(log, trimmed, timeout=60)
        async with cluster.client() as fresh:
            known, told = await client.segments(log, timeout=60), await fresh.segments(log, timeout=60)
        assert known == told, f"rule 5: {known} are remembered, {told} are told"
        ids = {int.from_bytes(each.key, "big"): each.lsn for each in reversed(records) if each.key is not None}
        kept = {txid: lsn for txid, lsn in ids.items() if lsn > (trimmed or 0)}
        for txid in sorted(ids)[:: max(1, len(ids) // 10)]:
            expected = min((lsn for each, lsn in kept.items() if each >= txid), default=None)
            if expected is None:
                continue
            found = await client.find_transaction(log, txid, timeout=60)
            between = [each for each in records if found <= each.lsn < expected]
            assert found <= expected, f"rule 6: {txid} is looked for at {found}, and is at {expected}"
            assert not between, f"rule 6: {txid} is looked for at {found}, behind which {between[0].lsn} lies"


async def segments_under_faults(cluster: SimCluster) -> Rolled:
    """Write, wait for calm, and compare."""
    rolled = Rolled()
    async with cluster.client() as client:
        made = await client.make_log_group(
            "/rolling", LOGS, {"roll_every": "700ms", "roll_bytes": "4KiB", "sequencer_batching": False}, timeout=600
        )
        logs = list(made.logs)
    numbers = iter(range(1, 1_000_000))
    remembering = cluster.client()
    await remembering.start()
    listing = asyncio.create_task(_list_again_and_again(cluster, remembering, logs))
    async with asyncio.TaskGroup() as group:
        for log in logs:
            for name in ("a", "b"):
                group.create_task(_append(cluster, log, name, numbers if log == logs[-1] else None))
    await cluster.calm()
    listing.cancel()
    await asyncio.gather(listing, return_exceptions=True)
    async with cluster.client() as client:
        for log in logs:
            with suppress(LogDeviceError):
                await client.append(log, b"last", txid=next(numbers) if log == logs[-1] else None, timeout=60)
        await asyncio.sleep(5)
        for log in logs:
            rolled.segments[log] = await client.segments(log, timeout=60)
            records = await _read(client, log)
            check(rolled.segments[log], records)
            await _check_remembered(cluster, remembering, log, records)
        before = {log: (await client.sequencer(log, timeout=60)).epoch for log in logs}
        await asyncio.sleep(20)
        after = {log: (await client.sequencer(log, timeout=60)).epoch for log in logs}
        assert before == after, f"rule 4: epochs {before} of idle logs became {after}"
    await remembering.close()
    for node in cluster.machines.nodes.values():
        root = node.root
        if root is not None and root.sequencer is not None:
            for log in logs:
                _check_history(root.sequencer.sequencers.get(LogId(log)))
    return rolled


async def _read(client: Client, log: int) -> list[Record]:
    records = []
    async with client.reader(log, until=await client.tail_lsn(log, timeout=60)) as reader:
        async for item in reader:
            if isinstance(item, Record):
                records.append(item)
    return records


def _check_history(sequencer: Sequencer | None) -> None:
    if sequencer is not None and sequencer.metadata is not None:
        for earlier, later in pairwise(sequencer.metadata.history):
            assert not earlier.same_placement(later), f"rule 3: a roll added {later}"


def check(segments: list[LogSegment], records: list[Record]) -> None:
    """Assert the rules about what is listed and what is read."""
    by_epoch: dict[int, list[Record]] = {}
    for record in records:
        by_epoch.setdefault(LSN(record.lsn).epoch, []).append(record)
    listed = {segment.epoch: segment for segment in segments if segment.state is not SegmentState.UNKNOWN}
    unlisted = sorted(set(by_epoch) - {segment.epoch for segment in segments})
    assert not unlisted, f"rule 2: epochs {unlisted} are no segments"
    for epoch, segment in listed.items():
        there = by_epoch.get(epoch, [])
        assert there, f"rule 2: {segment} is empty"
        if segment.records is None or segment.lost:
            continue
        lsns = sorted({record.lsn for record in there})
        told = (segment.first_lsn, segment.last_lsn, segment.entries, segment.records)
        assert told == (lsns[0], lsns[-1], len(lsns), len(there)), f"rule 1: {segment} is told as {told}"
        payloads = sum(len(record.payload) for record in there)
        assert segment.bytes is not None
        assert payloads <= segment.bytes <= payloads + 60 * len(there) + 8 * len(lsns), f"rule 1: {segment}, {payloads}"
        ids = [int.from_bytes(record.key, "big") for record in there if record.key is not None]
        if ids:
            assert (segment.first_txid, segment.last_txid) == (ids[0], ids[-1]), f"rule 1: {segment} of {ids}"
