"""What must hold of recoveries and of seals at every instant: a part of `Invariants`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from epoch_store.interface import SetLastCleanEpoch
from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import LogId, ShardId, format_shard, is_metadata_log, node_of
from logdevice_py.core.lsn import LSN_OLDEST, Lsn, format_lsn
from logdevice_py.core.machine import Send
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import Clean, Cleaned, Digest, Sealed, Store, StoreFlags
from sequencer.effects import EpochStoreRequest
from server.simulation.machines import SimMachines, SimNode
from storage_node.log_store.interface import WriteShard
from tests.simulation.history import Violation
from tests.simulation.wider_nodesets import WiderNodesets

if TYPE_CHECKING:
    from tests.simulation.invariants import LogModel

_DRAINING: Final = int(StoreFlags.DRAINING)


class RecoveryInvariants:
    """Watches seals, soft seals and the cleaning of epochs."""

    def __init__(
        self,
        cluster: SimMachines,
        logs: Mapping[LogId, LogModel],
        generations: Mapping[ShardId, int],
        wider: WiderNodesets,
    ) -> None:
        """
        Args:
            generations: of the shards that run.
        """
        self._cluster = cluster
        self._logs = logs
        self._generations = generations
        self._wider = wider
        self._draining: set[tuple[int, int, int]] = set()
        """Waves (log, LSN, wave) of sequencers that drain their epoch: soft seals do not hold for them."""
        self._newest: dict[tuple[int, int, ShardId, int], int] = {}
        """The greatest epoch that a run of a shard wrote an entry of for a sequencer, per log; for metadata logs soft seals are all there is."""
        self._asked: dict[tuple[int, int, int, int], set[ShardId]] = {}
        """By node, run of it, log and epoch: to whom the recovery of an epoch sent CLEAN since it last asked what is stored."""
        self._cleaned: dict[tuple[int, int], set[ShardId]] = {}
        """By log and epoch: shards that answered CLEAN with OK."""
        self._ends: set[tuple[int, int, int]] = set()
        """(log, epoch, LNG) of every CLEAN: how recoveries ended."""
        self._lacking: set[ShardId] = set()
        """Shards that said that they lack entries."""
        self.stored: set[tuple[LogId, Lsn]] = set()
        """What recoveries stored at any shard. It grows as they go on, and does not as they do the same again and again."""
        self._messages = {
            Store: self._on_store,
            Digest: self._on_digest,
            Clean: self._on_clean,
            Cleaned: self._on_cleaned,
            Sealed: self._on_sealed,
        }

    def watch(self, node: SimNode, effects: list[Any]) -> None:
        """The effects of one turn of a node, before what they say of seals is noted."""
        newest: dict[tuple[int, int, ShardId, int], int] = {}
        for effect in effects:
            kind = type(effect)
            if kind is WriteShard:
                self._on_write(node, effect, newest)
            elif kind is Send:
                handler = self._messages.get(type(effect.message))
                if handler is not None:
                    handler(node, effect.message)
            elif kind is EpochStoreRequest and isinstance(effect.operation, SetLastCleanEpoch):
                self._on_epoch_recovered(node, effect.operation)
        for key, epoch in newest.items():
            # within a turn nobody knows what came first
            self._newest[key] = max(self._newest.get(key, 0), epoch)

    def _is_rebuilt(self, node: SimNode, shard: ShardId, log: LogId, lsn: Lsn) -> bool:
        """Whether a copy was stored again: nothing else is written of epochs that are clean."""
        root = node.root
        if root is None or root.rebuilding is None or root.storage is None or is_metadata_log(log):
            return False
        state = root.storage.shards[shard].shard.logs.get(log)
        return state is not None and lsn >> 32 <= state.clean_epoch

    def _on_rebuilt(self, shard: ShardId, log: LogId, lsn: Lsn, image: bytes) -> None:
        model = self._logs.get(log)
        epoch = None if model is None else model.epochs.get(lsn >> 32)
        if epoch is None:
            return
        self._wider.on_rebuilt(shard, log, lsn)
        copyset = parse_header(image, alone=True).copyset
        if shard not in copyset or not epoch.domains.can_replicate(copyset):
            names = [format_shard(member) for member in copyset]
            raise Violation(f"{format_shard(shard)} stores log {log} {format_lsn(lsn)} again, for copyset {names}")

    def _on_write(self, node: SimNode, effect: WriteShard, newest: dict[tuple[int, int, ShardId, int], int]) -> None:
        shard = effect.shard
        again = set(effect.batch.repaired)
        for log, lsn, by_recovery, wave, image in (*effect.batch.entries, *effect.batch.headers):
            model = self._logs.get(log)
            if (log, lsn) in again:
                continue  # what is settled is above seals and sequencers: `Invariants` looks at it
            if self._is_rebuilt(node, shard, log, lsn):
                if not by_recovery:  # else a recovery may have sent again what it stored as well as it could
                    self._on_rebuilt(shard, log, lsn, image)
                continue
            if by_recovery:
                self.stored.add((log, lsn))
                if model is None:
                    continue
                sealed = model.sealed.get(shard, {}).get(self._generations.get(shard, 0), 0)
                if wave < sealed:
                    raise Violation(
                        f"{format_shard(shard)} stores log {log} {format_lsn(lsn)} for the recovery by {wave} "
                        f"after it said that {sealed} is sealed"
                    )
                continue
            key, epoch = (node.id, node.starts, shard, int(log)), lsn >> 32
            if epoch < self._newest.get(key, 0) and (log, lsn, wave) not in self._draining:
                raise Violation(
                    f"{format_shard(shard)} stores log {log} {format_lsn(lsn)} after an entry of epoch "
                    f"{self._newest[key]}; its sequencer does not drain"
                )
            newest[key] = max(newest.get(key, 0), epoch)
        for log, first, last in effect.batch.deletes:
            end = (log, first >> 32, (first & 0xFFFFFFFF) - 1)
            if log in self._logs and first != LSN_OLDEST and end not in self._ends:
                raise Violation(
                    f"{format_shard(shard)} deletes log {log} {format_lsn(first)}..{format_lsn(last)}; no recovery ended so"
                )

    def _on_store(self, node: SimNode, message: Store) -> None:
        if message.flags & _DRAINING and not message.recovery_id:
            self._draining.add((message.log, message.lsn, message.wave))

    def _on_digest(self, node: SimNode, message: Digest) -> None:
        for asked in message.ranges:
            self._asked.pop((node.id, node.starts, asked.log, asked.first >> 32), None)

    def _on_clean(self, node: SimNode, message: Clean) -> None:
        for row in message.logs:
            self._ends.add((row.log, row.epoch, row.lng))
            if (model := self._logs.get(row.log)) is not None:
                model.recovered_from[row.epoch] = max(row.lng, model.recovered_from.get(row.epoch, 0))
            self._asked.setdefault((node.id, node.starts, row.log, row.epoch), set()).add(message.shard)

    def _on_cleaned(self, node: SimNode, message: Cleaned) -> None:
        for row in message.logs:
            if row.status is Status.OK:
                self._cleaned.setdefault((row.log, row.epoch), set()).add(message.shard)

    def _on_sealed(self, node: SimNode, message: Sealed) -> None:
        if any(state.status is not Status.OK for row in message.logs for state in row.epochs):
            self._lacking.add(message.shard)

    def _on_epoch_recovered(self, node: SimNode, operation: SetLastCleanEpoch) -> None:
        log, epoch = operation.log, operation.epoch
        model = self._logs.get(log)
        if model is None:
            return
        for shard in self._asked.get((node.id, node.starts, log, epoch), ()):
            if shard in self._cleaned.get((log, epoch), ()) or shard in self._lacking:
                continue
            holder = self._cluster.nodes.get(node_of(shard))  # type: ignore[call-overload]
            if holder is None or holder.lost_data or not holder.shards or shard not in holder.shards:
                continue
            if self._cluster.config.location(shard) is None:
                continue
            raise Violation(
                f"N{node.id} calls epoch {epoch} of log {log} recovered; {format_shard(shard)} was sent CLEAN and has not said so"
            )
