"""The pure root of a client: its view of the cluster, and the machines that its operations are made of.

The shell hands it messages, connections that came and went, and the ends of turns; it runs what the session puts into `links`. Readers
live beside it: they take `links`, `timers`, `rng`, `ids` and `routes` from here, and the session hands them their messages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from typing import Any, Final

from client.append.append_request import AppendRequests
from client.append.many import check_atomic
from client.append.open_appends import OpenAppends
from client.append.router import Routes
from client.append.seq_state_request import SeqStateRequests
from client.append.sequencer_questions import SequencerQuestions
from client.configuration_request import ConfigurationRequests
from client.guards import AppendGuard
from client.history_request import OpenHistories
from client.inquiries import Inquiries
from client.known_cluster import KnownCluster
from client.links import Links
from client.look_up.requests import LookUps
from client.look_up.survey import SurveyContext
from client.metadata_repair import MetadataRepair
from client.metrics import ClientMetrics, WriterMetrics
from client.promise import Promise, break_, keep
from client.read.open_streams import OpenStreams, hedge_context
from client.read.settings import ReadSettings
from client.settings import ClientSettings, WriterSettings
from client.trim_request import TrimRequest
from client.turn_end import TurnEnd
from client.write.context import StreamContext
from client.write.finder import FrameFinder
from client.write.open_writers import OpenWriters
from client.write.write_streams import WriteStreams
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.config.run_time_logs import NO_RUN_TIME_LOGS
from logdevice_py.core.batch import BATCH_OVERHEAD, BYTES_PER_RECORD
from logdevice_py.core.ids import LogId, NodeId, PeerId, ShardId, format_shard
from logdevice_py.core.lsn import LSN_MAX, Lsn
from logdevice_py.core.machine import Rng, TimerQueue
from logdevice_py.core.principal import Permission
from logdevice_py.core.record_keys import KEY_OVERHEAD, KEYS_HEAD
from logdevice_py.core.sealed_batch import SEALED_OVERHEAD, Seal
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import (
    Appended,
    ClusterState,
    NodeState,
)
from logdevice_py.protocol.requests import Requests
from logdevice_py.protocol.routing import handlers_of, handles

TurnHandler = Callable[[Micros], bool]
"""Looks at what the session brought in a turn; returns whether the session has something to do again."""


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
        location: Location | None = None,
    ) -> None:
        """
        Args:
            requests: those of the process, whose root tells them of lost peers; None: the session is the root.
            location: where the client stands, for readers that want the nearest copies; None: nobody knows.
        """
        self.location = location
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
        self.view.use_config(config)
        self.routes = Routes(config, self.view, self.metrics)
        self.inquiries = Inquiries(self.links, self.requests)
        self.on_newer_config: Callable[[int], None] = lambda version: None
        """Told of a version that a node has, when it is later than the one in use."""
        self.configurations = ConfigurationRequests(self.links, self.requests, self.view, timers, rng)
        self.questions = SeqStateRequests(
            self.routes, self.links, timers, rng, self.requests, self.settings, self.inquiries
        )
        self.sequencers = SequencerQuestions(self.questions, self.routes, self.settings)
        self.metadata_repair = MetadataRepair(self.questions, self.settings)
        self.histories = OpenHistories(self)
        self.turn_end = TurnEnd()
        """Whether `on_turn_end` has anything to do."""
        self.appends = AppendRequests(
            self.routes,
            self.links,
            timers,
            rng,
            self.requests,
            settings=self.settings,
            metrics=self.metrics,
            inquiries=self.inquiries,
            turn_end=self.turn_end,
        )
        self.writers = OpenWriters(self.turn_end)
        self.look_ups = LookUps(SurveyContext(self.links, timers, rng, self.requests, self.settings))
        read_settings = read_settings or ReadSettings()
        self.streams = OpenStreams(self._wake_log, timers, read_settings, self.turn_end)
        self.hedges = hedge_context(read_settings, self.ids, self.streams)
        """What hedged read streams have in common."""
        self._turn_handlers: dict[TurnHandler, None] = {}
        """Of this turn."""
        self._routes: Final = handlers_of(self, self.requests, self.streams)

    @property
    def config(self) -> ClusterConfig:
        """The newest cluster file."""
        return self.routes.config

    def set_config(self, config: ClusterConfig, now: Micros) -> None:
        """Take a cluster file; an older version than the one in use is ignored."""
        if config.version >= self.routes.config.version:
            if config.run_time_logs is NO_RUN_TIME_LOGS:
                config = replace(config, run_time_logs=self.routes.config.run_time_logs)
            self.routes.set_config(config)
            self.view.use_config(config)
            self.writers.on_config(now)
            self.streams.on_config(config, now)
            self.histories.on_config(now)
            self.view.tell(now)

    # Events of the shell

    def on_message(self, peer: PeerId, message: Any, now: Micros) -> None:
        """Hand a message to the machine that awaits it; others are nobody's business here."""
        handler = self._routes.get(type(message))
        if handler is not None:
            handler(peer, message, now)

    def on_turn_end(self, now: Micros) -> None:
        """Build the frames of the turn, then call who waits for its end. Needed only when `turn_end.wanted`; writers that are open want every one."""
        self.turn_end.wanted = bool(self.writers.open)
        if self.appends.dirty:
            self.appends.on_turn_end(now)
        for writer in self.writers.open:
            writer.on_turn_end(now)
        if self.streams.due:
            self.streams.on_turn_end(now)
        if self._turn_handlers:
            self._call_handlers(now)

    def handle_turn_end(self, handler: TurnHandler) -> None:
        """Call `handler` once when the turn ends; at the end of a turn, when the next one does."""
        self._turn_handlers[handler] = None
        self.turn_end.wanted = True

    def _call_handlers(self, now: Micros) -> None:
        handlers, self._turn_handlers = self._turn_handlers, {}
        again = False
        for handler in handlers:
            again = handler(now) or again
        if again:
            self.appends.on_turn_end(now)
            self.streams.on_turn_end(now)

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """A connection to a node is established."""
        self.view.on_peer_up(peer)
        self.links.on_peer_up(peer)
        self.configurations.on_peer_up(peer, now)
        self.streams.on_peer_up(peer, now)
        self.view.tell_changes(now)

    def on_peer_down(self, peer: PeerId, now: Micros, *, refused: bool) -> None:
        """A connection broke, or could not be made.

        Args:
            peer: the node.
            now: the time.
            refused: nobody listens there.
        """
        was_up = self.links.on_peer_down(peer)
        if refused or not was_up:
            self.view.on_refused(peer, now)
            self.timers.at(now + self.settings.refusal_us, self._expire_refusals)
        dead = self.view.on_peer_down(peer)
        if self._is_root:
            # Before the others: what they ask because of this loss is not lost with it.
            self.requests.on_peer_down(peer, now)
        self.configurations.on_peer_down(peer, now)
        self.appends.on_peer_down(peer, was_up, now)
        self.writers.on_peer_down(peer, was_up, now)
        self.streams.on_peer_down(peer, now)
        self._on_dead(dead, now)
        self.view.tell_changes(now)

    def _on_dead(self, nodes: list[NodeId], now: Micros) -> None:
        for node in nodes:
            self.appends.on_node_dead(node, now)
            self.writers.on_node_dead(node, now)
        if nodes:
            self.streams.on_nodes_dead(lambda log: any(self.routes.was_at(log, node) for node in nodes), now)

    def _expire_refusals(self, now: Micros) -> None:
        self.view.expire(now)
        self.view.tell_changes(now)

    # Messages

    @handles(Appended)
    def on_appended(self, peer: PeerId, message: Appended, now: Micros) -> None:
        """The outcome of a frame."""
        streamed = self.writers.frames.get(message.request_id)
        if streamed is not None:
            streamed[0].on_appended(peer, streamed[1], message, now)
        else:
            self.appends.on_appended(peer, message, now)

    @handles(ClusterState)
    def on_cluster_state(self, peer: PeerId, message: ClusterState, now: Micros) -> None:
        """A node tells of all nodes."""
        self.metrics.cluster_states_received += 1
        self._on_dead(self.view.on_cluster_state(peer, message), now)
        self.view.tell_changes(now)
        if message.config_version > self.config.version:
            self.on_newer_config(message.config_version)

    # What readers ask for

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
        guard: AppendGuard | None = None,
        seal: Seal | None = None,
    ) -> OpenAppends:
        """Append one record; the promise gets its `Receipt`. Its time counts from the end of the turn.

        Args:
            log, payload, promise, timeout_us, key, synced, guard, seal: as `AppendRequests.append`; None: the client's append timeout, no key.
        Returns:
            what others of the same turn and timeout may join.
        Raises:
            LogDeviceError: NOTFOUND, TOOBIG; nothing was sent.
        """
        attributes = self.routes.config.log(log)
        if attributes is None:
            raise self.routes.config.unknown(log)
        longest = attributes.max_payload_bytes
        if seal is not None:
            longest = max(0, longest - SEALED_OVERHEAD - BATCH_OVERHEAD - BYTES_PER_RECORD)
        size = len(payload) + (0 if key is None else len(key) + KEYS_HEAD + KEY_OVERHEAD)
        if size > longest:
            raise LogDeviceError(Status.TOOBIG, f"{size} bytes; the log takes {longest}")
        timeout = self.settings.append_timeout_us if timeout_us is None else timeout_us
        return self.appends.append(log, payload, promise, longest, timeout, key, synced=synced, guard=guard, seal=seal)

    def append_batch(
        self,
        log: LogId,
        payloads: Sequence[bytes],
        promise: Promise,
        timeout_us: int | None = None,
        keys: Sequence[bytes | None] | None = None,
        *,
        synced: bool = False,
        guard: AppendGuard | None = None,
        seal: Seal | None = None,
    ) -> None:
        """Append an atomic batch; the promise gets its `Receipts`.

        Args:
            log, payloads, promise, timeout_us, keys, synced, guard, seal: as `AppendRequests.append_batch`; None: as in `append`.
        Raises:
            LogDeviceError: NOTFOUND, TOOBIG; nothing was sent.
        """
        attributes = self.routes.config.log(log)
        if attributes is None:
            raise self.routes.config.unknown(log)
        longest = attributes.max_payload_bytes
        check_atomic(payloads, keys, longest if seal is None else longest - SEALED_OVERHEAD)
        timeout = self.settings.append_timeout_us if timeout_us is None else timeout_us
        self.appends.append_batch(log, payloads, promise, longest, timeout, keys, synced=synced, guard=guard, seal=seal)

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
            elif status is Status.ACCESS:
                break_(promise, self.routes.refused(log, Permission.TRIM))
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

    def writer(
        self, settings: WriterSettings, finder: FrameFinder, sealer: Callable[[LogId], Seal] | None = None
    ) -> WriteStreams:
        """The streams of a further BufferedWriter. sealer: encrypts the batches of a log; None: they are not encrypted."""
        context = StreamContext(
            routes=self.routes,
            links=self.links,
            timers=self.timers,
            rng=self.rng,
            ids=self.ids,
            questions=self.questions,
            finder=finder,
            frames=self.writers.frames,
            probe=self.appends.probe,
            settings=self.settings,
        )
        writer = WriteStreams(context, settings, WriterMetrics(), sealer)
        self.writers.add(writer)
        return writer

    def close(self) -> None:
        """Fail everything that is under way."""
        self.writers.close()
        self.streams.close()
        self.appends.close(LogDeviceError(Status.SHUTDOWN, "the client was closed"))

    def refuse(self, error: LogDeviceError) -> None:
        """No node serves this client: fail the appends that are under way."""
        self.appends.close(error)
        self.writers.refuse(error)

    def alive_nodes(self) -> list[NodeId]:
        """Nodes of which a node said that they take part, or all while none has said anything."""
        return [node for node in sorted(self.config.nodes) if self.view.state(node) is NodeState.ALIVE]
