"""Redis Streams: a master with replicas, a log is a stream, by redis-py's asyncio client.

**Acknowledgement.** ``XADD`` and then ``WAIT`` for all replicas but those beyond the copies. ``sync``: ``appendfsync always`` on each server; a replica
answers ``WAIT`` only after the sync of the same turn of its event loop, as the master does. ``async``: ``appendfsync everysec``, the default: the record is
in the memory of all of them and on its way to the page cache.

**Appending.** A pipeline (no transaction) of the ``XADD`` of each record that waits, up to a depth, with one ``WAIT`` at its end; one pipeline at a time
for a producer, since two connections would not keep the order. redis-py offers nothing else that batches, so all modes use it. The
library's repetitions are off: an ``XADD`` that is sent again may be in the stream twice. **Reading.** ``XREAD`` with a count from the master.

With `StartOptions.tolerate_failure` there is one more replica, and three Sentinels promote one when the master has not answered for a second
(``down-after-milliseconds 1000``; the default is 30 s). Without, nobody replaces the master.

redis-py parses faster with the package hiredis, and uses it when it is installed: `versions` tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from benchmarks.ldbench.engine import DurabilityClass, Engine, EngineError, Mode, Setting, StartAt, StartOptions
from benchmarks.ldbench.receipts import ListReceipt
from benchmarks.ldbench.server_processes import RunningServers, ServerProcesses, why_no_servers
from benchmarks.ldbench.servers import find_redis
from server.dev.free_ports import LOOPBACK, free_ports

_FIELD: Final = b"r"
_MASTER: Final = "ldbench"
_SENTINELS: Final = 3
_DOWN_AFTER_MS: Final = 1000
_FAILOVER_TIMEOUT: Final = 2.0
"""Seconds that a client waits for a master that may be gone."""
_AGAIN: Final = 0.05
_BLOCK_MS: Final = 1000
_SAID_MEANWHILE: Final = 65_536
"""Bytes that a replica may be behind and still have caught up: Sentinels talk all the time, and replicas say once a second how far they are."""
_STOP_TIMEOUT: Final = 3.0
"""Seconds for an orderly stop: a master waits up to 10 s for its replicas."""


def _setting(depth: int, in_flight: int) -> Setting:
    return Setting(
        name=f"pipeline={depth}",
        description=f"pipelines of at most {depth} XADD and one WAIT",
        records_in_flight=in_flight,
        options={"depth": depth},
    )


_SETTINGS: Final = (_setting(1000, 10_000), _setting(200, 2000), _setting(5000, 20_000))


class RedisProducer:
    """A connection of its own, with one pipeline under way."""

    def __init__(
        self, client: Redis, stream: str, replicas: int, depth: int, timeout: float, answer_timeout: float
    ) -> None:
        self._client = client
        self._stream = stream
        self._replicas = replicas
        self._depth = depth
        self._timeout = timeout
        self._answer_timeout = answer_timeout
        self._waiting: asyncio.Queue[tuple[ListReceipt, Sequence[bytes]]] = asyncio.Queue()
        self._open: set[ListReceipt] = set()
        self._sender = asyncio.create_task(self._send())

    def append_many(self, records: Sequence[bytes]) -> Awaitable[object]:
        """As `Producer.append_many`."""
        receipt = ListReceipt(len(records), self._timeout)
        self._open.add(receipt)
        receipt.done.add_done_callback(lambda _: self._open.discard(receipt))
        self._waiting.put_nowait((receipt, records))
        return receipt.done

    async def ready(self) -> None:
        """Pipelines grow to their depth, and the rest waits."""

    async def close(self) -> None:
        """As `Producer.close`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._answer_timeout):
                while self._open and not self._sender.done():
                    await asyncio.wait([receipt.done for receipt in self._open])
        self._sender.cancel()
        await asyncio.gather(self._sender, return_exceptions=True)
        for receipt in list(self._open):
            receipt.fail("the producer is closed")
        await self._client.aclose()

    async def _send(self) -> None:
        while True:
            lists = [await self._waiting.get()]
            records = len(lists[0][1])
            while records < self._depth and not self._waiting.empty():
                lists.append(self._waiting.get_nowait())
                records += len(lists[-1][1])
            lists = [entry for entry in lists if not entry[0].done.done()]
            if lists:
                await self._execute(lists)

    async def _execute(self, lists: Sequence[tuple[ListReceipt, Sequence[bytes]]]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for _, records in lists:
            for record in records:
                pipeline.xadd(self._stream, {_FIELD: record})
        pipeline.execute_command("WAIT", self._replicas, int(self._answer_timeout * 1000))
        why = ""
        try:
            async with asyncio.timeout(self._answer_timeout + 1):
                results = await pipeline.execute(raise_on_error=False)
        except (RedisError, TimeoutError, OSError) as error:
            why = repr(error)
        else:
            why = _what_failed(results, self._replicas)
        for receipt, _ in lists:
            if why:
                receipt.fail(why)
            else:
                receipt.finish()


def _what_failed(results: Sequence[Any], replicas: int) -> str:
    """Of a pipeline's results, the last of which is that of WAIT; empty when all went well."""
    for result in results:
        if isinstance(result, Exception):
            return repr(result)
    return "" if results[-1] >= replicas else f"only {results[-1]} replicas have it"


class RedisConsumer:
    """Reads on from the last id that it delivered."""

    def __init__(self, client: Redis, stream: str, last: bytes | str, fails_over: bool) -> None:
        self._client = client
        self._stream = stream
        self._last = last
        self._fails_over = fails_over

    async def read(self, max_records: int = 10_000) -> Sequence[bytes]:
        """As `Consumer.read`."""
        while True:
            try:
                found: Any = await self._client.xread({self._stream: self._last}, count=max_records, block=_BLOCK_MS)
            except (RedisConnectionError, RedisTimeoutError) as error:
                if not self._fails_over:
                    raise EngineError(f"reading {self._stream}: {error!r}") from error
                await asyncio.sleep(_AGAIN)
                continue
            except RedisError as error:
                raise EngineError(f"reading {self._stream}: {error!r}") from error
            if found:
                ((_, entries),) = found
                self._last = entries[-1][0]
                return [fields[_FIELD] for _, fields in entries]

    async def close(self) -> None:
        """As `Consumer.close`."""
        await self._client.aclose()


class RunningRedis(RunningServers):
    """A master and its replicas, with Sentinels where a failure is to be tolerated."""

    def __init__(
        self, servers: ServerProcesses, options: StartOptions, ports: Mapping[str, int], sentinels: Sequence[int]
    ) -> None:
        super().__init__(servers)
        self._options = options
        self._ports = ports
        self._sentinel: Any = (
            Sentinel([(LOOPBACK, port) for port in sentinels], socket_timeout=1.0) if sentinels else None  # type: ignore[no-untyped-call]
        )
        self._created = 0

    def _client(self) -> Redis:
        """A client of the master with connections of its own."""
        options: dict[str, Any] = {"protocol": 2, "retry": Retry(NoBackoff(), 0)}
        if self._sentinel is not None:
            answer_timeout = 2 * _FAILOVER_TIMEOUT
            client: Redis = self._sentinel.master_for(_MASTER, socket_timeout=answer_timeout, **options)
            return client
        return Redis(host=LOOPBACK, port=self._ports["r0"], socket_timeout=None, **options)

    async def follows(self, master: str = "r0", *, within: float = math.inf) -> bool:
        """Whether all other servers follow the master, so many bytes behind it at most."""
        client = Redis(host=LOOPBACK, port=self._ports[master], socket_timeout=1.0, retry=Retry(NoBackoff(), 0))
        try:
            replication: Mapping[str, Any] = await client.info("replication")
        except RedisError:
            return False
        finally:
            await client.aclose()
        followers = [replication.get(f"slave{number}", {}) for number in range(len(self._ports) - 1)]
        return all(
            follower.get("state") == "online" and replication["master_repl_offset"] - follower["offset"] <= within
            for follower in followers
        )

    async def watches(self) -> bool:
        """Whether the Sentinels, if there are any, know the servers and one another."""
        for sentinel in self._sentinel.sentinels if self._sentinel is not None else ():
            try:
                state = await sentinel.sentinel_master(_MASTER)
            except RedisError:
                return False
            if state["num-slaves"] != len(self._ports) - 1 or state["num-other-sentinels"] != _SENTINELS - 1:
                return False
        return True

    async def create_logs(self, count: int) -> Sequence[str]:
        """As `RunningEngine.create_logs`. A stream is made by its first record."""
        names = [f"log{number}" for number in range(self._created, self._created + count)]
        self._created += count
        return names

    async def producer(self, log: str, mode: Mode, setting: Setting, *, timeout: float = 30.0) -> RedisProducer:
        """As `RunningEngine.producer`."""
        depth = setting.options["depth"]
        assert isinstance(depth, int)
        answer_timeout = timeout if self._sentinel is None else min(timeout, _FAILOVER_TIMEOUT)
        return RedisProducer(self._client(), log, self._options.copies - 1, depth, timeout, answer_timeout)

    async def consumer(self, log: str, start: StartAt) -> RedisConsumer:
        """As `RunningEngine.consumer`."""
        client = self._client()
        last: bytes | str = "0-0"
        if start is StartAt.TAIL:
            try:
                newest: Any = await client.xrevrange(log, count=1)
            except RedisError as error:
                raise EngineError(f"the end of {log}: {error!r}") from error
            last = newest[0][0] if newest else "0-0"
        return RedisConsumer(client, log, last, self._sentinel is not None)

    async def leader(self, log: str) -> str:
        """As `RunningEngine.leader`."""
        if self._sentinel is None:
            return "r0"
        try:
            _, port = await self._sentinel.discover_master(_MASTER)
        except RedisError as error:
            raise EngineError(f"the master: {error!r}") from error
        return next(name for name, known in self._ports.items() if known == port)

    async def followers(self, log: str) -> Sequence[str]:
        """As `RunningEngine.followers`."""
        leader = await self.leader(log)
        return [name for name in self._ports if name != leader]

    async def whole(self, log: str) -> bool:
        """As `RunningEngine.whole`. Sentinels leave a master that comes back alone for some ten seconds before they make a replica of it."""
        return await self.follows(await self.leader(log), within=_SAID_MEANWHILE)

    async def stop(self) -> None:
        """As `RunningEngine.stop`."""
        if self._sentinel is not None:
            for sentinel in self._sentinel.sentinels:
                await sentinel.aclose()
        await self._servers.stop(_STOP_TIMEOUT)


class RedisStreams:
    """The engine."""

    name = "redis"
    title = "Redis Streams by redis-py"
    ordered = True
    ordered_through_faults = True
    has_leaders = True
    in_memory = True
    single_writer = False

    def unavailable(self, options: StartOptions) -> str | None:
        """As `Engine.unavailable`."""
        return why_no_servers(options, "Redis", find_redis)

    def versions(self) -> Mapping[str, str]:
        """As `Engine.versions`."""
        said = find_redis().version()
        server = next((word.removeprefix("v=") for word in said.split() if word.startswith("v=")), said)
        try:
            parser = version("hiredis")
        except PackageNotFoundError:
            parser = "not installed: redis-py parses in Python"
        return {"redis-server": server, "redis-py": version("redis"), "hiredis": parser}

    def settings(self, mode: Mode) -> Sequence[Setting]:
        """As `Engine.settings`."""
        return _SETTINGS

    def lone_setting(self) -> Setting:
        """As `Engine.lone_setting`: a pipeline holds what came while the last one was under way."""
        return _SETTINGS[0]

    def acknowledgement(self, options: StartOptions) -> str:
        """As `Engine.acknowledgement`."""
        kept = f"master and {options.copies - 1} replicas (WAIT {options.copies - 1})"
        if options.durability is DurabilityClass.SYNC:
            return f"{kept}, each synced (appendfsync always)"
        return f"{kept}, memory and page cache (appendfsync everysec)"

    async def start(self, options: StartOptions) -> RunningRedis:
        """As `Engine.start`."""
        program = find_redis()
        names = [f"r{number}" for number in range(options.copies + options.tolerate_failure)]
        found = free_ports(len(names) + _SENTINELS)
        ports, sentinels = dict(zip(names, found, strict=False)), found[len(names) :]
        servers = ServerProcesses(options.directory)
        for name in names:
            (options.directory / name).mkdir()
            file = options.directory / f"{name}.conf"
            master = None if name == "r0" else ports["r0"]
            file.write_text(_configuration(options, name, ports[name], master))
            servers.declare(
                name, "replica" if master else "master", [str(program.path), str(file)], program.environment, [file]
            )
        for number, port in enumerate(sentinels if options.tolerate_failure else []):
            (options.directory / f"sentinel-{number}").mkdir()
            file = options.directory / f"sentinel-{number}.conf"
            file.write_text(_sentinel_configuration(options, number, port, ports["r0"]))
            command = [str(program.path), str(file), "--sentinel"]
            servers.declare(f"sentinel-{number}", "sentinel", command, program.environment, [file])
        running = RunningRedis(servers, options, ports, sentinels if options.tolerate_failure else [])
        try:
            servers.launch(*names)
            await servers.until(running.follows, "Redis' start")
            # they ask the master for its replicas at once, and then every 10 s
            servers.launch(*servers.names("sentinel"))
            await servers.until(running.watches, "the start of Redis' Sentinels")
        except EngineError:
            await running.stop()
            raise
        return running


def _configuration(options: StartOptions, name: str, port: int, master: int | None) -> str:
    policy = "always" if options.durability is DurabilityClass.SYNC else "everysec"
    follow = "" if master is None else f"replicaof {LOOPBACK} {master}\n"
    return (
        f"bind {LOOPBACK}\nport {port}\ndir {options.directory / name}\n"
        f'appendonly yes\nappendfsync {policy}\nsave ""\nrepl-diskless-sync-delay 0\n{follow}'
    )


def _sentinel_configuration(options: StartOptions, number: int, port: int, master: int) -> str:
    return (
        f"bind {LOOPBACK}\nport {port}\ndir {options.directory / f'sentinel-{number}'}\n"
        f"sentinel monitor {_MASTER} {LOOPBACK} {master} {_SENTINELS // 2 + 1}\n"
        f"sentinel down-after-milliseconds {_MASTER} {_DOWN_AFTER_MS}\n"
        f"sentinel failover-timeout {_MASTER} {10 * _DOWN_AFTER_MS}\n"
    )


ENGINE: Engine = RedisStreams()
