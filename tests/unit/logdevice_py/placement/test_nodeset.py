from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from logdevice_py.config.cluster import Roles, ShardState
from logdevice_py.core.ids import LogId, NodeId, metadata_log_of, node_of, shard_id
from logdevice_py.core.marks import HITS
from logdevice_py.core.status import LogDeviceError, Status
from tests.unit.logdevice_py.placement.clusters import attributes, cluster, select_nodeset

LOGS = [LogId(log) for log in range(1, 401)]
RACKS = [f"rack{index % 5}" for index in range(40)]


def test_the_nodeset_is_sorted_has_its_size_and_is_the_same_each_time() -> None:
    config, log_attributes = cluster([""] * 40), attributes("node:3", nodeset_size=10)
    for log in LOGS[:20]:
        nodeset = select_nodeset(log, config, log_attributes)
        assert len(nodeset) == 10
        assert list(nodeset) == sorted(set(nodeset))
        assert select_nodeset(log, cluster([""] * 40), log_attributes) == nodeset


def test_the_choice_is_part_of_what_is_on_disk() -> None:
    nodeset = select_nodeset(LogId(7), cluster([""] * 20), attributes("node:2", nodeset_size=5))
    assert [node_of(shard) for shard in nodeset] == [0, 1, 3, 9, 11]


def test_no_size_means_all_storage_nodes() -> None:
    config = cluster([""] * 6, nodes={4: {"roles": Roles.SEQUENCER}})
    nodeset = select_nodeset(LogId(1), config, attributes("node:3"))
    assert [node_of(shard) for shard in nodeset] == [0, 1, 2, 3, 5]


@pytest.mark.parametrize("size", [None, 3, 5])
def test_a_shard_that_is_lost_or_drained_is_in_no_new_nodeset(size: int | None) -> None:
    config = replace(cluster([""] * 6), excluded=frozenset({shard_id(NodeId(2))}))
    for log in LOGS[:20]:
        nodeset = select_nodeset(log, config, attributes("node:2", nodeset_size=size))
        assert [node for node in map(node_of, nodeset) if node == 2] == []
        assert len(nodeset) == (size or 5)


def test_no_nodeset_is_larger_than_a_copyset_can_name() -> None:
    assert len(select_nodeset(LogId(1), cluster([""] * 200), attributes("node:3"))) == 127


def test_a_small_nodeset_still_survives_the_loss_of_what_copies_allow() -> None:
    assert len(select_nodeset(LogId(1), cluster([""] * 40), attributes("node:3", nodeset_size=3))) == 5


def test_every_rack_holds_what_one_rack_may_have_to_take() -> None:
    config, log_attributes = cluster(RACKS), attributes("rack:2,node:3", nodeset_size=6)
    for log in LOGS[:50]:
        per_rack = Counter(node_of(shard) % 5 for shard in select_nodeset(log, config, log_attributes))
        assert per_rack == dict.fromkeys(range(5), 2)


def test_racks_stay_level_when_the_size_asks_for_more() -> None:
    log_attributes = attributes("rack:2,node:3", nodeset_size=17)
    per_rack = Counter(node_of(shard) % 5 for shard in select_nodeset(LogId(1), cluster(RACKS), log_attributes))
    assert sorted(per_rack.values()) == [3, 3, 3, 4, 4]


def test_shards_of_a_node_share_its_logs_and_a_log_uses_one() -> None:
    config = cluster([""] * 4, nodes={node: {"shards": 3} for node in range(4)})
    used: Counter[int] = Counter()
    for log in LOGS:
        nodeset = select_nodeset(log, config, attributes("node:2"))
        assert len({node_of(shard) for shard in nodeset}) == len(nodeset) == 4
        used.update(nodeset)
    assert len(used) == 12
    assert all(80 < count < 190 for count in used.values())


def test_bigger_nodes_are_in_more_nodesets() -> None:
    config = cluster([""] * 40, nodes={node: {"storage_capacity": 3.0} for node in range(20)})
    in_nodesets = Counter(
        node_of(shard) for log in LOGS for shard in select_nodeset(log, config, attributes("node:2", nodeset_size=4))
    )
    big, small = (
        sum(count for node, count in in_nodesets.items() if node < 20),
        sum(count for node, count in in_nodesets.items() if node >= 20),
    )
    assert 2.2 < big / small < 3.5


def test_a_small_nodeset_in_regions_reaches_as_many_racks_as_it_can() -> None:
    places = [f"{region}.d.c.r.{rack}" for region in "xy" for rack in "aaaaaaaab"]
    log_attributes = attributes("region:2,rack:3,node:4", nodeset_size=6)
    for log in LOGS[:50]:
        nodeset = select_nodeset(log, cluster(places), log_attributes)
        assert len({places[node_of(shard)] for shard in nodeset}) == 4


