"""Rows of the tables of a node's shards, from the state of its machines. Each function yields rows as they are asked for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from logdevice_py.core.batch import constituent_records
from logdevice_py.core.entry import EntryFlags, body_of, lacks_body, parse_constituents, parse_header
from logdevice_py.core.epoch_summary import EpochSummary
from logdevice_py.core.ids import LogId, NodeId, ShardId, format_peer, format_shard, shard_index_of
from logdevice_py.core.lsn import EPOCH_MAX, EPOCH_MIN, Lsn, compose_lsn
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.placement.reading_order import shown_order
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.declare import STREAM_SHOWN
from logdevice_py.tables.storage import (
    CopysetDistributionRow,
    ExtentsRow,
    LogsdbDirectoryRow,
    LogStorageStateRow,
    PartitionsRow,
    PurgesRow,
    ReadersRow,
    RecordCsiRow,
    RecordRow,
    RecoveredEpochsRow,
    ShardsRow,
    StoredLogsRow,
)
from storage_node.log_state import NO_NODE, NO_SOFT_SEAL, LogState
from storage_node.log_store.identity import PreviousEnd
from storage_node.log_store.interface import NO_RECORD, ReadResult
from storage_node.log_store.metrics import LogStoreMetrics
from storage_node.log_store.partitions import NEVER
from storage_node.log_store.view import StoreView
from storage_node.lsn_ranges import format_ranges
from storage_node.node import ShardMachines, StorageNode

RECORD_TEXT_MAX: Final = 4096
"""Bytes of one record that are shown."""
RECORDS_SHOWN_MAX: Final = 100
"""Records of one entry that are shown."""
_DECODED_BYTES_MAX: Final = 1 << 20
"""Frames of an entry beyond so many bytes are not decoded: it would hold up the node."""


def _shards(node: StorageNode, constraints: Constraints) -> Iterator[tuple[int, ShardMachines]]:
    for shard, machines in list(node.shards.items()):
        if constraints.wants_shard(shard_index_of(shard)):
            yield shard_index_of(shard), machines


def _logs(node: StorageNode, constraints: Constraints) -> Iterator[tuple[int, ShardMachines, LogState]]:
    """Logs come and go while rows are made; each is looked up when its turn comes."""
    for index, machines in _shards(node, constraints):
        logs = machines.shard.logs
        wanted: list[LogId] = list(logs) if constraints.log_id is None else [constraints.log_id]
        for log in wanted:
            state = logs.get(log)
            if state is not None:
                yield index, machines, state


def shards_rows(
    node: StorageNode,
    constraints: Constraints,
    previous_stop: Callable[[ShardId], PreviousEnd],
    view: Callable[[ShardId], StoreView],
    metrics: Callable[[ShardId], LogStoreMetrics],
) -> Iterator[ShardsRow]:
    """Table `shards`; what the disk says comes from the functions."""
    for index, machines in _shards(node, constraints):
        shard, awaited = machines.shard, machines.metadata_resync.waits_for
        status, of_store = shard.status(), metrics(shard.shard)
        yield ShardsRow(
            shard=index,
            generation=shard.generation,
            status=status.name,
            accepting_writes=int(shard.writable and status is Status.OK),
            no_space=of_store.no_space,
            disk_bytes=of_store.disk_bytes,
            available_bytes=of_store.available_bytes,
            previous_stop=previous_stop(shard.shard).name,
            verified_since=machines.scrubber.verified_since or None,
            uncompared_ranges=machines.scrubber.uncompared_before,
            scrubbing_log=machines.scrubber.log,
            damaged_ranges=machines.repairs.damaged_ranges,
            dirty_logs=machines.repairs.dirty_logs,
            metadata_awaited=None if awaited is None else ", ".join(map(format_shard, awaited)),
            logs=len(shard.logs),
            read_streams=machines.catchup.stream_count(),
            partitions=len(view(shard.shard).partitions),
            stored_bytes=view(shard.shard).stored_bytes(),
            spare_bytes=view(shard.shard).spare(),
            recent_bytes=shard.recent.size,
        )


def extents_rows(index: int, view: StoreView) -> Iterator[ExtentsRow]:
    """Table `extents`, of one shard."""
    for each in view.extents():
        yield ExtentsRow(
            shard=index,
            id=each.number,
            state=each.state,
            first_block=each.first_block,
            last_block=each.last_block,
            size_bytes=each.size,
            used_bytes=each.used,
            copies=each.copies,
            partitions=",".join(map(str, each.partitions)),
        )


def partitions_rows(index: int, view: StoreView) -> Iterator[PartitionsRow]:
    """Table `partitions`, of one shard."""
    for partition in list(view.partitions):
        has_records = partition.newest > NO_RECORD
        yield PartitionsRow(
            shard=index,
            id=partition.number,
            start_time=partition.created,
            end_time=None if partition.closed == NEVER else partition.closed,
            min_time=partition.oldest if has_records else None,
            max_time=partition.newest if has_records else None,
            logs=view.directory.logs[partition.number],
            stored_bytes=view.size_of(partition.number),
        )


def logsdb_directory_rows(index: int, view: StoreView, constraints: Constraints) -> Iterator[LogsdbDirectoryRow]:
    """Table `logsdb_directory`, of one shard."""
    directory = view.directory
    logs = [log for log, _ in directory.rows()] if constraints.log_id is None else [constraints.log_id]
    for log in logs:
        rows = directory.find(log)
        if rows is None:
            continue
        held = list(zip(rows.spans(), rows.sizes(), strict=True))  # of one moment
        for (partition, first, highest), (_, size) in held:
            yield LogsdbDirectoryRow(index, log, partition, first, highest, size)


def stored_logs_rows(node: StorageNode, constraints: Constraints) -> Iterator[StoredLogsRow]:
    """Table `stored_logs`."""
    for index, _, state in _logs(node, constraints):
        if state.highest:
            yield StoredLogsRow(shard=index, log_id=state.log, highest_lsn=state.highest)


def recovered_epochs_rows(node: StorageNode, constraints: Constraints) -> Iterator[RecoveredEpochsRow]:
    """Table `recovered_epochs`."""
    for index, _, state in _logs(node, constraints):
        if state.recovered is None:
            continue
        for epoch, encoded in state.recovered.summaries(EPOCH_MIN, EPOCH_MAX):
            summary = EpochSummary.decode(encoded)
            counted = summary.counted
            yield RecoveredEpochsRow(
                log_id=state.log,
                shard=index,
                epoch=epoch,
                seal_epoch=summary.seal_epoch,
                is_authoritative=int(summary.authoritative),
                is_counted=int(counted),
                last_lsn=compose_lsn(epoch, summary.last) if summary.last else None,
                entries=summary.entries or None,
                records=summary.records if counted else None,
                bytes=summary.size if counted else None,
                first_time=summary.first_timestamp if counted else None,
                last_time=summary.last_timestamp if summary.last else None,
                completed_time=summary.completed or None,
                first_txid=summary.first_transaction or None,
                last_txid=summary.last_transaction or None,
                lost=summary.lost,
            )


def log_storage_state_rows(node: StorageNode, constraints: Constraints) -> Iterator[LogStorageStateRow]:
    """Table `log_storage_state`."""
    for index, machines, state in _logs(node, constraints):
        soft = state.soft_epoch != NO_SOFT_SEAL
        dirty_first, dirty_last = state.dirty_epochs()
        yield LogStorageStateRow(
            log_id=state.log,
            shard=index,
            last_released=state.last_released,
            held_release=state.held_release or None,
            trim_point=state.trim_point,
            highest_lsn=state.highest,
            seal=state.sealed,
            sealed_by=_node(state.sealed_by),
            soft_seal=state.soft_epoch if soft else None,
            soft_sealed_by=_node(state.soft_node) if soft else None,
            lce=state.clean_epoch,
            unclean_epochs=sum(1 for epoch in state.epochs or () if epoch > state.clean_epoch),
            first_lossy_epoch=dirty_first or None,
            last_lossy_epoch=dirty_last or None,
            dirty_ranges=format_ranges(state.dirty) if state.dirty else None,
            repair=machines.repairs.explain(state),
            read_streams=state.read_streams,
        )


def _node(node: NodeId) -> int | None:
    return None if node == NO_NODE else node


def purges_rows(node: StorageNode, constraints: Constraints) -> Iterator[PurgesRow]:
    """Table `purges`."""
    for index, machines in _shards(node, constraints):
        for purge in machines.purges.purges():
            if constraints.log_id is not None and purge.log.log != constraints.log_id:
                continue
            unanswered = purge.unanswered()
            yield PurgesRow(
                log_id=purge.log.log,
                shard=index,
                state=purge.state.name,
                current_last_clean_epoch=purge.log.clean_epoch,
                purge_to=purge.until,
                unknown_epochs=len(unanswered),
                waits_for=", ".join(map(format_shard, sorted(set().union(*unanswered.values())))),
            )


def readers_rows(node: StorageNode, constraints: Constraints) -> Iterator[ReadersRow]:
    """Table `readers`."""
    for index, machines in _shards(node, constraints):
        for stream in machines.catchup.streams():
            if constraints.log_id is not None and stream.log.log != constraints.log_id:
                continue
            yield ReadersRow(
                shard=index,
                client=format_peer(stream.peer),
                log_id=stream.log.log,
                stream=stream.stream & STREAM_SHOWN,
                state=stream.state.name,
                read_pointer=stream.position,
                until_lsn=stream.until,
                window_high=stream.window_high,
                last_released=stream.log.last_released,
                bytes_sent=stream.sent,
                bytes_left=max(0, stream.credit - stream.sent),
                filter_version=stream.filter_version,
                single_copy=int(stream.single_copy),
                known_down=", ".join(format_shard(ShardId(shard)) for shard in sorted(stream.known_down)),
                reading_order=shown_order(stream.order),
                hedge=int(stream.hedge),
            )


def record_rows(
    log: LogId,
    index: int,
    result: ReadResult,
    superseded: Sequence[tuple[Lsn, bytes]] = (),
    *,
    bare: bool = False,
) -> Iterator[RecordRow]:
    """Rows of table `record` for what one read of a shard found.

    Args:
        superseded: copies that do not count.
        bare: payloads are left out.
    """
    for lsn, image in superseded:
        yield _record_row(log, lsn, index, image, bare, is_current=0)
    rows = {lsn: _record_row(log, lsn, index, image, bare) for lsn, image in result.entries}
    for lsn in result.bodiless:
        rows[lsn] = _damaged_row(log, lsn, index, "NO_BODY")
    for first, _ in result.corrupt:
        rows[first] = _damaged_row(log, first, index, "CORRUPT")
    for lsn in sorted(rows):
        yield rows[lsn]


def record_csi_rows(
    log: LogId, index: int, result: ReadResult, superseded: Sequence[tuple[Lsn, bytes]] = ()
) -> Iterator[RecordCsiRow]:
    """Rows of table `record_csi` for what one read of a shard found; `superseded` are copies that do not count."""
    for row in record_rows(log, index, result, superseded, bare=True):
        yield RecordCsiRow(log, row.lsn, index, row.is_current, row.wave, row.recovery_epoch, row.copyset, row.flags)


class CopysetCounts:
    """Gathers the rows of table `copyset_distribution` of one log and shard from what reads found."""

    def __init__(self, log: LogId, index: int) -> None:
        self._log = log
        self._index = index
        self._rows: dict[tuple[int, ...], CopysetDistributionRow] = {}

    def add(self, result: ReadResult) -> None:
        """Count entries; what cannot be read is not among them."""
        for lsn, image in result.entries:
            header = parse_header(image, alone=True)
            row = self._rows.get(header.copyset)
            if row is None:
                shards = ", ".join(map(format_shard, sorted(header.copyset)))
                row = self._rows[header.copyset] = CopysetDistributionRow(
                    self._log, lsn, self._index, shards, lsn, 0, 0, 0
                )
            row.last_lsn = lsn
            row.entries += 1
            row.records += header.records
            row.body_bytes += header.body_length

    def rows(self) -> Iterator[CopysetDistributionRow]:
        """One for each copyset, whatever the order of its members."""
        joined: dict[str, CopysetDistributionRow] = {}
        for row in self._rows.values():
            known = joined.setdefault(row.copyset, row)
            if known is not row:
                known.lsn, known.last_lsn = min(known.lsn, row.lsn), max(known.last_lsn, row.last_lsn)
                known.entries += row.entries
                known.records += row.records
                known.body_bytes += row.body_bytes
        yield from joined.values()


def _damaged_row(log: LogId, lsn: Lsn, index: int, status: str, is_current: int = 1) -> RecordRow:
    return RecordRow(log, lsn, index, is_current, status, None, None, None, None, None, None, None, None, None)


def _record_row(log: LogId, lsn: Lsn, index: int, image: bytes, bare: bool = False, is_current: int = 1) -> RecordRow:
    try:
        header = parse_header(image, alone=True)
        if not bare and lacks_body(image):
            return _damaged_row(log, lsn, index, "CORRUPT", is_current)
        flags = EntryFlags(header.flags)
        by_recovery = bool(flags & EntryFlags.WRITTEN_BY_RECOVERY)
        return RecordRow(
            log_id=log,
            lsn=lsn,
            shard=index,
            is_current=is_current,
            status="OK",
            wave=None if by_recovery else header.wave,
            recovery_epoch=header.wave if by_recovery else None,
            timestamp=header.timestamp,
            last_known_good=header.lng,
            copyset=", ".join(map(format_shard, header.copyset)),
            flags=", ".join(str(flag.name) for flag in flags),
            records=header.records,
            body_bytes=header.body_length,
            payload=None
            if bare or header.is_hole or header.is_amend
            else _payload(image, bool(flags & EntryFlags.METADATA)),
        )
    except CorruptEntryError:
        return _damaged_row(log, lsn, index, "CORRUPT", is_current)


def _text(record: bytes, is_metadata: bool) -> str:
    if is_metadata:
        metadata = EpochMetaData.decode(record)
        return "; ".join(
            f"from epoch {each.since}: {each.replication} on {', '.join(map(format_shard, each.shards))}"
            for each in metadata.history[-RECORDS_SHOWN_MAX:]
        )
    return record[:RECORD_TEXT_MAX].decode(errors="backslashreplace")


def _payload(image: bytes, is_metadata: bool) -> str:
    """The first records of an entry; one that cannot be read is null, a metadata record is told in words."""
    shown: list[str | None] = []
    left = _DECODED_BYTES_MAX
    for part in parse_constituents(body_of(image)):
        left -= len(part.payload)
        if left < 0:
            shown.append(f"(not decoded: {part.records} records in {len(part.payload)} bytes)")
            break
        for record in constituent_records(part):
            if len(shown) == RECORDS_SHOWN_MAX:
                return json.dumps(shown)
            shown.append(None if record is None else _text(record, is_metadata))
    return json.dumps(shown, ensure_ascii=False)
