"""The nodeset that a node asks for, by what it knows."""

from __future__ import annotations

from dataclasses import replace

from logdevice_py.config.location import Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import Epoch
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.metadata.wanted_placement import WantedPlacement

SHARDS = tuple(shard_id(NodeId(node)) for node in range(5))
TWO = ReplicationProperty.parse("node:2")


def wanted(*nodes: int) -> WantedPlacement:
    shards = tuple(SHARDS[node] for node in nodes)
    return WantedPlacement(shards, frozenset(shards), TWO, dict.fromkeys(SHARDS, Generation(1)), place, 1)


def place(shard: ShardId) -> Location | None:
    return Location.parse(f"r.d.c.w.k{shard}")


def current(*nodes: int, config_version: int = 1) -> EpochInterval:
    return EpochInterval(Epoch(3), tuple((SHARDS[node], Generation(1)) for node in nodes), TWO, config_version, ())


def nodes_of(interval: EpochInterval | None) -> list[int] | None:
    return None if interval is None else [SHARDS.index(shard) for shard in interval.shards]


def test_a_shard_that_is_wanted_joins() -> None:
    assert nodes_of(wanted(0, 1, 2, 3).interval(current(0, 1, 2))) == [0, 1, 2, 3]


def test_no_shard_joins_as_long_as_it_is_not_known_who_is_drained() -> None:
    starting = replace(wanted(0, 1, 2, 3), excluded_known=False)
    assert nodes_of(starting.interval(current(0, 1, 2))) == [0, 1, 2]


def test_a_shard_leaves_before_that_is_known() -> None:
    starting = replace(wanted(0, 1, 3), excluded_known=False)
    assert nodes_of(starting.interval(current(0, 1, 2))) == [0, 1]


def test_shards_join_all_the_same_where_the_others_could_store_nothing() -> None:
    starting = replace(wanted(0, 3, 4), excluded_known=False)
    assert nodes_of(starting.interval(current(0, 1, 2))) == [0, 3, 4]


def test_a_log_that_begins_gets_what_is_wanted() -> None:
    assert nodes_of(replace(wanted(0, 1, 2), excluded_known=False).interval(None)) == [0, 1, 2]


def test_whoever_has_an_older_cluster_file_asks_for_nothing() -> None:
    assert wanted(0, 1, 2).interval(current(0, 3, config_version=2)) is None
