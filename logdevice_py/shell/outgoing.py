"""Which messages to a peer leave at once, which wait for another one, and which are left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from logdevice_py.core.units import MILLISECOND, Micros
from logdevice_py.protocol.messages import says

WAIT_US: Final = 5 * MILLISECOND
"""How long a deferrable message waits for another one to the same peer, where such have come lately. It is longer than appends one after the other
are apart: the next one's STORE says what RELEASE would have. Where a reader waits, RELEASE is not deferrable."""


class Outgoing:
    """The deferrable messages to one peer.

    A deferrable message waits only if the last one would not have waited in vain. It leaves before the next message to the peer, and is left out
    if that message says the same. What waits is bounded by what a machine puts out within `WAIT_US`.
    """

    __slots__ = ("_alone_at", "_company", "_turn", "waiting", "waits_until")

    def __init__(self, *, company: bool = False) -> None:
        """
        Args:
            company: the first deferrable message waits.
        """
        self.waiting: list[Any] = []
        self.waits_until = Micros(0)
        """When what waits leaves, if nothing else does before."""
        self._company = company
        """The last deferrable message was followed by another message within the time that it may wait."""
        self._alone_at: Micros | None = None
        """When a deferrable message left without company; None once it is known whether any followed in time."""
        self._turn = -1
        """In which something left last."""

    def put(self, message: Any, turn: int, now: Micros) -> Sequence[Any]:
        """A message that does not wait; returns what leaves, in order."""
        self._turn = turn
        if self._alone_at is not None:
            self._company = now - self._alone_at < WAIT_US
            self._alone_at = None
        if not self.waiting:
            return (message,)
        leaves = [each for each in self.waiting if not says(message, each)]
        self.waiting = []
        leaves.append(message)
        return leaves

    def put_deferrable(self, message: Any, turn: int, now: Micros) -> Sequence[Any]:
        """A message that may wait; returns what leaves."""
        if self._turn == turn:
            return self.put(message, turn, now)  # it has company: something leaves with this turn
        if self._company:
            if not self.waiting:
                self.waits_until = Micros(now + WAIT_US)
            self.waiting.append(message)
            return ()
        self._turn, self._alone_at = turn, now
        return (message,)

    def expire(self) -> Sequence[Any]:
        """Nothing came in time: what waits leaves, and the next deferrable message does not wait."""
        leaves, self.waiting = self.waiting, []
        self._company = False
        return leaves
