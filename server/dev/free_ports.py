"""Ports for servers of others that this machine is to run."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

LOOPBACK: Final = "127.0.0.1"
_PORTS: Final = 10_000, 32_768


def free_ports(count: int, host: str = LOOPBACK) -> list[int]:
    """So many different ports that nobody listens on. They are none of those that the kernel gives to whoever connects to somebody, so that
    they are still free when they are used, and when a server that was killed is started again.
    """
    with contextlib.ExitStack() as probes:
        ports: list[int] = []
        while len(ports) < count:
            probe = probes.enter_context(socket.socket())
            port = random.SystemRandom().randrange(*_PORTS)
            with contextlib.suppress(OSError):
                probe.bind((host, port))
                ports.append(port)
        return ports
