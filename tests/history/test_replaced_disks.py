"""Two disks are replaced one after the other, each time long after everything was stored again. Then a third node is away.

There: a replica that came back with an empty disk is trusted again by an operator, or never. Trusted too early it votes for what it lost; never
trusted, each replaced disk takes from what the cluster can do without, until it stalls.

Here: data logs leave the lost generation out of account when it is rebuilt. Metadata logs are not rebuilt: the shard gets the last record of each
back, from an f-majority of the others, and is authoritative for them like any other (`storage_node/repair/metadata_resync.py`).
"""

from __future__ import annotations

import pytest

from logdevice_py.core.ids import NodeId
from logdevice_py.core.units import SECOND
from server.simulation.node import SimNodeState
from storage_node.repair.metadata_resync import MetadataResync
from storage_node.shard import Shard
from tests.history.stage import Stage
from tests.simulation.history import Violation

_SETTINGS = """
[settings.rebuilding]
enabled = true
self_initiated_grace_period_us = "2s"
supervision_us = "200ms"
"""


def shard_of(stage: Stage, node: int) -> Shard:
    """The only shard of a node that runs."""
    root = stage.node(NodeId(node)).root
    assert root is not None
    assert root.storage is not None
    [machines] = root.storage.shards.values()
    return machines.shard


def replace_disk(stage: Stage, node: int) -> None:
    replaced = stage.node(NodeId(node))
    replaced.crash(machine=True)
    replaced.wipe()
    replaced.start()
    stage.run_until("a start", lambda: replaced.state is SimNodeState.RUNNING)
    assert shard_of(stage, node).generation == 2


def play() -> None:
    stage = Stage(nodes=5, replicate="node:3", extra=_SETTINGS)
    stage.acknowledged(stage.client())
    for node in (0, 1):
        replace_disk(stage, node)
        stage.run(30 * SECOND)
    last = stage.acknowledged(stage.client())
    assert last.position is not None
    stage.node(NodeId(2)).crash(machine=False)
    stage.run(5 * SECOND)
    seen = stage.read(last.position[0])
    assert [payload for _, _, payload in seen.records][-1] == last.payload
    stage.node(NodeId(2)).start()
    stage.finish()


def test_they_use_up_nothing_of_what_may_be_away() -> None:
    play()


def test_the_schedule_notices_shards_that_are_never_authoritative_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MetadataResync, "start", lambda self, now: None)
    with pytest.raises(Violation, match="a reader of everything"):
        play()


def test_a_shard_is_authoritative_for_nothing_before_those_are_back_that_may_have_what_it_lost() -> None:
    """Two disks are lost while a third node is away: a record may be on that one alone."""
    stage = Stage(nodes=5, replicate="node:3", extra=_SETTINGS)
    stage.acknowledged(stage.client())
    for node in (0, 1):
        stage.node(NodeId(node)).crash(machine=True)
        stage.node(NodeId(node)).wipe()
    stage.node(NodeId(2)).crash(machine=False)
    for node in (0, 1):
        stage.node(NodeId(node)).start()
    stage.run(60 * SECOND)
    assert not any(shard_of(stage, node).metadata_authoritative for node in (0, 1))
    stage.node(NodeId(2)).start()
    stage.run(60 * SECOND)
    assert all(shard_of(stage, node).metadata_authoritative for node in (0, 1))
