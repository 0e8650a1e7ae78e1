"""The client of a cluster, on asyncio: runs a `ClientSession` over connections, and watches the cluster file."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from client.buffered_writer import BufferedWriter
from client.effects import Connect
from client.links import Links
from client.read.items import GapKind
from client.read.metrics import ReadMetrics
from client.read.settings import ReadSettings
from client.receipt import Receipt
from client.sequencer_state import SequencerState
from client.session import ClientSession
from client.settings import ClientSettings, WriterSettings, split_section
from client.write.frame_reader import StreamFrameReader
from client.write.write_streams import WriteStreams
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.declare import parse_setting, settings_from
from logdevice_py.core.ids import InstanceId, LogId, NodeId, ShardId
from logdevice_py.core.lsn import ESN_MAX, LSN
from logdevice_py.core.machine import TimerWheel
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.runtime.clock import monotonic_us
from logdevice_py.runtime.driver import Driver
from logdevice_py.runtime.settings import RuntimeSettings
from logdevice_py.runtime.transport import Identity, Transport

if TYPE_CHECKING:
    from client.reader import Reader

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
log_ = logging.getLogger("logdevice.client")


def read_cluster_file(path: str | Path) -> ClusterConfig:
    """The cluster that a file describes.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"cannot read {path}: {error}") from None
    return load_cluster(text)


