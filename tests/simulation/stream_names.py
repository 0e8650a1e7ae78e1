"""Clients that create, rename and delete streams of few names under faults: a name means one stream at a time, and no log two streams (rule 5)."""

from __future__ import annotations

import asyncio
from collections import Counter

from client.replica.commands import StateVersion
from logdevice_py import LogDeviceError, SimCluster
from streams.commands import CreateStream
from streams.namespace import Namespace
from streams.state import StreamPhase
from tests.simulation.stream_owners import persist

NAMES = ("a", "b", "team/c")


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
