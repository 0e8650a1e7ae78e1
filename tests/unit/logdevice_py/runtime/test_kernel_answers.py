"""When the kernel's counts say that nobody is at the other end."""

from __future__ import annotations

import socket

import pytest

from logdevice_py.runtime.kernel_answers import acknowledges_nothing, ask_often, ask_rarely


class FakeSocket:
    """Of which the kernel tells that head of its struct tcp_info."""

    def __init__(self, head: bytes | None) -> None:
        self.head = head

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option, size) == (socket.IPPROTO_TCP, socket.TCP_INFO, 4)
        if self.head is None:
            raise OSError("the socket is closed")
        return self.head


@pytest.mark.parametrize(
    ("retransmissions", "probes", "nobody"),
    [(0, 0, False), (1, 0, False), (0, 1, False), (1, 1, False), (2, 0, True), (0, 2, True), (15, 0, True)],
)
def test_two_tries_in_vain(retransmissions: int, probes: int, nobody: bool) -> None:
    sock = FakeSocket(bytes([1, 0, retransmissions, probes]))
    assert acknowledges_nothing(sock) is nobody  # type: ignore[arg-type]


def test_of_a_socket_that_is_closed_nothing_is_known() -> None:
    assert not acknowledges_nothing(FakeSocket(None))  # type: ignore[arg-type]


def test_a_real_connection_is_acknowledged() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sock:
        for ask, idle in ((ask_often, 1), (ask_rarely, 10)):
            ask(sock)
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == idle
        sock.sendall(b"x")
        assert not acknowledges_nothing(sock)
