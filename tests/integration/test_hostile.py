"""Peers that break the rules, against a cluster of real processes: honest clients notice nothing, memory stays bounded, logs stay short.

What is not defended, because there is no authentication: a stranger who names a node of the cluster file in HELLO is believed, and may then
seal, clean and store as that node could; any client may append to, trim and read every log, and may make sequencers reactivate.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import msgpack
import pytest
import pytest_asyncio
import zstandard
from google_crc32c import value as crc32c

from client.client import Client
from client.read.items import CorruptRecord, Record
from client.takeover import stored_frames
from logdevice_py.core.batch import encode_batch
from logdevice_py.core.compression import Compression
from logdevice_py.core.ids import Generation, LogId, NodeId, shard_id
from logdevice_py.core.lsn import EPOCH_INVALID, EPOCH_MAX, ESN_INVALID, LSN, LSN_INVALID, LSN_MAX, Epoch, Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol import messages as m
from server.dev import layout
from tests.integration.hostile import ALL_CODECS, HostilePeer, Imagination, connected
from tests.integration.process_cluster import (
    Journal,
    ProcessCluster,
    StreamWorkload,
    compare,
    process_cluster,
    read_all,
    tail_of,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

HONEST, BIG, ABUSED, UNUSED = 1, 2, 3, 4
"""Log 1 has honest writers and readers, 2 holds much, 3 takes what hostile clients append, 4 is named in made-up messages."""
NODES = range(5)
PEAK_BYTES_MAX = 300 << 20
"""Half of it is RocksDB and the recent entries of the big log; no attack adds more than a few MiB."""
LOG_LINES_MAX = 30
"""Of one attack on one node."""
BIG_RECORDS, BIG_SIZE = 60, 500_000


@dataclass
class Target:
    """The cluster under attack and its honest users."""

    cluster: ProcessCluster
    client: Client
    stream: StreamWorkload
    follower: asyncio.Task[None]
    followed: dict[tuple[int, int], bytes]

    def peer(self, node: int) -> HostilePeer:
        return HostilePeer(self.cluster.supervisor, node)

    def log_lines(self) -> dict[int, list[str]]:
        return {node: layout.node_log(self.cluster.directory, NodeId(node)).read_text().splitlines() for node in NODES}


async def _follow(client: Client, followed: dict[tuple[int, int], bytes]) -> None:
    async with client.reader(LogId(HONEST), start=LSN.OLDEST) as reader:
        while batch := await reader.read(max_records=5000):
            assert not [gap for gap in batch.gaps if gap.kind.value == "dataloss"]
            for payload, lsn, offset in zip(batch.payloads, batch.lsns, batch.batch_offsets, strict=True):
                assert payload is not None
                followed[lsn, offset] = payload


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Target]:
    settings = {"runtime": {"hello_timeout_us": "3s"}}
    async with (
        process_cluster(tmp_path_factory.mktemp("hostile"), logs=4, settings=settings) as cluster,
        Client(cluster.file) as client,
    ):
        rng = random.Random(1)
        await asyncio.gather(
            *(client.append(LogId(BIG), rng.randbytes(BIG_SIZE), timeout=60) for _ in range(BIG_RECORDS))
        )
        followed: dict[tuple[int, int], bytes] = {}
        follower = asyncio.create_task(_follow(client, followed))
        stream = StreamWorkload(client, HONEST)
        await stream.more(100)
        yield Target(cluster, client, stream, follower, followed)
        await stream.finish()
        follower.cancel()
        await asyncio.gather(follower, return_exceptions=True)


@pytest_asyncio.fixture(loop_scope="module")
async def target(shared: Target, request: pytest.FixtureRequest) -> AsyncIterator[Target]:
    """The shared cluster; what must hold during and after every attack is checked here."""
    before = {node: len(lines) for node, lines in shared.log_lines().items()}
    yield shared
    await shared.stream.more(60)
    assert not shared.follower.done(), shared.follower.exception()
    acknowledged = set(shared.stream.journal.order)
    async with asyncio.timeout(60):  # nodes and tests share two cores
        while not shared.followed.keys() >= acknowledged:  # noqa: ASYNC110 - a reader has no event for it
            await asyncio.sleep(0.01)
    peaks = shared.cluster.peak_memory()
    assert len(peaks) == len(NODES), f"a node ended\n{shared.cluster.logs_of_nodes()}"
    lines = {node: lines[before[node] :] for node, lines in shared.log_lines().items()}
    print(
        f"{request.node.name}: peak {max(peaks.values()) >> 20} MiB, "
        f"at most {max(map(len, lines.values()))} lines, for example: {max(lines.values(), key=len)[:1]}"
    )
    assert max(peaks.values()) < PEAK_BYTES_MAX, peaks
    assert max(map(len, lines.values())) <= LOG_LINES_MAX, max(lines.values(), key=len)
    assert not [line for each in lines.values() for line in each if " CRITICAL " in line or "Traceback" in line]


def _append(log: int, payload: bytes, **changes: Any) -> m.Append:
    fields: dict[str, Any] = {
        "request_id": 1,
        "log": log,
        "flags": 0,
        "records": 1,
        "crc": crc32c(payload),
        "seen_epoch": 0,
        "previous_lsn": 0,
        "writer": b"",
        "sequence": 0,
        "stream_epoch": 0,
        "payload": payload,
    }
    return m.Append(**{**fields, **changes})


@asynccontextmanager
async def _connected_to_the_sequencer(target: Target) -> AsyncIterator[Callable[[m.Append], Awaitable[m.Appended]]]:
    """Gives what asks for an APPEND, over one connection while the log stays where it is: it moves when its node gets no processor for a
    second."""
    peer: HostilePeer | None = None

    async def ask(append: m.Append) -> m.Appended:
        nonlocal peer
        while True:
            if peer is None:
                node = (await target.client.sequencer(LogId(ABUSED))).node
                peer = await connections.enter_async_context(target.peer(node))
                assert await peer.greet()
            await peer.say(append)
            answer = await peer.wait_for(m.Appended)
            assert isinstance(answer, m.Appended), append
            moved = answer.status in (Status.REDIRECTED, Status.NOSEQUENCER, Status.PREEMPTED)
            if not moved or not answer.flags & m.AppendedFlags.NOT_REPLICATED:
                return answer
            peer = None

    async with AsyncExitStack() as connections, asyncio.timeout(120):
        yield ask


def _start(log: int, node: int, stream: int, **changes: Any) -> m.Start:
    fields: dict[str, Any] = {
        "log": log,
        "stream": stream,
        "shard": shard_id(NodeId(node)),
        "generation": 0,
        "first": 1,
        "until": LSN_MAX,
        "window_high": LSN_MAX,
        "bytes_credit": 2**64 - 1,
        "flags": 0,
        "filter_version": 1,
        "replication": 0,
        "known_down": [],
    }
    return m.Start(**{**fields, **changes})


def _frame(kind: int, fields: bytes, payload: bytes = b"", flags: int = 0) -> bytes:
    """A frame with a right checksum, whatever is in it."""
    head = struct.pack(">IHBB", 8 + len(fields) + len(payload), len(fields), kind, flags)
    return head + struct.pack(">I", crc32c(head + fields)) + fields + payload


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="http"),
        pytest.param(b"\x7f\xff\xff\xff" + bytes(100), id="2 GiB"),
        pytest.param(b"\x00\x00\x20\x00" + bytes(100), id="8 KiB before the introduction"),
        pytest.param(bytes(64), id="zeros"),
        pytest.param(_frame(3, msgpack.packb([1])), id="no HELLO first"),
        pytest.param(_frame(1, b"\xdd\xff\xff\xff\xff"), id="an array of 4 G elements"),
        pytest.param(_frame(1, b"\x91" * 3000), id="nested arrays"),
        pytest.param(random.Random(3).randbytes(3000), id="noise"),
    ],
)
async def test_garbage_from_a_newcomer_closes_its_connection(target: Target, data: bytes) -> None:
    for node in (0, 3):
        async with target.peer(node) as peer:
            await peer.say_bytes(data)
            assert await peer.is_cut_off()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(_frame(200, msgpack.packb([])), id="unknown type"),
        pytest.param(_frame(3, msgpack.packb([1, 2])), id="too few fields"),
        pytest.param(_frame(17, msgpack.packb([-1, 1, 0, 0])), id="out of range"),
        pytest.param(_frame(17, msgpack.packb([1, 1, 0, 0]), flags=1), id="unknown flags"),
        pytest.param(_frame(17, msgpack.packb([1, 1, 0, 0]), b"payload"), id="payload where none belongs"),
        pytest.param(_frame(17, msgpack.packb({"a": 1})), id="a map"),
        pytest.param(_frame(17, msgpack.packb([1, 1, 0, 0]))[:-1] + b"\x01", id="bad checksum"),
        pytest.param(b"\x7f\xff\xff\xff", id="2 GiB"),
    ],
)
async def test_garbage_after_the_introduction_closes_the_connection(target: Target, data: bytes) -> None:
    async with target.peer(1) as peer:
        assert await peer.greet()
        await peer.say_bytes(data)
        assert await peer.is_cut_off()


async def test_a_flood_of_introductions(target: Target) -> None:
    peers = [target.peer(index % 5) for index in range(300)]
    async with AsyncExitStack() as flood:
        for first in range(0, len(peers), 50):
            some = peers[first : first + 50]
            await flood.enter_async_context(connected(some))
            acks = await asyncio.gather(*(peer.greet() for peer in some))
            assert all(ack is not None and ack.status is Status.OK for ack in acks)
        hello = m.Hello(
            protocol_min=1,
            protocol_max=1,
            cluster_name="",
            cluster_uuid=b"",
            node=NodeId(-1),
            instance=0,  # type: ignore[arg-type]
            destination=NodeId(-1),
            config_version=2**64 - 1,
            name="",
        )
        await peers[0].say(*[hello] * 5000)  # once is enough: the others are dropped


async def test_who_is_of_another_cluster_version_or_place_is_refused(target: Target) -> None:
    cases: list[tuple[dict[str, Any], Status]] = [
        ({"cluster_name": "other"}, Status.INVALID_CLUSTER),
        ({"cluster_uuid": bytes(16)}, Status.INVALID_CLUSTER),
        ({"protocol_min": 9, "protocol_max": 9}, Status.PROTO),
        ({"destination": 3}, Status.NOTINCONFIG),
        ({"node": 99, "config_version": 2**64 - 1}, Status.NOTINCONFIG),
        ({"node": 0}, Status.NOTINCONFIG),
    ]
    for changes, status in cases:
        async with target.peer(0) as peer:
            ack = await peer.greet(**changes)
            assert ack is not None, changes
            assert ack.status is status, changes
            assert await peer.is_cut_off()


async def test_half_open_connections_are_closed_and_few_lines_tell(target: Target) -> None:
    peers = [target.peer(index % 2) for index in range(200)]
    async with connected(peers):
        await asyncio.gather(*(peer.say_bytes(b"\x00\x00\x00\x40\x00") for peer in peers[:50]))  # some begin a frame
        assert all(await asyncio.gather(*(peer.is_cut_off() for peer in peers)))


async def test_a_reader_that_never_reads_what_it_asked_for(target: Target) -> None:
    peers = [target.peer(node) for node in NODES for _ in range(4)]
    async with connected(peers):
        assert all(await asyncio.gather(*(peer.greet() for peer in peers)))
        for index, peer in enumerate(peers):
            node = index // 4
            await peer.say(*(_start(BIG, node, stream) for stream in range(40)))
        await target.stream.more(200)
        await asyncio.sleep(1.5)


async def test_digests_that_nobody_reads(target: Target) -> None:
    """The answers are thousands of times as large as the questions."""
    peers = [target.peer(node) for node in NODES for _ in range(2)]
    async with connected(peers):
        assert all(await asyncio.gather(*(peer.greet() for peer in peers)))
        for index, peer in enumerate(peers):
            whole = m.DigestRange(BIG, Lsn(1), LSN_MAX, Generation(0))
            digest = m.Digest(request_id=1, shard=shard_id(NodeId(index // 2)), bytes_max=2**32 - 1, ranges=[whole])
            await peer.say(*[digest] * 800)
        await target.stream.more(200)
        await asyncio.sleep(1.5)


async def test_digests_of_thousands_of_ranges(target: Target) -> None:
    async with target.peer(1) as peer:
        assert await peer.greet()
        ranges = [m.DigestRange(LogId(1000 + number), Lsn(1), Lsn(2**32), Generation(0)) for number in range(4096)]
        digest = m.Digest(request_id=1, shard=shard_id(NodeId(1)), bytes_max=1, ranges=ranges)
        await peer.say(*[digest] * 300)
        await target.stream.more(200)
        await peer.read_some(1)


async def test_questions_whose_answers_nobody_reads(target: Target) -> None:
    async with target.peer(2) as peer:
        assert await peer.greet()
        ask = m.GetSeqState(request_id=1, log=LogId(999_999), flags=0, min_epoch=0)  # type: ignore[arg-type]
        for _ in range(60):
            await peer.say(*[ask] * 2000)
        await target.stream.more(100)


async def test_appends_that_lie(target: Target) -> None:
    batch = int(m.AppendFlags.BATCH)
    stream = int(m.AppendFlags.WRITE_STREAM)
    cases = [
        (_append(ABUSED, b"x", records=0), Status.INVALID_PARAM),
        (_append(ABUSED, b"x", records=65_537, flags=batch), Status.INVALID_PARAM),
        (_append(ABUSED, b"x", records=2**32 - 1, flags=batch), Status.INVALID_PARAM),
        (_append(ABUSED, b"x", records=5), Status.BADPAYLOAD),
        (_append(ABUSED, b"x", crc=1), Status.BADPAYLOAD),
        (_append(ABUSED, bytes(2 << 20)), Status.TOOBIG),
        (_append(ABUSED, b"x", flags=stream), Status.INVALID_PARAM),
        (_append(ABUSED, b"x", flags=stream, writer=bytes(16)), Status.INVALID_PARAM),
        (_append(12345, b"x"), Status.NOTFOUND),
        (_append(0, b"x"), Status.NOTFOUND),
        (_append(ABUSED | 1 << 62, b"x"), Status.NOTFOUND),
        (_append(2**63 - 1, b"x"), Status.NOTFOUND),
    ]
    async with _connected_to_the_sequencer(target) as ask:
        for append, status in cases:
            answer = await ask(append)
            assert answer.status is status, (append.log, append.records, append.flags, answer)
            assert not answer.lsn


async def test_the_next_number_of_a_write_stream_of_which_a_record_was_read(target: Target) -> None:
    """Whoever reads the id first gets the place; the stream's own writer is told that it has none, and another writer goes on."""
    log = LogId(ABUSED)
    async with Client(target.cluster.file) as client, _connected_to_the_sequencer(target) as ask, asyncio.timeout(120):
        while True:
            writer = client.buffered_writer()
            first = await writer.append(log, b"honest")
            found = await stored_frames(client, log, first.lsn, first.lsn, lambda writer: True)
            (frame,) = (each for each in found.frames if each.payload == b"honest")
            stream = {"writer": bytes(frame.writer), "stream_epoch": first.lsn.epoch}
            flags = int(m.AppendFlags.WRITE_STREAM)
            forged = await ask(_append(ABUSED, b"forged", flags=flags, sequence=2, **stream))
            if forged.status is Status.OK:
                break
            await writer.close()  # the log is in another epoch since
        with pytest.raises(LogDeviceError, match=f"other content at {LSN(forged.lsn)}.0 as its frame 2") as refused:
            await writer.append(log, b"in its place")
        assert refused.value.status is Status.WRITE_STREAM_BROKEN
        assert not refused.value.retriable
        assert not refused.value.maybe_applied
        with pytest.raises(LogDeviceError, match="WRITE_STREAM_BROKEN"):
            await writer.close()
        async with client.buffered_writer() as other:
            last = await other.append(log, b"by another writer")
        async with client.reader(log, start=first.lsn, until=last.lsn) as reader:
            payloads = [item.payload async for item in reader if isinstance(item, Record)]
        assert payloads[0] == b"honest"
        assert payloads[-1] == b"by another writer"
        assert b"forged" in payloads
        assert b"in its place" not in payloads


