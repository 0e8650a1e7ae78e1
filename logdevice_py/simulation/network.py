"""The network: machines, and connections between their processes.

A connection keeps the order of each of its directions; frames arrive after a random delay. When it breaks, what is in flight may be
lost, and each end learns it in its own time. A blocked direction holds frames back, as TCP does, until it is unblocked or the
connection is given up.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from logdevice_py.core.machine import Rng
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.simulation.scheduler import Scheduler


class Power(enum.Enum):
    """What answers a dial to a machine."""

    PROCESS = enum.auto()  # a process listens
    NO_PROCESS = enum.auto()  # the machine refuses
    OFF = enum.auto()  # nobody answers


@dataclass(slots=True, kw_only=True)
class NetworkSettings:
    """How the network behaves. Microseconds."""

    delay_min: int = 50
    delay_max: int = 500
    """Most frames take a time between the two."""
    slow_probability: float = 0.01
    slow_max: int = 20 * MILLISECOND
    """The few slow ones take up to this."""
    dial_timeout: int = 2 * SECOND
    hello_timeout: int = 5 * SECOND
    user_timeout: int = 20 * SECOND
    """A connection of which a direction is blocked for this long is given up."""


class Listener(Protocol):
    """A process, as its connections see it. Every call is an event of its own."""

    def accepted(self, end: End, dialler: int) -> None:
        """Somebody dialled and introduced himself; answer with `End.acknowledge`."""

    def received(self, end: End, frame: bytes) -> None:
        """A frame came."""

    def lost(self, end: End) -> None:
        """The connection is gone."""


class Host:
    """A machine. Addresses >= 0 are those of nodes."""

    __slots__ = ("address", "ends", "listener", "power")

    def __init__(self, address: int) -> None:
        self.address = address
        self.power = Power.NO_PROCESS
        self.listener: Listener | None = None
        self.ends: dict[End, None] = {}
        """Of open connections."""


class End:
    """One end of a connection. `other` is the other one."""

    __slots__ = (
        "_network",
        "arrival",
        "broken",
        "held",
        "host",
        "known_lost",
        "listener",
        "on_ack",
        "on_lost",
        "other",
    )

    def __init__(self, network: Network, host: Host) -> None:
        self._network = network
        self.host = host
        self.listener: Listener | None = host.listener
        self.other: End = self
        self.arrival = 0
        """When the last frame sent from here arrives."""
        self.held: list[Any] = []
        """Frames from here that a blocked direction holds back."""
        self.broken = False
        self.known_lost = False
        """This end has learnt that the connection is gone."""
        self.on_ack: Callable[[], None] | None = None
        self.on_lost: Callable[[], None] | None = None
        """Called in place of the listener while the introduction is not answered."""

    def send(self, frame: Any) -> None:
        """Send a frame (bytes), or a step of the introduction (a callable)."""
        if self.broken:
            return
        if self.held or self._network.is_blocked(self.host.address, self.other.host.address):
            self.held.append(frame)
        else:
            self.dispatch(frame)

    def dispatch(self, frame: Any) -> None:
        """Put a frame on its way."""
        network = self._network
        self.arrival = max(self.arrival, network.scheduler.now + network.delay())
        network.scheduler.at(self.arrival, lambda: self.other.arrive(frame))

    def arrive(self, frame: Any) -> None:
        """A frame for this end is there."""
        if self.known_lost or self.listener is None:
            return
        if isinstance(frame, bytes):
            self.listener.received(self, frame)
        else:
            frame()

    def acknowledge(self) -> None:
        """The accepting end: answer the introduction."""
        on_ack = self.other.on_ack
        assert on_ack is not None
        self.send(on_ack)

    def lose(self) -> None:
        """This end learns that the connection is gone."""
        if self.known_lost:
            return
        self.known_lost = True
        self.host.ends.pop(self, None)
        if self.on_lost is not None:
            self.on_lost()
        elif self.listener is not None:
            self.listener.lost(self)

    def abort(self) -> None:
        """Close from here, without a word to the own listener."""
        self.known_lost = True
        self.host.ends.pop(self, None)
        self._network.close(self, silent=False)


class Network:
    """All machines and connections of a run."""

    def __init__(self, scheduler: Scheduler, rng: Rng, settings: NetworkSettings) -> None:
        self.scheduler = scheduler
        self.settings = settings
        self.hosts: dict[int, Host] = {}
        self._rng = rng
        self._blocked: dict[tuple[int, int], int] = {}
        self._blocks = 0

    def host(self, address: int) -> Host:
        """The machine of that address."""
        found = self.hosts.get(address)
        if found is None:
            found = self.hosts[address] = Host(address)
        return found

    def delay(self) -> int:
        """Of one frame."""
        settings = self.settings
        delay = settings.delay_min + self._rng.randrange(settings.delay_max - settings.delay_min + 1)
        if self._rng.random() < settings.slow_probability:
            delay += self._rng.randrange(settings.slow_max)
        return delay

    # Processes

    def listen(self, address: int, listener: Listener) -> None:
        """A process is there."""
        host = self.host(address)
        assert host.listener is None, address
        host.listener = listener
        host.power = Power.PROCESS

    def die(self, address: int, *, machine: bool) -> None:
        """The process is gone. Its peers learn it soon, or late when the whole machine went."""
        host = self.host(address)
        host.listener = None
        host.power = Power.OFF if machine else Power.NO_PROCESS
        for end in list(host.ends):
            end.known_lost = True
            end.listener = None
            self.close(end, silent=machine)
        host.ends.clear()

    def close(self, end: End, *, silent: bool) -> None:
        """One end is gone; frames already on their way arrive before the other one learns it."""
        other = end.other
        end.broken = other.broken = True
        end.held.clear()
        other.held.clear()
        when = max(end.arrival, self.scheduler.now + self.delay())
        if silent or self.is_blocked(end.host.address, other.host.address):
            when += self._rng.randrange(self.settings.user_timeout)
        self.scheduler.at(when, other.lose)

    def break_connection(self, end: End) -> None:
        """The connection breaks between its ends; what is in flight is lost or not, each direction for itself."""
        for each in (end, end.other):
            if each.broken and each.known_lost:
                continue
            each.broken = True
            each.held.clear()
            when = self.scheduler.now + self.delay()
            if self._rng.random() < 0.5:
                when = max(when, each.other.arrival)
            self.scheduler.at(when, each.lose)

    def open_ends(self) -> list[End]:
        """One end of each open connection, in a fixed order."""
        return [end for address in sorted(self.hosts) for end in self.hosts[address].ends if not end.broken]

    # Partitions

    def is_blocked(self, source: int, target: int) -> bool:
        """Nothing passes from one machine to the other."""
        return bool(self._blocked) and (source, target) in self._blocked

    def block(self, source: int, target: int) -> None:
        """Let nothing pass from one machine to the other."""
        self._blocks += 1
        token = self._blocked[source, target] = self._blocks
        for end in list(self.host(source).ends):
            if end.other.host.address == target:
                self._give_up_later(end, (source, target), token)

    def _give_up_later(self, end: End, direction: tuple[int, int], token: int) -> None:
        def give_up() -> None:
            if self._blocked.get(direction) == token and not end.broken:
                self.break_connection(end)

        timeout = self.settings.user_timeout
        self.scheduler.after(timeout + self._rng.randrange(timeout // 4), give_up)

    def unblock(self, source: int, target: int) -> None:
        """Let frames pass again, those held back first."""
        if self._blocked.pop((source, target), None) is None:
            return
        for end in list(self.host(source).ends):
            if end.other.host.address == target:
                held, end.held = end.held, []
                for frame in held:
                    end.dispatch(frame)

    def unblock_all(self) -> None:
        """End all partitions."""
        for source, target in sorted(self._blocked):
            self.unblock(source, target)

    # Dialling

    def dial(self, source: int, target: int, outcome: Callable[[End | None, bool], None]) -> None:
        """Connect two machines; `outcome` gets the own end, or None and whether it was refused."""
        attempt = _Attempt(self, source, target, outcome)
        self.scheduler.after(self.settings.dial_timeout, attempt.timeout)
        if not self.is_blocked(source, target):
            self.scheduler.after(self.delay(), attempt.reach)


class _Attempt:
    """One dial."""

    __slots__ = ("_dialler", "_network", "_outcome", "_source", "_target", "end", "reached")

    def __init__(self, network: Network, source: int, target: int, outcome: Callable[[End | None, bool], None]) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._outcome: Callable[[End | None, bool], None] | None = outcome
        self._dialler = network.host(source).listener
        self.end: End | None = None
        self.reached = False

    def _is_answerable(self) -> bool:
        network = self._network
        return not network.is_blocked(self._target, self._source)

    def reach(self) -> None:
        """The machine is asked."""
        network = self._network
        host = network.host(self._target)
        if host.power is Power.OFF or not self._is_answerable() or self._outcome is None:
            return
        if host.power is Power.NO_PROCESS:
            network.scheduler.after(network.delay(), lambda: self._finish(None, True))
            return
        source = network.host(self._source)
        if source.listener is not self._dialler:
            return
        self.reached = True
        end, other = End(network, source), End(network, host)
        end.other, other.other = other, end
        source.ends[end] = host.ends[other] = None
        self.end = end
        end.on_ack = self._acknowledged
        end.on_lost = lambda: self._finish(None, False)
        end.send(lambda: self._introduce(other))
        network.scheduler.after(network.settings.hello_timeout, self._silent)

    def _introduce(self, other: End) -> None:
        if other.listener is not None:
            other.listener.accepted(other, self._source)

    def _acknowledged(self) -> None:
        assert self.end is not None
        self.end.on_lost = None
        self._finish(self.end, False)

    def timeout(self) -> None:
        """The machine did not answer."""
        if not self.reached:
            self._finish(None, False)

    def _silent(self) -> None:
        if self._outcome is not None:
            assert self.end is not None
            self.end.abort()
            self._finish(None, False)

    def _finish(self, end: End | None, refused: bool) -> None:
        outcome, self._outcome = self._outcome, None
        if outcome is not None and self._network.host(self._source).listener is self._dialler:
            outcome(end, refused)
