"""What the shards of a node wait for, as the states of their machines tell it. Each function yields rows as they are asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from logdevice_py.core.ids import LogId, ShardId, format_shard, shard_index_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import Micros
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.waits import WaitCause, WaitKind, WaitsRow
from storage_node.epochs.purge import LogPurge, PurgeState
from storage_node.node import ShardMachines, StorageNode
from storage_node.reading.catchup import CatchupQueue
from storage_node.reading.read_stream import ServerReadStream, ServerStreamState


def waits_rows(node: StorageNode, constraints: Constraints, now: Micros) -> Iterator[WaitsRow]:
    """Table `waits`, as far as shards are concerned."""
    for shard, machines in list(node.shards.items()):
        if constraints.wants_shard(shard_index_of(shard)):
            yield from _of_purges(shard, machines, constraints.log_id, now)
            yield from _of_releases(shard, machines, constraints.log_id)
            yield from _of_streams(shard, machines, constraints.log_id)


def _row(
    kind: WaitKind,
    shard: ShardId,
    log: LogId,
    cause: WaitCause,
    *,
    lsn: Lsn | None = None,
    waiting: int = 1,
    shards: Iterable[ShardId] = (),
    waited: float | None = None,
    detail: str = "",
) -> WaitsRow:
    return WaitsRow(
        kind=kind.name,
        log_id=log,
        cause=cause.name,
        shards=", ".join(map(format_shard, shards)),
        lsn=lsn,
        waiting=waiting,
        waited_seconds=waited,
        shard=shard_index_of(shard),
        detail=detail,
    )


def _of_purges(shard: ShardId, machines: ShardMachines, log: LogId | None, now: Micros) -> Iterator[WaitsRow]:
    for purge in machines.purges.purges():
        if log in (None, purge.log.log):
            waited = None if purge.began is None else (now - purge.began) / 1e6
            cause, shards = _of_purge(purge)
            detail = f"from epoch {purge.log.clean_epoch + 1} to {purge.until}"
            yield _row(WaitKind.PURGE, shard, purge.log.log, cause, shards=shards, waited=waited, detail=detail)


def _of_purge(purge: LogPurge) -> tuple[WaitCause, list[ShardId]]:
    if purge.state is PurgeState.WAITING:
        return WaitCause.TURN, []
    if purge.state is PurgeState.READING_HISTORY:
        return WaitCause.METADATA_LOG, []
    if purge.state is PurgeState.ASKING:
        return WaitCause.PEERS, sorted(set().union(*purge.unanswered().values()))
    return WaitCause.DISK, []


def _of_releases(shard: ShardId, machines: ShardMachines, log: LogId | None) -> Iterator[WaitsRow]:
    """Releases that are held back here."""
    logs = machines.shard.logs
    for each in list(logs) if log is None else [log]:
        state = logs.get(each)
        if state is not None and state.held_release:
            cause = WaitCause.CLEAN if state.clean_in_flight else WaitCause.PURGE
            yield _row(WaitKind.RELEASE, shard, each, cause, lsn=Lsn(state.last_released + 1))


def _of_streams(shard: ShardId, machines: ShardMachines, log: LogId | None) -> Iterator[WaitsRow]:
    """Streams of a log that wait for the same make one row, at the place of the first of them."""
    found: dict[tuple[LogId, WaitCause], tuple[Lsn, int]] = {}
    for stream in machines.catchup.streams():
        if log in (None, stream.log.log):
            key = stream.log.log, _of_stream(stream, machines.catchup)
            lsn, waiting = found.get(key, (stream.position, 0))
            found[key] = min(lsn, stream.position), waiting + 1
    for (each, cause), (lsn, waiting) in found.items():
        yield _row(WaitKind.READ, shard, each, cause, lsn=lsn, waiting=waiting)


def _of_stream(stream: ServerReadStream, queue: CatchupQueue) -> WaitCause:
    log = stream.log
    if queue.is_congested(stream.peer):
        return WaitCause.READER_CONGESTED
    if stream.state is ServerStreamState.READING:
        return WaitCause.DISK
    if stream.state is ServerStreamState.THROTTLED:
        return WaitCause.QUOTA
    if stream.state is ServerStreamState.QUEUED:
        return WaitCause.TURN
    if stream.position > log.last_released:
        return WaitCause.RELEASE if log.held_release or log.highest > log.last_released else WaitCause.TAIL
    return WaitCause.READER_WINDOW if stream.position > stream.window_high else WaitCause.READER_CREDIT
