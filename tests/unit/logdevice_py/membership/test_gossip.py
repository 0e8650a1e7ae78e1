from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from logdevice_py.config.cluster import ClusterConfig, MetadataLogConfig, NodeConfig, default_metadata_nodeset
from logdevice_py.config.location import Location
from logdevice_py.config.logs import LogTree
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, InstanceId, NodeId, shard_id
from logdevice_py.core.machine import Outbox, TimerQueue
from logdevice_py.core.units import Micros
from logdevice_py.membership.cluster_view import sees_too_few
from logdevice_py.membership.gossip import GossipMachine
from logdevice_py.membership.settings import MembershipSettings
from logdevice_py.protocol.framing import decode_frame, encode_frame
from logdevice_py.protocol.messages import Gossip, GossipNode, NodeState

INTERVAL = MembershipSettings().gossip_interval_us
THRESHOLD = MembershipSettings().gossip_threshold


def config_of(nodes: int, regions: Sequence[str] = ()) -> ClusterConfig:
    where = [Location.parse(f"{region}....") for region in regions] or [Location.parse("")] * nodes
    members = {NodeId(n): NodeConfig(node=NodeId(n), host="h", port=1, location=where[n]) for n in range(nodes)}
    return ClusterConfig(
        name="c",
        uuid=b"u" * 16,
        version=1,
        nodes=members,
        logs=LogTree.build(),
        metadata_log=MetadataLogConfig(default_metadata_nodeset(members), ReplicationProperty.parse("node:1")),
        epoch_store="memory:",
    )


class GossipNetwork:
    """Nodes that gossip under virtual time; `cut` says which messages are lost."""

    def __init__(self, nodes: int, *, regions: Sequence[str] = (), **settings: int) -> None:
        self.config = config_of(nodes, regions)
        self.settings = MembershipSettings(**settings)
        self.now = Micros(0)
        self.machines: dict[int, GossipMachine] = {}
        self.timers: dict[int, TimerQueue] = {}
        self.outboxes: dict[int, Outbox] = {}
        self.paused: set[int] = set()
        self.cut: Callable[[int, int], bool] = lambda sender, receiver: False
        for node in range(nodes):
            self.boot(node, instance=1)

    def boot(
        self, node: int, instance: int, generation: int = 1, *, failed: bool = False, keeps_event_log: bool = False
    ) -> None:
        self.outboxes[node], self.timers[node] = Outbox(), TimerQueue()
        self.machines[node] = GossipMachine(
            NodeId(node),
            InstanceId(instance),
            self.config,
            settings=self.settings,
            outbox=self.outboxes[node],
            timers=self.timers[node],
            rng=random.Random(node),
            generations={} if failed else {shard_id(NodeId(node)): Generation(generation)},
            failed=[shard_id(NodeId(node))] if failed else [],
            keeps_event_log=keeps_event_log,
        )
        self.machines[node].start(self.now)

    def run(self, intervals: int) -> None:
        for _ in range(intervals):
            self.now = Micros(self.now + INTERVAL)
            for node in sorted(self.machines):
                if node not in self.paused:
                    self.timers[node].advance(self.now)
            self.deliver()

    def deliver(self) -> None:
        for sender in sorted(self.outboxes):
            if sender in self.paused:
                continue
            for effect in self.outboxes[sender].take():
                receiver = effect.to
                if receiver in self.machines and receiver not in self.paused and not self.cut(sender, receiver):
                    self.machines[receiver].on_gossip(effect.message, self.now)

    def die(self, node: int) -> None:
        del self.machines[node], self.timers[node], self.outboxes[node]

    def states(self, viewer: int) -> list[NodeState]:
        return [self.machines[viewer].state(NodeId(n)) for n in range(len(self.config.nodes))]


ALIVE, DEAD, STARTING, LEAVING = NodeState.ALIVE, NodeState.DEAD, NodeState.STARTING, NodeState.LEAVING


def test_all_find_each_other_and_learn_generations() -> None:
    net = GossipNetwork(5)
    net.run(6)
    for viewer in range(5):
        assert net.states(viewer) == [ALIVE] * 5
        assert net.machines[viewer].generation(shard_id(NodeId(3))) == 1
        assert not net.machines[viewer].isolated()


