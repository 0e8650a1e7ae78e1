"""Apache BookKeeper: bookies with ZooKeeper, a log is a ledger, by BookKeeper's own Java client in a process beside this one.

There is no BookKeeper client for ledgers in Python: the package apache-bookkeeper-client speaks to the table service only. What is measured
is therefore a Python program that hands its records to a small Java process (``LedgerDriver.java``, compiled when it starts) over a connection
on loopback, lists of records in one message. That process is listed among the servers with the role ``client``, so that its cost shows.

**Acknowledgement.** An entry is written to as many bookies as there are copies and acknowledged when a majority has it in its journal. ``sync``:
the journal is synced (``journalSyncData``, the default). ``async``: ``journalSyncData=false``, the page cache.

**Appending.** `LedgerHandle.asyncAddEntry` for each record; nothing batches entries, so there are no buffered modes. The client's limit of
5000 entries a second is off. **Reading.** `readEntries` up to the last entry that is known to be confirmed, then long polls. The writer tells
bookies of its last entry after 1 ms (``explicitLacInterval``) when none follows.

A ledger has one writer, the client, and no leader among the bookies. With `StartOptions.tolerate_failure` there is one more bookie than
copies, to take the place of one that is lost. Bookies run with the heap and collector of BookKeeper's start script.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import struct
from collections.abc import Awaitable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from benchmarks.ldbench.engine import DurabilityClass, Engine, EngineError, Mode, Setting, StartAt, StartOptions
from benchmarks.ldbench.receipts import ListReceipt
from benchmarks.ldbench.record_buffer import RecordBuffer
from benchmarks.ldbench.server_processes import RunningServers, ServerProcesses, accepts, why_no_servers
from benchmarks.ldbench.servers import ServerJars, find_bookkeeper, first_line
from server.dev.free_ports import LOOPBACK, free_ports

_DRIVER: Final = Path(__file__).with_name("LedgerDriver.java")
_BOOKIE_JVM: Final = (
    *("-Xms1g", "-Xmx1g", "-XX:MaxDirectMemorySize=2g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=10"),
    *("-XX:+ParallelRefProcEnabled", "-XX:+DisableExplicitGC"),
)
_CLIENT_JVM: Final = ("-Xmx1g", "-XX:+UseG1GC")
_SMALL_JVM: Final = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_WINDOWS: Final = ((2000, 8), (10_000, 8), (50_000, 32))
"""Entries and MiB that are unacknowledged at most, ascending."""
_READ_BYTES: Final = 4 << 20
_READ_ENTRIES: Final = 1000
_SOCKET_BUFFER: Final = 1 << 20
_ANSWER: Final = 30.0
_STOP_TIMEOUT: Final = 3.0


class _Client:
    """The Java process as seen from here: requests, and the answers to whom they belong."""

    def __init__(self) -> None:
        self._numbers = count(1)
        self._server: asyncio.Server | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._receiving: asyncio.Task[None] | None = None
        self._connected = asyncio.Event()
        self._broken = ""
        self._answers: dict[int, asyncio.Future[str]] = {}
        self._receipts: dict[int, ListReceipt] = {}
        self.readers: dict[int, RecordBuffer] = {}
        """What arrives for each reader."""

    async def listen(self, port: int) -> None:
        """Wait for the process to connect."""
        self._server = await asyncio.start_server(self._connect, LOOPBACK, port, limit=_SOCKET_BUFFER)

    async def connected(self) -> bool:
        """Whether it has."""
        return self._connected.is_set()

    def number(self) -> int:
        """For a request or reader."""
        return next(self._numbers)

    def send(self, operation: bytes, number: int, *parts: bytes) -> None:
        """Hand a message over.

        Raises:
            EngineError: the process is gone.
        """
        if self._broken:
            raise EngineError(self._broken)
        assert self._writer is not None
        self._writer.write(b"".join((operation, struct.pack(">i", number), *parts)))

    async def ask(self, operation: bytes, number: int, *parts: bytes) -> str:
        """The answer to a request.

        Raises:
            EngineError: it failed.
        """
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        self.send(operation, number, *parts)
        try:
            return await asyncio.wait_for(answer, _ANSWER)
        except TimeoutError as error:
            raise EngineError("BookKeeper's client does not answer") from error
        finally:
            self._answers.pop(number, None)

    def add(self, ledger: int, records: Sequence[bytes], receipt: ListReceipt) -> None:
        """Add entries."""
        if self._broken:
            receipt.fail(self._broken)
            return
        number = self.number()
        self._receipts[number] = receipt
        receipt.done.add_done_callback(lambda _: self._receipts.pop(number, None))
        lengths = struct.pack(f">qi{len(records)}i", ledger, len(records), *map(len, records))
        self.send(b"A", number, lengths, *records)

    async def drain(self) -> None:
        """Wait until the socket takes more."""
        assert self._writer is not None
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def close(self) -> None:
        """Close the connection: the process ends."""
        if self._server is not None:
            self._server.close()
        if self._writer is not None:
            self._writer.close()
        if self._receiving is not None:
            await asyncio.gather(self._receiving, return_exceptions=True)

    def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._receiving = asyncio.create_task(self._receive(reader))
        self._connected.set()

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                kind, number, size = await _head(reader)
                if kind == b"D":
                    await self._take_entries(reader, number, size)
                else:
                    self._take_answer(kind, number, (await reader.readexactly(size)).decode())
        except (asyncio.IncompleteReadError, ConnectionError):
            self._break("BookKeeper's client is gone")

    async def _take_entries(self, reader: asyncio.StreamReader, number: int, entries: int) -> None:
        lengths = struct.unpack(f">{entries}i", await reader.readexactly(4 * entries))
        data = await reader.readexactly(sum(lengths))
        records, start = [], 0
        for length in lengths:
            records.append(data[start : start + length])
            start += length
        if number in self.readers:
            self.readers[number].put(records)

    def _take_answer(self, kind: bytes, number: int, text: str) -> None:
        answer, receipt = self._answers.get(number), self._receipts.get(number)
        if kind == b"F" and number in self.readers:
            self.readers[number].fail(text)
        if receipt is not None:
            if kind == b"K":
                receipt.finish()
            else:
                receipt.fail(text)
        if answer is not None and not answer.done():
            if kind == b"K":
                answer.set_result(text)
            else:
                answer.set_exception(EngineError(text))

    def _break(self, why: str) -> None:
        self._broken = why
        for receipt in list(self._receipts.values()):
            receipt.fail(why)
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(EngineError(why))
        for records in self.readers.values():
            records.fail(why)


async def _head(reader: asyncio.StreamReader) -> tuple[bytes, int, int]:
    """Kind, number, and how many entries or bytes of text follow."""
    kind, number = struct.unpack(">ci", await reader.readexactly(5))
    layout, size = (">i", 4) if kind == b"D" else (">H", 2)
    return kind, number, struct.unpack(layout, await reader.readexactly(size))[0]


class BookKeeperProducer:
    """The writer of one ledger."""

    def __init__(self, client: _Client, ledger: int, timeout: float) -> None:
        self._client = client
        self._ledger = ledger
        self._timeout = timeout
        self._open: set[ListReceipt] = set()

    def append_many(self, records: Sequence[bytes]) -> Awaitable[object]:
        """As `Producer.append_many`."""
        receipt = ListReceipt(len(records), self._timeout)
        self._open.add(receipt)
        receipt.done.add_done_callback(lambda _: self._open.discard(receipt))
        self._client.add(self._ledger, records, receipt)
        return receipt.done

    async def ready(self) -> None:
        """Wait until the connection takes more."""
        await self._client.drain()

    async def close(self) -> None:
        """As `Producer.close`."""
        if self._open:
            await asyncio.wait([receipt.done for receipt in self._open], timeout=self._timeout)
        for receipt in list(self._open):
            receipt.fail("the producer is closed")


class BookKeeperConsumer:
    """A reader in the Java process that sends a bounded number of batches ahead."""

    def __init__(self, client: _Client) -> None:
        self._client = client
        self._number = client.number()
        self._records = RecordBuffer()

    async def open(self, ledger: int, start: StartAt) -> None:
        """Start reading."""
        self._client.readers[self._number] = self._records
        await self._client.ask(b"R", self._number, struct.pack(">q?", ledger, start is StartAt.TAIL))

    async def read(self, max_records: int = 10_000) -> Sequence[bytes]:
        """As `Consumer.read`."""
        taken, batches = await self._records.take(max_records)
        for _ in range(batches):
            self._client.send(b"G", self._number)
        return taken

    async def close(self) -> None:
        """As `Consumer.close`."""
        del self._client.readers[self._number]
        with contextlib.suppress(EngineError):
            self._client.send(b"X", self._number)


class RunningBookKeeper(RunningServers):
    """ZooKeeper, bookies and the Java client."""

    def __init__(self, servers: ServerProcesses, client: _Client, ports: Mapping[str, int]) -> None:
        super().__init__(servers)
        self._client = client
        self._ports = ports

    async def serves(self) -> bool:
        """Whether a ledger can be made: enough bookies have registered."""
        try:
            await self._client.ask(b"C", self._client.number())
        except EngineError:
            return False
        return True

    async def create_logs(self, count: int) -> Sequence[str]:
        """As `RunningEngine.create_logs`."""
        return [await self._client.ask(b"C", self._client.number()) for _ in range(count)]

    async def producer(self, log: str, mode: Mode, setting: Setting, *, timeout: float = 30.0) -> BookKeeperProducer:
        """As `RunningEngine.producer`."""
        return BookKeeperProducer(self._client, int(log), timeout)

    async def consumer(self, log: str, start: StartAt) -> BookKeeperConsumer:
        """As `RunningEngine.consumer`."""
        consumer = BookKeeperConsumer(self._client)
        await consumer.open(int(log), start)
        return consumer

    async def leader(self, log: str) -> str:
        """Raises `EngineError`: a ledger's writer is its client, and no bookie leads it."""
        raise EngineError("a ledger has no leader among the bookies: its writer is the client")

    async def followers(self, log: str) -> Sequence[str]:
        """The bookies of the ledger's current ensemble."""
        bookies = await self._client.ask(b"B", self._client.number(), struct.pack(">q", int(log)))
        ports = {int(bookie.rpartition(":")[2]) for bookie in bookies.split(",")}
        return [name for name, port in self._ports.items() if port in ports]

    async def stop(self) -> None:
        """As `RunningEngine.stop`."""
        await self._client.close()
        await self._servers.stop(_STOP_TIMEOUT)


