"""Streams on a real cluster in this process: what their users rely on."""

from __future__ import annotations

import argparse
import asyncio
import json
import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from client.client import Client
from client.guards import START, GuardError, Position
from logdevice_py import LogDeviceError, Status, SyncClient
from logdevice_py.core.lsn import LSN
from server.dev.local_cluster import LocalCluster
from streams.attributes import Flush, Roll, StreamWriters
from streams.cli import parse_place
from streams.commands import CreateStream, DeleteStream
from streams.namespace import Namespace
from streams.reading import IdleReader, StreamReader, StreamReaderState
from streams.records import StreamRecord, TxId
from streams.stream import Stream
from streams.sync import SyncNamespace
from streams.upkeep.janitor import Janitor
from streams.writers import StreamOwned
from tests.forked import run_program_async


async def records(reader: StreamReader) -> list[StreamRecord]:
    async with reader:
        return [record async for record in reader]


async def payloads(reader: StreamReader) -> list[bytes | None]:
    return [record.payload for record in await records(reader)]


async def write(stream: Stream, *written: bytes) -> list[Position]:
    async with stream.writer() as writer:
        return [receipt.position for receipt in [await writer.write(each) for each in written]]


async def test_names_from_creation_to_deletion() -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        cluster.client() as other_client,
        Namespace(client, "/streams") as namespace,
        Namespace(other_client, "/streams") as other,
    ):
        stream = await namespace.create("team/orders", ttl="3d", roll=Roll(every="2h", bytes="256MiB"))
        with pytest.raises(LogDeviceError, match="there is a stream team/orders") as raised:
            await other.create("team/orders")
        assert raised.value.status is Status.EXISTS
        for name in (".", "..", "a/../b", "team/."):
            for renaming in (True, False):
                with pytest.raises(LogDeviceError, match=r"no part of a stream's name is \. or \.\.") as raised:
                    await (namespace.rename("team/orders", name) if renaming else namespace.create(name))
                assert raised.value.status is Status.INVALID_PARAM
        opened = await other.open("team/orders")
        assert opened.attributes == stream.attributes
        await write(opened, b"first")
        assert await payloads(stream.reader(until="tail")) == [b"first"]
        await other.create("team/views")
        await other.create("teamwork")
        assert [info.name for info in await namespace.list("team")] == ["team/orders", "team/views"]
        assert [info.name for info in await namespace.list()] == ["team/orders", "team/views", "teamwork"]
        with pytest.raises(LogDeviceError, match="there is a stream teamwork"):
            await namespace.rename("team/orders", "teamwork")
        (info, _) = await namespace.list("team")
        await namespace.rename("team/orders", "old", expect=info.version)
        with pytest.raises(LogDeviceError, match="has version") as raised:
            await other.delete("old", expect=info.version)
        assert raised.value.status is Status.VERSION_MISMATCH
        await write(stream, b"second")
        assert await payloads((await other.open("old")).reader(until="tail")) == [b"first", b"second"]
        await other.delete("old")
        with pytest.raises(LogDeviceError) as raised:
            await namespace.open("old")
        assert raised.value.status is Status.NOTFOUND
        with pytest.raises(LogDeviceError) as raised:
            await write(stream, b"late")
        assert raised.value.status is Status.NOTFOUND
        again = await namespace.create("old")
        assert again.log > stream.log
        assert await payloads(again.reader(until="tail")) == []
        for name in ("", "/old", "a//b", "a b", "x" * 300, 7):
            with pytest.raises(LogDeviceError) as raised:
                await namespace.create(name)  # type: ignore[arg-type]
            assert raised.value.status is Status.INVALID_PARAM


