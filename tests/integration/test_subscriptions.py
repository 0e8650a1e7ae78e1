"""Subscriptions on a cluster of real processes: what one process commits another one reads, and no restart forgets it."""

from __future__ import annotations

import asyncio

import pytest

from client.guards import Position
from client.replica.commands import NOTHING
from logdevice_py import LSN, LocalCluster, LogDeviceError, Status
from streams.subscriptions.subscriptions import Subscriptions

COMMANDS, SNAPSHOTS = 1, 2


async def test_positions_survive_and_are_read_by_others() -> None:
    async with LocalCluster(nodes=3, logs=2) as cluster:
        async with cluster.client() as client, Subscriptions(client, COMMANDS, SNAPSHOTS, snapshot_every=5) as mine:
            first = await mine.commit("billing", "orders", Position(LSN(5), 1), expect=NOTHING)
            async with cluster.client() as another, Subscriptions(another, COMMANDS, SNAPSHOTS) as others:
                found = await others.get("billing", "orders")
                assert found is not None
                assert (found.position, found.version, found.commits) == (Position(LSN(5), 1), first, 1)
                assert await others.get("billing", "clicks") is None
                await others.commit("billing", "orders", Position(LSN(6), 0), expect=first)
            with pytest.raises(LogDeviceError, match="e0n6\\+0") as raised:
                await mine.commit("billing", "orders", Position(LSN(7), 0), expect=first)
            assert (raised.value.status, raised.value.maybe_applied) == (Status.VERSION_MISMATCH, False)
            with pytest.raises(LogDeviceError, match="reset=True") as raised:
                await mine.commit("billing", "orders", Position(LSN(2), 0))
            assert raised.value.status is Status.STALE
            for lsn in range(10, 40):
                await mine.commit("billing", "orders", Position(LSN(lsn), 0))
            await asyncio.gather(*(mine.commit("audit", f"s{n}", Position(LSN(1), 0)) for n in range(300)))
        for node in (0, 1, 2):
            await cluster.stop_node(node)
            await cluster.start_node(node)
        async with cluster.client() as client, Subscriptions(client, COMMANDS, SNAPSHOTS) as again:
            entries = await again.entries("billing")
            assert [(entry.stream, entry.position) for entry in entries] == [("orders", Position(LSN(39), 0))]
            assert len(await again.entries()) == 301
            assert [entry.subscription for entry in await again.entries(stream="s7")] == ["audit"]
            await again.delete("audit", "s7")
            await again.delete("audit")
            assert len(await again.entries()) == 1
            with pytest.raises(LogDeviceError) as raised:
                await again.delete("audit")
            assert raised.value.status is Status.NOTFOUND


async def test_arguments_are_looked_at_before_anything_is_proposed() -> None:
    async with LocalCluster(nodes=1, logs=2) as cluster, cluster.client() as client:
        subscriptions = Subscriptions(client, COMMANDS, SNAPSHOTS)
        with pytest.raises(LogDeviceError) as raised:
            await subscriptions.commit("billing", "orders", Position(LSN(5), 1))
        assert raised.value.status is Status.SHUTDOWN
        async with subscriptions:
            for arguments in (
                ("", "orders", Position(LSN(5), 1)),
                ("billing", "x" * 256, Position(LSN(5), 1)),
                ("billing", 7, Position(LSN(5), 1)),
                ("billing", "\ud800", Position(LSN(5), 1)),
                ("billing", "orders", 5),
                ("billing", "orders", Position(LSN.MAX, 1)),
                ("billing", "orders", Position(LSN(5), -1)),
            ):
                with pytest.raises(LogDeviceError) as raised:
                    await subscriptions.commit(*arguments)
                assert raised.value.status is Status.INVALID_PARAM
            for wrong in ({"expect": 5}, {"token": -1}, {"token": True}, {"reset": 1}):
                with pytest.raises(LogDeviceError) as raised:
                    await subscriptions.commit("billing", "orders", Position(LSN(5), 1), **wrong)
                assert raised.value.status is Status.INVALID_PARAM
            assert subscriptions.queue.operations == 0
