"""The placement policy of the cluster's configuration, as a sequencer uses it: for new epochs, for copysets, and when it changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from logdevice_py.config.cluster import ClusterConfig, ShardState
from logdevice_py.config.location import Location
from logdevice_py.core.ids import NodeId, node_of
from logdevice_py.core.machine import Rng
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.policies import Weighted
from logdevice_py.placement.policy import CopysetSource
from tests.unit.sequencer.fakes import LOG, World, make_config

REGIONS = ("us", "us", "us", "us", "eu", "ap")


class Mad(Weighted):
    """Gives each epoch copysets of a nodeset that it does not have."""

    def copysets(self, domains: FailureDomains, at: Location | None, rng: Rng) -> CopysetSource:
        raise ArithmeticError("mad")


def config(version: int = 1, **placement: str) -> ClusterConfig:
    made = make_config(6, replicate="node:3", version=version, sticky_copysets=False)
    nodes = {
        node: replace(member, location=Location.parse(f"{REGIONS[node]}....r{node}"))
        for node, member in made.nodes.items()
    }
    return replace(made, nodes=nodes, settings={"placement": placement})


def regions_of_waves(world: World, entries: int) -> Counter[tuple[str, ...]]:
    world.stores.clear()
    for _ in range(entries):
        world.append()
        world.run()
    copysets: dict[int, set[int]] = {}
    for store in world.stores:
        copysets.setdefault(int(store.lsn), set()).add(int(node_of(store.shard)))
    return Counter(tuple(sorted(REGIONS[node] for node in nodes)) for nodes in copysets.values())


def test_the_policy_chooses_the_copysets_of_an_epoch_and_another_one_from_the_next_entry_on() -> None:
    world = World(config(policy="region-aware"))
    assert regions_of_waves(world, 20) == {("ap", "eu", "us"): 20}
    world.node.on_config(config(2), world.now)
    world.run()
    assert len(regions_of_waves(world, 20)) > 1


def test_a_region_that_is_disabled_gets_no_records_and_leaves_the_nodeset() -> None:
    world = World(config(policy="region-aware"))
    regions_of_waves(world, 1)
    assert len(world.node.context.nodeset(LOG, world.config.log(LOG)) or ()) == 6  # type: ignore[arg-type]
    after = config(2, policy="region-aware", disabled_regions="ap")
    world.node.on_config(after, world.now)
    world.run()
    found = regions_of_waves(world, 20)
    assert {region for regions in found for region in regions} == {"us", "eu"}
    assert len(world.node.context.nodeset(LOG, after.log(LOG)) or ()) == 5  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["weighted", "rack-aware", "region-aware"])
def test_a_shard_that_is_made_read_only_gets_no_records(policy: str) -> None:
    world = World(config(policy=policy))
    regions_of_waves(world, 1)
    after = config(2, policy=policy)
    nodes = {**after.nodes, NodeId(4): replace(after.nodes[NodeId(4)], shard_state=ShardState.READ_ONLY)}
    world.node.on_config(replace(after, nodes=nodes), world.now)
    world.run()
    found = regions_of_waves(world, 20)
    assert {region for regions in found for region in regions} == {"us", "ap"}, "the one of eu is read-only"


def test_a_policy_that_fails_is_replaced_counted_and_told() -> None:
    world = World(config(policy="tests.unit.sequencer.test_placement_policy:Mad"))
    assert regions_of_waves(world, 5).total() == 5
    assert world.node.context.metrics.placement_refusals >= 1
    assert {notice.kind for notice in world.notices} == {"placement policy"}
    assert world.notices[0].text.endswith("copysets failed: ArithmeticError: mad; the policy weighted chooses instead")
