"""Apache Kafka: brokers in KRaft mode that are controllers too, a log is a topic of one partition, by confluent-kafka.

**Acknowledgement.** ``acks=all`` with ``min.insync.replicas`` of a majority: every in-sync replica has the record, which is all of them while
all brokers are well. ``sync``: ``log.flush.interval.messages=1``, leader and followers sync each batch that they write before they report it.
``async``: the default, the record is in the page cache of their machines.

**Appending.** `Producer.produce` with a delivery callback for each record; a thread calls `Producer.poll`. The client batches by itself in
every mode, so the modes differ in the call only: `Mode.BUFFERED_MANY` uses `Producer.produce_batch` with a callback on the last record,
which stands for all because ``enable.gapless.guarantee`` lets no record pass one that failed. Idempotence is on, as Kafka's own
client has it, so that retries neither duplicate nor reorder. **Reading.** An assigned partition, no commits, `Consumer.poll` for the
first record and `Consumer.consume` for all that the client has fetched.

Brokers run with the heap and collector of Kafka's own start script. Their session timeout is the default of 9 s. Against
the client's defaults, lost connections are tried again after 0.5 s at most, and a full fetch queue is looked at again after 10 ms.
"""

from __future__ import annotations

import asyncio
import base64
import subprocess
import threading
from collections.abc import Awaitable, Mapping, Sequence
from importlib.metadata import version
from typing import Any, Final

from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.ldbench.engine import DurabilityClass, Engine, EngineError, Mode, Setting, StartAt, StartOptions
from benchmarks.ldbench.receipts import ListReceipt
from benchmarks.ldbench.record_buffer import RecordBuffer
from benchmarks.ldbench.server_processes import RunningServers, ServerProcesses, why_no_servers
from benchmarks.ldbench.servers import find_kafka, first_line
from server.dev.free_ports import LOOPBACK, free_ports

