"""What the simulated network does to what is sent over it."""

from __future__ import annotations

import random

import pytest

from logdevice_py.core.ids import InstanceId, LogId, NodeId, ShardId
from logdevice_py.core.lsn import LSN_OLDEST
from logdevice_py.core.machine import Outbox, TimerQueue
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.protocol.messages import PROTOCOL_VERSION_MAX, Release
from logdevice_py.protocol.versions import Versions
from logdevice_py.shell.introduction import Identity
from logdevice_py.shell.settings import RuntimeSettings
from logdevice_py.simulation.clock import SimClock
from logdevice_py.simulation.connection import Bandwidth, End
from logdevice_py.simulation.links import LinkFault
from logdevice_py.simulation.network import Network, NetworkSettings
from logdevice_py.simulation.process import Process
from logdevice_py.simulation.scheduler import Scheduler
from logdevice_py.simulation.trace import Trace
from tests.simulation.deliberate import FAULTS


class Recorder:
    """A machine that keeps what it is told."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.story: list[str] = []

    def on_message(self, peer: int, message: Release, now: int) -> None:
        self.got.append(message.logs[0][0])

    def on_peer_up(self, peer: int, now: int) -> None:
        self.story.append("up")

    def on_peer_down(self, peer: int, now: int, *, refused: bool) -> None:
        self.story.append("refused" if refused else "down")

    def on_turn_end(self, now: int) -> None:
        """Nothing is left to do."""

    def on_congestion(self, peer: int, congested: bool, now: int) -> None:
        self.story.append("congested" if congested else "drained")


class Pair:
    """Node 0 sends numbered messages to node 1."""

    def __init__(
        self, seed: int = 1, runtime: RuntimeSettings | None = None, versions: Versions | None = None, **settings: float
    ) -> None:
        """
        Args:
            runtime: settings of node 1.
            versions: of the protocol, spoken by node 1.
        """
        self.scheduler = Scheduler()
        self.trace = Trace()
        self.trace.watch(self.scheduler)
        quiet = {"slow_probability": 0.0, "chop_probability": 0.0, **settings}
        self.network = Network(self.scheduler, random.Random(seed), NetworkSettings(**quiet))  # type: ignore[arg-type]
        self.machines = [Recorder(), Recorder()]
        self.outboxes = [Outbox(), Outbox()]
        self.members = {NodeId(0), NodeId(1)}
        """Of the cluster file of node 1."""
        self.dead: set[NodeId] = set()
        """That count as dead."""
        self._how = (seed, runtime, versions or Versions())
        self.processes = [self._process(node) for node in (0, 1)]
        self.sent = 0

    def restart(self, node: int) -> None:
        """End a process, and begin another one."""
        self.processes[node].kill(machine=False)
        self.processes[node] = self._process(node)

    def _process(self, node: int) -> Process:
        seed, runtime, versions = self._how
        machine = self.machines[node]
        return Process(
            f"N{node}",
            node,
            machine,  # type: ignore[arg-type]
            self.outboxes[node],
            TimerQueue(),
            identity=Identity(
                "c", bytes(16), NodeId(node), InstanceId(1), 1, versions=versions if node else Versions()
            ),
            is_member=lambda member: member in self.members,
            effects={},
            network=self.network,
            clock=SimClock(self.scheduler),
            rng=random.Random(seed + node),
            trace=self.trace,
            turn_max=0,
            settings=runtime if node else None,
            is_alive=lambda member: member not in self.dead,
            on_congestion=machine.on_congestion,
        )

    def send(self, count: int = 1, padding: int = 0) -> None:
        def event(now: int) -> None:
            for _ in range(count):
                self.sent += 1
                logs = [(LogId(self.sent), LSN_OLDEST)] * (1 + padding)
                self.outboxes[0].send(1, Release(shard=ShardId(256), logs=logs))  # type: ignore[arg-type]

        self.processes[0].event(event)

    def strangers(self, count: int) -> list[End]:
        """Connections to node 1 over which nothing is said."""
        ends: list[End] = []
        for _ in range(count):
            self.network.dial(0, 1, lambda end, refused: ends.append(end))  # type: ignore[arg-type]
            self.pass_time(10 * MILLISECOND)
        return ends

    def pass_time(self, micros: int = SECOND) -> None:
        self.scheduler.run_until(self.scheduler.now + micros)

    def send_slowly(self, count: int) -> None:
        for _ in range(count):
            self.send()
            self.pass_time(20 * MILLISECOND)

    @property
    def got(self) -> list[int]:
        return self.machines[1].got

    def connected_again(self) -> None:
        """What is sent now arrives."""
        self.pass_time(2 * SECOND)
        self.send()
        self.pass_time()
        assert self.got[-1:] == [self.sent]

    def connected(self) -> Pair:
        self.send()
        self.pass_time()
        assert self.got == [1]
        return self


class TestOrder:
    def test_messages_cut_into_pieces_come_out_whole_and_in_order(self) -> None:
        pair = Pair(chop_probability=1.0, delay_max=5000).connected()
        for _ in range(200):
            pair.send(3)
            pair.pass_time(MILLISECOND)
        pair.pass_time()
        assert pair.got == list(range(1, pair.sent + 1))

    def test_a_connection_that_breaks_loses_a_suffix_and_is_dialled_again(self) -> None:
        for seed in range(20):
            pair = Pair(seed).connected()
            pair.send(1)
            pair.send(1)
            pair.network.break_connection(pair.network.open_ends()[0])
            pair.pass_time()
            pair.send()
            pair.pass_time()
            assert pair.got[-1] == 4
            assert pair.got in ([1, 4], [1, 2, 4], [1, 2, 3, 4])


class TestIntroductions:
    def test_nothing_is_sent_before_the_node_has_answered(self) -> None:
        pair = Pair(delay_min=1000, delay_max=1000)
        pair.send()
        pair.pass_time(3500)
        assert pair.machines[0].story == ["up"]
        assert pair.got == []
        pair.pass_time(1000)
        assert pair.got == [1]

    def test_a_node_that_is_not_in_the_cluster_file_is_refused_until_it_is(self) -> None:
        pair = Pair()
        pair.members.discard(NodeId(0))
        pair.send()
        pair.pass_time()
        assert pair.machines[0].story == ["down"]
        pair.send_slowly(100)
        assert pair.got == []
        assert "refused" not in pair.machines[0].story
        pair.members.add(NodeId(0))
        pair.pass_time(2 * SECOND)
        pair.send()
        pair.pass_time()
        assert pair.got == [pair.sent]

    def test_processes_without_a_common_version_do_not_hear_each_other(self) -> None:
        later = Versions(PROTOCOL_VERSION_MAX + 1, PROTOCOL_VERSION_MAX + 1)
        pair = Pair(versions=later)
        pair.send()
        pair.pass_time()
        assert pair.machines[0].story == ["down"]
        assert pair.got == []
        pair = Pair(versions=Versions(PROTOCOL_VERSION_MAX, PROTOCOL_VERSION_MAX + 1))
        pair.connected()

    @pytest.mark.parametrize("source", [0, 1])
    def test_a_connection_that_is_cut_within_its_introduction_is_dialled_again(self, source: int) -> None:
        pair = Pair()
        fault = LinkFault(kind="cut", cut=1.0)
        pair.network.add_link_fault(source, 1 - source, fault)
        pair.send()
        pair.pass_time()
        assert pair.machines[0].story == ["down"]
        assert pair.network.effects["cut"] == 1
        assert pair.network.open_ends() == []
        pair.network.restore()
        pair.send()
        pair.pass_time()
        assert pair.got == [2]

    def test_an_introduction_that_is_not_answered_ends_the_dial_at_both_ends(self) -> None:
        pair = Pair()
        pair.processes[1].pause()
        pair.send()
        pair.pass_time(6 * SECOND)
        assert pair.machines[0].story == ["down"]
        pair.processes[1].resume()
        pair.pass_time()
        assert pair.network.open_ends() == []
        pair.connected_again()

    def test_a_dialler_that_says_nothing_is_disconnected(self) -> None:
        pair = Pair()
        end = pair.strangers(1)[0]
        pair.pass_time(4 * SECOND)
        assert not end.known_lost
        pair.pass_time(2 * SECOND)
        assert end.known_lost

    def test_a_process_that_dies_within_the_introduction_is_reached_when_it_is_back(self) -> None:
        pair = Pair(delay_min=1000, delay_max=1000)
        pair.send()
        pair.pass_time(1500)
        pair.restart(1)
        pair.pass_time()
        assert pair.machines[0].story == ["down"]
        pair.connected_again()

    def test_places_of_lost_connections_are_free_again(self) -> None:
        reconnect(Pair(runtime=RuntimeSettings(connections_per_node_max=2)))

    def test_connections_that_are_not_freed_are_noticed(self) -> None:
        with FAULTS["places_never_free"].planted(), pytest.raises(AssertionError):
            reconnect(Pair(runtime=RuntimeSettings(connections_per_node_max=2)))

    def test_a_node_with_too_many_connections_is_refused_until_one_ends(self) -> None:
        pair = Pair(runtime=RuntimeSettings(connections_per_node_max=1)).connected()
        pair.network.halve(pair.network.open_ends()[0], "half")
        story = pair.machines[0].story
        while "down" not in story:
            pair.pass_time()
        pair.pass_time(30 * SECOND)
        pair.connected_again()

    def test_addresses_have_so_many_connections(self) -> None:
        pair = Pair(runtime=RuntimeSettings(connections_per_address_max=1))
        assert [end.known_lost for end in pair.strangers(2)] == [False, True]

    def test_who_has_not_introduced_itself_for_longest_makes_way(self) -> None:
        pair = Pair(runtime=RuntimeSettings(connections_introducing_max=2))
        assert [end.known_lost for end in pair.strangers(3)] == [True, False, False]


def reconnect(pair: Pair) -> None:
    """Break the connection again and again."""
    for _ in range(6):
        pair.connected_again()
        pair.network.break_connection(pair.network.open_ends()[0])
        pair.pass_time(3 * SECOND)


class TestBadLinks:
    def test_a_flipped_bit_closes_the_connection_and_nothing_wrong_gets_through(self) -> None:
        pair = Pair().connected()
        fault = LinkFault(kind="corrupt", flip=1.0)
        pair.network.add_link_fault(0, 1, fault)
        pair.send_slowly(250)
        assert pair.got == [1]
        # after the first, introductions, with a pause after each
        assert pair.network.effects["corrupt"] > 6
        assert pair.network.effects["refused_frames"] > 6
        pair.network.remove_link_fault(0, 1, fault)
        pair.pass_time(3 * SECOND)
        pair.send()
        pair.pass_time()
        assert pair.got == [1, pair.sent]

    def test_a_reset_in_the_middle_of_a_frame_delivers_nothing_of_it(self) -> None:
        pair = Pair().connected()
        pair.network.add_link_fault(0, 1, LinkFault(kind="cut", cut=1.0))
        pair.send_slowly(10)
        assert pair.got == [1]
        pair.network.restore()
        pair.pass_time(3 * SECOND)
        pair.send()
        pair.pass_time()
        assert pair.got == [1, pair.sent]
        assert pair.network.effects["cut"] > 3

    def test_a_slow_link_delivers_everything_late_and_the_sender_is_told_to_hold_back(self) -> None:
        pair = Pair(output_bytes_congested=500).connected()
        fault = LinkFault(kind="slow", bytes_per_second=1000)
        pair.network.add_link_fault(0, 1, fault)
        for _ in range(10):
            pair.send(padding=30)
        pair.pass_time()
        assert len(pair.got) < 6
        assert "congested" in pair.machines[0].story
        pair.network.remove_link_fault(0, 1, fault)
        pair.pass_time()
        assert pair.got == list(range(1, 12))
        assert pair.machines[0].story[-1] == "drained"

    def test_a_lagging_link_delays_every_write_and_does_not_add_the_delays_up(self) -> None:
        pair = Pair().connected()
        pair.network.add_link_fault(0, 1, LinkFault(kind="lag", lag=SECOND))
        pair.send_slowly(200)
        assert 1 < len(pair.got) < 201
        pair.pass_time(SECOND)
        assert pair.got == list(range(1, 202))

    def test_machines_that_stand_apart_hear_of_each_other_later(self) -> None:
        pair = Pair(delay_max=1000, slow_probability=0.0).connected()
        pair.network.distances[0, 1] = SECOND
        got = len(pair.got)
        pair.send()
        pair.pass_time(SECOND - 1)
        assert len(pair.got) == got
        pair.pass_time(2001)
        assert len(pair.got) == got + 1

    def test_machines_share_what_leads_to_another_place(self) -> None:
        pair = Pair(delay_max=1000, slow_probability=0.0, chop_probability=0.0).connected()
        pair.network.routes[0, 1] = Bandwidth(400)
        got = len(pair.got)
        leaves = []
        for _ in range(2):
            pair.send(padding=60)
            pair.pass_time(MILLISECOND)
            leaves.append(pair.network.routes[0, 1].free_at)
        assert leaves[1] - leaves[0] > SECOND // 4
        for place, when in enumerate(leaves):
            pair.scheduler.run_until(when)
            assert len(pair.got) == got + place, "one leaves after the other"
            pair.scheduler.run_until(when + 2 * MILLISECOND)
            assert len(pair.got) == got + place + 1

    def test_a_peer_that_reads_nothing_is_disconnected(self) -> None:
        pair = Pair(output_bytes_congested=500, output_bytes_max=1000).connected()
        pair.network.block(0, 1)
        for _ in range(20):
            pair.send(padding=30)
        pair.pass_time()
        assert pair.machines[0].story.count("down") >= 1


class TestLoss:
    def test_of_a_half_open_connection_somebody_hears_late(self) -> None:
        late = 0
        for seed in range(20):
            pair = Pair(seed).connected()
            pair.network.halve(pair.network.open_ends()[0], "half")
            pair.send()
            pair.pass_time(10 * SECOND)
            late += "down" not in pair.machines[1].story
            pair.pass_time(20 * SECOND)
            assert "down" in pair.machines[0].story
            assert "down" in pair.machines[1].story
            pair.send()
            pair.pass_time()
            assert pair.got[-1] == 3
        assert late > 10

    def test_the_last_frames_of_a_connection_may_come_after_the_first_of_the_next(self) -> None:
        pair = Pair().connected()
        pair.network.linger(pair.network.open_ends()[0], hold=10_000, late=SECOND, kind="late")
        pair.send()
        pair.pass_time(100 * MILLISECOND)
        pair.send()
        pair.pass_time(2 * SECOND)
        assert pair.got == [1, 3, 2]
        assert pair.network.effects["late"] == 1


class TestPartitions:
    def test_two_blocks_of_one_direction_end_one_by_one(self) -> None:
        pair = Pair().connected()
        pair.network.block(0, 1, "first")
        pair.network.block(0, 1, "second")
        pair.send()
        pair.network.unblock(0, 1, "first")
        pair.pass_time()
        assert pair.got == [1]
        pair.network.unblock(0, 1, "second")
        pair.pass_time()
        assert pair.got == [1, 2]
        assert pair.network.effects == {"second": 1}

    @pytest.mark.parametrize(
        ("closes", "dead", "got"), [(False, True, [1, 2, 3]), (True, False, [1, 2, 3]), (True, True, [1, 3])]
    )
    def test_a_blocked_connection_to_a_node_that_counts_as_dead_is_closed_and_dialled_again(
        self, closes: bool, dead: bool, got: list[int]
    ) -> None:
        pair = Pair(closes_dead=closes).connected()
        pair.network.block(0, 1)
        if dead:
            pair.dead.add(NodeId(1))
        pair.send()
        pair.pass_time(SECOND)
        assert pair.machines[0].story == (["up", "down"] if got == [1, 3] else ["up"])
        pair.network.unblock(0, 1)
        pair.pass_time(2 * SECOND)
        pair.send()
        pair.pass_time()
        assert pair.got == got


class TestCrash:
    def test_a_crash_between_effects_sends_a_prefix_of_the_turn(self) -> None:
        lengths = set()
        for step in range(11):
            pair = Pair().connected()
            pair.processes[0].cut_next_turn(step / 10, lambda pair=pair: pair.processes[0].kill(machine=False))  # type: ignore[misc]
            pair.send(4)
            pair.pass_time()
            assert pair.got == list(range(1, 1 + len(pair.got)))
            assert not pair.processes[0].alive
            lengths.add(len(pair.got) - 1)
        assert lengths == {0, 1, 2, 3, 4}

    def test_a_crash_that_was_taken_back_does_not_come(self) -> None:
        pair = Pair().connected()
        pair.processes[0].cut_next_turn(0.5, lambda: pair.processes[0].kill(machine=False))
        pair.processes[0].spare_next_turn()
        pair.send(4)
        pair.pass_time()
        assert pair.processes[0].alive
        assert pair.got == list(range(1, 6))


class TestDeterminism:
    def test_the_hash_tells_runs_apart_by_content_time_and_order(self) -> None:
        def digest(seed: int = 1, padding: int = 0, wait: int = 0) -> str:
            pair = Pair(seed).connected()
            pair.pass_time(wait)
            pair.send(padding=padding)
            pair.pass_time()
            return pair.trace.digest()

        assert digest() == digest()
        assert len({digest(), digest(seed=2), digest(padding=1), digest(wait=1)}) == 4
