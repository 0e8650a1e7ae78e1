"""Connections of the simulated network, as seen from their ends."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from typing import Protocol

from logdevice_py.core.machine import Rng
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.simulation.links import LinkFault
from logdevice_py.simulation.scheduler import Scheduler


class Power(enum.Enum):
    """What answers a dial to a machine."""

    PROCESS = enum.auto()  # a process listens
    NO_PROCESS = enum.auto()  # the machine refuses
    OFF = enum.auto()  # nobody answers


class Listener(Protocol):
    """A process, as its connections see it. Every call is an event of its own."""

    def accepted(self, end: End) -> None:
        """Somebody dialled; the introduction comes as bytes."""

    def received(self, end: End, data: bytes) -> None:
        """Bytes came: what was sent in one go, or a piece of it."""

    def lost(self, end: End) -> None:
        """The connection is gone."""

    def congested(self, end: End, congested: bool) -> None:
        """Much that was sent has not arrived, or that is over."""


class Host:
    """A machine. Addresses >= 0 are those of nodes."""

    __slots__ = ("address", "ends", "listener", "power")

    def __init__(self, address: int) -> None:
        self.address = address
        self.power = Power.NO_PROCESS
        self.listener: Listener | None = None
        self.ends: dict[End, None] = {}
        """Of open connections, in the order in which they were made."""


@dataclass(slots=True, kw_only=True)
class NetworkSettings:
    """How the network behaves. Microseconds."""

    delay_min: int = 50
    delay_max: int = 500
    """Most writes take a time between the two."""
    slow_probability: float = 0.01
    slow_max: int = 20 * MILLISECOND
    """The few slow ones take up to this."""
    chop_probability: float = 0.01
    """Of a write that arrives in two pieces."""
    dial_timeout: int = 2 * SECOND
    user_timeout: int = 20 * SECOND
    """A connection of which a direction is blocked for this long breaks."""
    closes_dead: bool = False
    """A process closes its connection to a node that counts as dead when what it sent is held back, as in production: else it waits for the end of the block."""
    output_bytes_congested: int = 256 << 10
    """A sender is told when this much of a connection is sent and has not arrived, and when a quarter of it is left."""
    output_bytes_max: int = 16 << 20
    """A connection with more than this sent and not arrived is closed by the sender."""


@dataclass(slots=True)
class Bandwidth:
    """What all machines of one place share when they send to those of another one: so many bytes leave in a second, one write after the other."""

    bytes_per_second: int
    free_at: int = 0
    """When all that was sent has left, in microseconds."""

    def leaves(self, now: int, size: int) -> int:
        """When a write of so many bytes that is sent now has left."""
        self.free_at = max(self.free_at, now) + size * SECOND // self.bytes_per_second
        return self.free_at


class Medium(Protocol):
    """What lies between the ends of connections."""

    scheduler: Scheduler
    settings: NetworkSettings
    rng: Rng
    effects: Counter[str]
    link_faults: dict[tuple[int, int], list[LinkFault]]
    distances: dict[tuple[int, int], int]
    routes: dict[tuple[int, int], Bandwidth]

    @property
    def blocks(self) -> bool:
        """Some direction is blocked."""

    def is_blocked(self, source: int, target: int) -> bool:
        """Nothing passes from one machine to the other."""

    def count_block(self, source: int, target: int) -> None:
        """Something was held back, if the direction is blocked."""

    def delay(self) -> int:
        """Of one write."""

    def afflict(self, end: End, data: bytes, arrival: int, faults: list[LinkFault]) -> None:
        """Send a write over a bad link."""

    def close(self, end: End, *, silent: bool) -> None:
        """One end is gone."""

    def abandon(self, end: End) -> None:
        """Close a connection from one end, which is told at once."""


class End:
    """One end of a connection. `other` is the other one."""

    __slots__ = (
        "_network",
        "arrival",
        "broken",
        "congested",
        "held",
        "holding",
        "host",
        "known_lost",
        "listener",
        "other",
        "unread",
        "vanishing",
    )

    def __init__(self, network: Medium, host: Host) -> None:
        self._network = network
        self.host = host
        self.listener: Listener | None = host.listener
        self.other: End = self
        self.arrival = 0
        """When the last write sent from here arrives."""
        self.held: list[bytes] = []
        """Writes from here that a blocked direction holds back."""
        self.holding = False
        """Hold writes back although the direction is not blocked."""
        self.unread = 0
        """Bytes sent from here that have not arrived."""
        self.congested = False
        self.broken = False
        self.vanishing = ""
        """The kind of the fault that swallows what is sent from here; empty: none."""
        self.known_lost = False
        """This end has learnt that the connection is gone."""

    def send(self, data: bytes) -> None:
        """Send bytes."""
        network = self._network
        if self.broken:
            if self.vanishing and not self.known_lost:
                network.effects[self.vanishing] += 1
            return
        self.unread += len(data)
        if self.unread > network.settings.output_bytes_congested:
            self._pile_up()
            if self.broken:
                return
        if self.held or self.holding or (network.blocks and self._is_blocked()):
            network.count_block(self.host.address, self.other.host.address)
            self.held.append(data)
        else:
            self.dispatch(data)

    def _is_blocked(self) -> bool:
        return self._network.is_blocked(self.host.address, self.other.host.address)

    def _pile_up(self) -> None:
        network = self._network
        if self.unread > network.settings.output_bytes_max:
            network.effects["output_overflow"] += 1
            network.scheduler.at(network.scheduler.now, lambda: network.abandon(self))
            self.broken = True
        elif not self.congested:
            self.congested = True
            if self.listener is not None:
                self.listener.congested(self, True)

    def dispatch(self, data: bytes) -> None:
        """Put bytes on their way."""
        if self.holding:
            self.held.append(data)
            return
        network = self._network
        scheduler = network.scheduler
        arrival = scheduler.now + network.delay()
        if network.distances:
            arrival += network.distances.get((self.host.address, self.other.host.address), 0)
        if network.routes:
            route = network.routes.get((self.host.address, self.other.host.address))
            if route is not None:
                arrival += route.leaves(scheduler.now, len(data)) - scheduler.now
        if network.link_faults:
            faults = network.link_faults.get((self.host.address, self.other.host.address))
            if faults:
                network.afflict(self, data, arrival, faults)
                return
        random = network.rng.random
        if random() < network.settings.chop_probability and len(data) > 1:
            at = 1 + int(random() * (len(data) - 1))
            self.arrive_at(arrival, data[:at])
            data, arrival = data[at:], arrival + network.delay()
        if arrival < self.arrival:
            arrival = self.arrival
        self.arrival = arrival
        scheduler.post(arrival, self.other.arrive, data)

    def arrive_at(self, when: int, data: bytes) -> None:
        """Let the other end have bytes at a time, but not before those that were sent earlier."""
        if when < self.arrival:
            when = self.arrival
        self.arrival = when
        self._network.scheduler.post(when, self.other.arrive, data)

    def arrive(self, data: bytes) -> None:
        """Bytes for this end are there."""
        other = self.other
        other.unread -= len(data)
        if other.congested and other.unread <= self._network.settings.output_bytes_congested // 4:
            other.congested = False
            if other.listener is not None and not other.known_lost:
                other.listener.congested(other, False)
        if self.known_lost or self.listener is None:
            return
        self.listener.received(self, data)

    def lose(self) -> None:
        """This end learns that the connection is gone."""
        if self.known_lost:
            return
        self.known_lost = True
        self.host.ends.pop(self, None)
        if self.listener is not None:
            self.listener.lost(self)

    def abort(self) -> None:
        """Close from here, without a word to the own listener."""
        self.known_lost = True
        self.host.ends.pop(self, None)
        self._network.close(self, silent=False)
