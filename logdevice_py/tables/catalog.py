"""All tables."""

from __future__ import annotations

from logdevice_py.tables import cluster, sequencing, storage, waits
from logdevice_py.tables.declare import TABLES

__all__ = ["TABLES", "cluster", "sequencing", "storage", "waits"]
