"""What a stranger who has the cluster file can try. Each attack uses the wire alone, and says what the nodes made of it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import random
import struct
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import lz4.block
import msgpack
import zstandard
from google_crc32c import value as crc32c

from tests.hostile.wire import (
    FLAGS,
    Cluster,
    Connection,
    ForgeableFrame,
    encode,
    raw_frame,
    sequencer_of,
    shard,
    stream_frames,
)

LSN_MAX = 2**63 - 1
EPOCH_MAX = 2**31 - 1
_AHEAD = 50
"""Numbers of a write stream that are tried: its writer goes on meanwhile."""
EVENT_LOG, SNAPSHOT_LOG = 2**62 - 1, 2**62 - 2


@dataclass
class Stage:
    """The cluster under attack, and which of its logs are for what."""

    cluster: Cluster
    victims: list[int]
    """Logs of honest users: nothing of them may change."""
    streams: list[int]
    """Logs into which honest BufferedWriters write."""
    abused: int
    """A log that takes what strangers append."""
    large: int
    """A log that holds much."""
    scale: float = 1.0
    """Factor on the size of each attack."""
    rng: random.Random = field(default_factory=lambda: random.Random(1))
    turn: int = 0

    def many(self, count: int) -> int:
        """A number, at this scale."""
        return max(1, int(count * self.scale))

    def next_node(self) -> int:
        """The nodes in turn."""
        self.turn += 1
        return list(self.cluster.nodes)[self.turn % len(self.cluster.nodes)]

    def connection(self, node: int | None = None) -> Connection:
        """To a node, or to the next one."""
        return Connection(self.cluster, self.next_node() if node is None else node)


Attack = Callable[[Stage], Awaitable[str]]
ATTACKS: dict[str, Attack] = {}


def attack(name: str) -> Callable[[Attack], Attack]:
    """Declare an attack. It returns a word for what came of it; equal words are counted together."""

    def declare(run: Attack) -> Attack:
        ATTACKS[name] = run
        return run

    return declare


def _status(answer: Any) -> str:
    return "no answer" if answer is None else f"status {answer.fields['status']}"


@attack("TRIM beyond the end, to one shard")
async def trim_beyond_the_end(stage: Stage) -> str:
    """What it destroys shows at the end, when all that was acknowledged is read."""
    async with stage.connection() as peer:
        await peer.greet()
        for log in stage.victims:
            for lsn in (LSN_MAX - 1, LSN_MAX):
                await peer.say(encode("Trim", request_id=1, log=log, shard=shard(peer.node), lsn=lsn))
        return _status(await peer.wait_for("Trimmed"))


@attack("TRIM_POINTS beyond the end, as a node")
async def trim_points_of_a_false_node(stage: Stage) -> str:
    async with stage.connection() as peer:
        other = (peer.node + 1) % len(stage.cluster.nodes)
        ack = await peer.greet(node=other)
        logs = [[log, LSN_MAX - 1] for log in stage.victims]
        await peer.say(encode("TrimPoints", shard=shard(peer.node), sender=shard(other), wall=0, logs=logs))
        return _status(ack)


async def _latest_frame(stage: Stage, log: int, sequencer: int) -> ForgeableFrame | None:
    """The last frame of a write stream that any shard sends."""
    async with stage.connection(sequencer) as peer:
        await peer.greet()
        await peer.say(encode("GetSeqState", request_id=1, log=log))
        state = await peer.wait_for("SeqState")
    if state is None:
        return None
    latest = None
    for node in stage.cluster.nodes:
        async with stage.connection(node) as peer:
            await peer.greet()
            first = max(1, state.fields["last_released"] - 3)
            start = {
                "log": log,
                "stream": 1,
                "shard": shard(node),
                "first": first,
                "until": LSN_MAX,
                "filter_version": 1,
            }
            await peer.say(encode("Start", window_high=LSN_MAX, bytes_credit=1 << 30, **start))
            for _ in range(5):
                for answer in await peer.answers(0.02):
                    if answer.name == "Records":
                        for each in stream_frames(answer):
                            if latest is None or each.lsn > latest.lsn:
                                latest = each
                if latest is not None:
                    return latest
    return latest


@attack("forged frames of a write stream")
async def forge_a_write_stream(stage: Stage) -> str:
    """Read the writer's id and its last number from a shard, then send the next numbers with other content."""
    log = stage.rng.choice(stage.streams)
    sequencer = await sequencer_of(stage.cluster, log)
    latest = await _latest_frame(stage, log, sequencer)
    if latest is None:
        return "no frame to read"
    payload = b"forged"
    values = {
        "log": log,
        "writer": latest.writer,
        "stream_epoch": latest.lsn >> 32,
        "records": 1,
        "crc": crc32c(payload),
    }

    async def forge(ahead: int) -> bool | None:
        """On a connection of its own: what follows a frame that is refused is refused as well."""
        async with stage.connection(sequencer) as peer:
            await peer.greet()
            number = latest.sequence + ahead
            await peer.say(
                encode("Append", payload, flags=FLAGS["Append.WRITE_STREAM"], request_id=1, sequence=number, **values)
            )
            answer = await peer.wait_for("Appended", 5)
            return None if answer is None else answer.fields["status"] == 0

    outcomes = await asyncio.gather(*(forge(ahead) for ahead in range(1, _AHEAD + 1)))
    return "some taken" if any(outcomes) else "no answer" if None in outcomes else "all refused"


