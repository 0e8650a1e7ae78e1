"""What the simulated network does to what is sent over it."""

from __future__ import annotations

import random

from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import LSN_OLDEST
from logdevice_py.core.machine import Outbox, TimerWheel
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.protocol.messages import Release
from logdevice_py.simulation.clock import SimClock
from logdevice_py.simulation.links import LinkFault
from logdevice_py.simulation.network import Network, NetworkSettings
from logdevice_py.simulation.process import Process
from logdevice_py.simulation.scheduler import Scheduler
from logdevice_py.simulation.trace import Trace


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

    def __init__(self, seed: int = 1, **settings: float) -> None:
        self.scheduler = Scheduler()
        self.trace = Trace()
        self.trace.watch(self.scheduler)
        quiet = {"slow_probability": 0.0, "chop_probability": 0.0, **settings}
        self.network = Network(self.scheduler, random.Random(seed), NetworkSettings(**quiet))  # type: ignore[arg-type]
        self.machines = [Recorder(), Recorder()]
        self.outboxes = [Outbox(), Outbox()]
        self.processes = [self._process(node, seed) for node in (0, 1)]
        self.sent = 0

    def _process(self, node: int, seed: int) -> Process:
        machine = self.machines[node]
        return Process(
            f"N{node}",
            node,
            machine,  # type: ignore[arg-type]
            self.outboxes[node],
            TimerWheel(),
            effects={},
            network=self.network,
            clock=SimClock(self.scheduler),
            rng=random.Random(seed + node),
            trace=self.trace,
            turn_max=0,
            on_congestion=machine.on_congestion,
        )

    def send(self, count: int = 1, padding: int = 0) -> None:
        def event(now: int) -> None:
            for _ in range(count):
                self.sent += 1
                logs = [(LogId(self.sent), LSN_OLDEST)] * (1 + padding)
                self.outboxes[0].send(1, Release(shard=ShardId(256), logs=logs))  # type: ignore[arg-type]

        self.processes[0].event(event)

    def pass_time(self, micros: int = SECOND) -> None:
        self.scheduler.run_until(self.scheduler.now + micros)

    def send_slowly(self, count: int) -> None:
        for _ in range(count):
            self.send()
            self.pass_time(20 * MILLISECOND)

    @property
    def got(self) -> list[int]:
        return self.machines[1].got

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


class TestBadLinks:
    def test_a_flipped_bit_closes_the_connection_and_nothing_wrong_gets_through(self) -> None:
        pair = Pair().connected()
        fault = LinkFault(kind="corrupt", flip=1.0)
        pair.network.add_link_fault(0, 1, fault)
        pair.send_slowly(50)
        assert pair.got == [1]
        assert pair.network.effects["corrupt"] > 20
        assert pair.network.effects["refused_frames"] > 20
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
        pair.network.mend()
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
