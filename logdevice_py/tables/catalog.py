"""All tables."""

from __future__ import annotations

from logdevice_py.tables import cluster, rebuilding, sequencing, storage
from logdevice_py.tables.declare import TABLES

__all__ = ["TABLES", "cluster", "rebuilding", "sequencing", "storage"]
