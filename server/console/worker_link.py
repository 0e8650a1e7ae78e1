"""The node's end of the pipe to its console's worker process: starts it when somebody looks, ends it when nobody does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status

log = logging.getLogger("logdevice.console")

IDLE_SECONDS: Final = 60.0
"""For so long the worker is kept although nobody looks: opening a page again is fast."""
_ANSWER_MAX: Final = 64 << 20
"""Bytes of one answer; the worker keeps its answers far below."""
_END_SECONDS: Final = 2.0
_ALIVE_SECONDS: Final = 5.0
"""A worker that does not even say within so many seconds that it lives hangs."""
_SILENCE_SECONDS: Final = 60.0
"""After so many without a word, whoever watches has the worker asked whether it lives."""
_STDERR_KEPT: Final = 2000
_ROOT: Final = Path(__file__).parents[2]


class WorkerLink:
    """One worker at most. Requests and answers are lines: ``{"id": 7, "ask": "logs", ...}`` and ``7 OK {...}``.

    An answer is passed on as it comes: the node spends no time on what is in it.
    """

    def __init__(self, cluster_file: Path, node: NodeId, token: str | None) -> None:
        """
        Args:
            token: of the admin API; the worker uses it for those who have shown it.
        """
        self._arguments = (str(cluster_file), str(int(node)))
        self._token = token
        self._process: asyncio.subprocess.Process | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._answers: dict[int, asyncio.Queue[tuple[str, bytes]]] = {}
        self._last_id = 0
        self._asking = 0
        """Requests under way, those included that wait for the worker's start."""
        self._idle: asyncio.TimerHandle | None = None
        self._starting = asyncio.Lock()
        self._closed = False
        self._doubt: asyncio.Task[None] | None = None
        self._stderr = b""

    async def ask(self, what: str, given: Mapping[str, Any], *, authorized: bool, seconds: float) -> bytes:
        """What the worker answers, as JSON.

        Args:
            authorized: whoever asks has shown the token.

        Raises:
            LogDeviceError: as the worker says; TIMEDOUT: it does not answer in time; FAILED: it cannot be started, or ended.
        """
        async with aclosing(self._lines(what, given, authorized, seconds)) as answers:
            async for body in answers:
                return body
        raise AssertionError("a request ends with an answer or an error")

    def watch(self, what: str, given: Mapping[str, Any], *, authorized: bool) -> AsyncIterator[bytes]:
        """What the worker tells, as it tells it; for as long as it is iterated. Close it (`aclose`).

        Raises:
            LogDeviceError: as `ask`.
        """
        return self._lines(what, given, authorized, None)

    async def _lines(
        self, what: str, given: Mapping[str, Any], authorized: bool, seconds: float | None
    ) -> AsyncGenerator[bytes, None]:
        self._last_id += 1
        number = self._last_id
        self._asking += 1
        self._stay()
        try:
            try:
                async with asyncio.timeout(seconds):
                    process = await self._started()
            except TimeoutError:
                raise LogDeviceError(Status.TIMEDOUT, "the console's worker process does not start") from None
            # from here on: the end of a worker before this one is none of this request
            queue = self._answers[number] = asyncio.Queue[tuple[str, bytes]]()
            self._send(process, {"id": number, "ask": what, "authorized": authorized, "given": dict(given)})
            while True:
                try:
                    async with asyncio.timeout(_SILENCE_SECONDS if seconds is None else seconds):
                        status, body = await queue.get()
                except TimeoutError:
                    self._doubt_of(process)
                    if seconds is None:
                        continue
                    raise LogDeviceError(Status.TIMEDOUT, f"no answer within {seconds:g} s") from None
                if status != Status.OK.name:
                    raise LogDeviceError(Status[status], json.loads(body))
                yield body
        finally:
            self._asking -= 1
            sent = self._answers.pop(number, None) is not None
            if sent and self._process is not None and self._process.returncode is None:
                self._send(self._process, {"id": number, "ask": "forget"})
            if not self._asking and not self._closed:
                self._idle = asyncio.get_running_loop().call_later(IDLE_SECONDS, self.let_worker_end)

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def let_worker_end(self) -> None:
        """Nobody looks at the console: whoever asks next starts another worker."""
        self._idle = None
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()  # it ends then

    async def _started(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._closed:
                raise LogDeviceError(Status.SHUTDOWN)
            if self._process is not None and self._process.returncode is None and not _is_closing(self._process):
                return self._process
            await self._end()
            self._stderr = b""
            try:
                # -P: a directory that happens to be the current one must not bring modules of its own
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "server.console.worker", *self._arguments),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    limit=_ANSWER_MAX,
                    env={**os.environ, "PYTHONPATH": _import_path()},
                )
            except OSError as error:
                raise LogDeviceError(
                    Status.FAILED, f"the console's worker process cannot be started: {error}"
                ) from None
            self._process = process
            self._tasks = [
                asyncio.create_task(self._read(process), name="answers of the console's worker"),
                asyncio.create_task(self._read_errors(process), name="errors of the console's worker"),
            ]
            # by the pipe: arguments and the environment can be seen by others
            self._send(process, {"token": self._token})
            return process

    def _doubt_of(self, process: asyncio.subprocess.Process) -> None:
        """It did not answer in time: it waits for others, or it hangs."""
        if self._doubt is None or self._doubt.done():
            self._doubt = asyncio.create_task(self._end_if_it_hangs(process), name="whether the console's worker lives")

    async def _end_if_it_hangs(self, process: asyncio.subprocess.Process) -> None:
        """The next request starts another one then."""
        self._last_id += 1
        number = self._last_id
        queue = self._answers[number] = asyncio.Queue[tuple[str, bytes]]()
        self._send(process, {"id": number, "ask": "alive"})
        try:
            async with asyncio.timeout(_ALIVE_SECONDS):
                await queue.get()
        except TimeoutError:
            if process.returncode is None:
                log.error("the console's worker process hangs, and is ended")
                assert process.stdin is not None
                process.stdin.close()  # from here on nobody asks this one
                _kill(process)
        finally:
            self._answers.pop(number, None)

    def _send(self, process: asyncio.subprocess.Process, content: Mapping[str, Any]) -> None:
        assert process.stdin is not None
        if not process.stdin.is_closing():
            process.stdin.write(json.dumps(content).encode() + b"\n")

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        try:
            while line := await process.stdout.readline():
                number, status, body = line.rstrip(b"\n").split(b" ", 2)
                queue = self._answers.get(int(number))
                if queue is not None:
                    queue.put_nowait((status.decode(), body))
        except ValueError:
            log.error("the console's worker process said what is not understood, and is ended")
        self.let_worker_end()
        reason = self._stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
        text = f"the console's worker process ended{f': {reason}' if reason else ''}"
        for queue in self._answers.values():
            queue.put_nowait((Status.FAILED.name, json.dumps(text).encode()))

    async def _read_errors(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while text := await process.stderr.read(_STDERR_KEPT):
            self._stderr = (self._stderr + text)[-_STDERR_KEPT:]

    async def close(self) -> None:
        """End the worker; who waits for an answer is told."""
        self._closed = True
        self._stay()
        if self._doubt is not None:
            self._doubt.cancel()
        async with self._starting:
            await self._end()

    async def _end(self) -> None:
        """End the worker. Whoever is cancelled meanwhile leaves it to the next one: until it has ended, no other is started."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            _kill(process)
            await process.wait()
        await asyncio.wait(self._tasks)
        self._process = None


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended by itself, and nobody has told yet
        process.kill()


def _import_path() -> str:
    """Ours before what the user has set: a placement policy may be there."""
    given = os.environ.get("PYTHONPATH")
    return f"{_ROOT}{os.pathsep}{given}" if given else str(_ROOT)


def _is_closing(process: asyncio.subprocess.Process) -> bool:
    return process.stdin is None or process.stdin.is_closing()
