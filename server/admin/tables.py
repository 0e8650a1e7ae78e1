"""Fills every table that a node serves, from its machines, its disks and its epoch store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from client.tables import client_read_streams_rows, reader_waits_rows
from epoch_store.interface import GetLastCleanEpoch, LastCleanEpoch, Operation, ReadMetadata, Result
from logdevice_py.core.ids import LogId, ShardId, data_log_of, format_shard, shard_index_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.runtime.clock import monotonic_us
from logdevice_py.tables import from_cluster_file
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.storage import QuarantinedStoresRow
from sequencer import tables as sequencing
from sequencer import waits as sequencing_waits
from server.admin import log_tree_tables, node_tables, quota_tables, rebuilding_tables
from server.admin.sampler import NodeSampler
from storage_node import tables as storing
from storage_node import waits as storing_waits
from storage_node.log_store.interface import ReadResult, ReadShard
from storage_node.log_store.rocksdb.quarantine import bytes_in, quarantined_stores
from storage_node.log_store.view import StoreView
from storage_node.log_store.wanted import Wants, no_body
from storage_node.service import ShardService

if TYPE_CHECKING:
    from server.node_view import AdminView

_LOGS_AT_A_TIME: Final = 64
"""Logs that the epoch store is asked about at a time."""
_INSPECT_BYTES: Final = 256 << 10
_INSPECT_ENTRIES: Final = 64
Rows = Iterator[Any] | AsyncIterator[Any]


class NodeTables:
    """The tables of one node that serves."""

    def __init__(self, host: AdminView) -> None:
        self.sampler = NodeSampler(host)
        """What was observed of the node; who serves the tables runs it."""
        self._host = host
        self._fillers: dict[str, Callable[[Constraints], Rows]] = {
            "configuration": lambda constraints: node_tables.configuration_rows(host),
            "configuration_history": lambda constraints: node_tables.configuration_history_rows(host),
            "nodes": lambda constraints: from_cluster_file.nodes_rows(host.config),
            "log_groups": lambda constraints: from_cluster_file.log_groups_rows(host.config),
            "info": lambda constraints: node_tables.info_rows(host),
            "settings": lambda constraints: node_tables.settings_rows(host.live_settings),
            "cluster_state": lambda constraints: node_tables.cluster_state_rows(host.node, host.config),
            "sockets": lambda constraints: node_tables.sockets_rows(host.transport),
            "append_trace": lambda constraints: node_tables.append_trace_rows(host.trace),
            "stats": lambda constraints: node_tables.stats_rows(host.metric_sources()),
            "epoch_store": self._epoch_store,
            "historical_metadata": self._historical_metadata,
            "sequencers": lambda constraints: self._of_sequencers(sequencing.sequencers_rows, constraints),
            "recoveries": lambda constraints: self._of_sequencers(sequencing.recoveries_rows, constraints),
            "graylist": lambda constraints: self._of_sequencers(sequencing.graylist_rows, constraints),
            "shards": self._shards,
            "quarantined_stores": self._quarantined_stores,
            "extents": lambda constraints: self._stores(constraints, storing.extents_rows),
            "partitions": lambda constraints: self._stores(constraints, storing.partitions_rows),
            "logsdb_directory": lambda constraints: self._stores(
                constraints, lambda index, view: storing.logsdb_directory_rows(index, view, constraints)
            ),
            "stored_logs": lambda constraints: self._of_shards(storing.stored_logs_rows, constraints),
            "recovered_epochs": lambda constraints: self._of_shards(storing.recovered_epochs_rows, constraints),
            "log_storage_state": lambda constraints: self._of_shards(storing.log_storage_state_rows, constraints),
            "purges": lambda constraints: self._of_shards(storing.purges_rows, constraints),
            "readers": lambda constraints: self._of_shards(storing.readers_rows, constraints),
            "shard_rebuildings": lambda constraints: rebuilding_tables.shard_rebuildings_rows(host.node),
            "log_rebuildings": lambda constraints: rebuilding_tables.log_rebuildings_rows(host.node),
            "log_tree": lambda constraints: log_tree_tables.log_tree_rows(host.node, constraints),
            "log_tree_replicas": lambda constraints: log_tree_tables.log_tree_replicas_rows(host.node),
            "under_replicated_logs": self._under_replicated_logs,
            "record": self._record,
            "record_csi": self._record_csi,
            "client_read_streams": lambda constraints: (
                iter(())
                if host.node.rebuilding is None
                else client_read_streams_rows(host.node.rebuilding.replica.session, "event log", constraints)
            ),
            "client_shard_delays": lambda constraints: iter(()),  # what nodes read for themselves is not hedged
            "copyset_distribution": self._copyset_distribution,
            "append_throughput": lambda constraints: self._of_sequencers(self.sampler.throughput.rows, constraints),
            "append_latency": lambda constraints: self._of_sequencers(
                lambda node, _: sequencing.append_latency_rows(node, self.sampler.throughput.recent_latencies()),
                constraints,
            ),
            "waits": self._waits,
            "quotas": lambda constraints: quota_tables.quotas_rows(host.node, constraints, monotonic_us()),
        }

    def names(self) -> list[str]:
        """The tables that are served."""
        return list(self._fillers)

    def rows(self, name: str, constraints: Constraints) -> Rows:
        """The rows of a table, made as they are asked for; none where the node lacks the role.

        Some iterators are asynchronous: those that wait for somebody else. No step of one holds up the loop for long.
        """
        return self._fillers[name](constraints)

    def _of_sequencers(self, fill: Callable[..., Iterator[Any]], constraints: Constraints) -> Iterator[Any]:
        sequencer = self._host.node.sequencer
        return iter(()) if sequencer is None else fill(sequencer, constraints)

    def _of_shards(self, fill: Callable[..., Iterator[Any]], constraints: Constraints) -> Iterator[Any]:
        storage = self._host.node.storage
        return iter(()) if storage is None else fill(storage, constraints)

    def _shards(self, constraints: Constraints) -> Iterator[Any]:
        host = self._host
        storage = host.node.storage
        if storage is None:
            return iter(())
        return storing.shards_rows(
            storage,
            constraints,
            lambda shard: host.shards[shard].contents.last_stop,
            lambda shard: host.shards[shard].view,
            lambda shard: host.shards[shard].metrics,
        )

    def _under_replicated_logs(self, constraints: Constraints) -> Iterator[Any]:
        for row in self._host.copy_review.rows():
            if constraints.wants_shard(row.shard) and constraints.log_id in (None, row.log_id):
                yield row

    async def _quarantined_stores(self, constraints: Constraints) -> AsyncIterator[Any]:
        """Their files are looked at in a thread: there may be many, on a disk that is slow."""
        for shard, directory in self._host.store_directories.items():
            index = shard_index_of(shard)
            if not constraints.wants_shard(index):
                continue
            try:
                stores = await asyncio.to_thread(quarantined_stores, directory)
            except OSError as error:
                raise LogDeviceError(Status.FAILED, f"what lies beside {directory} cannot be listed: {error}") from None
            for store in stores:
                size = await asyncio.to_thread(bytes_in, store.directory)
                yield QuarantinedStoresRow(index, store.directory, store.reason.name, size)

    def _stores(self, constraints: Constraints, fill: Callable[[int, StoreView], Iterator[Any]]) -> Iterator[Any]:
        for shard, service in list(self._host.shards.items()):
            if constraints.wants_shard(shard_index_of(shard)):
                yield from fill(shard_index_of(shard), service.view)

    def _waits(self, constraints: Constraints) -> Iterator[Any]:
        node, now = self._host.node, monotonic_us()
        if node.sequencer is not None and constraints.shard is None:
            yield from sequencing_waits.waits_rows(node.sequencer, constraints, now)
        if node.rebuilding is not None and node.rebuilding.is_kept and constraints.shard is None:
            yield from reader_waits_rows(node.rebuilding.replica.session, "event log", constraints)
        if node.storage is not None:
            yield from storing_waits.waits_rows(node.storage, constraints, now)

    async def _record(self, constraints: Constraints) -> AsyncIterator[Any]:
        wants = no_body if constraints.bare else None
        async for shard, service, first, result in self._reads(constraints, wants):
            log = constraints.log_id
            assert log is not None
            superseded = service.view.superseded(log, first, result.through, wants)
            for row in storing.record_rows(log, shard_index_of(shard), result, superseded, bare=constraints.bare):
                yield row

    async def _record_csi(self, constraints: Constraints) -> AsyncIterator[Any]:
        async for shard, service, first, result in self._reads(constraints, no_body):
            log = constraints.log_id
            assert log is not None
            superseded = service.view.superseded(log, first, result.through, no_body)
            for row in storing.record_csi_rows(log, shard_index_of(shard), result, superseded):
                yield row

    async def _copyset_distribution(self, constraints: Constraints) -> AsyncIterator[Any]:
        log = constraints.log_id
        assert log is not None
        counts: dict[ShardId, storing.CopysetCounts] = {}
        async for shard, _, _, result in self._reads(constraints, no_body):
            counts.setdefault(shard, storing.CopysetCounts(log, shard_index_of(shard))).add(result)
        for each in counts.values():
            for row in each.rows():
                yield row

    async def _reads(
        self, constraints: Constraints, wants: Wants | None
    ) -> AsyncIterator[tuple[ShardId, ShardService, Lsn, ReadResult]]:
        """What is stored, a little at a time: the shard, where the reading began, and what was found up to `result.through`."""
        log = constraints.log_id
        assert log is not None, "the request was checked for what the table requires"
        for shard, service in list(self._host.shards.items()):
            if not constraints.wants_shard(shard_index_of(shard)):
                continue
            first = constraints.lsn_min
            while first <= constraints.lsn_max:
                request = ReadShard(
                    0, shard, log, first, constraints.lsn_max, _INSPECT_BYTES, _INSPECT_ENTRIES, wants=wants
                )
                if shard not in self._host.shards:
                    raise LogDeviceError(Status.SHUTDOWN)
                result = service.inspect(request)
                if result.status is not Status.OK:
                    raise LogDeviceError(result.status, f"{format_shard(shard)} cannot be read")
                yield shard, service, first, result
                first = Lsn(result.through + 1)
                await asyncio.sleep(0)

    # What the epoch store has

    async def _epoch_store(self, constraints: Constraints) -> AsyncIterator[Any]:
        async for logs in self._logs(constraints):
            asked: list[Operation] = []
            for log in logs:
                asked += [ReadMetadata(log), GetLastCleanEpoch(log)]
            results = await self._ask(asked)
            for position, log in enumerate(logs):
                yield node_tables.epoch_store_row(log, results[2 * position], _clean(results[2 * position + 1]))

    async def _historical_metadata(self, constraints: Constraints) -> AsyncIterator[Any]:
        async for logs in self._logs(constraints):
            results = await self._ask([ReadMetadata(log) for log in logs])
            for log, result in zip(logs, results, strict=True):
                metadata = result.value if isinstance(result.value, EpochMetaData) else None
                for row in node_tables.historical_metadata_rows(log, result.status, metadata):
                    yield row

    async def _logs(self, constraints: Constraints) -> AsyncIterator[list[LogId]]:
        """The data logs that are asked for, some at a time. One that somebody names is looked up unless it is known that there is no such log.

        Raises:
            LogDeviceError: AGAIN: this node does not know yet which logs there are, and has to be asked later, or another one.
        """
        config = self._host.config
        if constraints.log_id is not None:
            log = constraints.log_id
            if data_log_of(log) == log and (config.log(log) is not None or not config.is_absent(log)):
                yield [log]
            return
        # A list without the logs of the tree would pass for a list of all. A node that was not started again since the tree was enabled never reads it,
        # and may be all there is to ask before the others are started again.
        if self._host.node.log_tree is not None and not config.all_logs_known:
            raise LogDeviceError(
                Status.AGAIN, "this node has not read the log tree yet, so it does not know which logs there are"
            )
        for group in config.groups():
            ids = group.ids()
            for begin in range(0, len(ids), _LOGS_AT_A_TIME):
                yield [LogId(log) for log in ids[begin : begin + _LOGS_AT_A_TIME]]

    async def _ask(self, operations: Sequence[Operation]) -> list[Result]:
        answered: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()

        def done(results: list[Result]) -> None:
            if not answered.done():
                answered.set_result(results)

        self._host.ask_epoch_store(operations, done)
        return await answered


def _clean(result: Result) -> LastCleanEpoch | None:
    return result.value if isinstance(result.value, LastCleanEpoch) else None
