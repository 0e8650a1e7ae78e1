"""NATS JetStream: servers of one cluster, a log is a stream of file storage with a replica on each, by nats-py.

**Acknowledgement.** A majority of the replicas has the record in its Raft log. ``sync``: ``sync_interval: always``, so that each of them has
synced it (the stream's own files follow with the next snapshot, the Raft log is what a server recovers from). ``async``: the default, a sync every
two minutes, so that the record is in their page cache.

**Appending.** `JetStreamContext.publish_async` for each record, at most a window of them unacknowledged; lone appends by `publish`, the
synchronous call. nats-py has no batching writer, so there are no buffered modes. **Reading.** An ordered consumer, which is the documented way to
read everything in order.

Connections go to the stream's leader first. Against the library's defaults they look for another server after 50 ms rather than 2 s and ping
every second, so that a lost or paused server is noticed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Final

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import DeliverPolicy, PubAck, StorageType, StreamConfig, StreamInfo

from benchmarks.ldbench.engine import (
    DurabilityClass,
    Engine,
    EngineError,
    Mode,
    Producer,
    Setting,
    StartAt,
    StartOptions,
)
from benchmarks.ldbench.receipts import ListReceipt
from benchmarks.ldbench.server_processes import RunningServers, ServerProcesses, why_no_servers
from benchmarks.ldbench.servers import find_nats
from server.dev.free_ports import LOOPBACK, free_ports

WINDOWS: Final = (4000, 1000, 8000)
"""The first is the library's default. The server takes at most 10,000 for a stream."""
_READY: Final = "ready"
_STOP_TIMEOUT: Final = 3.0
_PROTOCOL_BYTES = 1 << 16


class JetStreamProducer:
    """Publishes to one stream, each record by a call of its own."""

    def __init__(self, context: JetStreamContext, stream: str, timeout: float) -> None:
        self._context = context
        self._stream = stream
        self._timeout = timeout
        self._lists: asyncio.Queue[tuple[ListReceipt, Sequence[bytes], list[asyncio.Future[PubAck]]]] = asyncio.Queue()
        self._open: set[ListReceipt] = set()
        self._sender = asyncio.create_task(self._send())

    def append_many(self, records: Sequence[bytes]) -> Awaitable[object]:
        """As `Producer.append_many`."""
        waiting: list[asyncio.Future[PubAck]] = []
        # the library itself waits for ever, and each record that waits takes a place of the window
        receipt = ListReceipt(len(records), self._timeout, lambda: _cancel(waiting))
        self._open.add(receipt)
        receipt.done.add_done_callback(lambda _: self._open.discard(receipt))
        self._lists.put_nowait((receipt, records, waiting))
        return receipt.done

    async def ready(self) -> None:
        """The library takes what the window allows."""

    async def close(self) -> None:
        """As `Producer.close`."""
        self._sender.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sender
        for receipt in list(self._open):
            receipt.fail("the producer is closed")

    async def _send(self) -> None:
        while True:
            receipt, records, waiting = await self._lists.get()
            if receipt.done.done():
                continue
            try:
                for record in records:
                    published = await self._context.publish_async(self._stream, record)
                    waiting.append(published)
                    published.add_done_callback(partial(_note, receipt))
            except nats.errors.Error as error:
                receipt.fail(repr(error))
            # publishing does not wait for the socket: let it be written
            await asyncio.sleep(0)


class JetStreamLoneProducer:
    """Publishes to one stream by the synchronous call; calls that overlap are tasks of their own."""

    def __init__(self, context: JetStreamContext, stream: str, timeout: float) -> None:
        self._context = context
        self._stream = stream
        self._timeout = timeout
        self._tasks: dict[asyncio.Task[PubAck], ListReceipt] = {}

    def append_many(self, records: Sequence[bytes]) -> Awaitable[object]:
        """As `Producer.append_many`."""
        receipt = ListReceipt(len(records), self._timeout)
        for record in records:
            task = asyncio.create_task(self._context.publish(self._stream, record, timeout=self._timeout))
            self._tasks[task] = receipt
            task.add_done_callback(self._ended)
        return receipt.done

    async def ready(self) -> None:
        """The library takes everything."""

    async def close(self) -> None:
        """As `Producer.close`."""
        for task, receipt in list(self._tasks.items()):
            receipt.fail("the producer is closed")
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[PubAck]) -> None:
        _note(self._tasks.pop(task), task)


def _cancel(waiting: Sequence[asyncio.Future[PubAck]]) -> None:
    for future in waiting:
        future.cancel()


