"""What is written to a metadata log can be found by everybody who reads it: no f-majority of shards that are authoritative lacks it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from epoch_store.cells import decode_cell
from logdevice_py.core.ids import LogId, ShardId, format_shard, metadata_log_of, node_of
from logdevice_py.core.lsn import LSN_MAX, Epoch, compose_lsn
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.placement.failure_domains import Authority, FailureDomains
from server.simulation.machines import SimMachines
from storage_node.log_store import keys
from tests.simulation.history import Violation
from tests.simulation.repairs import running_shards

if TYPE_CHECKING:
    from storage_node.log_store.memory import MemoryDisk


class MetadataAuthorities:
    """Looks at the disks of shards that run, as long as the same shards keep metadata logs: sequencers store again what goes with others."""

    def __init__(self, cluster: SimMachines, logs: Iterable[LogId]) -> None:
        self._cluster = cluster
        self._logs = list(logs)
        self._kept_by = cluster.config.metadata_log
        self._known: dict[LogId, Epoch] = {}
        self._changed = False
        """Others keep metadata logs, or did in between: what is stored again for them takes a while."""

    def check(self) -> None:
        """As it is at this moment.

        Raises:
            Violation: a reader that hears all the shards that lack a record, and nobody else, takes the one before it for the last.
        """
        cluster, kept_by = self._cluster, self._kept_by
        self._changed = self._changed or cluster.config.metadata_log != kept_by or self._joined()
        if self._changed:
            return
        domains = FailureDomains.by_file(kept_by.nodeset, kept_by.replication, cluster.config.location)
        authoritative: list[tuple[ShardId, MemoryDisk]] = []
        for shard, machines in running_shards(cluster):
            if machines.shard.metadata_authoritative:
                authoritative.append((shard, cluster.nodes[node_of(shard)].disks[shard]))
            else:
                domains.set_authority(shard, Authority.UNDERREPLICATION)
        for log in self._logs:
            since = self._written(log)
            lacking = [shard for shard, disk in authoritative if since and not _holds(disk, log, since)]
            if domains.f_majority(lacking).is_authoritative:
                names = [format_shard(shard) for shard in lacking]
                raise Violation(
                    f"log {log}: {names} are authoritative for its metadata log without what was written of epoch {since}"
                )

    def _joined(self) -> bool:
        """Whether there are shards that kept no metadata logs at first."""
        shards = {f"shards/{format_shard(shard)}" for shard in self._kept_by.nodeset}
        return any(key.startswith("shards/") and key not in shards for key in self._cluster.cells.cells)

    def _written(self, log: LogId) -> Epoch:
        """With which epoch nodesets were changed last, of what is in the metadata log; 0: there is none."""
        cell = self._cluster.cells.cells.get(f"logs/{log}/sequencer")
        if cell is None:
            return Epoch(0)
        metadata = EpochMetaData.decode(decode_cell(cell.content)[1])
        if metadata.written:
            changed = max(metadata.effective_since, *(interval.widened for interval in metadata.history))
            self._known[log] = changed
        elif len(metadata.history) > 1:
            # the record that is on its way may change earlier nodesets, too
            self._known[log] = max(self._known.get(log, Epoch(0)), metadata.history[-2].since)
        return self._known.get(log, Epoch(0))


def _holds(disk: MemoryDisk, log: LogId, since: Epoch) -> bool:
    begin, end = keys.data_bounds(metadata_log_of(log), compose_lsn(since, 0), LSN_MAX)
    return any(True for _ in disk.rows.irange(begin, end, inclusive=(True, False)))
