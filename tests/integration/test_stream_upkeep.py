"""What becomes of segments on a real cluster in this process: listed, trimmed, copied, read from copies, restored."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from client.client import Client
from client.guards import Position
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import utc_datetime
from server.dev.local_cluster import LocalCluster
from server.duties.janitor_duty import see_to_namespaces
from streams.attributes import Roll
from streams.cold.copier import copy_range
from streams.cold.errors import ColdCopyError
from streams.cold.restoring import read_catalogue
from streams.cold.store import ColdStore
from streams.namespace import Namespace
from streams.records import TxId
from streams.stream import Stream
from streams.upkeep.commands import BeginCopy, BeginTrim, TrimCause
from streams.upkeep.janitor import Janitor, copy_now
from streams.upkeep.restoring import restore_stream
from streams.upkeep.segments import StreamSegmentState
from tests.forked import run_program_async


async def write_segments(stream: Stream, segments: int, *, first: int = 1) -> list[bytes]:
    """Fill so many segments and begin another one; what was written. The stream rolls by size."""
    written: list[bytes] = []
    async with stream.writer() as writer:
        done = len([each for each in await stream.segments() if each.completed])
        while len([each for each in await stream.segments() if each.completed]) < done + segments:
            payload = b"%d " % (first + len(written)) + bytes(600)
            txid = first + len(written) if stream.attributes.txid.value == "writer" else None
            await writer.write(payload, txid=txid)
            written.append(payload)
        txid = first + len(written) if stream.attributes.txid.value == "writer" else None
        await writer.write(b"begins another one", txid=txid)
    return [*written, b"begins another one"]


async def read_all(stream: Stream) -> list[bytes | None]:
    async with stream.reader(until="tail") as reader:
        return [record.payload async for record in reader]


async def test_a_node_is_the_janitor_where_a_stream_takes_one_and_lets_the_next_one_in() -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        cluster.client() as of_node,
        Namespace(client) as namespace,
    ):

        async def until_janitor_is(owner: str | None) -> None:
            async with asyncio.timeout(30):
                while (None if (lease := namespace.state.role.lease) is None else lease.owner) != owner:
                    await namespace.wait_for_change(1)

        await namespace.create("plain")
        await see_to_namespaces(of_node, "N1", pause=0.05)  # ends: nobody takes a janitor
        kept = await namespace.create("kept", ttl="3d")
        seeing = asyncio.create_task(see_to_namespaces(of_node, "N1", pause=0.05))
        await until_janitor_is("N1")
        seeing.cancel()
        await asyncio.gather(seeing, return_exceptions=True)
        await until_janitor_is(None)
        seeing = asyncio.create_task(see_to_namespaces(of_node, "N2", pause=0.05))
        await until_janitor_is("N2")
        await namespace.delete(kept.name)
        async with asyncio.timeout(30):
            await seeing
        await until_janitor_is(None)


async def test_segments_tell_what_they_hold() -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("rolls", txid="writer", roll=Roll(bytes="2KiB"))
        assert await stream.segments() == []
        written = await write_segments(stream, 3)
        segments = await stream.segments()
        *completed, last = segments
        assert last.state is StreamSegmentState.IN_PROGRESS
        assert {each.state for each in completed} == {StreamSegmentState.COMPLETED}
        assert sum(each.records or 0 for each in segments) == len(written) == await stream.count()
        assert [each.first_txid for each in segments[1:]] == [(each.last_txid or 0) + 1 for each in completed]
        assert await stream.segments(limit=1) == segments[:1]
        assert await stream.segments(start=segments[1].first) == segments[1:]

        second = segments[1]
        assert second.last is not None
        await stream.truncate(second.last)
        states = [each.state for each in await stream.segments()]
        assert states[:2] == [StreamSegmentState.TRUNCATED, StreamSegmentState.TRUNCATED_IN_PART]
        assert set(states[2:-1]) <= {StreamSegmentState.COMPLETED}
        left = await read_all(stream)
        assert await stream.count() == len(left) < len(written)
        assert await stream.count(Position(segments[0].first.lsn, 0), second.last) == 0
        await stream.untruncate()
        assert await stream.count(segments[1].first, second.last.following) == second.records
        assert await read_all(stream) == written


async def kept_up(namespace: Namespace, stream: Stream) -> Janitor:
    """After one round of a janitor that holds the role no more."""
    janitor = Janitor(namespace, owner="janitor")
    async with janitor:
        await janitor.round()
    assert janitor.failures == {}
    return janitor


async def in_log(client: Client, stream: Stream) -> int:
    """Records that the log itself has."""
    found = 0
    async with client.reader(stream.log, until=await client.tail_lsn(stream.log)) as reader:
        while batch := await reader.read():
            found += len(batch)
    return found


async def test_what_is_old_or_truncated_is_trimmed() -> None:
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("cut", roll=Roll(bytes="2KiB"), truncated_retention="1ms")
        kept = await namespace.create("kept", truncated_retention="1h")
        written = await write_segments(stream, 2)
        second = (await stream.segments())[1]
        assert second.last is not None
        await stream.truncate(second.last)
        async with kept.writer() as writer:
            await writer.write(b"x")
            last = (await writer.write(b"y")).position
        await kept.truncate(last)
        await kept_up(namespace, stream)
        left = await read_all(stream)
        assert await in_log(client, stream) == len(left) < len(written)
        with pytest.raises(LogDeviceError, match="is trimmed") as raised:
            await stream.untruncate()
        assert raised.value.status is Status.CONFLICT
        assert await read_all(stream) == left
        await kept.untruncate()
        assert await read_all(kept) == [b"x", b"y"]

        old = await namespace.create("old", roll=Roll(bytes="2KiB"), ttl="1ms")
        written = await write_segments(old, 2)
        await kept_up(namespace, old)
        assert await read_all(old) == written[-len(await read_all(old)) :]
        assert len(await old.segments()) == 1
        assert namespace.state.role.lease is None
        assert namespace.state.role.did.startswith("old: ")


async def test_segments_are_copied_then_trimmed_and_read_without_a_seam(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/cold"
    store = ColdStore(url)
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        options: dict[str, Any] = {"txid": "writer", "roll": Roll(bytes="2KiB"), "cold": url}
        stream = await namespace.create("team/orders", ttl="1ms", cold_ttl="365d", **options)
        written = await write_segments(stream, 2)
        segments = await stream.segments()

        # the store cannot be written to: nothing is trimmed
        (tmp_path / "cold").write_text("in the way")
        janitor = Janitor(namespace)
        async with janitor:
            await janitor.round()
        assert list(janitor.failures) == ["team/orders"]
        assert await in_log(client, stream) == len(written)
        (tmp_path / "cold").unlink()

        async with stream.reader() as reader:  # follows the stream from before it is trimmed
            first = await reader.read(1)
            await kept_up(namespace, stream)
            upkeep = namespace.stream_entry(stream.number).upkeep
            assert upkeep.trimming_to == upkeep.copied_to
            assert await in_log(client, stream) < len(written)
            followed = list(first.payloads)
            while len(followed) < len(written):
                followed += (await reader.read()).payloads
            assert followed == written
        assert await read_all(stream) == written
        assert await stream.count() == len(written)
        assert (await stream.segments())[0].state is StreamSegmentState.COLD
        for txid in (1, 3, len(written)):
            async with stream.reader(TxId(txid), until="tail") as reader:
                assert [record.payload async for record in reader] == written[txid - 1 :]
        began = segments[1].began
        assert began is not None
        async with stream.reader(utc_datetime(began), until="tail") as reader:
            assert (await anext(reader)).txid == segments[1].first_txid
        # what is only in copies is truncated, and taken back
        assert segments[0].last is not None
        await stream.truncate(segments[0].last.following)
        assert len(await read_all(stream)) == len(written) - (segments[0].records or 0)
        await stream.untruncate()
        assert await read_all(stream) == written

        restored = await restore_stream(namespace, url, "again", source="team/orders")
        again = await namespace.open("again")
        copied = [payload for payload in written if payload in set(await read_all(again))]
        assert restored.records == len(copied) == sum(each.copy.records for each in upkeep.copies)
        async with again.reader(TxId(3), until="tail") as reader:
            assert [record.payload async for record in reader] == copied[2:]

        brief = await namespace.create("brief", cold_ttl="1ms", **options)
        await write_segments(brief, 1)
        assert await copy_now(namespace, brief.number) >= 1
        assert await asyncio.to_thread(lambda: read_catalogue(store).log("brief").copies)
        await kept_up(namespace, brief)
        assert namespace.stream_entry(brief.number).upkeep.copies == ()
        assert "brief" not in {log.stream for log in await asyncio.to_thread(lambda: read_catalogue(store).logs)}


async def test_one_command_makes_all_streams_again_in_another_cluster(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/cold"
    written: dict[str, list[bytes]] = {}
    async with (
        LocalCluster(nodes=1, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        for name, txid in (("team/orders", "writer"), ("clicks", "time"), ("short", "time")):
            stream = await namespace.create(name, txid=txid, roll=Roll(bytes="2KiB"), cold=url)
            written[name] = await write_segments(stream, 2)
            await stream.mark_end()
            await kept_up(namespace, stream)
        no_stream = await client.append(1, b"of a log that is no stream")
        await copy_range(client, ColdStore(url), 1, LSN.OLDEST, no_stream.lsn, token="by-hand")
    lost = read_catalogue(ColdStore(url)).log("short").copies[-1]
    path = tmp_path / "cold" / lost.manifest_name
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert not read_catalogue(ColdStore(url)).log("short").missing(), "that the end is missing, no other copy tells"

    async with (
        LocalCluster(nodes=1, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):

        async def restore(*arguments: str) -> tuple[int, str]:
            options = ("-c", cluster.config_file, "restore", "--from", url, *arguments)
            status, _, err = await run_program_async("streams.cli", *options)
            return status, err

        status, err = await restore("--all")
        assert status == 1
        assert "short: not restored: BADPAYLOAD" in err
        restored = ["clicks", "team/orders"]
        assert [info.name for info in await namespace.list()] == restored
        for name in restored:
            assert await read_all(await namespace.open(name)) == written[name]
        async with (await namespace.open("team/orders")).reader(TxId(2), until="tail") as reader:
            assert (await anext(reader)).txid == 2
        path.write_bytes(whole)
        status, err = await restore("--all")
        assert (status, "clicks: not restored: EXISTS" in err) == (1, True), "what is there is left alone"
        assert await read_all(await namespace.open("short")) == written["short"]
        assert err.count("not restored") == len(restored), err
        assert (await restore())[0] == (await restore("--all", "clicks"))[0] == 2


async def test_a_stream_that_ended_may_be_in_copies_alone(tmp_path: Path) -> None:
    async with (
        LocalCluster(nodes=1, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        cold = f"file://{tmp_path}/cold"
        stream = await namespace.create("orders", txid="writer", roll=Roll(bytes="2KiB"), cold=cold, ttl="1ms")
        written = await write_segments(stream, 1)
        await stream.mark_end()
        await kept_up(namespace, stream)
        assert await in_log(client, stream) == 0
        assert {each.state for each in await stream.segments()} == {StreamSegmentState.COLD}
        assert await read_all(stream) == written
        last = await stream.last()
        assert last is not None
        assert (last.payload, last.txid) == (written[-1], len(written))

        async def printed(*arguments: str) -> list[str]:
            program = ("streams.cli", "-c", cluster.config_file, *arguments)
            status, out, err = await run_program_async(*program)
            assert (status, err) == (0, "")
            return out.splitlines()

        lines = [f"{txid}:{payload.decode()}" for txid, payload in enumerate(written, start=1)]
        assert await printed("tail", "orders", "-T", ":", "-n", "2") == lines[-2:]
        assert await printed("tail", "orders", "-T", ":", "-n", "1000") == lines
        async with stream.reader(TxId(len(written))) as reader:
            assert [record.payload async for record in reader] == written[-1:]
        await stream.truncate(last.position)
        assert await stream.last() == last
        await stream.truncate(last.position.following)
        assert await stream.last() is None


class Died(BaseException):
    """The janitor's process is killed: nothing catches it."""