async def test_whoever_comes_later_finishes_what_somebody_began_who_died() -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        cluster.client() as other_client,
    ):
        async with Namespace(client) as namespace:
            # creators that die between their steps
            await namespace.propose(CreateStream("half"))
            await namespace.propose(CreateStream("made"))
            await client.make_log_group("/streams/.data/s2", parents=True)
            doomed = await namespace.create("doomed")
            # and one that finishes a creation which somebody has undone since
            await namespace.propose(CreateStream("undone"))
            await namespace.delete("undone")
            await client.make_log_group("/streams/.data/s4")
            # a deletion that ended with its first step
            await namespace.propose(DeleteStream("doomed"))
            assert [info.state for info in await namespace.list()] == ["creating", "creating"]
        async with Namespace(other_client) as namespace:
            half, made = await namespace.open("half"), await namespace.open("made")
            await write(half, b"x")
            await write(made, b"y")
            assert await payloads(half.reader(until="tail")) == [b"x"]
            async with asyncio.timeout(30):
                await namespace.deletions_finished()  # it goes on with deletions
            assert [entry.path for entry in await client.list_logs("/streams/.data")] == [
                "/streams/.data/s1",
                "/streams/.data/s2",
            ]
            with pytest.raises(LogDeviceError):
                await write(doomed, b"late")
            async with asyncio.timeout(30):
                while namespace.state.deleting():
                    await namespace.wait_for_change(None)


async def test_whoever_hears_of_a_stream_before_its_log_can_write_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        cluster.client() as other_client,
        Namespace(client) as namespace,
        Namespace(other_client) as other,
    ):
        tree = other_client.log_tree
        assert tree is not None
        attributes, confirm = tree.view.attributes, tree.replica.confirm

        def catch_up_and_confirm(*arguments: Any) -> None:
            monkeypatch.setattr(tree.view, "attributes", attributes)
            confirm(*arguments)

        monkeypatch.setattr(tree.view, "attributes", lambda *_: None)  # it is behind until it is asked
        monkeypatch.setattr(tree.replica, "confirm", catch_up_and_confirm)
        stream = await namespace.create("orders")
        async with other_client.buffered_writer() as writer:
            with pytest.raises(LogDeviceError, match=f"whether there is a log {stream.log} is not known yet") as raised:
                writer.append(stream.log, b"too early")
            assert (raised.value.status, raised.value.retriable) == (Status.AGAIN, True)
        opened = await other.open("orders")
        await write(opened, b"1")
        assert await payloads(opened.reader(until="tail")) == [b"1"]


