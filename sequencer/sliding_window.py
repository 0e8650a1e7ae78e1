"""The entries of an epoch that are on their way: bounded in number and bytes, left in order of LSN."""

from __future__ import annotations

from collections.abc import Iterator

from logdevice_py.core.lsn import ESN_MAX, ESN_MIN
from logdevice_py.core.status import Status
from sequencer.appender import RUNNING, Appender


class SlidingWindow:
    """Gives out ESNs and keeps appenders until all before them have come to their end.

    `tail` is the oldest ESN not yet reaped; everything from `tail` to `next_esn` - 1 is in the window.
    """

    __slots__ = ("appenders", "bytes_in", "bytes_out", "next_esn", "tail")

    def __init__(self) -> None:
        self.appenders: dict[int, Appender] = {}
        """By ESN."""
        self.next_esn = int(ESN_MIN)
        self.tail = int(ESN_MIN)
        self.bytes_in = 0
        """Of all entries that ever were in it."""
        self.bytes_out = 0
        """Of those that were reaped."""

    @property
    def bytes(self) -> int:
        """Of the entries that are in it."""
        return self.bytes_in - self.bytes_out

    def __len__(self) -> int:
        return self.next_esn - self.tail

    def __iter__(self) -> Iterator[Appender]:
        """The appenders in order of LSN. They may come to their end and be reaped meanwhile."""
        return iter(list(self.appenders.values()))

    def room(self, entries: int, size: int, entries_max: int, bytes_max: int, esn_max: int = ESN_MAX) -> Status:
        """Whether that many entries of `size` bytes in all fit: OK, SEQNOBUFS (later) or TOOBIG (never in this epoch).

        An entry larger than the window goes alone.
        """
        if self.next_esn + entries - 1 > esn_max:
            return Status.TOOBIG
        in_flight = self.next_esn - self.tail
        if in_flight and (in_flight + entries > entries_max or self.bytes_in - self.bytes_out + size > bytes_max):
            return Status.SEQNOBUFS
        return Status.OK

    def grow(self, appender: Appender) -> None:
        """Take in the entry that got `next_esn`."""
        self.appenders[self.next_esn] = appender
        self.next_esn += 1
        self.bytes_in += appender.size

    def reap(self) -> Appender | None:
        """Remove and return the oldest appender if it came to its end."""
        appender = self.appenders.get(self.tail)
        if appender is None or appender.state in RUNNING:
            return None
        del self.appenders[self.tail]
        self.tail += 1
        self.bytes_out += appender.size
        return appender