class BookKeeper:
    """The engine."""

    name = "bookkeeper"
    title = "Apache BookKeeper by its Java client, driven from Python"
    ordered = True
    ordered_through_faults = True
    has_leaders = False
    single_writer = True

    def unavailable(self, options: StartOptions) -> str | None:
        """As `Engine.unavailable`."""
        reason = why_no_servers(options, "BookKeeper", find_bookkeeper)
        if reason is None and shutil.which("javac") is None:
            return "BookKeeper's driver is compiled when it starts, and there is no javac on the PATH: install a JDK 17 or later"
        return reason

    def versions(self) -> Mapping[str, str]:
        """As `Engine.versions`."""
        jars = find_bookkeeper()
        return {"bookkeeper": jars.version, "java": first_line([jars.java, "-version"])}

    def settings(self, mode: Mode) -> Sequence[Setting]:
        """As `Engine.settings`."""
        if mode is not Mode.SINGLE:
            return []
        return [
            Setting(
                name=f"window={window // 1000}k",
                description=f"at most {window} entries unacknowledged, throttle=0",
                records_in_flight=window,
                bytes_in_flight=size << 20,
            )
            for window, size in _WINDOWS
        ]

    def lone_setting(self) -> Setting:
        """As `Engine.lone_setting`."""
        return self.settings(Mode.SINGLE)[0]

    def acknowledgement(self, options: StartOptions) -> str:
        """As `Engine.acknowledgement`."""
        kept = f"journals of {_majority(options)} of {options.copies} bookies"
        if options.durability is DurabilityClass.SYNC:
            return f"{kept}, each synced"
        return f"{kept}, page cache (journalSyncData=false)"

    async def start(self, options: StartOptions) -> RunningBookKeeper:
        """As `Engine.start`."""
        jars = find_bookkeeper()
        names = [f"bookie-{number}" for number in range(1, options.copies + options.tolerate_failure + 1)]
        zookeeper, client_port, *bookies = free_ports(2 + len(names))
        ports = dict(zip(names, bookies, strict=True))
        servers = ServerProcesses(options.directory)
        client = _Client()
        running = RunningBookKeeper(servers, client, ports)
        uri = f"zk+hierarchical://{LOOPBACK}:{zookeeper}/ledgers"
        _declare(servers, options, jars, zookeeper, uri, ports, client_port)
        try:
            servers.launch("zookeeper")
            await servers.until(lambda: accepts(zookeeper), "ZooKeeper's start")
            await _format(jars, uri)
            servers.launch(*names)
            await client.listen(client_port)
            servers.launch("driver")
            await servers.until(client.connected, "the start of BookKeeper's client")
            await servers.until(running.serves, "BookKeeper's start")
        except EngineError:
            await running.stop()
            raise
        return running


