"""Strict order: answers that are withheld until the epochs before are sealed.

Copysets of two epochs need not meet. So while an earlier sequencer is not shut out by an f-majority of seals, it may acknowledge an append that began after a later epoch's
was acknowledged, and that lies before it. With `strict_order` no entry of an epoch is acknowledged before that is impossible. They are stored meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from logdevice_py.core.ids import NodeId

if TYPE_CHECKING:
    from sequencer.appender import Appender
    from sequencer.epoch_sequencer import EpochSequencer


class WithheldAnswers:
    """Entries of one log that are stored, and about which nobody was told; of the current epoch and of earlier ones of this node."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: list[tuple[EpochSequencer, Appender]] = []

    @property
    def entries(self) -> int:
        """How many."""
        return len(self._entries)

    def add(self, epoch: EpochSequencer, appender: Appender) -> None:
        """An entry would be acknowledged now."""
        self._entries.append((epoch, appender))

    def give(self) -> None:
        """All epochs before the current one are sealed: acknowledge everything, in order."""
        entries, self._entries = self._entries, []
        for epoch, appender in entries:
            epoch.withholds = False
            epoch.acknowledge_withheld(appender)

    def refuse(self, successor: NodeId) -> None:
        """The log is sequenced elsewhere: who waits finds out there."""
        entries, self._entries = self._entries, []
        for epoch, appender in entries:
            epoch.refuse_withheld(appender, successor)


NOTHING_WITHHELD: Final = WithheldAnswers()
"""Of all logs without strict order; nothing is ever added."""
