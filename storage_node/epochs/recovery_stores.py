"""Which logs have STOREs of recoveries on their way to the disk, and who waits until they are there or refused.

A recovery that begins an epoch again asks what the shard holds while copies of its earlier attempt may still be queued. An answer that leaves
them out would be untrue a moment later: the plan that is made of it would not bring those copies to its own copyset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from logdevice_py.core.ids import LogId


class RecoveryStores:
    """Counts, per log, the STOREs of recoveries that were accepted and that the disk has not answered."""

    __slots__ = ("_under_way", "_waiting")

    def __init__(self) -> None:
        self._under_way: dict[LogId, int] = {}
        self._waiting: dict[LogId, list[Callable[[], None]]] = {}

    def began(self, log: LogId) -> None:
        """A STORE was accepted; `ended` follows exactly once."""
        self._under_way[log] = self._under_way.get(log, 0) + 1

    def ended(self, log: LogId) -> None:
        """The disk has taken it, or it was refused after all."""
        left = self._under_way[log] - 1
        if left:
            self._under_way[log] = left
            return
        del self._under_way[log]
        for action in self._waiting.pop(log, ()):
            action()

    def find(self, logs: Iterable[LogId]) -> LogId | None:
        """The first of the logs that has any under way."""
        if not self._under_way:
            return None
        return next((log for log in logs if log in self._under_way), None)

    def when_ended(self, log: LogId, action: Callable[[], None]) -> None:
        """Call `action` once when the log, which has some under way, has none."""
        assert log in self._under_way, log
        self._waiting.setdefault(log, []).append(action)
