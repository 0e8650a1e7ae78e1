"""The turns of one machine: in which order its effects are run, and which of its messages wait.

A turn: events were handed to the machine; `on_turn_end` is called once; then all effects are run. Messages leave before anything else is done,
since others work on them meanwhile; then the effects of each other kind, in the order in which the kinds were first put out. Outcomes
that are known at once and messages to the own node are delivered within the turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from logdevice_py.core.ids import PeerId
from logdevice_py.core.machine import Machine, Send, Timer, TimerQueue
from logdevice_py.core.units import Micros
from logdevice_py.shell.outgoing import Outgoing

ROUNDS_MAX: Final = 6
"""How often messages to the own node and outcomes are delivered within a turn before other events get their share."""


class Sink(Protocol):
    """Where messages to other processes go."""

    def send(self, to: PeerId, message: Any) -> None:
        """Queue a message until `flush`."""

    def flush(self) -> None:
        """Write what was queued: one write a peer."""


class Turn:
    """Runs the effects of one machine. Whoever owns the clock calls `run` after events, and the machine's timers when they are due."""

    def __init__(
        self,
        machine: Machine,
        take: Callable[[], list[Any]],
        timers: TimerQueue,
        effects: Mapping[type, Callable[[list[Any]], None]],
        *,
        own: PeerId | None,
        sink: Sink | None = None,
    ) -> None:
        """
        Args:
            machine: the root whose effects are run.
            take: the effects that the machine has put out since it was called last, in order.
            timers: the machine's timers; messages that wait have theirs there.
            effects: for each type of effect but `Send`, what runs all effects of that type of one round. An outcome that is known at
                once goes through `complete`.
            own: messages to this peer are delivered to the machine itself.
            sink: gets the messages to others; None: they are dropped until there is one.
        """
        self.sink = sink
        self._machine = machine
        self._take = take
        self._timers = timers
        self._effects = effects
        self._own = own
        self._local: deque[Any] = deque()
        self._completions: deque[Callable[[Micros], None]] = deque()
        self._outgoing: dict[PeerId, Outgoing] = {}
        """Of the peers to which deferrable messages went: nodes, since nothing for a client is deferrable."""
        if own is not None:
            self._outgoing[own] = Outgoing(company=True)
        self._waiting: dict[PeerId, Outgoing] = {}
        """Those in which messages wait."""
        self._expiry: Timer | None = None
        self._round = 0
        self._stopped = False

    def complete(self, handler: Callable[[Micros], None]) -> None:
        """Take the outcome of an effect from within the function that runs it; it is delivered later in the same turn."""
        self._completions.append(handler)

    def run(self, clock: Callable[[], Micros]) -> bool:
        """One turn. True: there is more to do in another one, after other events had their share."""
        machine, local, completions = self._machine, self._local, self._completions
        for _ in range(ROUNDS_MAX):
            now = clock()
            while completions:
                completions.popleft()(now)
            while local:
                assert self._own is not None
                machine.on_message(self._own, local.popleft(), now)
            machine.on_turn_end(now)
            effects = self._take()
            if effects:
                self._run_effects(effects, now)
            if self._stopped or not (local or completions):
                return False
        return True

    def _run_effects(self, effects: list[Any], now: Micros) -> None:
        self._round += 1
        grouped: dict[type, list[Any]] | None = None
        sink, outgoing = self.sink, self._outgoing
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                to = effect.to
                if effect.deferrable or to in outgoing:
                    self._send(effect, now)
                elif sink is not None:
                    sink.send(to, effect.message)
            elif grouped is None:
                grouped = {kind: [effect]}
            else:
                grouped.setdefault(kind, []).append(effect)
        if sink is not None:
            sink.flush()
        if grouped is not None:
            for kind, same in grouped.items():
                self._effects[kind](same)

    def _send(self, send: Send, now: Micros) -> None:
        """A message to a peer to which deferrable ones go."""
        to = send.to
        outgoing = self._outgoing.get(to)
        if outgoing is None:
            outgoing = self._outgoing[to] = Outgoing()
        if not send.deferrable:
            if outgoing.waiting:
                del self._waiting[to]
                self._set_expiry()
            self._pass_on(to, outgoing.put(send.message, self._round, now))
            return
        self._pass_on(to, outgoing.put_deferrable(send.message, self._round, now))
        if outgoing.waiting and to not in self._waiting:
            self._waiting[to] = outgoing
            self._set_expiry()

    def _pass_on(self, to: PeerId, messages: Any) -> None:
        if to == self._own:
            self._local.extend(messages)
        elif self.sink is not None:
            for message in messages:
                self.sink.send(to, message)

    # Messages that wait

    def _set_expiry(self) -> None:
        """One timer, for who has waited longest."""
        if not self._waiting:
            if self._expiry is not None:
                self._expiry.cancel()
                self._expiry = None
        elif self._expiry is None:
            first = next(iter(self._waiting.values()))
            self._expiry = self._timers.at(first.waits_until, self._on_expiry)

    def _on_expiry(self, now: Micros) -> None:
        """Nothing followed in time. What waited leaves before whatever else this turn sends."""
        self._expiry = None
        while self._waiting:
            to, outgoing = next(iter(self._waiting.items()))
            if outgoing.waits_until > now:
                break
            del self._waiting[to]
            self._pass_on(to, outgoing.expire())
        self._set_expiry()
        if self.sink is not None:
            self.sink.flush()

    def on_peer_down(self, peer: PeerId) -> None:
        """A connection is lost: what waits for it is lost with it."""
        outgoing = self._waiting.pop(peer, None)
        if outgoing is not None:
            outgoing.expire()
            self._set_expiry()

    def send_waiting(self) -> None:
        """Send to others what waits, because nothing will follow."""
        for to, outgoing in self._waiting.items():
            self._pass_on(to, outgoing.expire())
        self._waiting.clear()
        self._set_expiry()
        if self.sink is not None:
            self.sink.flush()

    def stop(self) -> None:
        """No round follows the one that is run, if any is."""
        self._stopped = True
