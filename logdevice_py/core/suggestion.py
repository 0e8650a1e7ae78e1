"""Names that were meant in place of one that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


def nearest(name: str, names: Iterable[str]) -> str | None:
    """The one of the names that is most like a name which is none of them; None: none is much like it."""
    close = difflib.get_close_matches(name, list(names), n=1)
    return close[0] if close else None


def suggestion(name: str, allowed: Collection[str]) -> str:
    """``; did you mean port?`` or else everything that is allowed."""
    close = nearest(name, allowed)
    return f"; did you mean {close}?" if close else f"; there are {', '.join(allowed)}"
