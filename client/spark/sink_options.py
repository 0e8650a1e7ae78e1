"""Where the rows of a write go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from client.spark.access import NO_ACCESS, ClusterAccess

if TYPE_CHECKING:
    from logdevice_py.core.units import Micros


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where rows go."""

    cluster: str
    """The text of the cluster file."""
    log: int | None
    """None: as the column log_id says."""
    compression: str | None
    job: str | None
    """Of a batch write whose rows are appended once, however often the job is run."""
    exact: bool
    """Of a stream: rows are appended once."""
    since: int | None
    """Unix UTC microseconds: nothing of the job or query was appended before."""
    read_timeout_us: Micros
    request_timeout_us: Micros
    """How long the planning of a batch write waits for the cluster."""
    access: ClusterAccess = NO_ACCESS
