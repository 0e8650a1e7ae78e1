"""What a read stream knows of one shard that it reads from."""

from __future__ import annotations

import enum
from collections import deque
from typing import Final

from logdevice_py.core.ids import Generation, PeerId, ShardId, node_peer
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.machine import Timer
from logdevice_py.core.units import Micros

_UNABLE_MAX: Final = 1000
"""Of more ranges that a shard cannot tell of, the last are taken for one with what lies between them."""
ENTRY_WORK: Final = 100
"""An entry takes a shard as much work as so many bytes, beside its own."""


class SenderStatus(enum.Enum):
    """How the stream stands with a shard."""

    IDLE = enum.auto()  # nothing was asked of it
    STARTING = enum.auto()  # START is on its way
    READING = enum.auto()  # it answered STARTED(OK) and sends
    WAITING = enum.auto()  # it failed or refused; START follows when the timer fires or its node is connected
    ABSENT = enum.auto()  # it is not in the cluster file


class Sender:
    """One shard of the read set."""

    __slots__ = (
        "asked_at",
        "down",
        "failures",
        "generation",
        "granted",
        "held",
        "lost",
        "lost_at",
        "next_lsn",
        "peer",
        "received",
        "round_trip_us",
        "shard",
        "slow",
        "status",
        "timer",
        "unable",
        "version",
        "window_high",
        "work",
        "written_off",
    )

    def __init__(self, shard: ShardId, generation: Generation) -> None:
        self.shard = shard
        self.peer: PeerId = node_peer(shard)
        self.generation = generation
        self.status = SenderStatus.IDLE
        self.down = False
        """Counted as down for single-copy delivery."""
        self.slow = False
        """Left out of single-copy delivery because it is much slower than the others."""
        self.lost = False
        """It lost what the epochs of the read set asked it to keep."""
        self.lost_at = Micros(0)
        """When it said so first."""
        self.written_off = False
        """It counts as lost because the cluster says so, not it itself."""
        self.next_lsn: Lsn = LSN_INVALID
        """It has sent, or said that it does not send, everything below."""
        self.unable: deque[tuple[Lsn, Lsn]] = deque()
        """Ranges, first to last LSN, ascending and apart: that it has nothing there does not count, it may have lost it."""
        self.version = 0
        """Filter version of its last START."""
        self.asked_at = Micros(0)
        """When its last START left."""
        self.round_trip_us = 0
        """The shortest time in which a START was answered; 0: none was yet."""
        self.window_high: Lsn = LSN_INVALID
        self.granted = 0
        """Bytes that it may send in total since its last START."""
        self.received = 0
        """Bytes that it sent since its last START."""
        self.held = 0
        """Bytes that it sent, since whenever, that are not handed over yet."""
        self.work = 0
        """Bytes that it sent, since whenever, and what handling its entries is worth."""
        self.failures = 0
        """How often it failed in a row."""
        self.timer: Timer | None = None

    @property
    def excused(self) -> bool:
        """With single-copy delivery others send what would be its own."""
        return self.down or self.slow or self.lost

    def note_unable(self, first: Lsn, last: Lsn) -> None:
        """It lost, or cannot read, what it may have had from one LSN to another."""
        unable = self.unable
        while unable and (first <= unable[-1][1] + 1 or len(unable) >= _UNABLE_MAX):
            before = unable.pop()
            first, last = min(first, before[0]), max(last, before[1])
        unable.append((first, last))

    def is_unable(self, lsn: Lsn) -> bool:
        """Whether its silence about an LSN says nothing. What was noted of lower ones is forgotten."""
        unable = self.unable
        while unable and unable[0][1] < lsn:
            unable.popleft()
        return bool(unable) and unable[0][0] <= lsn

    def unable_after(self, lsn: Lsn) -> Lsn:
        """Where the next range begins of which its silence says nothing; 0: nowhere."""
        return next((first for first, _ in self.unable if first > lsn), LSN_INVALID)

    def note_round_trip(self, now: Micros) -> None:
        """Its last START is answered."""
        spent = max(1, now - self.asked_at)
        self.round_trip_us = min(self.round_trip_us or spent, spent)

    @property
    def has_credit(self) -> bool:
        """It may send another entry, as far as bytes go."""
        return self.received < self.granted

    def cancel_timer(self) -> None:
        """Nothing is due."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
