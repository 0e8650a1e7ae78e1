"""Keeps applications under simulation from the real network: blocking sockets would reach it past the loop, which has none."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from functools import cache, wraps
from typing import Any, Final

from logdevice_py.simulation.event_loop import SimEventLoop, refuse

_METHODS: Final = ("bind", "connect", "connect_ex", "sendto")
_FUNCTIONS: Final = ("getaddrinfo", "gethostbyaddr", "gethostbyname", "gethostbyname_ex")


@cache
def guard_sockets() -> None:
    """From now on, blocking sockets are refused to whatever runs on a simulated loop; nothing else notices."""
    for name in _METHODS:
        setattr(socket.socket, name, _guarded(f"socket.{name}", getattr(socket.socket, name)))
    for name in _FUNCTIONS:
        setattr(socket, name, _guarded(f"socket.{name}", getattr(socket, name)))


def _guarded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def guarded(*arguments: Any, **named: Any) -> Any:
        if isinstance(asyncio._get_running_loop(), SimEventLoop):
            refuse(f"blocking sockets ({name})")
        return real(*arguments, **named)

    return guarded