def _events(stage: Stage) -> list[bytes]:
    """Invented events: unknown shards, impossible LSNs, other shapes."""
    rng = stage.rng
    unknown = rng.randrange(1000, 32000) << 8
    return [
        msgpack.packb([1, unknown, 1, 0, [[unknown + 256 * each, 1] for each in range(50)], True, "x" * 256]),
        msgpack.packb([2, unknown, 1, LSN_MAX, 0]),
        msgpack.packb([3, unknown, 2**31 - 1, 0]),
        msgpack.packb([4, unknown, 2**31 - 1]),
        msgpack.packb([5, unknown, 1, LSN_MAX]),
        msgpack.packb([77, unknown]),
        rng.randbytes(200),
        b"\x91" * 500,
    ]


def _snapshot(stage: Stage) -> bytes:
    shards = [
        [each << 8, 1, 0, LSN_MAX - 1, False, True, 3, "x", False, 0] for each in range(1000, 1000 + stage.many(5500))
    ]
    packed: bytes = msgpack.packb(
        [2, LSN_MAX, LSN_MAX - 1, shards, [[each[0], -1] for each in shards[:100]], [[each[0], 1] for each in shards]]
    )
    return packed


@attack("junk in the event log")
async def write_to_the_event_log(stage: Stage) -> str:
    words = set()
    for log, payloads in ((EVENT_LOG, _events(stage)), (SNAPSHOT_LOG, [_snapshot(stage)])):
        with contextlib.suppress(RuntimeError):
            async with stage.connection(await sequencer_of(stage.cluster, log)) as peer:
                await peer.greet()
                for payload in payloads:
                    await peer.say(encode("Append", payload, request_id=1, log=log, records=1, crc=crc32c(payload)))
                    words.add(_status(await peer.wait_for("Appended", 3)))
    return ", ".join(sorted(words)) or "nobody sequences it"


@attack("begun frames of four bytes")
async def begin_frames(stage: Stage) -> str:
    peers = [stage.connection() for _ in range(stage.many(50))]
    async with AsyncExitStack() as opened:
        for peer in peers:
            await opened.enter_async_context(peer)
        await asyncio.gather(*(peer.say(peer.hello()) for peer in peers))
        await asyncio.gather(*(peer.wait_for("Ack") for peer in peers))
        await asyncio.gather(*(peer.say((68157440 - 4).to_bytes(4, "big")) for peer in peers))
        await asyncio.sleep(0.2)
    return "sent"


@attack("large frames that are begun and hardly go on")
async def begin_large_frames(stage: Stage) -> str:
    head = struct.pack(">IHBB", (32 << 20) - 4, 0, 3, 0)
    head += crc32c(head).to_bytes(4, "big")
    peers = [stage.connection() for _ in range(stage.many(10))]
    async with AsyncExitStack() as opened:
        for peer in peers:
            await opened.enter_async_context(peer)
            await peer.greet()
            await peer.say(head + bytes(200_000), seconds=1)
        await asyncio.sleep(0.2)
    return "sent"