async def test_batches_that_cannot_be_unpacked_cost_only_their_own_positions(target: Target) -> None:
    """What the sequencer does not look into is given exactly as many positions as it declared."""
    flags = int(m.AppendFlags.BATCH)
    bomb_array = msgpack.packb([bytes(40 << 20)])
    bomb = struct.pack(">BI", Compression.ZSTD, len(bomb_array)) + zstandard.ZstdCompressor().compress(bomb_array)
    lying_bomb = struct.pack(">BI", Compression.ZSTD, 100) + bomb[5:]
    bad = [
        (b"", 3),
        (b"\x00", 2),
        (b"\x09" + bytes(20), 4),
        (random.Random(4).randbytes(500), 7),
        (encode_batch([b"a", b"b"]), 65_536),
        (encode_batch([b"a", b"b"]), 1),
        (struct.pack(">BI", Compression.NONE, 2**32 - 1) + b"x", 2),
        (struct.pack(">BI", Compression.LZ4, 64 << 20) + b"\xff" * 500, 2),
        (struct.pack(">BI", Compression.NONE, 5) + b"\xdd\xff\xff\xff\xff", 3),
        (lying_bomb, 5),
        (bomb, 2),
    ]
    honest: dict[tuple[int, int], bytes] = {}
    declared = 0
    before = await tail_of(target.client, ABUSED)
    async with _connected_to_the_sequencer(target) as ask:
        for index, (payload, records) in enumerate(bad):
            answer = await ask(_append(ABUSED, payload, records=records, flags=flags))
            assert answer.status in (Status.OK, Status.BADPAYLOAD), (index, answer)
            declared += records if answer.status is Status.OK else 0
            receipt = await target.client.append(LogId(ABUSED), b"honest-%d" % index)
            honest[int(receipt.lsn), receipt.batch_offset] = b"honest-%d" % index
    async with target.peer((await target.client.sequencer(LogId(ABUSED))).node) as peer:
        assert await peer.greet()
        for _ in range(20):
            await peer.say(_append(ABUSED, bomb, records=1, flags=flags))
    tail = await tail_of(target.client, ABUSED)
    found: dict[tuple[int, int], bytes] = {}
    corrupt = 0
    async with target.client.reader(LogId(ABUSED), start=LSN(int(before) + 1), until=tail) as reader:
        while batch := await reader.read(max_records=1000):
            for item in batch:
                if isinstance(item, CorruptRecord):
                    corrupt += 1
                elif isinstance(item, Record) and len(item.payload) < 100:
                    found[int(item.lsn), item.batch_offset] = item.payload
    assert found == honest
    assert corrupt == declared


