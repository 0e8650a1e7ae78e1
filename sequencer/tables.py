"""Rows of the tables of a node's sequencers, from the state of its machines. Each function yields rows as they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from logdevice_py.core.histogram import longer_than
from logdevice_py.core.ids import LogId, ShardId, format_shard, node_of, shard_index_of
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.sequencing import AppendLatencyRow, GraylistRow, RecoveriesRow, SequencersRow
from sequencer.frames import NO_NODE
from sequencer.node import SequencerNode
from sequencer.sequencer import Sequencer


def _wanted(logs: Iterable[LogId], constraints: Constraints) -> list[LogId]:
    """The logs to look at, as they were when the table began to be read: rows are made while logs come and go."""
    return list(logs) if constraints.log_id is None else [constraints.log_id]


def sequencers_rows(node: SequencerNode, constraints: Constraints) -> Iterator[SequencersRow]:
    """Table `sequencers`."""
    for log in _wanted(node.sequencers, constraints):
        sequencer = node.sequencers.get(log)
        if sequencer is not None:
            yield _sequencer_row(sequencer)


def _sequencer_row(sequencer: Sequencer) -> SequencersRow:
    current, draining, metadata = sequencer.current, sequencer.draining, sequencer.metadata
    tail = sequencer.tail
    return SequencersRow(
        log_id=sequencer.log,
        state=sequencer.state.name,
        epoch=None if current is None else current.epoch,
        is_activating=int(sequencer.activation is not None),
        next_lsn=None if current is None else current.next_lsn,
        last_released=sequencer.last_released,
        last_known_good=None if current is None else compose_lsn(current.epoch, current.lng),
        tail_lsn=sequencer.tail_lsn,
        tail_time=sequencer.tail_timestamp or None,
        in_flight=0 if current is None else current.in_flight,
        max_in_flight=sequencer.attributes.max_writes_in_flight,
        window_bytes=0 if current is None else current.window_bytes,
        max_window_bytes=sequencer.attributes.window_bytes,
        waiting_for_epoch=len(sequencer.buffer or ()),
        waiting_for_recovery=len(sequencer.held or ()),
        is_recovered=int(sequencer.recovered is not None),
        metadata_log_written=None if metadata is None else int(metadata.written),
        roll_state=None if sequencer.rolling is None else sequencer.rolling.state.name,
        draining_epoch=None if draining is None else draining.epoch,
        draining_in_flight=0 if draining is None else draining.in_flight,
        preempted_by=None if sequencer.preempted_by == NO_NODE else sequencer.preempted_by,
        replication=None if current is None else str(current.interval.replication),
        storage_set=None if current is None else ", ".join(map(format_shard, current.interval.shards)),
        is_guarded=None if current is None else int(sequencer.guarded),
        last_record=None if tail is None else tail.lsn,
        transaction_id=None if tail is None else tail.state.transaction,
        fence=None if tail is None else tail.state.fence,
        is_ended=None if tail is None else int(tail.state.ended),
        is_tail_lost=None if tail is None else int(tail.state.lost),
        is_current=None,  # whether the log has gone on elsewhere, this node learns with its next append
    )


def recoveries_rows(node: SequencerNode, constraints: Constraints) -> Iterator[RecoveriesRow]:
    """Table `recoveries`."""
    for log in _wanted(node.recoveries.logs(), constraints):
        recovery = node.recoveries.find(log)
        if recovery is None:
            continue
        epoch = recovery.current
        yield RecoveriesRow(
            log_id=log,
            state=recovery.state.name,
            next_epoch=recovery.next_epoch,
            epoch=None if epoch is None else epoch.epoch,
            epoch_state=None if epoch is None else epoch.state.name,
            epochs_recovered=len(recovery.recovered),
            waits_for=recovery.explain(),
        )


def append_latency_rows(node: SequencerNode, appends: Sequence[int]) -> Iterator[AppendLatencyRow]:
    """Table `append_latency`; `appends` are the counts of recent appends."""
    if any(appends):
        yield _latency_row("append", None, appends, None)
    timeouts = node.context.store_timeouts
    for shard, counts in timeouts.recent().items():
        if any(counts):
            yield _latency_row("store", shard, counts, timeouts.timeout((shard,), 1))


def _latency_row(operation: str, shard: ShardId | None, counts: Sequence[int], timeout: int | None) -> AppendLatencyRow:
    return AppendLatencyRow(
        operation=operation,
        to_node_id=None if shard is None else node_of(shard),
        to_shard=None if shard is None else shard_index_of(shard),
        samples=sum(counts),
        p50_us=longer_than(counts, 0.5),
        p90_us=longer_than(counts, 0.1),
        p99_us=longer_than(counts, 0.01),
        p999_us=longer_than(counts, 0.001),
        max_us=longer_than(counts, 0.0),
        timeout_us=timeout,
    )


def graylist_rows(node: SequencerNode, constraints: Constraints) -> Iterator[GraylistRow]:
    """Table `graylist`."""
    for shard, reason in node.context.availability.blocked():
        yield GraylistRow(graylisted_node_id=node_of(shard), graylisted_shard=shard_index_of(shard), reason=reason.name)
