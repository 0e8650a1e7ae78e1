"""The pure root of a client: its view of the cluster, and the machines that its operations are made of.

The shell hands it messages, connections that came and went, and the ends of turns; it runs what the session puts into `links`. Readers
live beside it: they take `links`, `timers`, `rng`, `ids` and `routes` from here, and the session hands them their messages.
"""

from __future__ import annotations

from itertools import count
from typing import Any, Final, Protocol

from client.append.append_request import AppendRequests
from client.append.open_appends import OpenAppends
from client.append.router import Routes
from client.append.seq_state_request import NoAnswer, SeqStateRequests
from client.history_request import HistoryKnown, HistoryRequest
from client.inquiries import Inquiries
from client.known_cluster import KnownCluster
from client.links import Links
from client.look_up.answers import LogTail
from client.look_up.requests import LookUps
from client.look_up.survey import SurveyContext
from client.metadata_repair import MetadataRepair
from client.metrics import ClientMetrics, WriterMetrics
from client.promise import Promise, break_, keep
from client.read.read_stream import ReadStream
from client.read.release_lookup import ReleaseLookup, StandingStream
from client.read.settings import ReadSettings
from client.read.shard_statuses import ShardStatuses
from client.sequencer_state import SequencerState
from client.settings import ClientSettings, WriterSettings
from client.trim_request import TrimRequest
from client.write.context import StreamContext
from client.write.finder import FrameFinder
from client.write.write_streams import WriteStreams
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import LogId, NodeId, PeerId, ShardId, format_shard
from logdevice_py.core.lsn import LSN, LSN_MAX, Lsn
from logdevice_py.core.machine import Rng, TimerQueue
from logdevice_py.core.record_keys import KEY_OVERHEAD, KEYS_HEAD
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import (
    Appended,
    ClusterState,
    NodeState,
    Records,
    SeqState,
    SeqStateFlags,
    ShardGap,
    ShardStatus,
    Started,
)
from logdevice_py.protocol.requests import Requests
from logdevice_py.protocol.routing import handlers_of, handles

_TAIL = int(SeqStateFlags.TAIL)


class StreamMessages(StandingStream, Protocol):
    """A read stream, as the session sees it."""

    def on_started(self, message: Started, now: Micros) -> None: ...

    def on_records(self, message: Records, now: Micros) -> None: ...

    def on_gap(self, message: ShardGap, now: Micros) -> None: ...

    def on_turn_end(self, now: Micros) -> None: ...

    def on_shard_statuses(self, statuses: ShardStatuses, now: Micros) -> None: ...

    def on_config(self, config: ClusterConfig, now: Micros) -> None: ...

    def on_peer_up(self, peer: PeerId, now: Micros) -> None: ...

    def on_peer_down(self, peer: PeerId, now: Micros) -> None: ...

    def stop(self) -> None: ...


class NodeStateListener(Protocol):
    """Told when the view of the cluster changes."""

    def __call__(self, now: Micros) -> None: ...


