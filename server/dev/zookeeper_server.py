"""A real ZooKeeper server on this machine, for development and demos: the jars are those that the pyspark package brings.

The server is a process of its own that dies with the process that started it. Its data stay in its directory, so that it can be killed and
started again.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from logdevice_py.programs import own_program
from server.dev.free_ports import LOOPBACK, free_ports
from server.private_files import make_private_directory

START_TIMEOUT = 60.0
"""Seconds that a server gets until it serves: a virtual machine starts in one, and on two cores that others use in ten times that."""
STOP_TIMEOUT = 5.0
_JARS = ("zookeeper-3", "zookeeper-jute-", "slf4j-api-", "metrics-core-", "snappy-java-", "netty-")
_POLL = 0.025
_ASK_AGAIN_MS = 2000
"""How rarely a server of an ensemble that finds no majority looks for the leader; by itself ever more rarely, after a while once a minute."""


class ZooKeeperUnavailableError(Exception):
    """No server can be started, or it did not start; the text says why and what to do."""


def why_no_zookeeper() -> str | None:
    """Why no server can be started here, and what helps; None when it can."""
    if shutil.which("java") is None:
        return "ZooKeeper's server needs Java and there is no java on the PATH: run make java, or install a Java runtime (17 or later)"
    if not _jars():
        return "ZooKeeper's server comes with the pyspark package, which is not installed: pip install 'logdevice-py[spark]'"
    return None


def _jars() -> list[str]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return []
    directory = Path(spec.origin).parent / "jars"
    return [str(path) for path in sorted(directory.glob("*.jar")) if path.name.startswith(_JARS)]


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """With which certificates a server speaks TLS, as `ldctl identity make --host HOST zookeeper` makes them."""

    ca: Path
    certificate: Path
    """And its key, in one file."""

    def config(self) -> str:
        """For zoo.cfg. ZooKeeper tells what a file is by its name: ours are PEM."""
        return (
            "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
            f"ssl.keyStore.location={self.certificate}\nssl.keyStore.type=PEM\n"
            f"ssl.trustStore.location={self.ca}\nssl.trustStore.type=PEM\n"
            "ssl.clientAuth=need\nssl.hostnameVerification=false\nssl.protocol=TLSv1.3\nssl.enabledProtocols=TLSv1.3\n"
        )

    def context(self) -> ssl.SSLContext:
        """Of who looks whether it serves."""
        context = ssl.create_default_context(cafile=self.ca)
        context.load_cert_chain(self.certificate)
        return context


def _tells_its_mode(connection: socket.socket) -> bool:
    connection.sendall(b"srvr")
    return b"Mode:" in connection.recv(4096)


@dataclass(frozen=True, slots=True)
class Ensemble:
    """Servers that stand in for each other: as long as most of them are there, they serve."""

    hosts: Sequence[str]
    """Of all of them, in an order that stays. Each listens at the same ports."""
    number: int
    """Which of them a server is."""

    def config(self) -> str:
        """For zoo.cfg. Who follows has two seconds to read all that there is, and may be one behind."""
        members = [f"server.{number + 1}={host}:2888:3888\n" for number, host in enumerate(self.hosts)]
        return "".join(["initLimit=10\nsyncLimit=5\n", *members])


class ZooKeeperServer:
    """One server, alone or of an ensemble. It keeps its address and its data in `directory` over restarts."""

    def __init__(
        self,
        directory: Path,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        tick_ms: int = 200,
        heap_mb: int = 128,
        tls: ZooKeeperTls | None = None,
        ensemble: Ensemble | None = None,
        namespace: str | None = None,
    ) -> None:
        """
        Args:
            directory: its data, configuration and output.
            host: where it listens.
            port: 0 takes a free one.
            tick_ms: ZooKeeper's unit of time; sessions time out after 2 to 20 of them.
            heap_mb: of its virtual machine, which holds all that it stores.
            tls: it speaks TLS only; None: clear text.
            ensemble: it serves once most of them have been started; None: it is alone.
            namespace: of the network, where it runs; None: where this process does.
        """
        self.host = host
        self.port = port or free_ports(1, host)[0]
        self._heap_mb = heap_mb
        self._process: subprocess.Popen[bytes] | None = None
        make_private_directory(directory)
        self.log = directory / "server.log"
        """What the server printed."""
        self._config = directory / "zoo.cfg"
        self._tls = tls
        self._ensemble = ensemble
        self._namespace = namespace
        port_name = "clientPort" if tls is None else "secureClientPort"
        self._config.write_text(
            f"dataDir={directory / 'data'}\n{port_name}={self.port}\n{port_name}Address={host}\ntickTime={tick_ms}\n"
            f"admin.enableServer=false\n4lw.commands.whitelist=srvr\n{'' if tls is None else tls.config()}"
            f"{'' if ensemble is None else ensemble.config()}"
        )
        if ensemble is not None:
            (directory / "data").mkdir(exist_ok=True)
            (directory / "data" / "myid").write_text(str(ensemble.number + 1))

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """As a cluster file names it."""
        return f"zookeeper://{self.address}"

    @property
    def running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it and wait until it serves.

        Raises:
            ZooKeeperUnavailableError: there is no Java, or the server did not start.
        """
        self.launch()
        deadline = time.monotonic() + START_TIMEOUT
        while not self._serves():
            self._check_starting(deadline)
            time.sleep(_POLL)

    async def start_async(self) -> None:
        """The same without blocking the event loop. Call it on the main thread: the server dies with the thread that started it."""
        self.launch()
        await self.until_serving()

    async def until_serving(self) -> None:
        """Wait until a server that was launched serves.

        Raises:
            ZooKeeperUnavailableError: it did not come to that.
        """
        deadline = time.monotonic() + START_TIMEOUT
        while not await asyncio.to_thread(self._serves):
            self._check_starting(deadline)
            await asyncio.sleep(_POLL)

    def stop(self) -> None:
        """Stop it in order."""
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT)
            self.kill()

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

    def launch(self) -> None:
        """Start it and do not wait: of an ensemble none serves before most are there.

        Raises:
            ZooKeeperUnavailableError: there is no Java.
        """
        assert self._process is None, "it runs already"
        problem = why_no_zookeeper()
        if problem is not None:
            raise ZooKeeperUnavailableError(problem)
        command = own_program("server.die_with_parent", os.getpid())
        if self._namespace is not None:
            command += ["ip", "netns", "exec", self._namespace]
        command += [
            "java",
            f"-Xmx{self._heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            f"-Dzookeeper.fastleader.maxNotificationInterval={_ASK_AGAIN_MS}",
            "-cp",
            ":".join(_jars()),
        ]
        main = "ZooKeeperServerMain" if self._ensemble is None else "quorum.QuorumPeerMain"
        command += [f"org.apache.zookeeper.server.{main}", str(self._config)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _check_starting(self, deadline: float) -> None:
        if not self.running or time.monotonic() > deadline:
            self.kill()
            printed = self.log.read_text(errors="replace")[-2000:].strip()
            raise ZooKeeperUnavailableError(
                f"ZooKeeper did not start at {self.address}; {self.log} ends with\n{printed}"
            )

    def _serves(self) -> bool:
        """The port opens before it serves: only an answer tells."""
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as connection:
                if self._tls is None:
                    return _tells_its_mode(connection)
                with self._tls.context().wrap_socket(connection, server_hostname=self.host) as encrypted:
                    return _tells_its_mode(encrypted)
        except OSError:
            return False
