"""Applications under simulation: as docs/simulate-your-application.md shows, unchanged asyncio code against the faults of the simulator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from logdevice_py import LogDeviceError, Record, SimCluster, SimulationFailed
from logdevice_py.core.ids import NodeId

SEEDS = range(6)


class Counter:
    """A counter that lives in a log: its state is the sum of the records."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self.added = 0

    async def add(self, writer: Any, amount: int) -> None:
        await writer.append(1, str(amount).encode())
        self.added += amount

    async def read(self) -> int:
        async with self._cluster.client() as client:
            tail = await client.tail_lsn(1)
            total = 0
            async with client.reader(1, until=tail) as reader:
                async for item in reader:
                    if isinstance(item, Record):
                        total += int(item.payload)
            return total


async def count_under_faults(cluster: SimCluster) -> tuple[int, int, int]:
    counter = Counter(cluster)
    async with cluster.client() as client, client.buffered_writer(timeout="5min") as writer:
        for amount in range(100):
            await counter.add(writer, amount)
            await asyncio.sleep(cluster.rng.uniform(0, 0.2))
    await cluster.calm()
    return counter.added, await counter.read(), sum(cluster.faults.values())


async def do(cluster: SimCluster, verb: str, node: int) -> None:
    done = getattr(cluster, verb)(node)
    if done is not None:
        await done


class TestSimulate:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_a_counter_counts_right_whatever_breaks(self, simulate: Callable[..., Any], seed: int) -> None:
        added, read, faults = simulate(
            count_under_faults, seed=seed, nodes=5, replicate="rack:2,node:3", racks=3, faults="all"
        )
        assert added == read == sum(range(100))
        assert faults > 3

    def test_a_seed_is_the_same_run_again(self, simulate: Callable[..., Any]) -> None:
        def lines(seed: int) -> list[str]:
            seen: list[str] = []
            simulate(count_under_faults, seed=seed, nodes=3, faults=["crash_process", "pause"], echo=seen.append)
            return seen

        one = lines(4)
        assert len(one) > 1000
        assert one == lines(4)
        assert one != lines(5)

    def test_what_an_application_raises_comes_with_its_seed(self, simulate: Callable[..., Any]) -> None:
        async def application(cluster: SimCluster) -> None:
            async with cluster.client() as client:
                await client.append(99, b"there is no such log")

        with pytest.raises(SimulationFailed, match="seed 7 after") as failed:
            simulate(application, seed=7)
        assert isinstance(failed.value.__cause__, LogDeviceError)

    def test_a_cluster_lives_under_virtual_time_only(self) -> None:
        async def application() -> None:
            SimCluster(nodes=3)

        with pytest.raises(RuntimeError, match="simulate"):
            asyncio.run(application())

    @pytest.mark.parametrize(
        ("arguments", "told"),
        [
            ({"faults": ["no such fault"]}, "crash_process"),
            ({"faults": ["kill_client"]}, "'kill_client' for applications"),
            ({"fault_interval": 0}, "fault_interval"),
            ({"racks": 0}, "racks"),
            ({"nodes": 3, "racks": 4}, "3 nodes cannot be spread over 4 racks"),
            ({"nodes": 5, "racks": 2, "regions": 3}, "5 nodes cannot be spread over 3 regions of 2 racks"),
            ({"regions": 0}, "regions is a number from 1 on, not 0"),
            ({"nodes": 0}, "nodes"),
            ({"logs": 0}, "logs"),
            ({"virtual_seconds": -1}, "virtual_seconds"),
            ({"virtual_seconds": float("inf")}, "virtual_seconds"),
        ],
    )
    def test_arguments_that_mean_nothing_are_refused(
        self, simulate: Callable[..., Any], arguments: dict[str, Any], told: str
    ) -> None:
        async def application(cluster: SimCluster) -> None:
            raise AssertionError("not reached")

        with pytest.raises(ValueError, match=told):
            simulate(application, **arguments)

    def test_an_application_that_cannot_be_ended_fails_with_its_seed(self, simulate: Callable[..., Any]) -> None:
        async def application(cluster: SimCluster) -> None:
            while True:
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    continue

        with pytest.raises(SimulationFailed, match=r"seed 7 .* did not end within 30 s"):
            simulate(application, seed=7, virtual_seconds=30)

    @pytest.mark.parametrize("error", [SystemExit(3), pytest.fail.Exception("wrong"), asyncio.CancelledError()])
    def test_what_ends_a_test_or_a_program_stays_what_it_is_and_has_the_seed_in_a_note(
        self, simulate: Callable[..., Any], error: BaseException
    ) -> None:
        async def application(cluster: SimCluster) -> None:
            raise error

        with pytest.raises(type(error)) as raised:
            simulate(application, seed=7)
        assert any("seed 7" in note for note in raised.value.__notes__)


