"""What ``ldctl status`` says of shards that are lost, drained, or started a new generation."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from ldquery.ctl.lost_shards import lacking_metadata, unfinished, without_a_place, without_authority
from logdevice_py.config.location import Location
from logdevice_py.config.logs import LogTree
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, shard_id
from tests.simulation.cluster_plan import ClusterPlan, NodePlan

SHARDS = [shard_id(NodeId(node)) for node in range(5)]


def row(shard: str, mode: str, status: str, *, version: int = 7, **cells: Any) -> dict[str, Any]:
    defaults = {"donors_left": "", "authoritative_status": "FULLY_AUTHORITATIVE"}
    return {"rebuilding_shard": shard, "mode": mode, "status": status, "version": version, **defaults, **cells}


def test_what_is_rebuilt_is_no_trouble() -> None:
    assert unfinished([]) == unfinished([row("N4:S0", "RESTORE", "rebuilt"), row("N3:S0", "RELOCATE", "rebuilt")]) == {}


def test_how_far_it_is_and_what_became_of_it() -> None:
    rows = [
        row("N1:S0", "RELOCATE", "rebuilding", donors_left="N0:S0, N2:S0"),
        row("N3:S0", "RESTORE", "unplaced"),
        row("N4:S0", "RESTORE", "uncertain", authoritative_status="UNDERREPLICATION"),
    ]
    assert unfinished(rows) == {
        "N1:S0": "is being drained; waits for N0:S0, N2:S0",
        "N3:S0": "is lost, and rebuilding it ended unplaced: some records have copies less; its silence counts as FULLY_AUTHORITATIVE",
        "N4:S0": "is lost, and rebuilding it ended uncertain: some records may be gone; its silence counts as UNDERREPLICATION",
    }


def test_the_node_that_is_ahead_counts() -> None:
    behind = [row("N3:S0", "RESTORE", "rebuilding", version=6), row("N4:S0", "RESTORE", "rebuilding", version=6)]
    assert unfinished([*behind, row("N4:S0", "RESTORE", "rebuilt"), row("N4:S0", "RESTORE", "rebuilt")]) == {}


def test_who_waits_for_somebody_or_is_about_to_end_has_not_got_its_metadata_back() -> None:
    rows = [
        {"node_id": 0, "shard": 0, "metadata_awaited": None},
        {"node_id": 0, "shard": 1, "metadata_awaited": "N1:S0, N2:S0"},
        {"node_id": 3, "shard": 0, "metadata_awaited": ""},
    ]
    assert lacking_metadata(rows) == {shard_id(NodeId(0), 1), SHARDS[3]}


@pytest.mark.parametrize(
    ("replicate", "racks", "replaced", "awaited"),
    [
        ("node:3", 1, [], None),
        ("node:3", 1, [1], None),
        ("node:3", 1, [1, 2], "N0:S0, N3:S0, N4:S0"),
        ("node:2", 1, [1], "N0:S0, N2:S0, N3:S0, N4:S0"),
        ("node:1", 1, [], None),
        ("rack:2", 2, [0], "N1:S0, N3:S0"),  # a further one of the same rack may be away
    ],
)
def test_metadata_logs_stall_without_which_shards(
    replicate: str, racks: int, replaced: list[int], awaited: str | None
) -> None:
    nodes = {node: NodePlan(["sequencer", "storage"], node % racks) for node in range(5)}
    config = load_cluster(ClusterPlan(replicate=replicate, racks=racks, attributes={}, nodes=nodes).render())
    lost, text = without_authority(config, [SHARDS[node] for node in replaced])
    assert lost == ([] if awaited is None else [SHARDS[node] for node in replaced])
    assert text == "" if awaited is None else text.endswith(f": {awaited}")


@pytest.mark.parametrize(
    ("replicate", "nodes", "lost", "why"),
    [
        (
            "node:3",
            3,
            [2],
            '"node:3" cannot be restored without N2:S0: 3 nodes are needed and 2 are left. Bring the node',
        ),
        ("node:3", 5, [1, 2, 3], "without N1:S0, N2:S0, N3:S0: 3 nodes are needed and 2 are left"),
        ("rack:2,node:2", 3, [1], "2 racks are needed and 1 is left"),
    ],
)
def test_where_too_few_nodes_are_left_for_the_copies_it_is_said_plainly(
    replicate: str, nodes: int, lost: list[int], why: str
) -> None:
    plan = {node: NodePlan(["sequencer", "storage"], node) for node in range(nodes)}
    config = load_cluster(ClusterPlan("node:2", 3, {}, plan).render())
    racks = {
        node: dataclasses.replace(member, location=Location.parse("ab"[node % 2]))
        for node, member in config.nodes.items()
    }
    groups = [("/one", 1, 1, {"replication": ReplicationProperty.parse(replicate)})]
    config = dataclasses.replace(config, nodes=racks, logs=LogTree.build(groups=groups))
    (told,) = without_a_place(config, [SHARDS[node] for node in lost])
    assert told.startswith("/one: ")
    assert why in told


def test_where_others_can_take_the_copies_nothing_is_said() -> None:
    plan = {node: NodePlan(["sequencer", "storage"], node) for node in range(4)}
    config = load_cluster(ClusterPlan("node:3", 3, {}, plan).render())
    assert without_a_place(config, [SHARDS[1]]) == []
    assert without_a_place(config, [SHARDS[1], SHARDS[2]]) != []
    assert without_a_place(config, []) == []
