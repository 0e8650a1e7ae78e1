"""Every policy, on clusters of any kind: a copyset is found exactly when there is one, and satisfies the property by the labels of the epoch."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdevice_py.config.cluster import ShardState
from logdevice_py.core.ids import LogId, NodeId, ShardId, node_of, shard_id
from logdevice_py.core.status import LogDeviceError
from logdevice_py.placement.cluster_placement import BUILT_IN, ClusterPlacement
from tests.property.test_placement import clusters, clusters_and_subsets, domains_of
from tests.unit.logdevice_py.placement.clusters import attributes, cluster

POLICIES = st.sampled_from(sorted(BUILT_IN))


@given(clusters_and_subsets(), POLICIES, st.data())
def test_a_copyset_is_found_exactly_when_there_is_one_by_the_labels_of_the_epoch(
    case: tuple[Any, frozenset[ShardId]], policy: str, data: st.DataObject
) -> None:
    of_epoch, available = case
    moved = {
        int(node): str(data.draw(st.sampled_from(sorted(of_epoch.places.values(), key=str))))
        for node in of_epoch.places
    }
    config = replace(
        cluster(moved, nodes={node: {"shards": 2} for node in moved}),
        settings={"placement": {"policy": policy, "min_racks": data.draw(st.integers(1, 4))}},
    )
    placement = ClusterPlacement(config, lambda text: pytest.fail(text))
    at = data.draw(st.sampled_from([None, *(node.location for node in config.nodes.values())]))
    source = placement.copysets(domains_of(of_epoch), at, random.Random(data.draw(st.integers(0, 99))))
    exists = any(True for _ in of_epoch.copysets(available))
    for _ in range(6):
        copyset = source.pick(available.__contains__)
        assert (copyset is not None) == exists
        if copyset is not None:
            assert len(copyset) == len(set(copyset)) == of_epoch.replication.copies
            assert set(copyset) <= available
            assert of_epoch.satisfies(copyset)
            kept = copyset[: data.draw(st.integers(0, len(copyset)))]
            whole = source.replace(kept, available.__contains__)
            assert whole is not None
            assert whole[: len(kept)] == kept
            assert len(whole) == of_epoch.replication.copies
            assert of_epoch.satisfies(whole)


@given(clusters(), POLICIES, st.data())
def test_a_nodeset_is_found_exactly_when_writable_shards_can_replicate(
    case: Any, policy: str, data: st.DataObject
) -> None:
    places = case.places
    states = {int(node): data.draw(st.sampled_from(ShardState)) for node in places}
    config = replace(
        cluster(
            {int(node): str(place) for node, place in places.items()},
            nodes={node: {"shard_state": state} for node, state in states.items()},
        ),
        settings={"placement": {"policy": policy}},
    )
    writable = frozenset(shard_id(NodeId(node)) for node, state in states.items() if state is ShardState.READ_WRITE)
    exists = any(True for _ in case.copysets(writable))
    wanted = attributes(str(case.replication), nodeset_size=data.draw(st.integers(0, 8)))
    placement = ClusterPlacement(config, lambda text: pytest.fail(text))
    log = LogId(data.draw(st.integers(1, 1000)))
    try:
        nodeset = placement.select_nodeset(log, wanted)
    except LogDeviceError:
        assert not exists
        return
    assert exists
    assert nodeset == placement.select_nodeset(log, wanted)
    assert list(nodeset) == sorted(set(nodeset))
    assert all(states[node_of(shard)] is not ShardState.DISABLED for shard in nodeset)
    assert any(True for _ in case.copysets(frozenset(nodeset) & writable))
