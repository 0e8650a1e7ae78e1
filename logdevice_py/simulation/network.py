"""The network: machines, and connections between their processes.

A connection keeps the order of each of its directions; writes arrive after a random delay, now and then in pieces. When it breaks, what is
in flight may be lost, and each end learns it in its own time. A blocked direction holds writes back, as TCP does, until it is unblocked or
the connection is closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from logdevice_py.core.machine import Rng
from logdevice_py.core.units import SECOND
from logdevice_py.protocol.framing import FrameReader
from logdevice_py.shell.introduction import newcomer_frames
from logdevice_py.shell.proof import NO_PROOF, PeerProof
from logdevice_py.simulation.connection import Bandwidth, End, Host, Listener, Power
from logdevice_py.simulation.connection import NetworkSettings as NetworkSettings
from logdevice_py.simulation.links import LinkFault, flip_bit
from logdevice_py.simulation.scheduler import Scheduler

_READ_SIZE = 1 << 16
"""Bytes that a connection hands over at a time at most."""


class Network:
    """All machines and connections of a run."""

    def __init__(
        self, scheduler: Scheduler, rng: Rng, settings: NetworkSettings, effects: Counter[str] | None = None
    ) -> None:
        """
        Args:
            effects: counts, for each kind of fault, what it did to somebody.
        """
        self.scheduler = scheduler
        self.settings = settings
        self.rng = rng
        self.effects: Counter[str] = Counter() if effects is None else effects
        self.hosts: dict[int, Host] = {}
        self._slow_fault = ""
        self._slow_probability = settings.slow_probability
        self.link_faults: dict[tuple[int, int], list[LinkFault]] = {}
        self.distances: dict[tuple[int, int], int] = {}
        """By how many microseconds writes of one machine to another take longer than others, at all times: how far apart they stand."""
        self.routes: dict[tuple[int, int], Bandwidth] = {}
        """By machines: what their writes share with those of others. Most writes share nothing."""
        self._blocked: dict[tuple[int, int], list[str]] = {}
        self._blocks = 0
        self._block_of: dict[tuple[int, int], int] = {}
        self._read_into = bytearray(_READ_SIZE)
        self.proofs: dict[int, PeerProof] = {}
        """What connections prove of who is at an address: certificates, which nobody forges."""
        self.stranger = NO_PROOF
        """What they prove of others."""

    def host(self, address: int) -> Host:
        """The machine of that address."""
        found = self.hosts.get(address)
        if found is None:
            found = self.hosts[address] = Host(address)
        return found

    def delay(self) -> int:
        """Of one write."""
        settings, random = self.settings, self.rng.random
        delay = settings.delay_min + int(random() * (settings.delay_max - settings.delay_min + 1))
        if random() < settings.slow_probability:
            delay += int(random() * settings.slow_max)
            if self._slow_fault:
                self.effects[self._slow_fault] += 1
        return delay

    # Processes

    def reader(self, *, dialled: bool) -> FrameReader:
        """For a connection."""
        return FrameReader(newcomer_frames(dialled=dialled), shared=self._read_into)

    def listen(self, address: int, listener: Listener) -> None:
        """A process is there."""
        host = self.host(address)
        assert host.listener is None, address
        host.listener = listener
        host.power = Power.PROCESS

    def listening(self, *, below: int) -> list[int]:
        """Addresses under this one at which a process is, in the order in which they were first used."""
        return [address for address, host in self.hosts.items() if address < below and host.listener is not None]

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
        """One end is gone; what is already on its way arrives before the other one learns it."""
        other = end.other
        end.broken = other.broken = True
        end.held.clear()
        other.held.clear()
        when = max(end.arrival, self.scheduler.now + self.delay())
        if silent or self.is_blocked(end.host.address, other.host.address):
            when += int(self.rng.random() * self.settings.user_timeout)
        self.scheduler.at(when, other.lose)

    def abandon(self, end: End) -> None:
        """Close a connection from one end, which is told at once."""
        if not end.known_lost:
            self.close(end, silent=False)
            end.lose()

    def break_connection(self, end: End) -> None:
        """The connection breaks between its ends; what is in flight is lost or not, each direction for itself."""
        for each in (end, end.other):
            if each.broken and each.known_lost:
                continue
            each.broken = True
            each.held.clear()
            when = self.scheduler.now + self.delay()
            if self.rng.random() < 0.5:
                when = max(when, each.other.arrival)
            self.scheduler.at(when, each.lose)

    def halve(self, end: End, kind: str) -> None:
        """The connection is forgotten between its ends: what is sent vanishes. Whoever sends learns it when it times out; sometimes one
        end learns it at once."""
        soon = self.rng.random() < 0.5
        for each in (end, end.other):
            each.broken, each.vanishing = True, kind
            each.held.clear()
            timeout = self.settings.user_timeout
            delay = self.delay() if soon else timeout + int(self.rng.random() * (timeout // 4))
            self.scheduler.at(self.scheduler.now + delay, each.lose)
            soon = False

    def linger(self, end: End, *, hold: int, late: int, kind: str) -> None:
        """The sender loses a connection whose last writes still arrive, perhaps after the first ones of the connection that follows it.

        Args:
            hold: for how long, in microseconds, writes are held back before the sender learns of the loss.
            late: by how much those then arrive late.
        """
        end.holding = True

        def break_now() -> None:
            end.holding = False
            if end.broken:
                return
            held, end.held = end.held, []
            end.broken = end.other.broken = True
            self.effects[kind] += len(held)
            for data in held:
                end.arrive_at(self.scheduler.now + late, data)
            self.scheduler.at(end.arrival + 1 if held else self.scheduler.now + late, end.other.lose)
            end.lose()

        self.scheduler.after(hold, break_now)

    def open_ends(self) -> list[End]:
        """One end of each open connection, in a fixed order."""
        return [end for address in sorted(self.hosts) for end in self.hosts[address].ends if not end.broken]

    # Bad links

    def add_link_fault(self, source: int, target: int, fault: LinkFault) -> None:
        """Make one direction between two machines bad."""
        self.link_faults.setdefault((source, target), []).append(fault)

    def remove_link_fault(self, source: int, target: int, fault: LinkFault) -> None:
        """End a fault of `add_link_fault`; harmless when all were ended."""
        faults = self.link_faults.get((source, target), [])
        if fault in faults:
            faults.remove(fault)
            if not faults:
                del self.link_faults[source, target]
            self._release(source, target)

    def _release(self, source: int, target: int) -> None:
        """Send what was held back, unless the direction is blocked."""
        if self.is_blocked(source, target):
            return
        for end in list(self.host(source).ends):
            if end.other.host.address == target:
                end.holding = False
                held, end.held = end.held, []
                for data in held:
                    end.dispatch(data)

    def _trickle(self, end: End) -> None:
        """The write that a slow link was busy with has passed."""
        if end.broken or not end.holding or not end.held:
            return
        data = end.held.pop(0)
        end.holding = False
        end.arrive_at(self.scheduler.now + self.delay(), data)
        held, end.held = end.held, []
        if self.is_blocked(end.host.address, end.other.host.address):
            end.held = held
        else:
            for data in held:
                end.dispatch(data)

    def afflict(self, end: End, data: bytes, arrival: int, faults: list[LinkFault]) -> None:
        """Send a write over a bad link."""
        random = self.rng.random
        for fault in faults:
            if fault.bytes_per_second:
                self.effects[fault.kind] += 1
                end.holding = True
                end.held.append(data)
                cost = len(data) * SECOND // fault.bytes_per_second
                self.scheduler.post(self.scheduler.now + cost, self._trickle, end)
                return
            if fault.lag:
                arrival += int(random() * fault.lag)
                self.effects[fault.kind] += 1
            if fault.flip and random() < fault.flip:
                data = flip_bit(data, self.rng)
                self.effects[fault.kind] += 1
            if fault.cut and random() < fault.cut and len(data) > 1:
                self.effects[fault.kind] += 1
                end.arrive_at(arrival, data[: 1 + int(random() * (len(data) - 1))])
                self._reset(end)
                return
        end.arrive_at(arrival, data)

    def _reset(self, end: End) -> None:
        """Both ends learn of the loss; the other one after what has passed."""
        for each in (end, end.other):
            each.broken = True
            each.held.clear()
        self.scheduler.at(self.scheduler.now + self.delay(), end.lose)
        self.scheduler.at(end.arrival + self.delay(), end.other.lose)

    # Partitions

    @property
    def blocks(self) -> bool:
        """Some direction is blocked."""
        return bool(self._blocked)

    def is_blocked(self, source: int, target: int) -> bool:
        """Nothing passes from one machine to the other."""
        return bool(self._blocked) and (source, target) in self._blocked

    def count_block(self, source: int, target: int) -> None:
        """Something was held back, if the direction is blocked."""
        kinds = self._blocked.get((source, target))
        if kinds:
            self.effects[kinds[-1]] += 1

    def block(self, source: int, target: int, kind: str = "partition") -> None:
        """Let nothing pass from one machine to the other, until it is unblocked as often as it was blocked."""
        self._blocks += 1
        token = self._block_of[source, target] = self._blocks
        self._blocked.setdefault((source, target), []).append(kind)
        for end in list(self.host(source).ends):
            if end.other.host.address == target:
                self._break_later(end, (source, target), token)

    def _break_later(self, end: End, direction: tuple[int, int], token: int) -> None:
        def break_it() -> None:
            if direction in self._blocked and self._block_of[direction] == token and not end.broken:
                self.break_connection(end)

        timeout = self.settings.user_timeout
        self.scheduler.after(timeout + int(self.rng.random() * (timeout // 4)), break_it)

    def unblock(self, source: int, target: int, kind: str = "partition") -> None:
        """End one block; what was held back goes first when it was the last one. Harmless when all were ended."""
        kinds = self._blocked.get((source, target), [])
        if kind not in kinds:
            return
        kinds.remove(kind)
        if not kinds:
            self._open(source, target)

    def _open(self, source: int, target: int) -> None:
        del self._blocked[source, target]
        self._release(source, target)

    def slow_down(self, probability: float, kind: str) -> None:
        """Let more writes be slow."""
        self.settings.slow_probability, self._slow_fault = probability, kind

    def speed_up(self) -> None:
        """End `slow_down`."""
        self.settings.slow_probability, self._slow_fault = self._slow_probability, ""

    def restore(self) -> None:
        """End all partitions and all faults of links."""
        self.speed_up()
        afflicted, blocked = sorted(self.link_faults), sorted(self._blocked)
        self.link_faults.clear()
        for source, target in blocked:
            self._open(source, target)
        for source, target in afflicted:
            self._release(source, target)

    def unblock_all(self) -> None:
        """End all partitions."""
        self.restore()

    # Dialling

    def dial(self, source: int, target: int, outcome: Callable[[End | None, bool], None]) -> None:
        """Connect two machines; `outcome` gets the own end, over which nothing was said yet, or None and whether it was refused."""
        attempt = _Attempt(self, source, target, outcome)
        self.scheduler.after(self.settings.dial_timeout, attempt.timeout)
        if not self.is_blocked(source, target):
            there_and_back = self.distances.get((source, target), 0) + self.distances.get((target, source), 0)
            self.scheduler.after(self.delay() + there_and_back, attempt.reach)
        else:
            self.count_block(source, target)


class _Attempt:
    """One dial."""

    __slots__ = ("_dialler", "_network", "_outcome", "_source", "_target")

    def __init__(self, network: Network, source: int, target: int, outcome: Callable[[End | None, bool], None]) -> None:
        self._network = network
        self._source = source
        self._target = target
        self._outcome: Callable[[End | None, bool], None] | None = outcome
        self._dialler = network.host(source).listener

    def reach(self) -> None:
        """The machine is asked."""
        network = self._network
        host = network.host(self._target)
        if network.is_blocked(self._target, self._source):
            network.count_block(self._target, self._source)
            return
        if host.power is Power.OFF or self._outcome is None:
            return
        if host.power is Power.NO_PROCESS:
            network.scheduler.after(network.delay(), lambda: self._finish(None, True))
            return
        source = network.host(self._source)
        if source.listener is not self._dialler:
            return
        end, other = End(network, source), End(network, host)
        end.other, other.other = other, end
        source.ends[end] = host.ends[other] = None
        assert host.listener is not None
        host.listener.accepted(other)
        self._finish(end, False)

    def timeout(self) -> None:
        """The machine did not answer."""
        self._finish(None, False)

    def _finish(self, end: End | None, refused: bool) -> None:
        outcome, self._outcome = self._outcome, None
        if outcome is not None and self._network.host(self._source).listener is self._dialler:
            outcome(end, refused)
