"""What a shard's disk knows of epochs, from what its store held when it was opened: for the restoring of an epoch store (`epoch_store.backup`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from epoch_store.backup import DiskReport
from logdevice_py.core.ids import LogId, data_log_of, is_metadata_log
from logdevice_py.core.lsn import EPOCH_INVALID, Epoch, epoch_of
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from storage_node.log_store.interface import Contents, EpochMetadataKind, LogMetadataKind
from storage_node.stored_metadata import RecoveredEpoch, SoftSealValue, decode_seal


def disk_report(contents: Contents, records: Iterable[tuple[LogId, EpochMetaData]]) -> DiskReport:
    """The report of a shard.

    Args:
        records: the newest record of each metadata log, by the log that it is about.

    Raises:
        CorruptEntryError: a value is damaged: what it says is not known, so nothing may be restored from it.
    """
    epochs: dict[LogId, Epoch] = defaultdict(lambda: EPOCH_INVALID)

    def trace(log: LogId, epoch: int) -> None:
        about = data_log_of(log) if is_metadata_log(log) else log
        epochs[about] = max(epochs[about], Epoch(epoch))

    for log, highest in contents.highest:
        trace(log, epoch_of(highest))
    for log, kind, value in contents.log_metadata:
        if kind is LogMetadataKind.SEAL:
            trace(log, decode_seal(value)[0] + 1)  # a sequencer or recovery of a later epoch sealed it
        elif kind is LogMetadataKind.SOFT_SEAL:
            trace(log, SoftSealValue.decode(value).epoch + 1)
    for log, epoch, epoch_kind, value in contents.epoch_metadata:
        trace(log, epoch)
        if epoch_kind is EpochMetadataKind.RECOVERY:
            trace(log, RecoveredEpoch.decode(value).seal_epoch + 1)
    metadata: dict[LogId, EpochMetaData] = {}
    for log, record in records:
        metadata[log] = record
        trace(log, record.given_epoch)
    marker = contents.marker
    return DiskReport(marker.cluster, marker.shard, marker.generation, marker.incarnation, dict(epochs), metadata)