STEPS = (
    "acquired",
    "began to copy",
    "copied",
    "committed a copy",
    "began to trim",
    "trimmed",
    "removed copies",
    "swept",
)


async def test_a_restoration_that_fails_tells_of_the_part_that_is_there(tmp_path: Path) -> None:
    async with (
        LocalCluster(nodes=1, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        cold = f"file://{tmp_path}/cold"
        stream = await namespace.create("orders", txid="writer", roll=Roll(bytes="2KiB"), cold=cold)
        await write_segments(stream, 3)
        await copy_now(namespace, stream.number)
        (first, second, *_) = [each.copy for each in namespace.stream_entry(stream.number).upkeep.copies]
        (file,) = (tmp_path / "cold" / second.folder).glob("*.parquet")
        file.unlink()
        with pytest.raises(ColdCopyError, match=f"{file} is not there") as raised:
            await restore_stream(namespace, cold, "again", source="orders")
        assert (raised.value.status, raised.value.maybe_applied) == (Status.NOTFOUND, True)
        left = await (await namespace.open("again")).count()
        assert 0 < left <= first.records
        assert f"The stream again has {left} records so far: delete it before you restore it again" in str(raised.value)


async def test_a_janitor_that_dies_after_any_step_is_followed_by_another(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/cold"
    async with (
        LocalCluster(nodes=3, log_tree=True) as cluster,
        cluster.client() as client,
        Namespace(client) as namespace,
    ):
        stream = await namespace.create("orders", roll=Roll(bytes="2KiB"), cold=url, ttl="1ms")
        written = await write_segments(stream, 1)
        reached: list[str] = []
        for step in STEPS[:-2]:

            def die(done: str, _: str, step: str = step) -> None:
                reached.append(done)
                if done == step:
                    raise Died

            janitor = Janitor(namespace, lease="200ms", on_step=die)
            with suppress(Died):
                await janitor.acquire()
                await janitor.round()
            former = janitor.token  # it is not heard of again
            if janitor._role.renewing is not None:
                janitor._role.renewing.cancel()
            assert await read_all(stream) == written
            # what it had under way does not count once another holds the role
            async with Janitor(namespace):
                version = namespace.stream_entry(stream.number).version
                for command in (
                    BeginTrim(former, stream.number, LSN(1 << 40), TrimCause.EXPIRED, version),
                    BeginCopy(former, stream.number, LSN.OLDEST, LSN(1 << 40)),
                ):
                    with pytest.raises(LogDeviceError) as raised:
                        await namespace.propose(command)
                    assert raised.value.status is Status.FENCED
        assert set(reached) >= set(STEPS[:-2])
        await kept_up(namespace, stream)
        upkeep = namespace.stream_entry(stream.number).upkeep
        assert upkeep.copied_to == upkeep.trimming_to > 0
        assert upkeep.copying is None
        assert await read_all(stream) == written
        held = (await asyncio.to_thread(read_catalogue, ColdStore(url))).log("orders").copies
        assert held == [each.copy for each in upkeep.copies]  # leftovers of the dead are swept
