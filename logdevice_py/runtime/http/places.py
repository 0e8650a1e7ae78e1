"""Connections of the admin API: who has a place, and who makes way for the next, so that idle ones never keep a health check out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final

from logdevice_py.config.admin import AdminSettings

HEALTH_PLACES: Final = 8
"""Places beside `connections_max`: as many requests as that may be worked on, and the next health check still finds a place."""


class ConnectionPlaces:
    """The places of one admin API. A connection is idle until its first request and between two; one whose request is worked on
    keeps its place, an idle one makes way for the next connection when there is no place left. Callers name connections as they like.
    """

    def __init__(self, settings: AdminSettings) -> None:
        self.settings = settings
        self._addresses: dict[Hashable, str] = {}
        self._by_address: Counter[str] = Counter()
        self._idle_since: dict[Hashable, int] = {}
        """In order of time: whoever becomes idle goes to the end."""

    def __len__(self) -> int:
        return len(self._addresses)

    def arrived(self, connection: Hashable, address: str, now: int) -> Hashable | None:
        """A connection was accepted and takes a place. Who must be closed for it: the idle connection that has said nothing for
        longest, of its address where that has too many; itself where none is idle; None where there is room.
        """
        settings = self.settings
        leaves: Hashable | None = None
        if self._by_address[address] >= settings.connections_per_address_max:
            leaves = self._longest_idle(address)
        if leaves is None and len(self._addresses) >= settings.connections_max + HEALTH_PLACES:
            leaves = self._longest_idle(None)
            leaves = connection if leaves is None else leaves
        self._addresses[connection] = address
        self._by_address[address] += 1
        self._idle_since[connection] = now
        if leaves is not None:
            self.gone(leaves)
        return leaves

    def busy(self, connection: Hashable) -> None:
        """A request of it is worked on."""
        self._idle_since.pop(connection, None)

    def idle(self, connection: Hashable, now: int) -> None:
        """Its request is answered. One that is gone is ignored."""
        if connection in self._addresses:
            self._idle_since.pop(connection, None)
            self._idle_since[connection] = now

    def idle_before(self, time: int) -> list[Hashable]:
        """Connections that have been idle since before a time."""
        return [connection for connection, since in self._idle_since.items() if since < time]

    def gone(self, connection: Hashable) -> None:
        """It is closed. One that is gone already is ignored."""
        address = self._addresses.pop(connection, None)
        if address is None:
            return
        self._idle_since.pop(connection, None)
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _longest_idle(self, address: str | None) -> Hashable | None:
        """Of an address, or of all."""
        for connection in self._idle_since:
            if address is None or self._addresses[connection] == address:
                return connection
        return None
