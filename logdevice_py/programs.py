"""Entry points of the installed programs.

They find our packages of plain names, such as `client`, even where a user's client.py or server.py comes first in the path. An
application that imports `logdevice_py` keeps its own modules, and is told when one of them is in the way.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_ROOT: Final = str(Path(__file__).parent.parent)
PACKAGES: Final = frozenset(
    {
        "benchmarks",
        "client",
        "epoch_store",
        "indexlog",
        "ldquery",
        "logdevice_py",
        "sequencer",
        "server",
        "storage_node",
        "streams",
    }
)
_INTERRUPTED: Final = 130
_COMPLETE_WORDS: Final = "--complete-words"


class _OwnPackages:
    """Finds our packages where `logdevice_py` lies, before the path is searched."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [_ROOT], target) if name in PACKAGES else None


def run(module: str) -> int:
    """Import a program and run it; its exit status."""
    sys.meta_path.insert(0, _OwnPackages)
    if sys.argv[1:2] == [
        _COMPLETE_WORDS
    ]:  # a shell waits while somebody types: not for what the program itself imports
        module = "server.completion"
    try:
        main: Any = import_module(module).main
        return int(main() or 0)
    except KeyboardInterrupt:  # while it was imported: the programs themselves stop in order
        return _INTERRUPTED


def own_program(module: str, *arguments: object) -> list[str]:
    """What starts one of our modules, which has a `main`, as a process of its own.

    ``python -m`` would look for it in the working directory and in PYTHONPATH first, where somebody else's files may lie.
    """
    return [sys.executable, "-P", __file__, module, *map(str, arguments)]


def logdeviced() -> int:
    """The process of a node."""
    return run("server.logdeviced")


def dev_cluster() -> int:
    """``ld-dev-cluster``."""
    return run("server.dev.dev_cluster")


def ldwrite() -> int:
    """Append lines."""
    return run("client.cli.write")


def ldcat() -> int:
    """Print a range."""
    return run("client.cli.cat")


def ldtail() -> int:
    """Print the end, and follow it."""
    return run("client.cli.tail")


def ldstream() -> int:
    """Create, write, read and truncate streams."""
    return run("streams.cli")


def ldctl() -> int:
    """Ask about a log, or act on it."""
    return run("ldquery.ctl.main")


def ldquery() -> int:
    """SQL over the live cluster."""
    try:
        return run("ldquery.main")
    except ModuleNotFoundError as error:
        if error.name not in ("apsw", "prompt_toolkit"):
            raise
        print("ldquery: it needs further packages: pip install 'logdevice-py[query]'", file=sys.stderr)
        return 1


def ldindex() -> int:
    """An index log, by hand."""
    try:
        return run("indexlog.cli.main")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        print("ldindex: it needs further packages: pip install 'logdevice-py[spark]'", file=sys.stderr)
        return 1


def ldindexd() -> int:
    """An index log over HTTP."""
    try:
        return run("indexlog.serving.ldindexd")
    except ModuleNotFoundError as error:
        if error.name != "pyarrow":
            raise
        print("ldindexd: it needs further packages: pip install 'logdevice-py[spark]'", file=sys.stderr)
        return 1


def ldbench() -> int:
    """Measure, beside other systems."""
    return run("benchmarks.ldbench.cli")


if __name__ == "__main__":
    sys.exit(run(sys.argv.pop(1)))
