"""Connections over real sockets: order, redialling, and what hostile peers achieve."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from logdevice_py.core.ids import InstanceId, LogId, NodeId, PeerId, ShardId
from logdevice_py.core.status import Status
from logdevice_py.protocol.framing import encode_frame
from logdevice_py.protocol.messages import PROTOCOL_VERSION_MAX, Ack, Hello, Release
from logdevice_py.runtime.transport import Transport
from logdevice_py.shell.introduction import Identity
from logdevice_py.shell.settings import RuntimeSettings
from tests.integration.appends import an_append

UUID = b"u" * 16
HOST = "127.0.0.1"


class Recorder:
    """What a transport reported."""

    def __init__(self) -> None:
        self.messages: list[tuple[PeerId, Any]] = []
        self.up: list[PeerId] = []
        self.down: list[tuple[PeerId, bool]] = []
        self.congested: list[bool] = []
        self._changed = asyncio.Event()

    def on_message(self, peer: PeerId, message: Any) -> None:
        self.messages.append((peer, message))
        self._changed.set()

    def on_peer_up(self, peer: PeerId) -> None:
        self.up.append(peer)
        self._changed.set()

    def on_peer_down(self, peer: PeerId, *, refused: bool) -> None:
        self.down.append((peer, refused))
        self._changed.set()

    def on_peer_congested(self, peer: PeerId, *, congested: bool) -> None:
        self.congested.append(congested)

    def on_config_version(self, version: int) -> None:
        pass

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


def release(number: int) -> Release:
    return Release(shard=ShardId(0), logs=[(LogId(1), number)])


@asynccontextmanager
async def process(
    node: int,
    addresses: dict[int, tuple[str, int]],
    *,
    listen: bool = True,
    cluster: str = "c",
    is_alive: Callable[[NodeId], bool] = lambda node: True,
    **settings: int,
) -> AsyncIterator[tuple[Transport, Recorder]]:
    recorder = Recorder()
    transport = Transport(
        Identity(cluster, UUID if node >= 0 else b"", NodeId(node), InstanceId(1), 1),
        recorder,
        lambda asked: addresses.get(asked),
        settings=RuntimeSettings(**settings),
        rng=random.Random(node),
        is_alive=is_alive,
    )
    if listen:
        addresses[node] = (HOST, await transport.listen(HOST, 0))
    try:
        yield transport, recorder
    finally:
        await transport.close()


async def test_messages_between_nodes_keep_their_order() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (zero, _), process(1, addresses) as (_, one_seen):
        for number in range(1, 501):
            zero.send(PeerId(1), release(number))
            if number % 50 == 0:
                zero.flush()
                await asyncio.sleep(0)
        zero.flush()
        await one_seen.until(lambda: len(one_seen.messages) == 500)
        assert [(peer, message.logs[0][1]) for peer, message in one_seen.messages] == [(0, n) for n in range(1, 501)]


async def test_a_client_is_answered_over_its_own_connection() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (node, seen), process(-1, addresses, listen=False) as (client, client_seen):
        client.connect(NodeId(0))
        await client_seen.until(lambda: client_seen.up == [0])
        await seen.until(lambda: len(seen.up) == 1)
        node.send(seen.up[0], release(7))
        node.flush()
        await client_seen.until(lambda: bool(client_seen.messages))
        assert client_seen.messages == [(0, release(7))]


async def test_a_host_that_is_no_name_is_told_and_dialled_again_when_it_is_corrected() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    soon = {"redial_us_min": 1_000, "redial_us_max": 1_000}
    async with process(0, addresses, **soon) as (zero, seen), process(1, addresses) as (_, one_seen):
        host, port = addresses[1]
        addresses[1] = ("10..0.7", port)
        zero.connect(NodeId(1))
        await seen.until(lambda: seen.down == [(1, False)])
        assert "label empty or too long" in zero.troubles()[1].detail
        addresses[1] = (host, port)
        async with asyncio.timeout(60):
            while not seen.up:
                zero.connect(NodeId(1))
                await asyncio.sleep(0.001)
        assert seen.up == [1]
        zero.send(PeerId(1), release(1))
        zero.flush()
        await one_seen.until(lambda: len(one_seen.messages) == 1)


@pytest.mark.parametrize("dialled", [True, False], ids=["dialled", "accepted"])
async def test_a_connection_is_closed_when_its_node_counts_as_dead_and_acknowledges_nothing(
    dialled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either alone is no reason: a node may be stopped, or packets may be late. What was under way is told to be lost, and the next message dials anew."""
    answers, looked = True, asyncio.Event()

    def acknowledges_nothing(sock: socket.socket) -> bool:
        asked_each.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE))
        looked.set()
        return not answers

    asked_each: list[int] = []
    monkeypatch.setattr("logdevice_py.runtime.transport.acknowledges_nothing", acknowledges_nothing)
    addresses: dict[int, tuple[str, int]] = {}
    dead: set[int] = set()
    async with (
        process(0, addresses, is_alive=lambda node: node not in dead) as (zero, zero_seen),
        process(1, addresses, is_alive=lambda node: node not in dead) as (one, one_seen),
    ):
        judging, seen, peer = (zero, zero_seen, 1) if dialled else (one, one_seen, 0)
        zero.send(PeerId(1), release(1))
        await one_seen.until(lambda: len(one_seen.messages) == 1)
        dead.add(peer)
        async with asyncio.timeout(10):
            await looked.wait()
        assert set(asked_each) == {1}, "the kernel asks each second whether anybody is there"
        assert seen.down == []
        answers = False
        await seen.until(lambda: seen.down == [(peer, False)])
        answers = True
        await zero_seen.until(lambda: zero_seen.down == [(1, False)])
        assert judging.metrics.dead_peers_closed == 1
        zero.send(PeerId(1), release(2))
        zero.flush()
        await one_seen.until(lambda: len(one_seen.messages) == 2)


