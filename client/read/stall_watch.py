"""Notices that something is released which nobody sends."""

from __future__ import annotations

from typing import Final

from client.read.fail_over import FailOver
from client.read.named_timers import NamedTimers
from client.read.nodeset_lookup import NodesetLookup
from client.read.read_set import ReadPosition, ReadSet
from client.read.settings import ReadSettings
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.units import Micros

_STALL: Final = "stall"


class StallWatch:
    """Looks after a while whether a stream got further; if not, the shard that holds it up is found out."""

    __slots__ = ("_fail_over", "_lookup", "_position", "_read_set", "_settings", "_stalled_at", "_timers")

    def __init__(
        self,
        position: ReadPosition,
        read_set: ReadSet,
        fail_over: FailOver,
        lookup: NodesetLookup,
        timers: NamedTimers,
        settings: ReadSettings,
    ) -> None:
        self._position = position
        self._read_set = read_set
        self._fail_over = fail_over
        self._lookup = lookup
        self._timers = timers
        self._settings = settings
        self._stalled_at: Lsn = LSN_INVALID

    def look(self, now: Micros) -> None:
        """Begin to watch, if there is something that should come and nobody watches for it yet."""
        position = self._position
        if _STALL not in self._timers and (self._lookup.released >= position.next or not self._read_set.anyone_reads):
            self._stalled_at = position.next
            self._timers.set(_STALL, now + self._settings.single_copy_failover_us, self._on_time)

    def _on_time(self, now: Micros) -> None:
        lsn = self._position.next
        if lsn == self._stalled_at and self._lookup.released >= lsn:
            self._fail_over.on_stall(lsn)
        if not self._read_set.anyone_reads:
            self._lookup.ask_again(now)
