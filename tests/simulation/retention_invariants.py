"""What nobody asked to trim goes for a reason: it is older than its log keeps it, the disk is short of space, or the log left the cluster file.

Judged from outside: by true time, by what lies on the disks, and by which cluster files a node has had.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import LogId, NodeId, ShardId, format_shard
from logdevice_py.core.lsn import format_lsn
from logdevice_py.core.units import SECOND
from server.node_settings import NodeSettings
from server.simulation.machines import SimMachines, SimNode
from storage_node.log_store import keys
from storage_node.log_store.interface import Completion, DirectoryRead
from storage_node.log_store.memory import MemoryDisk
from tests.simulation.history import Violation

if TYPE_CHECKING:
    from tests.simulation.invariants import LogModel

_DIRECTORY_ROWS: Final = (b"p", b"q")


class _NodeLife:
    """What a node has seen of cluster files."""

    __slots__ = ("absent", "config", "lately", "ran", "run", "seen")

    def __init__(self) -> None:
        self.config: ClusterConfig | None = None
        self.run = self.seen = 0
        self.ran = 0
        """For how long its process has run, over all runs, by its monotonic clock."""
        self.absent: dict[LogId, int] = {}
        """`ran` when a log was first missing in its file; logs that it has are not there."""
        self.lately: dict[LogId, int] = {}
        """The same as it was when the turn began, if the file is another one since."""


class RetentionInvariants:
    """Watches what shards trim by themselves."""

    def __init__(self, cluster: SimMachines, logs: dict[LogId, LogModel]) -> None:
        self._cluster = cluster
        self._logs = logs
        settings = NodeSettings.of(cluster.config.settings)
        self._space_percent = settings.log_store.space_retention_percent
        self._grace = settings.storage.removed_logs_grace_us
        self._wrong_clocks: dict[int, bool] = {}
        """Nodes whose wall clock was wrong by more than a second at some time, and whether it was behind."""
        self._short: dict[ShardId, tuple[int, int]] = {}
        """Run of the process in which a shard's disk was last short of space, and the partition that was the latest by then."""
        self._lives: dict[NodeId, _NodeLife] = {}
        self._deleted: dict[LogId, tuple[int, int]] = {}
        """Up to where a log that had left the file was deleted, and when."""
        self._newest = cluster.config
        self._back: dict[LogId, int] = {}
        """When a log came back into the file."""

    def watch(self, node: SimNode) -> None:
        """A node had a turn."""
        config = self._cluster.config
        if config is not self._newest:
            for log in self._logs:
                if config.log(log) is not None and self._newest.log(log) is None:
                    self._back[log] = self._cluster.scheduler.now
            self._newest = config
        if abs(node.clock.skew) > SECOND:
            self._wrong_clocks[node.id] = self._wrong_clocks.get(node.id, False) or node.clock.skew < 0
        life = self._lives.get(node.id)
        if life is None:
            life = self._lives[node.id] = _NodeLife()
        now = node.clock.monotonic()
        if life.run == node.starts:
            life.ran += now - life.seen
        life.run, life.seen = node.starts, now
        root = node.root
        life.lately = {}
        if root is not None and life.config is not root.config:
            life.config, life.lately = root.config, dict(life.absent)
            for log in self._logs:
                if root.config.log(log) is not None:
                    life.absent.pop(log, None)
                else:
                    life.absent.setdefault(log, life.ran)

    def on_done(self, node: SimNode, done: list[Completion]) -> None:
        """A shard hears which partitions to trim for space: it has to be short of space, and no more than that may go."""
        for each in done:
            if isinstance(each, DirectoryRead) and each.result.space_end:
                disk = node.disks[each.shard]
                sizes = _sizes(disk)
                self._short[each.shard] = (node.starts, max(node.shards[each.shard].store.partitions))
                missing = disk.total * self._space_percent // 100 - disk.free
                before = sum([size for number, size in sizes.items() if number < each.result.space_end])
                if missing <= before:
                    raise Violation(
                        f"{format_shard(each.shard)} is to trim partitions to {each.result.space_end} of {sorted(sizes)}; "
                        f"missing are {missing} bytes, and those before hold {before}"
                    )

    def check_trim(self, node: SimNode, shard: ShardId, model: LogModel, last: int) -> None:
        """A shard deletes everything up to an LSN, beyond what anybody asked to trim."""
        at = f"{format_shard(shard)} trims log {model.log} to {format_lsn(last)}"
        life = self._lives[node.id]
        absent = life.absent.get(model.log, life.lately.get(model.log))
        if absent is not None:
            passed = life.ran - absent
            if passed < self._grace:
                raise Violation(f"{at}; it has known for {passed} us that the log is gone, not for {self._grace}")
            self._deleted[model.log] = (last, self._cluster.scheduler.now)
        elif not self._makes_room(node, shard, model.log, last) and not self._is_old(model, last):
            raise Violation(f"{at}, which nobody asked for")
        model.trim_asked = last
        model.expired(last)

    def _makes_room(self, node: SimNode, shard: ShardId, log: LogId, last: int) -> bool:
        """Whether the disk was short of space, and what goes does not lie in the partition that was the latest."""
        run, latest = self._short.get(shard, (0, 0))
        if run != node.starts:
            return False
        rows = node.disks[shard].rows.irange(*_DIRECTORY_ROWS, (True, False))
        kept = [
            first for each, first, number in map(keys.split_directory_key, rows) if each == log and number >= latest
        ]
        return not kept or last < min(kept)

    def _is_old(self, model: LogModel, last: int) -> bool:
        """Whether the log keeps records for a time, and all of them up to an LSN are older; as far as no more than one clock was wrong."""
        attributes = self._cluster.config.log(model.log)
        backlog = 0 if attributes is None else attributes.backlog_us
        if not backlog:
            return False
        now = self._cluster.scheduler.now
        excused = len(self._wrong_clocks) > 1 or any(
            behind and self._lives[node].run > 1 for node, behind in self._wrong_clocks.items()
        )
        for lsn, entry in model.entries.items():
            if model.trim_asked < lsn <= last and now - entry.born < backlog and not excused:
                raise Violation(
                    f"log {model.log} {format_lsn(lsn)} is {now - entry.born} us old, and kept for {backlog}"
                )
        return True

    def on_acknowledged(self, model: LogModel, lsn: int) -> None:
        """A client is told that its record is stored: a log that came back goes on behind what was deleted of it."""
        deleted, since = self._deleted.get(model.log, (0, 0))
        if lsn <= deleted and model.entries[lsn].born > max(since, self._back.get(model.log, since)):
            raise Violation(f"log {model.log} {format_lsn(lsn)} is acknowledged; {format_lsn(deleted)} was deleted")


def _sizes(disk: MemoryDisk) -> dict[int, int]:
    """How many bytes of entries each partition of a disk holds that has any."""
    rows = disk.rows
    sizes: Counter[int] = Counter()
    found = list(map(keys.split_directory_key, rows.irange(*_DIRECTORY_ROWS, (True, False))))
    for index, (log, first, number) in enumerate(found):
        following = found[index + 1] if index + 1 < len(found) else (0, 0, 0)
        last = following[1] - 1 if following[0] == log else (1 << 64) - 2
        for bounds in keys.copy_bounds(log, first, last):
            sizes[number] += sum([len(key) + len(rows[key]) for key in rows.irange(*bounds, (True, False))])
    sizes.pop(keys.UNPARTITIONED, None)
    return dict(sizes)
