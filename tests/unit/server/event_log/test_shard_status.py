"""What nodes tell clients of lost shards."""

from __future__ import annotations

import random

from client.read.sender_state import Sender
from client.read.shard_statuses import ShardStatuses
from logdevice_py.core.ids import Generation, InstanceId, NodeId, PeerId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Outbox, Send, TimerWheel
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.event_log.events import Event, RebuildMode, ShardAbortRebuild, ShardIsRebuilt, ShardNeedsRebuild
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.protocol.messages import ShardStatus
from server.node import Node
from server.node_settings import NodeSettings
from tests.unit.server.event_log.test_replica import CONFIG
from tests.unit.storage_node.fakes import SHARDS

CLIENT = PeerId(-1)
FIRST, SECOND = Generation(1), Generation(2)
ALL = tuple((shard, FIRST) for shard in SHARDS)
LOST = SHARDS[4]


class Bench:
    """A node, and a client that connects to it now and then."""

    def __init__(self) -> None:
        self.outbox = Outbox()
        self.node = Node(
            NodeId(0),
            InstanceId(1),
            CONFIG,
            NodeSettings.of(CONFIG.settings),
            [],
            outbox=self.outbox,
            timers=TimerWheel(),
            rng=random.Random(1),
            wall=lambda: Timestamp(0),
        )
        self.statuses = ShardStatuses()

    def apply(self, *events: Event) -> None:
        assert self.node.rebuilding is not None
        state = self.node.rebuilding.set
        for event in events:
            state.apply(event, Lsn(state.version + 1))

    def finish(self) -> None:
        assert self.node.rebuilding is not None
        state = self.node.rebuilding.set
        self.apply(*(ShardIsRebuilt(donor, FIRST, state.round) for donor in list(state.donors)))

    def connect(self) -> None:
        self.node.on_peer_up(CLIENT, Micros(0))
        for each in self.outbox.take():
            if isinstance(each, Send) and isinstance(each.message, ShardStatus):
                self.statuses.take(each.message)
        self.node.on_peer_down(CLIENT, Micros(0), refused=False)

    def rows(self) -> list[tuple[int, int, int]]:
        assert self.node.rebuilding is not None
        return self.node.rebuilding.status_message().shards


def test_a_client_that_was_away_when_the_last_shard_came_back_hears_of_it() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(LOST, FIRST, RebuildMode.RESTORE, ALL))
    bench.finish()
    bench.connect()
    assert bench.statuses.is_empty(Sender(LOST, FIRST))
    bench.apply(ShardAbortRebuild(LOST, FIRST, RebuildMode.RESTORE))
    bench.connect()
    assert not bench.statuses.is_empty(Sender(LOST, FIRST))


def test_of_a_drained_shard_that_began_afresh_clients_are_told_what_became_of_the_generations_before() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(LOST, SECOND, RebuildMode.RELOCATE, ALL))
    assert bench.rows() == [(LOST, FIRST, Authority.UNDERREPLICATION.value)]


def test_that_what_it_held_before_is_rebuilt_stays_known() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(LOST, FIRST, RebuildMode.RESTORE, ALL))
    bench.finish()
    bench.apply(ShardNeedsRebuild(LOST, SECOND, RebuildMode.RELOCATE, ALL))
    assert bench.rows() == [(LOST, FIRST, Authority.AUTHORITATIVE_EMPTY.value)]