class TestFailedShards:
    def told_by_n1(self, failed: int, sequence: int = 1_000) -> Gossip:
        """That this shard of the first run of N2 failed."""
        row = GossipNode(NodeId(2), InstanceId(1), 0, 0, [Generation(1)], [failed])
        return Gossip(node=NodeId(1), instance=InstanceId(1), sequence=sequence, config_version=1, nodes=[row])

    def test_all_hear_of_a_failed_disk_until_the_node_is_started_anew(self) -> None:
        net, shard = GossipNetwork(5), shard_id(NodeId(3))
        net.run(6)
        before = net.machines[0].version
        net.machines[3].note_failed(shard)
        assert not net.machines[3].serves(shard)
        net.run(2)
        assert net.machines[0].version > before
        assert [net.machines[viewer].serves(shard) for viewer in range(5)] == [False] * 5
        assert [net.machines[viewer].serves(shard_id(NodeId(2))) for viewer in range(5)] == [True] * 5
        assert net.states(0) == [ALIVE] * 5
        net.run(20)
        assert not net.machines[0].serves(shard)
        net.boot(3, instance=2)
        net.run(2)
        assert [net.machines[viewer].serves(shard) for viewer in range(5)] == [True] * 5

    def test_also_of_one_that_could_not_be_opened_and_from_nodes_that_heard_of_it(self) -> None:
        net, shard = GossipNetwork(3), shard_id(NodeId(2))
        net.boot(2, instance=2, failed=True)
        net.cut = lambda sender, receiver: {sender, receiver} == {0, 2}
        net.run(6)
        assert net.states(0) == [ALIVE] * 3
        assert not net.machines[0].serves(shard)

    def test_what_an_earlier_run_told_is_not_believed_of_a_later_one(self) -> None:
        net, shard = GossipNetwork(3), shard_id(NodeId(2))
        net.run(6)
        net.boot(2, instance=2)
        net.run(2)
        net.machines[0].on_gossip(self.told_by_n1(failed=0), net.now)
        assert net.machines[0].serves(shard)

    def test_shards_that_the_node_does_not_have_are_not_told_further(self) -> None:
        net = GossipNetwork(3)
        net.run(6)
        net.machines[0].on_gossip(self.told_by_n1(failed=7), net.now)
        assert net.machines[0].serves(shard_id(NodeId(2), 7))
        net.machines[0].on_gossip(self.told_by_n1(failed=0, sequence=1_001), net.now)
        assert not net.machines[0].serves(shard_id(NodeId(2)))

    def test_the_shards_of_a_dead_node_serve_nobody(self) -> None:
        net = GossipNetwork(3)
        net.run(6)
        net.die(2)
        net.run(THRESHOLD + 2)
        assert not net.machines[0].serves(shard_id(NodeId(2)))


def test_a_node_that_just_started_sequences_nothing() -> None:
    net = GossipNetwork(3)
    assert net.states(0)[0] is STARTING
    assert not net.machines[0].may_sequence(NodeId(0))
    assert net.machines[0].isolated()


def test_a_node_that_is_not_dialled_again_yet_does_not_take_the_others_for_dead() -> None:
    """Two nodes: one is restarted, and the other one dials it again only after a while."""
    net = GossipNetwork(2)
    net.run(6)
    net.die(1)
    net.run(3)
    net.cut = lambda sender, receiver: sender == 0
    net.boot(1, instance=2)
    net.run(THRESHOLD - 2)
    assert net.states(1) == [DEAD, STARTING], "it sequences nothing, though it may not call itself isolated"
    assert not net.machines[1].isolated()
    net.cut = lambda sender, receiver: False
    net.run(2)
    assert net.states(1) == [ALIVE, ALIVE]


def test_a_node_that_nobody_dials_is_on_its_own_after_the_threshold() -> None:
    net = GossipNetwork(2)
    net.die(0)
    net.run(THRESHOLD)
    assert net.states(1) == [DEAD, ALIVE]


