"""What peers share fairly: places that are limited in number."""

from __future__ import annotations

from typing import Final

from logdevice_py.core.ids import PeerId

_FREE_FOR_EACH: Final = 8
"""How many times as many places as a peer holds must be free for it to get another one."""


class Places:
    """Places of one kind, and how many of them each peer holds.

    A peer that holds more than an eighth of what is free gets no further one. So the first takes a ninth of all at most, and each that comes
    later a ninth of what those before it left: after ten greedy ones there are still three tenths.
    """

    __slots__ = ("_held", "taken")

    def __init__(self) -> None:
        self._held: dict[PeerId, int] = {}
        self.taken = 0
        """Of all peers together."""

    def held(self, peer: PeerId) -> int:
        """How many places the peer has."""
        return self._held.get(peer, 0)

    def refuses(self, peer: PeerId, places: int, each: int, wanted: int = 1) -> bool:
        """Whether the peer gets no more.

        Args:
            places: how many there are.
            each: how many one peer may have at most.
            wanted: how many it wants at once.
        """
        held, free = self._held.get(peer, 0), places - self.taken
        return free < wanted or held > free // _FREE_FOR_EACH or held + wanted > each

    def take(self, peer: PeerId, count: int = 1) -> None:
        """Give places to the peer."""
        self._held[peer] = self._held.get(peer, 0) + count
        self.taken += count

    def give_back(self, peer: PeerId, count: int = 1) -> None:
        """The peer needs places no more that it has."""
        held = self._held[peer] - count
        assert held >= 0, (peer, held)
        if held:
            self._held[peer] = held
        else:
            del self._held[peer]
        self.taken -= count
