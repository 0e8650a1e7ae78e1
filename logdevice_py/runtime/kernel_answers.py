"""What the kernel knows of the other end of a TCP connection: whether it acknowledges what it is sent, however busy or stopped its process is."""

from __future__ import annotations

import contextlib
import socket
from typing import Final

_TCP_INFO_HEAD: Final = 4
"""Bytes of Linux' struct tcp_info: the state, that of congestion control, and the two counts that are used here."""
_TRIES_MAX: Final = 2
"""Tries in vain after which nobody acknowledges: one lost packet is no reason."""


def ask_rarely(sock: socket.socket) -> None:
    """Have the kernel ask whether the other end is there when nothing has come for ten seconds."""
    _ask(sock, idle=10, interval=5)


def ask_often(sock: socket.socket) -> None:
    """The same, each second: on a connection that has nothing to send nothing else shows that its packets vanish."""
    _ask(sock, idle=1, interval=1)


def _ask(sock: socket.socket, *, idle: int, interval: int) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, interval)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, idle)


def acknowledges_nothing(sock: socket.socket) -> bool:
    """The kernel sent bytes again, or asked whether the other end is there, twice in a row without any answer.

    A process that is stopped, or does not read, does not matter: its kernel answers, also that there is no room.
    """
    try:
        head = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_HEAD)
    except OSError:
        return False
    _, _, retransmissions, probes = head
    return max(retransmissions, probes) >= _TRIES_MAX
