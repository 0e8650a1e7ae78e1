"""Metrics objects of a process, for whoever exports them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MetricSource:
    """A metrics object, and what counts with it."""

    section: str
    """As in docs/metrics.md."""
    metrics: Any
    shard: int | None = None
    """Index of the shard that counts; None: the node as a whole."""
    log: int | None = None
    """The log that it is about; None: no single one."""

    def labels(self) -> dict[str, str]:
        """What tells its series from others of the same metric."""
        given = {"shard": self.shard, "log_id": self.log}
        return {name: str(value) for name, value in given.items() if value is not None}
