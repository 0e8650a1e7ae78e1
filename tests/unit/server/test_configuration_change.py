"""A change that takes storage out, as a node judges it: by what the event log says at that moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from epoch_store.interface import WriterIdentity
from epoch_store.memory import MemoryCells, MemoryEpochStore
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.core.ids import Generation, InstanceId, NodeId, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros
from logdevice_py.event_log.events import Event, RebuildMode, ShardAbortRebuild, ShardIsRebuilt, ShardNeedsRebuild
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from server.configuration import change as module
from server.configuration.change import change_configuration, empty_shards
from server.configuration.keeper import ConfigurationFile, ConfigurationKeeper, InForce
from tests.simulation.cluster_plan import ClusterPlan, NodePlan

ROLES = ["sequencer", "storage"]
GENERATION = Generation(1)
SHARDS = [shard_id(NodeId(node)) for node in range(3)]
SETTINGS = ["[settings.rebuilding]\nenabled = true"]


def cluster(nodes: int) -> ClusterConfig:
    """Of so many nodes, of which the first keeps metadata logs."""
    plan = ClusterPlan("node:1", 4, {}, {node: NodePlan(ROLES, node) for node in range(nodes)}, SETTINGS)
    config = load_cluster(plan.render())
    return replace(config, metadata_log=replace(config.metadata_log, nodeset=tuple(SHARDS[:1])))


FILE = cluster(3)
FULL_DRAIN: list[Event] = [
    ShardNeedsRebuild(SHARDS[2], GENERATION, RebuildMode.RELOCATE, tuple((shard, GENERATION) for shard in SHARDS)),
    *(ShardIsRebuilt(donor, GENERATION, Lsn(1)) for donor in SHARDS),
]
CALLED_OFF = ShardAbortRebuild(SHARDS[2], GENERATION, RebuildMode.RELOCATE)


class EventLog:
    """A node's replica of the event log: what it has read, and what it reads before it confirms."""

    def __init__(self) -> None:
        self.caught_up = True
        self.set = RebuildingSet()
        self.later: list[Event] = []
        self.confirmed: Callable[[Callable[[BaseException | None, Micros], None]], None] = lambda done: done(
            None, Micros(0)
        )
        self.asked = 0

    def take(self, *events: Event) -> None:
        for event in events:
            self.set.apply(event, Lsn(self.set.version + 1))

    def confirm(self, done: Callable[[BaseException | None, Micros], None], now: Micros, timeout_us: int) -> None:
        self.asked += 1
        self.take(*self.later)
        self.confirmed(done)


class AskedNode:
    """A node that is asked to take N2 out."""

    def __init__(self, directory: Path) -> None:
        self.event_log = EventLog()
        store = MemoryEpochStore(
            MemoryCells(), WriterIdentity(NodeId(0), InstanceId(1)), asyncio.get_running_loop().call_soon
        )
        gossip = SimpleNamespace(config_version=0, generation=lambda shard: GENERATION)
        rebuilding = SimpleNamespace(set=self.event_log.set, replica=self.event_log)
        self.node: Any = SimpleNamespace(rebuilding=rebuilding, gossip=gossip)
        self.config = FILE
        self.ask_epoch_store = store.submit
        self.configuration = ConfigurationKeeper(store.submit, ConfigurationFile(directory), FILE, InForce(config=FILE))

    def event(self, handler: Callable[[Micros], None]) -> None:
        handler(Micros(0))

    def use_stored(self, config: ClusterConfig) -> None:
        self.config = config

    async def change(self, after: ClusterConfig) -> dict[str, Any]:
        text = render_cluster(after)
        given = {"base": FILE.version, "text": text, "who": "ann", "why": "", "accept_data_loss": "none", "dry_run": 0}
        return await change_configuration(self, given)

    async def refused(self) -> LogDeviceError:
        with pytest.raises(LogDeviceError) as raised:
            await self.change(cluster(2))
        assert self.config is FILE
        return raised.value


@pytest.fixture
async def asked(tmp_path: Path) -> AskedNode:
    return AskedNode(tmp_path)


async def test_a_shard_that_is_drained_at_the_end_of_the_event_log_may_go(asked: AskedNode) -> None:
    asked.event_log.later = FULL_DRAIN
    assert (await asked.change(cluster(2)))["stored"]
    assert list(asked.config.nodes) == [0, 1]


async def test_a_drain_that_was_called_off_since_excuses_no_loss(asked: AskedNode) -> None:
    asked.event_log.take(*FULL_DRAIN)
    asked.event_log.later = [CALLED_OFF]
    error = await asked.refused()
    assert error.status is Status.INVALID_CONFIG
    assert "ldctl drain N2:S0 --wait" in error.detail


def silent(done: Callable[[BaseException | None, Micros], None]) -> None:
    """The event log does not answer."""


def away(done: Callable[[BaseException | None, Micros], None]) -> None:
    done(LogDeviceError(Status.NOSEQUENCER), Micros(0))


@pytest.mark.parametrize(("confirmed", "why"), [(silent, "within 0.01 s"), (away, "NOSEQUENCER")])
async def test_without_the_end_of_the_event_log_nothing_goes(
    asked: AskedNode, monkeypatch: pytest.MonkeyPatch, confirmed: Any, why: str
) -> None:
    monkeypatch.setattr(module, "_EVENT_LOG_SECONDS", 0.01)
    asked.event_log.take(*FULL_DRAIN)
    asked.event_log.confirmed = confirmed
    error = await asked.refused()
    assert error.status is Status.AGAIN
    assert "everything of N2:S0 is stored elsewhere is not known" in error.detail
    assert why in error.detail


async def test_a_change_that_takes_no_storage_out_does_not_need_the_event_log(asked: AskedNode) -> None:
    asked.event_log.confirmed = silent
    assert (await asked.change(cluster(4)))["stored"]
    assert asked.event_log.asked == 0


async def test_what_is_read_of_the_event_log_so_far_proves_no_shard_empty(asked: AskedNode) -> None:
    log = asked.event_log
    log.take(*FULL_DRAIN)
    assert empty_shards(asked.node) == {SHARDS[2]}
    log.caught_up = False
    assert empty_shards(asked.node) == set()
