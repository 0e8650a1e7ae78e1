"""The drivers, by name. A driver's module is imported when the system is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from benchmarks.ldbench.engine import Engine

MODULES: Final = {
    "logdevice": "benchmarks.ldbench.engines.logdevice",
    "logdevice-2of3": "benchmarks.ldbench.engines.logdevice_quorum",
    "jetstream": "benchmarks.ldbench.engines.jetstream",
    "redis": "benchmarks.ldbench.engines.redis_streams",
    "kafka": "benchmarks.ldbench.engines.kafka",
    "bookkeeper": "benchmarks.ldbench.engines.bookkeeper",
}
"""Name of the engine to its module, in the order in which they are reported."""


def load_engine(name: str) -> Engine | str:
    """The engine of a name; or why its module cannot be used, for people."""
    try:
        module = import_module(MODULES[name])
    except ImportError as error:
        return f"{error}; the extra `bench` has the client packages"
    engine: Engine = module.ENGINE
    return engine
