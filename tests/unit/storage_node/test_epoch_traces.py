"""What a disk knows of epochs: every trace counts, whatever left it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, LogId, NodeId, ShardId, metadata_log_of
from logdevice_py.core.lsn import Epoch, Esn, Lsn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData
from storage_node.epoch_traces import disk_report
from storage_node.log_store.identity import PreviousEnd, ShardMarker
from storage_node.log_store.interface import Contents, EpochMetadataKind, LogMetadataKind
from storage_node.stored_metadata import RecoveredEpoch, SoftSealValue, encode_seal

LOG, OTHER = LogId(7), LogId(8)
MARKER = ShardMarker(bytes(16), ShardId(0x300), Generation(2), incarnation=9)
EMPTY = Contents(MARKER, PreviousEnd.CLEAN)
SEALED = (LOG, LogMetadataKind.SEAL, encode_seal(Epoch(5), NodeId(1)))
SOFTLY = (LOG, LogMetadataKind.SOFT_SEAL, SoftSealValue(Epoch(6), NodeId(1), False).encode())
TRIMMED = (LOG, LogMetadataKind.TRIM_POINT, b"anything")
RECOVERED = RecoveredEpoch(Epoch(8), Esn(1), Esn(2), Lsn(0), Timestamp(0), True).encode()


@pytest.mark.parametrize(
    ("contents", "epoch"),
    [
        (replace(EMPTY, highest=[(LOG, Lsn(4 << 32 | 3))]), 4),
        (replace(EMPTY, highest=[(metadata_log_of(LOG), Lsn(4 << 32 | 1))]), 4),
        (replace(EMPTY, log_metadata=[SEALED, TRIMMED]), 6),
        (replace(EMPTY, log_metadata=[SOFTLY]), 7),
        (replace(EMPTY, epoch_metadata=[(LOG, Epoch(3), EpochMetadataKind.MUTABLE, b"anything")]), 3),
        (replace(EMPTY, epoch_metadata=[(LOG, Epoch(3), EpochMetadataKind.RECOVERY, RECOVERED)]), 9),
        (replace(EMPTY, highest=[(LOG, Lsn(9 << 32))], log_metadata=[SEALED]), 9),
    ],
)
def test_entries_seals_and_ends_of_recoveries_are_traces(contents: Contents, epoch: int) -> None:
    report = disk_report(contents, [])
    assert report.epochs == {LOG: epoch}
    assert (report.shard, report.generation, report.incarnation) == (MARKER.shard, 2, 9)


def test_a_record_of_a_metadata_log_is_a_trace_and_is_told() -> None:
    interval = EpochInterval(Epoch(1), ((MARKER.shard, Generation(2)),), ReplicationProperty.parse("node:1"))
    record = EpochMetaData(Epoch(6), (interval,), True, False, NodeId(0))
    report = disk_report(EMPTY, [(OTHER, record)])
    assert report.epochs == {OTHER: 5}
    assert report.metadata == {OTHER: record}


def test_a_damaged_seal_stops_the_report() -> None:
    with pytest.raises(CorruptEntryError):
        disk_report(replace(EMPTY, log_metadata=[(LOG, LogMetadataKind.SEAL, b"x")]), [])
