"""What TLS costs, in one run, plain and encrypted in turns: 64 KiB frames between two processes, appends of 64 KiB, latency of appends, handshakes beside appends, and the
memory of idle connections.

``python -m benchmarks.tls frames throughput appends handshakes idle``; `--rounds`, `--seconds`, `--rate`, `--idle` and `--at-once` say how much. Each figure is a median of rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import os
import random
import ssl
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import uvloop

from client.client import Client
from client.identity import client_contexts, default_identity
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.security import SecuritySettings
from logdevice_py.core.ids import InstanceId, LogId, NodeId, PeerId
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.status import LogDeviceError
from logdevice_py.protocol import messages as m
from logdevice_py.protocol.framing import FrameReader, encode_frame
from logdevice_py.runtime.certificates import CertificateAuthority
from logdevice_py.runtime.tls import TlsContexts, TlsFiles
from logdevice_py.runtime.transport import Transport, bind
from logdevice_py.shell.introduction import Identity
from logdevice_py.shell.proof import Principals
from logdevice_py.shell.settings import RuntimeSettings
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.identities import SECURITY, make_identities
from server.dev.readiness import wait_until_acquainted, wait_until_writable
from server.dev.supervisor import Supervisor, write_cluster_file

UUID: Final = bytes(range(16))
FRAME_BYTES: Final = 64 << 10
KINDS: Final = ("plain", "TLS")
_KEPT: Final = 256
"""Frames that are sent in turns: more than a processor's cache holds, as those of applications are."""
_UNDER_WAY: Final = 64


# Frames


class _Events:
    """The other side of a transport: counts, and knows whether the peer takes more."""

    def __init__(self, wanted: int = 0) -> None:
        self.received = 0
        self.wanted = wanted
        self.all_came = asyncio.Event()
        self.up = asyncio.Event()
        self.room = asyncio.Event()
        self.room.set()

    def on_message(self, peer: PeerId, message: Any) -> None:
        self.received += 1
        if self.received == self.wanted:
            self.all_came.set()

    def on_peer_up(self, peer: PeerId) -> None:
        self.up.set()

    def on_peer_down(self, peer: PeerId, *, refused: bool) -> None:
        self.up.clear()

    def on_peer_congested(self, peer: PeerId, *, congested: bool) -> None:
        if congested:
            self.room.clear()
        else:
            self.room.set()

    def on_config_version(self, version: int) -> None:
        pass