def _declare(
    servers: ServerProcesses,
    options: StartOptions,
    jars: ServerJars,
    zookeeper: int,
    uri: str,
    ports: Mapping[str, int],
    client_port: int,
) -> None:
    java = [jars.java, "-cp", jars.class_path]
    file = options.directory / "zoo.cfg"
    file.write_text(
        f"dataDir={options.directory / 'zookeeper'}\nclientPort={zookeeper}\nclientPortAddress={LOOPBACK}\n"
        "tickTime=2000\nadmin.enableServer=false\n"
    )
    command = [*java, *_SMALL_JVM, "org.apache.zookeeper.server.ZooKeeperServerMain", str(file)]
    servers.declare("zookeeper", "metadata", command, files=[file])
    for name, port in ports.items():
        file = options.directory / f"{name}.conf"
        file.write_text(_configuration(options, name, port, uri))
        command = [*java, *_BOOKIE_JVM, "org.apache.bookkeeper.server.Main", "--conf", str(file)]
        servers.declare(name, "bookie", command, files=[file])
    driver = options.directory / _DRIVER.name  # reports show commands, and shall not show where a checkout lies
    shutil.copyfile(_DRIVER, driver)
    entries = max(1, min(_READ_ENTRIES, _READ_BYTES // options.record_bytes))
    numbers = [client_port, options.copies, _majority(options), entries]
    servers.declare("driver", "client", [*java, *_CLIENT_JVM, str(driver), "serve", uri, *map(str, numbers)])


async def _format(jars: ServerJars, uri: str) -> None:
    """Make the cluster's metadata."""
    command = [jars.java, "-cp", jars.class_path, *_SMALL_JVM, str(_DRIVER), "format", uri]
    printed = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.DEVNULL, stdout=printed, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    if process.returncode != 0:
        raise EngineError(f"BookKeeper's metadata could not be made: {output.decode(errors='replace')[-2000:]}")


def _majority(options: StartOptions) -> int:
    return options.copies // 2 + 1


def _configuration(options: StartOptions, name: str, port: int, uri: str) -> str:
    data = options.directory / name
    lines = {
        "bookiePort": port,
        "advertisedAddress": LOOPBACK,
        "allowLoopback": "true",
        "metadataServiceUri": uri,
        "journalDirectories": data / "journal",
        "ledgerDirectories": data / "ledgers",
        "journalSyncData": str(options.durability is DurabilityClass.SYNC).lower(),
        # A bookie refuses what comes while so many wait (10,000 by default), and the client takes a refusal for a bookie that failed.
        "maxPendingAddRequestsPerThread": 2 * _WINDOWS[-1][0],
        "nettyMaxFrameSizeBytes": max(5 << 20, options.record_bytes + (1 << 16)),
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


ENGINE: Engine = BookKeeper()
