"""Processes one version of the protocol apart work together, or refuse each other in words. The rules: `logdevice_py.protocol.versions`."""

from __future__ import annotations

import asyncio
import enum
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google_crc32c import value as crc32c

from client.client import Client, read_cluster_file
from logdevice_py.core.batch import encode_batch
from logdevice_py.core.ids import InstanceId, LogId, NodeId, PeerId, ShardId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.protocol import declare
from logdevice_py.protocol.declare import U32, Needs, message
from logdevice_py.protocol.framing import FrameReader
from logdevice_py.protocol.messages import Ack, Appended, MessageType, Release
from logdevice_py.protocol.versions import Versions, later_messages
from logdevice_py.runtime.transport import Transport
from logdevice_py.shell.introduction import Identity
from logdevice_py.shell.settings import RuntimeSettings
from server.dev.local_cluster import LocalCluster
from tests.golden.frames import recorded
from tests.integration.test_client_face import until_tried
from tests.integration.test_transport import HOST, UUID, Recorder

ONE, BOTH, TWO = Versions(1, 1), Versions(1, 2), Versions(2, 2)
Addresses = dict[int, tuple[str, int]]


@asynccontextmanager
async def process(
    node: int, addresses: Addresses, versions: Versions, *, listen: bool = True
) -> AsyncIterator[tuple[Transport, Recorder]]:
    """A process that speaks these versions."""
    recorder = Recorder()
    identity = Identity("c", UUID, NodeId(node), InstanceId(1), 1, versions=versions)
    transport = Transport(identity, recorder, addresses.get, settings=RuntimeSettings(), rng=random.Random(node))
    if listen:
        addresses[node] = (HOST, await transport.listen(HOST, 0))
    try:
        yield transport, recorder
    finally:
        await transport.close()


class _Number(enum.IntEnum):
    LATER = 240


@pytest.fixture
def later() -> Iterator[Callable[[int], Any]]:
    """Makes a message that came with version 2."""
    later_messages.cache_clear()

    @message(_Number.LATER, needs=Needs.NODE, since=2)
    class Later:
        """Of version 2."""

        number: U32

    yield lambda number: Later(number=number)
    del declare.CODECS[_Number.LATER], declare.CODEC_OF[Later]
    later_messages.cache_clear()


async def payloads(client: Client, until: int) -> list[bytes | None]:
    """All that log 1 holds up to an LSN."""
    found: list[bytes | None] = []
    async with client.reader(1, until=LSN(until)) as reader:
        while batch := await reader.read():
            found += batch.payloads
    return found


def release(number: int) -> Release:
    return Release(shard=ShardId(0), logs=[(LogId(1), number)])


@pytest.mark.parametrize(
    ("dials", "accepts"), [(ONE, BOTH), (BOTH, ONE), (BOTH, BOTH), (BOTH, TWO), (TWO, BOTH)], ids=str
)
async def test_what_both_speak_is_spoken_and_nothing_later(
    dials: Versions, accepts: Versions, later: Callable[[int], Any]
) -> None:
    addresses: Addresses = {}
    agreed = min(dials.greatest, accepts.greatest)
    async with (
        process(0, addresses, accepts) as (node, seen),
        process(-1, addresses, dials, listen=False) as (client, answers),
    ):
        # the first ones wait for the connection: the version is not known when they are sent
        for number in range(3):
            client.send(PeerId(0), later(number))
            client.send(PeerId(0), release(number))
        client.flush()
        await answers.until(lambda: bool(answers.up))
        client.send(PeerId(0), later(3))
        client.send(PeerId(0), later(4))
        client.send(PeerId(0), release(3))
        client.flush()
        await seen.until(lambda: len(seen.messages) >= (9 if agreed == 2 else 4))
        (peer,) = node.clients
        node.send(peer, later(5))
        node.send(peer, release(5))
        node.flush()
        await answers.until(lambda: len(answers.messages) >= (2 if agreed == 2 else 1))
        told = [each.logs[0][1] if isinstance(each, Release) else -each.number for _, each in seen.messages]
        assert told == ([0, 0, -1, 1, -2, 2, -3, -4, 3] if agreed == 2 else [0, 1, 2, 3])
        assert [type(each) is Release for _, each in answers.messages] == ([False, True] if agreed == 2 else [True])
        assert (client.metrics.messages_unspoken, node.metrics.messages_unspoken) == ((0, 0) if agreed == 2 else (5, 1))
        assert not client.metrics.protocol_errors
        assert not node.metrics.protocol_errors
        assert len(answers.up) == 1, "the connection was never lost"


@pytest.mark.parametrize(("dials", "accepts"), [(ONE, TWO), (TWO, ONE), (Versions(2, 1), BOTH)], ids=str)
async def test_without_a_common_version_both_say_so(
    dials: Versions, accepts: Versions, caplog: pytest.LogCaptureFixture
) -> None:
    addresses: Addresses = {}
    async with process(0, addresses, accepts), process(-1, addresses, dials, listen=False) as (client, answers):
        client.connect(NodeId(0))
        await answers.until(lambda: bool(answers.down))
        trouble = client.troubles()[PeerId(0)]
        text = f"no common version of the protocol: {dials} offered, {accepts} spoken here; upgrade whichever is older"
        assert (trouble.status, trouble.detail) == (Status.PROTO, text)
        assert f"refused: PROTO: {text}" in caplog.text
        assert not answers.up


# One side from recorded bytes


