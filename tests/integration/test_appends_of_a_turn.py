"""Appends of one turn: all but the first take a short way, on which everything must be as on the long one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from client.client import Client
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from server.dev.local_cluster import LocalCluster
from tests.integration.test_client_face import WRONG, outcome

Append = Callable[..., Any]


async def payloads_of(client: Client, log: int = 1) -> list[bytes | None]:
    found: list[bytes | None] = []
    tail = await client.tail_lsn(log)
    if tail.esn:
        async with client.reader(log, LSN.OLDEST, tail) as reader:
            while batch := await reader.read():
                found += batch.payloads
    return found


async def test_wrong_arguments_are_refused_beside_right_ones() -> None:
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client, client.buffered_writer() as writer:
        for number, call in enumerate(WRONG):
            right = [client.append(1, b"right"), writer.append(2, b"right")]
            with pytest.raises(LogDeviceError) as caught:
                await outcome(call, client)
            assert caught.value.status is Status.INVALID_PARAM, (number, caught.value)
            for receipt in right:
                await receipt
        wrong: list[tuple[Any, Any]] = [(True, b"x"), (2.0, b"x"), (2, "text"), (2, None), ([2], b"x")]
        for log, payload in wrong:
            taken = writer.append(2, b"right")
            with pytest.raises(LogDeviceError) as caught:
                writer.append(log, payload)
            assert caught.value.status is Status.INVALID_PARAM, (log, payload)
            await taken
        assert set(await payloads_of(client)) == {b"right"}
        assert await payloads_of(client, 2) == [b"right"] * (len(WRONG) + len(wrong))


async def test_call_order_is_kept_whatever_the_log_is_called_and_however_long_each_may_take() -> None:
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        group = client.config.logs.group(client.log_id(1))
        assert group is not None
        name = f"{group.path}/1"
        receipts = []
        for number in range(300):
            log = name if number % 3 else 1
            timeout = None if number % 7 else 10 + number
            receipts.append(client.append(log, b"%d" % number, timeout=timeout))
        positions = [(receipt.lsn, receipt.batch_offset) for receipt in [await each for each in receipts]]
        assert positions == sorted(positions)
        assert len(set(positions)) == 300
        assert await payloads_of(client) == [b"%d" % number for number in range(300)]


@pytest.mark.parametrize("buffered", [False, True])
async def test_too_long_records_other_threads_and_closing_are_noticed_in_the_middle_of_a_turn(buffered: bool) -> None:
    async with LocalCluster(nodes=1) as cluster:
        client = cluster.client()
        await client.start()
        append: Append = client.append
        writer = client.buffered_writer()
        if buffered:
            append = writer.append
        first = append(1, b"first")
        with pytest.raises(LogDeviceError) as caught:
            append(1, bytes((32 << 20) + 1))
        assert caught.value.status is Status.TOOBIG
        refusals: list[Status] = []

        def from_a_thread() -> None:
            try:
                append(1, b"from a thread")
            except LogDeviceError as error:
                refusals.append(error.status)

        thread = threading.Thread(target=from_a_thread)
        thread.start()
        thread.join()  # the turn has not ended
        assert refusals == [Status.INVALID_PARAM]
        await first
        waiting = append(1, b"never sent")
        if buffered:
            writer.abandon()
        else:
            client.session.close()
        with pytest.raises(LogDeviceError):
            await waiting
        if buffered:
            with pytest.raises(LogDeviceError) as caught:
                append(1, b"after")
            assert caught.value.status is Status.SHUTDOWN
        await client.close()
        with pytest.raises(LogDeviceError) as caught:
            append(1, b"after")
        assert caught.value.status is Status.SHUTDOWN
        async with cluster.client() as other:
            assert await payloads_of(other) == [b"first"]


async def test_the_limit_of_memory_counts_each_record_of_a_turn() -> None:
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        writer = client.buffered_writer(memory=1000)
        taken = [writer.append(1, bytes(100)) for _ in range(5)]  # each 100 bytes, and 100 for the record itself
        with pytest.raises(LogDeviceError) as caught:
            writer.append(1, b"")
        assert caught.value.status is Status.NOBUFS
        assert writer.unacknowledged_bytes == 500
        for receipt in taken:
            await receipt
        assert writer.unacknowledged_bytes == 0
        await writer.append(1, b"")
        await writer.close()


async def test_batches_are_cut_in_the_middle_of_a_turn() -> None:
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        expected = [b"%0100d" % number for number in range(1000)]
        async with client.buffered_writer(size_trigger=1000) as writer:
            receipts = [writer.append(1, payload) for payload in expected[:500]]
            many = writer.append_many(1, expected[500:700])
            receipts += [writer.append(1, payload) for payload in expected[700:]]
            await many
            positions = [(receipt.lsn, receipt.batch_offset) for receipt in [await each for each in receipts]]
        assert positions == sorted(positions)
        assert len({lsn for lsn, _ in positions}) >= 2
        assert writer.metrics.frames_acknowledged >= 90
        assert await payloads_of(client) == expected