async def test_requests_about_what_does_not_exist(target: Target) -> None:
    async with target.peer(1) as peer:
        assert await peer.greet()
        own, elsewhere = 1, 4
        cases = [
            (_start(12345, own, 1), Status.NOTFOUND),
            (_start(HONEST | 1 << 62, own, 2), Status.NOTFOUND),
            (_start(HONEST, elsewhere, 3), Status.NOTSTORAGE),
            (_start(HONEST, 300, 4), Status.NOTSTORAGE),
            (_start(HONEST, own, 5, generation=77), Status.REBUILDING),
            (_start(HONEST, own, 6, first=LSN_MAX, until=1), Status.OK),
            (_start(HONEST, own, 7, first=0, until=0, window_high=0, bytes_credit=0), Status.OK),
        ]
        for start, status in cases:
            await peer.say(start)
            answer = await peer.wait_for(m.Started)
            assert answer is not None, start
            assert (answer.stream, answer.status) == (start.stream, status)
        shard = shard_id(NodeId(own))
        for log in (HONEST, 12345, 1 << 62):
            stop = m.Stop(log=LogId(log), stream=99, shard=shard)
            window = m.Window(
                log=LogId(log), stream=99, shard=shard, filter_version=9, high=LSN_MAX, bytes_credit=2**64 - 1
            )
            await peer.say(stop, window, stop)
        for log in (12345, HONEST | 1 << 62):
            await peer.say(m.Trim(request_id=5, log=LogId(log), shard=shard, lsn=2**40))  # type: ignore[arg-type]
            trimmed = await peer.wait_for(m.Trimmed)
            assert trimmed is not None
            assert trimmed.status is Status.NOTFOUND, log
        for log in (0, 12345, HONEST | 1 << 62, 2**63 - 1):
            await peer.say(m.GetSeqState(request_id=6, log=LogId(log), flags=0, min_epoch=0))  # type: ignore[arg-type]
            state = await peer.wait_for(m.SeqState)
            assert state is not None, log
            assert state.status is Status.NOTFOUND, (log, state)


