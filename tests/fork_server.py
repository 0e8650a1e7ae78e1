"""A process that has imported our programs and forks one whenever a test wants it: `tests.forked` asks it to.

It has one thread and no event loop, so that what it forks is a process as any other: with the files, the environment and the working directory
that it was given, and nothing of its siblings.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from logdevice_py import programs

MESSAGE_BYTES = 1 << 17
FILES = 4
"""What comes with a request: standard input, output and error, and where the process's number goes, and later how it ended."""
_EXTRAS = ("client.client", "client.cli.write", "client.cli.cat", "client.cli.tail")
"""What several programs import when they begin to work."""


def serve(connection: socket.socket) -> Callable[[], int]:
    """Fork until nobody asks any more. What is returned is to be called: in a process that was forked it is the program."""
    selector = selectors.DefaultSelector()
    selector.register(connection, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is not connection:
                selector.unregister(key.fileobj)
                _report_end(key.fd, *key.data)
                continue
            message, files, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, FILES)
            if not message:
                return lambda: 0
            request = json.loads(message)
            import_module(request["module"])
            assert len(os.listdir("/proc/self/task")) == 1, "a thread would be lost in what is forked"
            gc.freeze()
            process = os.fork()
            if process == 0:
                selector.close()
                connection.close()
                _become(request, files)
                return functools.partial(programs.run, request["module"])
            for file in files[:3]:
                os.close(file)
            _write(files[3], process)
            selector.register(os.pidfd_open(process), selectors.EVENT_READ, (process, files[3]))


def _become(request: dict[str, Any], files: list[int]) -> None:
    """What a new process has: its own files, environment and place."""
    for number, file in enumerate(files[:3]):
        os.dup2(file, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    if request["session"]:
        os.setsid()
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = [request["module"], *request["arguments"]]
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for the rest of the process
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)  # noqa: SIM115
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.enable()


def _report_end(handle: int, process: int, told: int) -> None:
    os.close(handle)
    _, status = os.waitpid(process, 0)
    _write(told, os.waitstatus_to_exitcode(status))
    os.close(told)


def _write(file: int, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # whoever wanted to know is gone
        os.write(file, b"%d\n" % number)


def main() -> int:
    """The program: its argument is the number of the connection."""
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # tests that are interrupted end it
    for module in _EXTRAS:
        import_module(module)
    return serve(socket.socket(fileno=int(sys.argv[1])))()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    sys.exit(main())