def test_a_silent_node_is_dead_after_the_threshold_and_not_before() -> None:
    net = GossipNetwork(5)
    net.run(6)
    net.die(4)
    net.run(THRESHOLD)
    assert net.states(0)[4] is ALIVE
    net.run(3)
    assert [net.states(viewer)[4] for viewer in range(4)] == [DEAD] * 4


def test_a_refused_connection_is_death_at_once_until_the_node_itself_speaks() -> None:
    net = GossipNetwork(5)
    net.run(6)
    version = net.machines[0].version
    net.machines[0].on_refused(NodeId(4), net.now)
    assert net.states(0)[4] is DEAD
    assert net.machines[0].version > version
    net.cut = lambda sender, receiver: sender == 4
    net.run(2)
    assert net.states(0)[4] is DEAD, "what others heard earlier does not bring it back"
    net.cut = lambda sender, receiver: False
    net.run(1)
    assert net.states(0)[4] is ALIVE


def test_a_later_run_of_a_node_is_told_apart_from_the_one_that_died() -> None:
    net = GossipNetwork(3)
    net.run(6)
    net.die(2)
    net.machines[0].on_refused(NodeId(2), net.now)
    net.boot(2, instance=2, generation=5)
    net.run(1)
    assert net.machines[0].state(NodeId(2)) is STARTING
    assert net.machines[1].instance(NodeId(2)) == 2
    assert net.machines[1].generation(shard_id(NodeId(2))) == 5
    net.run(5)
    assert net.states(0) == [ALIVE] * 3


def test_a_later_run_that_is_heard_of_when_it_has_started_is_noticed_by_its_generations() -> None:
    net = GossipNetwork(3)
    net.run(6)
    before = net.machines[0].version
    net.cut = lambda sender, receiver: receiver == 0
    net.die(2)
    net.boot(2, instance=2, generation=2)
    net.run(5)
    net.cut = lambda sender, receiver: False
    net.run(1)
    assert net.states(0) == [ALIVE] * 3
    assert net.machines[0].generation(shard_id(NodeId(2))) == 2
    assert net.machines[0].version > before


def test_a_paused_node_does_not_find_everybody_dead_when_it_wakes_up() -> None:
    net = GossipNetwork(5)
    net.run(6)
    net.paused.add(0)
    net.run(100)
    assert net.states(1)[0] is DEAD
    net.paused.clear()
    net.now = Micros(net.now + INTERVAL)
    net.timers[0].advance(net.now)
    assert net.states(0) == [ALIVE] * 5
    net.run(3)
    assert net.states(1)[0] is ALIVE


def test_a_node_that_only_some_can_reach_stays_alive_for_all() -> None:
    net = GossipNetwork(5)
    net.run(6)
    net.cut = lambda sender, receiver: {sender, receiver} == {0, 4}
    net.run(50)
    assert net.states(0)[4] is ALIVE


def test_the_smaller_side_of_a_partition_knows_that_it_is_isolated() -> None:
    net = GossipNetwork(5)
    net.run(6)
    net.cut = lambda sender, receiver: (sender < 2) != (receiver < 2)
    net.run(THRESHOLD + 3)
    assert [net.machines[node].isolated() for node in range(5)] == [True, True, False, False, False]


def test_where_there_are_three_regions_the_part_with_fewer_of_them_is_isolated() -> None:
    net = GossipNetwork(7, regions=["us", "us", "us", "us", "us", "eu", "ap"])
    net.run(6)
    net.cut = lambda sender, receiver: (sender < 5) != (receiver < 5)
    net.run(THRESHOLD + 3)
    assert [net.machines[node].isolated() for node in range(7)] == [True] * 5 + [False] * 2


def test_one_node_of_a_region_that_is_heard_of_is_enough() -> None:
    assert not sees_too_few([("us", False)] * 8 + [("us", True), ("eu", True), ("ap", False)])
    assert sees_too_few([("us", False)] * 2 + [("us", True), ("eu", False), ("ap", False)])
    assert sees_too_few([("us", False)] * 3 + [("us", True), ("eu", True)]), "of two regions neither is a majority"


def test_nodes_that_move_to_other_regions_are_counted_there() -> None:
    net = GossipNetwork(6)
    net.run(6)
    for node in (2, 3, 4, 5):
        net.die(node)
    net.run(THRESHOLD + 3)
    assert net.machines[0].isolated()
    net.machines[0].on_config(config_of(6, ["us", "eu", "ap", "ap", "ap", "ap"]), net.now)
    assert not net.machines[0].isolated()


