"""Rows of the tables of a node's sequencers, from the state of its machines. Each function yields rows as they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from logdevice_py.core.ids import LogId, format_shard, node_of, shard_index_of
from logdevice_py.core.lsn import compose_lsn
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.sequencing import GraylistRow, RecoveriesRow, SequencersRow
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
        draining_epoch=None if draining is None else draining.epoch,
        draining_in_flight=0 if draining is None else draining.in_flight,
        preempted_by=None if sequencer.preempted_by == NO_NODE else sequencer.preempted_by,
        replication=None if current is None else str(current.interval.replication),
        storage_set=None if current is None else ", ".join(map(format_shard, current.interval.shards)),
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


def graylist_rows(node: SequencerNode, constraints: Constraints) -> Iterator[GraylistRow]:
    """Table `graylist`."""
    for shard, reason in node.context.availability.blocked():
        yield GraylistRow(graylisted_node_id=node_of(shard), graylisted_shard=shard_index_of(shard), reason=reason.name)
