"""A proxy before a ZooKeeper server that can lose answers. The server itself is `server.dev.zookeeper_server`."""

from __future__ import annotations

import contextlib
import socket
import threading

HOST = "127.0.0.1"
_WRITES = (1, 5)
"""Numbers of ZooKeeper's create and setData."""


class LosingProxy:
    """A TCP proxy before a server. `lose_answers` lets requests through and throws the answers away, then `cut` ends the connections, so
    that clients never learn what became of their requests."""

    def __init__(self, target_port: int) -> None:
        self.lose_answers = False
        self.lose_answers_at_write = 0
        """Lose answers from this many-th further write on; 0: do not count."""
        self.accepted = 0
        """Connections that it took so far."""
        self._target_port = target_port
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{HOST}:{self.port}"

    def cut(self) -> None:
        """End all connections."""
        connections, self._connections = self._connections, []
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Take no more connections, and end those there are."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            try:
                server = socket.create_connection((HOST, self._target_port))
            except OSError:
                client.close()
                continue
            self._connections += [client, server]
            threading.Thread(target=self._copy, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._copy, args=(server, client, True), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket, answers: bool) -> None:
        unparsed = bytearray()
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not answers:
                    unparsed += data
                    self._count_writes(unparsed)
                if not (answers and self.lose_answers):
                    target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        source.close()

    def _count_writes(self, stream: bytearray) -> None:
        """Take whole requests off the stream: length, transaction id, operation."""
        while len(stream) >= 4 and len(stream) >= 4 + int.from_bytes(stream[:4]):
            operation = int.from_bytes(stream[8:12])
            del stream[: 4 + int.from_bytes(stream[:4])]
            if operation in _WRITES and self.lose_answers_at_write > 0:
                self.lose_answers_at_write -= 1
                self.lose_answers |= self.lose_answers_at_write == 0
