"""What the admin API counts."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import counter, gauge
from logdevice_py.runtime.http.metrics import HttpMetrics


@dataclass(slots=True)
class AdminMetrics(HttpMetrics):
    """Of one node."""

    actions: int = counter("Actions that operators asked for.", unit="actions")
    rows_sent: int = counter("Rows of tables sent.", unit="rows")
    table_time: int = counter("Time for which making rows held up the event loop.", unit="us")
    table_time_max: int = gauge("The longest time for which making rows held up the event loop.", unit="us")
