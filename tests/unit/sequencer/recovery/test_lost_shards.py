"""What recovery makes of shards that are lost, and may come back or not."""

from __future__ import annotations

from logdevice_py.config.location import NOWHERE, Location
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, LogId, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import Epoch
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.placement.failure_domains import Authority, FMajority
from sequencer.recovery.recovery_shard import RecoveryShards, RecoveryShardState

SHARDS = tuple(shard_id(NodeId(node)) for node in range(5))


class Cluster:
    """A `RecoveryCluster`."""

    def __init__(self) -> None:
        self.authorities: dict[ShardId, Authority] = {}

    def location(self, shard: ShardId) -> Location | None:
        return NOWHERE

    def in_cluster(self, shard: ShardId) -> bool:
        return True

    def has_left(self, shard: ShardId, since: int) -> bool:
        return False

    def is_writable(self, shard: ShardId) -> bool:
        return True

    def authority(self, log: LogId, shard: ShardId, generation: Generation) -> Authority:
        return self.authorities.get(shard, Authority.FULLY_AUTHORITATIVE)

    def is_alive(self, node: NodeId) -> bool:
        return True


def judged(replicate: str, lost: dict[int, Authority]) -> FMajority:
    """What the others prove when these shards are lost and say nothing."""
    cluster = Cluster()
    cluster.authorities = {SHARDS[node]: authority for node, authority in lost.items()}
    nodeset = tuple((shard, Generation(1)) for shard in SHARDS)
    shards = RecoveryShards(LogId(1), EpochInterval(Epoch(1), nodeset, ReplicationProperty.parse(replicate)), cluster)
    for shard, member in shards.members.items():
        if shard not in cluster.authorities:
            member.state = RecoveryShardState.SEALED
    shards.refresh_authority()
    return shards.enough(RecoveryShardState.SEALED)


def test_a_lost_shard_without_which_it_is_certain_is_not_waited_for() -> None:
    assert judged("node:2", {4: Authority.UNAVAILABLE}) is FMajority.COMPLETE


def test_nor_where_what_is_left_could_not_store_an_entry() -> None:
    lost = {3: Authority.UNAVAILABLE, 4: Authority.UNAVAILABLE}
    assert judged("node:3", lost) is FMajority.COMPLETE


def test_where_it_is_not_certain_the_data_that_may_come_back_is_waited_for() -> None:
    lost = {3: Authority.UNAVAILABLE, 4: Authority.UNDERREPLICATION}
    assert judged("node:2", lost) is FMajority.NONE


def test_until_nobody_hopes_for_it() -> None:
    lost = {3: Authority.UNDERREPLICATION, 4: Authority.UNDERREPLICATION}
    assert judged("node:2", lost) is FMajority.NON_AUTHORITATIVE
