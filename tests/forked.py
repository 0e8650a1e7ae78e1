"""Our programs as processes of tests, without the half second of a processor that starting Python and importing them takes each time.

They are processes with pipes, signals and exit statuses: `tests.fork_server`, which has imported them, forks them. How they start from nothing
is tested by those tests that name the installed programs, such as test_cli.py, and by every cluster of ``ld-dev-cluster``.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.fork_server import MESSAGE_BYTES

ROOT = Path(__file__).parents[1]
_STARTING = threading.Lock()


class _Server:
    def __init__(self, environment: dict[str, str]) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-P", "-m", "tests.fork_server", str(number)]
            self._process = subprocess.Popen(
                command,
                pass_fds=[number],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                cwd=ROOT,
                env=environment,
            )
        atexit.register(self._end)

    @property
    def process(self) -> int:
        """Its number: the parent of what it forks."""
        return self._process.pid

    def _end(self) -> None:
        self._connection.close()
        self._process.wait()

    def fork(
        self,
        module: str,
        arguments: list[str],
        files: tuple[int, int, int],
        *,
        environment: Mapping[str, str],
        directory: Path | str | None,
        session: bool,
    ) -> tuple[int, int]:
        """The number of a new process, and a pipe that says how it ends."""
        request = {
            "module": module,
            "arguments": arguments,
            "environment": dict(environment),
            "directory": os.fspath(directory or os.getcwd()),
            "session": session,
        }
        message = json.dumps(request).encode()
        assert len(message) < MESSAGE_BYTES
        ends, told = os.pipe()
        try:
            socket.send_fds(self._connection, [message], [*files, told])
        finally:
            os.close(told)
        return _number(ends), ends


def _number(pipe: int) -> int:
    """A line that holds a number."""
    line = b""
    while not line.endswith(b"\n"):
        got = os.read(pipe, 1)
        if not got:
            raise AssertionError("the process that forks programs has ended")
        line += got
    return int(line)


_servers: dict[frozenset[tuple[str, str]], _Server] = {}
"""By what only a Python that starts looks at."""


def _server(environment: Mapping[str, str]) -> _Server:
    key = frozenset((name, value) for name, value in environment.items() if name.startswith("PYTHON"))
    with _STARTING:
        if key not in _servers:
            _servers[key] = _Server(dict(environment))
        return _servers[key]


class ForkedProcess:
    """A process that was forked, as `asyncio.subprocess.Process` is one."""

    def __init__(self, pid: int, ends: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        """None: it runs."""
        self._ends = ends
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(ends, self._take_end)

    def _take_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._ends)
        with contextlib.closing(open(self._ends, "rb")) as pipe:
            self.returncode = int(pipe.readline())
        self._ended.set()

    async def wait(self) -> int:
        """Until it has ended; its exit status, or minus the number of the signal that ended it."""
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Any signal.

        Raises:
            ProcessLookupError: it has ended.
        """
        if self.returncode is not None:
            raise ProcessLookupError
        os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


def parent() -> int:
    """The process whose children are forked: what `die_with_parent` is told."""
    return _server(os.environ).process


async def fork(module: str, *arguments: object, output: int) -> ForkedProcess:
    """A process that has no input, writes to a file, and is in a session of its own.

    Args:
        module: has the program's `main`.
        output: number of a file that standard output and error go to.
    """
    with open(os.devnull, "rb") as nothing:
        files = nothing.fileno(), output, output
        pid, ends = await asyncio.to_thread(
            functools.partial(
                _server(os.environ).fork,
                module,
                list(map(str, arguments)),
                files,
                environment=os.environ,
                directory=None,
                session=True,
            )
        )
    return ForkedProcess(pid, ends)


def run_program(
    module: str,
    *arguments: object,
    given: bytes = b"",
    environment: Mapping[str, str] | None = None,
    directory: Path | str | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[bytes]:
    """A program from its start to its end.

    Args:
        module: has the program's `main`.
        given: its standard input.
        environment: all of it; by default this process's.
        directory: where it works; by default this process's.
        timeout: seconds, after which it is killed.

    Raises:
        subprocess.TimeoutExpired: it took longer.
    """
    words = list(map(str, arguments))
    environment = os.environ if environment is None else environment
    pipes = [os.pipe() for _ in range(3)]
    (input_end, write_end), (read_out, output_end), (read_err, error_end) = pipes
    try:
        pid, ends = _server(environment).fork(
            module,
            words,
            (input_end, output_end, error_end),
            environment=environment,
            directory=directory,
            session=False,
        )
    finally:
        for end in (input_end, output_end, error_end):
            os.close(end)
    late = threading.Event()

    def kill() -> None:
        late.set()
        os.kill(pid, signal.SIGKILL)

    timer = threading.Timer(timeout, kill)
    feeding = threading.Thread(target=_feed, args=(write_end, given))
    said: list[bytes] = []
    listening = threading.Thread(target=lambda: said.append(_drain(read_err)))
    for thread in (timer, feeding, listening):
        thread.start()
    try:
        out = _drain(read_out)
        status = _number(ends)
    finally:
        timer.cancel()
        for thread in (feeding, listening):
            thread.join()
        os.close(ends)
    if late.is_set():
        raise subprocess.TimeoutExpired([module, *words], timeout, out, said[0])
    return subprocess.CompletedProcess([module, *words], status, out, said[0])


def _feed(end: int, given: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(end, "wb", buffering=0) as pipe:
        rest = memoryview(given)
        while rest:
            rest = rest[pipe.write(rest) :]


def _drain(end: int) -> bytes:
    with open(end, "rb") as pipe:
        return pipe.read()


async def run_program_async(
    module: str, *arguments: object, given: str = "", timeout: float = 60
) -> tuple[int, str, str]:
    """The same beside an event loop: exit status, standard output and error as text."""
    done = await asyncio.to_thread(
        functools.partial(run_program, module, *arguments, given=given.encode(), timeout=timeout)
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()
