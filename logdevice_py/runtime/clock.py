"""The clocks of production. Everything below this package gets time as an argument."""

from __future__ import annotations

import time

from logdevice_py.core.units import Micros, Timestamp


def monotonic_us() -> Micros:
    """Microseconds of the monotonic clock: only differences mean something."""
    return time.monotonic_ns() // 1000  # type: ignore[return-value]  # a call of the NewType costs as much as the clock


def wall_us() -> Timestamp:
    """Microseconds since the Unix epoch, UTC; may jump."""
    return Timestamp(time.time_ns() // 1000)
