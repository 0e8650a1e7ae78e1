"""``python -m server.dev.region_router``: the routes between machines that a region network plays, a process of their own.

It has a TUN device of each machine, reads the IP packets that the machine sends, and hands each to the machine that it is for, as late and as many at a time
as the route between their regions allows. Commands come in on a socket, its standard input, a packet of JSON each, and each is answered when it is in force:

- ``routes``, the first, and whenever that changes: how regions are connected;
- ``machine``: a further one, whose device comes with the packet;
- ``cut``: from which region to which nothing passes, instead of those of before;
- ``sent``: how many bytes of packets each region has sent to each other one since the last such question.

It ends when nobody can send commands any more.
"""

from __future__ import annotations

import heapq
import json
import os
import select
import socket
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

PACKET_BYTES_MAX: Final = 65_535
COMMAND_BYTES_MAX: Final = 65_536
_AT_ONCE: Final = 64
"""Packets of a machine that are read before others have their turn."""
_WAITING_SECONDS_MAX: Final = 0.5
"""What waits for a route's bandwidth longer than this is lost, as where a router's memory is full: senders notice, and send less."""
_DESTINATION: Final = slice(16, 20)
"""Of an IPv4 packet."""


@dataclass(frozen=True, slots=True)
class RegionRoute:
    """From one region to another one."""

    delay: float = 0.0
    """Seconds, one way."""
    bandwidth: float | None = None
    """Bytes a second; None: no limit."""


class RegionRoutes:
    """Which packets arrive when. Time is in seconds of any clock."""

    def __init__(self, usual: RegionRoute, others: dict[tuple[str, str], RegionRoute]) -> None:
        """
        Args:
            usual: between two regions; within a region nothing takes time.
            others: from one region to another one, instead.
        """
        self.usual = usual
        self.others = others
        self._free: dict[tuple[str, str], float] = {}
        """From when on a route has sent all that it took."""
        self.cut: set[tuple[str, str]] = set()
        """From which region to which nothing passes."""
        self.sent: dict[tuple[str, str], int] = {}
        """Bytes, also of packets that were lost."""

    def arrival(self, source: str, target: str, size: int, now: float) -> float | None:
        """When a packet that is sent now arrives; None: never."""
        if source == target:
            return now
        pair = (source, target)
        self.sent[pair] = self.sent.get(pair, 0) + size
        if pair in self.cut:
            return None
        route = self.others.get(pair, self.usual)
        if route.bandwidth is None:
            return now + route.delay
        begin = max(now, self._free.get(pair, now))
        if begin - now > _WAITING_SECONDS_MAX:
            return None
        self._free[pair] = end = begin + size / route.bandwidth
        return end + route.delay


class RoutedMachine:
    """A machine's TUN device."""

    def __init__(self, address: str, region: str, device: int) -> None:
        self.region = region
        self.device = device
        self.address = socket.inet_aton(address)
        os.set_blocking(device, False)

    def packets(self) -> Iterable[bytes]:
        """What it sent, some of it."""
        for _ in range(_AT_ONCE):
            try:
                yield os.read(self.device, PACKET_BYTES_MAX)
            except BlockingIOError:
                return

    def take(self, packet: bytes) -> None:
        """Hand it a packet."""
        try:
            os.write(self.device, packet)
        except OSError:  # the machine is gone, or takes none: the packet is lost, as packets are
            return


class RegionRouter:
    """Forwards packets, and obeys."""

    def __init__(self, commands: socket.socket) -> None:
        self._commands = commands
        self._machines: dict[int, RoutedMachine] = {}
        """By their devices."""
        self._addresses: dict[bytes, RoutedMachine] = {}
        self._routes = RegionRoutes(RegionRoute(), {})
        self._waiting: list[tuple[float, int, RoutedMachine, bytes]] = []
        """When each packet arrives, in which order they were sent, and for whom they are."""
        self._sent = 0

    def run(self) -> None:
        """Until no more commands can come."""
        clock = time.monotonic
        commands = self._commands.fileno()
        while True:
            timeout = max(0.0, self._waiting[0][0] - clock()) if self._waiting else None
            for ready in select.select([commands, *self._machines], [], [], timeout)[0]:
                if ready != commands:
                    self._forward(self._machines[ready])
                elif not self._obey():
                    return
            now = clock()
            while self._waiting and self._waiting[0][0] <= now:
                _, _, target, packet = heapq.heappop(self._waiting)
                target.take(packet)

    def _forward(self, source: RoutedMachine) -> None:
        for packet in source.packets():
            target = self._addresses.get(packet[_DESTINATION])
            if target is None:
                continue
            now = time.monotonic()
            arrival = self._routes.arrival(source.region, target.region, len(packet), now)
            if arrival is None:
                continue
            if arrival <= now:
                target.take(packet)
            else:
                self._sent += 1
                heapq.heappush(self._waiting, (arrival, self._sent, target, packet))

    def _obey(self) -> bool:
        """Whether further commands can come."""
        data, devices, _, _ = socket.recv_fds(self._commands, COMMAND_BYTES_MAX, 1)
        if not data:
            return False
        answer: list[list[str | int]] = []
        match json.loads(data):
            case {"routes": {"usual": usual, "others": others}}:
                self._routes.usual = RegionRoute(*usual)
                self._routes.others = {(one, two): RegionRoute(*route) for one, two, *route in others}
            case {"machine": {"address": address, "region": region}}:
                (device,) = devices
                machine = self._machines[device] = RoutedMachine(address, region, device)
                self._addresses[machine.address] = machine
            case {"cut": pairs}:
                self._routes.cut = {(source, target) for source, target in pairs}
            case {"sent": _}:
                answer = [[*pair, size] for pair, size in sorted(self._routes.sent.items())]
                self._routes.sent.clear()
        self._commands.send(json.dumps(answer).encode())
        return True


def main() -> None:
    """The program."""
    RegionRouter(socket.socket(fileno=sys.stdin.fileno())).run()


if __name__ == "__main__":
    main()
