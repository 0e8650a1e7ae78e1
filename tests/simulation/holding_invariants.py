"""A shard tells the truth of what it holds: what it answers OK for is on its disk, and a digest that is authoritative shows every copy that it answered OK for.

Of an epoch that is recovered, a shard that took no part deletes what it holds above the LNG; so such epochs are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from logdevice_py.core.ids import LogId, ShardId, format_shard
from logdevice_py.core.lsn import Lsn, format_lsn
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import Digest, Digested, Stored
from server.simulation.machines import SimNode
from storage_node.log_store import keys
from storage_node.log_store.interface import LogMetadataKind
from storage_node.log_store.memory import MemoryDisk
from storage_node.stored_metadata import decode_epoch
from tests.simulation.history import Violation

if TYPE_CHECKING:
    from tests.simulation.invariants import LogModel

_ASKED_MAX: Final = 4096


class HoldingInvariants:
    """Watches answers to STORE and to DIGEST."""

    def __init__(self, logs: Mapping[LogId, LogModel], generations: Mapping[ShardId, int]) -> None:
        """
        Args:
            generations: of the shards that run.
        """
        self._logs = logs
        self._generations = generations
        self._asked: dict[tuple[int, int], dict[int, tuple[int, int]]] = {}
        """From where, and of which generation, what was asked, by request and shard and then by log."""
        self._answered: dict[tuple[ShardId, int], dict[LogId, set[int]]] = {}
        """LSNs of which a shard's generation said that it stored them."""

    def on_stored(self, node: SimNode, message: Stored) -> None:
        """A shard answers OK."""
        log, lsn, shard = message.log, message.lsn, ShardId(message.shard)
        running = node.root.storage.shards[shard].shard  # type: ignore[union-attr]
        # a log that has left the cluster file meanwhile counts as sync, whatever it was when this was written
        if running.may_exist(log) and running.is_sync(log) and node.disks[shard].may_forget(log, lsn):  # type: ignore[call-overload]
            raise Violation(
                f"{format_shard(shard)} answers for {format_lsn(lsn)} of log {log}, which it has not synced"
            )
        self._answered.setdefault((shard, self._generations[shard]), {}).setdefault(log, set()).add(lsn)

    def on_digest(self, message: Digest) -> None:
        """A shard is asked what it holds."""
        asked = {each.log: (each.first, each.generation) for each in message.ranges if each.log in self._logs}
        if asked:
            self._asked[message.request_id, message.shard] = asked
            if len(self._asked) > _ASKED_MAX:
                del self._asked[next(iter(self._asked))]  # its answer was lost

    def on_digested(self, node: SimNode, message: Digested) -> None:
        """It says so."""
        asked = self._asked.pop((message.request_id, message.shard), None)
        if asked is None:
            return
        shard = ShardId(message.shard)
        shown = {(entry.log, entry.lsn) for entry in message.entries}
        for told in message.ranges:
            if told.log in asked and told.status is Status.OK:
                first, generation = asked[told.log]
                self._check(node, shard, generation, self._logs[told.log], first, told.through, shown)

    def _check(
        self,
        node: SimNode,
        shard: ShardId,
        generation: int,
        model: LogModel,
        first: int,
        covered: int,
        shown: set[tuple[int, int]],
    ) -> None:
        disk = node.disks[shard]  # type: ignore[call-overload]
        destroyed, clean = disk.destroyed, max(model.clean, _clean_on(disk, model.log))
        for lsn in self._answered.get((shard, generation), {}).get(model.log, ()):
            if not (first <= lsn <= covered and model.trim_asked < lsn and lsn in model.acknowledged):
                continue
            if lsn >> 32 <= clean:
                continue
            if (model.log, lsn) not in shown and (model.log, lsn) not in destroyed:
                raise Violation(
                    f"{format_shard(shard)} is authoritative for log {model.log} from {format_lsn(Lsn(first))} to "
                    f"{format_lsn(Lsn(covered))} without {format_lsn(Lsn(lsn))}, for which it answered"
                )


def _clean_on(disk: MemoryDisk, log: LogId) -> int:
    """Up to which epoch the shard has cleaned or purged, perhaps not yet synced: what is deleted by that is written with it in one batch. A question of before
    that may be answered after it, when the disk hung."""
    row = disk.rows.get(keys.log_metadata_key(log, LogMetadataKind.LAST_CLEAN))
    return 0 if row is None else decode_epoch(row)
