"""How long the event loop of a node lets events wait."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import gauge, histogram
from logdevice_py.core.histogram import Histogram


@dataclass(slots=True)
class ProcessMetrics:
    """Of the process of a node; several nodes may share one. Processor time, memory and open files are told by Prometheus's own library."""

    loop_lag: Histogram = histogram("How much later than asked for the event loop called back; asked every 100 ms.")
    loop_lag_max: int = gauge("The longest of these.", unit="us")

    def note_lag(self, micros: int) -> None:
        """The event loop called back so much later than asked for."""
        self.loop_lag.note(micros)
        self.loop_lag_max = max(self.loop_lag_max, micros)
