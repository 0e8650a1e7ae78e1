"""How much data faults may destroy before somebody has a right to lose records."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import NodeId, ShardId, node_of


class DamageBudget:
    """Decides whether a destructive fault may hit a shard at this time.

    Every copyset spans as many domains of each scope as the replication property says. So no record is lost as long as, at some scope,
    the damaged shards lie in fewer domains than that. A shard that lost data stays damaged for good: nothing copies old records to it
    again. Damage to a single entry counts for that entry only.

    That holds for losses which the shard itself notices. A shard that forgot what it had made durable, and does not know it, answers for
    what it no longer has; no replication property makes up for that, so such faults (`silent`) are never within the budget.
    """

    def __init__(
        self,
        config: ClusterConfig,
        properties: Iterable[ReplicationProperty],
        *,
        enforced: bool = True,
        unsynced: bool = False,
    ) -> None:
        """
        Args:
            properties: of all logs in use, metadata logs included.
            enforced: False: everything may be destroyed, and it is for the checks to find out what that means.
            unsynced: some logs count a copy as stored before it is synced, so that whoever loses what is not synced loses data.
        """
        self.enforced = enforced
        self._unsynced = unsynced
        self._config = config
        self._properties = list(dict.fromkeys(properties))
        self._damaged: set[ShardId] = set()
        self._gone: set[ShardId] = set()
        self._moved: set[ShardId] = set()
        self._lent: list[tuple[ShardId, ...]] = []
        self._entries: dict[tuple[int, int], set[ShardId]] = {}
        self.on_silent_loss: Callable[[], None] = lambda: None
        """Called before a shard forgets, without knowing it, what it made durable."""

    @property
    def damaged(self) -> frozenset[ShardId]:
        """Shards that lost data."""
        return frozenset(self._damaged)

    def take_shards(self, shards: Iterable[ShardId], *, silent: bool = False) -> bool:
        """Whether these shards may lose everything; if so, they count as damaged from here on."""
        wanted = self._damaged.union(shards)
        if self.enforced:
            if silent or not self._tolerable(wanted):
                return False
            if not all(self._tolerable(wanted | damaged) for damaged in self._entries.values()):
                return False
        self._damaged = wanted
        if silent:
            self.on_silent_loss()
        return True

    def take_out(self, shards: Iterable[ShardId]) -> bool:
        """Whether these shards may leave the cluster file. Nobody knows any more where they were, so each might have been anywhere."""
        before, self._gone = self._gone, self._gone.union(shards)
        if self.take_shards(self._gone):
            return True
        self._gone = before
        return False

    def move(self, shards: Iterable[ShardId]) -> bool:
        """Whether these shards may be moved to other racks. From then on each counts as a rack of its own: what it holds was stored where it stood before."""
        before, self._moved = self._moved, self._moved.union(shards)
        if self.take_shards(()):
            return True
        self._moved = before
        return False

    def take_unsynced(self, shards: Iterable[ShardId]) -> bool:
        """Whether these shards may lose what they have not synced; where that may have been acknowledged, they count as damaged from here on."""
        return not self._unsynced or self.take_shards(shards)

    def take_entry(self, shard: ShardId, log: int, lsn: int) -> bool:
        """Whether the shard's copy of one entry may be damaged; if so, it counts from here on."""
        damaged = self._entries.get((log, lsn), set()) | {shard}
        if self.enforced and not self._tolerable(self._damaged | damaged):
            return False
        self._entries[log, lsn] = damaged
        return True

    def lend(self, shards: Iterable[ShardId]) -> tuple[ShardId, ...] | None:
        """Whether these shards may be unable to read what they hold for a while; if so, what to `give_back` afterwards."""
        lent = tuple(shards)
        if self.enforced:
            wanted = self._damaged.union(lent)
            if not self._tolerable(wanted) or not all(
                self._tolerable(wanted | each) for each in self._entries.values()
            ):
                return None
        self._lent.append(lent)
        return lent

    def give_back(self, lent: tuple[ShardId, ...]) -> None:
        """The shards can read again."""
        self._lent.remove(lent)

    def _tolerable(self, shards: set[ShardId]) -> bool:
        shards = shards.union(*self._lent)
        return all(
            any(self._domains(shards, scope) < factor for scope, factor in each.factors) for each in self._properties
        )

    def _domains(self, shards: set[ShardId], scope: object) -> int:
        labels = set()
        for shard in shards:
            location = None if shard in self._gone or shard in self._moved else self._config.location(shard)
            node = NodeId(node_of(shard))
            labels.add(f"N{node}" if location is None else location.domain(scope, node))  # type: ignore[arg-type]
        return len(labels)
