"""Who watches a stream is told of its owner and its segments, as they change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from logdevice_py import Namespace, SimCluster
from streams.attributes import Roll
from streams.upkeep.segments import StreamSegmentState
from streams.watching import OwnerChange, SegmentChange

COMPLETED, IN_PROGRESS = StreamSegmentState.COMPLETED, StreamSegmentState.IN_PROGRESS


def test_owners_and_segments_are_told_as_they_change(simulate: Callable[..., Any]) -> None:
    async def application(cluster: SimCluster) -> None:
        told: list[SegmentChange | OwnerChange] = []
        async with (
            cluster.client() as client,
            cluster.client() as other,
            Namespace(client) as namespace,
            Namespace(other) as watched,
        ):
            stream = await namespace.create("ledger", writers="exclusive", roll=Roll(every="3s"))

            async def follow() -> None:
                async for change in (await watched.open("ledger")).watch(every="500ms"):
                    told.append(change)

            async def until(condition: Callable[[], bool]) -> None:
                async with asyncio.timeout(60):
                    while not condition():  # noqa: ASYNC110 - virtual time
                        await asyncio.sleep(0.05)

            def states() -> list[tuple[int, StreamSegmentState | None]]:
                changes = [each for each in told if isinstance(each, SegmentChange)]
                return [(each.number, None if each.segment is None else each.segment.state) for each in changes]

            def owners() -> list[str | None]:
                return [
                    None if each.owner is None else each.owner.owner for each in told if isinstance(each, OwnerChange)
                ]

            following = asyncio.create_task(follow())
            async with stream.exclusive_writer(owner="one") as writer:
                first = (await writer.write(b"1")).position
                await until(lambda: (first.epoch, IN_PROGRESS) in states())
                await until(lambda: owners() == ["one"])
                await until(lambda: (first.epoch, COMPLETED) in states())
                second = (await writer.write(b"2")).position
                await until(lambda: (second.epoch, IN_PROGRESS) in states())
            await until(lambda: owners() == ["one", None])
            async with stream.exclusive_writer(owner="two"):
                await until(lambda: owners() == ["one", None, "two"])
            await stream.truncate(second)
            await until(lambda: (first.epoch, StreamSegmentState.TRUNCATED) in states())
            await client.trim(stream.log, first.lsn)
            last = len(states())
            await asyncio.sleep(3)
            assert len(set(states()[last:])) == len(states()[last:]), "nothing is told twice"
            await namespace.delete("ledger")
            await asyncio.wait_for(following, 60)
            assert following.exception() is None

    simulate(application, nodes=4, replicate="node:2", log_tree=True)