async def test_epochs_that_were_never_given_are_not_believed(target: Target) -> None:
    """Each of these may make the sequencer take a further epoch; none makes it skip any, and honest writers go on."""
    sequencer = await target.client.sequencer(LogId(HONEST))
    async with target.peer(sequencer.node) as peer:
        assert await peer.greet()
        for _ in range(5):
            await peer.say(
                m.GetSeqState(request_id=6, log=LogId(HONEST), flags=0, min_epoch=EPOCH_MAX),
                _append(HONEST, b"", seen_epoch=EPOCH_MAX),
                _append(HONEST, b"", previous_lsn=LSN_MAX),
                _append(HONEST, b"", previous_lsn=1),
            )
            await target.stream.more(60)
        await peer.read_some(1)
        assert not [answer for answer in peer.received if isinstance(answer, m.Appended) and answer.status is Status.OK]
    assert (await target.client.sequencer(LogId(HONEST))).epoch < sequencer.epoch + 30


async def test_messages_of_nodes_are_not_taken_from_clients(target: Target) -> None:
    logs = [HONEST, BIG, HONEST | 1 << 62]
    for node in NODES:
        rng = random.Random(node)
        imagination = Imagination(rng, logs, [int(shard_id(NodeId(node)))])
        async with target.peer(node) as peer:
            assert await peer.greet()
            shard = shard_id(NodeId(node))
            await peer.say(
                m.Seal(
                    request_id=1,
                    shard=shard,
                    node=NodeId(0),
                    logs=[m.SealLog(log, EPOCH_MAX, EPOCH_INVALID, []) for log in (HONEST, BIG)],
                ),
                m.Release(shard=shard, logs=[(HONEST, LSN_MAX)]),
                m.Clean(
                    request_id=1,
                    shard=shard,
                    seal_epoch=EPOCH_MAX,
                    node=NodeId(0),
                    logs=[m.CleanLog(HONEST, Epoch(1), ESN_INVALID, ESN_INVALID, LSN_INVALID, Timestamp(0), 1)],
                ),
            )
            for codec in ALL_CODECS:
                if codec.cls not in (m.Append, m.GetSeqState, m.Start, m.Window, m.Stop, m.Trim, m.Digest):
                    for _ in range(20):
                        await peer.say_bytes(imagination.frame(codec))
            await peer.say(m.GetSeqState(request_id=77, log=LogId(12345), flags=0, min_epoch=0))  # type: ignore[arg-type]
            assert await peer.wait_for(m.SeqState), "the connection is still served"


