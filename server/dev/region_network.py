"""Regions on one machine, with the time that packets take between them: each machine that is played has a network namespace with one interface, and what it sends
goes through a process that plays the routes (`region_router`). Kernels do not need the queueing discipline netem for it. It takes root, as namespaces do.

All of TCP is the kernel's: windows, retransmissions and connections that come to nothing are as they are between real regions.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any, ClassVar, Final, Self

from logdevice_py.core.units import SECOND, format_duration, format_size, parse_duration, parse_size
from logdevice_py.programs import own_program
from server.dev.layout import NODE_PORT
from server.dev.region_router import COMMAND_BYTES_MAX
from server.dev.virtual_network import run

_TUN: Final = "/dev/net/tun"
_TUNSETIFF: Final = 0x400454CA
_FLAGS: Final = 0x0001 | 0x1000
"""A device of IP packets, without anything before them."""
_MTU: Final = 65_520
"""Few packets are many bytes: the process that plays the routes forwards some ten thousand a second."""
_TCP_BUFFER: Final = "4096 131072 33554432"
"""Least, first and greatest bytes of a connection's buffers: as much as 400 MB a second take at a round trip of 80 ms."""


@dataclass(frozen=True, slots=True)
class Distances:
    """How far regions are from each other."""

    default: int
    """Microseconds of a round trip between two regions."""
    pairs: Mapping[frozenset[str], int]
    """Of some pairs, instead."""
    bandwidth: int | None = None
    """Bytes a second from one region to another one; None: no limit."""

    @classmethod
    def parse(cls, rtt: str, bandwidth: str | None = None) -> Self:
        """``80ms``, or ``80ms,us-eu:30ms``: what is named holds instead.

        Args:
            bandwidth: ``100MiB``, a second.

        Raises:
            ValueError: it is malformed.
        """
        default, pairs = 0, dict[frozenset[str], int]()
        for part in rtt.split(","):
            names, colon, time = part.rpartition(":")
            if not colon:
                default = parse_duration(time)
                continue
            pair = names.strip().split("-")
            if len(set(pair)) != 2:
                raise ValueError(f"{part!r}: write 80ms, or for two regions us-eu:80ms")
            pairs[frozenset(pair)] = parse_duration(time)
        size = None if bandwidth is None else parse_size(bandwidth)
        if size == 0:
            raise ValueError("a bandwidth is more than nothing")
        return cls(default, pairs, size)

    def __str__(self) -> str:
        """`parse` reads it back, but for the bandwidth."""
        named = [f"{'-'.join(sorted(pair))}:{format_duration(time)}" for pair, time in self.pairs.items()]
        return ",".join([format_duration(self.default), *sorted(named)])

    @property
    def bandwidth_text(self) -> str | None:
        """As `parse` takes it."""
        return None if self.bandwidth is None else format_size(self.bandwidth)

    @property
    def regions(self) -> frozenset[str]:
        """That are named."""
        return frozenset(name for pair in self.pairs for name in pair)

    def routes(self) -> dict[str, Any]:
        """As the process that plays them is told: seconds one way, and bytes a second."""

        def route(rtt: int) -> tuple[float, int | None]:
            return rtt / SECOND / 2, self.bandwidth

        others = [(*pair, *route(rtt)) for names, rtt in self.pairs.items() for pair in permutations(sorted(names))]
        return {"usual": route(self.default), "others": others}


@dataclass(frozen=True, slots=True)
class PlayedMachine:
    """One of the machines."""

    name: str
    """Of its namespace and device; unique on this machine."""
    address: str
    region: str
    is_here: bool = False
    """It is this machine itself, and has no namespace."""
    retransmissions: int | None = None
    """After so many in vain its kernel ends a connection; None: as kernels do, after a quarter of an hour."""
    stands_at: str = ""
    """Where its process really is, if connections are forwarded to it."""


