"""The cluster file of a running node: reads it, notices newer versions, and says once why one that cannot be used."""

from __future__ import annotations

import logging
from pathlib import Path

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.placement.cluster_placement import check_policy
from logdevice_py.placement.moves import check_moves

log = logging.getLogger("logdevice.node")

REMINDER = 600 * SECOND
"""A trouble that lasts is logged again this often."""


def read_cluster_file(path: Path) -> ClusterConfig:
    """The cluster file, checked.

    Raises:
        LogDeviceError: INVALID_CONFIG, with the path and what is wrong.
    """
    try:
        return load_cluster(path.read_text())
    except OSError as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"{path}: no text in UTF-8: {error}") from None
    except LogDeviceError as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"{path}: {error.detail}") from None


def check_successor(path: Path, used: ClusterConfig, config: ClusterConfig) -> None:
    """Refuse what nodes that use one version of a cluster file do not go on to.

    Raises:
        LogDeviceError: INVALID_CONFIG, INVALID_CLUSTER, or why a node cannot move, with the path and what is wrong.
    """
    if config.uuid != used.uuid or config.name != used.name:
        raise LogDeviceError(Status.INVALID_CLUSTER, f"{path} is of another cluster")
    if config.version < used.version or (config.version == used.version and config != used):
        raise LogDeviceError(
            Status.INVALID_CONFIG, f"{path} changed without a higher version (it has {config.version})"
        )
    if used.has_log_tree and not config.has_log_tree:
        raise LogDeviceError(
            Status.INVALID_CONFIG,
            f"{path} switches the log tree off ([settings.log_tree] enabled): logs that were made at run time would be unknown, and their ids "
            "could be given again. Put it back",
        )
    try:
        check_moves(used, config)
        check_policy(config)
    except LogDeviceError as error:
        raise LogDeviceError(error.status, f"{path}: {error.detail}") from None


class ClusterFile:
    """Follows the file. What cannot be used changes nothing: the version before it stays in force."""

    def __init__(self, path: Path, config: ClusterConfig) -> None:
        self.path = path
        self.config = config
        """The version in force."""
        self._seen: tuple[int, int] | None = None
        self._trouble = ""
        self._remind_at = Micros(0)

    def look(self, now: Micros, *, again: bool = False) -> ClusterConfig | None:
        """The newer version that the file holds; None when it holds none.

        Args:
            now: monotonic.
            again: read it although it looks as it did, and say what is wrong although it was said.
        """
        if again:
            self._remind_at = now
        try:
            stat = self.path.stat()
            if (stat.st_mtime_ns, stat.st_ino) == self._seen and not again:
                return None
            self._seen = (stat.st_mtime_ns, stat.st_ino)
            config = read_cluster_file(self.path)
            check_successor(self.path, self.config, config)
        except OSError as error:
            self._seen = None
            self._report(f"{self.path}: {error.strerror}", now)
            return None
        except LogDeviceError as error:
            self._report(error.detail, now)
            return None
        if self._trouble:
            self._trouble = ""
            log.info("the cluster file %s is in order again", self.path)
        if config.version == self.config.version:
            return None
        self.config = config
        return config

    def _report(self, trouble: str, now: Micros) -> None:
        if trouble == self._trouble and now < self._remind_at:
            return
        self._trouble = trouble
        self._remind_at = Micros(now + REMINDER)
        log.error("the cluster file is not used, version %d stays in force: %s", self.config.version, trouble)
