"""Load follows capacity, however uneven racks and capacities are: over choices alone, without a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from logdevice_py.config.cluster import ShardState
from logdevice_py.config.location import Scope
from logdevice_py.core.ids import LogId, NodeId, node_of
from logdevice_py.placement.balance import copyset_weights, inclusion
from logdevice_py.placement.nodeset import NodesetSpread, select_nodeset
from logdevice_py.placement.topology import Topology
from tests.property.balance import NODES_OF_RACKS, even, ratios
from tests.unit.logdevice_py.placement.clusters import attributes, cluster

RACKS = [rack for rack, nodes in NODES_OF_RACKS for _ in range(nodes)]
MIXED = [4.0 if node % 3 == 0 else 1.0 for node in range(24)]


@pytest.mark.parametrize(
    ("places", "capacities", "replicate", "size"),
    [
        (RACKS, [1.0] * 24, "rack:2,node:3", 8),
        (RACKS, MIXED, "rack:2,node:3", 8),
        (RACKS, MIXED, "node:3", 13),
        ([""] * 3, [4.0, 1.0, 1.0], "node:2", 8),
        ([""] * 20, even(20), "node:3", 10),
    ],
)
def test_each_node_gets_its_share_by_capacity(
    places: Sequence[str], capacities: Sequence[float], replicate: str, size: int
) -> None:
    found = ratios(places, capacities, replicate, size, logs=2_000)
    assert len(found) == len(places)
    assert min(found) > 0.85
    assert max(found) < 1.15


@pytest.mark.parametrize(("scopes", "size"), [((), 6), ((Scope.RACK,), 8), ((Scope.RACK,), 11), ((Scope.RACK,), 19)])
def test_nodes_are_in_nodesets_as_often_as_is_worked_out(scopes: tuple[Scope, ...], size: int) -> None:
    topology = Topology.of(cluster(RACKS, nodes={n: {"storage_capacity": c} for n, c in enumerate(MIXED)}))
    spread = NodesetSpread(scopes, 2, size)
    chances = inclusion(topology.nodes, spread)
    counted: Counter[NodeId] = Counter()
    for log in range(1, 3_001):
        nodeset = select_nodeset(LogId(log), topology, attributes("node:2").replication, spread)
        assert nodeset is not None
        counted.update(map(node_of, nodeset))
    for node, chance in enumerate(chances):
        assert counted[NodeId(node)] / 3_000 == pytest.approx(chance, abs=0.055)
    assert sum(chances) == pytest.approx(size, abs=0.5)


def test_racks_within_regions_take_turns_in_the_working_out_too() -> None:
    places = [f"{region}.d.c.r.{rack}" for region in "xy" for rack in "ppppppqq"]
    topology = Topology.of(cluster(places))
    chances = inclusion(topology.nodes, NodesetSpread((Scope.REGION, Scope.RACK), 2, 8))
    assert chances == pytest.approx(([1 / 3] * 6 + [1.0] * 2) * 2, abs=0.01)


@pytest.mark.parametrize("scopes", [(), (Scope.RACK,), (Scope.REGION, Scope.RACK)])
def test_nobody_has_a_weight_while_no_node_takes_records(scopes: tuple[Scope, ...]) -> None:
    topology = Topology.of(cluster(RACKS, nodes={n: {"shard_state": ShardState.READ_ONLY} for n in range(24)}))
    assert topology.nodes
    assert copyset_weights(topology, NodesetSpread(scopes, 2, 8)) == {}