async def test_a_refused_dial_is_told_apart_from_a_broken_connection() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (zero, zero_seen):
        async with process(1, addresses):
            zero.connect(NodeId(1))
            await zero_seen.until(lambda: zero_seen.up == [1])
        await zero_seen.until(lambda: (PeerId(1), True) in zero_seen.down)
        assert zero_seen.down[0] == (1, False)


class _HastyListener:
    """Accepts connections in a thread, and answers an introduction before it has come."""

    def __init__(self, answer: bytes) -> None:
        self.answered = threading.Event()
        self._answer = answer
        self._socket = socket.create_server((HOST, 0))
        self.address: tuple[str, int] = self._socket.getsockname()
        self._accepted: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = self._socket.accept()
                self._accepted.append(accepted)
                accepted.sendall(self._answer)
                self.answered.set()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        for each in (self._socket, *self._accepted):
            each.close()


async def test_a_connection_that_comes_up_as_the_time_to_dial_ends_is_lost_and_dialled_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop hangs from the moment when the connection is made until its peer has answered and the time is over: both are seen in one turn."""
    ack = Ack(
        status=Status.OK,
        protocol=PROTOCOL_VERSION_MAX,
        cluster_uuid=UUID,
        node=NodeId(1),
        instance=InstanceId(1),
        config_version=1,
        detail="",
    )
    listener = _HastyListener(b"".join(encode_frame(ack)))
    hung = []

    def hang(self: Transport, connection: Any) -> None:
        connected(self, connection)
        if not hung:
            hung.append(connection)
            assert listener.answered.wait(60)
            until = self.loop.time() + 0.1
            while time.monotonic() < until:
                pass

    connected = Transport.connected
    monkeypatch.setattr(Transport, "connected", hang)
    try:
        async with process(0, {1: listener.address}, dial_timeout_us=100_000) as (zero, seen):
            zero.send(PeerId(1), release(1))
            await seen.until(lambda: seen.up == [1, 1])
            zero.send(PeerId(1), release(2))
            zero.flush()
            assert seen.down == [(1, False)]
            assert len(list(zero.connections())) == 1
        assert len(hung) == 1
    finally:
        listener.close()


async def test_a_node_of_another_cluster_is_refused() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (_, seen), process(1, addresses, cluster="other") as (one, one_seen):
        one.connect(NodeId(0))
        await one_seen.until(lambda: bool(one_seen.down))
        assert not one_seen.up
        assert not seen.messages


async def raw(address: tuple[str, int], data: bytes) -> bytes:
    """Send bytes, read until the peer closes."""
    reader, writer = await asyncio.open_connection(*address)
    writer.write(data)
    try:
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def hello() -> bytes:
    return b"".join(
        encode_frame(
            Hello(
                protocol_min=1,
                protocol_max=1,
                cluster_name="c",
                cluster_uuid=b"",
                node=NodeId(-1),
                instance=InstanceId(0),
                destination=NodeId(-1),
                config_version=0,
                name="raw",
            )
        )
    )


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="another protocol"),
        pytest.param(random.Random(1).randbytes(5000), id="random bytes"),
        pytest.param(struct.pack(">I", 2**32 - 1), id="length over the limit"),
        pytest.param(b"".join(encode_frame(release(1))), id="message before HELLO"),
        pytest.param(hello() + struct.pack(">I", 2**31), id="length over the limit after HELLO"),
        pytest.param(hello() + struct.pack(">IHBBI", 8, 0, 250, 0, 0), id="unknown type"),
        pytest.param(hello() + hello().replace(b"raw", b"rax"), id="bad checksum"),
    ],
)
async def test_bad_bytes_close_that_connection_and_no_other(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (node, seen), process(-1, addresses, listen=False) as (client, client_seen):
        client.connect(NodeId(0))
        await client_seen.until(lambda: client_seen.up == [0])
        await seen.until(lambda: len(seen.up) == 1)
        good = seen.up[0]
        assert await raw(addresses[0], data) == b"", "a HELLO with something behind it is not answered"
        assert len(seen.up) == 1
        assert node.metrics.protocol_errors == 1
        assert len([record for record in caplog.records if record.name == "logdevice.transport"]) == 1
        node.send(good, release(1))
        node.flush()
        await client_seen.until(lambda: bool(client_seen.messages))


async def test_a_newcomer_that_stays_silent_is_disconnected() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses, hello_timeout_us=50_000):
        assert await raw(addresses[0], b"") == b""


async def test_a_client_that_never_reads_is_disconnected_with_memory_bounded() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    limit = 1 << 20
    async with process(0, addresses, output_bytes_max=limit, output_bytes_congested=limit // 4) as (node, seen):
        with socket.create_connection(addresses[0]) as deaf:
            deaf.sendall(hello())
            await seen.until(lambda: len(seen.up) == 1)
            big = Release(shard=ShardId(0), logs=[(1 << 62, 1 << 62)] * 3000)
            sent = 0
            while not node.metrics.slow_peers_closed and sent < 100_000_000:
                node.send(seen.up[0], big)
                node.flush()
                sent += 50_000
                await asyncio.sleep(0)
            assert node.metrics.slow_peers_closed == 1
            assert seen.congested[:1] == [True]
            await seen.until(lambda: bool(seen.down))


async def test_a_client_that_asks_without_reading_is_not_read_from_until_it_reads() -> None:
    """What it asks for then cannot pile up, and it is not disconnected either."""
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses, output_bytes_congested=64 << 10) as (node, seen):
        answer = Release(shard=ShardId(0), logs=[(1 << 62, 1 << 62)] * 3000)
        reader, writer = await asyncio.open_connection(*addresses[0], limit=1 << 10)
        writer.write(hello())
        await seen.until(lambda: len(seen.up) == 1)
        for _ in range(400):  # each question is answered with 50 kB
            if node.metrics.reading_paused:
                break
            node.send(seen.up[0], answer)
            node.flush()
            await asyncio.sleep(0)
        assert node.metrics.reading_paused == 1
        before = len(seen.messages)
        writer.write(b"".join(encode_frame(release(1))))
        await asyncio.sleep(0.1)
        assert len(seen.messages) == before
        while len(seen.messages) == before:
            await reader.read(1 << 16)
        assert not seen.down
        writer.transport.abort()


async def test_a_stranger_must_name_a_node_of_the_cluster_file_and_not_the_one_it_calls() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses), process(7, addresses, cluster="c") as (stranger, seen):
        del addresses[7]
        stranger.send(PeerId(0), release(1))
        await seen.until(lambda: bool(seen.down))
    async with process(0, addresses) as (node, at_node), process(8, addresses) as (member, _):
        member.send(PeerId(0), release(1))
        await at_node.until(lambda: len(at_node.messages) == 1)
        assert not node.metrics.protocol_errors


async def test_a_node_of_a_newer_cluster_file_is_let_in_once_that_is_read() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (_, seen), process(5, addresses) as (added, _):
        address = addresses.pop(5)
        seen.on_config_version = lambda version: addresses.update({5: address})  # type: ignore[method-assign]
        added.send(PeerId(0), release(3))
        await seen.until(lambda: seen.messages == [(PeerId(5), release(3))])


async def test_more_connections_than_allowed_are_turned_away() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses, connections_max=2) as (node, seen):
        first = [await asyncio.open_connection(*addresses[0]) for _ in range(2)]
        for _, writer in first:
            writer.write(hello())
        await seen.until(lambda: len(seen.up) == 2)
        assert b"2 clients are here already" in await raw(addresses[0], hello())
        assert node.metrics.connections_refused == 1
        async with process(7, addresses) as (member, _):  # nodes have places of their own
            member.send(PeerId(0), release(1))
            await seen.until(lambda: seen.messages == [(PeerId(7), release(1))])
        for _, writer in first:
            writer.close()


async def test_connections_that_do_not_introduce_themselves_make_way() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses, connections_introducing_max=3) as (node, seen):
        strangers = [await asyncio.open_connection(*addresses[0]) for _ in range(6)]
        for reader, _ in strangers[:3]:
            assert await reader.read() == b""
        strangers[5][1].write(hello())
        await seen.until(lambda: len(seen.up) == 1)
        assert node.metrics.connections_refused == 3
        for _, writer in strangers:
            writer.close()


async def test_an_address_with_many_connections_gets_no_more() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses, connections_per_address_max=2) as (_, seen):
        first = [await asyncio.open_connection(*addresses[0]) for _ in range(2)]
        assert await raw(addresses[0], hello()) == b""
        first[0][1].close()
        first[1][1].write(hello())
        await seen.until(lambda: len(seen.up) == 1)
        first[1][1].close()


async def test_a_refused_stranger_learns_nothing_of_the_cluster() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses, cluster="secret name"):
        answer = await raw(addresses[0], hello())
        assert answer
        assert b"secret name" not in answer
        assert UUID not in answer


async def test_a_begun_frame_that_does_not_go_on_ends_its_connection_and_no_other() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses, frame_timeout_us=200_000) as (node, seen):
        idle = await asyncio.open_connection(*addresses[0])
        idle[1].write(hello())
        reader, writer = await asyncio.open_connection(*addresses[0])
        writer.write(hello())
        await reader.readexactly(12)
        writer.write((1 << 20).to_bytes(4, "big"))
        await seen.until(lambda: len(seen.down) == 1)
        assert node.metrics.frames_abandoned == 1
        idle[1].write(b"".join(encode_frame(release(2))))
        await seen.until(lambda: len(seen.messages) == 1)
        idle[1].close()
        writer.close()


async def test_the_client_whose_frame_was_begun_first_makes_way_when_memory_for_frames_is_used_up() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses, input_bytes_max=1 << 20) as (node, seen):
        append = b"".join(encode_frame(an_append(b"x" * 900_000)))
        first = await asyncio.open_connection(*addresses[0])
        second = await asyncio.open_connection(*addresses[0])
        for peer, sent in ((first, append[:700_000]), (second, append)):
            peer[1].write(hello())
            await peer[0].readexactly(12)
            peer[1].write(sent)
            await seen.until(lambda: len(seen.up) == 1 or bool(seen.messages))
        await seen.until(lambda: len(seen.messages) == 1)
        assert seen.down == [(seen.up[0], False)]
        assert node.metrics.frames_abandoned == 1
        assert not node.input_memory.used
        for _, writer in (first, second):
            writer.close()


async def test_a_message_that_no_frame_holds_is_left_out_and_nothing_else() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    large = Release(shard=ShardId(0), logs=[(LogId(2**62), 2**62)] * 4096)
    async with process(1, addresses) as (_, seen), process(0, addresses) as (node, _):
        for number in range(2):  # while it is dialled, and over the connection
            node.send(PeerId(1), large)
            node.send(PeerId(1), release(number))
            node.flush()
            await seen.until(lambda: len(seen.messages) == number + 1)  # noqa: B023
        assert [message for _, message in seen.messages] == [release(0), release(1)]
        assert seen.down == []
        assert node.metrics.messages_too_large == 2


async def test_what_does_not_fit_while_a_node_is_dialled_is_counted_and_told() -> None:
    addresses: dict[int, tuple[str, int]] = {1: (HOST, 1)}
    async with process(0, addresses, output_bytes_max=1 << 20) as (node, seen):
        for _ in range(3):
            node.send(PeerId(1), an_append(b"x" * 400_000))
        assert node.metrics.messages_dropped == 3
        await seen.until(lambda: (PeerId(1), False) in seen.down)


class Turns:
    """A clock that only passes while frames are handled, and the number of the loop's turn."""

    def __init__(self, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, us_per_frame: int) -> None:
        self.handled: list[tuple[int, PeerId]] = []
        self._now, self._number, self._us = 0, 0, us_per_frame
        self._recorder = recorder
        self._on_message = recorder.on_message
        recorder.on_message = self._handle  # type: ignore[method-assign]
        monkeypatch.setattr("logdevice_py.runtime.transport.monotonic_us", lambda: self._now)
        self._count()

    def _count(self) -> None:
        self._number += 1
        asyncio.get_running_loop().call_soon(self._count)

    def _handle(self, peer: PeerId, message: Any) -> None:
        self._now += self._us
        self.handled.append((self._number, peer))
        self._on_message(peer, message)

    def most_in_a_turn(self, peer: PeerId) -> int:
        return max(Counter(number for number, each in self.handled if each == peer).values())


