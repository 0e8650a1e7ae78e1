"""Groups on a cluster of real processes: streams are shared, handed over, reset, added and removed while members read."""

from __future__ import annotations

import asyncio
import textwrap
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from client.guards import START, Position
from logdevice_py import LSN, Client, LocalCluster, LogDeviceError, Receipt, Status
from logdevice_py.core.ids import LogId
from streams.subscriptions.group import Group, GroupReader
from streams.subscriptions.subscriptions import Subscriptions

COMMANDS, SNAPSHOTS = 1, 2
STREAMS = {f"s{number}": 2 + number for number in range(1, 7)}


async def test_the_examples_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs/subscriptions.md").read_text()
    blocks = [part.partition("```")[0] for part in page.split("```python\n")[1:]]
    assert len(blocks) == 2
    for code in blocks:
        names: dict[str, Any] = {}
        exec(compile(f"async def example():\n{textwrap.indent(code, '    ')}", "docs/subscriptions.md", "exec"), names)
        await names["example"]()
    out = capsys.readouterr().out
    assert out.count("[b'first']") == 3
    assert "audit clicks" in out
    assert "SubscriptionEntry(subscription='billing', stream='orders'" in out


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[LocalCluster, Client, Subscriptions, Group]]:
    async with (
        LocalCluster(nodes=3, logs=8) as cluster,
        cluster.client() as client,
        Subscriptions(client, COMMANDS, SNAPSHOTS) as subscriptions,
    ):
        yield cluster, client, subscriptions, Group(subscriptions, "billing")


async def append_all(client: Client, log: int, payloads: list[bytes]) -> list[Receipt]:
    return [await client.append(log, payload) for payload in payloads]


async def read_all(member: GroupReader, seen: dict[str, list[bytes]], wanted: int) -> None:
    """Handle and commit until so many records came to all who use `seen`."""
    async for batch in member:
        seen[batch.stream] += [record.payload for record in batch.records.records()]
        await member.commit(batch)
        if sum(map(len, seen.values())) >= wanted:
            return


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - of several members
            await asyncio.sleep(0.01)


async def until_shared(group: Group, *members: str) -> dict[str, str | None]:
    async with asyncio.timeout(20):
        while True:
            streams = await group.streams()
            owners = {entry.stream: entry.owner for entry in streams}
            counts = Counter(owners.values())
            if set(counts) == set(members) and not any(entry.heir for entry in streams):
                assert max(counts.values()) - min(counts.values()) <= 1
                return owners
            await asyncio.sleep(0.02)


async def test_members_share_streams_and_every_record_is_handled_once() -> None:
    async with opened() as (cluster, client, _, group):
        await group.add_streams(STREAMS)
        written = {name: [b"%s-%d" % (name.encode(), n) for n in range(30)] for name in STREAMS}
        for name, payloads in written.items():
            await append_all(client, STREAMS[name], payloads)
        seen: dict[str, list[bytes]] = defaultdict(list)
        async with cluster.client() as other, Subscriptions(other, COMMANDS, SNAPSHOTS) as others:
            async with group.member("a", max_records=7) as a, Group(others, "billing").member("b", max_records=7) as b:
                tasks = [asyncio.create_task(read_all(each, seen, 10_000)) for each in (a, b)]
                await until_shared(group, "a", "b")
                await until(lambda: sum(map(len, seen.values())) >= 180)
                assert seen == written
                assert {name for name in STREAMS if name in a.streams} == set(STREAMS) - set(b.streams)
                assert [(each.member, each.streams) for each in await group.members()] == [("a", 3), ("b", 3)]
                for task in tasks:
                    task.cancel()
            assert await group.members() == []
            assert {entry.owner for entry in await group.streams()} == {None}
        # what was committed is not read again
        async with group.member("c") as member:
            await client.append(STREAMS["s1"], b"last")
            batch = await anext(aiter(member))
            assert (batch.stream, [record.payload for record in batch.records.records()]) == ("s1", [b"last"])


