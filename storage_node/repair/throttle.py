"""Work that must not take all of a disk or a network is spread over time."""

from __future__ import annotations

from logdevice_py.core.units import SECOND, Micros


class Throttle:
    """Spreads work over time: so many bytes a second, without saving up for bursts."""

    __slots__ = ("_free_at", "_rate")

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_at = Micros(0)

    def reserve(self, size: int, now: Micros) -> Micros:
        """When work of this size may begin."""
        begin = max(now, self._free_at)
        self._free_at = Micros(begin + size * SECOND // self._rate)
        return Micros(begin)