async def test_frames_of_a_client_are_handled_for_a_bounded_time_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (_, seen), process(-1, addresses, listen=False) as (client, client_seen):
        client.connect(NodeId(0))
        await client_seen.until(lambda: client_seen.up == [0])
        await seen.until(lambda: len(seen.up) == 1)
        turns = Turns(seen, monkeypatch, us_per_frame=100)
        for number in range(1, 5_001):
            client.send(PeerId(0), release(number))
        client.flush()
        await seen.until(lambda: len(seen.messages) == 5_000)
        assert [message.logs[0][1] for _, message in seen.messages] == list(range(1, 5_001))
        # the line's turn and what is read after it
        assert turns.most_in_a_turn(seen.up[0]) <= 2 * RuntimeSettings().clients_turn_us // 100


async def test_of_those_that_claim_to_be_a_node_one_has_its_share_of_the_loop() -> None:
    addresses: dict[int, tuple[str, int]] = {}
    clients_part = 2 * RuntimeSettings().clients_turn_us // 100
    async with process(0, addresses) as (_, seen), process(1, addresses, listen=False) as (second, second_seen):
        async with process(1, addresses, listen=False) as (first, first_seen):
            addresses[1] = (HOST, 1)
            for node, node_seen in ((first, first_seen), (second, second_seen)):
                node.connect(NodeId(0))
                await node_seen.until(lambda node_seen=node_seen: node_seen.up == [0])  # type: ignore[misc]

            async def most(node: Transport) -> int:
                """Frames of a turn, of 5,000 that it sends."""
                with pytest.MonkeyPatch.context() as patch:
                    turns, before = Turns(seen, patch, us_per_frame=100), len(seen.messages)
                    for number in range(5_000):
                        node.send(PeerId(0), release(number))
                    node.flush()
                    await seen.until(lambda: len(seen.messages) == before + 5_000)
                    return turns.most_in_a_turn(PeerId(1))

            assert await most(first) > clients_part
            assert await most(second) <= clients_part
        await seen.until(lambda: seen.down == [(PeerId(1), False)])
        assert await most(second) > clients_part


