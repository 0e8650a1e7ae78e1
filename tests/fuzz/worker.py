"""One target under atheris, in a process of its own: ``python -m tests.fuzz.worker NAME --seconds 60 --corpus DIRECTORY --findings DIRECTORY``.

Inputs that reach new branches are kept in the corpus; an input that is a finding is written to a file, and the fuzzer goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import random
import sys
from pathlib import Path
from typing import Any

import atheris

_SLACK = 4.0
"""Instrumented code is slower; what is slow only by that is sorted out later."""
_FINDINGS_MAX = 200
_LARGER = 24
"""One mutation of so many repeats a piece up to the largest input: what takes quadratic time shows."""


_STATES = {
    "tree": ("client.log_tree", "client.replica"),
    "namespace": ("streams", "client.log_tree.commands", "client.replica"),
    "subscriptions": ("streams.subscriptions", "streams.fields", "client.replica"),
    "manifest": ("indexlog.manifest", "indexlog.records", "client.replica"),
    "maintenances": ("client.maintenance", "client.replica"),
}
_INSTRUMENTED = {
    "frames": ("logdevice_py.protocol", "logdevice_py.core"),
    "stream": ("logdevice_py.protocol", "logdevice_py.core"),
    "entries": ("logdevice_py.core", "client.read.decoding"),
    "batches": ("logdevice_py.core",),
    "keys": ("logdevice_py.core",),
    "events": ("logdevice_py.event_log", "logdevice_py.core"),
    "snapshots": ("logdevice_py.event_log", "logdevice_py.core"),
    "metadata": ("logdevice_py.metadata", "logdevice_py.placement", "logdevice_py.config", "logdevice_py.core"),
    "cells": ("epoch_store.cells", "epoch_store.interface", "logdevice_py.metadata", "logdevice_py.core"),
    "rows": ("storage_node.stored_metadata", "storage_node.log_store", "logdevice_py.core"),
    "wal": ("storage_node.log_store.rocksdb.wal_check",),
    "cluster_file": ("logdevice_py.config", "logdevice_py.core", "server.node_settings", "tomllib"),
    "words": ("logdevice_py.config", "logdevice_py.core", "client.cli", "storage_node.log_store.identity"),
    "sql": ("ldquery", "logdevice_py.tables"),
    "admin": ("server.admin", "logdevice_py.tables", "aiohttp.web_protocol", "aiohttp.web_request"),
    "answers": ("client.node_tables", "logdevice_py.core"),
    **{f"{name}_{what}": modules for name, modules in _STATES.items() for what in ("commands", "snapshot")},
}
"""Modules and packages whose branches count as coverage. Few, because each takes its time to import."""


def _import_instrumented(target: str) -> None:
    with atheris.instrument_imports(include=list(_INSTRUMENTED[target])):
        importlib.import_module("tests.fuzz.targets")
    from logdevice_py.protocol.declare import CODECS, ListKind, TupleKind

    def instrument_kind(kind: Any) -> None:
        if isinstance(kind, ListKind):
            instrument_kind(kind.element)
            element = kind.element
            check = element._check if isinstance(element, TupleKind) else element.check  # type: ignore[attr-defined]
            object.__setattr__(kind, "_check", check)
        elif isinstance(kind, TupleKind):
            object.__setattr__(kind, "_check", atheris.instrument_func(kind._check))  # type: ignore[attr-defined]

    if "logdevice_py.protocol" not in _INSTRUMENTED[target]:
        return
    for codec in CODECS.values():  # made from declarations by exec: no import sees them
        for _, kind in codec.fields:
            instrument_kind(kind)
        object.__setattr__(codec, "unpack", atheris.instrument_func(codec.unpack))


def _larger(data: bytes, size_max: int, rng: random.Random) -> bytes:
    """The input with a piece of it repeated many times."""
    at = rng.randrange(len(data) + 1)
    piece = data[at : at + rng.choice((1, 1, 2, 3, 5, 8, 13))]
    if not piece:
        return data
    count = rng.choice((16, 256, size_max)) // len(piece)
    return (data[:at] + piece * count + data[at:])[:size_max]


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.worker", description=__doc__)
    parser.add_argument("target")
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=Path, required=True, help="inputs that reach new branches are added to it")
    parser.add_argument("--findings", type=Path, required=True)
    arguments = parser.parse_args()
    _import_instrumented(arguments.target)
    from tests.fuzz.checking import SIZE_MAX, check
    from tests.fuzz.targets import TARGETS

    target = TARGETS[arguments.target]
    rng = random.Random(arguments.seed)
    found: set[tuple[str, str, str]] = set()

    def run(data: bytes) -> None:
        finding = check(target, data, slack=_SLACK)
        if finding is not None and finding.key not in found and len(found) < _FINDINGS_MAX:
            found.add(finding.key)
            path = arguments.findings / f"{target.name}-{hashlib.sha1(data).hexdigest()[:12]}"
            path.write_bytes(data)

    def mutate(data: bytes, size_max: int, seed: int) -> bytes:
        rng.seed(seed)
        if data and rng.randrange(_LARGER) == 0:
            return _larger(bytes(data), size_max, rng)
        if target.words and rng.randrange(4) == 0:
            at = rng.randrange(len(data) + 1)
            return bytes(data[:at] + rng.choice(target.words) + data[at:])[:size_max]
        changed: bytes = atheris.Mutate(data, size_max)
        return changed

    flags = [
        f"-max_total_time={arguments.seconds}",
        f"-seed={arguments.seed}",
        f"-max_len={SIZE_MAX}",
        "-print_final_stats=1",
        "-rss_limit_mb=2048",
        "-timeout=60",
        "-reload=0",
    ]
    atheris.Setup([sys.argv[0], *flags, str(arguments.corpus)], run, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
