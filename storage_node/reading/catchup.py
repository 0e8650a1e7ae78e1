"""All read streams of one shard, served in turn.

Streams that can be sent something stand in one line; each gets a bounded piece and goes to its end, so none holds up another. What is among
the recent entries is sent from memory; the rest is read from disk, one read per stream and a bounded number at a time. A stream without
window, credit, or anything released waits outside the line, and so does one that is over a quota.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from logdevice_py.core.ids import LogId, PeerId, is_client, is_metadata_log
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.sharing import Places
from logdevice_py.core.status import Status
from logdevice_py.core.token_bucket import Meter
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Start, Started, StartFlags, Stop, Window
from logdevice_py.protocol.routing import handles
from storage_node.log_state import LogState
from storage_node.log_store.interface import ReadResult
from storage_node.reading.read_quotas import PIECE_BYTES, ReadAllowance, ReadQuotas
from storage_node.reading.read_stream import ServerReadStream, ServerStreamState
from storage_node.shard import Shard, begin_turn

_READ_ENTRIES_MAX: Final = 4096
_LOOKS_MAX: Final = 4096
"""Streams that one turn looks at: very many that can be sent little, or nothing, must not hold up the event loop."""
_CLOSES_MAX: Final = 1000
"""Streams of connections that ended which one turn clears away: one of them may have had very many."""
_Key = tuple[LogId, int]


class CatchupQueue:
    """The read streams of one shard."""

    __slots__ = (
        "_by_peer",
        "_congested",
        "_ended",
        "_found_damage",
        "_held",
        "_line",
        "_line_of",
        "_places",
        "_quotas",
        "_reading",
        "_shard",
        "_wanting_disk",
    )

    def __init__(self, shard: Shard, found_damage: Callable[[LogState, ReadResult], None], quotas: ReadQuotas) -> None:
        """
        Args:
            found_damage: gets reads that met damage.
            quotas: of the node.
        """
        self._quotas = quotas
        self._held: dict[Meter, OrderedDict[ServerReadStream, None]] = {}
        """Streams that wait for a quota, in order. Each line has a timer."""
        self._line_of: dict[ServerReadStream, OrderedDict[ServerReadStream, None]] = {}
        """The line in which a stream waits: one that is closed leaves it, or a reader could make it longer by opening and closing streams."""
        self._shard = shard
        self._found_damage = found_damage
        self._by_peer: dict[PeerId, dict[_Key, ServerReadStream]] = {}
        self._congested: set[PeerId] = set()
        self._places = Places()
        """The streams of clients."""
        self._ended: deque[ServerReadStream] = deque()
        """Streams of connections that are gone: closed, and still to be cleared away."""
        self._line: deque[ServerReadStream] = deque()
        self._wanting_disk: deque[ServerReadStream] = deque()
        self._reading = 0

    # ------------------------------------------------------------------------------------------------------------------------ messages

    @handles(Start)
    def on_start(self, peer: PeerId, message: Start, now: Micros) -> None:
        """Open, rewind, or confirm a stream."""
        status = self._start_status(message)
        streams = self._by_peer.get(peer)
        stream = None if streams is None else streams.get((message.log, message.stream))
        if status is Status.OK and stream is None and self._has_enough(peer, 0 if streams is None else len(streams)):
            hit("too_many_read_streams")
            self._shard.metrics.read_streams_refused += 1
            status = Status.AGAIN
        if status is not Status.OK:
            if stream is not None and message.filter_version >= stream.filter_version:
                self._close(stream)
            self._answer(peer, message, status, Lsn(0))
            return
        if message.flags & StartFlags.HEDGE:
            self._shard.metrics.hedges_served += 1
        state = self._shard.log(message.log)
        if stream is None:
            stream = ServerReadStream(peer, state, message, self, self._shard.out, self._shard.metrics)
            self._by_peer.setdefault(peer, {})[message.log, message.stream] = stream
            self._settle(stream)
            state.read_streams += 1
            self._shard.metrics.read_streams += 1
            if is_client(peer):
                self._places.take(peer)
        elif message.filter_version > stream.filter_version:
            hit("read_stream_rewound")
            self._shard.metrics.rewinds += 1
            stream.rewind(message)
        elif message.filter_version == stream.filter_version:
            # A duplicate: the reader did not see STARTED. What was sent is not sent again.
            stream.window_high = max(stream.window_high, message.window_high)
            stream.credit = max(stream.credit, message.bytes_credit)
        else:
            return
        self._answer(peer, message, Status.OK, state.last_released)
        stream.wake()

    @handles(Window)
    def on_window(self, peer: PeerId, message: Window, now: Micros) -> None:
        """Move a stream's window."""
        stream = self._by_peer.get(peer, {}).get((message.log, message.stream))
        if stream is not None:
            stream.on_window(message)

    @handles(Stop)
    def on_stop(self, peer: PeerId, message: Stop, now: Micros) -> None:
        """Close a stream."""
        stream = self._by_peer.get(peer, {}).get((message.log, message.stream))
        if stream is not None:
            self._close(stream)

    def on_peer_down(self, peer: PeerId) -> None:
        """Streams end with their connection. Very many are cleared away in several turns."""
        self._congested.discard(peer)
        streams = self._by_peer.pop(peer, {}).values()
        for stream in streams:
            stream.become(ServerStreamState.CLOSED)
        self._ended.extend(streams)
        self._clear_away(_CLOSES_MAX)

    def on_peer_congested(self, peer: PeerId) -> None:
        """The connection does not keep up: its streams wait until it is drained."""
        self._congested.add(peer)

    def on_peer_drained(self, peer: PeerId) -> None:
        """The connection takes more."""
        if peer in self._congested:
            self._congested.discard(peer)
            for stream in self._by_peer.get(peer, {}).values():
                stream.wake()

    def fail_all(self) -> None:
        """The disk failed: tell every reader, and forget the streams."""
        for peer in sorted(self._by_peer):
            for stream in list(self._by_peer.get(peer, {}).values()):
                self._end(stream, Status.FAILED)

    def end_refused(self, may_read: Callable[[PeerId, LogId], bool]) -> None:
        """End the streams of peers that may not read their logs."""
        for peer in sorted(self._by_peer):
            for stream in list(self._by_peer.get(peer, {}).values()):
                if not may_read(peer, stream.log.log):
                    self._end(stream, Status.ACCESS)

    def _end(self, stream: ServerReadStream, status: Status) -> None:
        """Tell its reader, and forget the stream."""
        self._shard.out.send(
            stream.peer,
            Started(
                log=stream.log.log,
                stream=stream.stream,
                shard=self._shard.shard,
                status=status,
                filter_version=stream.filter_version,
                last_released=Lsn(0),
            ),
        )
        self._close(stream)

    def streams(self) -> Iterator[ServerReadStream]:
        """Every open stream, to look at. Streams may come and go between two of them."""
        for peer in list(self._by_peer):
            for stream in list(self._by_peer.get(peer, {}).values()):
                if stream.state is not ServerStreamState.CLOSED:
                    yield stream

    def is_congested(self, peer: PeerId) -> bool:
        """The peer does not read what was sent to it."""
        return peer in self._congested

    def stream_count(self) -> int:
        """How many streams are open."""
        return sum(map(len, self._by_peer.values()))

    # ------------------------------------------------------------------------------------------------------------------------- serving

    def push(self, stream: ServerReadStream) -> None:
        """Put a stream at the end of the line."""
        if stream.state is ServerStreamState.WAITING:
            stream.become(ServerStreamState.QUEUED)
            self._line.append(stream)

    def run(self, now: Micros) -> None:
        """Serve the line, as far as one turn may go."""
        if self._ended:
            self._clear_away(_CLOSES_MAX)
        settings = self._shard.settings
        budget, looks = settings.read_bytes_per_turn_max, _LOOKS_MAX
        line = self._line
        while line and budget > 0 and looks:
            stream = line.popleft()
            if stream.state is ServerStreamState.QUEUED:
                stream.become(ServerStreamState.WAITING)
                budget -= self._serve(stream, now)
                looks -= 1
        if line or self._ended:
            hit("read_streams_go_on_next_turn")
            self._shard.timers.at(now, begin_turn)

    def _serve(self, stream: ServerReadStream, now: Micros, first_of: Meter | None = None) -> int:
        """Give a stream its piece; it ends up waiting, queued, throttled, reading or closed. Returns what the piece costs. `first_of`: it is first in
        that line."""
        stream.skip_trimmed()
        if stream.finished:
            self._close(stream)
            return 0
        limit = stream.limit
        if stream.position > limit or not stream.has_credit or stream.peer in self._congested:
            self._settle(stream)
            return 0
        state, settings = stream.log, self._shard.settings
        meters = self._quotas.of(stream.peer, state.log, now)
        if meters and self._is_held(stream, meters, first_of, now):
            return 0
        if stream.position < state.in_memory_from:
            stream.become(ServerStreamState.READING)
            self._wanting_disk.append(stream)
            self._start_reads(now)
            return 0
        entries = () if state.recent is None else state.recent.between(stream.position, limit)
        before = self._shard.metrics.records_sent
        allowance = ReadAllowance(meters, now) if meters else None
        sent = stream.deliver(
            entries, limit, settings.records_message_bytes, settings.read_bytes_max, allowance=allowance
        )
        self._shard.metrics.entries_from_memory += self._shard.metrics.records_sent - before
        self._after_delivery(stream)
        return sent + 1

    def is_awaited(self, meter: Meter) -> bool:
        """Whether streams wait for a quota."""
        return bool(self._held.get(meter))

    def _is_held(
        self, stream: ServerReadStream, meters: tuple[Meter, ...], first_of: Meter | None, now: Micros
    ) -> bool:
        """Whether a stream waits for a quota from here on: it is used up, or others wait for it."""
        for meter in meters:
            line = self._held.get(meter)
            wait = meter.wait(PIECE_BYTES, 1, now)
            if not wait and (line is None or meter is first_of):
                continue
            meter.throttled += 1
            self._shard.metrics.reads_throttled += 1
            hit("read_stream_throttled")
            stream.become(ServerStreamState.THROTTLED)
            if line is None:
                line = self._held[meter] = OrderedDict()
                self._shard.timers.at(now + wait, partial(self._serve_held, meter))
            line[stream] = None
            self._line_of[stream] = line
            return True
        return False

    def _serve_held(self, meter: Meter, now: Micros) -> None:
        """Serve those that wait for a quota, one after the other, as far as it goes."""
        line = self._held[meter]
        for _ in range(min(len(line), _LOOKS_MAX)):
            if meter.wait(PIECE_BYTES, 1, now):
                break
            stream, _ = line.popitem(last=False)
            del self._line_of[stream]
            if stream.state is ServerStreamState.THROTTLED:
                stream.become(ServerStreamState.WAITING)
                self._serve(stream, now, meter)
        if line:
            self._shard.timers.at(now + max(1, meter.wait(PIECE_BYTES, 1, now)), partial(self._serve_held, meter))
        else:
            del self._held[meter]

    def _after_delivery(self, stream: ServerReadStream) -> None:
        if stream.finished:
            self._close(stream)
        elif stream.position <= stream.limit and stream.has_credit:
            self.push(stream)
        else:
            self._settle(stream)

    def _settle(self, stream: ServerReadStream) -> None:
        """A stream to which nothing can be sent now is woken by its log, unless it waits for its reader: then by that one only."""
        waits_for_log = stream.takes_more and stream.peer not in self._congested
        if waits_for_log != (stream.place >= 0):
            if waits_for_log:
                stream.log.subscribe(stream)
            else:
                stream.log.unsubscribe(stream)

    def _start_reads(self, now: Micros) -> None:
        settings = self._shard.settings
        while self._wanting_disk and self._reading < settings.catchup_reads_in_flight_max:
            stream = self._wanting_disk.popleft()
            if stream.state is not ServerStreamState.READING:
                continue
            limit = stream.limit
            if stream.position > limit:
                # It was rewound to where nothing is released, while it stood in line for the disk. It may be trimmed there.
                stream.become(ServerStreamState.WAITING)
                self.push(stream)
                continue
            self._reading += 1
            self._read(stream, limit, now)

    def _read(self, stream: ServerReadStream, limit: Lsn, now: Micros) -> None:
        bytes_max = min(self._shard.settings.read_bytes_max, max(1, stream.credit - stream.sent))
        version, position = stream.filter_version, stream.position
        meters, reserved = self._quotas.of(stream.peer, stream.log.log, now), 0
        if meters:
            # nobody else is read for meanwhile on what this one is to be sent
            bytes_max = max(1, min(bytes_max, ReadAllowance(meters, now).bytes_left))
            reserved = bytes_max
            for meter in meters:
                meter.spend(reserved, 0)

        def done(result: ReadResult, now: Micros) -> None:
            self._reading -= 1
            for meter in meters:
                meter.give_back(reserved, 0)
            self._on_read(stream, version, position, result, now)
            self._start_reads(now)

        self._shard.reads.read(stream.log.log, position, limit, bytes_max, _READ_ENTRIES_MAX, done, stream.wants)

    def _on_read(self, stream: ServerReadStream, version: int, position: Lsn, result: ReadResult, now: Micros) -> None:
        if stream.state is not ServerStreamState.READING:
            return
        stream.become(ServerStreamState.WAITING)
        if result.status is not Status.OK:
            return  # the shard fails as a whole, and its streams with it
        if stream.filter_version != version:
            hit("read_stream_rewound_while_reading")
            self.push(stream)
            return
        assert stream.position == position, "only rewinds move a stream that is reading"
        metrics, settings = self._shard.metrics, self._shard.settings
        metrics.entries_from_disk += len(result.entries)
        corrupt = result.corrupt
        if corrupt or result.bodiless:
            self._found_damage(stream.log, result)
        if result.bodiless:
            # Recovery changed the header of a copy whose body is not here any more: that is damage, not absence.
            corrupt = result.damaged
        stream.skip_trimmed()
        if result.through >= stream.position:
            meters = self._quotas.of(stream.peer, stream.log.log, now)
            allowance = ReadAllowance(meters, now) if meters else None
            stream.deliver(result.entries, result.through, settings.records_message_bytes, 1 << 62, corrupt, allowance)
        self._after_delivery(stream)

    # ------------------------------------------------------------------------------------------------------------------------- streams

    def _start_status(self, message: Start) -> Status:
        shard = self._shard
        status = shard.status()
        if status is not Status.OK:
            return status
        if shard.is_other_generation(message.generation):
            return Status.REBUILDING
        if is_metadata_log(message.log) or (shard.find(message.log) is None and not shard.may_exist(message.log)):
            return Status.NOTFOUND
        return Status.OK

    def _has_enough(self, peer: PeerId, count: int) -> bool:
        """Whether a peer that has so many streams gets no more. The streams of nodes take no places of clients."""
        settings = self._shard.settings
        if is_client(peer):
            return self._places.refuses(peer, settings.streams_max, settings.streams_per_peer_max)
        return count >= settings.streams_per_peer_max

    def _answer(self, peer: PeerId, message: Start, status: Status, last_released: Lsn) -> None:
        self._shard.out.send(
            peer,
            Started(
                log=message.log,
                stream=message.stream,
                shard=message.shard,
                status=status,
                filter_version=message.filter_version,
                last_released=last_released,
                ordered=bool(message.order),
            ),
        )

    def _close(self, stream: ServerReadStream) -> None:
        if stream.state is ServerStreamState.CLOSED:
            return
        stream.become(ServerStreamState.CLOSED)
        streams = self._by_peer[stream.peer]
        del streams[stream.log.log, stream.stream]
        if not streams:
            del self._by_peer[stream.peer]
        self._forget(stream)

    def _clear_away(self, most: int) -> None:
        ended = self._ended
        for _ in range(min(most, len(ended))):
            self._forget(ended.popleft())

    def _forget(self, stream: ServerReadStream) -> None:
        """Give back what a closed stream holds."""
        line = self._line_of.pop(stream, None)
        if line is not None:
            del line[stream]
        self._shard.metrics.read_streams -= 1
        if is_client(stream.peer):
            self._places.give_back(stream.peer)
        stream.log.read_streams -= 1
        if stream.place >= 0:
            stream.log.unsubscribe(stream)

    def check(self) -> None:
        """What must hold between any two events."""
        assert 0 <= self._reading <= self._shard.settings.catchup_reads_in_flight_max, self._reading
        assert sum(map(len, self._held.values())) == len(self._line_of), "whoever leaves a line leaves both"
        for peer, streams in self._by_peer.items():
            for stream in streams.values():
                assert stream.peer == peer, "a stream is filed under its reader"
                assert stream.state is not ServerStreamState.CLOSED, "closed streams are forgotten"
                if stream.state is ServerStreamState.WAITING and stream.takes_more and peer not in self._congested:
                    assert stream.place >= 0, "a stream that waits for its log is woken by it"