async def test_a_creation_that_fails_leaves_what_somebody_else_made_under_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        LocalCluster(nodes=1, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        make = client.make_log_group

        async def make_when_another_has_the_name(path: str, *arguments: Any, **options: Any) -> Any:
            monkeypatch.undo()
            await namespace.delete("orders")
            await write(await namespace.create("orders"), b"x")
            return await make(path, *arguments, **options)

        monkeypatch.setattr(client, "make_log_group", make_when_another_has_the_name)
        with pytest.raises(LogDeviceError) as raised:
            await namespace.create("orders")
        assert raised.value.status is Status.NOTFOUND
        stream = await namespace.open("orders")
        assert stream.number == 2
        assert await payloads(stream.reader(until="tail")) == [b"x"]


async def test_places_to_begin_reading() -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("numbered", txid="writer")
        async with stream.writer(flush=Flush(bytes="64KiB", every="5ms")) as writer:
            first = await writer.write(b"7", txid=7)
            receipts = await writer.write_many([b"8", b"9", b"9'", b"12"], txids=[8, 9, 9, 12])
            with pytest.raises(LogDeviceError, match="each record needs a txid"):
                writer.write(b"x")
        assert [record.txid for record in await records(stream.reader(until="tail"))] == [7, 8, 9, 9, 12]
        assert [record.sequence_id for record in await records(stream.reader(until="tail"))] == [0, 1, 2, 3, 4]
        assert await payloads(stream.reader(TxId(9), until="tail")) == [b"9", b"9'", b"12"]
        assert await payloads(stream.reader(TxId(10), until="tail")) == [b"12"]
        assert await payloads(stream.reader(TxId(13), until="tail")) == []
        middle = receipts[1].position
        assert await payloads(stream.reader(middle, until="tail")) == [b"9", b"9'", b"12"]
        assert await payloads(stream.reader(middle, until=receipts[3].position)) == [b"9", b"9'"]
        assert await payloads(stream.reader(middle.following, until="tail")) == [b"9'", b"12"]
        assert Position.parse(str(middle)) == middle
        assert await payloads(stream.reader(datetime.now(UTC) - timedelta(hours=1), until="tail")) == [
            b"7", b"8", b"9", b"9'", b"12",
        ]  # fmt: skip
        assert await payloads(stream.reader(datetime.now(UTC) + timedelta(hours=1), until="tail")) == []
        async with stream.writer() as writer:
            with pytest.raises(GuardError) as raised:
                await writer.write(b"x", txid=3)
            assert (raised.value.status, raised.value.txid) == (Status.TRANSACTION_ID_TOO_LOW, 12)
            with pytest.raises(LogDeviceError):
                await writer.flush()
        found = await stream.first(), await stream.last()
        assert [record and record.payload for record in found] == [b"7", b"12"]
        assert await stream.count() == 5
        assert await stream.count(middle) == 3
        assert await stream.count(first.position, middle) == 2
        assert await stream.last_confirmed() == receipts[3].lsn
        assert await stream.last_confirmed("any") <= await stream.last_confirmed("quorum") <= receipts[3].lsn

        by_time = await namespace.create("by-time")
        (one,) = await write(by_time, b"one")
        (record,) = await records(by_time.reader(one, until="tail"))
        assert record.txid == record.timestamp
        assert await payloads(by_time.reader(TxId(record.timestamp), until="tail")) == [b"one"]
        assert await payloads(by_time.reader(TxId(record.timestamp + 1), until="tail")) == []


async def test_an_empty_stream_has_no_records() -> None:
    async with (
        LocalCluster(nodes=1, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("empty")
        assert await stream.first() is None
        assert await stream.last() is None
        assert await stream.count() == 0
        assert await stream.owner() is None
        with pytest.raises(LogDeviceError) as raised:
            await stream.truncate(Position(LSN.parse("e9n1"), 0))
        assert raised.value.status is Status.INVALID_PARAM
        for wrong in (
            lambda: stream.truncate("e1n1+0"),  # type: ignore[arg-type]
            lambda: stream.reader(until="e1n1+0").read(),
            lambda: stream.count("e1n1+0"),  # type: ignore[arg-type]
            lambda: stream.count(end="e1n1+0"),  # type: ignore[arg-type]
        ):
            with pytest.raises(
                LogDeviceError, match=r"(position|until|start|end) is 'e1n1\+0'; it must be (a|the) position"
            ) as raised:
                await wrong()
            assert raised.value.status is Status.INVALID_PARAM
        with pytest.raises(LogDeviceError, match="until is 'end'; it must be a position, or \"tail\""):
            stream.reader(until="end")


async def test_a_truncation_moves_where_readers_begin_and_can_be_undone() -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("cut")
        async with stream.writer() as writer:
            receipts = await writer.write_many([b"1", b"2", b"3"])
            later = await writer.write(b"4")
        async with stream.reader() as reader:  # began before, and goes on
            await stream.truncate(receipts[1].position)
            assert (await reader.read(3)).payloads == [b"1", b"2", b"3"]
        for start in (stream.oldest, receipts[0].position, datetime.now(UTC) - timedelta(days=1)):
            assert await payloads(stream.reader(start, until="tail")) == [b"2", b"3", b"4"]
        first = await stream.first()
        assert first is not None
        assert (first.position, first.sequence_id) == (receipts[1].position, None)
        await stream.truncate(receipts[0].position)  # no step back
        assert stream.min_active == receipts[1].position
        await stream.truncate(await stream.end())
        assert await stream.last() is None
        async with Namespace(client) as other:
            assert await (await other.open("cut")).count() == 0
        await stream.untruncate()
        assert await payloads(stream.reader(until="tail")) == [b"1", b"2", b"3", b"4"]
        await stream.truncate(later.position.following)
        assert await stream.count() == 0


async def test_writers_may_ask_for_what_is_last() -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("chain")
        refusals: list[Status] = []

        async def contend(name: int) -> None:
            won = 0
            async with Namespace(client) as own:
                mine = await own.open("chain")
                async with mine.writer() as writer:
                    while won < 3:  # what is stored and cannot be read yet refuses any number of tries
                        last = await mine.last()
                        try:
                            await writer.write(b"%d" % name, expect=START if last is None else last.position)
                            won += 1
                        except GuardError as error:
                            refusals.append(error.status)

        async with asyncio.timeout(60):
            await asyncio.gather(*map(contend, range(3)))
        written = await payloads(stream.reader(until="tail"))
        assert [written.count(b"%d" % name) for name in range(3)] == [3, 3, 3]
        assert set(refusals) <= {Status.CONFLICT}


async def test_records_that_belong_together_are_written_whole_or_refused_whole() -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("transfers", txid="writer")
        async with stream.writer() as writer:
            first = await writer.write_many([b"debit", b"credit"], txids=[1, 1], atomic=True)
            assert len({receipt.lsn for receipt in first}) == 1
            last = first[-1].position
            second = await writer.write_many([b"debit 2", b"credit 2"], txids=[2, 2], expect=last, atomic=True)
            with pytest.raises(GuardError) as raised:
                await writer.write_many([b"late", b"late, too"], txids=[3, 3], expect=last, atomic=True)
            assert raised.value.status is Status.CONFLICT
            with pytest.raises(LogDeviceError, match="atomic"):
                writer.write_many([b"x", b"y"], txids=[3, 3], expect=second[-1].position)
            with pytest.raises(LogDeviceError) as large:
                await writer.write_many([bytes(1 << 20), b"x"], txids=[3, 3], atomic=True)
            assert large.value.status is Status.TOOBIG
        assert await payloads(stream.reader(until="tail")) == [b"debit", b"credit", b"debit 2", b"credit 2"]

        owned = await namespace.create("ledger", writers="exclusive")
        async with owned.exclusive_writer(owner="host:1") as owner:
            written = await owner.write_many([b"a", b"b"], atomic=True)
            await client.raise_fence(owned.log, owner.token + 1)
            with pytest.raises(GuardError) as fenced:
                await owner.write_many([b"c", b"d"], expect=written[-1].position, atomic=True)
            assert fenced.value.status is Status.FENCED
        assert await payloads(owned.reader(until="tail")) == [b"a", b"b"]


async def test_a_stream_ends_for_writers_and_readers() -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        cluster.client() as other_client,
        Namespace(client) as namespace,
        Namespace(other_client) as other,
    ):
        stream = await namespace.create("finite")
        await write(stream, b"1", b"2")
        theirs, far = await other.open("finite"), Position(LSN((await stream.end()).lsn + 1000), 0)
        async with theirs.reader() as reader, theirs.reader(until=far) as bounded:
            assert [len(await each.read(1)) for each in (reader, reader, bounded, bounded)] == [1, 1, 1, 1]
            waiting = asyncio.create_task(reader.read())
            await asyncio.sleep(0.1)
            await stream.mark_end()
            assert len(await asyncio.wait_for(waiting, 10)) == 0
            assert reader.state is StreamReaderState.ENDED
            assert not await reader.read()
            assert not await asyncio.wait_for(bounded.read(), 10)
            assert bounded.state is StreamReaderState.ENDED
        with pytest.raises(LogDeviceError) as raised:
            await write(stream, b"late")
        assert raised.value.status is Status.ENDED
        assert await payloads(stream.reader()) == [b"1", b"2"]  # without an end of its own
        await stream.mark_end()  # harmless
        assert [info.state for info in await other.list()] == ["ended"]


async def test_readers_say_why_nothing_comes() -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("quiet")
        await write(stream, b"1")
        async with stream.reader(idle="400ms") as reader:
            assert (await reader.read()).payloads == [b"1"]
            assert reader.state is StreamReaderState.READING
            with pytest.raises(IdleReader, match="caught up: everything up to e1n1 was read") as raised:
                await reader.read()
            assert raised.value.state is StreamReaderState.CAUGHT_UP
            await write(stream, b"2")
            assert (await reader.read()).payloads == [b"2"]
            with pytest.raises(LogDeviceError, match="nothing came for") as timed_out:
                await reader.read(timeout=0.1)
            assert not isinstance(timed_out.value, IdleReader)


async def test_a_reader_that_is_closed_while_another_task_reads_says_so() -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("quiet")
        async with stream.reader() as reader:
            reading = asyncio.ensure_future(reader.read())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(asyncio.shield(reading), 0.1)
            await reader.close()
            with pytest.raises(LogDeviceError, match="the reader was closed") as raised:
                await reading
            assert raised.value.status is Status.SHUTDOWN
        async with stream.reader() as reader:
            reading, closing = asyncio.ensure_future(reader.read()), asyncio.ensure_future(reader.close())
            with pytest.raises(LogDeviceError, match="the reader was closed"):
                await reading
            await closing


async def test_one_owner_at_a_time() -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        cluster.client() as other_client,
        Namespace(client) as namespace,
        Namespace(other_client) as other,
    ):
        stream = await namespace.create("ledger", writers="exclusive")
        with pytest.raises(LogDeviceError, match="has exclusive writers: use exclusive_writer"):
            stream.writer()
        theirs = await other.open("ledger")
        async with stream.exclusive_writer(owner="host:1", lease="2s") as one:
            assert (one.token, one.last) == (1, None)
            await one.write(b"1")
            with pytest.raises(StreamOwned, match="owned by host:1") as owned:
                await theirs.exclusive_writer(owner="host:2", wait=0).__aenter__()
            assert owned.value.token == 1
            with pytest.raises(StreamOwned):
                await theirs.exclusive_writer(owner="host:2", wait="300ms").__aenter__()
            waiting = asyncio.create_task(theirs.exclusive_writer(owner="host:2").__aenter__())
            await asyncio.sleep(3)  # its lease is shorter, and it shows life
            assert not waiting.done()
            lease = await theirs.owner()
            assert lease is not None
            assert (lease.owner, lease.token) == ("host:1", 1)
        two = await asyncio.wait_for(waiting, 10)
        assert two.token == 2
        assert two.last is not None
        assert two.last.payload == b"1"
        # who goes on writing in spite of it is refused by the log
        with pytest.raises(GuardError) as raised:
            await client.append(stream.log, b"late", fence=1)
        assert (raised.value.status, raised.value.fence) == (Status.FENCED, 2)
        with pytest.raises(GuardError):
            await client.append(stream.log, b"without")
        with pytest.raises(LogDeviceError) as refused:
            await stream.mark_end()
        assert refused.value.status is Status.FENCED
        await two.write(b"2")
        await two.mark_end()
        await two.__aexit__(None, None, None)
        assert await payloads(stream.reader()) == [b"1", b"2"]
        with pytest.raises(LogDeviceError) as ended:
            await stream.exclusive_writer(owner="host:1").__aenter__()
        assert ended.value.status is Status.ENDED


async def test_what_no_owner_is_called_is_refused() -> None:
    async with (
        LocalCluster(nodes=1, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        ledger = await namespace.create("ledger", writers="exclusive")
        names: list[Any] = ["", "o" * 129, "\N{LATIN SMALL LETTER E WITH ACUTE}" * 65, "\ud800", 7]
        for owner in names:
            for claim in (
                lambda owner: ledger.exclusive_writer(owner=owner),
                lambda owner: Janitor(namespace, owner=owner),
            ):
                with pytest.raises(LogDeviceError, match="it must be a text of 1 to 128 bytes") as raised:
                    claim(owner)
                assert raised.value.status is Status.INVALID_PARAM


async def test_changes_can_be_watched() -> None:
    async with (
        LocalCluster(nodes=1, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
        Namespace(client) as other,
    ):
        await namespace.create("a/one")
        changes = other.watch("a")

        async def next_name() -> str | None:
            change = await asyncio.wait_for(anext(changes), 10)
            return None if change.info is None else change.info.name

        assert await next_name() == "a/one"
        await namespace.create("b/other")
        await namespace.rename("a/one", "a/two")
        assert await next_name() == "a/two"
        await namespace.rename("a/two", "b/two")
        assert await next_name() is None
        await changes.aclose()


async def test_the_example_of_the_page_runs() -> None:
    page = (Path(__file__).parents[2] / "docs/streams.md").read_text()
    code = page.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(compile(f"async def example():\n{textwrap.indent(code, '    ')}", "docs/streams.md", "exec"), names)
    await names["example"]()


async def test_streams_without_await() -> None:
    def use(config_file: str) -> None:
        with SyncClient(config_file) as client:
            forgotten = SyncNamespace(client, "/streams")
            with pytest.raises(LogDeviceError, match=r'use "with SyncNamespace.*"namespace.start\(\)"'):
                forgotten.list()
            assert forgotten.start().list() == []
            forgotten.close()
            with pytest.raises(LogDeviceError, match="namespace /streams was closed"):
                forgotten.list()
        with SyncClient(config_file) as client, SyncNamespace(client) as namespace:
            stream = namespace.create("orders", txid="writer")
            with stream.writer() as writer:
                first = writer.write(b"1", txid=1).result()
                writer.write(b"2", txid=2, expect=first.position).result()
                assert len(writer.write_many([b"3", b"4"], txids=iter([3, 4])).result()) == 2
                writer.flush()
            with stream.reader(TxId(2), until="tail") as reader:
                assert [record.payload for record in reader] == [b"2", b"3", b"4"]
                assert (reader.state, reader.why) == (StreamReaderState.ENDED, "")
            stream.truncate(first.position.following)
            assert stream.min_active == first.position.following
            assert stream.count() == 3
            stream.untruncate()
            assert stream.count(stream.oldest) == 4
            found = stream.first(), stream.last()
            assert [record and record.txid for record in found] == [1, 4]
            assert stream.end().lsn == stream.last_confirmed() + 1
            stream.mark_end()
            with stream.reader() as reader:
                assert reader.read().payloads == [b"1", b"2", b"3", b"4"]
                assert not reader.read()
            namespace.rename("orders", "old")
            assert namespace.open("old").name == stream.name == "old"
            ledger = namespace.create("ledger", writers="exclusive")
            with ledger.exclusive_writer(owner="me") as owner:
                owner.write(b"x").result()
                lease = ledger.owner()
                assert lease is not None
                assert (owner.token, owner.last, lease.owner, owner.lost) == (1, None, "me", None)
                owner.mark_end()
            assert [info.state for info in namespace.list()] == ["ended", "ended"]
            namespace.delete("old")
            assert ledger.attributes.writers is StreamWriters.EXCLUSIVE
            changes = namespace.watch()
            first = next(changes)
            assert first.info is not None
            assert first.info.name == "ledger"
            namespace.delete("ledger")
            assert next(changes).info is None

    async with LocalCluster(nodes=3, log_tree=True) as cluster:
        await asyncio.to_thread(use, cluster.config_file)


async def test_a_namespace_that_is_not_to_be_made_is_not_made() -> None:
    async with LocalCluster(nodes=3, log_tree=True) as cluster, cluster.client() as client:
        async with Namespace(client, "/streams") as namespace:
            await namespace.create("orders")
        before = [entry.path for entry in await client.list_logs("/")]
        hints = {"/typo": "there are /streams", "/": "there are /streams", "/streems": "did you mean /streams?"}
        for path, hint in hints.items():
            with pytest.raises(
                LogDeviceError, match=f"there is no namespace {path}; {hint}".replace("?", r"\?")
            ) as raised:
                await Namespace(client, path, create=False).start()
            assert raised.value.status is Status.NOTFOUND
        assert [entry.path for entry in await client.list_logs("/")] == before
        async with Namespace(client, "/streams", create=False) as namespace:
            assert [info.name for info in await namespace.list()] == ["orders"]


async def test_the_program() -> None:
    async with LocalCluster(nodes=3, log_tree=True) as cluster:

        async def run(*arguments: str, given: str = "") -> tuple[int, str, str]:
            return await run_program_async("streams.cli", "-c", cluster.config_file, *arguments, given=given)

        status, _, err = await run("list")
        text = "there is no namespace /streams, nor another one: creating a stream makes it"
        assert (status, err) == (2, f"ldstream: NOTFOUND: {text}\n")
        status, _, err = await run("create", "orders", "--txid", "writer", "--ttl", "3d")
        assert (status, "no janitor runs" in err) == (0, True)
        status, _, err = await run("info", "orders", "--namespace", "/stream")
        assert (status, err) == (2, "ldstream: NOTFOUND: there is no namespace /stream; did you mean /streams?\n")
        assert (await run("create", "ledger", "--writers", "exclusive", "--roll-every", "2s"))[0] == 0
        status, out, _ = await run("list", "--json")
        assert status == 0
        assert [(row["stream"], row["writers"]) for row in map(json.loads, out.splitlines())] == [
            ("ledger", "exclusive"),
            ("orders", "shared"),
        ]
        assert (await run("write", "orders", "-T", ":", given="7:seven\n8:eight\n9:nine\n"))[0] == 0
        status, _, err = await run("write", "orders", "-T", ":", given="3:late\n")
        assert status == 1
        assert "transaction id 3 is below 9" in err
        assert err.count("TRANSACTION_ID_TOO_LOW") == 1
        status, _, err = await run("write", "orders", "-T", ":", given="late\n")
        assert (status, "line 1: it does not begin with a transaction id" in err) == (2, True)
        status, _, err = await run("write", "orders", "-T", ":", given="0:z\n9:x\n")
        assert (status, "line 1: its transaction id is 0; ids are 1 to 2^63 - 1" in err) == (2, True)
        status, _, err = await run("write", "orders", given="late\n")
        assert (status, "give --txids D" in err) == (2, True)
        assert (await run("read", "/streams/orders"))[1] == "seven\neight\nnine\n"
        assert (await run("read", "--from", "txid:8", "-T", "\\t", "orders"))[1] == "8\teight\n9\tnine\n"
        assert (await run("tail", "-n", "1", "orders"))[1] == "nine\n"
        _, out, _ = await run("read", "--format", "json", "--from", "-1h", "orders")
        rows = [json.loads(line) for line in out.splitlines()]
        assert [(row["txid"], row["payload"]) for row in rows] == [(7, "seven"), (8, "eight"), (9, "nine")]
        assert (await run("truncate", "orders", rows[1]["position"]))[0] == 0
        info = json.loads((await run("info", "orders", "--json"))[1])
        assert (info["first"], info["last"], info["last_txid"]) == (rows[1]["position"], rows[2]["position"], 9)
        assert info["truncated_before"] == rows[1]["position"]
        status, _, err = await run("read", "-f", "--idle", "1s", "--from", "end", "orders")
        assert (status, "the reader is caught up" in err) == (4, True)
        assert (await run("untruncate", "orders"))[0] == 0
        assert (await run("end", "orders", "--yes"))[0] == 0
        assert (await run("read", "-f", "orders"))[1] == "seven\neight\nnine\n"
        status, _, err = await run("write", "ledger", "--owner", "me", given="x\n")
        assert (status, "ledger is owned, token 1" in err) == (0, True)
        assert (await run("rename", "ledger", "book"))[0] == 0
        assert (await run("delete", "book"))[0] == 2
        assert (await run("delete", "book", "--yes"))[0] == 0
        status, _, err = await run("read", "book")
        assert (status, err) == (2, "ldstream: NOTFOUND: there is no stream book in /streams\n")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("oldest", "oldest"),
        ("END", "end"),
        ("e3n17+2", Position(LSN.parse("e3n17"), 2)),
        ("txid:7", TxId(7)),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
    ],
)
def test_places_as_people_write_them(text: str, place: object) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize("text", ["yesterday", "e3n17+", "txid:x", "17", "tail", "2026-01-31T12:00:00"])
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_place(text)


async def test_a_cluster_without_a_tree_says_so() -> None:
    async with LocalCluster(nodes=1) as cluster, Client(cluster.config_file) as client:
        with pytest.raises(LogDeviceError, match="the cluster has no log tree"):
            await Namespace(client).start()
