"""Tells the owner of a session whether the end of a turn has work there: most turns of a node have nothing to do with what it follows itself."""

from __future__ import annotations


class TurnEnd:
    """Shared by the parts of a session. Whoever has something to do at the end of the turn sets it; the session clears it."""

    __slots__ = ("wanted",)

    def __init__(self) -> None:
        self.wanted = False
