"""Streams under the faults of the simulator: owners that are paused for longer than their leases, names that are fought for, and rules left out.

1. A write that an owner begins after somebody else owned the stream is refused with FENCED.
2. A token has one owner, and in the stream tokens never fall.
3. What was acknowledged is read, once.
4. Who owns a stream has all in front of it that was acknowledged to owners before.
5. A name means one stream at a time, and no log two streams.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgpack
import pytest

from client.replica.commands import StateVersion
from logdevice_py import LogDeviceError, SimCluster, SimulationFailed
from streams.commands import AcquireStream, CreateStream
from streams.namespace import Namespace
from streams.state import NamespaceState, StreamLease, StreamPhase
from streams.stream import Stream
from streams.writers import ExclusiveWriter

OWNERS = 2
ROUNDS = 3
WRITES = 8
SEEDS = range(3)
NAMES = ("a", "b", "team/c")
CLUSTER: dict[str, Any] = {"nodes": 5, "replicate": "node:3", "log_tree": True, "virtual_seconds": 3000}


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
                    assert writer._renewing is not None
                    writer._renewing.cancel()  # the process is paused
                    await asyncio.sleep(8)
                await write(writer, b"%d %d %d %d" % (writer.token, name, round_, number), told)
                await asyncio.sleep(cluster.rng.random() * 0.2)
            writer.abandon()
            await writer._release()
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
        stream = await persist(lambda: namespace.create("ledger", writers="exclusive"))
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


def test_one_owner_at_a_time_whatever_breaks(simulate: Callable[..., Any]) -> None:
    runs = [simulate(owners, seed=seed, faults="all", **CLUSTER) for seed in SEEDS]
    outcomes = sum((told.outcomes for told in runs), Counter())
    assert outcomes["OK"] > 60, outcomes
    assert outcomes["FENCED"] > 5, outcomes
    assert sum(told.late for told in runs) > 5
    assert sum(told.token for told in runs) > len(runs) * OWNERS


def _without_fence(patch: pytest.MonkeyPatch) -> None:
    """An owner does not raise the fence of the log."""

    async def nothing(self: ExclusiveWriter) -> None:
        pass

    patch.setattr(ExclusiveWriter, "_raise_fence", nothing)


def _same_token(patch: pytest.MonkeyPatch) -> None:
    """The next owner gets the token of the one before."""

    def acquire(self: NamespaceState, wanted: AcquireStream) -> bytes:
        entry = self._live(wanted.number)
        entry.last_token = 1
        entry.lease = StreamLease(wanted.owner, 1, wanted.lease_us)
        packed: bytes = msgpack.packb(1)
        return packed

    patch.setattr(NamespaceState, "_acquire", acquire)


def _without_token(patch: pytest.MonkeyPatch) -> None:
    """An owner shows the greatest token that anybody has, not its own."""

    def shown(self: ExclusiveWriter) -> int | None:
        entry = self._stream.namespace.state.streams.get(self._stream.number)
        return None if entry is None else entry.last_token

    patch.setattr(ExclusiveWriter, "_fence", property(shown, lambda self, value: None), raising=False)


FAULTS: Sequence[tuple[str, Callable[[pytest.MonkeyPatch], None], str]] = [
    ("the fence is not raised", _without_fence, "rule [12]"),
    ("a token is given again", _same_token, "rule 2"),
    ("an owner shows another's token", _without_token, "rule [12]"),
]


@pytest.mark.parametrize(("put", "rule"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_each_rule_of_owners_that_is_left_out_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, put: Callable[[pytest.MonkeyPatch], None], rule: str
) -> None:
    put(monkeypatch)

    def hunt() -> None:
        for seed in range(10):
            simulate(owners, seed=seed, **CLUSTER)

    with pytest.raises((SimulationFailed, AssertionError), match=rule):
        hunt()


async def names(cluster: SimCluster) -> Counter[str]:
    """Clients that create, rename and delete streams of few names, and what is there in the end."""
    outcomes: Counter[str] = Counter()
    states: dict[StateVersion, bytes] = {}
    logs: dict[int, int] = {}
    """The number of the stream that has a log."""

    def look(namespace: Namespace) -> None:
        replica = namespace._replica
        encoded = replica.state.encode()
        assert states.setdefault(replica.version, encoded) == encoded, "rule 5: two states of one version"
        for entry in replica.state.streams.values():
            if entry.log:
                assert logs.setdefault(entry.log, entry.number) == entry.number, "rule 5: a log of two streams"

    async def work(name: int) -> None:
        async with cluster.client() as client:
            namespace = Namespace(client)
            await persist(namespace.start)
            for _ in range(8):
                chosen = cluster.rng.choice(NAMES)
                try:
                    match cluster.rng.choice(("create", "create", "die", "rename", "delete", "write")):
                        case "create":
                            await namespace.create(chosen, timeout=10)
                        case "die":
                            await namespace.propose(CreateStream(chosen), 10)
                        case "rename":
                            await namespace.rename(chosen, cluster.rng.choice(NAMES), timeout=10)
                        case "delete":
                            await namespace.delete(chosen, timeout=10)
                        case "write":
                            stream = await namespace.open(chosen, timeout=10)
                            async with stream.writer() as writer:
                                await asyncio.wait_for(writer.write(b"%d" % stream.number), 20)
                    outcomes["OK"] += 1
                except (LogDeviceError, TimeoutError) as error:
                    outcomes[error.status.name if isinstance(error, LogDeviceError) else "TIMEOUT"] += 1
                look(namespace)
            await namespace.close()

    await asyncio.gather(*map(work, range(3)))
    await cluster.calm()
    async with cluster.client() as client, Namespace(client) as namespace:
        await namespace.deletions_finished()
        look(namespace)
        assert namespace.state.deleting() == []
        live = [entry for entry in namespace.state.below("") if entry.phase is StreamPhase.LIVE]
        made = {entry.path for entry in await client.list_logs("/streams/.data")} if logs else set()
        assert {f"/streams/.data/s{entry.number}" for entry in live} <= made
        there = {f"/streams/.data/s{number}" for number in namespace.state.streams}
        assert made <= there, f"rule 5: {made - there} belong to no stream"
        for entry in list(namespace.state.below("")):
            stream = await namespace.open(entry.name)
            async with stream.reader(until="tail") as reader:
                async for record in reader:
                    assert record.payload == b"%d" % entry.number, "rule 5: another stream's record"
    return outcomes


@pytest.mark.parametrize("seed", SEEDS)
def test_a_name_means_one_stream_whatever_breaks(simulate: Callable[..., Any], seed: int) -> None:
    outcomes = simulate(names, seed=seed, faults="all", **CLUSTER)
    assert outcomes["OK"] >= 6, outcomes
