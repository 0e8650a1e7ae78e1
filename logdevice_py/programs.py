"""Entry points of the installed programs.

They find our packages of plain names, such as `client`, even where a user's client.py or server.py comes first in the path. An
application that imports `logdevice_py` keeps its own modules, and is told when one of them is in the way.
"""

from __future__ import annotations

import gc
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


def run(module: str, extra: str = "") -> int:
    """Import a program and run it; its exit status. `extra` brings the packages that it needs besides those of the client."""
    sys.meta_path.insert(0, _OwnPackages)
    if sys.argv[1:2] == [
        _COMPLETE_WORDS
    ]:  # a shell waits while somebody types: not for what the program itself imports
        module = "server.completion"
    try:
        main = _main_of(module)
        return int(main() or 0)
    except KeyboardInterrupt:  # while it was imported: the programs themselves stop in order
        return _INTERRUPTED
    except ModuleNotFoundError as error:
        text = further_packages(error, extra)
        if text is None:
            raise
        print(f"{Path(sys.argv[0]).name}: {text}", file=sys.stderr)
        return 1


def _main_of(module: str) -> Any:
    """Import a program. What its modules define stays, so nobody looks for garbage meanwhile, which takes a tenth of the time."""
    gc.disable()
    try:
        return import_module(module).main
    finally:
        gc.enable()


def further_packages(error: ModuleNotFoundError, extra: str) -> str | None:
    """What to install where a package of others is missing; None where it is one of our own modules, or no extra would help."""
    name = (error.name or "").partition(".")[0]
    if not extra or not name or name in PACKAGES:
        return None
    return f"it needs further packages ({name} is missing): pip install 'logdevice-py[{extra}]'"


def own_program(module: str, *arguments: object) -> list[str]:
    """What starts one of our modules, which has a `main`, as a process of its own.

    ``python -m`` would look for it in the working directory and in PYTHONPATH first, where somebody else's files may lie.
    """
    return [sys.executable, "-P", __file__, module, *map(str, arguments)]


def logdeviced() -> int:
    """The process of a node."""
    return run("server.logdeviced", "server")


def dev_cluster() -> int:
    """``ld-dev-cluster``."""
    return run("server.dev.dev_cluster", "server")


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
    return run("ldquery.ctl.main", "admin")


def ldquery() -> int:
    """SQL over the live cluster."""
    return run("ldquery.main", "query")


def ldindex() -> int:
    """An index log, by hand."""
    return run("indexlog.cli.main", "index")


def ldindexd() -> int:
    """An index log over HTTP."""
    return run("indexlog.serving.ldindexd", "index")


def ldbench() -> int:
    """Measure, beside other systems."""
    return run("benchmarks.ldbench.cli", "bench")


if __name__ == "__main__":
    sys.exit(run(sys.argv.pop(1)))
