"""What the disks of a node know of epochs, for ``ldctl epoch-store import``: ``logdeviced --report-epochs``. The node must not run."""

from __future__ import annotations

import time
from pathlib import Path

from epoch_store.backup import DiskReport
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import LogId, NodeId, ShardId, data_log_of, format_shard, is_metadata_log, shard_index_of
from logdevice_py.core.lsn import LSN_OLDEST, Lsn
from logdevice_py.core.status import CorruptEntryError, LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.metadata.history import metadata_of_entry
from server.node_settings import NodeSettings
from storage_node.epoch_traces import disk_report
from storage_node.log_store.interface import Contents, ReadLast
from storage_node.log_store.rocksdb.shard_opening import ShardStore, boot_id, open_store


def report_epochs(config: ClusterConfig, node: NodeId, data: Path) -> list[DiskReport]:
    """A report of each shard of a node. Each store is opened and closed in order, as a node that serves nothing would.

    Raises:
        LogDeviceError: a store is missing, in use or damaged.
    """
    settings = NodeSettings.of(config.settings).log_store
    reports = []
    for shard in config.nodes[node].shard_ids():
        directory = data / f"shard{shard_index_of(shard)}"
        if not directory.is_dir():
            raise LogDeviceError(Status.FAILED, f"{format_shard(shard)}: there is no store in {directory}")
        store = open_store(str(directory), settings, shard)
        try:
            reports.append(_report(store, shard, directory))
        finally:
            store.close()
    return reports


def _report(store: ShardStore, shard: ShardId, directory: Path) -> DiskReport:
    marker = store.found
    if marker is None or marker.shard != shard:
        raise LogDeviceError(Status.FAILED, f"the store in {directory} is not one of {format_shard(shard)}")
    if store.adopt(marker, boot=boot_id(), now=Timestamp(time.time_ns() // 1_000)) is not Status.OK:
        raise LogDeviceError(Status.FAILED, f"the store in {directory} cannot be written")
    contents = store.load()
    try:
        return disk_report(contents, _metadata(store, shard, contents))
    except CorruptEntryError as error:
        raise LogDeviceError(Status.FAILED, f"the store in {directory} is damaged: {error}") from None


def _metadata(store: ShardStore, shard: ShardId, contents: Contents) -> list[tuple[LogId, EpochMetaData]]:
    """The newest record of each metadata log."""
    found = []
    for log, highest in contents.highest:
        if not is_metadata_log(log):
            continue
        last: Lsn = highest
        while last >= LSN_OLDEST:
            result = store.read_last(ReadLast(0, shard, log, LSN_OLDEST, last, skip_holes=True))
            if result.status is not Status.OK or result.damaged:
                raise CorruptEntryError(f"the newest record of the metadata log of log {data_log_of(log)}")
            if not result.entries:
                break
            lsn, image = result.entries[0]
            record = metadata_of_entry(image, log, lsn)
            if record is not None:
                found.append((data_log_of(log), record))
                break
            last = Lsn(lsn - 1)
    return found
