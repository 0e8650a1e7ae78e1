"""What a development cluster uses: the stored configuration where one is stored, else its cluster file."""

from __future__ import annotations

from pathlib import Path

from logdevice_py.config.cluster import ClusterConfig
from server.cluster_file import read_cluster_file
from server.configuration.keeper import KEPT, ConfigurationFile
from server.dev import layout


def stored_config(directory: Path, file: ClusterConfig) -> ClusterConfig | None:
    """The newest stored configuration that a node of the cluster kept; None: none is stored.

    Args:
        directory: where the cluster lives.
        file: what its cluster file says.
    """
    found = (ConfigurationFile(path.parent).read(file) for path in sorted(directory.glob(f"n*/{KEPT}")))
    return max((each for each in found if each is not None), key=lambda each: each.version, default=None)


def current_config(directory: Path) -> ClusterConfig:
    """What the cluster in a directory uses, or used when it ran last.

    Raises:
        LogDeviceError: INVALID_CONFIG: its cluster file cannot be read.
    """
    file = read_cluster_file(layout.cluster_file(directory))
    return stored_config(directory, file) or file
