"""How much the simulator may destroy before records may be lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, ShardId, shard_id
from server.simulation.damage import DamageBudget
from tests.unit.storage_node.fakes import make_config


def shards(*nodes: int) -> list[ShardId]:
    return [shard_id(NodeId(node)) for node in nodes]


def budget(replication: str, *, enforced: bool = True, unsynced: bool = False) -> DamageBudget:
    """Nodes 0 to 4 in racks a, b, c, a, b."""
    config = make_config()
    nodes = {
        node: replace(each, location=Location.parse(f"rack{'abc'[node % 3]}")) for node, each in config.nodes.items()
    }
    return DamageBudget(
        replace(config, nodes=nodes), [ReplicationProperty.parse(replication)], enforced=enforced, unsynced=unsynced
    )


class TestShards:
    @pytest.mark.parametrize(
        ("replication", "wanted", "granted"),
        [
            ("node:2", [0, 1], [True, False]),
            ("node:3", [0, 1, 0, 2], [True, True, True, False]),
            ("rack:2", [0, 3, 1], [True, True, False]),  # 0 and 3 are in one rack
            ("rack:2,node:3", [0, 1, 2], [True, True, False]),  # any two nodes leave one of three copies
            ("rack:2,node:3", [0, 3, 1], [True, True, False]),
        ],
    )
    def test_no_copyset_may_lie_within_what_is_damaged(
        self, replication: str, wanted: list[int], granted: list[bool]
    ) -> None:
        tried = budget(replication)
        assert [tried.take_shards(shards(node)) for node in wanted] == granted

    def test_of_a_node_that_left_nobody_knows_where_it_was(self) -> None:
        tried = budget("rack:2")
        assert tried.take_shards(shards(0))
        assert not tried.take_out(shards(3))  # in the rack of 0, which counts no more
        assert tried.take_shards(shards(3))
        assert budget("rack:2").take_out(shards(0))

    def test_a_node_that_may_not_leave_stays_where_it_is(self) -> None:
        tried = budget("rack:2")
        assert tried.take_out(shards(0))
        assert not tried.take_out(shards(3))
        assert not tried.take_shards(shards(3))
        assert tried.damaged == set(shards(0))

    def test_what_was_refused_does_not_count(self) -> None:
        tried = budget("node:2")
        assert not tried.take_shards(shards(0, 1))
        assert tried.take_shards(shards(2))

    def test_a_loss_that_nobody_notices_is_beyond_every_replication_property(self) -> None:
        assert not budget("node:3").take_shards(shards(0), silent=True)

    def test_power_may_fail_everywhere_when_nothing_is_stored_before_it_is_synced(self) -> None:
        tried = budget("node:2")
        assert all(tried.take_unsynced(shards(node)) for node in range(5))
        assert not tried.damaged

    def test_power_that_fails_destroys_what_counted_as_stored_before_it_was_synced(self) -> None:
        tried = budget("node:2", unsynced=True)
        assert [tried.take_unsynced(shards(node)) for node in (0, 1, 0)] == [True, False, True]
        assert tried.damaged == set(shards(0))

    def test_without_enforcement_everything_may_go(self) -> None:
        tried = budget("node:2", enforced=False)
        assert tried.take_shards(shards(0, 1, 2, 3, 4), silent=True)
        assert tried.damaged == set(shards(0, 1, 2, 3, 4))


class TestEntries:
    def test_each_entry_keeps_a_sound_copy(self) -> None:
        tried = budget("node:3")
        assert [tried.take_entry(shard, 1, 5) for shard in shards(0, 1, 2)] == [True, True, False]
        assert tried.take_entry(shards(2)[0], 1, 6)

    def test_a_shard_is_not_taken_when_an_entry_has_its_last_sound_copy_there(self) -> None:
        tried = budget("node:2")
        assert tried.take_entry(shards(0)[0], 1, 5)
        assert not tried.take_shards(shards(1))
        assert tried.take_shards(shards(0))
        assert not tried.take_entry(shards(1)[0], 1, 6)
