"""What happened in a run: the last events for people, and a hash over all of them that tells whether two runs are the same."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Any

from logdevice_py.simulation.scheduler import Scheduler

_DETAIL_MAX = 400
_PARTS_MAX = 512


class Trace:
    """One line an event. Lines are made only when somebody looks at them."""

    __slots__ = ("_hash", "_parts", "_ring", "_scheduler", "echo", "on_introduction", "on_sent")

    def __init__(self, keep: int = 4000, echo: Callable[[str], None] | None = None) -> None:
        """
        Args:
            keep: how many events are kept for `last`.
            echo: gets every line at once.
        """
        self._ring: deque[tuple[int, str, str | int, Any]] = deque(maxlen=keep)
        self._hash = hashlib.blake2b(digest_size=12)
        self._parts: list[bytes] = []
        self._scheduler: Scheduler | None = None
        self.echo = echo
        self.on_sent: Callable[[int, str, int, Any], None] | None = None
        """Gets every message that leaves a process, also one to itself: when, from whom, to which peer, and the message."""
        self.on_introduction: Callable[[int, str, int, Any, bool], None] | None = None
        """Gets every HELLO and ACK, when it is sent and when it has come: when, at whom, the address of the other end, the message, and whether it
        has come. Those are not messages to a peer: there is none yet."""

    def watch(self, scheduler: Scheduler) -> None:
        """Let the hash cover when each action of the run took place."""
        self._scheduler = scheduler

    def note(self, at: int, who: str, what: str, detail: Any = "", data: bytes = b"") -> None:
        """Note an event.

        Args:
            at: true time in microseconds.
            who: where it happened.
            what: the kind of event.
            detail: shown by ``str``, later, so it must not change; not part of the hash.
            data: part of the hash.
        """
        self.cover(f"{at} {who} {what}\n".encode() + data)
        self._show(at, who, what, detail)

    def cover(self, data: bytes) -> None:
        """Let the hash cover what was sent, written or received; nothing is shown."""
        parts = self._parts
        parts.append(data)
        if len(parts) >= _PARTS_MAX:
            self._hash.update(b"".join(parts))
            parts.clear()

    def received(self, at: int, who: str, peer: int, message: Any) -> None:
        """Show a message that came; its bytes are given to `cover`."""
        self._ring.append((at, who, peer, message))
        if self.echo is not None:
            self.echo(_line(at, who, peer, message))

    def _show(self, at: int, who: str, what: str | int, detail: Any) -> None:
        self._ring.append((at, who, what, detail))
        if self.echo is not None:
            self.echo(_line(at, who, what, detail))

    def last(self) -> list[str]:
        """The last events as lines."""
        return [_line(*event) for event in self._ring]

    def digest(self) -> str:
        """Of all events so far."""
        covered = self._hash.copy()
        covered.update(b"".join(self._parts))
        if self._scheduler is not None:
            covered.update(f"{self._scheduler.events} {self._scheduler.fingerprint}".encode())
        return covered.hexdigest()


def _line(at: int, who: str, what: str | int, detail: Any) -> str:
    text = str(detail)
    if len(text) > _DETAIL_MAX:
        text = text[:_DETAIL_MAX] + "..."
    if isinstance(what, int):
        what = f"<- {what}"
    return f"{at / 1e6:12.6f} {who:<6} {what} {text}"
