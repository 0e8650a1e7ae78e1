"""The server processes of one system on this machine: started, killed, paused, stopped, and never left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.ldbench.engine import EngineError, ServerProcess, StartOptions
from benchmarks.ldbench.servers import MissingServerError
from logdevice_py.programs import own_program
from server.dev.free_ports import LOOPBACK

START_TIMEOUT = 90.0
"""Seconds that servers get until they serve."""
STOP_TIMEOUT = 10.0
_POLL = 0.05
_QUOTED = 2000


@dataclass(slots=True)
class _Declared:
    role: str
    command: Sequence[str]
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes] | None = None
    paused: bool = False
    files: Sequence[Path] = field(default_factory=list)


class ServerProcesses:
    """Processes by name. What they print goes to ``NAME.out`` in the directory. They die with this process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._declared: dict[str, _Declared] = {}

    def declare(
        self,
        name: str,
        role: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        files: Sequence[Path] = (),
    ) -> None:
        """A server that `launch` starts.

        Args:
            name: as `ServerProcess.name`.
            role: as `ServerProcess.role`.
            command: becomes the process itself, no shell or launcher stays in between.
            environment: beside that of this process.
            files: its configuration, for the report.
        """
        self._declared[name] = _Declared(role, command, environment or {}, files=files)

    def names(self, role: str) -> list[str]:
        """All servers of a role, whether they run or not."""
        return [name for name, declared in self._declared.items() if declared.role == role]

    def running(self) -> list[ServerProcess]:
        """Those that run, in the order of their declaration."""
        return [
            ServerProcess(name, declared.role, declared.process.pid)
            for name, declared in self._declared.items()
            if declared.process is not None and declared.process.poll() is None
        ]

    def launch(self, *names: str) -> None:
        """Start servers. Call it on the main thread: the kernel ties their lives to the thread that starts them."""
        for name in names:
            declared = self._declared[name]
            assert declared.process is None, f"{name} runs already"
            tied = own_program("server.die_with_parent", os.getpid(), *declared.command)
            with self._output(name).open("ab") as output:
                declared.process = subprocess.Popen(
                    tied,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env={**os.environ, **declared.environment},
                    start_new_session=True,
                )

    async def until(self, done: Callable[[], Awaitable[bool]], what: str, timeout: float = START_TIMEOUT) -> None:
        """Wait until `done` says so.

        Raises:
            EngineError: `timeout` seconds passed, or a process ended; quotes what it printed.
        """
        deadline = asyncio.get_running_loop().time() + timeout
        while not await done():
            self._check_alive(what)
            if asyncio.get_running_loop().time() > deadline:
                quotes = "".join(self._quote(name) for name in self._declared)
                raise EngineError(f"{what}: not within {timeout:g} s{quotes}")
            await asyncio.sleep(_POLL)

    def _check_alive(self, what: str) -> None:
        for name, declared in self._declared.items():
            if declared.process is not None and declared.process.poll() is not None:
                raise EngineError(f"{what}: {name} ended with {declared.process.returncode}{self._quote(name)}")

    async def kill(self, name: str) -> None:
        """SIGKILL, and wait until it is gone."""
        process = self._take(name)
        process.kill()
        await asyncio.to_thread(process.wait)

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self._signal(name, signal.SIGSTOP)
        self._declared[name].paused = True

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self._signal(name, signal.SIGCONT)
        self._declared[name].paused = False

    async def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """End all in order, and kill those that have not ended after `timeout` seconds."""
        taken = [self._take(name) for name, declared in self._declared.items() if declared.process is not None]
        for process in taken:
            # a paused process takes the signal when it goes on
            process.send_signal(signal.SIGTERM)
            process.send_signal(signal.SIGCONT)
        await asyncio.gather(*(asyncio.to_thread(_end, process, timeout) for process in taken))

    def configuration(self) -> dict[str, str]:
        """Command lines and configuration files."""
        told = {name: " ".join(declared.command) for name, declared in self._declared.items()}
        for declared in self._declared.values():
            told |= {path.name: path.read_text() for path in declared.files}
        return told

    def _take(self, name: str) -> subprocess.Popen[bytes]:
        declared = self._declared[name]
        process, declared.process, declared.paused = declared.process, None, False
        assert process is not None, f"{name} does not run"
        return process

    def _signal(self, name: str, number: int) -> None:
        process = self._declared[name].process
        assert process is not None, f"{name} does not run"
        process.send_signal(number)

    def _output(self, name: str) -> Path:
        return self._directory / f"{name}.out"

    def _quote(self, name: str) -> str:
        output = self._output(name)
        printed = output.read_text(errors="replace")[-_QUOTED:].strip() if output.exists() else ""
        return f"\n{name} printed at last:\n{printed}" if printed else ""


def _end(process: subprocess.Popen[bytes], timeout: float) -> None:
    try:
        process.wait(timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def accepts(port: int) -> bool:
    """Whether somebody listens on a port of loopback."""
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    return True


def why_no_servers(options: StartOptions, title: str, find: Callable[[], object]) -> str | None:
    """Why a system whose servers `find` looks for cannot be measured here, as `Engine.unavailable`; None when it can."""
    if options.sync_delay_us:
        return f"this driver cannot make the syncs of {title} slower"
    try:
        find()
    except MissingServerError as error:
        return str(error)
    return None


class RunningServers:
    """What every started system does with its servers, whichever they are."""

    def __init__(self, servers: ServerProcesses) -> None:
        self._servers = servers

    def processes(self) -> Sequence[ServerProcess]:
        """As `RunningEngine.processes`."""
        return self._servers.running()

    async def kill(self, name: str) -> None:
        """As `RunningEngine.kill`."""
        await self._servers.kill(name)

    async def pause(self, name: str) -> None:
        """As `RunningEngine.pause`."""
        self._servers.pause(name)

    async def resume(self, name: str) -> None:
        """As `RunningEngine.resume`."""
        self._servers.resume(name)

    async def restart(self, name: str) -> None:
        """As `RunningEngine.restart`."""
        self._servers.launch(name)

    async def whole(self, log: str) -> bool:
        """As `RunningEngine.whole`: where the system does not tell, the harness' own pause has to do."""
        return True

    def sample(self, on: bool) -> None:
        """As `RunningEngine.sample`: these servers have no profiles."""

    def configuration(self) -> Mapping[str, str]:
        """As `RunningEngine.configuration`."""
        return self._servers.configuration()
