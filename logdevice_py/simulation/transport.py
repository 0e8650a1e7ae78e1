"""The connections of a simulated process: routes to nodes, clients, introductions, frames out and in. What production's `Transport` is on sockets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from logdevice_py.config.security import SecuritySettings
from logdevice_py.core.ids import NodeId, PeerId
from logdevice_py.core.machine import Machine, Rng
from logdevice_py.core.status import LogDeviceError, ProtocolError
from logdevice_py.core.units import Micros
from logdevice_py.protocol.framing import FrameReader, encode_frame
from logdevice_py.shell.introduction import Identity, Introduction, let_in, spoken
from logdevice_py.shell.proof import PeerProof, Principals
from logdevice_py.shell.route import PeerRoute
from logdevice_py.shell.settings import RuntimeSettings
from logdevice_py.simulation.connection import End
from logdevice_py.simulation.network import Network
from logdevice_py.simulation.scheduler import Scheduled, Scheduler
from logdevice_py.simulation.trace import Trace


class TransportOwner(Protocol):
    """The process."""

    name: str
    """In the trace."""
    machine: Machine

    def now(self) -> Micros:
        """What the process takes for the time."""

    def run(self, action: Callable[[], None]) -> None:
        """Do something at once, or when the process runs again; never, if it has ended."""

    def schedule(self) -> None:
        """A turn is due."""

    def on_peer_down(self, peer: PeerId, *, refused: bool) -> None:
        """Messages under way to or from a peer may be lost. refused: nobody listens there."""


class _Route(PeerRoute):
    """How a node is reached."""

    __slots__ = ("dialling", "end")

    def __init__(self) -> None:
        super().__init__()
        self.end: End | None = None
        self.dialling = False


@dataclass(slots=True)
class _Newcomer:
    """A connection whose other end has not introduced itself."""

    dialled: PeerId | None
    """The node that this process dialled; None: somebody else dialled."""
    timeout: Scheduled


class SimTransport:
    """All connections of one process. It runs only while the process does."""

    def __init__(
        self,
        owner: TransportOwner,
        address: int,
        identity: Identity,
        is_member: Callable[[NodeId], bool],
        network: Network,
        rng: Rng,
        trace: Trace,
        settings: RuntimeSettings,
        security: SecuritySettings,
        principals: Principals,
        is_alive: Callable[[NodeId], bool],
    ) -> None:
        """
        Args:
            address, identity, is_member, is_alive: of the process, as there.
            rng: of the process: for pauses between dials.
            principals: is told who clients are.
        """
        self._owner = owner
        self._machine = owner.machine
        self._address = address
        self._network = network
        self._scheduler: Scheduler = network.scheduler
        self._rng = rng
        self._trace = trace
        self._settings = settings
        self._is_alive = is_alive
        # a newer cluster file comes to each machine in its own time: hearing of it does not bring it
        self._introduction = Introduction(
            identity, is_member, settings, lambda version: None, security=security, principals=principals
        )
        self._routes: dict[PeerId, _Route] = {}
        self._clients: dict[PeerId, End] = {}
        self._peers: dict[End, PeerId] = {}
        self._newcomers: dict[End, _Newcomer] = {}
        self._unspoken: dict[End, frozenset[int]] = {}
        """Numbers of the messages that peers of an earlier version do not know."""
        self._readers: dict[End, FrameReader] = {}
        self._out: dict[End, list[bytes]] = {}
        """Frames of this turn."""
        self._encoded: Any = None
        self._frames: list[bytes] = []
        """Of the message before, which may go to several peers in one turn."""

    def address_of(self, client: PeerId) -> int | None:
        """Where the client of a connection is; None: the connection is gone, though answers to it may still be on their way out."""
        connection = self._clients.get(client)
        return None if connection is None else connection.other.host.address

    def peer_of(self, end: End) -> PeerId | None:
        """Who is at the other end, if both sides have introduced themselves."""
        return self._peers.get(end)

    # Messages out

    def send(self, to: PeerId, message: Any) -> None:
        """See `Sink`."""
        if self._trace.on_sent is not None:
            self._trace.on_sent(self._scheduler.now, self._owner.name, to, message)
        if to < 0:
            end = self._clients.get(to)
            if end is not None:
                self._transmit(end, message)
            return
        route = self._route(to)
        if route.end is not None:
            self._transmit(route.end, message)
            return
        if not route.dialling and route.pausing(self._owner.now()):
            return
        route.wait(self._encode(message))
        if route.waiting_bytes > self._network.settings.output_bytes_max:
            route.take()
            # as in production: an event of its own, since this may be called within a turn
            self._scheduler.at(
                self._scheduler.now, lambda: self._owner.run(lambda: self._owner.on_peer_down(to, refused=False))
            )
        if not route.dialling:
            self._dial(to, route)

    def _transmit(self, end: End, message: Any) -> None:
        out = self._out.get(end)
        if out is None:
            out = self._out[end] = []
        frame = self._encode(message)
        if self._unspoken and not spoken([frame], self._unspoken.get(end, frozenset())):
            return
        out += frame

    def _encode(self, message: Any) -> list[bytes]:
        if message is not self._encoded:
            self._encoded, self._frames = message, encode_frame(message)
        return self._frames

    def flush(self) -> None:
        """See `Sink`."""
        if not self._out:
            return
        written, self._out = self._out, {}
        self._encoded = None
        for end, frames in written.items():
            data = frames[0] if len(frames) == 1 else b"".join(frames)
            self._trace.cover(data)
            end.send(data)
        if self._network.blocks and self._network.settings.closes_dead:
            self._close_dead()

    def _close_dead(self) -> None:
        """As in production: a connection to a node that counts as dead is closed when nothing that was sent arrives."""
        for peer, route in self._routes.items():
            end = route.end
            if end is not None and end.held and not self._is_alive(NodeId(peer)):
                self._trace.note(self._scheduler.now, self._owner.name, "closes the connection to dead", peer)
                # an event of its own, since this is called within a turn
                self._scheduler.at(self._scheduler.now, lambda end=end: self._network.abandon(end))  # type: ignore[misc]

    def connect(self, node: int) -> None:
        """Dial a node if there is no connection to it."""
        route = self._route(PeerId(node))
        if route.end is None and not route.dialling:
            self._dial(PeerId(node), route)

    def _route(self, peer: PeerId) -> _Route:
        route = self._routes.get(peer)
        if route is None:
            route = self._routes[peer] = _Route()
        return route

    def _dial(self, peer: PeerId, route: _Route) -> None:
        route.dialling = True

        def outcome(end: End | None, refused: bool) -> None:
            self._owner.run(lambda: self._dialled(peer, route, end, refused))

        self._network.dial(self._address, peer, outcome)

    def _dialled(self, peer: PeerId, route: _Route, end: End | None, refused: bool) -> None:
        if end is None:
            self._dial_failed(peer, route, "no connection" if not refused else "refused", refused=refused)
        elif end.known_lost:
            self._dial_failed(peer, route, "no connection", refused=False)
        else:
            try:
                hello = self._introduction.hello(NodeId(peer), self._proof(end))
            except LogDeviceError as error:
                end.abort()
                self._dial_failed(peer, route, error.detail, refused=False)
                return
            self._await_introduction(end, peer)
            self._put(end, hello)

    def _proof(self, end: End) -> PeerProof:
        """What the other end proves: nobody proves to be at an address where he is not."""
        return self._network.proofs.get(end.other.host.address, self._network.stranger)

    def _dial_failed(self, peer: PeerId, route: _Route, what: str, *, refused: bool) -> None:
        route.dialling = False
        settings = self._settings
        route.failed(self._owner.now(), self._rng, pause_min=settings.redial_us_min, pause_max=settings.redial_us_max)
        route.take()
        self._trace.note(self._scheduler.now, self._owner.name, what, peer)
        self._owner.on_peer_down(peer, refused=refused)

    # Introductions

    def accepted(self, end: End) -> None:
        """Somebody dialled."""
        if end.known_lost:
            return
        admission = self._introduction.admission
        full = admission.arrived(end, str(end.other.host.address))
        if full is not None:
            self._turn_away(end, full)
            return
        self._await_introduction(end, None)
        displaced = admission.displaced()
        if displaced is not None:
            assert isinstance(displaced, End)
            self._turn_away(displaced, "makes way")
            self.lost(displaced)

    def _turn_away(self, end: End, why: str) -> None:
        self._trace.note(self._scheduler.now, self._owner.name, "turns away", why)
        end.abort()

    def _await_introduction(self, end: End, dialled: PeerId | None) -> None:
        def silent() -> None:
            if end in self._newcomers:
                self._turn_away(end, "no introduction")
                self.lost(end)

        timeout = self._scheduler.after(self._settings.hello_timeout_us, lambda: self._owner.run(silent))
        self._newcomers[end] = _Newcomer(dialled, timeout)

    def _put(self, end: End, message: Any) -> None:
        self._show_introduction(end, message, came=False)
        data = b"".join(encode_frame(message))
        self._trace.cover(data)
        end.send(data)

    def _show_introduction(self, end: End, message: Any, *, came: bool) -> None:
        if self._trace.on_introduction is not None:
            address = end.other.host.address
            self._trace.on_introduction(self._scheduler.now, self._owner.name, address, message, came)

    def _introduce(self, end: End, first: Any, *, more: bool) -> None:
        """The introduction of the peer is there."""
        newcomer = self._newcomers[end]
        self._show_introduction(end, first, came=True)
        introduced = self._introduction.receive(end, first, more=more, dialled=newcomer.dialled, proof=self._proof(end))
        if newcomer.dialled is None:
            self._put(end, introduced.ack)
        peer = introduced.peer
        if peer is None:
            self._turn_away(end, f"{introduced.ack.status.name}: {introduced.ack.detail}")
            self.lost(end)
            return
        newcomer.timeout.cancel()
        del self._newcomers[end]
        self._peers[end] = peer
        let_in(self._readers[end], peer)
        if introduced.unspoken:
            self._unspoken[end] = introduced.unspoken
        if newcomer.dialled is not None:
            self._reached(peer, end, introduced.unspoken)
        elif peer < 0:
            self._clients[peer] = end
            self._machine.on_peer_up(peer, self._owner.now())
            self._owner.schedule()

    def _reached(self, peer: PeerId, end: End, unspoken: frozenset[int]) -> None:
        """The node that was dialled has answered."""
        route = self._route(peer)
        route.end, route.dialling = end, False
        route.connected()
        self._trace.note(self._scheduler.now, self._owner.name, "connected", peer)
        self._machine.on_peer_up(peer, self._owner.now())
        waiting = spoken(route.take(), unspoken)
        if waiting:
            self._out.setdefault(end, []).extend(piece for frame in waiting for piece in frame)
            self.flush()
        self._owner.schedule()

    # Bytes in

    def received(self, end: End, data: bytes) -> None:
        """Bytes came."""
        peer = self._peers.get(end)
        if peer is None and end not in self._newcomers:
            return  # a connection that ended while the process was paused
        reader = self._readers.get(end)
        if reader is None:
            reader = self._readers[end] = self._network.reader(dialled=self._newcomers[end].dialled is not None)
        trace = self._trace
        trace.cover(data)
        try:
            messages = reader.feed(data)
            if peer is None:
                if messages:
                    self._introduce(end, messages[0], more=len(messages) > 1 or reader.pending > 0)
                peer = self._peers.get(end)
                del messages[:1]
                if peer is None or not messages:
                    return
        except ProtocolError as error:
            self._refuse(end, error)
            return
        now, true_now = self._owner.now(), self._scheduler.now
        on_message = self._machine.on_message
        show, name = trace.received, self._owner.name
        for message in messages:
            show(true_now, name, peer, message)
            on_message(peer, message, now)
        self._owner.schedule()

    def _refuse(self, end: End, error: ProtocolError) -> None:
        """As in production: a bad frame closes its connection, and what came with it is not looked at."""
        self._network.effects["refused_frames"] += 1
        self._trace.note(self._scheduler.now, self._owner.name, "closes", error)
        if not end.known_lost:
            end.abort()
        self.lost(end)

    def lost(self, end: End) -> None:
        """A connection is gone."""
        peer = self._peers.pop(end, None)
        self._readers.pop(end, None)
        self._out.pop(end, None)
        self._unspoken.pop(end, None)
        self._introduction.gone(end, peer)
        if peer is None:
            newcomer = self._newcomers.pop(end, None)
            if newcomer is not None:
                newcomer.timeout.cancel()
                if newcomer.dialled is not None:
                    self._dial_failed(newcomer.dialled, self._route(newcomer.dialled), "no connection", refused=False)
            return
        self._trace.note(self._scheduler.now, self._owner.name, "lost", peer)
        if peer < 0:
            del self._clients[peer]
            self._owner.on_peer_down(peer, refused=False)
        else:
            route = self._routes.get(peer)
            if route is not None and route.end is end:
                route.end = None
                self._owner.on_peer_down(peer, refused=False)
                self._dial(peer, route)  # as in production: a reset is redialled at once
            else:
                self._owner.on_peer_down(peer, refused=False)
