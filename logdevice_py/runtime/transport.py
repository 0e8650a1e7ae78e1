"""Connections: frames to peers and back, over TCP, in clear text or TLS (`runtime/tls.py`).

A node reaches another node over the connection that it dialled itself, so messages of one direction keep their order and the two
directions fail apart. A client's connection is used both ways. `send` never blocks: it queues, dials when there is no connection,
and drops with `on_peer_down` when the peer cannot be reached. A connection that breaks is dialled again by the next message.

A connection to a node that counts as dead is closed when not even the node's kernel acknowledges what it is sent: after a cut of the network TCP goes on with it
only up to as long after as the cut took, while a new connection is there at once. A node that is merely stopped keeps its connections.

A bad frame, a silent newcomer, a peer that does not read: one log line, that connection closed, nobody else notices.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from logdevice_py.config.security import TLS_ACCEPT, SecuritySettings
from logdevice_py.core.ids import NodeId, PeerId, format_peer
from logdevice_py.core.machine import Rng
from logdevice_py.core.status import LogDeviceError, ProtocolError, Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.framing import (
    FrameReader,
    FrameTooLargeError,
    InputMemory,
    encode_frame,
)
from logdevice_py.runtime.clock import monotonic_us, wall_us
from logdevice_py.runtime.diagnostics import Diagnostics
from logdevice_py.runtime.handshakes import HandshakeQueue
from logdevice_py.runtime.kernel_answers import acknowledges_nothing, ask_often, ask_rarely
from logdevice_py.runtime.loop_shares import LoopShare, LoopShares
from logdevice_py.runtime.tls import HANDSHAKE_RECORD, TlsChannel, TlsContexts
from logdevice_py.shell.introduction import (
    CheckToken,
    Identity,
    Introduced,
    Introduction,
    let_in,
    newcomer_frames,
    no_tokens,
    spoken,
)
from logdevice_py.shell.proof import NO_PROOF, Principals
from logdevice_py.shell.route import PeerRoute
from logdevice_py.shell.settings import RuntimeSettings, TransportMetrics

log = logging.getLogger("logdevice.transport")

_DEAF_FACTOR = 4
"""A peer whose unread answers are this many times what pauses its read streams is not read from: what it asks for cannot pile up."""

_JOINED_MAX: Final = 32 << 10
"""Writes up to this size are joined: copying is cheaper than a list of pieces."""
_READ_SIZE: Final = 1 << 19
"""Bytes that are taken from a connection at a time at most: they, and what is made of them, stay in the processor's cache."""
_CIPHERTEXT_SIZE: Final = _READ_SIZE
"""Likewise of TLS connections. What is not handled at once is kept by each until its turn."""
_CIPHERTEXT_SIZE_MIN: Final = 1 << 14
"""So much is read of a TLS connection whose frames wait, or that is new: beyond that bytes wait in the socket, and their sender with them. Thousands of
connections that send what nobody has time for would take gigabytes else."""
_HANDSHAKE_SIZE: Final = 1 << 15
"""Bytes of a handshake that are queued at most: certificates take some KiB."""
_HANDSHAKES_US: Final = 500
"""After so long no further handshake goes on in a turn of the loop."""
_SHORT_READ: Final = 2 << 10
"""Frames of so many bytes together are handled before it is worth to look at the time; those of clients are accounted for all the same."""
_LOOKS: Final = 4
"""How often a begun frame is looked at within `frame_timeout_us`. The connection is closed when it has hardly moved between any two: a process that was stopped
for a while looks once then, not several times."""
_DEAD_LOOK: Final = 0.2
"""Seconds between looks at connections to nodes that count as dead."""
_BEGUN_PROGRESS: Final = 6 << 10
"""Bytes a second that a begun frame gets at least."""


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """A connection as it stands, for those who look at the process."""

    peer: PeerId | None
    """None before the peer has introduced itself."""
    address: tuple[Any, ...] | None
    """The other end, host and port first; None when the connection is gone."""
    dialled: bool
    up: bool
    """Both sides have introduced themselves."""
    pending_bytes: int
    """What waits to be sent."""
    reading_paused: bool


class TransportEvents(Protocol):
    """What a transport reports; every call is made on the loop."""

    def on_message(self, peer: PeerId, message: Any) -> None: ...

    def on_peer_up(self, peer: PeerId) -> None:
        """A connection is established: one that was dialled, or a client's."""

    def on_peer_down(self, peer: PeerId, *, refused: bool) -> None:
        """Messages under way to or from the peer may be lost. refused: nobody listens there."""

    def on_peer_congested(self, peer: PeerId, *, congested: bool) -> None:
        """Much waits for a peer that does not read, or no longer does: who can should hold back."""

    def on_config_version(self, version: int) -> None:
        """A peer has this version of the cluster file."""