class ClientSession:
    """One client of one cluster."""

    def __init__(
        self,
        config: ClusterConfig,
        timers: TimerQueue,
        rng: Rng,
        *,
        settings: ClientSettings | None = None,
        read_settings: ReadSettings | None = None,
        links: Links | None = None,
        requests: Requests | None = None,
    ) -> None:
        """
        Args:
            requests: those of the process, whose root tells them of lost peers; None: the session is the root.
        """
        self.settings = settings or ClientSettings()
        self.links = links or Links()
        """The outbox: the shell takes its effects."""
        self.timers = timers
        self.rng = rng
        self._is_root = requests is None
        self.requests = Requests(count(1), timers) if requests is None else requests
        """Those under way."""
        self.ids = self.requests.ids
        """Of frames and read streams."""
        self.metrics = ClientMetrics()
        self.view = KnownCluster(self.settings)
        self.routes = Routes(config, self.view, self.metrics)
        self.inquiries = Inquiries(self.links, self.requests)
        self.questions = SeqStateRequests(
            self.routes, self.links, timers, rng, self.requests, self.settings, self.inquiries
        )
        self.metadata_repair = MetadataRepair(self.questions, self.settings)
        self.appends = AppendRequests(
            self.routes,
            self.links,
            timers,
            rng,
            self.requests,
            settings=self.settings,
            metrics=self.metrics,
            inquiries=self.inquiries,
        )
        self._frames: dict[int, Any] = {}
        self._writers: list[WriteStreams] = []
        self.look_ups = LookUps(SurveyContext(self.links, timers, rng, self.requests, self.settings))
        self._streams: dict[int, StreamMessages] = {}
        self._due: dict[int, None] = {}
        """Streams of which the turn has not ended yet."""
        self._histories: list[HistoryRequest] = []
        self._listeners: list[NodeStateListener] = []
        self.shard_statuses = ShardStatuses()
        self._release_lookup = ReleaseLookup(self._streams, self._wake_log, timers, read_settings or ReadSettings())
        self._routes: Final = handlers_of(self, self.requests)

    @property
    def config(self) -> ClusterConfig:
        """The newest cluster file."""
        return self.routes.config

    def set_config(self, config: ClusterConfig, now: Micros) -> None:
        """Take a cluster file; an older version than the one in use is ignored."""
        if config.version >= self.routes.config.version:
            self.routes.set_config(config)
            for writer in self._writers:
                writer.on_config(now)
            for stream in list(self._streams.values()):
                stream.on_config(config, now)
            for request in list(self._histories):
                request.on_config(now)
            self._tell(now)

    # Events of the shell

    def on_message(self, peer: PeerId, message: Any, now: Micros) -> None:
        """Hand a message to the machine that awaits it; others are nobody's business here."""
        handler = self._routes.get(type(message))
        if handler is not None:
            handler(peer, message, now)

    def on_turn_end(self, now: Micros) -> None:
        """Build the frames of the turn."""
        self.appends.on_turn_end(now)
        for writer in self._writers:
            writer.on_turn_end(now)
        if self._due:
            due, self._due = self._due, {}
            for stream_id in due:
                stream = self._streams.get(stream_id)
                if stream is not None:
                    stream.on_turn_end(now)

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """A connection to a node is established."""
        changes = self.view.changes
        self.view.on_peer_up(peer)
        self.links.on_peer_up(peer)
        for stream in list(self._streams.values()):
            stream.on_peer_up(peer, now)
        if self.view.changes != changes:
            self._tell(now)

    def on_peer_down(self, peer: PeerId, now: Micros, *, refused: bool) -> None:
        """A connection broke, or could not be made.

        Args:
            peer: the node.
            now: the time.
            refused: nobody listens there.
        """
        was_up = self.links.on_peer_down(peer)
        self.shard_statuses.forget_begun(peer)
        if refused or not was_up:
            self.view.on_refused(peer, now)
            self.timers.at(now + self.settings.refusal_us, self._expire_refusals)
        changes = self.view.changes
        dead = self.view.on_peer_down(peer)
        changed = self.view.changes != changes
        if self._is_root:
            # Before the others: what they ask because of this loss is not lost with it.
            self.requests.on_peer_down(peer, now)
        self.appends.on_peer_down(peer, was_up, now)
        for writer in self._writers:
            writer.on_peer_down(peer, was_up, now)
        for stream in list(self._streams.values()):
            stream.on_peer_down(peer, now)
        self._on_dead(dead, now)
        if refused or not was_up or changed:
            self._tell(now)

    def _on_dead(self, nodes: list[NodeId], now: Micros) -> None:
        for node in nodes:
            self.appends.on_node_dead(node, now)
            for writer in self._writers:
                writer.on_node_dead(node, now)

    def _expire_refusals(self, now: Micros) -> None:
        changes = self.view.changes
        self.view.expire(now)
        if self.view.changes != changes:
            self._tell(now)

    def _tell(self, now: Micros) -> None:
        for listener in list(self._listeners):
            listener(now)

    # Messages

    @handles(Appended)
    def on_appended(self, peer: PeerId, message: Appended, now: Micros) -> None:
        """The outcome of a frame."""
        streamed = self._frames.get(message.request_id)
        if streamed is not None:
            streamed[0].on_appended(peer, streamed[1], message, now)
        else:
            self.appends.on_appended(peer, message, now)

    @handles(ClusterState)
    def on_cluster_state(self, peer: PeerId, message: ClusterState, now: Micros) -> None:
        """A node tells of all nodes."""
        self.metrics.cluster_states_received += 1
        changes = self.view.changes
        self._on_dead(self.view.on_cluster_state(peer, message), now)
        if self.view.changes != changes:
            self._tell(now)

    @handles(Started)
    def on_started(self, peer: PeerId, message: Started, now: Micros) -> None:
        """A shard opened a read stream, or refused it."""
        stream = self._streams.get(message.stream)
        if stream is not None:
            stream.on_started(message, now)

    @handles(Records)
    def on_records(self, peer: PeerId, message: Records, now: Micros) -> None:
        """Entries of a read stream."""
        stream = self._streams.get(message.stream)
        if stream is not None:
            stream.on_records(message, now)

    @handles(ShardGap)
    def on_gap(self, peer: PeerId, message: ShardGap, now: Micros) -> None:
        """Where a shard has nothing of a read stream."""
        stream = self._streams.get(message.stream)
        if stream is not None:
            stream.on_gap(message, now)

    @handles(ShardStatus)
    def on_shard_status(self, peer: PeerId, message: ShardStatus, now: Micros) -> None:
        """Shards whose silence does not prove what it seems to."""
        if self.shard_statuses.take(peer, message):
            for stream in list(self._streams.values()):
                stream.on_shard_statuses(self.shard_statuses, now)

    # Readers

    def add_stream(self, stream_id: int, stream: StreamMessages, now: Micros) -> None:
        """From here on a read stream gets its messages. Its id comes from `ids`."""
        self._streams[stream_id] = stream
        self._release_lookup.watch(now)
        stream.on_shard_statuses(self.shard_statuses, Micros(0))

    def remove_stream(self, stream_id: int) -> None:
        """The stream is closed; messages under way to it are dropped."""
        self._streams.pop(stream_id, None)

    def request_turn_end(self, stream_id: int) -> None:
        """Call `on_turn_end` of this stream when the turn ends. Others are not looked at: there may be thousands that wait for records."""
        self._due[stream_id] = None

    def read_streams(self) -> list[ReadStream]:
        """The read streams that are open, in the order in which they were opened."""
        return [stream for stream in self._streams.values() if isinstance(stream, ReadStream)]

    def _wake_log(self, log: LogId, now: Micros) -> None:
        """Have the log sequenced by somebody; what the answer is does not matter."""
        deadline = now + self.settings.request_timeout_us
        self.questions.ask(
            log,
            now,
            lambda answer, at: None,
            flags=self.metadata_repair.flags(log),
            min_epoch=self.routes.epoch(log),
            deadline=deadline,
        )

    def add_listener(self, listener: NodeStateListener) -> None:
        """Call it whenever the view of the cluster or the cluster file changes."""
        self._listeners.append(listener)

    def remove_listener(self, listener: NodeStateListener) -> None:
        """Do not call it any more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def read_history(self, log: LogId, now: Micros, done: HistoryKnown) -> HistoryRequest:
        """Read the nodesets of a log from its metadata log; `done` gets them later, once. () when the log was never written, or none can
        be read."""
        request = HistoryRequest(self, log, done)
        self._histories.append(request)
        request.start(now)
        return request

    def remove_history(self, request: HistoryRequest) -> None:
        """It was answered, or nobody waits for it."""
        if request in self._histories:
            self._histories.remove(request)

    # Operations

    def append(
        self,
        log: LogId,
        payload: bytes,
        promise: Promise,
        timeout_us: int | None = None,
        key: bytes | None = None,
        *,
        synced: bool = False,
    ) -> OpenAppends:
        """Append one record; the promise gets its `Receipt`. Its time counts from the end of the turn.

        Args:
            log, payload, promise, timeout_us, key, synced: as `AppendRequests.append`; None: the client's append timeout, no key.
        Returns:
            what others of the same turn and timeout may join.
        Raises:
            LogDeviceError: NOTFOUND, TOOBIG; nothing was sent.
        """
        attributes = self.routes.config.log(log)
        if attributes is None:
            raise LogDeviceError(Status.NOTFOUND, f"log {log} is not in the cluster file")
        size = len(payload) + (0 if key is None else len(key) + KEYS_HEAD + KEY_OVERHEAD)
        if size > attributes.max_payload_bytes:
            raise LogDeviceError(Status.TOOBIG, f"{size} bytes; the log takes {attributes.max_payload_bytes}")
        timeout = self.settings.append_timeout_us if timeout_us is None else timeout_us
        return self.appends.append(log, payload, promise, attributes.max_payload_bytes, timeout, key, synced=synced)

    def tail_lsn(self, log: LogId, promise: Promise, now: Micros, timeout_us: int | None = None) -> None:
        """The last LSN that can be read at present, `LSN`: nothing acknowledged before this call lies above it."""
        timeout = self.settings.request_timeout_us if timeout_us is None else timeout_us

        def answered(answer: SeqState | NoAnswer, at: Micros) -> None:
            if isinstance(answer, NoAnswer):
                break_(promise, _unanswered(answer, f"tail of log {log}"))
            else:
                keep(promise, LSN(answer.last_released))

        self.questions.ask(log, now, answered, flags=_TAIL, min_epoch=self.routes.epoch(log), deadline=now + timeout)

    def tail_record(self, log: LogId, promise: Promise, now: Micros, timeout_us: int | None = None) -> None:
        """Where the log ends, `LogTail`."""
        timeout = self.settings.request_timeout_us if timeout_us is None else timeout_us

        def answered(answer: SeqState | NoAnswer, at: Micros) -> None:
            if isinstance(answer, NoAnswer):
                break_(promise, _unanswered(answer, f"tail of log {log}"))
            else:
                known = answer.tail_lsn > 0
                keep(
                    promise,
                    LogTail(
                        LSN(answer.last_released),
                        LSN(answer.tail_lsn) if known else None,
                        answer.tail_timestamp if known else None,
                    ),
                )

        self.questions.ask(log, now, answered, flags=_TAIL, min_epoch=self.routes.epoch(log), deadline=now + timeout)

    def sequencer(self, log: LogId, promise: Promise, now: Micros, timeout_us: int | None = None) -> None:
        """Who sequences the log and how far it is, `SequencerState`; activates the log when nobody sequences it."""
        timeout = self.settings.request_timeout_us if timeout_us is None else timeout_us

        def answered(answer: SeqState | NoAnswer, at: Micros) -> None:
            if isinstance(answer, NoAnswer):
                break_(promise, _unanswered(answer, f"sequencer of log {log}"))
            else:
                keep(
                    promise,
                    SequencerState(request.node, answer.epoch, LSN(answer.last_released), LSN(answer.next_lsn)),
                )

        request = self.questions.ask(log, now, answered, min_epoch=self.routes.epoch(log), deadline=now + timeout)

    def trim(
        self, log: LogId, lsn: int, shards: list[ShardId], promise: Promise, now: Micros, timeout_us: int | None = None
    ) -> None:
        """Trim everything up to `lsn`; the promise is kept when all shards have made it durable.

        It is broken with TOOBIG when the LSN lies above the tail, PARTIAL when some shards did not answer (trim again, it is harmless).
        """
        if not 0 < lsn < LSN_MAX:
            raise LogDeviceError(Status.INVALID_PARAM, f"LSN {lsn} is out of range")
        until = now + (self.settings.request_timeout_us if timeout_us is None else timeout_us)

        def done(status: Status, missing: list[ShardId], at: Micros) -> None:
            if status is Status.OK:
                keep(promise, None)
            else:
                text = f"not trimmed at {', '.join(map(format_shard, missing))}: {request.explain(at)}"
                break_(promise, LogDeviceError(status, text, retriable=True, maybe_applied=True))

        request = TrimRequest(
            log,
            Lsn(lsn),
            shards,
            until,
            done,
            links=self.links,
            timers=self.timers,
            rng=self.rng,
            requests=self.requests,
            settings=self.settings,
        )
        request.start(now)

    def writer(self, settings: WriterSettings, finder: FrameFinder) -> WriteStreams:
        """The streams of a further BufferedWriter."""
        context = StreamContext(
            routes=self.routes,
            links=self.links,
            timers=self.timers,
            rng=self.rng,
            ids=self.ids,
            questions=self.questions,
            finder=finder,
            frames=self._frames,
            probe=self.appends.probe,
            settings=self.settings,
        )
        writer = WriteStreams(context, settings, WriterMetrics())
        self._writers.append(writer)
        return writer

    def remove_writer(self, writer: WriteStreams) -> None:
        """The writer is closed."""
        if writer in self._writers:
            self._writers.remove(writer)

    def close(self) -> None:
        """Fail everything that is under way."""
        for writer in self._writers:
            writer.close()
        for stream in list(self._streams.values()):
            stream.stop()
        self.appends.close(LogDeviceError(Status.SHUTDOWN, "the client was closed"))

    def refuse(self, error: LogDeviceError) -> None:
        """No node serves this client: fail the appends that are under way."""
        self.appends.close(error)
        for writer in self._writers:
            writer.refuse(error)

    def alive_nodes(self) -> list[NodeId]:
        """Nodes of which a node said that they take part, or all while none has said anything."""
        return [node for node in sorted(self.config.nodes) if self.view.state(node) is NodeState.ALIVE]


def _unanswered(answer: NoAnswer, what: str) -> LogDeviceError:
    return LogDeviceError(answer.status, f"{what}: {answer.why}", maybe_applied=False)
