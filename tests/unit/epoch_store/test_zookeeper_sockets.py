"""How kazoo's sockets are made: who is tried, and what is told of who is not."""

from __future__ import annotations

import socket

import pytest

from epoch_store.zookeeper_sockets import SocketHandler
from logdevice_py.core.units import SECOND, Micros


def test_the_server_that_was_left_is_passed_over_once_and_kazoo_can_say_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        sockets = SocketHandler(Micros(SECOND), address)
        with pytest.raises(OSError, match="another server is tried first") as raised:
            sockets.create_connection(address=address)
        assert raised.value.strerror == "another server is tried first", "kazoo logs this, not the whole error"
        with sockets.create_connection(address=address):
            assert sockets.last == address