def _transport(node: int, events: _Events, directory: Path | None, address: tuple[str, int] | None) -> Transport:
    contexts = None
    if directory is not None:
        contexts = TlsContexts(TlsFiles(directory / "ca.pem", directory / f"N{node}.pem"), UUID)
    return Transport(
        Identity("benchmark", UUID, NodeId(node), InstanceId(time.time_ns() // 1000), 1),
        events,
        lambda peer: address,
        settings=RuntimeSettings(),
        rng=random.Random(node),
        security=SecuritySettings(tls="off" if directory is None else "require"),
        principals=Principals(),
        tls=contexts,
    )


def _receive(pipe: Connection, directory: Path | None, frames: int) -> None:
    """The process that frames come to; it tells its port, then that all came."""

    async def run() -> None:
        events = _Events(frames)
        transport = _transport(0, events, directory, ("127.0.0.1", 1))
        sock = bind("127.0.0.1", 0)
        pipe.send(await transport.listen_on(sock))
        used = time.process_time()
        await events.all_came.wait()
        pipe.send(time.process_time() - used)
        await transport.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


def _append(payload: bytes) -> m.Append:
    return m.Append(
        request_id=1,
        log=LogId(1),
        flags=0,
        records=1,
        crc=0,
        seen_epoch=Epoch(0),
        previous_lsn=Lsn(0),
        writer=b"",
        sequence=0,
        stream_epoch=Epoch(0),
        payload=payload,
    )


async def _send_frames(directory: Path | None, frames: int) -> tuple[float, float]:
    """MiB a second, and processor seconds of both processes for a GiB."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_receive, args=(theirs, directory, frames))
    process.start()
    port = await asyncio.to_thread(ours.recv)
    events = _Events()
    transport = _transport(1, events, directory, ("127.0.0.1", port))
    transport.connect(NodeId(0))
    await events.up.wait()
    kept = [_append(os.urandom(FRAME_BYTES)) for _ in range(_KEPT)]
    used = time.process_time()
    began = time.perf_counter()
    for number in range(frames):
        transport.send(PeerId(0), kept[number % _KEPT])
        transport.flush()
        if not events.room.is_set():
            await events.room.wait()
    other = await asyncio.to_thread(ours.recv)
    took = time.perf_counter() - began
    used = time.process_time() - used + other
    await transport.close()
    process.join()
    size = frames * FRAME_BYTES
    return size / took / (1 << 20), used / size * (1 << 30)


async def frames(options: argparse.Namespace, directory: Path) -> None:
    """Throughput of frames, one connection."""
    authority = CertificateAuthority(directory, UUID)
    authority.make()
    for node in (0, 1):
        authority.certify_node(NodeId(node))
    found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
    for _ in range(options.rounds):
        for kind in KINDS:
            found[kind].append(await _send_frames(directory if kind == "TLS" else None, options.frames))
    print(
        f"64 KiB frames, {options.rounds} rounds of {options.frames}: MiB/s (processor seconds a GiB, both processes)"
    )
    for kind, rounds in found.items():
        rates, used = (statistics.median(each) for each in zip(*rounds, strict=True))
        print(f"  {kind:<6} {rates:8.0f} ({used:.2f})  {' '.join(f'{rate:.0f}' for rate, _ in rounds)}")
    ratios = [tls / plain for (plain, _), (tls, _) in zip(found["plain"], found["TLS"], strict=True)]
    print(f"  ratio  {statistics.median(ratios):8.2f}  (goal: at least 0.65)")


# Clusters


@dataclass
class _Cluster:
    directory: Path
    supervisor: Supervisor
    client: Client

    def memory(self) -> int:
        """Bytes that N0 holds in memory."""
        process = self.supervisor.children[NodeId(0)].process
        status = Path(f"/proc/{process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) << 10

    async def close(self) -> None:
        await self.client.close()
        await self.supervisor.stop_all()


async def _start(directory: Path, *, nodes: int, tls: bool, places: int = 1000) -> _Cluster:
    await asyncio.to_thread(directory.mkdir)
    config = make_config(
        directory, nodes=nodes, logs=1, replicate=f"node:{min(nodes, 3)}", racks=1, epoch_store=None, secure=tls
    )
    settings = dict(config.settings)
    if tls:
        settings["security"] = {**SECURITY, "permissions": False}
    settings["runtime"] = {
        **settings.get("runtime", {}),
        "connections_max": places + 100,
        "connections_per_address_max": places + 100,
    }
    config = replace(config, settings=settings)
    make_identities(directory, config)
    supervisor = Supervisor(directory, config)
    write_cluster_file(directory, config)
    await supervisor.listen()
    await supervisor.start_all()
    await wait_until_acquainted(supervisor.config, supervisor.running, timeout=60, access=supervisor.admin_access)
    await wait_until_writable(layout.cluster_file(directory), timeout=60)
    client = Client(layout.cluster_file(directory))
    await client.start()
    await client.append(LogId(1), b"first")
    return _Cluster(directory, supervisor, client)


async def _append_steadily(client: Client, rate: float, seconds: float) -> list[float]:
    """Latencies in milliseconds, from when each was due."""
    spent: list[float] = []
    payload = os.urandom(1000)

    async def one(due: float) -> None:
        try:
            await client.append(LogId(1), payload)
        except LogDeviceError as error:
            print(f"an append failed: {error}")
        spent.append((time.perf_counter() - due) * 1e3)

    began, number = time.perf_counter(), 0
    async with asyncio.TaskGroup() as group:
        while (now := time.perf_counter()) < began + seconds:
            while began + number / rate <= now:
                group.create_task(one(began + number / rate))
                number += 1
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
    return spent


def _p(spent: Sequence[float], part: float) -> float:
    ordered = sorted(spent)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def _print_latencies(found: dict[str, list[list[float]]], first: str, second: str, goal: float) -> None:
    for kind, rounds in found.items():
        p50, p99 = (statistics.median(_p(spent, part) for spent in rounds) for part in (0.5, 0.99))
        each = " ".join(f"{_p(spent, 0.99):.2f}" for spent in rounds)
        print(f"  {kind:<12} p50 {p50:7.2f} ms  p99 {p99:7.2f} ms  ({each})")
    ratios = [_p(b, 0.99) / _p(a, 0.99) for a, b in zip(found[first], found[second], strict=True)]
    print(f"  ratio of p99 {statistics.median(ratios):.2f}  (goal: at most {goal})")


async def _append_as_fast_as_it_goes(client: Client, seconds: float) -> float:
    """MiB a second, in appends of 64 KiB."""
    kept = [os.urandom(FRAME_BYTES) for _ in range(_UNDER_WAY)]
    done, until = 0, time.perf_counter() + seconds
    began = time.perf_counter()

    async def one(payload: bytes) -> None:
        nonlocal done
        while time.perf_counter() < until:
            await client.append(LogId(1), payload)
            done += 1

    await asyncio.gather(*map(one, kept))
    return done * FRAME_BYTES / (time.perf_counter() - began) / (1 << 20)


async def throughput(options: argparse.Namespace, directory: Path) -> None:
    """Appends of 64 KiB as fast as they go, three nodes that keep three copies."""
    clusters = {kind: await _start(directory / kind, nodes=3, tls=kind == "TLS") for kind in KINDS}
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    try:
        for cluster in clusters.values():
            await _append_as_fast_as_it_goes(cluster.client, 1)
        for _ in range(options.rounds):
            for kind in KINDS:
                found[kind].append(await _append_as_fast_as_it_goes(clusters[kind].client, options.seconds))
    finally:
        for cluster in clusters.values():
            await cluster.close()
    print(f"appends of 64 KiB, three copies, {options.rounds} rounds of {options.seconds:g} s: MiB/s")
    for kind, rounds in found.items():
        print(f"  {kind:<6} {statistics.median(rounds):8.1f}  {' '.join(f'{rate:.1f}' for rate in rounds)}")
    ratios = [tls / plain for plain, tls in zip(found["plain"], found["TLS"], strict=True)]
    print(f"  ratio  {statistics.median(ratios):8.2f}  (goal: at least 0.65)")


async def appends(options: argparse.Namespace, directory: Path) -> None:
    """Latency of appends of 1,000 bytes at a steady rate, three nodes."""
    clusters = {kind: await _start(directory / kind, nodes=3, tls=kind == "TLS") for kind in KINDS}
    found: dict[str, list[list[float]]] = {kind: [] for kind in KINDS}
    try:
        for cluster in clusters.values():
            await _append_steadily(cluster.client, options.rate, 2)
        for _ in range(options.rounds):
            for kind in KINDS:
                found[kind].append(await _append_steadily(clusters[kind].client, options.rate, options.seconds))
    finally:
        for cluster in clusters.values():
            await cluster.close()
    print(f"appends, {options.rate:g} a second, {options.rounds} rounds of {options.seconds:g} s")
    _print_latencies(found, "plain", "TLS", 1.3)


# Handshakes and idle connections


class _Idle(asyncio.Protocol):
    """A client that introduces itself and says nothing more."""

    def __init__(self, hello: bytes, let_in: asyncio.Future[None]) -> None:
        self._hello = hello
        self._reader = FrameReader()
        self._let_in = let_in
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.transport.write(self._hello)

    def data_received(self, data: bytes) -> None:
        if not self._let_in.done():
            self._let_in.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._let_in.done():
            self._let_in.set_exception(exc or ConnectionError("the node closed it"))


def _hello(config: ClusterConfig) -> bytes:
    hello = m.Hello(
        protocol_min=1,
        protocol_max=2,
        cluster_name=config.name,
        cluster_uuid=config.uuid,
        node=NodeId(-1),
        instance=InstanceId(1),
        destination=NodeId(0),
        config_version=config.version,
        name="idle",
        token="",
    )
    return b"".join(encode_frame(hello))


async def _connect(config: ClusterConfig, hello: bytes, context: ssl.SSLContext | None) -> _Idle:
    loop = asyncio.get_running_loop()
    let_in: asyncio.Future[None] = loop.create_future()
    member = config.nodes[NodeId(0)]
    _, protocol = await loop.create_connection(lambda: _Idle(hello, let_in), member.host, member.port, ssl=context)
    await let_in
    return protocol


def _context(file: Path, config: ClusterConfig) -> ssl.SSLContext | None:
    contexts = client_contexts(config, file, default_identity(file))
    return None if contexts is None else contexts.asking(NodeId(0))


def _shake_hands(file: Path, rate: float, pipe: Connection) -> None:
    """A process that connects and disconnects at a rate until it is told to stop; tells how often it did."""

    config = load_cluster(file.read_text())

    async def run() -> None:
        hello, context = _hello(config), _context(file, config)
        began, number = time.perf_counter(), 0

        async def one() -> None:
            (await _connect(config, hello, context)).transport.abort()

        pipe.send(None)  # it takes a while to start
        async with asyncio.TaskGroup() as group:
            while not pipe.poll():
                while began + number / rate <= time.perf_counter():
                    group.create_task(one())
                    number += 1
                await asyncio.sleep(0.005)
        pipe.send(number / (time.perf_counter() - began))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def handshakes(options: argparse.Namespace, directory: Path) -> None:
    """Latency of appends without and with 50 handshakes a second at one of three nodes, all over TLS."""
    cluster = await _start(directory / "TLS", nodes=3, tls=True)
    spawn = multiprocessing.get_context("spawn")
    found: dict[str, list[list[float]]] = {"alone": [], "beside": []}
    reached: list[float] = []
    try:
        await _append_steadily(cluster.client, options.rate, 2)
        for _ in range(options.rounds):
            found["alone"].append(await _append_steadily(cluster.client, options.rate, options.seconds))
            ours, theirs = spawn.Pipe()
            file = layout.cluster_file(cluster.directory)
            process = spawn.Process(target=_shake_hands, args=(file, options.handshake_rate, theirs))
            process.start()
            await asyncio.to_thread(ours.recv)
            found["beside"].append(await _append_steadily(cluster.client, options.rate, options.seconds))
            ours.send(None)
            reached.append(await asyncio.to_thread(ours.recv))
            process.join()
    finally:
        await cluster.close()
    print(f"appends, {options.rate:g} a second, beside {statistics.median(reached):.0f} handshakes a second at N0")
    _print_latencies(found, "alone", "beside", 1.5)


def _hold(file: Path, count: int, at_once: int, pipe: Connection) -> None:
    """A process that holds idle connections until it is told to stop; tells in how many seconds it made them."""

    config = load_cluster(file.read_text())

    async def run() -> None:
        hello, context = _hello(config), _context(file, config)
        held: list[_Idle] = []
        began = time.perf_counter()
        while len(held) < count:
            more = min(at_once, count - len(held))
            held += await asyncio.gather(*(_connect(config, hello, context) for _ in range(more)))
        pipe.send(time.perf_counter() - began)
        await asyncio.to_thread(pipe.recv)
        for each in held:
            each.transport.abort()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def idle(options: argparse.Namespace, directory: Path) -> None:
    """Memory of a node for idle connections, and latency of appends beside them."""
    spawn = multiprocessing.get_context("spawn")
    print(f"{options.idle} idle connections to N0 of one node")
    for kind in KINDS:
        gc.collect()
        cluster = await _start(directory / kind, nodes=1, tls=kind == "TLS", places=options.idle)
        try:
            alone = await _append_steadily(cluster.client, options.rate, 3)
            before = cluster.memory()
            ours, theirs = spawn.Pipe()
            file = layout.cluster_file(cluster.directory)
            process = spawn.Process(target=_hold, args=(file, options.idle, options.at_once, theirs))
            process.start()
            took = await asyncio.to_thread(ours.recv)
            held = cluster.memory() - before
            beside = await _append_steadily(cluster.client, options.rate, 3)
            ours.send(None)
            process.join()
        finally:
            await cluster.close()
        print(
            f"  {kind:<6} {held / (1 << 20):6.0f} MiB, {held / options.idle / 1024:5.1f} KiB each; made in {took:.1f} s "
            f"({options.idle / took:.0f} a second); p99 of appends {_p(alone, 0.99):.2f} ms before, {_p(beside, 0.99):.2f} ms beside"
        )


PARTS: Final = {"frames": frames, "throughput": throughput, "appends": appends, "handshakes": handshakes, "idle": idle}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=list(PARTS), metavar="PART", help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10, help="of a round of appends")
    parser.add_argument("--rate", type=float, default=200, help="appends a second")
    parser.add_argument("--frames", type=int, default=10_000, help="64 KiB frames a round")
    parser.add_argument("--handshake-rate", type=float, default=50, help="a second")
    parser.add_argument("--idle", type=int, default=10_000, help="connections")
    parser.add_argument("--at-once", type=int, default=50, help="idle connections that are made at a time")
    options = parser.parse_args()
    for name in options.parts or PARTS:
        with tempfile.TemporaryDirectory(prefix="tls-") as directory:
            uvloop.run(PARTS[name](options, Path(directory)))


if __name__ == "__main__":
    main()