async def test_a_client_beside_a_greedy_one_is_served_first(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with (
        process(0, addresses) as (node, seen),
        process(-1, addresses, listen=False) as (greedy, greedy_seen),
        process(-1, addresses, listen=False) as (honest, honest_seen),
    ):
        for client, client_seen in ((greedy, greedy_seen), (honest, honest_seen)):
            client.connect(NodeId(0))
            await client_seen.until(lambda client_seen=client_seen: client_seen.up == [0])  # type: ignore[misc]
        await seen.until(lambda: len(seen.up) == 2)
        Turns(seen, monkeypatch, us_per_frame=100)
        for number in range(1, 20_001):
            greedy.send(PeerId(0), release(number))
        greedy.flush()
        await seen.until(lambda: node.metrics.turns_ended > 2)
        before = len(seen.messages)
        honest.send(PeerId(0), release(1))
        honest.flush()
        await seen.until(lambda: any(peer == seen.up[1] for peer, _ in seen.messages))
        assert len(seen.messages) - before < 200, "it does not wait for the greedy one's frames"


async def test_a_client_that_ends_while_its_frames_wait_is_gone_once_they_are_handled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    addresses: dict[int, tuple[str, int]] = {}
    async with process(0, addresses) as (_, seen):
        async with process(-1, addresses, listen=False) as (client, client_seen):
            client.connect(NodeId(0))
            await client_seen.until(lambda: client_seen.up == [0])
            await seen.until(lambda: len(seen.up) == 1)
            Turns(seen, monkeypatch, us_per_frame=100)
            for number in range(1, 2_001):
                client.send(PeerId(0), release(number))
            client.flush()
        await seen.until(lambda: bool(seen.down))
        assert len(seen.messages) == 2_000
