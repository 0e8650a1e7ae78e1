"""What the process of a node costs, and how long its event loop lets events wait."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path

from logdevice_py.core.declare import counter, gauge, histogram
from logdevice_py.core.histogram import Histogram


@dataclass(slots=True)
class ProcessMetrics:
    """Of the process of a node; several nodes may share one."""

    loop_lag: Histogram = histogram("How much later than asked for the event loop called back; asked every 100 ms.")
    loop_lag_max: int = gauge("The longest of these.", unit="us")
    cpu_time: int = counter("Processor time of the process and its threads.", unit="us")
    resident_bytes: int = gauge("Memory of the process.", unit="bytes")
    open_files: int = gauge("Open files and sockets of the process.", unit="files")

    def note_lag(self, micros: int) -> None:
        """The event loop called back so much later than asked for."""
        self.loop_lag.note(micros)
        self.loop_lag_max = max(self.loop_lag_max, micros)

    def measure(self) -> None:
        """Bring up to date what the operating system knows."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        self.cpu_time = int((usage.ru_utime + usage.ru_stime) * 1e6)
        try:
            self.resident_bytes = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            self.open_files = sum(1 for _ in Path("/proc/self/fd").iterdir())
        except OSError:
            self.resident_bytes = usage.ru_maxrss << 10  # no Linux: at its most
