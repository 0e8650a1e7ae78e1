"""What recovery is told about shards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from logdevice_py.core.ids import EVENT_LOG_DELTAS, Generation, LogId, NodeId, metadata_log_of, shard_id
from logdevice_py.placement.failure_domains import Authority
from sequencer.recovery_cluster import NodeRecoveryCluster

SHARD = shard_id(NodeId(4))
FIRST = Generation(1)


@pytest.fixture
def cluster() -> NodeRecoveryCluster:
    return NodeRecoveryCluster(cast(Any, SimpleNamespace()))


@pytest.mark.parametrize("log", [LogId(1), metadata_log_of(LogId(1))])
def test_a_dead_node_is_not_waited_for_by_logs_of_users_when_the_event_log_says_so(
    cluster: NodeRecoveryCluster, log: LogId
) -> None:
    cluster.presumed_lost = frozenset({SHARD})
    assert cluster.authority(log, SHARD, FIRST) is Authority.FULLY_AUTHORITATIVE
    cluster.awaited = {SHARD: FIRST}
    assert cluster.authority(log, SHARD, FIRST) is Authority.UNAVAILABLE
    cluster.lost = {SHARD: FIRST}
    assert cluster.authority(log, SHARD, FIRST) is Authority.UNDERREPLICATION
    assert cluster.authority(log, SHARD, Generation(2)) is Authority.FULLY_AUTHORITATIVE


@pytest.mark.parametrize("log", [EVENT_LOG_DELTAS, metadata_log_of(EVENT_LOG_DELTAS)])
def test_for_the_event_log_itself_without_it(cluster: NodeRecoveryCluster, log: LogId) -> None:
    cluster.presumed_lost = frozenset({SHARD})
    assert cluster.authority(log, SHARD, FIRST) is Authority.UNAVAILABLE
