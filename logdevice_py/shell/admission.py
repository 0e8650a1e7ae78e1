"""Who may connect: bounds the accepted connections of a process, so that no kind of peer takes the places of another.

Clients, nodes and those that have not introduced themselves have places of their own. Anybody may connect, so whoever has not
introduced himself for longest makes way for the next; a client, a node or an address with too many connections is refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass

from logdevice_py.shell.settings import RuntimeSettings


@dataclass(slots=True)
class _Place:
    address: str
    node: int | None
    """Which node it says it is, -1 for a client; None before it has said so."""


class Admission:
    """The places for accepted connections. Callers name connections by whatever they like."""

    def __init__(self, settings: RuntimeSettings) -> None:
        self._settings = settings
        self._places: dict[Hashable, _Place] = {}
        self._introducing: dict[Hashable, None] = {}
        """In order of arrival."""
        self._by_node: Counter[int] = Counter()
        self._by_address: Counter[str] = Counter()
        """Without those of nodes."""

    def arrived(self, connection: Hashable, address: str) -> str | None:
        """A connection was accepted. Why it must be closed; None: it may introduce itself, and `displaced` says who makes way for it."""
        limit = self._settings.connections_per_address_max
        if self._by_address[address] >= limit:
            return f"{limit} connections from {address} are open"
        self._places[connection] = _Place(address, None)
        self._introducing[connection] = None
        self._by_address[address] += 1
        return None

    def displaced(self) -> Hashable | None:
        """Who has waited longest with introducing itself, when too many have not; it is to be closed."""
        if len(self._introducing) <= self._settings.connections_introducing_max:
            return None
        return next(iter(self._introducing))

    def introduced(self, connection: Hashable, node: int) -> str | None:
        """A connection said who it is. Why it must be closed; None: it is let in.

        Args:
            node: -1 for a client.
        """
        place = self._places[connection]
        assert place.node is None
        client = node < 0
        limit = self._settings.connections_max if client else self._settings.connections_per_node_max
        if self._by_node[node] >= limit:
            return f"{limit} {'clients' if client else f'connections of N{node}'} are here already"
        place.node = node
        self._by_node[node] += 1
        del self._introducing[connection]
        if not client:
            self._leave_address(place.address)
        return None

    def gone(self, connection: Hashable) -> None:
        """A connection is closed. One that was refused, or is unknown, is ignored."""
        place = self._places.pop(connection, None)
        if place is None:
            return
        self._introducing.pop(connection, None)
        if place.node is not None:
            self._by_node[place.node] -= 1
            if not self._by_node[place.node]:
                del self._by_node[place.node]
        if place.node is None or place.node < 0:
            self._leave_address(place.address)

    def _leave_address(self, address: str) -> None:
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]
