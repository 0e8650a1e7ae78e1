"""A simulated process: runs one machine as the production driver does, over simulated connections and clocks.

Events are handed to the machine as they come; a little later a turn is run (`shell/turn.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from logdevice_py.config.security import SecuritySettings
from logdevice_py.core.ids import NodeId, PeerId
from logdevice_py.core.machine import Machine, Outbox, Rng, Send, TimerQueue
from logdevice_py.core.units import Micros
from logdevice_py.shell.introduction import Identity
from logdevice_py.shell.proof import Principals
from logdevice_py.shell.settings import RuntimeSettings
from logdevice_py.shell.turn import Turn
from logdevice_py.simulation.clock import SimClock
from logdevice_py.simulation.connection import End
from logdevice_py.simulation.network import Network
from logdevice_py.simulation.scheduler import Scheduled, Scheduler
from logdevice_py.simulation.trace import Trace
from logdevice_py.simulation.transport import SimTransport


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
        timers: TimerQueue,
        *,
        identity: Identity,
        is_member: Callable[[NodeId], bool],
        effects: Mapping[type, Callable[[list[Any]], None]],
        network: Network,
        clock: SimClock,
        rng: Rng,
        trace: Trace,
        turn_max: int,
        settings: RuntimeSettings | None = None,
        security: SecuritySettings | None = None,
        principals: Principals | None = None,
        is_alive: Callable[[NodeId], bool] = lambda node: True,
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
            identity: what it says of itself on its connections.
            is_member: whether a node is in its cluster file.
            effects: for each type of effect but `Send`, what runs all effects of that type of one turn. An outcome that is known at
                once goes through `complete`, a later one through `event`.
            turn_max: a turn ends up to so many microseconds after its first event.
            settings: of its connections.
            security: what its peers have to prove.
            principals: is told who its clients are.
            is_alive: whether a node counts as alive for it.
            check: called after every turn: asserts what must hold.
            on_congestion: an event of the machine: much waits for a peer, or that is over.
        """
        self.name = name
        self.address = address
        self.machine = machine
        self.alive = True
        self.identity = identity
        self._outbox = outbox
        self._timers = timers
        self._network = network
        self._scheduler: Scheduler = network.scheduler
        self._clock = clock
        self._rng = rng
        self._trace = trace
        self._transport = SimTransport(
            self,
            address,
            identity,
            is_member,
            network,
            rng,
            trace,
            settings or RuntimeSettings(),
            security or SecuritySettings(),
            Principals() if principals is None else principals,
            is_alive,
        )
        self._turn = Turn(
            machine,
            self._take_effects,
            timers,
            {**effects, _Death: lambda deaths: deaths[0].then()},
            own=PeerId(address) if address >= 0 else None,
            sink=self._transport,
        )
        self.complete = self._turn.complete
        """Hand over the outcome of an effect from within the function that runs it."""
        self._turn_span = turn_max + 1
        self._check = check
        self._on_congestion = on_congestion
        self._turn_scheduled = False
        self._wake: Scheduled | None = None
        self._wake_at = 0
        self._backlog: list[Callable[[], None]] | None = None
        self._cut: tuple[float, Callable[[], None]] | None = None
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
            self.run(action)

    def kill(self, *, machine: bool) -> None:
        """No event reaches the machine any more, no effect is run."""
        self.alive = False
        self._turn.stop()
        self._backlog = None
        if self._wake is not None:
            self._wake.cancel()
        self._network.die(self.address, machine=machine)

    def run(self, action: Callable[[], None]) -> None:
        """Do something at once, or when the process runs again; never, if it has ended."""
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
            self.schedule()

    # Turns

    def address_of(self, client: PeerId) -> int | None:
        """Where the client of a connection is; None: the connection is gone, though answers to it may still be on their way out."""
        return self._transport.address_of(client)

    def cut_next_turn(self, share: float, then: Callable[[], None]) -> None:
        """Run only a part of the effects of the next turn that has any, then call `then`, which kills the process.

        Args:
            share: how much of the effects is run, from 0 to 1.
        """
        self._cut = (share, then)

    def spare_next_turn(self) -> None:
        """Take `cut_next_turn` back, if no turn was cut yet."""
        self._cut = None

    def schedule(self) -> None:
        """A turn is due."""
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
            self.schedule()
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

    # Connections

    def connect(self, node: int) -> None:
        """Dial a node if there is no connection to it."""
        self._transport.connect(node)

    def accepted(self, end: End) -> None:
        """See `Listener`."""
        self.run(lambda: self._transport.accepted(end))

    def received(self, end: End, data: bytes) -> None:
        """See `Listener`."""
        if self._backlog is not None:
            self._backlog.append(lambda: self.received(end, data))
        elif self.alive:
            self._transport.received(end, data)

    def congested(self, end: End, congested: bool) -> None:
        """See `Listener`."""

        def tell() -> None:
            peer = self._transport.peer_of(end)
            if peer is not None:
                self._on_congestion(peer, congested, self.now())
                self.schedule()

        # it is told from within a turn, and is an event of its own
        self._scheduler.at(self._scheduler.now, lambda: self.run(tell))

    def lost(self, end: End) -> None:
        """See `Listener`."""
        self.run(lambda: self._transport.lost(end))

    def on_peer_down(self, peer: PeerId, *, refused: bool) -> None:
        """Messages under way to or from a peer may be lost. refused: nobody listens there."""
        self._turn.on_peer_down(peer)
        self.machine.on_peer_down(peer, self.now(), refused=refused)
        self.schedule()
