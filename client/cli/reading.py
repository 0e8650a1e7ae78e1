"""What ``ldcat`` and ``ldtail`` share."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Awaitable, Callable

from client.cli.output import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_UNANSWERED, EXIT_USAGE, quiet_broken_pipe
from logdevice_py.core.status import LogDeviceError, Status

_USAGE = frozenset({Status.NOTFOUND, Status.INVALID_PARAM, Status.INVALID_CONFIG})
_UNANSWERED = frozenset({Status.TIMEDOUT, Status.PARTIAL, Status.CONNFAILED})
READ_AT_ONCE = 10_000


def common_options(options: argparse.ArgumentParser) -> None:
    """Options of both programs."""
    options.add_argument("-c", "--config", required=True, metavar="FILE", help="the cluster file")
    options.add_argument("log", metavar="LOG", help="id of the log, or its path like /team/clicks")
    options.add_argument(
        "--format",
        choices=("raw", "json"),
        default="raw",
        help="raw: each record and a newline; json: one object a line (default: raw)",
    )
    options.add_argument(
        "-0", "--null", action="store_true", help="end raw records with a NUL byte in place of a newline"
    )
    options.add_argument("-v", "--verbose", action="store_true", help="also report gaps that nobody misses")


def run_program(name: str, work: Callable[[], Awaitable[int]]) -> int:
    """Run an asyncio program to its exit status; errors become one line on standard error."""
    try:
        return asyncio.run(_main(work))
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        quiet_broken_pipe()
        return 0
    except LogDeviceError as error:
        print(f"{name}: {error}", file=sys.stderr)
        if error.status in _USAGE:
            return EXIT_USAGE
        return EXIT_UNANSWERED if error.status in _UNANSWERED else EXIT_FAILED


async def _main(work: Callable[[], Awaitable[int]]) -> int:
    return await work()
