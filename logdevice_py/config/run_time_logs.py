"""Logs that the cluster file does not have: what the parts of a process look up in the log tree, which its replica keeps up to date."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING, Protocol

from logdevice_py.config.attributes import LogAttributes
from logdevice_py.core.ids import LogId

if TYPE_CHECKING:
    from logdevice_py.config.cluster import ClusterConfig
    from logdevice_py.config.logs import LogGroup


class RunTimeLogs(Protocol):
    """The groups of the log tree as this process knows them at this moment. Unlike the cluster file it changes in place: between two turns only.

    What holds for a group follows from the cluster file as well, so it is an argument.
    """

    def attributes(self, log: LogId, config: ClusterConfig) -> LogAttributes | None:
        """What holds for a log that takes appends; None when none is known. The same object as long as nothing changes."""

    def is_absent(self, log: LogId) -> bool:
        """There is no such log, and never will be. Of what was not read yet, or may have been made a moment ago, this is not known."""

    def is_ending(self, log: LogId) -> bool:
        """The log is being removed: it takes no appends any more, and never will."""

    def group(self, log: LogId, config: ClusterConfig) -> LogGroup | None:
        """The group of a log that takes appends."""

    def group_at(self, path: str, config: ClusterConfig) -> LogGroup | None:
        """The group with this path that takes appends."""

    def groups(self, config: ClusterConfig) -> Iterator[LogGroup]:
        """All that take appends, in order of their ids."""

    def ids(self) -> Iterator[LogId]:
        """Every log that takes appends or did until a moment ago, ascending. May be gone through while the tree changes."""

    @property
    def is_known(self) -> bool:
        """The tree was read."""

    def raw_values(self, key: str) -> Set[str | int | bool]:
        """Every value that some directory or group sets for an attribute, as it was written."""

    def confirmed_since(self) -> int:
        """Monotonic microseconds: everything that was in the tree then is known; -1: nothing is."""


class NoRunTimeLogs:
    """Of a process without a replica of the log tree, which knows nothing of it. Where there is no tree, nobody asks."""

    is_known = False

    def attributes(self, log: LogId, config: ClusterConfig) -> LogAttributes | None:
        return None

    def is_absent(self, log: LogId) -> bool:
        return False

    def is_ending(self, log: LogId) -> bool:
        return False

    def group(self, log: LogId, config: ClusterConfig) -> LogGroup | None:
        return None

    def group_at(self, path: str, config: ClusterConfig) -> LogGroup | None:
        return None

    def groups(self, config: ClusterConfig) -> Iterator[LogGroup]:
        return iter(())

    def ids(self) -> Iterator[LogId]:
        return iter(())

    def raw_values(self, key: str) -> Set[str | int | bool]:
        return frozenset()

    def confirmed_since(self) -> int:
        return -1


NO_RUN_TIME_LOGS = NoRunTimeLogs()
