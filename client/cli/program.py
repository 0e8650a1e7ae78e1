"""What all programs share: standard streams, exit statuses, errors in one line, and what they say while they wait."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO, TypeVar

from client.cli.options import Words, cluster_option, complete_files, complete_words, program_options
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import format_duration, parse_duration

if TYPE_CHECKING:
    from client.client import Client
    from logdevice_py.core.ids import LogId

EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
EXIT_USAGE: Final = 2
EXIT_DATA_LOSS: Final = 3
EXIT_UNANSWERED: Final = 4
EXIT_UNHEALTHY: Final = 5
EXIT_INTERRUPTED: Final = 130
EXIT_STATUSES: Final = (
    "Exit status: 0 done; 1 failed; 2 wrong use, no such log, or not the file of this cluster; 3 data loss was reported; "
    "4 the cluster, or a node of it, did not answer in time; 5 it answers, and something is wrong (status, doctor), would be (check-impact) or is not granted (maintenance); 130 interrupted."
)
_USAGE = frozenset(
    {
        Status.NOTFOUND,
        Status.NOTINCONFIG,
        Status.ACCESS,
        Status.INVALID_PARAM,
        Status.INVALID_CONFIG,
        Status.INVALID_CLUSTER,
    }
)
_UNANSWERED = frozenset(
    {
        Status.TIMEDOUT,
        Status.PARTIAL,
        Status.CONNFAILED,
        Status.PEER_CLOSED,
        Status.NOSEQUENCER,
        Status.AGAIN,
        Status.NOTREADY,
        Status.ISOLATED,
        Status.UNROUTABLE,
    }
)
LOOK_SECONDS: Final = 0.1
NOTE_SECONDS: Final = (2.0, 10.0, 30.0)
"""After how long a program that waits says so; then once for every `NOTES_APART`."""
NOTES_APART: Final = 60.0
T = TypeVar("T")
# Control characters could drive the terminal, and invisible ones that turn the direction of writing could fake what stands there.
_UNSAFE: Final = {
    code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
    for code in (
        *(code for code in range(0x20) if code != 0x09),
        *range(0x7F, 0xA0),
        0x061C,
        0x200E,
        0x200F,
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
        0xFEFF,
    )
}


class OutputError(Exception):
    """Standard output takes nothing."""


class InputError(Exception):
    """Standard input gives nothing."""


def make_safe(payload: bytes) -> str:
    """Text that cannot drive a terminal: control and direction characters and bytes that are no UTF-8 are shown as escapes."""
    return payload.decode("utf-8", "backslashreplace").translate(_UNSAFE)


def compact_json(values: object) -> bytes:
    """A line of JSON without spaces between what it holds."""
    return json.dumps(values, separators=(",", ":")).encode() + b"\n"


def common_options(options: argparse.ArgumentParser, *, timeout: str, many: bool = False) -> None:
    """Options of every program; `timeout` says what holds without one. `many`: of logs, where one is asked for otherwise."""
    cluster_option(options)
    program_options(options)
    if many:
        action = options.add_argument(
            "logs",
            nargs="+",
            metavar="LOG",
            help="id of a log, its path like /team/clicks, or a pattern like '/team/*'",
        )
    else:
        action = options.add_argument("log", metavar="LOG", help="id of the log, or its path like /team/clicks")
    complete_words(action, Words.LOGS)
    options.add_argument(
        "--timeout",
        type=parse_timeout,
        metavar="T",
        help=f"fail when the cluster lets nothing move for this long, like 10s or 2min ({timeout})",
    )
    options.epilog = EXIT_STATUSES


def token_file_option(options: argparse.ArgumentParser, *, default: Any = None) -> None:
    """The option of programs that use the admin API."""
    action = options.add_argument(
        "--token-file",
        metavar="FILE",
        default=default,
        help="holds the token of the nodes' admin API (default: the file beside the cluster file with its name and the suffix .token)",
    )
    complete_files(action)


def parse_timeout(text: str) -> float:
    """Seconds, from a number of seconds or a duration with a unit; for `argparse`."""
    try:
        seconds = float(text) if text.replace(".", "", 1).isdecimal() else parse_duration(text) / 1e6
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0.001 <= seconds <= 1e8:
        raise argparse.ArgumentTypeError(f"{text!r} is out of range: write 1ms at least")
    return seconds


def exit_status(error: LogDeviceError) -> int:
    """What a program that ends with this error ends with."""
    if error.status in _USAGE:
        return EXIT_USAGE
    return EXIT_UNANSWERED if error.status in _UNANSWERED else EXIT_FAILED


# Standard streams


def say(program: str, text: str, *, alarm: bool = False, to: TextIO | None = None) -> None:
    """A line on standard error, or elsewhere; an alarm in red where that is a terminal. Nobody can be told when that fails."""
    text = make_safe(text.encode("utf-8", "backslashreplace"))
    stream = to or sys.stderr
    with contextlib.suppress(OSError, ValueError):
        if alarm and stream.isatty() and not os.environ.get("NO_COLOR"):
            text = f"\x1b[31m{text}\x1b[0m"
        print(f"{program}: {text}", file=stream, flush=True)


def standard_output() -> BinaryIO:
    """Where results go.

    Raises:
        OutputError: it was closed before the program started.
    """
    if sys.stdout is None:
        raise OutputError("standard output is closed")
    return sys.stdout.buffer


def put(out: BinaryIO, data: bytes) -> None:
    """Write and flush.

    Raises:
        BrokenPipeError: nobody reads any more.
        OutputError: the data cannot be written.
    """
    try:
        out.write(data)
        out.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"standard output: {error.strerror}") from None


def _occupy_closed_streams() -> None:
    """A socket must not become standard input, output or error because that was closed."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process