_JVM: Final = (
    *(
        "-Xmx1G",
        "-Xms1G",
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
    ),
    *("-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
_SHORT_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_CLUSTER: Final = base64.urlsafe_b64encode(b"ldbench's-kafka!").decode().rstrip("=")
_POLL: Final = 0.1
_FETCHED: Final = 10_000
_BUFFERED_BATCHES: Final = 32
_RECONNECT: Final[dict[str, Any]] = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "log_level": 0}
_STOP_TIMEOUT: Final = 3.0
"""Seconds for an orderly stop. The last controllers of a cluster wait for a majority that has gone."""
_ADMINISTRATION: Final = 30.0
_NOT_KNOWN_YET: Final = frozenset(
    (
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.LEADER_NOT_AVAILABLE,
    )
)

_SETTINGS: Final = (
    Setting(
        name="linger=5ms",
        description="the client's defaults (linger.ms=5, batch.size=1000000)",
        options={"linger.ms": 5},
    ),
    Setting(
        name="linger=20ms",
        description="linger.ms=20, batch.num.messages=50000, batch.size=4194304",
        records_in_flight=100_000,
        bytes_in_flight=64 << 20,
        records_per_call=500,
        options={"linger.ms": 20, "batch.num.messages": 50_000, "batch.size": 4 << 20},
    ),
    Setting(
        name="linger=5ms,lz4",
        description="linger.ms=5, compression.type=lz4, batch.num.messages=50000",
        records_in_flight=50_000,
        bytes_in_flight=32 << 20,
        options={"linger.ms": 5, "compression.type": "lz4", "batch.num.messages": 50_000},
    ),
)


class _Delivery:
    """Counts the delivery callbacks of one list, on the polling thread."""

    __slots__ = ("_error", "_finished", "_missing", "receipt")

    def __init__(self, receipt: ListReceipt, callbacks: int, finished: list[tuple[ListReceipt, str | None]]) -> None:
        self.receipt = receipt
        self._missing = callbacks
        self._finished = finished
        self._error: str | None = None

    def __call__(self, error: KafkaError | None, _message: Message) -> None:
        self._missing -= 1
        if error is not None:
            self._error = str(error)
        if self._missing == 0:
            self._finished.append((self.receipt, self._error))


class KafkaProducer:
    """A client of its own and the thread that polls it."""

    def __init__(self, options: Mapping[str, Any], topic: str, many: bool, timeout: float) -> None:
        self._client = ConfluentProducer(dict(options))
        self._topic = topic
        self._many = many
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._finished: list[tuple[ListReceipt, str | None]] = []
        self._open: set[ListReceipt] = set()
        self._closing = False
        self._thread = threading.Thread(target=self._poll, name=f"producer of {topic}", daemon=True)
        self._thread.start()

    def append_many(self, records: Sequence[bytes]) -> Awaitable[object]:
        """As `Producer.append_many`."""
        receipt = ListReceipt(len(records), self._timeout)
        self._open.add(receipt)
        receipt.done.add_done_callback(lambda _: self._open.discard(receipt))
        try:
            if self._many and len(records) > 1:
                self._produce_batch(receipt, records)
            else:
                produce, topic = self._client.produce, self._topic
                delivery = _Delivery(receipt, len(records), self._finished)
                for record in records:
                    produce(topic, record, partition=0, on_delivery=delivery)
        except (BufferError, KafkaException) as error:
            receipt.fail(str(error))
        return receipt.done

    def _produce_batch(self, receipt: ListReceipt, records: Sequence[bytes]) -> None:
        messages: list[dict[str, Any]] = [{"value": record} for record in records]
        messages[-1]["callback"] = _Delivery(receipt, 1, self._finished)
        queued = self._client.produce_batch(self._topic, messages, partition=0)
        if queued != len(messages):
            receipt.fail(f"{len(messages) - queued} records were not taken")

    async def ready(self) -> None:
        """The client's queue holds more than the settings' windows."""

    async def close(self) -> None:
        """As `Producer.close`."""
        self._closing = True
        await asyncio.to_thread(self._thread.join)
        if self._open:
            # one thread at a time runs callbacks
            await asyncio.to_thread(self._client.flush, self._timeout)
        _settle(self._finished)
        for receipt in list(self._open):
            receipt.fail("the producer is closed")

    def _poll(self) -> None:
        while not self._closing:
            self._client.poll(_POLL)
            if self._finished:
                finished = self._finished.copy()
                self._finished.clear()
                self._loop.call_soon_threadsafe(_settle, finished)


def _settle(finished: Sequence[tuple[ListReceipt, str | None]]) -> None:
    for receipt, error in finished:
        if error is None:
            receipt.finish()
        else:
            receipt.fail(error)


class KafkaConsumer:
    """A client with one assigned partition and the thread that reads it. A full buffer stops the thread."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self._client = ConfluentConsumer(dict(options))
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._records = RecordBuffer()
        self._room = threading.Semaphore(_BUFFERED_BATCHES)
        self._closing = False
        self._thread = threading.Thread(target=self._fetch, name=f"consumer of {topic}", daemon=True)

    async def open(self, start: StartAt) -> None:
        """Start reading."""
        offset = await self._tail() if start is StartAt.TAIL else 0
        self._client.assign([TopicPartition(self._topic, 0, offset)])
        self._thread.start()

    async def _tail(self) -> int:
        """Behind the last acknowledged record."""
        deadline = self._loop.time() + _ADMINISTRATION
        partition = TopicPartition(self._topic, 0)
        while True:
            try:
                _, end = await asyncio.to_thread(self._client.get_watermark_offsets, partition, timeout=_ADMINISTRATION)
            except KafkaException as error:
                # a broker learns of a topic a little after it was made
                if error.args[0].code() not in _NOT_KNOWN_YET or self._loop.time() > deadline:
                    raise EngineError(f"the end of {self._topic}: {error}") from error
                await asyncio.sleep(_POLL)
            else:
                return int(end)

    async def read(self, max_records: int = 10_000) -> Sequence[bytes]:
        """As `Consumer.read`."""
        taken, batches = await self._records.take(max_records)
        for _ in range(batches):
            self._room.release()
        return taken

    async def close(self) -> None:
        """As `Consumer.close`."""
        self._closing = True
        self._room.release()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._client.close)

    def _fetch(self) -> None:
        while not self._closing:
            first = self._client.poll(_POLL)
            if first is None:
                continue
            messages = [first, *self._client.consume(_FETCHED, 0)]
            records = []
            for message in messages:
                error = message.error()
                value = message.value()
                if error is None and value is not None:
                    records.append(value)
                elif error is not None and (error.fatal() or not error.retriable()):
                    self._loop.call_soon_threadsafe(self._records.fail, str(error))
            if records:
                self._room.acquire()
                self._loop.call_soon_threadsafe(self._records.put, records)


class RunningKafka(RunningServers):
    """A cluster of brokers."""

    def __init__(self, servers: ServerProcesses, options: StartOptions, ports: Mapping[str, int]) -> None:
        super().__init__(servers)
        self._options = options
        self._addresses = ",".join(f"{LOOPBACK}:{port}" for port in ports.values())
        self._names = list(ports)
        self._administration = AdminClient(_RECONNECT | {"bootstrap.servers": self._addresses})
        self._created = 0

    async def serves(self) -> bool:
        """Whether all brokers are known."""
        try:
            metadata = await asyncio.to_thread(self._administration.list_topics, timeout=2)
        except KafkaException:
            return False
        return len(metadata.brokers) == len(self._names)

    async def create_logs(self, count: int) -> Sequence[str]:
        """As `RunningEngine.create_logs`."""
        names = [f"log{number}" for number in range(self._created, self._created + count)]
        self._created += count
        topics = [NewTopic(name, num_partitions=1, replication_factor=self._options.copies) for name in names]
        try:
            for made in self._administration.create_topics(topics, request_timeout=_ADMINISTRATION).values():
                await asyncio.to_thread(made.result)
        except KafkaException as error:
            raise EngineError(f"topics: {error}") from error
        await self._servers.until(lambda: self._replicated(names), "Kafka's topics", _ADMINISTRATION)
        return names

    async def _replicated(self, names: Sequence[str]) -> bool:
        for name in names:
            partition = await self._partition(name)
            if partition is None or partition.leader < 0 or len(partition.isrs) < self._options.copies:
                return False
        return True

    async def _partition(self, log: str) -> Any:
        """The topic's partition as the cluster describes it; None when it does not."""
        try:
            metadata = await asyncio.to_thread(self._administration.list_topics, log, timeout=_ADMINISTRATION)
        except KafkaException as error:
            raise EngineError(f"topic {log}: {error}") from error
        return metadata.topics[log].partitions.get(0)

    def _client_options(self) -> dict[str, Any]:
        return {
            "bootstrap.servers": self._addresses,
            "message.max.bytes": _largest(self._options),
            "socket.nagle.disable": True,
            **_RECONNECT,
        }

    async def producer(self, log: str, mode: Mode, setting: Setting, *, timeout: float = 30.0) -> KafkaProducer:
        """As `RunningEngine.producer`."""
        many = mode is Mode.BUFFERED_MANY
        options = self._client_options() | {
            "acks": "all",
            "enable.idempotence": True,
            "enable.gapless.guarantee": many,
            "queue.buffering.max.messages": 1_000_000,
            "message.timeout.ms": int(timeout * 1000),
            **setting.options,
        }
        return KafkaProducer(options, log, many, timeout)

    async def consumer(self, log: str, start: StartAt) -> KafkaConsumer:
        """As `RunningEngine.consumer`."""
        options = self._client_options() | {
            "group.id": "ldbench",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "fetch.queue.backoff.ms": 10,
        }
        consumer = KafkaConsumer(options, log)
        await consumer.open(start)
        return consumer

    async def leader(self, log: str) -> str:
        """As `RunningEngine.leader`."""
        partition = await self._partition(log)
        if partition is None or partition.leader < 0:
            raise EngineError(f"topic {log} has no leader")
        return f"broker-{partition.leader}"

    async def followers(self, log: str) -> Sequence[str]:
        """As `RunningEngine.followers`."""
        partition = await self._partition(log)
        if partition is None:
            raise EngineError(f"topic {log} is not there")
        return [f"broker-{broker}" for broker in sorted(partition.replicas) if broker != partition.leader]

    async def whole(self, log: str) -> bool:
        """As `RunningEngine.whole`: all replicas are in sync."""
        return await self._replicated([log])

    async def stop(self) -> None:
        """As `RunningEngine.stop`."""
        await self._servers.stop(_STOP_TIMEOUT)


class Kafka:
    """The engine."""

    name = "kafka"
    title = "Apache Kafka by confluent-kafka"
    ordered = True
    ordered_through_faults = True
    has_leaders = True
    single_writer = False

    def unavailable(self, options: StartOptions) -> str | None:
        """As `Engine.unavailable`."""
        return why_no_servers(options, "Kafka", find_kafka)

    def versions(self) -> Mapping[str, str]:
        """As `Engine.versions`."""
        jars = find_kafka()
        return {
            "kafka": jars.version,
            "java": first_line([jars.java, "-version"]),
            "confluent-kafka": version("confluent-kafka"),
        }

    def settings(self, mode: Mode) -> Sequence[Setting]:
        """As `Engine.settings`."""
        return _SETTINGS

    def lone_setting(self) -> Setting:
        """As `Engine.lone_setting`."""
        return Setting(name="linger=0", description="linger.ms=0", options={"linger.ms": 0})

    def acknowledgement(self, options: StartOptions) -> str:
        """As `Engine.acknowledgement`."""
        kept = f"all in-sync replicas ({options.copies} of {options.copies}, at least {_least(options)})"
        if options.durability is DurabilityClass.SYNC:
            return f"{kept}, each batch synced (log.flush.interval.messages=1)"
        return f"{kept}, page cache"

    async def start(self, options: StartOptions) -> RunningKafka:
        """As `Engine.start`."""
        jars = find_kafka()
        numbers = list(range(1, options.copies + 1))
        ports = free_ports(2 * len(numbers))
        voters = ",".join(f"{number}@{LOOPBACK}:{ports[len(numbers) + number - 1]}" for number in numbers)
        servers = ServerProcesses(options.directory)
        running_ports = {}
        formats = []
        for number in numbers:
            name = f"broker-{number}"
            running_ports[name] = ports[number - 1]
            file = options.directory / f"{name}.properties"
            listeners = (ports[number - 1], ports[len(numbers) + number - 1])
            file.write_text(_configuration(options, number, listeners, voters))
            java = [jars.java, *_SHORT_JVM, "-cp", jars.class_path]
            formats.append([*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER, "-c", str(file)])
            servers.declare(
                name, "broker", [jars.java, *_JVM, "-cp", jars.class_path, "kafka.Kafka", str(file)], files=[file]
            )
        await asyncio.gather(*(asyncio.to_thread(_format, command) for command in formats))
        running = RunningKafka(servers, options, running_ports)
        try:
            servers.launch(*running_ports)
            await servers.until(running.serves, "Kafka's start")
        except EngineError:
            await running.stop()
            raise
        return running


def _format(command: Sequence[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode != 0:
        raise EngineError(f"Kafka's storage was not formatted: {done.stdout.decode(errors='replace')[-2000:]}")


def _least(options: StartOptions) -> int:
    return options.copies // 2 + 1


def _largest(options: StartOptions) -> int:
    """A batch may be as large as a setting wants, or hold one record."""
    return max(5 << 20, options.record_bytes + (1 << 16))


def _configuration(options: StartOptions, number: int, listeners: tuple[int, int], voters: str) -> str:
    lines = {
        "process.roles": "broker,controller",
        "node.id": number,
        "controller.quorum.voters": voters,
        "listeners": f"PLAINTEXT://{LOOPBACK}:{listeners[0]},CONTROLLER://{LOOPBACK}:{listeners[1]}",
        "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{listeners[0]}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": options.directory / f"broker-{number}",
        "min.insync.replicas": _least(options),
        "auto.create.topics.enable": "false",
        "message.max.bytes": _largest(options),
        "replica.fetch.max.bytes": _largest(options),
    }
    if options.durability is DurabilityClass.SYNC:
        lines["log.flush.interval.messages"] = 1
    return "".join(f"{key}={value}\n" for key, value in lines.items())


ENGINE: Engine = Kafka()