class _Connection(asyncio.BufferedProtocol):
    """One TCP connection, dialled or accepted."""

    __slots__ = (
        "_answered",
        "_at_once",
        "_ciphertext",
        "_deaf",
        "_doubted",
        "_first",
        "_looks",
        "_owner",
        "_reader",
        "_reading",
        "_seen",
        "_timer",
        "_tls",
        "_undecided",
        "_unspoken",
        "_until",
        "_wait_us",
        "_waits",
        "dialled",
        "out",
        "output_bytes",
        "peer",
        "proof",
        "share",
        "transport",
        "trouble",
        "up",
    )

    def __init__(self, owner: Transport, peer: PeerId | None, tls: TlsChannel | None = None) -> None:
        """
        Args:
            peer: the node that is dialled; None: somebody else dialled.
            tls: of a connection that is dialled; None: it is in clear text.
        """
        self._owner = owner
        self._tls = tls
        self._undecided = peer is None and owner.takes_tls
        """The first byte tells clear text from TLS, and has not come."""
        self._ciphertext: memoryview | None = None
        """Where bytes come while they are not those of frames."""
        self._at_once = _CIPHERTEXT_SIZE_MIN
        """Bytes of TLS that are read at a time at most."""
        self.proof = NO_PROOF
        self._reader = FrameReader(
            newcomer_frames(dialled=peer is not None),
            shared=owner.read_into,
            memory=owner.input_memory,
        )
        self._first: Any = None
        """The first message of who dialled, until it is known whether anything came behind it."""
        self._seen = (0, 0)
        """Messages and bytes at the last look."""
        self._looks = 0
        """How many looks in a row have found the same frame, hardly longer."""
        self._timer: asyncio.TimerHandle | None = None
        """Runs while this process waits for the peer to introduce itself."""
        self._wait_us = owner.settings.hello_timeout_us
        """How much longer it may wait, as of when the timer was set."""
        self._answered = False
        """What the peer sent of a handshake had an answer."""
        self._deaf = False
        """Its requests are left unread until it has read the answers to earlier ones."""
        self._doubted = False
        """The peer counted as dead at the last look."""
        self._waits = False
        """Its requests are left unread until it is its turn."""
        self._reading = True
        self._until: Micros | None = None
        """When the frames that came last have had their time; None: there is no limit to it."""
        self.share: LoopShare | None = None
        """Of the time of the loop, once an accepted connection is up."""
        self.peer = peer
        self.dialled = peer is not None
        self.transport: asyncio.Transport | None = None
        self.trouble = LogDeviceError(Status.CONNFAILED, "closes the connection before it introduces itself")
        """Why the connection ends, should it end before it is up."""
        self.up = False
        self.out: list[bytes] = []
        self.output_bytes = 0
        """What waited to be sent when something was sent last."""
        self._unspoken: frozenset[int] = frozenset()
        """Numbers of the messages that the peer does not know, by the version that was agreed on."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        high = self._owner.settings.output_bytes_congested
        self.transport.set_write_buffer_limits(high=high, low=high // 4)
        _tune(transport.get_extra_info("socket"), self._owner.settings)
        self._wait_for_peer()
        if self._tls is None:
            self._owner.connected(self)
        else:
            self._owner.add(self)
            self._shake_hands(self._tls)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._tls is None and not self._undecided:
            return self._reader.get_buffer(sizehint)
        self._ciphertext = memoryview(self._owner.read_ciphertext_into)[: self._at_once]
        return self._ciphertext

    def buffer_updated(self, nbytes: int) -> None:
        self._owner.metrics.bytes_received += nbytes
        if self._ciphertext is None:
            self._handle(nbytes)
            return
        came, self._ciphertext = self._ciphertext[:nbytes], None
        if self._undecided:
            self._undecided = False
            if came[0] == HANDSHAKE_RECORD:
                self._tls = self._owner.accept_tls()
            else:
                self._take_clear_text(bytes(came))
                return
        tls = self._tls
        assert tls is not None
        if tls.established:
            tls.lend(came)
            self._decrypt()
            self._judge_size(tls, nbytes)
            return
        tls.feed(came)
        if self.dialled:
            self._shake_hands(tls)
        elif tls.waiting_bytes > _HANDSHAKE_SIZE:
            self._fail(LogDeviceError(Status.PROTO, f"{tls.waiting_bytes} bytes came, which is no handshake"))
        else:
            # the peer has said what it can say: that others are served first does not count against it
            self._stop_waiting_for_peer()
            self._owner.queue_handshake(self, answered=self._answered)

    def _judge_size(self, tls: TlsChannel, nbytes: int) -> None:
        """How much is read at a time follows from how much is handled at a time."""
        if self._reader.stopped:
            self._at_once = max(_CIPHERTEXT_SIZE_MIN, min(self._at_once, nbytes - tls.waiting_bytes))
        elif nbytes == self._at_once:
            self._at_once = min(2 * nbytes, _CIPHERTEXT_SIZE)

    def _take_clear_text(self, data: bytes) -> None:
        """The first bytes of a connection that turned out not to be TLS: no more than a newcomer may send at a time."""
        buffer = self._reader.get_buffer(len(data))
        if len(data) > len(buffer):
            self._refuse(ProtocolError(f"{len(data)} bytes came before HELLO was answered"))
            return
        buffer[: len(data)] = data
        buffer.release()
        self._handle(len(data))

    def _wait_for_peer(self) -> None:
        """For as long as is left of the time for its introduction."""
        self._timer = self._owner.loop.call_later(self._wait_us / 1e6, self._silent)

    def _stop_waiting_for_peer(self) -> None:
        if self._timer is not None:
            self._wait_us = max(0, round((self._timer.when() - self._owner.loop.time()) * 1e6))
            self._timer.cancel()
            self._timer = None

    # TLS

    def continue_handshake(self) -> None:
        """Its turn has come."""
        if self._tls is not None and self.transport is not None and not self.transport.is_closing():
            self._wait_for_peer()
            self._shake_hands(self._tls)

    def _shake_hands(self, tls: TlsChannel) -> None:
        try:
            over = tls.shake_hands()
        except LogDeviceError as error:
            self._write(tls.take())
            self._fail(error)
            return
        answer = tls.take()
        self._answered = self._answered or bool(answer)
        self._write(answer)
        if over:
            self.proof = tls.proof()
            if self.dialled:
                self._owner.connected(self)
            self._decrypt()

    def _decrypt(self) -> None:
        """Handle what came, as far as there is time for it."""
        tls, reader = self._tls, self._reader
        assert tls is not None
        try:
            while (
                self._reading and not reader.stopped and self.transport is not None and not self.transport.is_closing()
            ):
                buffer = reader.get_buffer()
                size = tls.read_into(buffer)
                buffer.release()
                if not size:
                    break
                self._handle(size)
        except LogDeviceError as error:
            self._write(tls.take())
            self._fail(error)
            return
        finally:
            tls.keep()
        self._write(tls.take())
        if tls.ended and self.transport is not None:
            self.transport.close()

    def _write(self, data: bytes) -> None:
        if data and self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def _fail(self, error: LogDeviceError) -> None:
        """There is no TLS connection, or no more."""
        self.trouble = error
        self._owner.metrics.tls_failed += 1
        self._owner.report("no TLS connection", f"{self.describe()}: {error.detail}; connection closed")
        if self.transport is not None:
            self.transport.close()  # behind what tells the other end why

    @property
    def found_no_tls(self) -> bool:
        """Whoever was dialled closed the connection without a word of TLS."""
        return self.dialled and self._tls is not None and not self._tls.heard

    def go_on(self) -> None:
        """Its turn in line has come: handle what was left, and read again."""
        self._waits = False
        if self._reader.stopped and not self._deaf:
            self._handle(0)
        self._pause_or_resume()

    def _resume_decrypting(self) -> None:
        """What was read and not decrypted goes first: with each read before that, more would pile up than there is time for."""
        if self._reading and self._tls is not None and self.transport is not None:
            self._decrypt()
            if self._reading and self.transport is not None:
                self.transport.resume_reading()

    def _handle(self, nbytes: int) -> None:
        """Handle what came, as far as there is time for it."""
        owner, reader, share = self._owner, self._reader, self.share
        if share is not None and not share.is_client and nbytes <= _SHORT_READ and not reader.stopped:
            share = None  # over before the time is worth to be looked at
        completed = reader.completed
        began = Micros(0) if share is None else monotonic_us()
        self._until = None if share is None else Micros(began + owner.shares.may_use(share, began))
        try:
            reader.read(nbytes, self._take)
            if self._first is not None:
                first, self._first = self._first, None
                self._introduce(first, more=reader.stopped)
        except ProtocolError as error:
            self._refuse(error)
            return
        finally:
            owner.metrics.messages_received += reader.completed - completed
        if share is not None and owner.account(share, began, more=reader.stopped):
            self._waits = True
            self._pause_or_resume()

    def _refuse(self, error: ProtocolError) -> None:
        self._owner.metrics.protocol_errors += 1
        self._owner.report("no valid messages", f"{self.describe()}: {error}; connection closed")
        self.abort()

    def _take(self, message: Any) -> bool:
        """One message. True: no more for now."""
        if not self.up:
            if self.dialled:
                self._introduce(message, more=False)
            else:
                self._first = message
            return not self.up
        self._owner.events.on_message(self.peer, message)  # type: ignore[arg-type]
        return self._until is not None and monotonic_us() >= self._until

    def _introduce(self, first: Any, *, more: bool) -> None:
        """The introduction of the peer."""
        owner = self._owner
        dialled = self.peer if self.dialled else None
        introduced = owner.introduction.receive(self, first, more=more, dialled=dialled, proof=self.proof)
        if self._timer is not None:
            self._timer.cancel()
        if self.dialled:
            owner.acknowledged(self, introduced)
        else:
            owner.greeted(self, introduced)
        if introduced.peer is None:
            return
        let_in(self._reader, introduced.peer)
        if introduced.peer < 0:
            self._reader.makes_way = self._make_way

    def _pause_or_resume(self) -> None:
        reading, transport = not (self._deaf or self._waits), self.transport
        if reading == self._reading or transport is None or transport.is_closing():
            return
        self._reading = reading
        if not reading:
            transport.pause_reading()
        elif self._tls is None:
            transport.resume_reading()
        else:
            self._owner.loop.call_soon(self._resume_decrypting)

    def _silent(self) -> None:
        seconds = self._owner.settings.hello_timeout_us / 1e6
        self.trouble = LogDeviceError(Status.CONNFAILED, f"accepts connections and says nothing for {seconds:g} s")
        self._owner.report(
            "no introduction", f"{self.describe()}: no introduction within {seconds:.1f} s; connection closed"
        )
        self.abort()

    def _make_way(self) -> None:
        self._owner.abandon(self, "began a frame and did not complete it while the memory for such frames is used up")

    def look_at_begun(self, least: int) -> bool:
        """Whether a frame is begun and has got less than `least` bytes between any two of the last looks."""
        reader = self._reader
        seen, self._seen = self._seen, (reader.completed, reader.received_bytes)
        if (
            not reader.pending
            or not self._reading
            or seen[0] != reader.completed
            or reader.received_bytes - seen[1] >= least
        ):
            self._looks = 0
        else:
            self._looks += 1
        return self._looks >= _LOOKS

    def is_in_vain(self, *, dead: bool) -> bool:
        """Whether the peer counts as dead, and acknowledges nothing of what it is sent."""
        sock = None if self.transport is None else self.transport.get_extra_info("socket")
        if sock is None:
            return False
        if dead is not self._doubted:
            self._doubted = dead
            (ask_often if dead else ask_rarely)(sock)
        return dead and acknowledges_nothing(sock)

    def pause_writing(self) -> None:
        if self.up and self.peer is not None:
            self._owner.events.on_peer_congested(self.peer, congested=True)

    def resume_writing(self) -> None:
        if self._deaf:
            self._deaf = False
            if self._reader.stopped and not self._waits and self.share is not None:
                self._waits = self._owner.account(self.share, monotonic_us(), more=True)
            self._pause_or_resume()
        if self.up and self.peer is not None:
            self._owner.events.on_peer_congested(self.peer, congested=False)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.transport = None
        self.out.clear()
        self._reader.makes_way = None
        self._reader.close()
        self._owner.handshakes.leave(self)
        self._owner.disconnected(self)

    def forsaken(self, trouble: str = "") -> bool:
        """Dialling was ended before it was told that the connection was made. False: it was not made.

        uvloop has closed the socket then; it does not tell the protocol, and the transport does not say that it is closing.
        """
        if self.transport is None:
            return False
        self.trouble = LogDeviceError(Status.CONNFAILED, trouble)
        self.connection_lost(None)
        return True

    def speak(self, introduced: Introduced) -> None:
        """Both sides have introduced themselves."""
        self.up = True
        self.peer = introduced.peer
        self._unspoken = introduced.unspoken

    def put(self, message: Any) -> None:
        """Put a frame into this turn's write, unless no frame holds the message or the peer does not know it."""
        try:
            pieces = encode_frame(message)
        except FrameTooLargeError as error:
            self._owner.leave_out(error)
            return
        if self._unspoken:
            pieces = self.spoken([pieces])
        self.out.extend(pieces)

    def spoken(self, frames: list[list[bytes]]) -> list[bytes]:
        """The pieces of those frames that the peer knows."""
        known = spoken(frames, self._unspoken)
        if len(known) < len(frames):
            self._owner.leave_out_unspoken(self, len(frames) - len(known))
        return [piece for frame in known for piece in frame]

    def queue(self, message: Any) -> None:
        """Put a frame into this turn's write."""
        self.put(message)

    def flush(self) -> None:
        """Hand this turn's frames to the socket in one write."""
        transport, out = self.transport, self.out
        if transport is None or transport.is_closing() or not out:
            out.clear()
            return
        self.out = []
        size = sum(map(len, out))
        self._owner.metrics.bytes_sent += size
        if self._tls is not None:
            try:
                transport.write(self._tls.write(out))
            except LogDeviceError as error:
                self._fail(error)
                return
        elif len(out) == 1:
            transport.write(out[0])
        elif size <= _JOINED_MAX:
            transport.write(b"".join(out))
        else:
            transport.writelines(out)
        waiting = transport.get_write_buffer_size()
        if waiting != self.output_bytes:
            self._owner.output_bytes += waiting - self.output_bytes
            self.output_bytes = waiting
        if waiting > self._owner.settings.output_bytes_max:
            self._owner.metrics.slow_peers_closed += 1
            self._owner.report(
                "does not read", f"{self.describe()} does not read: {waiting} bytes wait for it; connection closed"
            )
            self.abort()
        elif self._owner.output_bytes > self._owner.settings.output_bytes_total_max:
            self._owner.relieve()
        elif waiting > _DEAF_FACTOR * self._owner.settings.output_bytes_congested and not (self.dialled or self._deaf):
            self._deaf = True
            self._owner.metrics.reading_paused += 1
            self._pause_or_resume()

    def close(self) -> None:
        """Close when what is queued was sent."""
        if self.transport is not None:
            if self._tls is not None and self._tls.established:
                self._write(self._tls.close())
            self.transport.close()

    def abort(self) -> None:
        """Close at once; queued bytes are dropped."""
        if self.transport is not None:
            self.transport.abort()

    def state(self) -> ConnectionState:
        """How it stands, to look at."""
        transport = self.transport
        address = transport.get_extra_info("peername") if transport is not None else None
        pending = transport.get_write_buffer_size() if transport is not None else 0
        return ConnectionState(self.peer, address, self.dialled, self.up, pending, not self._reading)

    def address(self) -> str:
        """The host at the other end; empty when the connection is gone."""
        found = self.transport.get_extra_info("peername") if self.transport is not None else None
        return str(found[0]) if found else ""

    def describe(self) -> str:
        """For log lines."""
        address = self.transport.get_extra_info("peername") if self.transport is not None else None
        who = format_peer(self.peer) if self.peer is not None else "newcomer"
        return f"{who} at {address[0]}:{address[1]}" if address else who


