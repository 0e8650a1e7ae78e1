"""Notices that something is released which nobody sends."""

from __future__ import annotations

from typing import Final

from client.read.fail_over import FailOver
from client.read.hedging import Hedging
from client.read.named_timers import NamedTimers
from client.read.nodeset_lookup import NodesetLookup
from client.read.read_set import ReadPosition, ReadSet
from client.read.settings import ReadSettings
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.units import Micros

_STALL: Final = "stall"


class StallWatch:
    """When a stream got no further for `single_copy_failover_us`, the shard that holds it up is found out."""

    __slots__ = (
        "_awaited",
        "_awaited_since",
        "_fail_over",
        "_hedging",
        "_lookup",
        "_position",
        "_read_set",
        "_settings",
        "_timers",
    )

    def __init__(
        self,
        position: ReadPosition,
        read_set: ReadSet,
        fail_over: FailOver,
        lookup: NodesetLookup,
        timers: NamedTimers,
        settings: ReadSettings,
        hedging: Hedging | None = None,
    ) -> None:
        self._position = position
        self._read_set = read_set
        self._fail_over = fail_over
        self._lookup = lookup
        self._timers = timers
        self._settings = settings
        self._hedging = hedging
        self._awaited: Lsn = LSN_INVALID
        """What should come at the last look; invalid: nothing."""
        self._awaited_since = Micros(0)

    def look(self, now: Micros) -> None:
        """Note what should come, and since when. The timer is not moved each time that the stream gets further: it finds that out."""
        lsn = self._next()
        if self._lookup.released < lsn and self._read_set.anyone_reads:
            self._awaited = LSN_INVALID
            return
        if lsn != self._awaited:
            self._awaited, self._awaited_since = lsn, now
        if _STALL not in self._timers:
            self._timers.set(_STALL, self._awaited_since + self._settings.single_copy_failover_us, self._on_time)

    def _next(self) -> Lsn:
        """What should come next from the shards themselves: hedges must not nurse one that is dead."""
        return self._position.next if self._hedging is None else self._hedging.awaited()

    def _on_time(self, now: Micros) -> None:
        lsn = self._next()
        if lsn == self._awaited and now >= self._awaited_since + self._settings.single_copy_failover_us:
            self._awaited_since = now
            if self._lookup.released >= lsn:
                self._fail_over.on_stall(lsn)
        if not self._read_set.anyone_reads:
            self._lookup.ask_again(now)