class RegionNetwork:
    """Machines in regions. All calls block, for milliseconds, and may come from any thread."""

    PROGRAM: ClassVar = "server.dev.region_router"
    """Of the process that plays the routes."""

    def __init__(self, distances: Distances) -> None:
        self._distances = distances
        self._machines: list[PlayedMachine] = []
        self._router: subprocess.Popen[bytes] | None = None
        self._commands: socket.socket | None = None
        self._cut: set[tuple[str, str]] = set()
        self._lock = threading.RLock()
        """Who changes what is cut has it until that is in force."""

    @property
    def regions(self) -> list[str]:
        """In which machines are."""
        return sorted({machine.region for machine in self._machines})

    def has(self, name: str) -> bool:
        """Whether there is a machine of that name."""
        return any(machine.name == name for machine in self._machines)

    def open(self, machines: Iterable[PlayedMachine]) -> None:
        """Make everything, instead of what an earlier process left under the same names.

        Raises:
            OSError, subprocess.CalledProcessError: this process may not.
        """
        self._commands, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with theirs:
                self._router = subprocess.Popen(
                    own_program("server.die_with_parent", os.getpid(), *own_program(self.PROGRAM)),
                    stdin=theirs.fileno(),
                    start_new_session=True,
                )
            self._tell({"routes": self._distances.routes()})
            for machine in machines:
                self.add(machine)
        except BaseException:
            self.close()
            raise

    def add(self, machine: PlayedMachine) -> None:
        """A further one; as `open`."""
        self._take_away(machine)
        self._machines.append(machine)
        device = _device(machine.name)
        try:
            self._connect(machine)
            self._tell({"machine": {"address": machine.address, "region": machine.region}}, device)
        finally:
            os.close(device)

    def _connect(self, machine: PlayedMachine) -> None:
        where: list[str] = []
        if not machine.is_here:
            run("ip", "netns", "add", machine.name)
            run("ip", "link", "set", machine.name, "netns", machine.name)
            where = ["-n", machine.name]
            run("ip", *where, "link", "set", "lo", "up")
            settings = {"tcp_wmem": _TCP_BUFFER, "tcp_rmem": _TCP_BUFFER}  # of each machine by itself
            if machine.retransmissions is not None:
                settings["tcp_retries2"] = str(machine.retransmissions)
            commands = [f"echo {value} > /proc/sys/net/ipv4/{name}" for name, value in settings.items()]
            run("ip", "netns", "exec", machine.name, "sh", "-c", " && ".join(commands))
        run("ip", *where, "link", "set", machine.name, "mtu", str(_MTU), "up")
        run("ip", *where, "address", "add", f"{machine.address}/24", "dev", machine.name)

    def _take_away(self, machine: PlayedMachine) -> None:
        """Harmless where it is not there."""
        kind = ["link", "del"] if machine.is_here else ["netns", "del"]
        subprocess.run(["ip", *kind, machine.name], check=False, capture_output=True)

    def close(self) -> None:
        """Take everything away."""
        if self._router is not None:
            self._router.kill()
            self._router.wait()
            self._router = None
        if self._commands is not None:
            self._commands.close()
            self._commands = None
        for machine in self._machines:
            self._take_away(machine)
        self._machines.clear()

    def change_distances(self, distances: Distances) -> None:
        """Regions are as far from each other as this says, from the next packet on. What was cut stays cut."""
        self._tell({"routes": distances.routes()})
        self._distances = distances

    def cut(self, pairs: Iterable[tuple[str, str]]) -> None:
        """From which region to which nothing passes any more, besides those of before.

        Raises:
            ValueError: there is no such region, or one is to be cut off from itself.
        """
        found = set(pairs)
        self._check_known(region for pair in found for region in pair)
        for origin, target in found:
            if origin == target:
                raise ValueError(f"from {origin} to {target} there is no route that could be cut: name two regions")
        self._block(lambda cut: cut | found)

    def cut_off(self, region: str) -> None:
        """Nothing passes between a region and the others, as `cut`."""
        self.cut(pair for other in {*self.regions} - {region} for pair in ((region, other), (other, region)))

    def repair(self, pairs: Iterable[tuple[str, str]]) -> None:
        """End what `cut` did to these; harmless where nothing was cut."""
        repaired = set(pairs)
        self._block(lambda cut: cut - repaired)

    def reconnect(self, region: str | None = None) -> None:
        """Everything passes again, from and to a region; None: everywhere.

        Raises:
            ValueError: there is no such region.
        """
        self._check_known([] if region is None else [region])
        self._block(lambda cut: {pair for pair in cut if region is not None and region not in pair})

    def _check_known(self, regions: Iterable[str]) -> None:
        known = self.regions
        unknown = set(regions).difference(known)
        if unknown:
            raise ValueError(f"there is no region {min(unknown)}; there are {', '.join(known)}")

    def bytes_sent(self) -> dict[tuple[str, str], int]:
        """Of IP packets from each region to each other one, since this was asked last, also of those that were lost."""
        return {(source, target): size for source, target, size in self._tell({"sent": True})}

    def _block(self, change: Callable[[set[tuple[str, str]]], set[tuple[str, str]]]) -> None:
        with self._lock:
            pairs = change(self._cut)
            self._tell({"cut": sorted(pairs)})
            self._cut = pairs

    def _tell(self, command: Mapping[str, Any], *devices: int) -> list[Any]:
        """Have the process that plays the routes obey; its answer."""
        assert self._commands is not None, "the network is open"
        with self._lock:
            socket.send_fds(self._commands, [json.dumps(command).encode()], devices)
            answer = self._commands.recv(COMMAND_BYTES_MAX)
        if not answer:
            raise OSError("the process that plays the routes between regions has ended")
        found: list[Any] = json.loads(answer)
        return found


class ForwardedNetwork(RegionNetwork):
    """The same for who may not make namespaces: all machines are this one, and a process forwards their connections."""

    PROGRAM = "server.dev.region_forwarder"

    def add(self, machine: PlayedMachine) -> None:
        self._machines.append(machine)
        if machine.is_here:
            self._tell({"here": machine.region})
            return
        told = {"address": machine.address, "stands_at": machine.stands_at, "port": NODE_PORT, "region": machine.region}
        problem = self._tell({"machine": told})
        if problem:
            raise OSError(problem[0])

    def _take_away(self, machine: PlayedMachine) -> None:
        """There is nothing but the process that forwards."""


def _device(name: str) -> int:
    """A TUN device of a name; the file that gives what is sent through it, and takes what arrives."""
    device = os.open(_TUN, os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _FLAGS))
    except BaseException:
        os.close(device)
        raise
    return device


def why_no_regions() -> str | None:
    """Why this process cannot play regions, and what helps; None when it can."""
    name = f"ldprobe{os.getpid() & 0xFFFF:x}"
    try:
        os.close(_device(name))
        run("ip", "netns", "add", name)
        run("ip", "netns", "del", name)
    except (OSError, subprocess.CalledProcessError) as error:
        told = error.stderr.strip() if isinstance(error, subprocess.CalledProcessError) else str(error)
        return f"regions are played by network namespaces and devices of {_TUN}, which this process may not make ({told}): it takes root"
    return None
