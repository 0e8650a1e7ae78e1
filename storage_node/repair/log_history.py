"""Which shards were given the entries of a log to keep: its metadata history, or the cluster file for metadata logs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logdevice_py.core.ids import Generation, LogId, is_metadata_log
from logdevice_py.core.lsn import EPOCH_MAX, ESN_MAX, Epoch, Lsn, compose_lsn
from logdevice_py.core.units import Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from storage_node.epochs.purge import HistoryReader, HistoryResult, StartHistoryReader
from storage_node.shard import Shard


class HistoryReading:
    """Reads the history of one log at a time, for one machine."""

    __slots__ = ("_done", "_reader", "_shard", "_start_reader")

    def __init__(self, shard: Shard, start_reader: StartHistoryReader, done: HistoryResult) -> None:
        """
        Args:
            done: called once for each `read`; of metadata logs at once.
        """
        self._shard = shard
        self._start_reader = start_reader
        self._done = done
        self._reader: HistoryReader | None = None

    def read(self, log: LogId, now: Micros) -> None:
        """Find out who may have copies. Of metadata logs generations are not known: they are told as 0."""
        if is_metadata_log(log):
            metadata = self._shard.config.metadata_log
            nodeset = tuple((shard, Generation(0)) for shard in metadata.nodeset)
            self._done((EpochInterval(Epoch(1), nodeset, metadata.replication),), True, now)
        else:
            self._reader = self._start_reader(log, self._on_read, now)

    def _on_read(self, history: tuple[EpochInterval, ...], complete: bool, now: Micros) -> None:
        if self._reader is not None:
            self._reader = None
            self._done(history, complete, now)

    def cancel(self) -> None:
        """Nobody wants to know any more."""
        if self._reader is not None:
            self._reader.cancel()
            self._reader = None


def spans(history: Sequence[EpochInterval]) -> Iterator[tuple[EpochInterval | None, Lsn, Lsn]]:
    """The intervals of a history, each with the first and the last LSN that it may hold; before them, None with what lies before the first one.
    Nothing at all where nothing of the history was found."""
    if history:
        yield None, Lsn(0), Lsn(compose_lsn(history[0].since, 0) - 1)
    bounds = [interval.since for interval in history] + [Epoch(EPOCH_MAX)]
    for interval, end in zip(history, bounds[1:], strict=True):
        yield interval, compose_lsn(interval.since, 0), compose_lsn(Epoch(end - 1), ESN_MAX)
