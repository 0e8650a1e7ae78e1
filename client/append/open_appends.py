"""Direct appends that were called and have not left yet: they do at the end of the turn, or soon after."""

from __future__ import annotations

from bisect import bisect_left

from client.guards import AppendGuard
from client.promise import Promise
from logdevice_py.core.sealed_batch import Seal
from logdevice_py.core.units import Micros


class OpenAppends:
    """Records of one log that leave together. They are in call order, and have the same time for it.

    A record joins by being put at the end of both lists, for as long as `AppendRequests.named` holds this object: nothing else is done for each
    record of a turn.
    """

    __slots__ = (
        "alone",
        "atomic",
        "guard",
        "keys",
        "leave_at",
        "payload_max",
        "payloads",
        "promises",
        "seal",
        "synced",
        "timeout_us",
    )

    def __init__(self, payload_max: int, timeout_us: int) -> None:
        self.payload_max = payload_max
        """The longest record that the log takes."""
        self.timeout_us = timeout_us
        """From when they leave on."""
        self.leave_at: Micros | None = None
        """When they leave at the latest; None: they were not made to wait."""
        self.payloads: list[bytes] = []
        self.promises: list[Promise] = []
        self.keys: dict[int, bytes] = {}
        """By index, of the records that have one."""
        self.guard: AppendGuard | None = None
        """Of the only record, or atomic batch."""
        self.seal: Seal | None = None
        """Encrypts what leaves; None: it is not encrypted. Records that are encrypted have a frame of their own."""
        self.alone = False
        """No other records may join."""
        self.atomic = False
        """They are an atomic batch: one frame holds them, and one promise waits for them."""
        self.synced: list[int] = []
        """Indexes of the records that are to be synced whatever the log's durability, in order."""

    def asks_for_sync(self, first: int, last: int) -> bool:
        """Whether any record from `first` on, before `last`, is to be synced: then all that share its frame are."""
        return bool(self.synced) and bisect_left(self.synced, first) < bisect_left(self.synced, last)
