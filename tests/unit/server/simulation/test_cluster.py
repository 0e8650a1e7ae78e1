"""Whole simulated clusters under one fault each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from client.read.batch import RecordBatch
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, shard_id
from logdevice_py.core.lsn import LSN_OLDEST, Lsn
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from server.simulation.machines import SimMachines, SimNode, SimPromise, SimReader

LOG = LogId(1)
TEXT = """
name = "simulation"
version = 1
uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
epoch_store = "memory:"
[metadata_log]
replicate = "node:3"
[defaults]
replicate = "node:3"
[settings.rebuilding]
enabled = false
[logs."/all"]
ids = "1..10"
"""


class FiveNodes:
    """Five nodes, three copies, one client that appends."""

    def __init__(self, seed: int = 1) -> None:
        nodes = "".join(f'[nodes.N{node}]\nhost = "127.0.0.{node + 1}"\nport = 7000\n' for node in range(5))
        self.cluster = SimMachines(load_cluster(TEXT + nodes), seed)
        for node in self.cluster.nodes.values():
            node.start()
        self.client = self.cluster.client()
        self.lsns: list[Lsn] = []
        self.positions: list[tuple[int, int]] = []
        self.errors: list[BaseException] = []

    def __getitem__(self, node: int) -> SimNode:
        return self.cluster.nodes[NodeId(node)]

    def pass_time(self, micros: int = SECOND) -> None:
        scheduler = self.cluster.scheduler
        scheduler.run_until(scheduler.now + micros)

    def append(self, count: int = 1, pause: int = 100 * MILLISECOND) -> int:
        """Append one by one; how many were acknowledged."""
        before = len(self.lsns)

        def done(promise: SimPromise) -> None:
            if promise.error is None:
                self.lsns.append(promise.result.lsn)
                self.positions.append((promise.result.lsn, promise.result.batch_offset))
            else:
                self.errors.append(promise.error)

        def event(now: Micros) -> None:
            self.client.session.append(LOG, f"record {len(self.lsns)}".encode(), SimPromise(done))

        for _ in range(count):
            self.client.event(event)
            self.pass_time(pause)
        return len(self.lsns) - before

    def append_until_it_works(self) -> None:
        """Append until something is acknowledged."""
        for _ in range(100):
            if self.append(pause=SECOND):
                return
        raise AssertionError(self.errors[-1:])

    def read(self) -> int:
        """Read everything that was acknowledged; how many records there are."""
        batches: list[RecordBatch] = []
        reader = SimReader(self.cluster.client(), LOG, LSN_OLDEST, self.lsns[-1], batches.append, single_copy=False)
        reader.client.event(reader.start)
        self.until(lambda: reader.finished)
        return sum(1 for batch in batches for item in batch if hasattr(item, "payload"))

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(600):
            if condition():
                return
            self.pass_time(100 * MILLISECOND)
        raise AssertionError("it did not come to that within a minute")

    def generations(self) -> dict[ShardId, Generation]:
        """Of all shards that run."""
        return {
            shard: each.contents.marker.generation
            for node in self.cluster.nodes.values()
            for shard, each in node.shards.items()
        }

    def copies(self) -> list[int]:
        """Sound copies of each acknowledged record."""
        return [self.cluster.intact_copies(LOG, lsn) for lsn in self.lsns]


@pytest.fixture
def run() -> FiveNodes:
    made = FiveNodes()
    made.pass_time()
    made.append_until_it_works()
    assert made.append(10) == 10
    return made


class TestConnections:
    def test_a_node_knows_where_its_client_is_until_the_client_is_gone(self, run: FiveNodes) -> None:
        processes = [node.process for node in run.cluster.nodes.values() if node.process is not None]
        first = PeerId(-1)
        connected = [process for process in processes if process.address_of(first) is not None]
        assert connected
        run.client.kill()
        run.pass_time()
        # A turn that began before may still have an answer for it.
        assert [process.address_of(first) for process in connected] == [None] * len(connected)


class TestEpochStore:
    def test_data_flows_in_an_open_epoch_while_the_epoch_store_is_away_for_minutes(self, run: FiveNodes) -> None:
        run.cluster.weather.refuse = 1.0
        assert run.append(30, pause=5 * SECOND) == 30
        assert len({lsn >> 32 for lsn in run.lsns}) == 1

    def test_no_epoch_is_given_twice_whatever_is_lost_stale_or_late(self, run: FiveNodes) -> None:
        weather = run.cluster.weather
        weather.lose_answer, weather.expire, weather.stale, weather.delay_max = 0.4, 0.3, 1.0, 50 * MILLISECOND
        for _ in range(12):
            for node in run.cluster.nodes.values():
                node.crash(machine=False)
                node.start()
            run.append(10, pause=200 * MILLISECOND)
            run.cluster.cells.touch(f"logs/{LOG}/sequencer")
            for node in run.cluster.nodes.values():
                node.start_if_down()
        weather.clear()
        run.append_until_it_works()
        assert len(set(run.positions)) == len(run.positions)
        assert len({lsn >> 32 for lsn in run.lsns}) > 3
        assert run.read() >= len(run.lsns)
        effects = run.cluster.fault_effects
        assert {"epoch_store_lost_answer", "epoch_store_expiry", "epoch_store_stale"} <= set(effects), effects


class TestIdentity:
    def test_swapped_disks_are_noticed_named_and_not_served(self, run: FiveNodes) -> None:
        one, two = run[3], run[4]
        for node in (one, two):
            node.crash(machine=True)
        first, second = one.snapshot(), two.snapshot()
        one.take_disks(second)
        two.take_disks(first)
        one.start()
        two.start()
        run.pass_time(5 * SECOND)
        generations = run.generations()
        assert [generations[shard_id(NodeId(node))] for node in range(5)] == [1, 1, 1, 2, 2]
        assert any("belongs to N4:S0" in line for line in run.cluster.trace.last())
        assert run.read() >= len(run.lsns)
        assert all(copies >= 1 for copies in run.copies())

    def test_a_disk_from_before_it_was_replaced_is_noticed(self, run: FiveNodes) -> None:
        node = run[4]
        node.crash(machine=True)
        backup = node.snapshot()
        node.wipe()
        node.start()
        run.pass_time(5 * SECOND)
        node.crash(machine=True)
        node.restore(backup)
        node.start()
        run.pass_time(5 * SECOND)
        assert run.generations()[shard_id(NodeId(4))] == 3
        assert run.cluster.fault_effects["identity_noticed"] == 1
        assert run.read() >= len(run.lsns)

    def test_what_a_process_asked_before_it_ended_takes_no_generation_from_the_next_one(self, run: FiveNodes) -> None:
        weather = run.cluster.weather
        for node in run.cluster.nodes.values():
            node.crash(machine=True)
            usual, weather.delay_max = weather.delay_max, 60 * SECOND
            node.start()  # its question comes to the epoch store when the next process serves
            node.crash(machine=True)
            weather.delay_max = usual
            node.start()
        run.pass_time(70 * SECOND)
        for node in run.cluster.nodes.values():
            node.crash(machine=True)
            node.start()
        run.pass_time(10 * SECOND)
        assert set(run.generations().values()) == {1}
        assert not any(node.lost_data for node in run.cluster.nodes.values())


class TestDisks:
    def test_a_failed_sync_takes_the_shard_out_until_it_is_opened_again(self, run: FiveNodes) -> None:
        disk = run[2].disks[shard_id(NodeId(2))]
        disk.fail_sync = True
        run.append(20)
        disk.fail_sync = False
        assert run[2].failed
        shard = shard_id(NodeId(2))
        assert not any(node.root.gossip.serves(shard) for node in run.cluster.nodes.values() if node.root is not None)
        assert run.append(20) >= 15
        run.append(10, pause=SECOND)
        assert run[2].failed
        run.cluster.calm()
        run.pass_time(5 * SECOND)
        assert not run[2].failed
        assert all(node.root.gossip.serves(shard) for node in run.cluster.nodes.values() if node.root is not None)
        assert run.read() >= len(run.lsns)

    def test_a_crash_that_waits_for_a_turn_does_not_come_after_calm(self, run: FiveNodes) -> None:
        run[2].crash_midway(0.5, machine=False, kind="crash_midway")
        run.cluster.calm()
        run.pass_time(5 * SECOND)
        assert run[2].process is not None

    def test_what_was_acknowledged_survives_a_power_cut_of_everything(self, run: FiveNodes) -> None:
        for _ in range(5):
            run.append(5, pause=3 * MILLISECOND)
            for node in run.cluster.nodes.values():
                node.crash(machine=True)
            assert all(copies >= 3 for copies in run.copies())
            run.cluster.calm()
            run.append_until_it_works()
        assert run.read() >= len(run.lsns)

    def test_destroyed_copies_are_known_by_log_and_lsn(self, run: FiveNodes) -> None:
        before = run.copies()
        nodes = [node for node in run.cluster.nodes.values() if node.disks[shard_id(node.id)].holds(LOG, run.lsns[-1])]
        shard = shard_id(nodes[0].id)
        nodes[0].crash(machine=True)
        held = [nodes[0].disks[shard].holds(LOG, lsn) for lsn in run.lsns]
        nodes[0].wipe()
        assert run.copies() == [count - gone for count, gone in zip(before, held, strict=True)]
        destroyed = run.cluster.destroyed_entries()
        assert [shard in destroyed.get((LOG, lsn), set()) for lsn in run.lsns] == held
        assert any(held)

    def test_a_disk_that_hangs_delays_nobody_for_long(self, run: FiveNodes) -> None:
        run[3].disk_settings.hanging = True
        run.append(20)
        assert run.append(20) == 20
        run.cluster.calm()
        run.pass_time(SECOND)
        assert run.read() >= len(run.lsns)