class Client:
    """A client of one cluster. Use it as ``async with Client("cluster.toml") as client``.

    One client serves a whole process: it multiplexes all logs over one connection a node. It belongs to the event loop on which it was
    entered. Logs are named by id or by path (``/team/clicks``).
    """

    def __init__(
        self,
        config: str | Path | ClusterConfig,
        *,
        name: str = "",
        settings: ClientSettings | None = None,
        seed: int | None = None,
    ) -> None:
        """
        Args:
            config: the cluster file, which is then watched for newer versions; or what was read from one.
            name: how nodes call this client in their logs.
            settings: in place of the section ``[settings.client]`` of the file.
            seed: of the client's random choices.

        Raises:
            LogDeviceError: INVALID_CONFIG.
        """
        self._path: Path | None = None
        if isinstance(config, ClusterConfig):
            self._initial = config
        else:
            self._path = Path(config)
            self._initial = read_cluster_file(self._path)
        section = self._initial.settings.get("client", {})
        client_section, self._writer_section, self._read_section = split_section(section)
        try:
            self.settings = settings or settings_from(ClientSettings, client_section)
            settings_from(WriterSettings, self._writer_section)
            self.read_settings = settings_from(ReadSettings, self._read_section)
        except ValueError as error:
            raise LogDeviceError(Status.INVALID_CONFIG, f"settings.client: {error}") from None
        try:
            self._runtime_settings = settings_from(RuntimeSettings, self._initial.settings.get("runtime", {}))
        except ValueError as error:
            raise LogDeviceError(Status.INVALID_CONFIG, f"settings.runtime: {error}") from None
        self.read_metrics = ReadMetrics()
        self.name = name
        self._rng = random.Random(seed)
        self._timers = TimerWheel()
        self._links = Links()
        self.session = ClientSession(
            self._initial,
            self._timers,
            self._rng,
            settings=self.settings,
            read_settings=self.read_settings,
            links=self._links,
        )
        """The machines of this client."""
        self._finder = StreamFrameReader(self.session, self.read_settings, self.read_metrics)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: Driver | None = None
        self._transport: Transport | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._newer = asyncio.Event()
        self._crashed: BaseException | None = None
        self._writers: list[WriteStreams] = []

    # Life

    async def __aenter__(self) -> Client:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Bind to the running loop. Connections are made when they are needed."""
        if self._driver is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._driver = Driver(
            self.session,
            self._links,
            self._timers,
            effects={Connect: self._run_connects},
            on_crash=self._on_crash,
            on_config_version=self._on_config_version,
        )
        identity = Identity(
            cluster_name=self._initial.name,
            cluster_uuid=self._initial.uuid,
            node=NodeId(-1),
            instance=InstanceId(time.time_ns() // 1000),
            config_version=self._initial.version,
            name=self.name,
        )
        self._transport = Transport(
            identity, self._driver, self._address_of, settings=self._runtime_settings, rng=self._rng
        )
        self._driver.attach(self._transport)
        self._driver.start()
        if self._path is not None:
            self._watcher = self._loop.create_task(self._watch(self._path), name="watch the cluster file")

    async def close(self) -> None:
        """Fail what is under way and disconnect. BufferedWriters should be closed before."""
        driver, transport = self._driver, self._transport
        if driver is None or transport is None:
            return
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
            self._watcher = None
        self.session.close()
        driver.stop()
        self._driver = None
        self._crashed = self._crashed or LogDeviceError(Status.SHUTDOWN, "the client was closed", retriable=False)
        await transport.close()

    def _address_of(self, node: NodeId) -> tuple[str, int] | None:
        found = self.session.config.nodes.get(node)
        return None if found is None else (found.host, found.port)

    def _run_connects(self, effects: list[Any]) -> None:
        assert self._transport is not None
        for effect in effects:
            self._transport.connect(effect.node)

    def _on_crash(self, error: BaseException) -> None:
        log_.critical("the client broke one of its own rules and stops", exc_info=error)
        self._crashed = error
        self.session.close()

    # The cluster file

    def _on_config_version(self, version: int) -> None:
        if version > self.session.config.version:
            self._newer.set()

    async def _watch(self, path: Path) -> None:
        """Look at the file now and then, and at once when a node says that there is a newer version."""
        seen: tuple[int, int] | None = None
        while True:
            try:
                async with asyncio.timeout(self.settings.config_poll_us / 1e6):
                    await self._newer.wait()
                await asyncio.sleep(0.1)  # the file may arrive a moment after the nodes' own
            except TimeoutError:
                pass
            self._newer.clear()
            try:
                stat = await asyncio.to_thread(path.stat)
                if (stat.st_mtime_ns, stat.st_size) == seen:
                    continue
                seen = (stat.st_mtime_ns, stat.st_size)
                config = await asyncio.to_thread(read_cluster_file, path)
            except OSError as error:
                log_.warning("%s: %s; the client goes on with version %d", path, error, self.session.config.version)
                continue
            except LogDeviceError as error:
                log_.warning("%s; the client goes on with version %d", error, self.session.config.version)
                continue
            self.set_config(config)

    def set_config(self, config: ClusterConfig) -> None:
        """Use a newer version of the cluster file; an older one, or one of another cluster, is ignored."""
        current = self.session.config
        if config.version <= current.version or config.uuid != current.uuid:
            return
        log_.info("cluster file of version %d is in use", config.version)
        self.session.set_config(config, monotonic_us())
        if self._transport is not None:
            self._transport.identity.config_version = config.version
        self.wake()

    @property
    def config(self) -> ClusterConfig:
        """The cluster file in use."""
        return self.session.config

    # What writers and readers of this client use

    def future(self) -> asyncio.Future[Any]:
        """A future of the client's loop."""
        if self._loop is None or self._crashed is not None:
            self._refuse()
        assert self._loop is not None
        return self._loop.create_future()

    def _refuse(self) -> None:
        if isinstance(self._crashed, LogDeviceError):
            raise self._crashed
        if self._crashed is not None:
            raise LogDeviceError(Status.INTERNAL, f"the client stopped: {self._crashed!r}") from self._crashed
        raise LogDeviceError(Status.SHUTDOWN, 'the client is not open: use "async with Client(...) as client"')

    def now(self) -> Micros:
        """The monotonic clock of this client."""
        return monotonic_us()

    def wake(self) -> None:
        """Run the end of a turn soon."""
        if self._driver is not None:
            self._driver.event(_nothing)

    def log_id(self, log: int | str) -> LogId:
        """The id of a log named by id or path.

        Raises:
            LogDeviceError: NOTFOUND, INVALID_PARAM.
        """
        return self.session.config.logs.find(log)

    def closed(self, streams: WriteStreams) -> None:
        """A writer is closed."""
        self.session.remove_writer(streams)

    # Operations

    def append(self, log: int | str, payload: bytes, *, timeout: float | None = None) -> Awaitable[Receipt]:
        """Append one record; awaitable for its receipt.

        Appends to one log leave in call order. Those under way at the same time get positions in that order unless one of them has to be
        tried again; await one before the next, or use `buffered_writer`, where order matters.

        Args:
            log: id or path.
            payload: the record.
            timeout: seconds, in place of the client's append timeout.

        Raises:
            LogDeviceError: NOTFOUND, TOOBIG, INVALID_PARAM at once; others when awaited. `maybe_applied` tells whether the record may be
                in the log although no receipt came.
        """
        future = self.future()
        if type(payload) is not bytes:
            raise LogDeviceError(Status.INVALID_PARAM, f"a record is bytes, not {type(payload).__name__}")
        timeout_us = None if timeout is None else round(timeout * 1e6)
        self.session.append(self.log_id(log), payload, future, monotonic_us(), timeout_us)
        self.wake()
        return future

    def buffered_writer(self, **options: Any) -> BufferedWriter:
        """A writer of batches: the fast way to append, without duplicates and in order.

        Args:
            options: those of `WriterSettings`, as in the cluster file: ``compression="zstd"``, ``time_trigger="10ms"`` (or `time_trigger_us`),
                ``size_trigger="64KiB"``, ``memory="64MiB"``, ``give_up="2min"``.

        Raises:
            LogDeviceError: INVALID_PARAM.
        """
        fields = WriterSettings.__dataclass_fields__
        chosen = {name: parse_setting(fields[name], value) for name, value in self._writer_section.items()}
        for option, value in options.items():
            name = next(
                (name for name in (option, f"{option}_us", f"{option}_bytes", f"{option}_bytes_max") if name in fields),
                None,
            )
            if name is None:
                raise LogDeviceError(
                    Status.INVALID_PARAM, f"no option {option!r}; there are {', '.join(sorted(fields))}"
                )
            try:
                chosen[name] = (
                    parse_setting(fields[name], value) if isinstance(value, str) else _number(fields[name], value)
                )
            except ValueError as error:
                raise LogDeviceError(Status.INVALID_PARAM, str(error)) from None
        self.future().cancel()
        return BufferedWriter(self, self.session.writer(WriterSettings(**chosen), self._finder))

    def reader(self, log: int | str, start: int = LSN.OLDEST, until: int = LSN.MAX, **options: Any) -> Reader:
        """A reader of [start, until]; see `client.reader.Reader`."""
        from client.reader import Reader

        return Reader(self, self.log_id(log), start, until, **options)

    async def tail_lsn(self, log: int | str, *, timeout: float | None = None) -> LSN:
        """The last LSN that can be read: nothing acknowledged before this call lies above it. 0 when nothing was ever written.

        Raises:
            LogDeviceError: AGAIN or another retriable status when the log could not say in time.
        """
        future = self.future()
        self.session.tail_lsn(self.log_id(log), future, monotonic_us(), _us(timeout))
        self.wake()
        tail = await future
        assert isinstance(tail, LSN)
        return tail

    async def sequencer(self, log: int | str, *, timeout: float | None = None) -> SequencerState:
        """Which node sequences the log, and how far it is. Activates the log when nobody sequences it.

        Raises:
            LogDeviceError: a retriable status when no sequencer could be asked in time.
        """
        future = self.future()
        self.session.sequencer(self.log_id(log), future, monotonic_us(), _us(timeout))
        self.wake()
        state = await future
        assert isinstance(state, SequencerState)
        return state

    async def find_time(self, log: int | str, when: datetime | int) -> LSN:
        """The first LSN whose entry is not older than `when`; one behind the tail when there is none.

        Args:
            log: id or path.
            when: an aware datetime, or microseconds since the Unix epoch, UTC.

        Raises:
            LogDeviceError: INVALID_PARAM for a naive datetime; as `tail_lsn`.
        """
        from client.reader import find_time

        return await find_time(self, self.log_id(log), timestamp_of(when))

    async def trim(self, log: int | str, lsn: int, *, timeout: float | None = None) -> None:
        """Give up everything up to `lsn`, inclusive; done when every shard has made it durable.

        Raises:
            LogDeviceError: TOOBIG (above the tail), PARTIAL (some shards did not answer: trim again, it is harmless).
        """
        log_id = self.log_id(log)
        deadline = None if timeout is None else monotonic_us() + round(timeout * 1e6)
        tail = await self.tail_lsn(log_id, timeout=timeout)
        if lsn > tail:
            raise LogDeviceError(Status.TOOBIG, f"{LSN(lsn)} lies above the tail of the log")
        try:
            async with asyncio.timeout(None if deadline is None else max(0, deadline - monotonic_us()) / 1e6):
                lsn = await self._beside_bridge(log_id, lsn, tail)
        except TimeoutError:
            raise LogDeviceError(Status.TIMEDOUT, f"{LSN(lsn)} could not be read", maybe_applied=False) from None
        if lsn <= 0:
            return
        left = None if deadline is None else max(0, deadline - monotonic_us())
        shards = await self._shards_of(log_id, left)
        future = self.future()
        self.session.trim(log_id, lsn, shards, future, monotonic_us(), left)
        self.wake()
        await future

    async def _beside_bridge(self, log: LogId, lsn: int, tail: LSN) -> int:
        """Where to trim so that the end of an epoch stays explained: the rest of an epoch whose bridge is gone would look lost.

        From a bridge on, the whole rest of the epoch goes with it, or the bridge stays when it is the tail.
        """
        if lsn & ESN_MAX == 0:
            return lsn - 1
        async with self.reader(log, lsn, lsn) as reader:
            bridged = any(gap.kind is GapKind.BRIDGE for gap in (await reader.read()).gaps)
        if not bridged:
            return lsn
        return lsn | ESN_MAX if LSN(lsn).epoch < tail.epoch else lsn - 1

    async def _shards_of(self, log: LogId, left: int | None) -> list[ShardId]:
        """Every shard that an epoch of the log ever listed and that the cluster file still has."""
        future = self.future()

        def known(history: tuple[EpochInterval, ...], now: Micros) -> None:
            if not future.done():
                future.set_result({shard for interval in history for shard in interval.shards})

        request = self.session.read_history(log, monotonic_us(), known)
        self.wake()
        try:
            async with asyncio.timeout((self.settings.request_timeout_us if left is None else left) / 1e6):
                shards = await future
        except TimeoutError:
            raise LogDeviceError(Status.TIMEDOUT, "the metadata log did not answer", maybe_applied=False) from None
        finally:
            request.cancel()
        present = set(self.session.config.storage_shards())
        return sorted(shards & present)


def timestamp_of(when: datetime | int) -> Timestamp:
    """Microseconds since the Unix epoch of a point in time.

    Raises:
        LogDeviceError: INVALID_PARAM for a naive datetime: it names no point in time.
    """
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise LogDeviceError(Status.INVALID_PARAM, f"{when} has no time zone: give an aware datetime")
        return Timestamp((when - _UNIX_EPOCH) // timedelta(microseconds=1))
    return Timestamp(when)


def _nothing(now: Micros) -> None:
    """An event that only ends in a turn."""


def _us(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


def _number(field: Any, value: Any) -> Any:
    """An option given as a number, in the unit of its setting."""
    if type(value) is not int:
        raise ValueError(f"{field.name}: write an integer, or a string with a unit")
    lo, hi = field.metadata["lo"], field.metadata["hi"]
    if (lo is not None and value < lo) or (hi is not None and value > hi):
        raise ValueError(f"{field.name}: {value} is out of range")
    return value
