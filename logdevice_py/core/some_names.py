"""Lists for people, which name the first few of many."""

from __future__ import annotations

from collections.abc import Iterable


def name_some(names: Iterable[object], most: int) -> str:
    """The first ones, with commas between them, and how many there are beside."""
    listed = list(map(str, names))
    more = len(listed) - most
    return ", ".join(listed[:most]) + (f" and {more} more" if more > 0 else "")
