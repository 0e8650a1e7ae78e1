"""``python -m tests.dead_code``: what the packages define and nobody uses, tests included. vulture finds it.

Not told is what is used by its name only: declared settings, metrics and columns, entry points, faults that are registered by a decorator, and `EXCEPTIONS`.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vulture.core import Vulture

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = (
    "logdevice_py",
    "epoch_store",
    "client",
    "sequencer",
    "storage_node",
    "streams",
    "ldquery",
    "server",
    "indexlog",
    "benchmarks",
    "pyspark_logdevice.py",
    "pyspark_indexlog.py",
)
"""What is told about."""
USERS: Final = ("tests", "examples")
"""Who may use it besides."""
DECLARERS: Final = frozenset({"setting", "counter", "gauge", "histogram", "column"})
REGISTERED: Final = ("@handles", "@fault", "@fault.*", "@attack", "@attack.*", "@keys.add")
EXCEPTIONS: Final = {
    "apsw calls them": "BestIndexObject Close Column Create Destroy Eof Next Open Rowid",
    "apsw reads them": "authorizer estimatedCost estimatedRows exec_trace idxStr",
    "asyncio calls them": "_process_events _write_to_self buffer_updated create_datagram_endpoint subprocess_exec subprocess_shell",
    "of asyncio's signatures": "event_list executor",
    "argparse calls, reads or passes them": "_check_value _negative_number_matcher",
    "PySpark calls them": "initialOffset pushFilters reportLatestOffset batchId",
    "pytest calls them": "pytest_addoption pytest_runtest_makereport",
    "aiohttp reads them": "output_size",
    "Python calls them": "__getattr__",
    "RocksDB's options": "ignore_missing_column_families no_slowdown",
    "tarfile reads them": "mtime",
    "tqdm reads them": "monitor_interval",
    "members of an enumeration whose values are on the wire or in a grammar": "DATACENTER LOW_WATERMARK",
    "of users of the simulator": "wipe_node",
    "handles messages, found by its declaration": "epoch_list metadata_copies",
    "rendered by the field of its dataclass": "hop_p99",
}


def declared(path: Path) -> Iterator[str]:
    """Names of the settings, metrics and columns that a file declares."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Name) and called.id in DECLARERS:
                yield node.target.id


def entry_points() -> Iterator[str]:
    """Functions that the names of programs stand for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for target in project["scripts"].values():
        yield target.partition(":")[2]


def files(names: tuple[str, ...]) -> list[Path]:
    """The Python files of folders, and files."""
    return [
        each for name in names for path in [ROOT / name] for each in ([path] if path.is_file() else path.rglob("*.py"))
    ]


def unused() -> tuple[list[str], set[str]]:
    """What nobody uses, and the exceptions that are none any more."""
    own = files(PACKAGES)
    known = {name for path in own for name in declared(path)} | set(entry_points())
    excepted = {name for names in EXCEPTIONS.values() for name in names.split()}
    search = Vulture(ignore_decorators=list(REGISTERED))
    search.scavenge([str(path) for path in [*own, *files(USERS)]])
    told, needed = [], set()
    for item in search.get_unused_code(min_confidence=60):
        path = Path(item.filename).resolve().relative_to(ROOT)
        if path.parts[0] in USERS or item.name in known:
            continue
        if item.name in excepted:
            needed.add(item.name)
        else:
            told.append(f"{path}:{item.first_lineno}: {item.message}")
    return told, excepted - needed


def main() -> int:
    """1: something is unused, or an exception is."""
    told, superfluous = unused()
    for line in told:
        print(line)
    for name in sorted(superfluous):
        print(f"tests/dead_code.py: {name} is no exception any more: remove it")
    return int(bool(told or superfluous))


if __name__ == "__main__":
    sys.exit(main())