def bombs(size: int) -> list[bytes]:
    """Fields of messages that are small and say that they hold much."""
    bomb = [
        b"\x91" * size,
        b"\xdc\xff\xff" * (size // 3),
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\x7f\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
    ]
    bomb += [b"\xdc" + (size - 3).to_bytes(2, "big") + b"\x90" * (size - 3), b"\x81\x81" * (size // 2)]
    return [each[:size] for each in bomb]


@attack("msgpack bombs before HELLO")
async def bombs_before_hello(stage: Stage) -> str:
    refused = 0
    tried = bombs(4000)
    for bomb in tried:
        async with stage.connection() as peer:
            await peer.say(raw_frame(1, bomb))
            refused += await peer.hear_the_end()
    return "all refused" if refused == len(tried) else f"{len(tried) - refused} connections stay"


@attack("msgpack bombs after HELLO")
async def bombs_after_hello(stage: Stage) -> str:
    refused = 0
    tried = bombs(65_000)
    for number in (3, 7):
        for bomb in tried:
            async with stage.connection() as peer:
                await peer.greet()
                await peer.say(raw_frame(number, bomb))
                refused += await peer.hear_the_end()
    return "all refused" if refused == 2 * len(tried) else f"{2 * len(tried) - refused} connections stay"


@functools.cache
def _payload_bombs() -> list[tuple[bytes, int, int]]:
    """Payload, number of records that it declares, flags."""
    array = msgpack.packb([bytes(40 << 20)])
    payloads: list[tuple[bytes, int, int]] = []
    batch, keys = FLAGS["Append.BATCH"], FLAGS["Append.KEYS"]
    for bomb in bombs(2500):
        payloads.append((struct.pack(">BI", 0, len(bomb)) + bomb, 3, batch))
        payloads.append((struct.pack(">I", len(bomb)) + bomb + b"x", 3, keys))
        payloads.append((struct.pack(">I", len(bomb)) + bomb + b"x", 1, keys))
    payloads.append((struct.pack(">BI", 2, len(array)) + zstandard.ZstdCompressor().compress(array), 1, batch))
    payloads.append((struct.pack(">BI", 1, len(array)) + lz4.block.compress(array, store_size=False), 1, batch))
    payloads.append((struct.pack(">BI", 2, 100) + zstandard.ZstdCompressor().compress(array), 65_536, batch))
    return payloads


@attack("bombs in records and keys")
async def bombs_in_records(stage: Stage) -> str:
    """Honest readers of the log unpack them."""
    async with stage.connection(await sequencer_of(stage.cluster, stage.abused)) as peer:
        await peer.greet()
        for payload, records, flags in _payload_bombs():
            await peer.say(
                encode(
                    "Append", payload, request_id=1, log=stage.abused, flags=flags, records=records, crc=crc32c(payload)
                )
            )
        return _status(await peer.wait_for("Appended"))


@attack("20,000 read streams on a connection")
async def open_streams(stage: Stage) -> str:
    async with stage.connection() as peer:
        await peer.greet()
        count = stage.many(20_000)
        values = {
            "log": stage.abused,
            "shard": shard(peer.node),
            "first": LSN_MAX - 5,
            "until": LSN_MAX,
            "filter_version": 1,
        }
        for first in range(0, count, 1000):
            frames = [
                encode("Start", stream=stream, window_high=LSN_MAX, bytes_credit=1000, **values)
                for stream in range(first, first + 1000)
            ]
            if not await peer.say(*frames[: count - first]):
                return "ended"
        await peer.say(encode("GetSeqState", request_id=9, log=987_654))
        return "served" if await peer.wait_for("SeqState", 30) else "ended"


@attack("questions for an epoch that nobody made")
async def ask_for_an_epoch_that_nobody_made(stage: Stage) -> str:
    """Thousands of them wait, and each ends at a moment of its own."""
    async with stage.connection(await sequencer_of(stage.cluster, stage.abused)) as peer:
        await peer.greet()
        question = encode("GetSeqState", request_id=1, log=stage.abused, min_epoch=EPOCH_MAX)
        for _ in range(stage.many(50)):
            if not await peer.say(question * 500, seconds=5):
                return "ended"
            await peer.answers(0.01)
        return "served"


@attack("ends and fences of the cluster's own logs")
async def guard_internal_logs(stage: Stage) -> str:
    """One that is taken leaves a cluster that never rebuilds anything again."""
    words = set()
    for log in (EVENT_LOG, SNAPSHOT_LOG):
        with contextlib.suppress(RuntimeError):
            async with stage.connection(await sequencer_of(stage.cluster, log)) as peer:
                await peer.greet(protocol_max=2)
                for guards, token in ((FLAGS["Guard.END"], 0), (FLAGS["Guard.FENCE"] + FLAGS["Guard.RAISE"], 2**62)):
                    await peer.say(
                        encode(
                            "GuardedAppend",
                            request_id=1,
                            log=log,
                            crc=crc32c(b""),
                            guards=guards,
                            token=token,
                            append_id=1,
                        )
                    )
                    words.add(_status(await peer.wait_for("Appended", 3)))
    return ", ".join(sorted(words)) or "nobody sequences it"


@attack("a flood of look-ups that nobody waits for")
async def flood_of_look_ups(stage: Stage) -> str:
    async with stage.connection() as peer:
        await peer.greet()
        to = {"shard": shard(peer.node), "log": stage.large, "request_id": 1}
        frames = [
            encode("FindKey", first=1, last=LSN_MAX, flags=FLAGS["Find.BY_KEY"], key=b"key", **to),
            encode("FindKey", first=1, last=LSN_MAX, timestamp=2**62, **to),
            encode("DataSize", first=-(2**63), last=2**63 - 1, **to),
        ]
        for _ in range(stage.many(20)):
            if not await peer.say(*frames * 50, seconds=2):
                return "ended"
        return "served"


@attack("answers that are never read")
async def unread_answers(stage: Stage) -> str:
    async with stage.connection() as peer:
        await peer.greet()
        to = {"shard": shard(peer.node), "request_id": 1}
        digest = encode("Digest", bytes_max=2**32 - 1, ranges=[[stage.large, 1, LSN_MAX, 0]], **to)
        start = {"log": stage.large, "shard": shard(peer.node), "first": 1, "until": LSN_MAX, "filter_version": 1}
        await peer.say(
            *(
                encode("Start", stream=stream, window_high=LSN_MAX, bytes_credit=2**64 - 1, **start)
                for stream in range(40)
            ),
            seconds=1,
        )
        await peer.say(*[digest] * stage.many(400), seconds=1)
        await peer.say(*[encode("GetSeqState", request_id=1, log=999_999)] * stage.many(20_000), seconds=1)
        await asyncio.sleep(0.1)
    return "sent"


@attack("idle connections")
async def idle_connections(stage: Stage) -> str:
    peers = [stage.connection() for _ in range(stage.many(100))]
    async with AsyncExitStack() as opened:
        for peer in peers:
            await opened.enter_async_context(peer)
        await asyncio.gather(*(peer.say(peer.hello()) for peer in peers[::2]))
        served = [await peer.wait_for("Ack") for peer in peers[::2]]
        return "served" if all(served) else "some refused"


@attack("wrong introductions")
async def wrong_introductions(stage: Stage) -> str:
    cases: list[dict[str, Any]] = [
        {"cluster_name": "other"},
        {"cluster_name": "x" * 1000},
        {"cluster_uuid": bytes(16)},
        {"protocol_min": 9, "protocol_max": 9},
        {"protocol_min": 3, "protocol_max": 1},
        {"destination": 77},
        {"node": 32767, "config_version": 2**64 - 1},
        {"cluster_name": "", "cluster_uuid": b"", "node": 1},
    ]
    refused = 0
    for changes in cases:
        async with stage.connection() as peer:
            ack = await peer.greet(**changes)
            refused += ack is None or ack.fields["status"] != 0 or changes.get("cluster_name") == ""
    for junk in (
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(64),
        stage.rng.randbytes(3000),
        encode("Append", request_id=1),
        b"\x7f\xff\xff\xff",
    ):
        async with stage.connection() as peer:
            await peer.say(junk)
            refused += await peer.hear_the_end()
    return "all refused" if refused == len(cases) + 5 else f"{len(cases) + 5 - refused} taken"


async def _http(stage: Stage, node: int, data: bytes, seconds: float = 5) -> bytes:
    host, _, port = stage.cluster.nodes[node]
    answer = b""
    with contextlib.suppress(ConnectionError, TimeoutError):
        reader, writer = await asyncio.open_connection(host, port)
        try:
            async with asyncio.timeout(seconds):
                writer.write(data)
                answer = await reader.read(4096)
        finally:
            writer.transport.abort()
    return answer


@attack("an admin header that is no UTF-8")
async def strange_admin_headers(stage: Stage) -> str:
    node = stage.next_node()
    codes = set()
    for line in (b"Authorization: Bearer \xff\xfe\xe9", b"Host: \xff\xff", b"Expect: \xff", b"Content-Type: \xe9\xe9"):
        answer = await _http(stage, node, b"GET /v1/tables HTTP/1.1\r\nHost: 127.0.0.1\r\n" + line + b"\r\n\r\n")
        codes.add(answer[9:12].decode() or "none")
    return "HTTP " + ", ".join(sorted(codes))


@attack("64 idle connections to the admin API")
async def occupy_the_admin_api(stage: Stage) -> str:
    node = stage.next_node()
    host, _, port = stage.cluster.nodes[node]
    writers = []
    with contextlib.suppress(ConnectionError):
        for _ in range(64):
            _, writer = await asyncio.open_connection(host, port)
            writers.append(writer)
            writer.write(b"GET /v1/heal")
    answer = await _http(stage, node, b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", 2)
    for writer in writers:
        writer.transport.abort()
    return "health answered" if answer.startswith(b"HTTP/1.1 200") else "health not answered"


@attack("claims to be a node")
async def claim_to_be_a_node(stage: Stage) -> str:
    """It is believed, as there is no authentication. What it says is about logs that nobody needs; it must not end a process."""
    async with stage.connection() as peer:
        ack = await peer.greet(node=(peer.node + 1) % len(stage.cluster.nodes), instance=2**64 - 1)
        mine, log = shard(peer.node), 123_456
        await peer.say(
            encode("Seal", request_id=1, shard=mine, node=0, logs=[[log, EPOCH_MAX, EPOCH_MAX, []]]),
            encode("Release", shard=mine, logs=[[log, LSN_MAX], [0, 0]]),
            encode("Clean", request_id=1, shard=mine, seal_epoch=EPOCH_MAX, node=0, logs=[[log, 1, 0, 0, 0, 0, 1]]),
            encode("Store", b"no image", log=log, lsn=LSN_MAX, shard=mine, generation=1),
            encode("RebuildStore", b"x", request_id=1, shard=mine, generation=1, log=log, entries=[[1, 1]]),
            encode("EpochRecoveryMetadata", shard=mine, log=log, epochs=[[1, 0, 1, 0, 0, 0, 0, 1]]),
            encode("Compare", request_id=1, shard=mine, holder=mine, log=log, first=LSN_MAX, last=0),
            encode("FetchMetadata", request_id=1, shard=mine, after=2**63 - 1, bytes_max=2**32 - 1),
        )
        return _status(ack)


@attack("messages of nodes, as a client")
async def speak_as_a_node_does(stage: Stage) -> str:
    async with stage.connection() as peer:
        await peer.greet()
        mine = shard(peer.node)
        for log in stage.victims:
            await peer.say(
                encode("Seal", request_id=1, shard=mine, node=0, logs=[[log, EPOCH_MAX, 0, []]]),
                encode("Release", shard=mine, logs=[[log, LSN_MAX]]),
                encode("Clean", request_id=1, shard=mine, seal_epoch=EPOCH_MAX, node=0, logs=[[log, 1, 0, 0, 0, 0, 1]]),
                encode("TrimPoints", shard=mine, sender=256, wall=0, logs=[[log, LSN_MAX - 1]]),
                encode("Shutdown", reason=True),
                encode(
                    "Gossip", node=1, instance=2**64 - 1, sequence=2**64 - 1, nodes=[[0, 2**64 - 1, 2**32 - 1, 1, []]]
                ),
                encode("ClusterState", version=2**64 - 1, nodes=[[0, 0, 2**64 - 1]]),
                encode("ShardStatus", version=LSN_MAX, shards=[[0, 1, 3]]),
            )
        return "sent"


@attack("appends that lie, and epochs that were never given")
async def lying_appends(stage: Stage) -> str:
    log = stage.victims[0]
    async with stage.connection(await sequencer_of(stage.cluster, log)) as peer:
        await peer.greet()
        answered = set()
        for values in (
            {"records": 0},
            {"records": 2**32 - 1, "flags": FLAGS["Append.BATCH"]},
            {"records": 5},
            {"records": 1, "crc": 1},
            {"records": 1, "flags": FLAGS["Append.WRITE_STREAM"]},
            {"records": 1, "seen_epoch": EPOCH_MAX, "crc": 1},
            {"records": 1, "previous_lsn": LSN_MAX, "crc": 1},
        ):
            await peer.say(encode("Append", b"x", request_id=1, log=log, **{"crc": crc32c(b"x"), **values}))
            answer = await peer.wait_for("Appended", 5)
            answered.add("none" if answer is None else "taken" if answer.fields["status"] == 0 else "refused")
        return ", ".join(sorted(answered))