async def answer_of(address: tuple[str, int], data: bytes) -> list[Any]:
    """What comes in answer to bytes until there is something, and nothing more within a moment, or the connection ends."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    frames, found = FrameReader(), []
    try:
        async with asyncio.timeout(30):
            while not found and (piece := await reader.read(1 << 16)):
                found = frames.feed(piece)
    finally:
        writer.transport.abort()
    return found


def hello(low: int, high: int, **changes: Any) -> bytes:
    """HELLO of a client of another version, with fields that came later."""
    values = {"cluster_name": "c", "cluster_uuid": UUID, "node": -1, "destination": 0, "token": "", **changes}
    return recorded("HELLO", later=("later", 5, [[1]]), protocol_min=low, protocol_max=high, **values)


@pytest.mark.parametrize(
    ("low", "high", "status"), [(1, 2, Status.OK), (1, 1, Status.OK), (2, 3, Status.PROTO), (0, 0, Status.PROTO)]
)
async def test_a_node_understands_the_recorded_hello_of_any_version(low: int, high: int, status: Status) -> None:
    addresses: Addresses = {}
    async with process(0, addresses, ONE):
        (ack,) = await answer_of(addresses[0], hello(low, high))
        assert isinstance(ack, Ack)
        assert (ack.status, ack.protocol) == (status, 1)
        assert ack.cluster_uuid == (UUID if status is Status.OK else b"")


@pytest.mark.parametrize(
    ("status", "protocol", "detail", "trouble"),
    [
        (Status.OK, 1, "", None),
        (Status.PROTO, 3, "in words", "in words"),
        (Status.PROTO, 3, "", "the peer broke the protocol"),
        (Status.OK, 2, "", "it answers in version 2 of the protocol, 1 offered"),
        (Status.OK, 0, "", "it answers in version 0 of the protocol, 1 offered"),
        (99_999, 1, "a status of later", "a status of later"),
    ],
)
async def test_a_client_understands_the_recorded_ack_of_any_version(
    status: int, protocol: int, detail: str, trouble: str | None
) -> None:
    ack = recorded("ACK", later=("later",), status=int(status), protocol=protocol, detail=detail, node=0)
    got: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readexactly(12))
        writer.write(ack)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, HOST, 0)
    addresses = {0: server.sockets[0].getsockname()[:2]}
    async with server, process(-1, addresses, ONE, listen=False) as (client, seen):
        client.connect(NodeId(0))
        await seen.until(lambda: bool(seen.up or seen.down))
        assert got[0][6] == MessageType.HELLO
        assert bool(seen.up) == (trouble is None)
        if trouble is not None:
            assert client.troubles()[PeerId(0)].detail == trouble


async def test_a_client_of_recorded_bytes_appends() -> None:
    """All its frames have fields that the node does not know."""
    async with LocalCluster(nodes=1) as cluster:
        config = read_cluster_file(cluster.config_file)
        node = config.nodes[NodeId(0)]
        greeting = hello(1, 2, cluster_name=config.name, cluster_uuid=config.uuid)
        payload = encode_batch([b"one", b"two"])
        append = recorded(
            "APPEND", payload=payload, later=(1, b"x"), request_id=9, log=1, flags=1, records=2, crc=crc32c(payload),
            seen_epoch=0, previous_lsn=0, writer=b"", sequence=0, stream_epoch=0,
        )  # fmt: skip
        reader, writer = await asyncio.open_connection(node.host, node.port)
        writer.write(greeting)
        frames, found = FrameReader(), list[Any]()
        async with asyncio.timeout(60):
            while not any(isinstance(each, Ack) for each in found):
                found += frames.feed(await reader.read(1 << 16))
            writer.write(append)
            while not any(isinstance(each, Appended) for each in found):
                found += frames.feed(await reader.read(1 << 16))
        writer.transport.abort()
        (answer,) = [each for each in found if isinstance(each, Appended)]
        assert (answer.request_id, answer.status) == (9, Status.OK)
        async with cluster.client() as client:
            assert await payloads(client, answer.lsn) == [b"one", b"two"]


# Whole programs


def speaking(versions_of: Callable[[NodeId], Versions]) -> Callable[..., Identity]:
    """Makes identities of processes of other versions."""

    def make(*arguments: Any, **named: Any) -> Identity:
        identity = Identity(*arguments, **named)
        identity.versions = versions_of(identity.node)
        return identity

    return make


async def write_and_read(cluster: LocalCluster) -> None:
    async with cluster.client() as client:
        receipts = [await client.append(1, b"%d" % number) for number in range(20)]
        assert await payloads(client, receipts[-1].lsn) == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("of_clients", [ONE, BOTH], ids=str)
@pytest.mark.parametrize("upgraded", [{0}, {0, 1}, {0, 1, 2}], ids=str)
async def test_a_cluster_is_upgraded_node_by_node_under_old_and_new_clients(
    upgraded: set[int], of_clients: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.host.Identity", speaking(lambda node: BOTH if node in upgraded else ONE))
    monkeypatch.setattr("client.sockets.Identity", speaking(lambda node: of_clients))
    async with LocalCluster(nodes=3) as cluster:
        await write_and_read(cluster)


@pytest.mark.parametrize(("of_clients", "of_nodes"), [(ONE, TWO), (TWO, ONE)], ids=str)
async def test_a_client_that_no_node_speaks_with_says_so_and_what_to_do(
    of_clients: Versions, of_nodes: Versions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.host.Identity", speaking(lambda node: of_nodes))
    monkeypatch.setattr("client.sockets.Identity", speaking(lambda node: of_clients))
    async with LocalCluster(nodes=1) as cluster, cluster.client() as client:
        await until_tried(client)
        with pytest.raises(LogDeviceError) as caught:
            await client.tail_lsn(1, timeout=1)
    assert caught.value.status is Status.PROTO
    assert not caught.value.retriable
    assert "cluster.toml speaks with this program: N0: " in caught.value.detail
    expected = (
        f"no common version of the protocol: {of_clients} offered, {of_nodes} spoken here; upgrade whichever is older"
    )
    assert expected in caught.value.detail
