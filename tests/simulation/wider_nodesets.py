"""Nodesets of clean epochs that are made wider: what the epoch store says of them by now, and that copies go to shards that joined only when everybody can read that they did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from epoch_store.cells import decode_cell
from logdevice_py.core.ids import LogId, ShardId, format_shard, metadata_log_of, node_of
from logdevice_py.core.lsn import LSN_MAX, LSN_OLDEST, Epoch, Lsn, epoch_of, format_lsn
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData
from logdevice_py.metadata.history import metadata_of_entry
from logdevice_py.placement.failure_domains import Authority, FailureDomains
from server.simulation.machines import SimMachines
from storage_node.log_store import keys
from tests.simulation.history import Violation
from tests.simulation.repairs import running_shards

if TYPE_CHECKING:
    from storage_node.log_store.memory import MemoryDisk
    from tests.simulation.invariants import LogModel


class WiderNodesets:
    """Looks at the epoch store and at the disks of shards that keep metadata logs."""

    def __init__(self, cluster: SimMachines, logs: Mapping[LogId, LogModel]) -> None:
        self._cluster = cluster
        self._logs = logs
        self._cells: dict[LogId, tuple[bytes, EpochMetaData]] = {}
        self._seen: set[tuple[LogId, Epoch, ShardId]] = set()
        """Shards that joined a nodeset and got a copy of its epochs."""

    def metadata(self, log: LogId) -> EpochMetaData:
        """What the epoch store has."""
        content = self._cluster.cells.cells[f"logs/{log}/sequencer"].content
        known = self._cells.get(log)
        if known is None or known[0] != content:
            known = self._cells[log] = content, EpochMetaData.decode(decode_cell(content)[1])
        return known[1]

    def refresh(self, log: LogId) -> None:
        """Go by the nodesets that the epochs of a log have by now. None has lost a shard, or has another label for one."""
        model = self._logs[log]
        metadata = self.metadata(log)
        for number, epoch in model.epochs.items():
            interval = metadata.interval(Epoch(number))
            if interval is None or interval == epoch.interval or interval.since != epoch.interval.since:
                continue
            if interval.original.same_placement(epoch.interval.original):
                epoch.interval = interval
                epoch.domains = interval.domains(lambda shard: None)
                epoch.can_replicate.clear()
            else:
                raise Violation(f"log {log}: the nodeset of epoch {number} was {epoch.interval} and is {interval}")

    def on_rebuilt(self, shard: ShardId, log: LogId, lsn: Lsn) -> None:
        """A donor had a copy stored.

        Raises:
            Violation: its shard joined the nodeset, and who reads the metadata log may not be told.
        """
        self.refresh(log)
        interval = self._logs[log].epochs[lsn >> 32].interval
        key = log, interval.since, shard
        if shard not in interval.joined or key in self._seen:
            return
        self._seen.add(key)
        kept_by, config = self._cluster.config.metadata_log, self._cluster.config
        domains = FailureDomains.by_file(kept_by.nodeset, kept_by.replication, config.location)
        lacking = []
        for each, machines in running_shards(self._cluster):
            if not machines.shard.metadata_authoritative:
                domains.set_authority(each, Authority.UNDERREPLICATION)
            elif not self._tells(self._cluster.nodes[node_of(each)].disks[each], log, epoch_of(lsn), shard):
                lacking.append(each)
        if domains.f_majority(lacking).is_authoritative:
            names = [format_shard(each) for each in lacking]
            raise Violation(
                f"{format_shard(shard)}, which joined the nodeset, stores log {log} {format_lsn(lsn)}; {names} do not tell that it joined"
            )

    @staticmethod
    def _tells(disk: MemoryDisk, log: LogId, epoch: Epoch, shard: ShardId) -> bool:
        """Whether the last record of the metadata log that is on a disk lists the shard. Who cannot read it keeps nobody from reading the others'."""
        metadata_log = metadata_log_of(log)
        begin, end = keys.data_bounds(metadata_log, LSN_OLDEST, LSN_MAX)
        last = next(disk.rows.irange(begin, end, inclusive=(True, False), reverse=True), None)
        if last is None:
            return False
        lsn = keys.split_data_key(last)[0]
        image = disk.counting(metadata_log, lsn)
        try:
            metadata = None if image is None else metadata_of_entry(image, metadata_log, Lsn(lsn))
        except CorruptEntryError:
            return True
        interval: EpochInterval | None = None if metadata is None else metadata.interval(epoch)
        return interval is not None and shard in interval.shards
