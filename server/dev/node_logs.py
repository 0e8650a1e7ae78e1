"""``ld-dev-cluster logs``: what the nodes of a development cluster log."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, Final

from client.cli.program import make_safe
from logdevice_py.core.ids import NodeId
from server.dev import layout
from server.dev.supervisor import CommandError

_LOOK_AGAIN: Final = 0.2
_TAIL_BYTES: Final = 1 << 20
"""Where the last lines are looked for."""
_TIMED: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ")
_NAME: Final = re.compile(r"n(\d+)\.log")


class NodeLog:
    """The file that one node logs to, read line by line."""

    def __init__(self, node: NodeId, file: BinaryIO) -> None:
        self._node = node
        self._file = file
        self._rest = b""
        self._time = ""

    def last(self, count: int) -> list[tuple[str, str]]:
        """Its last lines, each with its time, or that of the line before which had one; `more` goes on behind them."""
        self._file.seek(max(0, os.fstat(self._file.fileno()).st_size - _TAIL_BYTES))
        lines = self.more()
        return lines[max(0, len(lines) - count) :]

    def more(self) -> list[tuple[str, str]]:
        """The lines that were added since."""
        if os.fstat(self._file.fileno()).st_size < self._file.tell():
            self._file.seek(0)  # somebody emptied it
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        return [self._timed(make_safe(line)) for line in lines]

    def _timed(self, line: str) -> tuple[str, str]:
        if (time_ := _TIMED.match(line)) is None:
            return self._time, f"N{self._node}: {line}"  # a traceback's, for one
        self._time = time_[0]
        return self._time, line


def log_files(directory: Path) -> dict[NodeId, Path]:
    """The files that nodes of a cluster log to, or logged to."""
    found = {NodeId(int(match[1])): path for path in directory.iterdir() if (match := _NAME.fullmatch(path.name))}
    return dict(sorted(found.items()))


def show_logs(directory: Path, nodes: Sequence[int], *, count: int, follow: bool) -> None:
    """Print the last lines of each node in the order of time, and with `follow` what is added, until interrupted.

    Args:
        nodes: which; none: all, also those that are added.
        count: how many lines of each.

    Raises:
        CommandError: there is no cluster, or one of the nodes logged nothing.
    """
    if not layout.cluster_file(directory).exists():
        raise CommandError(f"there is no cluster in {directory}; ld-dev-cluster up --dir {directory} makes one")
    files = log_files(directory)
    silent = [node for node in nodes if node not in files]
    if silent or not files:
        who = f"N{silent[0]} has" if silent else "the nodes have"
        raise CommandError(f"{directory}: {who} logged nothing")
    logs: dict[NodeId, NodeLog] = {}
    lines: list[tuple[str, str]] = []
    with ExitStack() as opened:
        while True:
            for node, path in log_files(directory).items():
                if node in logs:
                    lines += logs[node].more()
                elif not nodes or node in nodes:
                    logs[node] = NodeLog(node, opened.enter_context(path.open("rb")))
                    lines += logs[node].last(count)
            _print(text for _, text in sorted(lines, key=lambda line: line[0]))
            lines.clear()
            if not follow:
                return
            time.sleep(_LOOK_AGAIN)


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)
    print(end="", flush=True)
