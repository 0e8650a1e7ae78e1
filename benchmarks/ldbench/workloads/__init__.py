"""The workloads, by name, in the order in which they are run and reported."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from benchmarks.ldbench.workload import Workload

_MODULES: Final = ("write_saturation", "lone_append", "open_loop", "reading", "steady", "failover", "own_clusters")


def all_workloads() -> dict[str, Workload]:
    """Every workload."""
    found: dict[str, Workload] = {}
    for name in _MODULES:
        for workload in import_module(f"{__name__}.{name}").WORKLOADS:
            assert workload.name not in found, workload.name
            found[workload.name] = workload
    return found
