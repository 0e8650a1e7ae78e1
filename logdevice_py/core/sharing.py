"""What peers share fairly: places that are limited in number, and a queue in which they take turns."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from logdevice_py.core.ids import PeerId

T = TypeVar("T")
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


class FairQueue(Generic[T]):
    """Items of many peers: the peers take turns, the items of each come out in the order in which they went in."""

    __slots__ = ("_by_peer", "_count")

    def __init__(self) -> None:
        self._by_peer: OrderedDict[PeerId, deque[T]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        """All items, those of each peer together."""
        for items in self._by_peer.values():
            yield from items

    def push(self, peer: PeerId, item: T) -> None:
        """Put an item behind those of its peer."""
        items = self._by_peer.get(peer)
        if items is None:
            items = self._by_peer[peer] = deque()
        items.append(item)
        self._count += 1

    def pop(self) -> T:
        """Take the first item of the peer whose turn it is. The queue must not be empty."""
        peer, items = next(iter(self._by_peer.items()))
        item = items.popleft()
        if items:
            self._by_peer.move_to_end(peer)
        else:
            del self._by_peer[peer]
        self._count -= 1
        return item

    def drop(self, peer: PeerId) -> list[T]:
        """Take out all items of a peer."""
        items = list(self._by_peer.pop(peer, ()))
        self._count -= len(items)
        return items
