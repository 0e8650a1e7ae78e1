"""What happened in a run: the last events for people, and a hash over all of them that tells whether two runs are the same."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any

_DETAIL_MAX = 400


class Trace:
    """One line an event. Lines are made only when somebody looks at them."""

    __slots__ = ("_hash", "_ring", "echo", "lines")

    def __init__(self, keep: int = 4000, echo: Callable[[str], None] | None = None) -> None:
        """
        Args:
            keep: how many events are kept for `last`.
            echo: gets every line at once.
        """
        self._ring: deque[tuple[int, str, str, Any]] = deque(maxlen=keep)
        self._hash = hashlib.blake2b(digest_size=12)
        self.echo = echo
        self.lines = 0

    def note(self, at: int, who: str, what: str, detail: Any = "", data: bytes = b"") -> None:
        """Note an event.

        Args:
            at: true time in microseconds.
            who: where it happened.
            what: the kind of event.
            detail: shown by ``str``, later, so it must not change; not part of the hash.
            data: part of the hash.
        """
        self.lines += 1
        self._hash.update(f"{at} {who} {what}\n".encode())
        self._hash.update(data)
        self._ring.append((at, who, what, detail))
        if self.echo is not None:
            self.echo(_line(at, who, what, detail))

    def last(self) -> list[str]:
        """The last events as lines."""
        return [_line(*event) for event in self._ring]

    def digest(self) -> str:
        """Of all events so far."""
        return self._hash.copy().hexdigest()


def _line(at: int, who: str, what: str, detail: Any) -> str:
    text = str(detail)
    if len(text) > _DETAIL_MAX:
        text = text[:_DETAIL_MAX] + "..."
    return f"{at / 1e6:12.6f} {who:<6} {what} {text}"
