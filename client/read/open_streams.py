"""The read streams of a client that are open: hands each its messages, and all of them what changes around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from client.read.hedge_budget import HedgeBudget
from client.read.hedging import HedgeContext, HedgeMessages
from client.read.read_stream import ReadStream
from client.read.release_lookup import ReleaseLookup, StandingStream
from client.read.settings import ReadSettings
from client.read.shard_answers import ShardAnswers
from client.read.shard_delays import KnownDelays
from client.read.shard_statuses import ShardStatuses
from client.turn_end import TurnEnd
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import LogId, PeerId
from logdevice_py.core.machine import TimerQueue
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Records, ShardGap, ShardStatus, Started
from logdevice_py.protocol.routing import handles


class StreamMessages(StandingStream, Protocol):
    """A read stream, as it is handed its messages."""

    @property
    def answers(self) -> ShardAnswers:
        """What takes those of shards."""
        ...

    def on_turn_end(self, now: Micros) -> None: ...

    def on_shard_statuses(self, statuses: ShardStatuses, now: Micros) -> None: ...

    def on_config(self, config: ClusterConfig, now: Micros) -> None: ...

    def on_peer_up(self, peer: PeerId, now: Micros) -> None: ...

    def on_peer_down(self, peer: PeerId, now: Micros) -> None: ...

    def stop(self) -> None: ...


class OpenStreams:
    """By stream id. A stream may close itself, or have another one opened, while it is handed something."""

    __slots__ = ("_by_id", "_hedges", "_release_lookup", "_statuses", "_turn_end", "due")

    def __init__(
        self, wake: Callable[[LogId, Micros], None], timers: TimerQueue, settings: ReadSettings, turn_end: TurnEnd
    ) -> None:
        """
        Args:
            wake: has a log sequenced by somebody.
        """
        self._turn_end = turn_end
        self._by_id: dict[int, StreamMessages] = {}
        self._hedges: dict[int, HedgeMessages] = {}
        """Hedges of streams, by ids of their own."""
        self.due: dict[int, None] = {}
        """Streams of which the turn has not ended yet."""
        self._statuses = ShardStatuses()
        self._release_lookup = ReleaseLookup(self._by_id, wake, timers, settings)

    def add(self, stream_id: int, stream: StreamMessages, now: Micros) -> None:
        """From here on a read stream gets its messages. Its id comes from the session's `ids`."""
        self._by_id[stream_id] = stream
        self._release_lookup.watch(now)
        stream.on_shard_statuses(self._statuses, Micros(0))

    def add_hedges(self, stream_id: int, hedges: HedgeMessages) -> None:
        """From here on the hedges of a stream get their messages. Their id comes from the session's `ids`."""
        self._hedges[stream_id] = hedges

    def remove_hedges(self, stream_id: int) -> None:
        """A stream needs no hedges any more."""
        self._hedges.pop(stream_id, None)

    def remove(self, stream_id: int) -> None:
        """The stream is closed; messages under way to it are dropped."""
        self._by_id.pop(stream_id, None)

    def request_turn_end(self, stream_id: int) -> None:
        """Call `on_turn_end` of this stream when the turn ends. Others are not looked at: there may be thousands that wait for records."""
        self.due[stream_id] = None
        self._turn_end.wanted = True

    def read_streams(self) -> list[ReadStream]:
        """In the order in which they were opened."""
        return [stream for stream in self._by_id.values() if isinstance(stream, ReadStream)]

    def close(self) -> None:
        """Stop them all."""
        for stream in list(self._by_id.values()):
            stream.stop()

    @handles(Started)
    def on_started(self, peer: PeerId, message: Started, now: Micros) -> None:
        """A shard opened a read stream, or refused it."""
        stream = self._by_id.get(message.stream)
        if stream is not None:
            stream.answers.on_started(message, now)
        elif (hedges := self._hedges.get(message.stream)) is not None:
            hedges.on_started(message, now)

    @handles(Records)
    def on_records(self, peer: PeerId, message: Records, now: Micros) -> None:
        """Entries of a read stream."""
        stream = self._by_id.get(message.stream)
        if stream is not None:
            stream.answers.on_records(message, now)
        elif (hedges := self._hedges.get(message.stream)) is not None:
            hedges.on_records(message, now)

    @handles(ShardGap)
    def on_gap(self, peer: PeerId, message: ShardGap, now: Micros) -> None:
        """Where a shard has nothing of a read stream."""
        stream = self._by_id.get(message.stream)
        if stream is not None:
            stream.answers.on_gap(message, now)
        elif (hedges := self._hedges.get(message.stream)) is not None:
            hedges.on_gap(message, now)

    @handles(ShardStatus)
    def on_shard_status(self, peer: PeerId, message: ShardStatus, now: Micros) -> None:
        """Shards whose silence does not prove what it seems to."""
        if self._statuses.take(peer, message, now):
            for stream in list(self._by_id.values()):
                stream.on_shard_statuses(self._statuses, now)

    def on_turn_end(self, now: Micros) -> None:
        """Deliver what came in the turn. Needed only when some are `due`."""
        due, self.due = self.due, {}
        for stream_id in due:
            stream = self._by_id.get(stream_id)
            if stream is not None:
                stream.on_turn_end(now)

    def on_config(self, config: ClusterConfig, now: Micros) -> None:
        """A new version of the cluster file holds."""
        for stream in list(self._by_id.values()):
            stream.on_config(config, now)

    def on_nodes_dead(self, was_sequenced: Callable[[LogId], bool], now: Micros) -> None:
        """Nodes died. was_sequenced: whether they sequenced a log, as far as is known."""
        self._release_lookup.on_nodes_dead(was_sequenced, now)

    def on_peer_up(self, peer: PeerId, now: Micros) -> None:
        """A connection to a node is established."""
        for stream in list(self._by_id.values()):
            stream.on_peer_up(peer, now)

    def on_peer_down(self, peer: PeerId, now: Micros) -> None:
        """The connection to a node broke, or it could not be dialled."""
        self._statuses.forget_begun(peer)
        for stream in list(self._by_id.values()):
            stream.on_peer_down(peer, now)


def hedge_context(settings: ReadSettings, ids: Iterator[int], streams: OpenStreams) -> HedgeContext:
    """What hedged streams of a client have in common.

    Args:
        ids: of streams.
    """

    def begin(hedges: HedgeMessages) -> int:
        stream_id = next(ids)
        streams.add_hedges(stream_id, hedges)
        return stream_id

    return HedgeContext(
        delays=KnownDelays(settings),
        budget=HedgeBudget(settings.hedge_budget_percent),
        open=begin,
        close=streams.remove_hedges,
    )