def discard_output() -> None:
    """What could not be written is dropped, and the interpreter reports nothing at its end."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_program(name: str, work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run an asyncio program to its exit status; errors become one line on standard error."""
    _occupy_closed_streams()
    logging.basicConfig(level=logging.WARNING, format=f"{name}: %(message)s")
    connections = logging.getLogger("logdevice.transport")
    level = connections.level
    connections.setLevel(logging.ERROR)  # `Attendant` tells whom the client reaches
    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        discard_output()
        return EXIT_OK
    except (OutputError, InputError) as error:
        discard_output()
        say(name, str(error))
        return EXIT_FAILED
    except LogDeviceError as error:
        say(name, str(error))
        return exit_status(error)
    finally:
        connections.setLevel(level)


# Waiting


class Attendant:
    """Looks after a program while it works: says what it waits for, and ends it when waiting is of no use."""

    def __init__(
        self,
        program: str,
        client: Client,
        *logs: LogId,
        timeout: float | None = None,
        say: Callable[[str, str], None] = say,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._program = program
        self._client = client
        self._logs = logs
        self._timeout = timeout
        self._say = say
        self._clock = clock
        self._since = clock()
        self._progress: object = None
        self._notes = 0
        self.waits_for: Callable[[], str | None] = lambda: None
        """What nothing moves without, in words. None: nothing, or what may take its time."""
        self.progress: Callable[[], object] = lambda: None
        """A value that changes whenever something moves."""

    async def find(self, looking: Awaitable[T]) -> T:
        """Wait for logs to be looked up; from here on their removal ends the program."""
        self.waits_for = lambda: "the log tree"
        found: Any = await looking
        self.waits_for = lambda: None
        self._logs += tuple(found) if isinstance(found, list) else (found,)
        return found  # type: ignore[no-any-return]

    async def attend(self, work: Awaitable[T]) -> T:
        """The result of the work.

        Raises:
            LogDeviceError: INVALID_CLUSTER, NOTFOUND (the log was removed), TIMEDOUT; besides what the work raises.
        """
        working = asyncio.ensure_future(work)
        looking = asyncio.create_task(self._look_now_and_then())
        try:
            await asyncio.wait({working, looking}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                return working.result()
            looking.result()
            raise AssertionError("it looks until it raises")
        finally:
            for task in (working, looking):
                task.cancel()
            await asyncio.gather(working, looking, return_exceptions=True)

    async def _look_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Say what is to be said at this moment, or raise."""
        connectivity = self._client.connectivity()
        config = self._client.config
        for log in self._logs:
            if config.log(log) is None:
                raise LogDeviceError(Status.NOTFOUND, f"log {log} was removed from {connectivity.file}")
        wrong_cluster = connectivity.wrong_cluster()
        if wrong_cluster is not None:
            raise wrong_cluster
        now, progress, what = self._clock(), self.progress(), self.waits_for()
        if what is None or progress != self._progress:
            if self._notes:
                self._say(self._program, "goes on")
            self._since, self._progress, self._notes = now, progress, 0
            return
        what = f"{what}; {connectivity}" if connectivity.connected else f"the cluster: {connectivity}"
        waited = now - self._since
        if self._timeout is not None and waited >= self._timeout:
            after = format_duration(round(self._timeout * 1e6))
            raise LogDeviceError(Status.TIMEDOUT, f"timed out after {after} of waiting for {what}")
        if waited >= self._next_note():
            while waited >= self._next_note():
                self._notes += 1
            self._say(self._program, f"waiting for {what}")

    def _next_note(self) -> float:
        if self._notes < len(NOTE_SECONDS):
            return NOTE_SECONDS[self._notes]
        return NOTE_SECONDS[-1] + NOTES_APART * (self._notes - len(NOTE_SECONDS) + 1)