async def test_made_up_requests_of_clients(target: Target) -> None:
    logs = [UNUSED, UNUSED | 1 << 62, 12345, 0, 2**63 - 1]
    for node in NODES:
        rng = random.Random(100 + node)
        imagination = Imagination(rng, logs, [int(shard_id(NodeId(node))), 0, 2**23 - 1])
        async with target.peer(node) as peer:
            assert await peer.greet()
            for _ in range(40):
                for codec in ALL_CODECS:
                    await peer.say_bytes(imagination.frame(codec))
                await peer.read_some(0.001)


async def test_a_stranger_that_names_a_node_cannot_crash_another(target: Target) -> None:
    """It is believed, as there is no authentication: it could seal and clean every log. Bytes that make no sense must not end a process."""
    logs = [UNUSED, UNUSED | 1 << 62, 12345, 0, 2**63 - 1]
    for node in NODES:
        rng = random.Random(200 + node)
        imagination = Imagination(rng, logs, [int(shard_id(NodeId(node))), 0, 2**23 - 1])
        async with target.peer(node) as peer:
            assert await peer.greet(node=(node + 1) % 5)
            for _ in range(40):
                for codec in ALL_CODECS:
                    if codec.cls not in (m.Gossip, m.Shutdown):
                        await peer.say_bytes(imagination.frame(codec))
                await peer.read_some(0.001)


async def test_after_all_of_it_every_acknowledged_record_is_there(target: Target) -> None:
    await target.stream.more(100)
    journal = target.stream.journal
    known = Journal(acknowledged=dict(journal.acknowledged), order=list(journal.order))
    compare(await read_all(target.client, HONEST), known)
