"""What is acknowledged is read in bounded time although nothing follows it; each rule that is left out is noticed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from client.look_up import release_request
from client.read.release_lookup import ReleaseLookup
from logdevice_py import Client, Record, SimCluster, SimulationFailed
from sequencer.releases import Releases
from tests.simulation.last_records import LOGS, last_records
from tests.slow import quick

CLUSTER: dict[str, Any] = {"nodes": 4, "logs": max(LOGS), "replicate": "node:2", "virtual_seconds": 600}


@pytest.mark.parametrize("seed", quick(range(3), 1))
def test_the_last_record_is_read_whatever_breaks(simulate: Callable[..., Any], seed: int) -> None:
    told = simulate(last_records, seed=seed, faults="all", **CLUSTER)
    assert all(len(told.acknowledged[log]) > 5 for log in LOGS)


def _releases_with_the_next_entry(patch: pytest.MonkeyPatch) -> None:
    """What is released is told with the next entry only."""

    def forget(self: Releases) -> None:
        self._batch = {}
        self._urgent.clear()

    patch.setattr(Releases, "on_turn_end", forget)


def _tells_of_what_is_not_released(patch: pytest.MonkeyPatch) -> None:
    """Who asks storage nodes is told of an entry that they have not heard to be released."""
    greatest = release_request._greatest
    patch.setattr(release_request, "_greatest", lambda answers: greatest(answers) + 1)


FAULTS: Sequence[tuple[str, Callable[[pytest.MonkeyPatch], None], str]] = [
    ("a release waits for the next entry", _releases_with_the_next_entry, "rule 1"),
    ("storage nodes tell of what is not released", _tells_of_what_is_not_released, "rule 3"),
]


@pytest.mark.parametrize(("put", "rule"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_each_rule_of_last_records_that_is_left_out_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, put: Callable[[pytest.MonkeyPatch], None], rule: str
) -> None:
    put(monkeypatch)
    with pytest.raises(SimulationFailed, match=rule):
        simulate(last_records, seed=0, **CLUSTER)


async def released_by_nobody(cluster: SimCluster) -> float:
    """How long an idle reader waits for what a node acknowledged and did not live to release."""
    log, loop = LOGS[0], asyncio.get_running_loop()
    came: asyncio.Future[float] = loop.create_future()

    async def follow(client: Client) -> None:
        async with client.reader(log) as reader:
            async for item in reader:
                if isinstance(item, Record) and item.payload == b"last":
                    came.set_result(loop.time())

    async with cluster.client() as reading, cluster.client() as client:
        await client.append(log, b"first")
        following = asyncio.create_task(follow(reading))
        await asyncio.sleep(130)  # readers that wait for long ask once a minute
        home = (await client.sequencer(log)).node
        with pytest.MonkeyPatch.context() as patch:
            _releases_with_the_next_entry(patch)
            await client.append(log, b"last")
            died = loop.time()
            await cluster.stop_node(home)
        try:
            return await came - died
        finally:
            following.cancel()


@pytest.mark.parametrize("seed", quick(range(3), 1))
def test_an_idle_reader_gets_soon_what_a_node_acknowledged_before_it_died(
    simulate: Callable[..., Any], seed: int
) -> None:
    assert simulate(released_by_nobody, seed=seed, **CLUSTER) < 5


def test_a_reader_that_does_not_ask_after_a_death_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReleaseLookup, "on_nodes_dead", lambda *_: None)
    assert simulate(released_by_nobody, seed=0, **CLUSTER) > 5