def _note(receipt: ListReceipt, ended: asyncio.Future[PubAck]) -> None:
    """One record's answer has arrived."""
    if ended.cancelled():
        receipt.fail("cancelled")
        return
    error = ended.exception()
    if error is None:
        receipt.acknowledge(1)
    else:
        receipt.fail(repr(error))


class JetStreamConsumer:
    """An ordered consumer. The server pauses it by flow control, not by what is read from here."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._arrived = asyncio.Event()
        self._subscription: JetStreamContext.PushSubscription | None = None

    async def open(self, context: JetStreamContext, stream: str, policy: DeliverPolicy) -> None:
        """Subscribe; when it returns, the server has the consumer."""
        self._subscription = await context.subscribe(
            stream, stream=stream, ordered_consumer=True, deliver_policy=policy, cb=self._take
        )

    async def _take(self, message: Msg) -> None:
        self._records.append(message.data)
        self._arrived.set()

    async def read(self, max_records: int = 10_000) -> Sequence[bytes]:
        """As `Consumer.read`."""
        while not self._records:
            self._arrived.clear()
            await self._arrived.wait()
        taken = self._records[:max_records]
        del self._records[:max_records]
        return taken

    async def close(self) -> None:
        """As `Consumer.close`."""
        if self._subscription is not None:
            await self._subscription.unsubscribe()


class RunningJetStream(RunningServers):
    """A cluster of NATS servers, and connections to it."""

    def __init__(self, servers: ServerProcesses, options: StartOptions, ports: Mapping[str, int]) -> None:
        super().__init__(servers)
        self._options = options
        self._ports = ports
        self._connections: list[Client] = []
        self._created = 0

    async def connection(self, first: str) -> Client:
        """One to a server, or to another one where that one does not answer.

        A connection that moved to another server, as after a fault, stays with those who have it: what is opened anew neither goes its
        long way nor suffers from a fault of the server in between.
        """
        for made in self._connections:
            url = made.connected_url
            if url is not None and url.port == self._ports[first]:
                return made
        order = sorted(self._ports, key=lambda name: name != first)
        made = await nats.connect(
            servers=[f"nats://{LOOPBACK}:{self._ports[name]}" for name in order],
            dont_randomize=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.05,
            ping_interval=1,
            error_cb=_ignore,
        )
        self._connections.append(made)
        return made

    async def _manager(self, timeout: float = 5) -> JetStreamContext:
        """Any connection does for administration."""
        connection = self._connections[0] if self._connections else await self.connection("n0")
        return connection.jetstream(timeout=timeout)

    async def serves(self) -> bool:
        """Whether a stream can be made: the servers have found one another and a leader."""
        try:
            # connecting goes on for ever while no server listens
            async with asyncio.timeout(_STOP_TIMEOUT):
                manager = await self._manager(timeout=1)
                await manager.add_stream(self._stream(_READY))
                await manager.delete_stream(_READY)
        except (OSError, nats.errors.Error):
            return False
        return True

    def _stream(self, name: str) -> StreamConfig:
        return StreamConfig(name=name, subjects=[name], storage=StorageType.FILE, num_replicas=self._options.copies)

    async def create_logs(self, count: int) -> Sequence[str]:
        """As `RunningEngine.create_logs`."""
        manager = await self._manager(timeout=30)
        names = [f"log{number}" for number in range(self._created, self._created + count)]
        self._created += count
        for name in names:
            try:
                await manager.add_stream(self._stream(name))
            except (nats.errors.Error, TimeoutError) as error:
                raise EngineError(f"stream {name}: {error!r}") from error
        return names

    async def _information(self, log: str) -> StreamInfo:
        manager = await self._manager()
        try:
            return await manager.stream_info(log)
        except (nats.errors.Error, TimeoutError) as error:
            raise EngineError(f"stream {log}: {error!r}") from error

    async def producer(self, log: str, mode: Mode, setting: Setting, *, timeout: float = 30.0) -> Producer:
        """As `RunningEngine.producer`."""
        connection = await self.connection(await self.leader(log))
        window = setting.options["window"]
        if window == 0:
            return JetStreamLoneProducer(connection.jetstream(), log, timeout)
        assert isinstance(window, int)
        return JetStreamProducer(connection.jetstream(publish_async_max_pending=window), log, timeout)

    async def consumer(self, log: str, start: StartAt) -> JetStreamConsumer:
        """As `RunningEngine.consumer`."""
        connection = await self.connection(await self.leader(log))
        consumer = JetStreamConsumer()
        policy = DeliverPolicy.ALL if start is StartAt.BEGINNING else DeliverPolicy.NEW
        await consumer.open(connection.jetstream(), log, policy)
        return consumer

    async def leader(self, log: str) -> str:
        """As `RunningEngine.leader`."""
        cluster = (await self._information(log)).cluster
        if cluster is None or not cluster.leader:
            raise EngineError(f"stream {log} has no leader")
        return cluster.leader

    async def followers(self, log: str) -> Sequence[str]:
        """As `RunningEngine.followers`."""
        cluster = (await self._information(log)).cluster
        return sorted(peer.name or "" for peer in (cluster.replicas if cluster else None) or [])

    async def whole(self, log: str) -> bool:
        """As `RunningEngine.whole`: all followers are there and have caught up."""
        cluster = (await self._information(log)).cluster
        replicas = (cluster.replicas if cluster else None) or []
        return len(replicas) == self._options.copies - 1 and all(peer.current and not peer.offline for peer in replicas)

    async def stop(self) -> None:
        """As `RunningEngine.stop`."""
        for connection in self._connections:
            await connection.close()
        await self._servers.stop()


async def _ignore(error: Exception) -> None:
    """Lost connections are made again, and what they lose fails where it is awaited."""


class JetStream:
    """The engine."""

    name = "jetstream"
    title = "NATS JetStream by nats-py"
    ordered = True
    # what a paused server has not read from its connection yet reaches the stream when it goes on, behind what the client sent elsewhere
    ordered_through_faults = False
    has_leaders = True
    single_writer = False

    def unavailable(self, options: StartOptions) -> str | None:
        """As `Engine.unavailable`."""
        return why_no_servers(options, "NATS JetStream", find_nats)

    def versions(self) -> Mapping[str, str]:
        """As `Engine.versions`."""
        return {"nats-server": find_nats().version().rpartition("v")[2], "nats-py": version("nats-py")}

    def settings(self, mode: Mode) -> Sequence[Setting]:
        """As `Engine.settings`."""
        if mode is not Mode.SINGLE:
            return []
        return [
            Setting(
                name=f"window={window // 1000}k",
                description=f"publish_async with publish_async_max_pending={window}",
                records_in_flight=window,
                options={"window": window},
            )
            for window in WINDOWS
        ]

    def lone_setting(self) -> Setting:
        """As `Engine.lone_setting`."""
        return Setting(name="publish", description="publish, the synchronous call", options={"window": 0})

    def acknowledgement(self, options: StartOptions) -> str:
        """As `Engine.acknowledgement`."""
        majority = f"{options.copies // 2 + 1} of {options.copies} Raft logs"
        if options.durability is DurabilityClass.SYNC:
            return f"{majority}, each synced (sync_interval: always)"
        return f"{majority}, page cache (synced every 2 minutes)"

    async def start(self, options: StartOptions) -> RunningJetStream:
        """As `Engine.start`."""
        program = find_nats()
        names = [f"n{number}" for number in range(options.copies)]
        ports = free_ports(2 * len(names))
        clients, routes = dict(zip(names, ports, strict=False)), ports[len(names) :]
        servers = ServerProcesses(options.directory)
        for name, route in zip(names, routes, strict=True):
            file = options.directory / f"{name}.conf"
            file.write_text(_configuration(options, name, clients[name], route, routes))
            servers.declare(name, "server", [str(program.path), "--config", str(file)], files=[file])
        running = RunningJetStream(servers, options, clients)
        try:
            servers.launch(*names)
            await servers.until(running.serves, "NATS JetStream's start")
        except EngineError:
            await running.stop()
            raise
        return running


def _configuration(options: StartOptions, name: str, port: int, route: int, routes: Sequence[int]) -> str:
    data: Path = options.directory / name
    sync = "  sync_interval: always\n" if options.durability is DurabilityClass.SYNC else ""
    peers = ", ".join(f'"nats://{LOOPBACK}:{peer}"' for peer in routes)
    return (
        f"server_name: {name}\n"
        f"listen: {LOOPBACK}:{port}\n"
        f"max_payload: {max(1 << 20, options.record_bytes + _PROTOCOL_BYTES)}\n"
        f'jetstream {{\n  store_dir: "{data}"\n{sync}}}\n'
        f"cluster {{\n  name: ldbench\n  listen: {LOOPBACK}:{route}\n  routes: [{peers}]\n}}\n"
    )


ENGINE: Engine = JetStream()
