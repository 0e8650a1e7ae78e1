"""Keeping the metadata of a log's epoch in its metadata log."""

from __future__ import annotations

from logdevice_py.core import marks
from logdevice_py.core.ids import LogId
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.protocol.messages import Stored
from sequencer.context import SequencerContext
from sequencer.metadata_log import MetadataLogWrite, MetadataOwner


class MetadataUpkeep:
    """The writes of one log's metadata: after an activation that changed them, when its metadata log moves, and when readers cannot read it."""

    __slots__ = ("_context", "_log", "_moves", "_owner", "_repair_at", "write")

    def __init__(self, log: LogId, context: SequencerContext, owner: MetadataOwner) -> None:
        self._log = log
        self._context = context
        self._owner = owner
        self._moves = context.metadata_moves
        """Of the context when the metadata were last written."""
        self._repair_at = 0
        self.write: MetadataLogWrite | None = None
        """The one under way, to look at."""

    def start(self, metadata: EpochMetaData, now: Micros) -> None:
        """Write them. No other write is under way."""
        assert self.write is None
        self._moves = self._context.metadata_moves
        self.write = MetadataLogWrite(self._log, metadata, self._context, self._owner)
        self.write.start(now)

    def stop(self, now: Micros) -> None:
        """Another epoch or another sequencer sees to it."""
        if self.write is not None:
            self.write.stop(now)
            self.write = None

    def on_written(self) -> None:
        """The write came to its end."""
        self.write = None

    def on_stored(self, message: Stored, now: Micros) -> None:
        """A shard answered a STORE of the metadata log."""
        if self.write is not None:
            self.write.on_stored(message, now)

    def follow_moves(self, metadata: EpochMetaData, now: Micros) -> None:
        """Write them again if shards left the nodeset of metadata logs since."""
        if self._moves != self._context.metadata_moves and self.write is None:
            marks.hit("metadata_moved")
            self.start(metadata, now)

    def repair(self, metadata: EpochMetaData, now: Micros) -> None:
        """Somebody cannot read the metadata log for certain: copies are damaged, or shards have lost theirs."""
        if self.write is not None or now < self._repair_at:
            return
        marks.hit("metadata_stored_again")
        self._repair_at = now + self._context.settings.metadata_repair_us
        self.start(metadata, now)
