"""Marks of dirty ranges tell the truth: where a shard took one away, it holds what the copyset of the entry says that it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from logdevice_py.core.entry import EntryFlags, parse_header
from logdevice_py.core.ids import LogId, ShardId, format_shard, node_of
from logdevice_py.core.lsn import Lsn, format_lsn
from server.simulation.machines import SimMachines, SimNode
from storage_node.log_store import keys
from storage_node.log_store.interface import LogMetadataKind, WriteShard
from storage_node.log_store.memory import MemoryDisk
from storage_node.lsn_ranges import Range, add_range, format_ranges, overlaps, remove_range
from storage_node.stored_metadata import decode_ranges
from tests.simulation.history import Violation
from tests.simulation.repairs import running_shards

if TYPE_CHECKING:
    from tests.simulation.invariants import LogModel

_BY_RECOVERY = int(EntryFlags.WRITTEN_BY_RECOVERY)


class DirtyInvariants:
    """Watches the marks on disks. The mark in memory is never wider than that on the disk, and every write of one is seen here."""

    def __init__(
        self, cluster: SimMachines, logs: Mapping[LogId, LogModel], generations: Mapping[ShardId, int]
    ) -> None:
        """
        Args:
            generations: of the shards that run.
        """
        self._cluster = cluster
        self._logs = logs
        self._generations = generations
        self._marks: dict[tuple[ShardId, LogId], list[Range]] = {}
        self._once: dict[tuple[ShardId, int, LogId], list[Range]] = {}
        """What was ever marked, by shard and generation."""

    def on_start(self, shard: ShardId, log_metadata: Iterable[tuple[LogId, LogMetadataKind, bytes]]) -> None:
        """A shard is opened, with this on its disk."""
        for log in self._logs:
            self._marks.pop((shard, log), None)
        for log, kind, value in log_metadata:
            if kind is LogMetadataKind.DIRTY and log in self._logs:
                self._marks[shard, log] = decode_ranges(value)

    def on_write(self, node: SimNode, effect: WriteShard) -> None:
        """Something is written: marks that end there must be true."""
        for log, kind, value in effect.batch.log_metadata:
            if kind is not LogMetadataKind.DIRTY or log not in self._logs:
                continue
            shard, marked = effect.shard, decode_ranges(value)
            gone = self._marks.get((shard, log), [])
            self._marks[shard, log] = list(marked)
            once = self._once.setdefault((shard, self._generations[shard], log), [])
            for first, last in marked:
                add_range(once, first, last)
                remove_range(gone, first, last)
            state = node.root.storage.shards[shard].shard.logs[log]  # type: ignore[union-attr]
            remove_range(gone, Lsn(state.last_released + 1), Lsn(2**63))  # the end was found: see `check`
            written = {lsn for at, lsn, _, _, _ in effect.batch.entries if at == log}
            self._check(node, shard, self._logs[log], gone, written)

    def check(self, log: LogId) -> None:
        """At the end of a run: of what was ever marked and is not any more, everything is here."""
        for shard, machines in running_shards(self._cluster):
            state = machines.shard.logs.get(log)
            once = list(self._once.get((shard, int(machines.shard.generation), log), ()))
            if state is None or not once:
                continue
            for first, last in state.dirty or ():
                remove_range(once, first, last)
            remove_range(once, Lsn(state.last_released + 1), Lsn(2**63))
            self._check(self._cluster.nodes[node_of(shard)], shard, self._logs[log], once, set())

    def _check(self, node: SimNode, shard: ShardId, model: LogModel, ranges: list[Range], written: set[Lsn]) -> None:
        if not ranges:
            return
        destroyed = self._cluster.destroyed_entries()
        for lsn in model.acknowledged:
            if not overlaps(ranges, lsn, lsn) or lsn <= model.trim_asked or lsn in written:
                continue
            if model.epochs[lsn >> 32].interval.generation(shard) not in (0, self._generations[shard]):
                continue
            if shard in destroyed.get((model.log, lsn), ()) or _holds(node.disks[shard], model.log, lsn):  # type: ignore[call-overload]
                continue
            if self._is_named(shard, model, lsn):
                raise Violation(
                    f"{format_shard(shard)} took the mark from log {model.log} {format_ranges(ranges)} "
                    f"without its copy of {format_lsn(lsn)}"
                )

    def _is_named(self, shard: ShardId, model: LogModel, lsn: int) -> bool:
        """Whether all copies that count name the shard. Those are left out that an unfinished recovery left below the LNG of the one that ended."""
        rank_max = (-1, 0)
        named: list[bool] = []
        for image in self._copies(model.log, lsn):
            header = parse_header(image)
            if header.is_hole or (
                header.flags & _BY_RECOVERY and lsn & 0xFFFFFFFF <= model.recovered_from.get(lsn >> 32, 0)
            ):
                continue
            if header.rank > rank_max:
                rank_max, named = header.rank, []
            if header.rank == rank_max:
                named.append(shard in header.copyset)
        return bool(named) and all(named)

    def _copies(self, log: LogId, lsn: int) -> Iterator[bytes]:
        for node in self._cluster.nodes.values():
            for disk in node.disks.values():
                image = disk.counting(log, lsn)
                if image is not None:
                    yield image


def _holds(disk: MemoryDisk, log: LogId, lsn: int) -> bool:
    begin, end = keys.data_bounds(log, Lsn(lsn), Lsn(lsn))
    return any(True for _ in disk.rows.irange(begin, end, inclusive=(True, False)))