async def test_streams_come_and_go_while_members_read() -> None:
    async with opened() as (_, client, subscriptions, group), group.member("a") as member:
        seen: dict[str, list[bytes]] = defaultdict(list)
        reading = asyncio.create_task(read_all(member, seen, 3))
        with pytest.raises(LogDeviceError, match="there is no log group /nowhere") as raised:
            await group.add_streams({"s1": "/nowhere"})
        assert raised.value.status is Status.NOTFOUND
        await group.add_streams({"s1": client.config.log_name(LogId(STREAMS["s1"]))})
        assert [entry.log for entry in await group.streams()] == [STREAMS["s1"]]
        await group.add_streams({"s1": STREAMS["s1"]})
        await client.append(STREAMS["s1"], b"1")
        await group.add_streams({"s2": STREAMS["s2"]})
        await client.append(STREAMS["s2"], b"2")
        await until(lambda: bool(seen["s1"] and seen["s2"]))
        await group.remove_streams(["s1"])
        await client.append(STREAMS["s1"], b"nobody reads it")
        await client.append(STREAMS["s2"], b"3")
        async with asyncio.timeout(20):
            await reading
        assert seen == {"s1": [b"1"], "s2": [b"2", b"3"]}
        with pytest.raises(LogDeviceError) as raised:
            await group.add_streams({"s2": STREAMS["s3"]})
        assert raised.value.status is Status.EXISTS
        with pytest.raises(LogDeviceError) as raised:
            await subscriptions.delete("billing", "s2")
        assert raised.value.status is Status.NOTEMPTY
        assert set(member.streams) == {"s2"}


async def test_a_commit_of_a_fenced_member_is_refused_and_whoever_resets_is_heard() -> None:
    async with opened() as (_, client, subscriptions, group):
        await group.add_streams({"s1": STREAMS["s1"]})
        await append_all(client, STREAMS["s1"], [b"1", b"2", b"3"])
        async with group.member("a", max_records=2) as member:
            batches = aiter(member)
            batch = await anext(batches)
            assert len(batch) == 2
            await member.commit()
            with pytest.raises(LogDeviceError, match="member a has the stream") as raised:
                await subscriptions.commit("billing", "s1", batch.last)
            assert raised.value.status is Status.FENCED
            late = await anext(batches)
            await subscriptions.commit("billing", "s1", START, reset=True)
            with pytest.raises(LogDeviceError, match="with token") as raised:
                await member.commit(late)
            assert raised.value.status is Status.FENCED
            again = await anext(batches)
            assert [record.payload for record in again.records.records()] == [b"1", b"2"]
            assert again.token > batch.token


async def test_a_member_of_the_same_name_takes_over() -> None:
    async with opened() as (cluster, client, _, group):
        await group.add_streams({"s1": STREAMS["s1"]})
        await client.append(STREAMS["s1"], b"1")
        async with group.member("a") as first:
            await anext(aiter(first))
            async with (
                cluster.client() as other,
                Subscriptions(other, COMMANDS, SNAPSHOTS) as others,
                Group(others, "billing").member("a") as second,
            ):
                batch = await anext(aiter(second))
                assert len(batch) == 1
                with pytest.raises(LogDeviceError, match="another member a"):
                    await anext(aiter(first))
                await second.commit()
                with pytest.raises(LogDeviceError) as raised:
                    await first.commit()
                assert raised.value.status is Status.FENCED


async def test_who_begins_with_the_newest_loses_nothing_to_a_hand_over() -> None:
    async with opened() as (_, client, subscriptions, group):
        await group.add_streams({"s1": STREAMS["s1"]})
        await client.append(STREAMS["s1"], b"old")
        async with group.member("a", start="newest"):
            await until(lambda: "s1" in subscriptions.state_of("billing").checkpoints)
        await client.append(STREAMS["s1"], b"new")
        async with group.member("b", start="newest") as member:
            batch = await anext(aiter(member))
            assert [record.payload for record in batch.records.records()] == [b"new"]


async def test_positions_that_are_stored_elsewhere() -> None:
    asked: list[tuple[str, int]] = []
    async with opened() as (_, client, _, group):
        await group.add_streams({"s1": STREAMS["s1"]})
        receipts = await append_all(client, STREAMS["s1"], [b"1", b"2", b"3"])

        async def stored(stream: str, token: int) -> Position:
            asked.append((stream, token))
            return Position(LSN(receipts[1].lsn), 0)

        async with group.member("a", stored=stored) as member:
            batch = await anext(aiter(member))
            assert [record.payload for record in batch.records.records()] == [b"3"]
            assert asked == [("s1", batch.token)]
            member.done(batch)

        async def fails(stream: str, token: int) -> Position:
            raise OSError("the database is away")

        async with group.member("a", stored=fails) as member:
            with pytest.raises(OSError, match="away"):
                await anext(aiter(member))


async def test_arguments_of_members() -> None:
    async with opened() as (_, _, _, group):
        for wrong in ({"start": "now"}, {"ttl": 0}, {"ttl": None}, {"handover": 4000}, {"max_records": 0}):
            with pytest.raises(LogDeviceError) as raised:
                group.member("a", **wrong)
            assert raised.value.status is Status.INVALID_PARAM
        with pytest.raises(LogDeviceError):
            await group.add_streams({"s1": "/path"})