class TestNodes:
    def test_a_node_that_is_off_is_done_without_and_comes_back(self, simulate: Callable[..., Any]) -> None:
        async def application(cluster: SimCluster) -> list[int]:
            epochs = []
            async with cluster.client() as client, client.buffered_writer() as writer:
                for _ in range(3):
                    receipt = await writer.append(1, b"x")
                    epochs.append(receipt.lsn.epoch)
                    node = (await client.sequencer(1)).node
                    await cluster.power_off(node)
                    receipt = await writer.append(1, b"y")
                    epochs.append(receipt.lsn.epoch)
                    await cluster.start_node(node)
            return epochs

        epochs = simulate(application, nodes=3, replicate="node:2")
        assert epochs == sorted(epochs)
        assert len(set(epochs)) >= 4

    @pytest.mark.parametrize("buffered", [False, True])
    @pytest.mark.parametrize("synced", [False, True])
    def test_a_record_of_a_log_that_does_not_sync_outlives_every_machine_if_its_writer_asks_for_it(
        self, simulate: Callable[..., Any], synced: bool, buffered: bool
    ) -> None:
        async def application(cluster: SimCluster) -> list[bytes]:
            async with cluster.client() as client, client.buffered_writer() as writer:
                append: Callable[..., Any] = writer.append if buffered else client.append
                await append(1, b"first")
                await asyncio.sleep(2)  # from then on copies are answered before they are synced
                receipt = await append(1, b"record", synced=synced)
                assert (receipt.durability.name == "SYNC") is synced
            for node in cluster.machines.nodes.values():
                node.crash(machine=False)
                for disk in node.disks.values():
                    disk.crash(surviving=0)
            for index in list(cluster.machines.nodes):
                cluster.node(index).start()
            await asyncio.sleep(30)
            async with cluster.client() as client:
                last = await client.append(1, b"last")
                async with client.reader(1, until=last.lsn) as reader:
                    return [item.payload async for item in reader if isinstance(item, Record)]

        read = simulate(application, nodes=3, durability="async")
        assert read == ([b"first", b"record", b"last"] if synced else [b"first", b"last"])

    @pytest.mark.parametrize("seed", range(4))
    def test_appends_go_round_a_disk_that_is_a_hundred_times_as_slow_as_the_others(
        self, simulate: Callable[..., Any], seed: int
    ) -> None:
        usual, slow, count = 2_000, 200_000, 400

        async def application(cluster: SimCluster) -> tuple[list[float], list[float], set[int]]:
            nodes = cluster.machines.nodes
            for node in nodes.values():
                node.disk_settings.sync_min = node.disk_settings.sync_max = usual
            async with cluster.client() as client:

                async def latencies() -> list[float]:
                    loop, taken = asyncio.get_running_loop(), []
                    for _ in range(count):
                        begun = loop.time()
                        receipt = await client.append(1, b"x")
                        taken.append(loop.time() - begun)
                    copysets.append(receipt.copyset)
                    return sorted(taken)

                copysets: list[tuple[int, ...]] = []
                before = await latencies()
                home = (await client.sequencer(1)).node
                holder = next(shard >> 8 for shard in copysets[0] if shard >> 8 != home)
                node = nodes[NodeId(holder)]
                node.disk_settings.sync_min = node.disk_settings.sync_max = slow
                during = await latencies()
                return before, during, {shard >> 8 for shard in copysets[1]} & {holder}

        before, during, kept = simulate(application, seed=seed, nodes=5, replicate="node:3")
        assert not kept
        assert during[count * 99 // 100] < 2 * before[count * 99 // 100]
        assert during[-1] < slow / 1e6, "even the first ones go elsewhere when a store takes too long"

    @pytest.mark.slow
    def test_a_node_that_comes_back_costs_logs_of_other_nodes_nothing(self, simulate: Callable[..., Any]) -> None:
        """It has heard of nobody at first; taken at its word, all others would be dead, and the outcome of what they were sent unknown."""
        logs = range(1, 9)

        async def application(cluster: SimCluster) -> None:
            async with cluster.client() as client, client.buffered_writer() as writer:

                async def write(log: int) -> None:
                    while True:
                        await writer.append(log, b"x")
                        await asyncio.sleep(0.001)

                writing = [asyncio.create_task(write(log)) for log in logs]
                node = (await client.sequencer(logs[0])).node
                for away in (4.3, 4.6, 4.9):  # who is dialled again first differs
                    await cluster.stop_node(node)
                    await asyncio.sleep(away)
                    before = {log: await client.sequencer(log) for log in logs}
                    await cluster.start_node(node)
                    await asyncio.sleep(2)
                    after = {log: await client.sequencer(log) for log in logs}
                    stayed = [log for log in logs if after[log].node != node]
                    assert 0 < len(stayed) < len(logs)
                    assert {log: after[log].epoch for log in stayed} == {log: before[log].epoch for log in stayed}
                for task in writing:
                    assert not task.done()
                    task.cancel()

        simulate(application, nodes=5)

    def test_a_node_cut_off_from_the_others_is_noticed(self, simulate: Callable[..., Any]) -> None:
        async def application(cluster: SimCluster) -> tuple[int, int]:
            async with cluster.client() as client, client.buffered_writer() as writer:
                await writer.append(1, b"x")
                node = (await client.sequencer(1)).node
                cluster.cut_off(node)
                await writer.append(1, b"y")
                other = (await client.sequencer(1)).node
                cluster.heal()
                return node, other

        node, other = simulate(application, nodes=5, replicate="node:2")
        assert node != other

    @pytest.mark.parametrize("ask", ["append", "sequencer", "tail_lsn", "buffered_writer"])
    def test_who_knows_only_the_node_that_is_cut_off_gets_on_with_the_others(
        self, simulate: Callable[..., Any], ask: str
    ) -> None:
        async def get_on(client: Any) -> None:
            async with asyncio.timeout(2):
                if ask == "append":
                    await client.append(1, b"y")
                elif ask == "buffered_writer":
                    async with client.buffered_writer() as writer:
                        await writer.append(1, b"y")
                else:
                    await getattr(client, ask)(1)

        async def application(cluster: SimCluster) -> None:
            await asyncio.sleep(5)  # while nodes start, clients get to know several
            async with cluster.client() as old, cluster.client() as fresh, cluster.client() as witness:
                await old.append(1, b"x")
                node = (await old.sequencer(1)).node
                cluster.cut_off(node)
                await asyncio.sleep(3)
                await get_on(old)
                await get_on(fresh)
                assert (await witness.sequencer(1)).node != node

        simulate(application, nodes=5)

    @pytest.mark.parametrize("verb", ["start_node", "stop_node", "power_off", "pause_node", "wipe_node", "cut_off"])
    def test_a_node_that_does_not_exist_is_told_with_those_that_do(
        self, simulate: Callable[..., Any], verb: str
    ) -> None:
        async def application(cluster: SimCluster) -> None:
            with pytest.raises(ValueError, match="no node 99; there are 0, 1, 2"):
                await do(cluster, verb, 99)

        simulate(application, nodes=3)

    @pytest.mark.parametrize("verb", ["start_node", "wipe_node"])
    def test_what_takes_a_node_that_is_down_says_so(self, simulate: Callable[..., Any], verb: str) -> None:
        async def application(cluster: SimCluster) -> None:
            with pytest.raises(ValueError, match="node 1 is not down but running"):
                await do(cluster, verb, 1)
            await cluster.stop_node(1)
            await do(cluster, verb, 1)

        simulate(application, nodes=3)