def test_a_leaving_node_is_still_reached_but_sequences_nothing() -> None:
    net = GossipNetwork(3)
    net.run(6)
    net.machines[2].leave(net.now)
    net.deliver()
    view = net.machines[0]
    assert view.state(NodeId(2)) is LEAVING
    assert view.is_alive(NodeId(2))
    assert not view.may_sequence(NodeId(2))


def test_a_newer_cluster_file_is_heard_of_also_from_a_node_that_the_own_file_does_not_know() -> None:
    net = GossipNetwork(2)
    assert net.machines[0].config_version == 1
    net.machines[0].on_gossip(
        Gossip(node=NodeId(7), instance=InstanceId(1), sequence=1, config_version=3, nodes=[]), net.now
    )
    assert net.machines[0].config_version == 3
    assert net.machines[0].state(NodeId(7)) is DEAD


def test_large_clusters_gossip_to_a_few_and_nobody_living_is_declared_dead() -> None:
    net = GossipNetwork(40)
    net.run(20)
    for _ in range(100):
        net.run(1)
        for viewer in (0, 17, 39):
            assert DEAD not in net.states(viewer)
    net.die(7)
    net.run(THRESHOLD + 6)
    assert all(net.machines[viewer].state(NodeId(7)) is DEAD for viewer in net.machines)


def test_gossip_of_an_earlier_run_is_dropped() -> None:
    net = GossipNetwork(2)
    net.run(6)
    net.now = Micros(net.now + INTERVAL)
    net.timers[1].advance(net.now)
    old = net.outboxes[1].take()[-1].message
    net.die(1)
    net.boot(1, instance=2)
    net.run(2)
    stale = net.machines[0].metrics.gossips_stale
    net.machines[0].on_gossip(old, net.now)
    assert net.machines[0].metrics.gossips_stale == stale + 1
    assert net.machines[0].instance(NodeId(1)) == 2


def test_what_a_liar_tells_is_passed_on_in_a_form_that_others_take() -> None:
    """Values at the edge of what is declared must not make this node's own gossip invalid: all others would disconnect it."""
    network = GossipNetwork(5)
    network.run(10)
    rows = [GossipNode(node, 2**64 - 1, 2**32 - 1, 255, [2**32 - 1] * 128) for node in (0, 2, 3, 4, 77)]
    liar = Gossip(node=NodeId(1), instance=InstanceId(2**64 - 1), sequence=2**64 - 1, config_version=9, nodes=rows)
    network.machines[0].on_gossip(liar, network.now)
    network.now = Micros(network.now + INTERVAL)
    network.timers[0].advance(network.now)
    sent = [effect.message for effect in network.outboxes[0].take()]
    assert sent
    for message in sent:
        frame = b"".join(encode_frame(message))
        assert len(frame) < 1000
        assert decode_frame(frame) == message


def test_who_keeps_an_event_log_is_heard_also_from_others_that_do_not_know_of_it() -> None:
    network = GossipNetwork(3)
    network.run(20)
    assert not any(network.machines[0].keeps_event_log(NodeId(node)) for node in range(3))
    before = network.machines[0].version
    network.boot(1, instance=2, keeps_event_log=True)
    network.run(2)
    assert [network.machines[0].keeps_event_log(NodeId(node)) for node in range(3)] == [False, True, False]
    assert network.machines[1].keeps_event_log(NodeId(1))
    assert network.machines[0].version > before
    # one of an earlier version passes the other flags on alone
    forwarded = Gossip(
        node=NodeId(2),
        instance=InstanceId(1),
        sequence=10_000,
        config_version=1,
        nodes=[GossipNode(NodeId(1), InstanceId(2), 0, 0, [Generation(1)])],
    )
    network.machines[0].on_gossip(forwarded, network.now)
    assert network.machines[0].keeps_event_log(NodeId(1))
    network.boot(1, instance=3)
    network.run(2)
    assert not network.machines[0].keeps_event_log(NodeId(1)), "it is another run"
