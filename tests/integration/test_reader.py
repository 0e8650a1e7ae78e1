"""A reader, its programs and a real cluster inside this process."""

from __future__ import annotations

import asyncio
import sys

import pytest

from client.read.items import Gap, GapKind, Record
from client.read.proof import Comparison
from client.reader import Reader
from logdevice_py.core.lsn import LSN, LSN_MAX
from logdevice_py.core.status import LogDeviceError, Status
from server.dev.local_cluster import LocalCluster


async def test_a_range_is_read_in_order_and_proven() -> None:
    async with LocalCluster(nodes=3) as cluster, cluster.client() as client:
        receipts = [await client.append(1, b"%d" % n) for n in range(30)]
        tail = await client.tail_lsn(1)
        async with client.reader(1, until=tail) as reader:
            items = [item async for item in reader]
            whole = reader.proof()
        records = [item for item in items if isinstance(item, Record)]
        assert [(r.lsn, r.batch_offset, r.payload) for r in records] == [
            (receipt.lsn, receipt.batch_offset, b"%d" % n) for n, receipt in enumerate(receipts)
        ]
        assert {item.kind for item in items if isinstance(item, Gap)} == {GapKind.BRIDGE}
        middle = receipts[12].lsn
        halves = []
        for start, until in ((1, middle), (middle + 1, tail)):
            async with client.reader(1, start, until) as reader:
                while await reader.read(7):
                    pass
                halves.append(reader.proof())
        assert (halves[0] + halves[1]).compare(whole) is Comparison.EQUAL
        assert await client.find_time(1, receipts[20].timestamp) == receipts[20].lsn


async def test_a_read_that_runs_out_of_time_says_what_it_waits_for_and_goes_on_later() -> None:
    async with LocalCluster(nodes=3, replicate="node:3") as cluster, cluster.client() as client:
        first = await client.append(1, b"first")
        async with client.reader(1, start=first.lsn) as reader:
            assert (await reader.read(timeout=60)).payloads == [b"first"]
            with pytest.raises(LogDeviceError, match="to be written and released") as refused:
                await reader.read(timeout=0.05)
            assert refused.value.status is Status.TIMEDOUT
            assert not refused.value.maybe_applied
            await client.append(1, b"second")
            # an epoch may end meanwhile, because a node is heard of that was slow to start: that is a batch of its own
            while not (payloads := (await reader.read(timeout=60)).payloads):
                pass
            assert payloads == [b"second"]
        for node in range(3):
            await cluster.stop_node(node)
        # nobody listens any more, which is noticed within this time also where the machine is busy
        with pytest.raises(LogDeviceError, match="it waited for") as refused:
            await client.append(1, b"third", timeout=3)
        assert "CONNFAILED from N" in refused.value.detail


async def test_a_follower_gets_what_is_appended_and_survives_being_cancelled() -> None:
    async with LocalCluster(nodes=3) as cluster, cluster.client() as client, client.reader(1) as reader:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_read_on(reader), 0.3)
        await client.append(1, b"late")
        payloads: list[bytes | None] = []
        async with asyncio.timeout(60):
            while not payloads:
                payloads += (await reader.read()).payloads
        assert payloads == [b"late"]


async def test_a_reader_of_a_closed_client_is_told() -> None:
    async with LocalCluster(nodes=1) as cluster:
        async with cluster.client() as client:
            reader = client.reader(1)
            reading = asyncio.create_task(_read_on(reader))
            await asyncio.sleep(0.2)
        with pytest.raises(LogDeviceError) as error:
            await reading
        assert error.value.status is Status.SHUTDOWN


async def _read_on(reader: Reader) -> None:
    while True:
        await reader.read()


async def test_the_end_of_an_epoch_is_no_loss_wherever_one_begins_or_trims() -> None:
    async with LocalCluster(nodes=5, replicate="node:2") as cluster, cluster.client() as client:
        for _ in range(10):
            first = await client.append(1, b"old")
        await cluster.stop_node((await client.sequencer(1)).node)
        async with asyncio.timeout(60):
            second = await client.append(1, b"new")
        assert second.lsn.epoch > first.lsn.epoch
        for start in (first.lsn + 1, first.lsn + 2, first.lsn + 500):
            async with client.reader(1, start, second.lsn) as reader, asyncio.timeout(60):
                items = [item async for item in reader]
            assert {item.kind for item in items if isinstance(item, Gap)} == {GapKind.BRIDGE}, LSN(start)
            assert [item.payload for item in items if isinstance(item, Record)] == [b"new"]


async def test_the_programs_print_what_is_there() -> None:
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        for n in range(5):
            await client.append(1, b"%d" % n)
        for program, options, expected in (
            ("cat", [], b"0\n1\n2\n3\n4\n"),
            ("cat", ["-0", "--from", "e1n4"], b"3\x004\x00"),
            ("tail", ["-n", "2"], b"3\n4\n"),
        ):
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                f"client.cli.{program}",
                "-c",
                cluster.config_file,
                "1",
                *options,
                stdout=asyncio.subprocess.PIPE,
            )
            async with asyncio.timeout(60):
                out, _ = await process.communicate()
            assert (process.returncode, out) == (0, expected)


async def test_a_bad_range_is_refused() -> None:
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        with pytest.raises(LogDeviceError):
            client.reader(1, start=LSN_MAX + 1)
