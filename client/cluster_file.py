"""What the environment says: which cluster file is meant where none is named, and where the host stands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

CLUSTER_VARIABLE: Final = "LOGDEVICE_CLUSTER"
"""Names the cluster file of programs and clients that are given none."""
LOCATION_VARIABLE: Final = "LOGDEVICE_LOCATION"
"""Says where the clients of a host stand that are not told otherwise."""


def default_cluster_file() -> Path:
    """The file that is used where the variable names none either."""
    home = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(home).expanduser() / "logdevice" / "cluster.toml"


def cluster_file() -> str | None:
    """The cluster file of who names none; None: there is none."""
    named = os.environ.get(CLUSTER_VARIABLE)
    if named:
        return named
    path = default_cluster_file()
    return str(path) if path.exists() else None


def host_location() -> str | None:
    """Where this host stands, as its environment says; None: it does not."""
    return os.environ.get(LOCATION_VARIABLE)
