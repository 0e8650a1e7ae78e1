"""A real ZooKeeper server for tests, run from the jars in the pyspark package, and a proxy that can lose answers."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import pyspark

_JARS = ("zookeeper-3", "zookeeper-jute-", "slf4j-api-", "metrics-core-", "snappy-java-", "netty-")
HOST = "127.0.0.1"
_WRITES = (1, 5)
"""Numbers of ZooKeeper's create and setData."""


def why_no_zookeeper() -> str | None:
    """Why no server can be started here; None when it can."""
    if shutil.which("java") is None:
        return "there is no java on the PATH, which a ZooKeeper server needs"
    if not _jars():
        return f"the pyspark package has no ZooKeeper in {_jar_directory()}"
    return None


def _jar_directory() -> Path:
    return Path(pyspark.__file__).parent / "jars"


def _jars() -> list[str]:
    return [str(path) for path in sorted(_jar_directory().glob("*.jar")) if path.name.startswith(_JARS)]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


class ZooKeeperServer:
    """One standalone server; its data stay in `directory` over restarts."""

    def __init__(self, directory: Path, *, tick_ms: int = 200) -> None:
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        directory.mkdir(parents=True, exist_ok=True)
        self._log = directory / "server.log"
        self._config = directory / "zoo.cfg"
        self._config.write_text(
            f"dataDir={directory / 'data'}\nclientPort={self.port}\nclientPortAddress={HOST}\ntickTime={tick_ms}\n"
            "admin.enableServer=false\n4lw.commands.whitelist=srvr\n"
        )

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{HOST}:{self.port}"

    def start(self) -> None:
        """Start it and wait until it serves."""
        assert self._process is None
        command = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", ":".join(_jars())]
        command += ["org.apache.zookeeper.server.ZooKeeperServerMain", str(self._config)]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        for _ in range(400):
            if self._serves():
                return
            if self._process.poll() is not None:
                break
            time.sleep(0.025)
        self.kill()
        raise RuntimeError(f"ZooKeeper did not start:\n{self._log.read_text()[-4000:]}")

    def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGCONT)

    def _serves(self) -> bool:
        try:
            with socket.create_connection((HOST, self.port), timeout=1) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in connection.recv(4096)
        except OSError:
            return False


class LosingProxy:
    """A TCP proxy before a server. `lose_answers` lets requests through and throws the answers away, then `cut` ends the connections, so
    that clients never learn what became of their requests."""

    def __init__(self, target_port: int) -> None:
        self.lose_answers = False
        self.lose_answers_at_write = 0
        """Lose answers from this many-th further write on; 0: do not count."""
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
