"""All tables."""

from __future__ import annotations

from types import ModuleType
from typing import Final

from logdevice_py.tables import (
    clients,
    cluster,
    index_logs,
    log_tree,
    maintenance,
    quotas,
    rebuilding,
    sequencing,
    storage,
    streams,
    waits,
)
from logdevice_py.tables.declare import DECLARED, TableDeclaration

_MODULES: Final[tuple[ModuleType, ...]] = (
    cluster,
    log_tree,
    rebuilding,
    maintenance,
    sequencing,
    storage,
    clients,
    waits,
    quotas,
    streams,
    index_logs,
)
TABLES: Final[dict[str, TableDeclaration]] = {
    name: each for module in _MODULES for name, each in DECLARED.items() if each.row.__module__ == module.__name__
}
"""Every table, by name, in an order that does not depend on what was imported first."""
