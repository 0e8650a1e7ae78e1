"""What nodes tell clients of lost shards."""

from __future__ import annotations

import random
from unittest import mock

from client.read.sender_state import Sender, SenderStatus
from client.read.shard_statuses import ShardStatuses
from client.session import ClientSession
from logdevice_py.core.ids import Generation, InstanceId, NodeId, PeerId, ShardId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import Outbox, Send, TimerQueue
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.event_log.events import Event, RebuildMode, ShardAbortRebuild, ShardIsRebuilt, ShardNeedsRebuild
from logdevice_py.event_log.rebuilding_set import RebuildingShard
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.protocol.framing import decode_frame, encode_frame
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
            timers=TimerQueue(),
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
                self.statuses.take(PeerId(0), each.message)
        self.node.on_peer_down(CLIENT, Micros(0), refused=False)

    def rows(self) -> list[tuple[int, int, int]]:
        assert self.node.rebuilding is not None
        return [row for message in self.node.rebuilding.status_messages() for row in message.shards]


def test_a_client_that_was_away_when_the_last_shard_came_back_hears_of_it() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(LOST, FIRST, RebuildMode.RESTORE, ALL))
    bench.finish()
    bench.connect()
    assert bench.statuses.is_empty(Sender(LOST, FIRST))
    bench.apply(ShardAbortRebuild(LOST, FIRST, RebuildMode.RESTORE))
    bench.connect()
    assert not bench.statuses.is_empty(Sender(LOST, FIRST))


def test_of_a_drained_shard_in_a_new_generation_clients_are_told_what_became_of_the_generations_before() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(LOST, SECOND, RebuildMode.RELOCATE, ALL))
    assert bench.rows() == [(LOST, FIRST, Authority.UNDERREPLICATION.value)]


def test_that_what_it_held_before_is_rebuilt_stays_known() -> None:
    bench = Bench()
    bench.apply(ShardNeedsRebuild(LOST, FIRST, RebuildMode.RESTORE, ALL))
    bench.finish()
    bench.apply(ShardNeedsRebuild(LOST, SECOND, RebuildMode.RELOCATE, ALL))
    assert bench.rows() == [(LOST, FIRST, Authority.AUTHORITATIVE_EMPTY.value)]


MANY = [ShardId(number) for number in range(1000, 1000 + 10_000)]


def parts(version: int, shards: list[ShardId] = MANY) -> list[ShardStatus]:
    """What a node tells of so many lost shards."""
    bench = Bench()
    assert bench.node.rebuilding is not None
    state = bench.node.rebuilding.set
    state.version = Lsn(version)
    state.shards = {
        shard: RebuildingShard(shard, Generation(2**31 - 1), RebuildMode.RESTORE, Lsn(1), recoverable=False)
        for shard in shards
    }
    return bench.node.rebuilding.status_messages()


class TestParts:
    """A status that no frame holds."""

    def test_each_fits_a_frame_and_all_together_say_it(self) -> None:
        statuses, messages = ShardStatuses(), parts(5)
        assert [(each.part, each.parts) for each in messages] == [(0, 3), (1, 3), (2, 3)]
        taken = [statuses.take(PeerId(0), decode_frame(b"".join(encode_frame(each)))) for each in messages]
        assert taken == [False, False, True]
        assert told(statuses, MANY) == [True] * len(MANY)

    def test_until_all_are_there_what_was_said_before_holds(self) -> None:
        statuses = ShardStatuses()
        assert [statuses.take(PeerId(0), each) for each in parts(5, [LOST])] == [True]
        for each in parts(6)[:-1]:
            statuses.take(PeerId(0), each)
        assert told(statuses, [LOST, MANY[0]]) == [True, False]

    def test_one_that_was_lost_is_not_made_up_for_by_those_of_another_version_or_node(self) -> None:
        statuses, old, new = ShardStatuses(), parts(5), parts(6)
        for peer, message in [
            (0, old[0]),
            (0, old[2]),
            (0, old[1]),
            (0, new[0]),
            (1, new[2]),
            (0, old[1]),
            (0, new[2]),
        ]:
            assert not statuses.take(PeerId(peer), message)
        assert told(statuses, MANY[:1]) == [False]
        assert [statuses.take(PeerId(0), each) for each in new] == [False, False, True]

    def test_those_of_two_nodes_may_come_between_each_other(self) -> None:
        statuses, old, new = ShardStatuses(), parts(5), parts(6, MANY[1:])
        taken = [
            statuses.take(PeerId(peer), message)
            for peer, message in [(0, old[0]), (1, new[0]), (0, old[1]), (1, new[1]), (1, new[2]), (0, old[2])]
        ]
        assert taken == [False, False, False, False, True, False]
        assert told(statuses, MANY[:2]) == [False, True]

    def test_what_was_begun_on_a_connection_that_ended_does_not_go_on_on_the_next(self) -> None:
        statuses, messages = ShardStatuses(), parts(5)
        for each in messages[:2]:
            statuses.take(PeerId(0), each)
        statuses.forget_begun(PeerId(0))
        assert not statuses.take(PeerId(0), messages[2])
        assert told(statuses, MANY[:1]) == [False]

    def test_a_node_tells_a_client_all_of_them(self) -> None:
        bench = Bench()
        assert bench.node.rebuilding is not None
        bench.node.rebuilding.set.shards = {}
        state = bench.node.rebuilding.set
        state.version = Lsn(5)
        state.shards = {
            shard: RebuildingShard(shard, FIRST, RebuildMode.RESTORE, Lsn(1), recoverable=False) for shard in MANY
        }
        bench.connect()
        assert told(bench.statuses, MANY) == [True] * len(MANY)


def told(statuses: ShardStatuses, shards: list[ShardId]) -> list[bool]:
    """Whether nobody waits for a shard any more."""
    senders = [Sender(shard, FIRST) for shard in shards]
    for sender in senders:
        sender.status = SenderStatus.WAITING
    statuses.write_off(senders)
    return [sender.written_off for sender in senders]


def test_a_node_does_nothing_with_its_copy_of_an_idle_event_log_when_a_turn_ends() -> None:
    node = Bench().node
    assert node.rebuilding is not None
    session, ended = node.rebuilding.session, []
    with mock.patch.object(
        session, "on_turn_end", side_effect=lambda now: ended.append(ClientSession.on_turn_end(session, now))
    ):
        node.start(Micros(0))
        node.on_turn_end(Micros(0))
        assert ended, "it begins to read"
        ended.clear()
        for turn in range(3):
            node.on_turn_end(Micros(1 + turn))
        assert not ended
        node.rebuilding.replica.append_event(ShardNeedsRebuild(LOST, FIRST, RebuildMode.RESTORE, ALL), Micros(9))
        node.on_turn_end(Micros(9))
        assert ended
