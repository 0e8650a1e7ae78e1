"""Runs one machine on asyncio: events in, effects out, timers.

Every event that is ready is handed to the machine, then a turn is run (`shell/turn.py`). Handlers run to completion, so a machine never sees
itself half-way. An exception that leaves a machine is our own bug: the process must not go on with a state that nobody understands, so it is
reported to `on_crash` and the driver stops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from logdevice_py.core.ids import PeerId
from logdevice_py.core.machine import Machine, Outbox, TimerQueue
from logdevice_py.core.units import Micros
from logdevice_py.runtime.clock import monotonic_us
from logdevice_py.shell.turn import Sink, Turn


class Driver:
    """The loop side of one machine. It is the `TransportEvents` of the machine's transport."""

    def __init__(
        self,
        machine: Machine,
        outbox: Outbox,
        timers: TimerQueue,
        *,
        effects: Mapping[type, Callable[[list[Any]], None]],
        own_peer: PeerId | None = None,
        on_crash: Callable[[BaseException], None],
        on_config_version: Callable[[int], None] = lambda version: None,
        on_congestion: Callable[[PeerId, bool, Micros], None] = lambda peer, congested, now: None,
    ) -> None:
        """
        Args:
            machine: the root whose events and effects are run.
            outbox: where the machine puts its effects.
            timers: the machine's timers.
            effects: for each type of effect but `Send`, what runs all effects of that type of one turn. An outcome that is known at
                once goes through `complete`, a later one through `event`.
            own_peer: messages to this peer are delivered to the machine itself.
            on_crash: called once, with the exception that left the machine.
            on_config_version: a peer has this version of the cluster file.
            on_congestion: an event of the machine: a peer does not read what waits for it, or reads again.
        """
        self._machine = machine
        self._timers = timers
        self._turn = Turn(machine, outbox.take, timers, effects, own=own_peer)
        self._on_crash = on_crash
        self._on_config_version = on_config_version
        self._on_congestion = on_congestion
        self._loop = asyncio.get_running_loop()
        self.complete = self._turn.complete
        """Hand over the outcome of an effect from within the function that runs it; it is delivered later in the same turn."""
        self._turn_scheduled = False
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at: int = 0
        self._stopped = False

    def attach(self, transport: Sink) -> None:
        """Where `Send` goes."""
        self._turn.sink = transport

    # Events

    def event(self, handler: Callable[[Micros], None]) -> None:
        """Hand one event to the machine: ``handler(now)`` calls one of its methods."""
        if self._stopped:
            return
        try:
            handler(monotonic_us())
        except BaseException as error:
            self._crash(error)
            raise
        self._schedule()

    def event_and_turn(self, handler: Callable[[Micros], None]) -> None:
        """As `event`, for one that brings much at once or is waited for: the turn ends with it, not after other callbacks of the loop."""
        self.event(handler)
        self._end_turn()

    def on_message(self, peer: PeerId, message: Any) -> None:
        if self._stopped:
            return
        try:
            self._machine.on_message(peer, message, monotonic_us())
        except BaseException as error:
            self._crash(error)
            raise
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._end_turn)

    def on_peer_up(self, peer: PeerId) -> None:
        self.event(lambda now: self._machine.on_peer_up(peer, now))

    def on_peer_down(self, peer: PeerId, *, refused: bool) -> None:
        self._turn.on_peer_down(peer)
        self.event(lambda now: self._machine.on_peer_down(peer, now, refused=refused))

    def on_peer_congested(self, peer: PeerId, *, congested: bool) -> None:
        self.event(lambda now: self._on_congestion(peer, congested, now))

    def on_config_version(self, version: int) -> None:
        self._on_config_version(version)

    # Turns

    def _schedule(self) -> None:
        if not self._turn_scheduled:
            self._turn_scheduled = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        if not self._turn_scheduled or self._stopped:
            return
        self._turn_scheduled = False
        try:
            more = self._turn.run(monotonic_us)
        except BaseException as error:
            self._crash(error)
            raise
        if more:
            self._schedule()
        self._arm()

    def _arm(self) -> None:
        """One timer handle for all of the machine's timers; it is set anew only for an earlier deadline."""
        deadline = self._timers.next_deadline()
        if deadline is None:
            return
        if self._wake is not None:
            if self._wake_at <= deadline:
                return
            self._wake.cancel()
        self._wake_at = deadline
        self._wake = self._loop.call_later(max(0, deadline - monotonic_us()) / 1e6, self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        deadline = self._timers.next_deadline()
        if self._stopped or deadline is None:
            return
        if deadline > monotonic_us():
            self._arm()  # what it was set for was cancelled
            return
        try:
            self._timers.advance(monotonic_us())
        except BaseException as error:
            self._crash(error)
            raise
        self._schedule()

    def start(self) -> None:
        """Run what the machine put out before it had a loop."""
        self._schedule()

    def stop(self) -> None:
        """No event reaches the machine any more, no effect is run. Messages that wait for others leave."""
        if not self._stopped:
            self._turn.send_waiting()
            self._end()

    def _end(self) -> None:
        self._stopped = True
        self._turn.stop()
        if self._wake is not None:
            self._wake.cancel()

    def _crash(self, error: BaseException) -> None:
        if not self._stopped:
            self._end()
            self._on_crash(error)