def test_a_rack_that_only_its_read_only_shard_stood_for_gets_a_writable_one_where_the_property_needs_it() -> None:
    places = ["x.a", "x.a", "x.b", "x.b", *["y.c"] * 6]
    config = cluster(places, nodes={2: {"shard_state": ShardState.READ_ONLY}})
    before = HITS["nodeset_completed_domain_by_domain"]
    for log in LOGS:
        writable = [
            shard
            for shard in select_nodeset(log, config, attributes("row:2,rack:3", nodeset_size=5))
            if shard >> 8 != 2
        ]
        assert {places[node_of(shard)] for shard in writable} == {"x.a", "x.b", "y.c"}
    assert HITS["nodeset_completed_domain_by_domain"] > before


class TestStability:
    @pytest.mark.parametrize("racks", [[""] * 40, RACKS])
    def test_a_node_less_changes_only_the_nodesets_that_held_it_and_those_by_one(self, racks: list[str]) -> None:
        replicate = "node:3" if racks[0] == "" else "rack:2,node:3"
        log_attributes = attributes(replicate, nodeset_size=10)
        before, after = cluster(racks), cluster({index: rack for index, rack in enumerate(racks) if index != 17})
        changed = 0
        for log in LOGS:
            old = set(select_nodeset(log, before, log_attributes))
            new = set(select_nodeset(log, after, log_attributes))
            held = any(node_of(shard) == 17 for shard in old)
            assert len(old - new) == (1 if held else 0)
            assert len(new - old) == (1 if held else 0)
            changed += held
        assert 60 < changed < 145

    def test_a_node_more_changes_few_nodesets_by_one(self) -> None:
        log_attributes = attributes("node:3", nodeset_size=10)
        before, after = cluster([""] * 40), cluster([""] * 41)
        moved = [
            len(set(select_nodeset(log, before, log_attributes)) - set(select_nodeset(log, after, log_attributes)))
            for log in LOGS
        ]
        assert max(moved) == 1
        assert 55 < sum(moved) < 145

    def test_a_node_made_read_only_stays_and_another_is_added_where_it_was(self) -> None:
        log_attributes = attributes("node:3", nodeset_size=10)
        before, after = cluster([""] * 40), cluster([""] * 40, nodes={17: {"shard_state": ShardState.READ_ONLY}})
        for log in LOGS:
            old = set(select_nodeset(log, before, log_attributes))
            new = set(select_nodeset(log, after, log_attributes))
            assert old <= new
            assert len(new - old) == (1 if any(node_of(shard) == 17 for shard in old) else 0)


def test_disabled_nodes_are_in_no_nodeset() -> None:
    config = cluster([""] * 4, nodes={0: {"shard_state": ShardState.DISABLED}})
    nodeset = select_nodeset(LogId(1), config, attributes("node:3"))
    assert [node_of(shard) for shard in nodeset] == [1, 2, 3]


def test_too_few_writable_shards_are_an_error_that_names_the_log_and_the_property() -> None:
    config = cluster(["a", "a", "b"], nodes={2: {"shard_state": ShardState.READ_ONLY}})
    with pytest.raises(LogDeviceError, match=r'/log: the 2 writable shards .* "rack:2"') as caught:
        select_nodeset(LogId(1), config, attributes("rack:2"))
    assert caught.value.status is Status.INVALID_CONFIG


def test_a_metadata_log_would_get_the_nodeset_of_its_data_log() -> None:
    config, log_attributes = cluster([""] * 40), attributes("node:3", nodeset_size=10)
    assert select_nodeset(metadata_log_of(LogId(3)), config, log_attributes) == select_nodeset(
        LogId(3), config, log_attributes
    )


def test_where_all_shards_are_wanted_the_quick_way_finds_what_the_long_one_does(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configs = [
        cluster(["r1", "r1", "r2", "r2", "r3"], nodes={1: {"shard_state": ShardState.READ_ONLY}}),
        cluster(["r1", "r2", "r3", "r3"], nodes={3: {"shard_state": ShardState.DISABLED}}),
        cluster([""] * 6, nodes={4: {"roles": Roles.SEQUENCER}}),
        cluster([""] * 63),
        cluster([""] * 64),
        cluster([""] * 4, nodes={2: {"shards": 3}}),
    ]
    asked = [attributes("node:2"), attributes("node:2", nodeset_size=3), attributes("node:2", nodeset_size=5)]
    quick = [select_nodeset(LogId(log), config, each) for config in configs for each in asked for log in (1, 2, 99)]
    monkeypatch.setattr("logdevice_py.placement.nodeset._whole", lambda topology, size: ())
    assert quick == [
        select_nodeset(LogId(log), config, each) for config in configs for each in asked for log in (1, 2, 99)
    ]
