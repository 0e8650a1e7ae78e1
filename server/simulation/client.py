"""Client processes of a simulated cluster, and readers that hand over what they get."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from client.effects import Connect
from client.links import Links
from client.read.batch import RecordBatch
from client.read.metrics import ReadMetrics
from client.read.read_set import ReadRequest
from client.session import ClientSession
from client.session_stream import SessionStream
from client.settings import WriterSettings
from client.write.frame_reader import StreamFrameReader
from client.write.write_streams import WriteStreams
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import InstanceId, LogId, NodeId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.machine import TimerQueue
from logdevice_py.core.units import Micros
from logdevice_py.shell.introduction import Identity
from logdevice_py.simulation.clock import SimClock
from logdevice_py.simulation.process import Process
from server.simulation.world import SimWorld


class SimPromise:
    """A promise that calls back."""

    __slots__ = ("_done", "_then", "error", "result")

    def __init__(self, then: Callable[[SimPromise], None]) -> None:
        self.result: Any = None
        self.error: BaseException | None = None
        self._then = then
        self._done = False

    def done(self) -> bool:
        """It has its outcome."""
        return self._done

    def set_result(self, result: Any, /) -> None:
        """Keep it."""
        assert not self._done
        self._done, self.result = True, result
        self._then(self)

    def set_exception(self, exception: BaseException, /) -> None:
        """Break it."""
        assert not self._done
        self._done, self.error = True, exception
        self._then(self)

    def exception(self) -> BaseException | None:
        """Why it was broken."""
        return self.error


def client_identity(config: ClusterConfig, name: str) -> Identity:
    """What a simulated client says of itself."""
    return Identity(config.name, config.uuid, NodeId(-1), InstanceId(0), config.version, name)


class SimClient:
    """A client process."""

    def __init__(self, cluster: SimWorld, name: str, address: int) -> None:
        self.name = name
        self.address = address
        self.timers = TimerQueue()
        self._scheduler = cluster.scheduler
        rng = random.Random(cluster.rng.getrandbits(64))
        clock = SimClock(cluster.scheduler, offset=cluster.rng.randrange(1_000_000_000))
        links = Links()
        self.session = ClientSession(
            cluster.config,
            self.timers,
            rng,
            settings=cluster.client_settings,
            read_settings=cluster.read_settings,
            links=links,
            location=cluster.client_location(address),
        )
        self.read_settings = cluster.read_settings
        self.read_metrics = ReadMetrics()
        self.finder = StreamFrameReader(self.session, self.read_settings, self.read_metrics)

        def run_connects(effects: list[Any]) -> None:
            for effect in effects:
                self.process.connect(effect.node)

        cluster.certify_client(address, cluster.client_principal)
        self.process = Process(
            name,
            address,
            self.session,
            links,
            self.timers,
            identity=client_identity(cluster.config, name),
            is_member=lambda node: node in self.session.config.nodes,
            effects={Connect: run_connects},
            network=cluster.network,
            clock=clock,
            rng=rng,
            trace=cluster.trace,
            turn_max=cluster.turn_max,
            security=cluster.security,
            principals=self.session.routes.principals,
            is_alive=self.session.view.is_alive,
        )

    def event(self, handler: Callable[[Micros], None]) -> None:
        """Something that the application does."""
        self.process.event(handler)

    def take_config(self, config: ClusterConfig) -> None:
        """A newer cluster file."""
        self.process.identity.config_version = config.version
        self.event(lambda now: self.session.set_config(config, now))

    def later(self, handler: Callable[[Micros], None]) -> None:
        """Something that the application does when what runs at this moment has ended."""
        self._scheduler.after(0, lambda: self.process.event(handler))

    def writer(self, settings: WriterSettings) -> WriteStreams:
        """The streams of a BufferedWriter; call them within `event`."""
        return self.session.writer(settings, self.finder)

    def kill(self) -> None:
        """The application's process dies."""
        self.process.kill(machine=False)


class SimReader:
    """Reads a range of a log and hands over what it gets, as `client.reader.Reader` does."""

    def __init__(
        self,
        client: SimClient,
        log: LogId,
        first: int,
        until: int,
        on_batch: Callable[[RecordBatch], None],
        *,
        single_copy: bool,
        hedged: bool = False,
        records_max: int = 1000,
    ) -> None:
        self.client = client
        self.log = log
        self.first = first
        self._on_batch = on_batch
        self._records_max = records_max
        self._taking = False
        session = client.session
        request = ReadRequest(
            log=log,
            stream=next(session.ids),
            first=Lsn(first),
            until=Lsn(until),
            single_copy=single_copy,
            hedged=hedged,
        )
        self._reading = SessionStream(
            session,
            request,
            settings=client.read_settings,
            metrics=client.read_metrics,
            on_ready=self._on_ready,
        )
        self.stream = self._reading.stream

    @property
    def finished(self) -> bool:
        """Everything up to `until` was handed over."""
        return self.stream.finished

    def start(self, now: Micros) -> None:
        """Begin; call it within `SimClient.event`."""
        self._reading.start(now)

    def stop(self, now: Micros) -> None:
        """Stop waiting; call it within `SimClient.event`."""
        self._reading.stop()

    def _on_ready(self) -> None:
        if not self._taking and not self.stream.finished:
            self._taking = True
            # the stream calls from within one of its events
            self.client.later(self._take)

    def _take(self, now: Micros) -> None:
        self._taking = False
        while self.stream.ready and not self.stream.finished:
            self._on_batch(self.stream.take(self._records_max, now))
