"""How far a log can be read by what storage nodes know, without its sequencer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from logdevice_py import LSN, Client, LogDeviceError, Namespace, SimCluster
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import Status
from sequencer.sequencer import SequencerPhase
from server.simulation.machines import SimNodeState

LOG = 1


def epochs(cluster: SimCluster) -> int:
    """The greatest epoch that a node has of the log which runs; 0: none sequences it."""
    roots = [node.root for node in cluster.machines.nodes.values() if node.state is SimNodeState.RUNNING]
    found = [root.sequencer.sequencers.get(LogId(LOG)) for root in roots if root is not None and root.sequencer]
    active = (each for each in found if each is not None and each.state is SequencerPhase.ACTIVE)
    return max((sequencer.epoch for sequencer in active), default=0)


async def settled(client: Client, lsn: LSN) -> None:
    """Until an f-majority knows that everything up to there can be read."""
    while await client.known_tail(LOG) < lsn:  # noqa: ASYNC110 - virtual time
        await asyncio.sleep(0.01)


def test_storage_nodes_tell_without_a_sequencer_and_start_none(simulate: Callable[..., Any]) -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            assert await client.known_tail(LOG) == 0, "a log that was never written"
            for number in range(5):
                last = await client.append(LOG, b"%d" % number)
            await settled(client, last.lsn)
            assert await client.known_tail(LOG) == last.lsn
            assert await client.known_tail(LOG, source="any") <= last.lsn
            sequenced = (await client.sequencer(LOG)).node
            before = epochs(cluster)
            await cluster.stop_node(sequenced)
            left = epochs(cluster)
            await asyncio.sleep(5)
            for source in ("quorum", "any"):
                assert 0 < await client.known_tail(LOG, source=source) <= last.lsn
            assert await client.known_tail(LOG) == last.lsn
            assert epochs(cluster) == left, "somebody was made to sequence the log"
            async with client.reader(LOG, until=last.lsn) as reader:
                assert sum([1 async for _ in reader]) >= 5
            assert await client.tail_lsn(LOG) > last.lsn
            assert epochs(cluster) > before, "the sequencer's own word takes one"

    simulate(application, nodes=4, replicate="node:2")


def test_who_is_cut_off_from_too_many_is_not_told(simulate: Callable[..., Any]) -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            receipt = await client.append(LOG, b"one")
            await settled(client, receipt.lsn)
            for node in (0, 1, 2):
                await cluster.pause_node(node)
            with pytest.raises(LogDeviceError) as raised:
                await client.known_tail(LOG, timeout=3)
            assert raised.value.status in (Status.PARTIAL, Status.TIMEDOUT)
            for node in (0, 1, 2):
                await cluster.resume_node(node)
            with pytest.raises(LogDeviceError, match="'quorum' or 'any'") as wrong:
                await client.known_tail(LOG, source="sequencer")
            assert wrong.value.status is Status.INVALID_PARAM

    simulate(application, nodes=4, replicate="node:2")


def test_a_stream_is_asked_for_what_is_confirmed(simulate: Callable[..., Any]) -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client, Namespace(client) as namespace:
            stream = await namespace.create("orders")
            async with stream.writer() as writer:
                receipt = await writer.write(b"one")
            assert await stream.last_confirmed() == receipt.lsn
            while await stream.last_confirmed("quorum") < receipt.lsn:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(0.01)
            assert await stream.last_confirmed("quorum") == receipt.lsn
            assert 0 < await stream.last_confirmed("any") <= receipt.lsn
            with pytest.raises(LogDeviceError, match="'sequencer', 'quorum', 'any'"):
                await stream.last_confirmed("nobody")

    simulate(application, nodes=4, replicate="node:2", log_tree=True)
