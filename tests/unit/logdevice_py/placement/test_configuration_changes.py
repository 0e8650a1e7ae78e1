"""Changes of a stored configuration that are refused, with all reasons."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId, shard_id
from logdevice_py.placement.configuration_changes import why_refused

HEAD = """version = 1
name = "test"
uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
epoch_store = "zookeeper://z:2181/root"
[metadata_log]
replicate = "rack:2"
{nodeset}
[settings.rebuilding]
enabled = {rebuilding}
[defaults]
replicate = "node:2"
[logs."/a"]
ids = "1..8"
"""


def config(racks: Mapping[int, str], nodeset: list[int] | None = None, rebuilding: bool = True) -> ClusterConfig:
    text = HEAD.format(
        nodeset="" if nodeset is None else f"nodeset = {nodeset}", rebuilding="true" if rebuilding else "false"
    )
    for node, rack in racks.items():
        text += f'[nodes.N{node}]\nhost = "h{node}"\nport = 1\nlocation = "{rack}"\n'
    return load_cluster(text)


RACKS = {0: "a", 1: "a", 2: "b", 3: "b"}
BEFORE = config(RACKS)


def refused(after: ClusterConfig, *empty: int, accepted: tuple[int, ...] = (), **given: Any) -> list[str]:
    earlier = given.get("earlier", [BEFORE])
    return why_refused(earlier, after, {shard_id(NodeId(n)) for n in empty}, [NodeId(n) for n in accepted])


def test_a_node_may_be_added_and_another_part_of_the_file_changed() -> None:
    assert refused(config({**RACKS, 4: "c"})) == []


def test_storage_goes_when_it_is_empty_or_when_somebody_accepts_the_loss() -> None:
    after = config({0: "a", 1: "a", 2: "b"})
    (reason,) = refused(after)
    assert "N3:S0" in reason
    assert "ldctl drain N3:S0" in reason
    assert "--accept-data-loss N3" in reason
    assert refused(after, 3) == []
    assert refused(after, accepted=(3,)) == []
    assert refused(after, 2, accepted=(1,)) == [reason]


def test_a_node_that_loses_its_role_or_some_shards_loses_storage() -> None:
    text_of = dataclasses.replace
    members = dict(BEFORE.nodes)
    members[NodeId(3)] = text_of(members[NodeId(3)], shards=2)
    two_shards = text_of(BEFORE, nodes=members)
    (reason,) = refused(BEFORE, earlier=[two_shards])
    assert "N3:S1" in reason


def test_a_shard_that_leaves_the_metadata_nodeset_has_to_be_empty() -> None:
    after = config(RACKS, nodeset=[0, 2])
    (reason,) = refused(after)
    assert reason.startswith("metadata_log.nodeset: N1:S0, N3:S0")
    assert refused(after, 1, 3) == []


def test_without_rebuilding_nobody_is_told_to_drain() -> None:
    before = config(RACKS, rebuilding=False)
    (reason,) = refused(config({0: "a", 1: "a", 2: "b"}, rebuilding=False), earlier=[before])
    assert "ldctl drain" not in reason
    assert "check-impact" in reason


def test_all_reasons_are_told_at_once() -> None:
    other = dataclasses.replace(config({0: "a", 1: "b", 2: "b"}), uuid=bytes(16), epoch_store="memory:")
    reasons = refused(other)
    assert [reason.partition(":")[0] for reason in reasons] == ["name, uuid", "epoch_store", "nodes", "nodes"]


@pytest.mark.parametrize("kept", [True, False])
def test_a_node_that_keeps_metadata_logs_does_not_move_in_steps_either(kept: bool) -> None:
    """Out of the nodeset, then into another rack, then back."""
    out = config(RACKS, nodeset=[0, 1, 2])
    moved = config({**RACKS, 3: "a"}, nodeset=[0, 1, 2])
    back = config({**RACKS, 3: "a"})
    assert refused(moved, earlier=[out]) == []
    reasons = refused(back, earlier=[BEFORE, out, moved] if kept else [out, moved])
    assert bool(reasons) is kept
    if kept:
        assert "compared with version 1" in reasons[0]
        assert "N3 from b to a" in reasons[0]


def test_the_log_tree_stays_on() -> None:
    before = dataclasses.replace(BEFORE, settings={**BEFORE.settings, "log_tree": {"enabled": True}})
    (reason,) = refused(BEFORE, earlier=[before])
    assert reason.startswith("settings.log_tree.enabled")