class _Route(PeerRoute):
    """How a node is reached."""

    __slots__ = ("connection", "dialling", "trouble")

    def __init__(self) -> None:
        super().__init__()
        self.connection: _Connection | None = None
        self.dialling: asyncio.Task[None] | None = None
        self.trouble: LogDeviceError | None = None
        """Why the last try to reach it failed; None: it did not."""


class Transport:
    """All connections of one process."""

    def __init__(
        self,
        identity: Identity,
        events: TransportEvents,
        address_of: Callable[[NodeId], tuple[str, int] | None],
        *,
        settings: RuntimeSettings,
        rng: Rng,
        security: SecuritySettings | None = None,
        principals: Principals | None = None,
        tls: TlsContexts | None = None,
        check_token: CheckToken = no_tokens,
        newest_token: Callable[[], str | None] | None = None,
        is_alive: Callable[[NodeId], bool] = lambda node: True,
        local_host: str | None = None,
    ) -> None:
        """
        Args:
            security: what peers have to prove; None: nothing.
            principals: is told who clients are.
            tls: where the settings ask for TLS.
            check_token: who a token says its bearer is.
            newest_token: gives the token of this client for the next connection, None for the one before; None: it has one for ever.
            is_alive: whether a node counts as alive. Where it does not, a connection that nobody acknowledges is closed.
            local_host: the address from which nodes are dialled; None: any.
        """
        self.identity = identity
        self._newest_token = newest_token
        self.events = events
        self.settings = settings
        self.metrics = TransportMetrics()
        self._diagnostics = Diagnostics(log)
        self.loop = asyncio.get_running_loop()
        self._address_of = address_of
        self.introduction = Introduction(
            identity,
            lambda node: address_of(node) is not None,
            settings,
            lambda version: self.events.on_config_version(version),
            security=security,
            principals=principals,
            check_token=check_token,
        )
        self._tls: TlsContexts | None = None
        self.read_ciphertext_into = bytearray()
        """Where bytes of all TLS connections come, one connection at a time."""
        self.use_tls(tls)
        self._rng = rng
        self._routes: dict[PeerId, _Route] = {}
        self._clients: dict[PeerId, _Connection] = {}
        self._from_nodes: dict[PeerId, list[_Connection]] = {}
        """Accepted connections that introduced themselves as a node; the first counts as the node's."""
        self._connections: set[_Connection] = set()
        self.read_into = bytearray(_READ_SIZE)
        """Where bytes of all connections come, one connection at a time."""
        self.input_memory = InputMemory(settings.input_bytes_max)
        self.output_bytes = 0
        """What waits to be sent, as of when something was sent last to each."""
        self.shares = LoopShares(
            turn_us=settings.client_turn_us,
            clients_turn_us=settings.clients_turn_us,
            credit_us=settings.client_credit_us,
            share_percent=settings.client_share_percent,
            greedy_percent=settings.greedy_clients_percent,
        )
        self.handshakes: HandshakeQueue[_Connection] = HandshakeQueue()
        self._handshakes_next: asyncio.Handle | None = None
        """What lets handshakes go on in the next turn of the loop."""
        self._turn: asyncio.Handle | None = None
        """What begins the next turn of those in line."""
        self._turn_is_next = False
        """It is the next thing that the loop does; else it waits until somebody may go on."""
        self._look: asyncio.TimerHandle | None = None
        self._is_alive = is_alive
        self._local = None if local_host is None else (local_host, 0)
        self._look_for_dead: asyncio.TimerHandle | None = None
        self._dirty: dict[_Connection, None] = {}
        self._server: asyncio.Server | None = None
        self._closing = False

    @property
    def takes_tls(self) -> bool:
        """Connections may be TLS."""
        return self._tls is not None

    def use_tls(self, tls: TlsContexts | None) -> None:
        """Make connections from here on with these certificates; None: in clear text."""
        self._tls = tls
        if tls is not None:
            self._use_withdrawn(tls)
            self.read_ciphertext_into = self.read_ciphertext_into or bytearray(_CIPHERTEXT_SIZE)

    def accept_tls(self) -> TlsChannel:
        """For a connection that begins with TLS."""
        assert self._tls is not None
        return self._tls.accept()

    def look_at_certificates(self) -> None:
        """Read certificates and revoked numbers again if they changed; end connections that stand on what has expired or is revoked. A matter of
        microseconds where nothing has: to be called now and then."""
        if self._tls is None:
            return
        self.metrics.certificate_expiry = self._tls.expires
        self._end_fallen(self._tls)

    def _use_withdrawn(self, tls: TlsContexts) -> None:
        self.introduction.revoked, self.introduction.authorities = tls.revoked, tls.authorities

    def _end_fallen(self, tls: TlsContexts) -> None:
        tls.reload()
        self._use_withdrawn(tls)
        for connection, why in self.introduction.fallen(wall_us()):
            assert isinstance(connection, _Connection)
            self.metrics.connections_refused += 1
            self.report("proves nothing any more", f"{connection.describe()}: {why}; connection closed")
            connection.abort()

    async def listen(self, host: str, port: int) -> int:
        """Accept connections; the port, also when 0 asked for a free one. OSError when the address is taken."""
        return await self.listen_on(bind(host, port))

    async def listen_on(self, sock: socket.socket) -> int:
        """Accept connections on an address that `bind` has taken; its port."""
        self._server = await self.loop.create_server(lambda: _Connection(self, None), sock=sock, backlog=1024)
        return int(self._server.sockets[0].getsockname()[1])

    def send(self, to: PeerId, message: Any) -> None:
        """Queue a message until `flush`; a peer without connection is dialled first."""
        self.metrics.messages_sent += 1
        if to < 0:
            connection = self._clients.get(to)
        else:
            route = self._routes.get(to)
            connection = route.connection if route is not None else None
            if connection is None:
                self._wait(to, message)
                return
        if connection is None:
            self.metrics.messages_dropped += 1
            return
        connection.queue(message)
        self._dirty[connection] = None

    def flush(self) -> None:
        """Write what was queued: one write a connection."""
        dirty = self._dirty
        if dirty:
            self._dirty = {}
            for connection in dirty:
                connection.flush()

    def report(self, kind: str, text: str) -> None:
        """Warn about a peer; lines of one kind are limited."""
        self._diagnostics.warn(kind, text, monotonic_us())

    def connect(self, node: NodeId) -> None:
        """Dial a node if there is no connection to it."""
        route = self._route(PeerId(node))
        if route.connection is None and route.dialling is None:
            self._dial(PeerId(node), route)

    def disconnect(self, peer: PeerId) -> None:
        """Close the connection to a peer that broke a rule."""
        connection = self._clients.get(peer)
        if connection is None and peer in self._routes:
            connection = self._routes[peer].connection
        if connection is not None:
            connection.abort()

    @property
    def clients(self) -> list[PeerId]:
        """Connected clients."""
        return list(self._clients)

    def origin(self, peer: PeerId) -> str:
        """The address that a client comes from; empty: it is gone."""
        connection = self._clients.get(peer)
        address = None if connection is None else connection.state().address
        return f"{address[0]}:{address[1]}" if address else ""

    def connections(self) -> Iterator[ConnectionState]:
        """Every connection that is open at the first look, each as it stands when its turn comes."""
        for connection in list(self._connections):
            yield connection.state()

    def troubles(self) -> dict[PeerId, LogDeviceError]:
        """Nodes that the last try did not reach, and why: CONNFAILED, or the status with which the node refused us."""
        return {
            peer: route.trouble
            for peer, route in self._routes.items()
            if route.trouble is not None and route.connection is None
        }

    async def close(self) -> None:
        """Close everything; nothing is reported any more."""
        self._closing = True
        self._diagnostics.flush_all()
        if self._server is not None:
            self._server.close()
        self.flush()
        for look in (self._look, self._look_for_dead):
            if look is not None:
                look.cancel()
        if self._turn is not None:
            self._turn.cancel()
        if self._handshakes_next is not None:
            self._handshakes_next.cancel()
        tasks = [route.dialling for route in self._routes.values() if route.dialling is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in list(self._connections):
            connection.close()
        for _ in range(100):
            if not self._connections:
                break
            await asyncio.sleep(0.005)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)

    # Turns of connections

    def account(self, share: LoopShare, began: Micros, *, more: bool) -> bool:
        """Frames were handled since `began`. True: the connection is queued."""
        shares, now = self.shares, monotonic_us()
        waits = shares.use(share, now - began, now, more=more)
        if waits:
            self.metrics.turns_ended += 1
        if waits or shares.is_low:
            self._begin_turn_next()
        return waits

    def _begin_turn_next(self) -> None:
        if not self._turn_is_next and not self._closing:
            if self._turn is not None:
                self._turn.cancel()
            self._turn, self._turn_is_next = self.loop.call_soon(self._begin_turn), True

    def _begin_turn(self) -> None:
        """Other work of the loop was done since the last turn."""
        self._turn, self._turn_is_next = None, False
        shares = self.shares
        shares.begin_turn()
        while (share := shares.next(monotonic_us())) is not None:
            share.connection.go_on()
        wait = shares.wait_us(monotonic_us())
        if wait == 0:
            self._begin_turn_next()
        elif wait is not None and self._turn is None:
            self._turn = self.loop.call_later(wait / 1e6, self._begin_turn)

    # Handshakes

    def queue_handshake(self, connection: _Connection, *, answered: bool) -> None:
        """Bytes of an accepted connection's handshake came: it goes on when its turn comes."""
        self.handshakes.join(connection, answered=answered)
        if self._handshakes_next is None and not self._closing:
            self._handshakes_next = self.loop.call_soon(self._continue_handshakes)

    def _continue_handshakes(self) -> None:
        """At least one, and as many as there is time for in a turn."""
        self._handshakes_next = None
        until = monotonic_us() + _HANDSHAKES_US
        while (connection := self.handshakes.next()) is not None:
            connection.continue_handshake()
            if monotonic_us() >= until:
                break
        self.metrics.handshakes_queued = len(self.handshakes)
        if self.handshakes and not self._closing:
            self._handshakes_next = self.loop.call_soon(self._continue_handshakes)

    # Dialling

    def _route(self, peer: PeerId) -> _Route:
        route = self._routes.get(peer)
        if route is None:
            route = self._routes[peer] = _Route()
        return route

    def _wait(self, peer: PeerId, message: Any) -> None:
        route = self._route(peer)
        if route.dialling is None and route.pausing(monotonic_us()):
            self.metrics.messages_dropped += 1
            return
        try:
            pieces = encode_frame(message)
        except FrameTooLargeError as error:
            self.leave_out(error)
            return
        self.output_bytes += route.wait(pieces)
        settings = self.settings
        if route.waiting_bytes > settings.output_bytes_max or self.output_bytes > settings.output_bytes_total_max:
            self._drop_waiting(route)
            # an event of its own: this may be called within a turn
            self.loop.call_soon(self._tell_dropped, peer)
        if route.dialling is None:
            self._dial(peer, route)

    def leave_out(self, error: FrameTooLargeError) -> None:
        """A message is not sent: whatever made it grow, the connection and the process go on."""
        self.metrics.messages_too_large += 1
        self._diagnostics.warn("messages too large to send", f"a message was not sent: {error}", monotonic_us())

    def leave_out_unspoken(self, connection: _Connection, count: int) -> None:
        """Messages are not sent to a peer that would take them for damage: whoever sends them does without an answer."""
        self.metrics.messages_unspoken += count
        self.report(
            "messages of a later version",
            f"{connection.describe()} speaks an earlier version of the protocol; {count} messages that came later were not sent to it",
        )

    def _tell_dropped(self, peer: PeerId) -> None:
        if not self._closing:
            self.events.on_peer_down(peer, refused=False)

    def _drop_waiting(self, route: _Route) -> None:
        """What waits for a connection is not sent."""
        self.metrics.messages_dropped += len(route.waiting)
        self._take_waiting(route)

    def _take_waiting(self, route: _Route) -> list[list[bytes]]:
        self.output_bytes -= route.waiting_bytes
        return route.take()

    def relieve(self) -> None:
        """Much waits for all peers together: the client for which most waits is disconnected, if it is still so much."""
        for each in self._connections:
            waiting = each.transport.get_write_buffer_size() if each.transport is not None else 0
            self.output_bytes += waiting - each.output_bytes
            each.output_bytes = waiting
        if self.output_bytes > self.settings.output_bytes_total_max:
            worst = max(self._clients.values(), key=lambda each: each.output_bytes, default=None)
            if worst is not None and worst.output_bytes:
                self.metrics.slow_peers_closed += 1
                self.report(
                    "does not read",
                    f"{worst.describe()} does not read: {worst.output_bytes} bytes wait for it, {self.output_bytes} for all; connection closed",
                )
                worst.abort()

    # Begun frames

    def abandon(self, connection: _Connection, what: str) -> None:
        """Close a connection because of a frame that is not completed."""
        self.metrics.frames_abandoned += 1
        self.report("begun frame", f"{connection.describe()} {what}; connection closed")
        connection.abort()

    def _look_at_begun(self) -> None:
        """Close connections on which a begun frame does not go on."""
        if self._tls is not None:
            self._end_fallen(self._tls)  # clients have nobody else who looks
        pause = self.settings.frame_timeout_us / 1e6 / (_LOOKS + 1)
        least = max(1, int(_BEGUN_PROGRESS * pause))
        for connection in list(self._connections):
            if connection.look_at_begun(least):
                self.abandon(connection, "began a frame and does not go on with it")
        self.metrics.input_bytes = self.input_memory.used
        self._look = self.loop.call_later(pause, self._look_at_begun) if self._connections else None

    # Dead nodes

    def _look_at_dead(self) -> None:
        """Close connections to nodes that count as dead and acknowledge nothing. Who is cut off itself takes the others for dead, and does the same: it
        needs new connections, too."""
        dialled = [route.connection for route in self._routes.values() if route.connection is not None]
        accepted = [connection for standing in self._from_nodes.values() for connection in standing]
        for connection in [*dialled, *accepted]:
            assert connection.peer is not None, "both sides have introduced themselves"
            if connection.is_in_vain(dead=not self._is_alive(NodeId(connection.peer))):
                self.metrics.dead_peers_closed += 1
                self.report(
                    "dead node",
                    f"{connection.describe()} counts as dead and acknowledges nothing; connection closed",
                )
                connection.abort()
        again = dialled or accepted
        self._look_for_dead = self.loop.call_later(_DEAD_LOOK, self._look_at_dead) if again else None

    def _watch_for_dead(self) -> None:
        """There is a connection with a node."""
        if self._look_for_dead is None and not self._closing:
            self._look_for_dead = self.loop.call_later(_DEAD_LOOK, self._look_at_dead)

    def _dial(self, peer: PeerId, route: _Route, *, clear_text: bool = False) -> None:
        if self._closing:
            return
        route.dialling = self.loop.create_task(
            self._dial_once(peer, route, clear_text), name=f"dial {format_peer(peer)}"
        )

    def _may_fall_back(self, connection: _Connection) -> bool:
        """Whether a node that does not speak TLS may be dialled in clear text: while a cluster changes to TLS, by whoever has nothing to lose by it."""
        security = self.introduction.security
        return (
            connection.found_no_tls
            and security.tls == TLS_ACCEPT
            and not security.permissions
            and not self.identity.token
        )

    async def _dial_once(self, peer: PeerId, route: _Route, clear_text: bool) -> None:
        self.metrics.dials += 1
        refused = False
        if self._tls is not None:
            self._tls.reload()
            self._use_withdrawn(self._tls)
        if self._newest_token is not None:
            self.identity.token = self._newest_token() or self.identity.token
        tls = None if self._tls is None or clear_text else self._tls.dial()
        connection = _Connection(self, peer, tls)
        try:
            address = self._address_of(NodeId(peer))
            if address is None:
                raise OSError(f"{format_peer(peer)} is not in the cluster file")
            async with asyncio.timeout(self.settings.dial_timeout_us / 1e6):
                await self.loop.create_connection(lambda: connection, *address, local_addr=self._local)
            return  # acknowledged() or disconnected() goes on from here
        except asyncio.CancelledError:
            connection.forsaken()
            raise
        except TimeoutError:
            trouble = f"no connection within {self.settings.dial_timeout_us / 1e6:g} s"
            if connection.forsaken(trouble):
                return
        except ConnectionRefusedError:
            refused = True
            trouble = "nobody listens there"
        except (OSError, UnicodeError) as error:  # UnicodeError: the host is no name
            log.debug("cannot dial %s: %s", format_peer(peer), error)
            trouble = (error.strerror if isinstance(error, OSError) else None) or str(error)
        self._dial_failed(peer, route, LogDeviceError(Status.CONNFAILED, trouble), refused=refused)

    def _dial_failed(self, peer: PeerId, route: _Route, trouble: LogDeviceError, *, refused: bool) -> None:
        self.metrics.dials_failed += 1
        route.dialling = None
        route.trouble = trouble
        settings = self.settings
        route.failed(monotonic_us(), self._rng, pause_min=settings.redial_us_min, pause_max=settings.redial_us_max)
        self._drop_waiting(route)
        if not self._closing:
            self.events.on_peer_down(peer, refused=refused)

    # Called by connections

    def add(self, connection: _Connection) -> None:
        """A connection was made."""
        self._connections.add(connection)
        if self._look is None and not self._closing:
            self._look = self.loop.call_later(0, self._look_at_begun)

    def connected(self, connection: _Connection) -> None:
        """Introductions may begin."""
        self.add(connection)
        if connection.dialled:
            assert connection.peer is not None
            try:
                hello = self.introduction.hello(NodeId(connection.peer), connection.proof)
            except LogDeviceError as error:
                connection.trouble = error
                self.report("not the node that was dialled", f"{connection.describe()}: {error.detail}")
                connection.abort()
                return
            connection.queue(hello)
            connection.flush()
            return
        full = self.introduction.admission.arrived(connection, connection.address())
        if full is not None:
            self.metrics.connections_refused += 1
            self.report("too many connections", f"{connection.describe()} refused: {full}")
            connection.abort()
            return
        self.metrics.connections_accepted += 1
        displaced = self.introduction.admission.displaced()
        if displaced is not None:
            assert isinstance(displaced, _Connection)
            self.metrics.connections_refused += 1
            self.report("too many connections", f"{displaced.describe()} has not introduced itself and makes way")
            self.introduction.gone(displaced, None)
            displaced.abort()

    def acknowledged(self, connection: _Connection, introduced: Introduced) -> None:
        """The dialled side: the peer answered HELLO."""
        assert connection.peer is not None
        route = self._route(connection.peer)
        trouble, ack = introduced.trouble, introduced.ack
        if trouble is not None:
            connection.trouble = trouble
            refused = f"it refused us: {ack.status.name}: " if ack.status is not Status.OK else ""
            raise ProtocolError(f"{refused}{trouble.detail}")
        connection.speak(introduced)
        route.connection, route.dialling, route.trouble = connection, None, None
        route.connected()
        self._watch_for_dead()
        waiting = self._take_waiting(route)
        self.events.on_peer_up(connection.peer)
        connection.out += connection.spoken(waiting)
        connection.flush()

    def greeted(self, connection: _Connection, introduced: Introduced) -> None:
        """The accepting side: the peer introduced itself."""
        ack, peer = introduced.ack, introduced.peer
        connection.queue(ack)
        connection.flush()
        if peer is None:
            self.metrics.connections_refused += ack.status is Status.OVERLOADED
            self.report("introduction refused", f"{connection.describe()} refused: {ack.status.name}: {ack.detail}")
            connection.close()
            return
        connection.speak(introduced)
        if peer >= 0:
            self._from_nodes.setdefault(peer, []).append(connection)
            self._watch_for_dead()
        is_client = peer < 0 or self._from_nodes[peer][0] is not connection
        connection.share = self.shares.arrive(connection, monotonic_us(), is_client=is_client)
        if peer < 0:
            self._clients[peer] = connection
            self.events.on_peer_up(peer)

    def disconnected(self, connection: _Connection) -> None:
        self._connections.discard(connection)
        self.introduction.gone(connection, connection.peer)
        self.output_bytes -= connection.output_bytes
        connection.output_bytes = 0
        self._dirty.pop(connection, None)
        if connection.share is not None:
            self.shares.leave(connection.share)
        peer = connection.peer
        if peer is None or self._closing:
            return
        if connection.dialled:
            route = self._route(peer)
            if route.connection is connection:
                route.connection = None
                self.events.on_peer_down(peer, refused=False)
                self._dial(peer, route)  # a reset is redialled at once: only a refusal tells that the process is gone
            elif route.connection is None and route.dialling is not None and not connection.up:
                if self._may_fall_back(connection):
                    self._dial(peer, route, clear_text=True)
                    return
                self._dial_failed(peer, route, connection.trouble, refused=False)
        elif self._clients.get(peer) is connection:
            del self._clients[peer]
            self.events.on_peer_down(peer, refused=False)
        elif peer >= 0 and connection.up:
            self._forget(peer, connection)
            self.events.on_peer_down(peer, refused=False)

    def _forget(self, peer: PeerId, connection: _Connection) -> None:
        """An accepted connection of a node has ended: the next one counts as the node's."""
        standing = self._from_nodes[peer]
        standing.remove(connection)
        if not standing:
            del self._from_nodes[peer]
        elif (share := standing[0].share) is not None and share.is_client:
            self.shares.promote(share)


def bind(host: str, port: int) -> socket.socket:
    """Take an address without accepting connections yet: who dials it is refused. OSError when it is taken."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"cannot listen at {host}:{port}: {error.strerror}") from None
    return sock


def _tune(sock: socket.socket, settings: RuntimeSettings) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, settings.user_timeout_us // 1000)
    ask_rarely(sock)
