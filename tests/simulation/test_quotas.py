"""Quotas in whole clusters: what a flood leaves to others, and that nothing is lost or changes places because of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from client.client import Client
from logdevice_py import LogDeviceError, Record, SimCluster, SimulationFailed
from logdevice_py.config.quotas import PrincipalQuota
from logdevice_py.core.lsn import LSN
from tests.simulation import deliberate_sequencer  # noqa: F401 (plants)
from tests.simulation.deliberate_fault import FAULTS

Simulate = Callable[..., Any]
RATE = 20_000
PAYLOAD = b"x" * 500
SECONDS = 10
PACE = 0.03
"""Of the neighbour: five sixths of its quota."""


async def flood(client: Client, log: int, tenfold: int = 10) -> int:
    """Append ten times the quota for a while, as a BufferedWriter does; returns what was taken, in bytes."""
    loop = asyncio.get_running_loop()
    end, taken = loop.time() + SECONDS, 0
    writer = client.buffered_writer(memory_bytes_max=200_000, size_trigger_bytes=2_000, timeout="1s")
    futures = []
    while loop.time() < end:
        for _ in range(tenfold):
            with contextlib.suppress(LogDeviceError):  # NOBUFS: so much waits already
                futures.append(writer.append(log, PAYLOAD))
        await asyncio.sleep(len(PAYLOAD) / RATE)
    writer.abandon()
    for outcome in await asyncio.gather(*futures, return_exceptions=True):
        taken += len(PAYLOAD) if not isinstance(outcome, BaseException) else 0
    return taken


async def pace(client: Client, log: int) -> float:
    """Append steadily for a while; returns how much of it was acknowledged."""
    loop = asyncio.get_running_loop()
    begin, appends = loop.time(), []
    while loop.time() < begin + SECONDS:
        appends.append(asyncio.ensure_future(client.append(log, PAYLOAD, timeout=0.5)))
        await asyncio.sleep(PACE)
    outcomes = await asyncio.gather(*appends, return_exceptions=True)
    return sum(not isinstance(each, BaseException) for each in outcomes) / len(outcomes)


async def neighbours_on_two_logs(cluster: SimCluster) -> None:
    async with cluster.client() as flooder, cluster.client() as neighbour:
        await asyncio.gather(flooder.append(1, b"first"), neighbour.append(2, b"first"))
        await asyncio.sleep(2)
        taken, share = await asyncio.gather(flood(flooder, 1), pace(neighbour, 2))
    assert 0.7 * RATE * SECONDS <= taken <= 1.05 * RATE * SECONDS + RATE
    assert share >= 0.95


def test_a_flood_of_one_log_leaves_its_neighbour_its_rate(simulate: Simulate) -> None:
    simulate(neighbours_on_two_logs, attributes={"append_bytes_per_s": f"{RATE}B"}, virtual_seconds=60)


def test_a_quota_that_is_not_charged_is_noticed_by_what_was_taken(simulate: Simulate) -> None:
    with FAULTS["quota_not_charged"].planted(), pytest.raises(SimulationFailed):
        simulate(neighbours_on_two_logs, attributes={"append_bytes_per_s": f"{RATE}B"}, virtual_seconds=60)


def test_a_flood_by_one_principal_leaves_others_their_rate_in_the_same_log(simulate: Simulate) -> None:
    async def application(cluster: SimCluster) -> None:
        machines = cluster.machines
        quotas = {"*": PrincipalQuota(append_bytes_per_s=RATE)}
        machines.config = replace(machines.config, version=machines.config.version + 1, quotas=quotas)
        for node in machines.nodes.values():
            node.take_config(machines.config)
        async with cluster.client(principal="flooder") as flooder, cluster.client(principal="steady") as steady:
            await asyncio.gather(flooder.append(1, b"first"), steady.append(1, b"first"))
            await asyncio.sleep(2)
            taken, share = await asyncio.gather(flood(flooder, 1), pace(steady, 1))
        assert 0.7 * RATE * SECONDS <= taken <= 1.05 * RATE * SECONDS + RATE
        assert share >= 0.95

    simulate(application, permissions=True, attributes={"permit": "append:anonymous"}, virtual_seconds=60)


def test_look_ups_over_a_quota_are_answered_later_and_others_at_once(simulate: Simulate) -> None:
    """The flooder asks 20 times at once, again and again."""

    async def application(cluster: SimCluster) -> None:
        machines, loop = cluster.machines, asyncio.get_running_loop()
        quotas = {"flooder": PrincipalQuota(look_ups_per_s=5)}
        machines.config = replace(machines.config, version=machines.config.version + 1, quotas=quotas)
        for node in machines.nodes.values():
            node.take_config(machines.config)
        async with cluster.client(principal="flooder") as flooder, cluster.client(principal="steady") as steady:
            receipt = await steady.append(1, b"first")
            begun = loop.time()
            flooding = [asyncio.ensure_future(flooder.find_time(1, 1, timeout=60)) for _ in range(20)]
            for _ in range(10):
                asked = loop.time()
                assert await steady.find_time(1, 1) == receipt.lsn
                assert loop.time() - asked < 1
            assert await asyncio.gather(*flooding) == [receipt.lsn] * 20
            assert loop.time() - begun >= 20 / 5 - 1, "each asks enough nodes, each of which admits five in a second"

    simulate(application, permissions=True, attributes={"permit": "append:steady, read:anonymous"}, virtual_seconds=120)


@pytest.mark.parametrize("seed", range(2))
def test_under_faults_a_log_with_a_quota_holds_each_record_once_and_in_order(simulate: Simulate, seed: int) -> None:
    async def application(cluster: SimCluster) -> list[bytes]:
        async with cluster.client() as client:
            async with client.buffered_writer(timeout="10min", size_trigger_bytes=300) as writer:
                for number in range(300):
                    writer.append(1, b"%030d" % number)
                    if number % 30 == 0:
                        await asyncio.sleep(0.5)
            await cluster.calm()
            async with client.reader(1, start=LSN.OLDEST, until=await client.tail_lsn(1)) as reader:
                return [item.payload async for item in reader if isinstance(item, Record)]

    attributes = {"append_bytes_per_s": "800B", "read_bytes_per_s": "4000B"}
    found = simulate(application, attributes=attributes, faults="all", seed=seed, nodes=5, virtual_seconds=600)
    assert found == [b"%030d" % number for number in range(300)]
