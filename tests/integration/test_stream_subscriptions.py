"""Subscriptions and groups of a namespace on a real cluster in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from client.client import Client
from client.read.batch import RecordBatch
from client.reader import Reader
from client.replica.commands import NOTHING
from logdevice_py import LogDeviceError, Status, SyncClient
from server.dev.local_cluster import LocalCluster
from streams.namespace import Namespace
from streams.stream import Stream
from streams.stream_subscriptions import Subscription
from streams.subscriptions.subscriptions import Subscriptions
from streams.sync import SyncNamespace


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[LocalCluster, Client, Namespace]]:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        yield cluster, client, namespace


async def write(stream: Stream, *written: bytes) -> None:
    async with stream.writer() as writer:
        await writer.write_many(written)


async def refused(status: Status, work: object) -> str:
    with pytest.raises(LogDeviceError) as raised:
        await work  # type: ignore[misc]
    assert raised.value.status is status
    return str(raised.value)


async def test_a_reader_goes_on_behind_what_was_committed() -> None:
    async with opened() as (_, client, namespace):
        stream = await namespace.create("orders")
        await write(stream, b"1", b"2", b"3")
        assert await namespace.subscriptions() == []
        assert "/streams/.subscriptions" not in [entry.path for entry in await client.list_logs("/streams")]
        async with stream.reader(Subscription("billing"), until="tail") as reader:
            await reader.commit()  # of nothing
            assert (await anext(reader)).payload == b"1"
            assert (await anext(reader)).payload == b"2"
            await reader.commit()
            assert (await anext(reader)).payload == b"3"  # which is not committed
        async with stream.reader(Subscription("billing"), until="tail") as reader:
            assert (await reader.read()).payloads == [b"3"]
            await reader.commit()
            assert not await reader.read()
        (entry,) = await namespace.subscriptions()
        assert (entry.subscription, entry.stream, entry.number) == ("billing", "orders", stream.number)
        assert entry.position == reader.committed
        assert entry.age is not None
        assert entry.age < timedelta(minutes=1)
        assert [each.position for each in await stream.subscriptions()] == [entry.position]
        last = (await stream.last()).position  # type: ignore[union-attr]
        async with stream.reader(Subscription("late", last), until="tail") as reader:
            assert (await reader.read()).payloads == [b"3"]


async def test_somebody_elses_commit_is_told() -> None:
    async with opened() as (_, _, namespace):
        stream = await namespace.create("orders")
        await write(stream, b"1", b"2", b"3")
        billing = Subscription("billing")
        async with stream.reader(billing) as first, stream.reader(billing) as second:
            await first.read(1)
            await second.read(2)
            await first.commit()
            await first.read(1)
            await first.commit()
            text = await refused(Status.VERSION_MISMATCH, second.commit())
            assert "subscription billing, stream orders" in text
        (entry,) = await stream.subscriptions()
        assert entry.position == first.committed
        await refused(Status.VERSION_MISMATCH, stream.commit("billing", entry.position, expect=NOTHING))
        oldest = (await stream.first()).position  # type: ignore[union-attr]
        await refused(Status.STALE, stream.commit("billing", oldest))
        await stream.commit("billing", oldest, reset=True)
        async with stream.reader(billing, until="tail") as reader:
            assert (await reader.read()).payloads == [b"2", b"3"]


async def test_a_reader_knows_its_own_commit_of_which_nothing_was_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as (_, _, namespace):
        stream = await namespace.create("orders")
        await write(stream, b"1", b"2")
        async with stream.reader(Subscription("billing")) as reader:
            await reader.read(1)
            commit = Subscriptions.commit

            async def silent(*arguments: object, **options: object) -> None:
                await commit(*arguments, **options)  # type: ignore[arg-type]
                raise LogDeviceError(Status.TIMEDOUT, "no outcome", maybe_applied=True)

            with monkeypatch.context() as patched:
                patched.setattr(Subscriptions, "commit", silent)
                await refused(Status.TIMEDOUT, reader.commit())
            await reader.read(1)
            await reader.commit()
        async with stream.reader(Subscription("billing"), until="tail") as reader:
            assert not await reader.read()


async def test_positions_follow_a_stream_that_is_renamed_and_go_with_it() -> None:
    async with opened() as (cluster, _, namespace):
        stream, other = await namespace.create("orders"), await namespace.create("clicks")
        await write(stream, b"1", b"2")
        async with stream.reader(Subscription("audit")) as reader:
            await reader.read(1)
            await reader.commit()
        group = namespace.group("billing")
        await group.add_streams(["orders", "clicks"])
        await refused(Status.NOTFOUND, group.add_streams(["nothing"]))
        await namespace.rename("orders", "archive")
        assert [entry.stream for entry in await namespace.subscriptions("audit")] == ["archive"]
        assert [entry.stream for entry in await group.streams()] == ["archive", "clicks"]
        async with stream.reader(Subscription("audit"), until="tail") as reader:
            assert (await reader.read()).payloads == [b"2"]
        await namespace.delete("archive")
        assert [entry.stream for entry in await namespace.subscriptions()] == ["clicks"]
        subscriptions = await namespace.stream_subscriptions.opened(None)
        assert {*subscriptions.state.subscriptions["billing"].streams} == {str(other.number)}
        assert "audit" not in subscriptions.state.subscriptions
        await refused(Status.NOTFOUND, stream.commit("audit", stream.oldest))
        again = await namespace.create("archive")
        async with again.reader(Subscription("audit"), until="tail") as reader:
            assert not await reader.read()
        # somebody who added the deleted stream to a group, and died before it looked whether that was still there
        await subscriptions.commit("late", str(stream.number), stream.oldest)
        async with cluster.client() as later, Namespace(later) as seen:
            await seen.subscriptions()
            subscriptions = await seen.stream_subscriptions.opened(None)
            assert "late" not in subscriptions.state.subscriptions


async def test_members_share_streams_by_name_while_one_is_deleted_and_one_truncated() -> None:
    async with opened() as (_, _, namespace):
        streams = {name: await namespace.create(name) for name in ("a", "b", "c")}
        for name, stream in streams.items():
            await write(stream, *(f"{name}{number}".encode() for number in range(3)))
        last = await streams["b"].last()
        assert last is not None
        await streams["b"].truncate(last.position)
        group = namespace.group("billing")
        await group.add_streams(streams)
        found: dict[str, list[bytes | None]] = {}
        async with asyncio.timeout(60), group.member("host1", max_records=100) as member:
            async for batch in member:
                found.setdefault(batch.stream, []).extend(batch.payloads)
                assert [record.payload for record in batch] == batch.payloads
                await member.commit(batch)
                if sum(map(len, found.values())) == 7:
                    break
            assert found == {"a": [b"a0", b"a1", b"a2"], "b": [b"b2"], "c": [b"c0", b"c1", b"c2"]}
            assert {*member.streams} == {"a", "b", "c"}
            assert [each.streams for each in await group.members()] == [3]
            assert {entry.owner for entry in await group.streams()} == {"host1"}
            text = await refused(Status.FENCED, streams["c"].commit("billing", last.position))
            assert "stream c: no token was given; member host1 has the stream" in text
            await namespace.delete("a")
            await write(streams["c"], b"c3")
            batch = await anext(member)
            assert (batch.stream, batch.payloads) == ("c", [b"c3"])
            await member.commit()
            assert {*member.streams} == {"b", "c"}
            await group.remove_streams(["b"])
            assert [entry.stream for entry in await group.streams()] == ["c"]
            await refused(Status.NOTEMPTY, namespace.delete_subscription("billing"))
        await namespace.delete_subscription("billing")
        assert await namespace.subscriptions() == []


async def test_a_stream_that_ended_stays_with_its_member_and_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, at_end = Reader.read, set[Reader]()

    async def read_once_at_the_end(self: Reader, *arguments: int, **options: float) -> RecordBatch:
        assert self not in at_end, "who reads on where nothing follows never waits"
        if not (batch := await read(self, *arguments, **options)):
            at_end.add(self)
        return batch

    async def at_the_end(readers: int) -> None:
        while len(at_end) < readers:  # noqa: ASYNC110 - of readers that hand nothing out
            await asyncio.sleep(0.01)

    monkeypatch.setattr(Reader, "read", read_once_at_the_end)
    async with opened() as (_, _, namespace):
        streams = {name: await namespace.create(name) for name in ("ends", "goes_on")}
        for name, stream in streams.items():
            await write(stream, name.encode())
        group = namespace.group("billing")
        await group.add_streams(streams)
        async with asyncio.timeout(60):
            async with group.member("host1") as member:
                for _ in streams:
                    await member.commit(await anext(member))
                await streams["ends"].mark_end()
                await at_the_end(1)
                await write(streams["goes_on"], b"more")
                batch = await anext(member)
                assert (batch.stream, batch.payloads) == ("goes_on", [b"more"])
                await member.commit(batch)
                assert {*member.streams} == {*streams}
            async with group.member("host2") as heir:
                await at_the_end(2)
                await write(streams["goes_on"], b"still more")
                assert (await anext(heir)).payloads == [b"still more"]
                assert {*heir.streams} == {*streams}


async def test_without_await() -> None:
    def use(config_file: str) -> None:
        with SyncClient(config_file) as client, SyncNamespace(client) as namespace:
            stream = namespace.create("orders")
            with stream.writer() as writer:
                writer.write_many([b"1", b"2", b"3"]).result()
            with stream.reader(Subscription("audit"), until="tail") as reader:
                assert next(iter(reader)).payload == b"1"
                reader.commit()
                assert reader.committed is not None
            with stream.reader(Subscription("audit"), until="tail") as reader:
                assert [record.payload for record in reader] == [b"2", b"3"]
                reader.commit()
            (entry,) = stream.subscriptions()
            assert entry == namespace.subscriptions("audit")[0]
            stream.commit("audit", stream.oldest, reset=True)
            stream.delete_subscription("audit")
            group = namespace.group("billing")
            group.add_streams(["orders"])
            with group.member("host1") as member:
                for batch in member:
                    assert batch.payloads == [b"1", b"2", b"3"]
                    member.commit(batch)
                    member.done(batch)
                    break
                assert {*member.streams} == {"orders"}
                assert [each.member for each in group.members()] == ["host1"]
            assert [each.owner for each in group.streams()] == [None]
            group.remove_streams(["orders"])
            namespace.delete_subscription("billing")
            assert namespace.subscriptions() == []

    async with LocalCluster(nodes=3, log_tree=True) as cluster:
        await asyncio.to_thread(use, cluster.config_file)
