"""A simulated process: runs one machine as the production driver does, over simulated connections and clocks.

Events are handed to the machine as they come; a little later a turn is run (`shell/turn.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from logdevice_py.core.ids import PeerId
from logdevice_py.core.machine import Machine, Outbox, Rng, Send, TimerWheel
from logdevice_py.core.status import ProtocolError
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from logdevice_py.protocol.framing import FrameReader, encode_frame
from logdevice_py.shell.route import PeerRoute
from logdevice_py.shell.turn import Turn
from logdevice_py.simulation.clock import SimClock
from logdevice_py.simulation.connection import End
from logdevice_py.simulation.network import Network
from logdevice_py.simulation.scheduler import Scheduled, Scheduler
from logdevice_py.simulation.trace import Trace

REDIAL_MIN = 50 * MILLISECOND
REDIAL_MAX = SECOND


class _Route(PeerRoute):
    """How a node is reached."""

    __slots__ = ("dialling", "end")

    def __init__(self) -> None:
        super().__init__()
        self.end: End | None = None
        self.dialling = False


@dataclass(slots=True)
class _Death:
    """An effect: the process ends here."""

    then: Callable[[], None]


class Process:
    """One run of a machine, until `kill`."""

    def __init__(
        self,
        name: str,
        address: int,
        machine: Machine,
        outbox: Outbox,
        timers: TimerWheel,
        *,
        effects: Mapping[type, Callable[[list[Any]], None]],
        network: Network,
        clock: SimClock,
        rng: Rng,
        trace: Trace,
        turn_max: int,
        check: Callable[[], None] | None = None,
        on_congestion: Callable[[PeerId, bool, Micros], None] = lambda peer, congested, now: None,
    ) -> None:
        """
        Args:
            name: in the trace.
            address: of its machine in the network; its peer id, if it is a node.
            machine: the root whose events and effects are run.
            outbox: where the machine puts its effects.
            timers: the machine's timers.
            effects: for each type of effect but `Send`, what runs all effects of that type of one turn. An outcome that is known at
                once goes through `complete`, a later one through `event`.
            turn_max: a turn ends up to so many microseconds after its first event.
            check: called after every turn: asserts what must hold.
            on_congestion: an event of the machine: much waits for a peer, or that is over.
        """
        self.name = name
        self.address = address
        self.machine = machine
        self.alive = True
        self._outbox = outbox
        self._timers = timers
        self._turn = Turn(
            machine,
            self._take_effects,
            timers,
            {**effects, _Death: lambda deaths: deaths[0].then()},
            own=PeerId(address) if address >= 0 else None,
            sink=self,
        )
        self.complete = self._turn.complete
        """Hand over the outcome of an effect from within the function that runs it."""
        self._network = network
        self._scheduler: Scheduler = network.scheduler
        self._clock = clock
        self._rng = rng
        self._trace = trace
        self._turn_span = turn_max + 1
        self._check = check
        self._on_congestion = on_congestion
        self._turn_scheduled = False
        self._wake: Scheduled | None = None
        self._wake_at = 0
        self._backlog: list[Callable[[], None]] | None = None
        self._routes: dict[PeerId, _Route] = {}
        self._clients: dict[PeerId, End] = {}
        self._peers: dict[End, PeerId] = {}
        self._readers: dict[End, FrameReader] = {}
        self._out: dict[End, list[bytes]] = {}
        """Frames of this turn."""
        self._encoded: Any = None
        self._frames: list[bytes] = []
        """Of the message before, which may go to several peers in one turn."""
        self._cut: tuple[float, Callable[[], None]] | None = None
        self._next_client = -1
        network.listen(address, self)

    # Life

    @property
    def paused(self) -> bool:
        """It does not run at present; what comes for it waits."""
        return self._backlog is not None

    @property
    def waiting(self) -> int:
        """How many events came while it was paused."""
        return len(self._backlog or ())

    def pause(self) -> None:
        """Stop running until `resume`."""
        if self._backlog is None:
            self._backlog = []

    def resume(self) -> None:
        """Run on, first with what came in the meantime."""
        backlog, self._backlog = self._backlog, None
        for action in backlog or ():
            self._run(action)

    def kill(self, *, machine: bool) -> None:
        """No event reaches the machine any more, no effect is run."""
        self.alive = False
        self._turn.stop()
        self._backlog = None
        if self._wake is not None:
            self._wake.cancel()
        self._network.die(self.address, machine=machine)

    def _run(self, action: Callable[[], None]) -> None:
        if not self.alive:
            return
        if self._backlog is not None:
            self._backlog.append(action)
        else:
            action()

    # Events

    def now(self) -> Micros:
        """What the process takes for the time."""
        return self._clock.monotonic()

    def event(self, handler: Callable[[Micros], None]) -> None:
        """Hand one event to the machine: ``handler(now)`` calls one of its methods."""

        if self._backlog is not None:
            self._backlog.append(lambda: self.event(handler))
        elif self.alive:
            handler(self._clock.monotonic())
            self._schedule()

    # Turns

    def address_of(self, client: PeerId) -> int | None:
        """Where the client of a connection is; None: the connection is gone, though answers to it may still be on their way out."""
        connection = self._clients.get(client)
        return None if connection is None else connection.other.host.address

    def cut_next_turn(self, share: float, then: Callable[[], None]) -> None:
        """Run only a part of the effects of the next turn that has any, then call `then`, which kills the process.

        Args:
            share: how much of the effects is run, from 0 to 1.
        """
        self._cut = (share, then)

    def spare_next_turn(self) -> None:
        """Take `cut_next_turn` back, if no turn was cut yet."""
        self._cut = None

    def _schedule(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            scheduler = self._scheduler
            scheduler.post(scheduler.now + int(self._rng.random() * self._turn_span), self._on_turn, None)

    def _on_turn(self, _: None) -> None:
        if self._backlog is not None:
            self._backlog.append(self._end_turn)
        elif self.alive:
            self._end_turn()

    def _end_turn(self) -> None:
        self._turn_scheduled = False
        more = self._turn.run(self._clock.monotonic)
        if not self.alive:
            return
        if self._check is not None:
            self._check()
        if more:
            self._schedule()
        self._arm()

    def _take_effects(self) -> list[Any]:
        """What the machine put out; less, and the end of the process, where a turn is to be cut."""
        effects = self._outbox.take()
        if self._trace.on_sent is not None:
            for effect in effects:
                if type(effect) is Send and effect.to == self.address:
                    self._trace.on_sent(self._scheduler.now, self.name, effect.to, effect.message)
        if self._cut is None or not effects:
            return effects
        share, then = self._cut
        self._cut = None
        ordered = sorted(effects, key=lambda effect: type(effect) is not Send)
        return [*ordered[: int(share * (len(ordered) + 1))], _Death(then)]

    def _arm(self) -> None:
        deadline = self._timers.next_deadline()
        if deadline is None:
            return
        if self._wake is not None:
            if self._wake_at <= deadline:
                return
            self._wake.cancel()
        self._wake_at = deadline
        self._wake = self._scheduler.at(self._clock.true_time(deadline), self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        self.event(self._timers.advance)

    # Messages out

    def send(self, to: PeerId, message: Any) -> None:
        """See `Sink`."""
        if self._trace.on_sent is not None:
            self._trace.on_sent(self._scheduler.now, self.name, to, message)
        if to < 0:
            end = self._clients.get(to)
            if end is not None:
                self._transmit(end, message)
            return
        route = self._route(to)
        if route.end is not None:
            self._transmit(route.end, message)
            return
        if not route.dialling and route.pausing(self.now()):
            return
        route.wait(self._encode(message))
        if route.waiting_bytes > self._network.settings.output_bytes_max:
            route.take()
            # as in production: an event of its own, since this may be called within a turn
            self._scheduler.at(self._scheduler.now, lambda: self._run(lambda: self._down(to, refused=False)))
        if not route.dialling:
            self._dial(to, route)

    def _transmit(self, end: End, message: Any) -> None:
        out = self._out.get(end)
        if out is None:
            out = self._out[end] = []
        out += self._encode(message)

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
            self._run(lambda: self._dialled(peer, route, end, refused))

        self._network.dial(self.address, peer, outcome)

    def _dialled(self, peer: PeerId, route: _Route, end: End | None, refused: bool) -> None:
        route.dialling = False
        if end is None:
            route.failed(self.now(), self._rng, pause_min=REDIAL_MIN, pause_max=REDIAL_MAX)
            route.take()
            self._trace.note(self._scheduler.now, self.name, "no connection" if not refused else "refused", peer)
            self._down(peer, refused=refused)
            return
        route.end = end
        route.connected()
        self._peers[end] = peer
        self._trace.note(self._scheduler.now, self.name, "connected", peer)
        self.machine.on_peer_up(peer, self.now())
        waiting = route.take()
        if waiting:
            self._out.setdefault(end, []).extend(piece for frame in waiting for piece in frame)
            self.flush()
        self._schedule()

    # Listener

    def accepted(self, end: End, dialler: int) -> None:
        """See `Listener`."""

        def run() -> None:
            if end.known_lost:
                return
            end.acknowledge()
            if dialler >= 0:
                self._peers[end] = PeerId(dialler)
                return
            peer = PeerId(self._next_client)
            self._next_client -= 1
            self._peers[end] = peer
            self._clients[peer] = end
            self.machine.on_peer_up(peer, self.now())
            self._schedule()

        self._run(run)

    def received(self, end: End, data: bytes) -> None:
        """See `Listener`."""
        if self._backlog is not None:
            self._backlog.append(lambda: self.received(end, data))
            return
        if not self.alive:
            return
        peer = self._peers.get(end)
        if peer is None:
            return  # a connection that ended while the process was paused
        reader = self._readers.get(end)
        if reader is None:
            reader = self._readers[end] = self._network.reader()
        trace = self._trace
        trace.cover(data)
        try:
            messages = reader.feed(data)
        except ProtocolError as error:
            self._refuse(end, error)
            return
        now, true_now = self._clock.monotonic(), self._scheduler.now
        on_message = self.machine.on_message
        show, name = trace.received, self.name
        for message in messages:
            show(true_now, name, peer, message)
            on_message(peer, message, now)
        self._schedule()

    def _refuse(self, end: End, error: ProtocolError) -> None:
        """As in production: a bad frame closes its connection, and what came with it is not looked at."""
        self._network.effects["refused_frames"] += 1
        self._trace.note(self._scheduler.now, self.name, "closes", error)
        if not end.known_lost:
            end.abort()
        self._lost(end)

    def congested(self, end: End, congested: bool) -> None:
        """See `Listener`."""

        def run() -> None:
            peer = self._peers.get(end)
            if peer is not None:
                self._on_congestion(peer, congested, self.now())
                self._schedule()

        # it is told from within a turn, and is an event of its own
        self._scheduler.at(self._scheduler.now, lambda: self._run(run))

    def lost(self, end: End) -> None:
        """See `Listener`."""
        self._run(lambda: self._lost(end))

    def _lost(self, end: End) -> None:
        peer = self._peers.pop(end, None)
        self._readers.pop(end, None)
        self._out.pop(end, None)
        if peer is None:
            return
        self._trace.note(self._scheduler.now, self.name, "lost", peer)
        if peer < 0:
            del self._clients[peer]
            self._down(peer, refused=False)
        else:
            route = self._routes.get(peer)
            if route is not None and route.end is end:
                route.end = None
                self._down(peer, refused=False)
                self._dial(peer, route)  # as in production: a reset is redialled at once
            else:
                self._down(peer, refused=False)

    def _down(self, peer: PeerId, *, refused: bool) -> None:
        self._turn.on_peer_down(peer)
        self.machine.on_peer_down(peer, self.now(), refused=refused)
        self._schedule()
