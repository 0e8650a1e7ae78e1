"""The mark of a drained shard: it is durable, and as long as it holds the shard takes no records that its drain did not cover.

1. A shard that is being emptied writes the mark when it has given all that it held, and looks for further records only after the mark is on disk.
   So all that it ever takes before the drain is done is looked at.
2. A marked shard refuses STOREs of sequencers and copies from donors, also when it has just started and has not read the event log.
3. The mark goes when the event log says that the shard is used again, is drained anew, or that its drain left records without a place.
4. Whatever record is stored all the same takes the mark away in an earlier batch: where too few other nodes live to write the event log, of the event
   log itself as long as the shard has not read it, and of recoveries that find no other place. What recovery plugs is no record.
5. A shard that is drained by the event log, and has no mark of that drain, says so there, and is drained once more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from storage_node.writing.shard_writes import ShardWrites


class DrainMark:
    """Of one shard."""

    __slots__ = ("_latest", "_writes", "durable", "is_needed", "is_obeyed", "noted")

    def __init__(self, drain: Lsn, writes: ShardWrites) -> None:
        """
        Args:
            drain: what the disk says.
        """
        self.noted = drain
        """The drain that the shard has done its part of (`RebuildingShard.since`), as of what was given to the disk last; 0: it takes records."""
        self.durable = drain
        """The same, as the disk certainly says."""
        self.is_obeyed = False
        """The cluster keeps an event log: without one nobody could say that the shard is used again."""
        self.is_needed = False
        """Too few other nodes live to write the event log."""
        self._latest = 0
        """Number of the write that was given to the disk last."""
        self._writes: Final = writes

    @property
    def refuses(self) -> bool:
        """Whether the shard takes no records."""
        return bool(self.noted) and self.is_obeyed and not self.is_needed

    def note(self, drain: Lsn, done: Callable[[Micros], None]) -> None:
        """Write the mark; `done` is called when it is on disk, unless another one was written meanwhile."""

        self.noted, self.is_needed = drain, False
        number = self._latest + 1

        def written(status: Status, now: Micros) -> None:
            if status is Status.OK and number == self._latest:
                self.durable = drain
                done(now)

        self._write(drain, written)

    def clear(self) -> None:
        """The shard takes records: what is written from here on lies in later batches."""
        hit("drained_shard_loses_its_mark")
        self.noted = self.durable = LSN_INVALID
        self._write(LSN_INVALID, lambda status, now: None)

    def _write(self, drain: Lsn, done: Callable[[Status, Micros], None]) -> None:
        self._latest += 1
        self._writes.close()
        group = self._writes.group(True)
        group.batch.note_drain(drain)
        group.done.append(done)
        self._writes.close()  # what is refused for lack of space would take the mark along
