"""Nodesets of earlier epochs that are made wider: who joins, and in which domains."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logdevice_py.config.cluster import ClusterConfig, MetadataLogConfig, NodeConfig
from logdevice_py.config.location import Location
from logdevice_py.config.logs import LogTree
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import Epoch
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.metadata.widening import extended_labels, lacks_places, widened

SHARDS = tuple(shard_id(NodeId(node)) for node in range(7))
TWO_RACKS = ReplicationProperty.parse("rack:2,node:3")


def cluster_of(racks: str, *, excluded: str = "") -> ClusterConfig:
    """A node for each letter, in the rack of that name."""
    nodes = {
        NodeId(node): NodeConfig(node=NodeId(node), host="127.0.0.1", port=4000 + node, location=Location.parse(rack))
        for node, rack in enumerate(racks)
    }
    logs = LogTree.build(defaults={"replication": TWO_RACKS}, groups=[("/logs", 1, 100, {})])
    config = ClusterConfig(
        name="test",
        uuid=b"u" * 16,
        version=9,
        nodes=nodes,
        logs=logs,
        metadata_log=MetadataLogConfig(SHARDS[:3], ReplicationProperty.parse("node:2")),
        epoch_store="memory:",
    )
    return replace(config, excluded=frozenset(SHARDS[int(node)] for node in excluded))


class Heard:
    """All shards have generation 1 but those that are named here; some serve nobody."""

    def __init__(self, dead: str = "", **later: int) -> None:
        self._dead = {SHARDS[int(node)] for node in dead}
        self._later = {SHARDS[int(name[1:])]: Generation(generation) for name, generation in later.items()}

    def generation(self, shard: ShardId) -> Generation:
        return self._later.get(shard, Generation(1))

    def serves(self, shard: ShardId) -> bool:
        return shard not in self._dead


def of(nodes: str, config: ClusterConfig, replication: ReplicationProperty = TWO_RACKS) -> EpochInterval:
    nodeset = tuple((SHARDS[int(node)], Generation(1)) for node in nodes)
    return EpochInterval(Epoch(1), nodeset, replication, 3).labelled(config.location)


def joined(interval: EpochInterval, config: ClusterConfig, heard: Heard, wanted: str = "") -> str | None:
    found = widened(interval, [SHARDS[int(node)] for node in wanted], config, heard)
    if found is None:
        return None
    assert found.narrow == interval
    assert set(interval.nodeset) < set(found.wide.nodeset)
    return "".join(str(shard >> 8) for shard in found.wide.joined)


def test_those_on_which_new_epochs_are_stored_join_first_and_others_only_as_far_as_they_are_needed() -> None:
    config = cluster_of("abababa", excluded="0")
    interval = of("012", config)
    assert lacks_places(interval, config, Heard())
    assert joined(interval, config, Heard(), "1256") == "56"
    assert joined(interval, config, Heard()) == "3"
    assert joined(interval, config, Heard(dead="3"), "35") == "5"


@pytest.mark.parametrize(
    ("excluded", "heard"),
    [("", Heard()), ("", Heard(dead="0")), ("3", Heard())],
    ids=["nobody is gone", "one is away", "one is gone, and the others suffice"],
)
def test_a_nodeset_that_is_not_short_of_shards_stays_as_it_is(excluded: str, heard: Heard) -> None:
    config = cluster_of("abababa", excluded=excluded)
    interval = of("012" if not excluded else "0123", config)
    assert not lacks_places(interval, config, heard)
    assert joined(interval, config, heard, "456") is None


def test_a_shard_that_began_anew_is_gone_and_cannot_join_where_it_was() -> None:
    config = cluster_of("aba")
    interval = of("012", config)
    assert lacks_places(interval, config, Heard(N0=2))
    assert joined(interval, config, Heard(N0=2), "012") is None


def test_with_one_gone_those_that_are_dead_give_no_place_either() -> None:
    config = cluster_of("abababa", excluded="0")
    interval = of("0123", config)
    assert not lacks_places(interval, config, Heard(dead="3"))
    assert joined(interval, config, Heard(dead="3")) == "4"


def test_where_no_shard_helps_nothing_is_changed() -> None:
    config = cluster_of("aab", excluded="2")
    interval = of("012", config)
    assert joined(interval, config, Heard()) is None
    config = cluster_of("aabaa", excluded="2")
    assert joined(of("012", config), config, Heard(), "034") is None, "copies in two racks"


def test_what_could_not_be_replicated_before_is_not_widened() -> None:
    """A scope with too few domains proved nothing, and would with those that joined: entries that lie in one of them could be missed."""
    config = cluster_of("aaaab", excluded="0")
    assert joined(of("012", config), config, Heard(), "34") is None


def test_a_nodeset_without_labels_is_not_widened() -> None:
    config = cluster_of("abababa", excluded="0")
    assert joined(replace(of("012", config), labels=None), config, Heard(), "3") is None


def test_whoever_joins_is_labelled_by_the_file_in_force_and_those_that_were_there_keep_their_labels() -> None:
    before = cluster_of("abcabca")
    interval = of("012", before)
    now = cluster_of("abbabca", excluded="0")  # node 2 was moved to rack b
    found = widened(interval, [SHARDS[3], SHARDS[4], SHARDS[5]], now, Heard())
    assert found is not None
    wide = found.wide
    #                      0  1  2  3  4  5
    assert wide.labels == ((0, 1, 2, 0, 1, 3),)
    assert wide.config_version == 9
    assert wide.original == replace(interval, config_version=9)


def test_smaller_domains_lie_in_the_larger_ones_also_where_nodes_were_moved() -> None:
    replication = ReplicationProperty.parse("row:2,rack:3,node:4")
    before = [Location.parse(each) for each in ("r0.a", "r0.b", "r1.c", "r1.d")]
    now = [Location.parse(each) for each in ("r1.c", "r0.b", "r1.c", "r1.d", "r1.c", "r0.x", "r0.x", "r9.y")]
    shards = [shard_id(NodeId(node)) for node in range(8)]
    nodeset = tuple((shard, Generation(1)) for shard in shards[:4])
    interval = EpochInterval(Epoch(1), nodeset, replication).labelled(lambda shard: before[shard >> 8])
    labels = extended_labels(interval.domains(lambda shard: None), shards[4:], lambda shard: now[shard >> 8])
    assert labels == ((0, 0, 1, 1, 0, 0, 0, 2), (0, 1, 2, 3, 0, 4, 4, 5))
