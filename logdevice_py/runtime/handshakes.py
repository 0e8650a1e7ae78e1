"""Whose TLS handshake goes on next: what it takes is some hundred times what a frame takes, so a few are done in a turn of the event loop."""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class HandshakeQueue(Generic[T]):
    """Accepted connections of which bytes of a handshake came: says whose go on next.

    1. Who has been answered goes first, in order of arrival: what was done for him is not to be lost.
    2. Of the others who came last goes first. When more come than there is time for, who waited longest times out soon, or makes way: with the oldest first
       nobody would get through.
    """

    __slots__ = ("_answered", "_new")

    def __init__(self) -> None:
        self._answered: dict[T, None] = {}
        self._new: dict[T, None] = {}

    def __len__(self) -> int:
        return len(self._answered) + len(self._new)

    def join(self, connection: T, *, answered: bool) -> None:
        """Bytes came; a connection that is queued keeps its place.

        Args:
            answered: the handshake had an answer already.
        """
        (self._answered if answered else self._new).setdefault(connection)

    def leave(self, connection: T) -> None:
        """The connection is gone, if it was here."""
        self._answered.pop(connection, None)
        self._new.pop(connection, None)

    def next(self) -> T | None:
        """Whose handshake goes on now; None: nobody is queued."""
        if self._answered:
            connection = next(iter(self._answered))
            del self._answered[connection]
            return connection
        return self._new.popitem()[0] if self._new else None
