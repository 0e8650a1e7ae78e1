"""What completion offers of an object: the names that applications use, not those of the machinery behind them."""

from __future__ import annotations

from typing import ClassVar


class PublicNames:
    """A class of which ``dir()`` leaves out what begins with an underscore, and `INTERNAL_NAMES`, which work as ever."""

    __slots__ = ()
    INTERNAL_NAMES: ClassVar[frozenset[str]] = frozenset()
    """Attributes for other classes of the client."""

    def __dir__(self) -> list[str]:
        hidden = self.INTERNAL_NAMES | {"INTERNAL_NAMES"}
        return [name for name in super().__dir__() if name not in hidden and (name[:1] != "_" or name[:2] == "__")]
