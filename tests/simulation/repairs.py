"""Copies that vanish from disks without any trace, when nothing else is wrong: the scrubbers find out, and every copy is there again.

They vanish when the faults of a run are over: a shard that forgot what it had votes wrongly until it knows, whatever the replication property,
so that a reader or a recovery which meets other trouble at the same time may be misled.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from epoch_store.cells import decode_cell
from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import LogId, ShardId, format_shard, node_of
from logdevice_py.core.lsn import Lsn, epoch_of, format_lsn
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from server.simulation.machines import SimMachines, SimNodeState
from storage_node.log_store import keys
from storage_node.log_store.memory import MemoryDisk
from storage_node.node import ShardMachines
from storage_node.repair.scrub import Scrubber
from tests.simulation.history import Violation

Copy = tuple[ShardId, LogId, Lsn]
_COPIES_MAX = 5


def running_shards(cluster: SimMachines) -> Iterator[tuple[ShardId, ShardMachines]]:
    """Every shard that serves."""
    for node in cluster.nodes.values():
        if node.id not in cluster.config.nodes or node.retired:
            continue
        if node.state is SimNodeState.RUNNING and node.root is not None and node.root.storage is not None:
            yield from node.root.storage.shards.items()


class VanishedCopies:
    """Takes copies away, and says when they are back."""

    def __init__(self, cluster: SimMachines, logs: list[LogId], rng: random.Random) -> None:
        self._cluster = cluster
        self._logs = logs
        self._copies: list[Copy] = []
        self._shard: ShardId | None = None
        """Whose they are."""
        self._passes = 0
        """That its scrubber has completed."""
        self._compared = 0
        """Of these, since then: in which every other shard answered for every range."""
        self._take(rng)

    def __len__(self) -> int:
        return len(self._copies)

    def _take(self, rng: random.Random) -> None:
        """A few copies of one shard: each of an entry that another shard has, too, and that is settled on both."""
        shards = dict(running_shards(self._cluster))
        candidates = list(shards)
        rng.shuffle(candidates)
        for shard in candidates:
            found = [
                (log, lsn)
                for log in self._logs
                for lsn in self._settled(shards[shard], shard, log)
                if any(
                    self._can_repair(shards[other], other, shard, log, lsn) for other in candidates if other != shard
                )
            ]
            if found:
                for log, lsn in rng.sample(found, min(len(found), _COPIES_MAX)):
                    self._vanish(shard, log, lsn)
                self._shard, self._passes = shard, shards[shard].scrubber.passes
                return

    def _disk(self, shard: ShardId) -> MemoryDisk:
        [disk] = [node.disks[shard] for node in self._cluster.nodes.values() if shard in node.disks]
        return disk

    def _image(self, shard: ShardId, log: LogId, lsn: Lsn) -> bytes | None:
        return self._disk(shard).counting(log, lsn)

    def _settled(self, machines: ShardMachines, shard: ShardId, log: LogId) -> list[Lsn]:
        state = machines.shard.logs.get(log)
        if state is None:
            return []
        begin, end = keys.data_bounds(log, state.trim_point + 1, max(state.last_released, state.trim_point + 1))
        lsns = {keys.split_data_key(key)[0] for key in self._disk(shard).rows.irange(begin, end, (True, False))}
        return [lsn for lsn in sorted(lsns) if lsn <= state.last_released and self._in_copyset(shard, shard, log, lsn)]

    def _in_copyset(self, holder: ShardId, named: ShardId, log: LogId, lsn: Lsn) -> bool:
        image = self._image(holder, log, lsn)
        return image is not None and named in parse_header(image).copyset

    def _can_repair(self, machines: ShardMachines, other: ShardId, shard: ShardId, log: LogId, lsn: Lsn) -> bool:
        state = machines.shard.logs.get(log)
        if state is None or not state.trim_point < lsn <= state.last_released or state.is_dirty(lsn, lsn):
            return False
        cell = self._cluster.cells.cells[f"logs/{log}/sequencer"].content
        interval = EpochMetaData.decode(decode_cell(cell)[1]).interval(epoch_of(lsn))
        assert interval is not None, "an entry has an epoch"
        generations = dict(interval.nodeset)
        mine = dict(running_shards(self._cluster))[shard].shard.generation
        return (
            generations.get(other) == machines.shard.generation
            and generations.get(shard) == mine
            and self._in_copyset(other, shard, log, lsn)
        )

    def _vanish(self, shard: ShardId, log: LogId, lsn: Lsn) -> None:
        self._disk(shard).remove(log, lsn)
        self._copies.append((shard, log, lsn))
        self._cluster.fault_effects["vanished_copies"] += 1

    def progress(self) -> int:
        """Grows as the scrubbers go on."""
        return sum(machines.shard.metrics.scrub_ranges for _, machines in running_shards(self._cluster))

    def missing(self) -> list[str]:
        """What is not back yet."""
        return [self._name(copy) for copy in self._not_back()]

    def _not_back(self) -> list[Copy]:
        shards = dict(running_shards(self._cluster))
        return [
            (shard, log, lsn)
            for shard, log, lsn in self._copies
            if lsn > shards[shard].shard.logs[log].trim_point and self._image(shard, log, lsn) is None
        ]

    @staticmethod
    def _name(copy: Copy) -> str:
        shard, log, lsn = copy
        return f"{format_shard(shard)} log {log} {format_lsn(lsn)}"

    def _is_noted(self, copy: Copy) -> bool:
        """Its shard knows that it lacks the copy, and fetches it."""
        shard, log, lsn = copy
        damage = dict(running_shards(self._cluster))[shard].repairs.damaged.get(log)
        return damage is not None and any(first <= lsn <= last for first, last in damage.missing)

    def check(self, passes: int) -> Callable[[], bool]:
        """Whether everything is back; a violation when the shard was compared with all others so often and does not know of something that is not.

        It alone hurries: shards that all do have so much to compare for each other that some answer too late, or not. Where others are far
        away, a copy takes several round trips to fetch, one copy after the other, and a pass only one.
        """

        def done() -> bool:
            missing = self._not_back()
            for shard, machines in running_shards(self._cluster):
                if shard == self._shard:
                    self._look(shard, machines.scrubber)
            if self._compared > passes and (unknown := [copy for copy in missing if not self._is_noted(copy)]):
                raise Violation(f"after {passes} passes of its scrubber: {[self._name(copy) for copy in unknown]}")
            return not missing

        return done

    def _look(self, shard: ShardId, scrubber: Scrubber) -> None:
        """Count its passes, and have it begin the next one."""
        if scrubber.passes != self._passes:
            self._passes = scrubber.passes
            self._compared += not scrubber.uncompared_before
        process = self._cluster.nodes[node_of(shard)].process
        assert process is not None, "it runs"
        process.event(scrubber.hurry)
