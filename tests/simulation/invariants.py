"""What must hold at every instant of a run, judged by what the nodes put out, against a list of entries per log.

The model takes part in nothing: it sees each turn's effects before they are run. docs/simulation.md names every invariant and the place
where it is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from epoch_store.cells import WriteId, decide, decode_cell
from epoch_store.interface import GetLastCleanEpoch, LastCleanEpoch, Result, WriterIdentity
from logdevice_py.config.location import Location
from logdevice_py.core.entry import EntryHeader, parse_header
from logdevice_py.core.ids import InstanceId, LogId, NodeId, ShardId, format_shard, is_metadata_log
from logdevice_py.core.lsn import LSN_OLDEST, Epoch, Lsn, format_lsn
from logdevice_py.core.machine import Send
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.protocol.messages import (
    Appended,
    Digest,
    Digested,
    Gossip,
    Release,
    Sealed,
    Store,
    Stored,
    StoreFlags,
)
from server.simulation.machines import SimMachines, SimNode
from storage_node.log_store import keys
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import EpochMetadataKind, LogMetadataKind, WriteShard
from storage_node.log_store.memory import MemoryDisk
from storage_node.stored_metadata import decode_epoch, decode_lsn, decode_seal
from tests.simulation.dirty_invariants import DirtyInvariants
from tests.simulation.history import Violation
from tests.simulation.holding_invariants import HoldingInvariants
from tests.simulation.recovery_invariants import RecoveryInvariants
from tests.simulation.retention_invariants import RetentionInvariants
from tests.simulation.wider_nodesets import WiderNodesets

_RECOVERY: Final = int(StoreFlags.RECOVERY)
_NOBODY: Final = WriteId(WriterIdentity(NodeId(0), InstanceId(0)), 0)
_GROWING: Final = {
    LogMetadataKind.TRIM_POINT: decode_lsn,
    LogMetadataKind.LAST_CLEAN: decode_epoch,
    LogMetadataKind.LAST_RELEASED: decode_lsn,
    LogMetadataKind.SEAL: lambda value: decode_seal(value)[0],
}
"""Metadata of a log on a shard that never go back while its process lives."""


_HEADERS_MAX: Final = 1000


@dataclass(slots=True)
class EntryModel:
    """One entry, as its sequencer sent it."""

    content: tuple[int, int, int, int]
    """Timestamp, records, length and checksum of the body: the same on every copy, for ever."""
    born: int
    """When it was first sent, true time."""
    copysets: dict[int, tuple[ShardId, ...]] = field(default_factory=dict)
    """By wave."""
    stored: dict[int, set[ShardId]] = field(default_factory=dict)
    """Shards that answered OK, by wave."""
    late: set[int] = field(default_factory=set)
    """Waves sent when the epoch was sealed on an f-majority already: they cannot complete."""
    replicated: bool = False
    """A wave is complete."""


@dataclass(slots=True)
class EpochModel:
    """One epoch of a log."""

    owner: tuple[int, int]
    """Node, and run of that node, that sequences it."""
    interval: EpochInterval
    domains: FailureDomains
    lng: int = 0
    """The contiguous prefix that is fully replicated."""
    lng_told: int = 0
    """The greatest LNG that an entry carried."""
    can_replicate: dict[tuple[ShardId, ...], bool] = field(default_factory=dict)


class LogModel:
    """One log."""

    def __init__(self, log: LogId) -> None:
        self.log = log
        self.entries: dict[int, EntryModel] = {}
        self.epochs: dict[int, EpochModel] = {}
        self.acknowledged: set[int] = set()
        """LSNs of which a client was told."""
        self.written: dict[int, set[ShardId]] = {}
        """Shards that ever wrote a copy, by LSN."""
        self.released = 0
        self.clean = 0
        """The last clean epoch that the epoch store was seen to hold."""
        self.sealed: dict[ShardId, dict[int, int]] = {}
        """The greatest epoch up to which each generation of a shard said that it is sealed."""
        self.recovered_from: dict[int, int] = {}
        """By epoch: the greatest LNG of a CLEAN. The recovery that ended looked at what lies above it."""
        self.fenced = 0
        """The greatest epoch of which an f-majority of the nodeset is sealed."""
        self.trim_asked = 0
        """The greatest LSN up to which anybody asked to trim, or which is older than the log keeps it."""
        self.expired: Callable[[int], None] = lambda lsn: None
        """Told up to where the log is older than it keeps records."""


class Invariants:
    """Watches a cluster."""

    def __init__(self, cluster: SimMachines, logs: Sequence[LogId], *, loses: bool = False) -> None:
        """
        Args:
            loses: more is destroyed than the replication property tolerates: acknowledged entries may be lost.
        """
        self.cluster = cluster
        self.logs = {log: LogModel(log) for log in logs}
        self.checked = 0
        """Effects that were looked at."""
        self.image_bytes_max = 0
        """The longest image of an entry that a sequencer sent."""
        self._loses = loses
        self._metadata: dict[tuple[int, int], tuple[int, int, int, int]] = {}
        self._versions: dict[tuple[int, int], int] = {}
        self._released: dict[tuple[int, int, ShardId, LogId], int] = {}
        self._growing: dict[tuple[int, int, ShardId, LogId, LogMetadataKind], int] = {}
        self._generations: dict[ShardId, int] = {}
        self._runs: dict[int, int] = {}
        self._locations: dict[ShardId, Location | None] = {}
        self._headers: dict[bytes, EntryHeader] = {}
        """Of images seen lately."""
        self._messages = {
            Store: self._on_store,
            Stored: self._on_stored,
            Sealed: self._on_sealed,
            Appended: self._on_appended,
            Release: self._on_release,
            Gossip: self._on_gossip,
            Digest: lambda node, message: self._holding.on_digest(message),
            Digested: lambda node, message: self._holding.on_digested(node, message),
        }
        self.wider = WiderNodesets(cluster, self.logs)
        self.recoveries = RecoveryInvariants(cluster, self.logs, self._generations, self.wider)
        self._retention = RetentionInvariants(cluster, self.logs)
        self._holding = HoldingInvariants(self.logs, self._generations)
        self.dirty = DirtyInvariants(cluster, self.logs, self._generations)
        cluster.watch = self.watch
        cluster.watch_done = self._retention.on_done

    @property
    def epochs(self) -> int:
        """Epochs in which anything was appended, over all logs."""
        return sum(len(model.epochs) for model in self.logs.values())

    def fail(self, text: str) -> None:
        """Something is wrong."""
        raise Violation(text)

    def is_forgotten(self, log: LogId, lsn: int) -> bool:
        """Whether a recovery that ended decided what the LSN holds, and no shard knows any more how the epoch ended.

        Below the LNG from which the recovery began it decided nothing. The disk of an earlier generation, as a backup holds it, tells nobody anything.
        """
        epoch, esn = lsn >> 32, lsn & 0xFFFFFFFF
        began = self.logs[log].recovered_from.get(epoch)
        if began is None or esn <= began:
            return False
        key = keys.epoch_metadata_key(log, epoch, EpochMetadataKind.RECOVERY)
        return not any(
            key in disk.rows and self._is_current(shard, disk)
            for node in self.cluster.nodes.values()
            for shard, disk in node.disks.items()
        )

    def _is_current(self, shard: ShardId, disk: MemoryDisk) -> bool:
        marker = ShardMarker.decode(disk.rows[keys.MARKER_KEY])
        return marker.shard == shard and marker.generation == self._generations.get(shard)

    def watch(self, node: SimNode, effects: list[Any]) -> None:
        """The effects of one turn of a node."""
        if self._runs.get(node.id) != node.starts:
            self._runs[node.id] = node.starts
            self._on_start(node)
        self._retention.watch(node)
        self.recoveries.watch(node, effects)
        messages = self._messages
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                message = effect.message
                handler = messages.get(type(message))
                if handler is not None:
                    self.checked += 1
                    handler(node, message)
            elif kind is WriteShard:
                self.checked += 1
                self._on_write(node, effect)

    # Disks

    def _on_start(self, node: SimNode) -> None:
        """A process begins: what its shards said of seals must be on their disks."""
        for shard, running in node.shards.items():
            generation = self._generations[shard] = int(running.contents.marker.generation)
            self.dirty.on_start(shard, running.contents.log_metadata)
            held: dict[int, int] = {}
            for log, kind, value in running.contents.log_metadata:
                if kind is LogMetadataKind.SEAL:
                    held[log] = max(held.get(log, 0), decode_seal(value)[0])
                elif kind is LogMetadataKind.LAST_CLEAN:
                    held[log] = max(held.get(log, 0), decode_epoch(value))
            for model in self.logs.values():
                told = model.sealed.get(shard, {}).get(generation, 0)
                if held.get(model.log, 0) < told:
                    self.fail(
                        f"{format_shard(shard)} said that log {model.log} is sealed up to {told} "
                        f"and comes back with {held.get(model.log, 0)}"
                    )

    def _header(self, image: bytes) -> EntryHeader:
        """The header of an image, or of one that stands alone. All shards of a wave get the same one, and write it."""
        header = self._headers.get(image)
        if header is None:
            if len(self._headers) >= _HEADERS_MAX:
                self._headers.clear()
            header = self._headers[image] = parse_header(image, alone=True)
        return header

    def _on_write(self, node: SimNode, effect: WriteShard) -> None:
        batch, logs = effect.batch, self.logs
        for log, lsn, by_recovery, wave, image in (*batch.entries, *batch.headers):
            model = logs.get(log)
            if model is None:
                self._check_metadata_entry(log, lsn, image)
                continue
            header = self._header(image)
            model.written.setdefault(lsn, set()).add(effect.shard)
            if effect.shard not in header.copyset:
                self.fail(f"{format_shard(effect.shard)} stores {_at(log, lsn)} of copyset {header.copyset}")
            if header.rank != (int(by_recovery), wave):
                self.fail(f"{format_shard(effect.shard)} stores {_at(log, lsn)} of rank {header.rank} as {wave}")
            if not header.is_hole:
                self._check_content(model, header, f"{format_shard(effect.shard)} stores")
        for log, lsn in batch.repaired:
            model = logs.get(log)
            if model is not None and lsn > model.released:
                self.fail(f"{format_shard(effect.shard)} stores {_at(log, lsn)} again; it is not released")
        for log, first, last in batch.restored:
            model = logs.get(log)
            if model is not None and not self._loses:
                self._check_restored(node, effect, model, first, last)
        for log, first, last in batch.deletes:
            model = logs.get(log)
            if model is not None and first == LSN_OLDEST and last > model.trim_asked:
                self._retention.check_trim(node, effect.shard, model, last)
        if not self._loses:
            self.dirty.on_write(node, effect)
        for log, metadata_kind, value in batch.log_metadata:
            decode = _GROWING.get(metadata_kind)
            if decode is not None:
                key = (node.id, node.starts, effect.shard, log, metadata_kind)
                number = int(decode(value))
                if number < self._growing.get(key, 0):
                    self.fail(
                        f"{format_shard(effect.shard)} writes {metadata_kind.name} {number} of log {log} "
                        f"after {self._growing[key]}"
                    )
                self._growing[key] = number

    def _check_restored(self, node: SimNode, effect: WriteShard, model: LogModel, first: int, last: int) -> None:
        """A sound copy is never deleted because of damage beside it, unless the others have all copies without it."""
        disk, again = node.disks[effect.shard], set(effect.batch.repaired)
        for lsn in model.acknowledged:
            settled = first <= lsn <= last and lsn > model.trim_asked and (model.log, lsn) not in again
            if settled and disk.holds(model.log, lsn) and not self._is_superfluous(effect.shard, model.log, lsn):
                self.fail(f"{format_shard(effect.shard)} drops {_at(model.log, lsn)}, which it can read")

    def _check_content(self, model: LogModel, header: EntryHeader, by: str) -> None:
        content = (header.timestamp, header.records, header.body_length, header.body_crc)
        entry = model.entries.get(header.lsn)
        if entry is None:
            self.fail(f"{by} {_at(model.log, header.lsn)}, which no sequencer sent")
            raise AssertionError
        if entry.content != content:
            self.fail(f"{by} {_at(model.log, header.lsn)} with {content}, sent was {entry.content}")

    def _is_superfluous(self, shard: ShardId, log: int, lsn: int) -> bool:
        """Whether all shards of a copyset that the last wave has on some disk hold its copy, and this shard is not among them.

        So it is with the copy of an earlier wave, and with that of a shard that is being emptied: it keeps the copyset that it had, while rebuilding
        gives the others of the same wave another one.
        """
        begin, end = keys.data_bounds(LogId(log), Lsn(lsn), Lsn(lsn))
        newest = -1
        copysets: set[tuple[ShardId, ...]] = set()
        holders: set[ShardId] = set()
        for node in self.cluster.nodes.values():
            for other, disk in node.disks.items():
                for key in disk.rows.irange(begin, end, inclusive=(True, False)):
                    rank = keys.split_data_key(key)[1]
                    if rank > newest:
                        newest, copysets, holders = rank, set(), set()
                    if rank == newest:
                        holders.add(other)
                        # a damaged copy counts: it is repaired from the others
                        with suppress(CorruptEntryError):
                            copysets.add(parse_header(disk.rows[key], alone=True).copyset)
        return any(shard not in copyset and holders.issuperset(copyset) for copyset in copysets)

    def _check_metadata_entry(self, log: int, lsn: int, image: bytes) -> None:
        header = parse_header(image, alone=True)
        if header.is_hole and not is_metadata_log(LogId(log)):
            return  # an event that nobody was told to be written; metadata logs are not recovered
        content = (0, header.records, header.body_length, header.body_crc)
        if self._metadata.setdefault((log, lsn), content) != content:
            self.fail(f"two contents of {_at(log, lsn)}")

    # Sequencers

    def _on_store(self, node: SimNode, message: Store) -> None:
        model = self.logs.get(message.log)
        if model is None:
            return
        if message.flags & _RECOVERY:
            self._on_recovery_store(model, message)
            return
        if message.released:
            self._note_release(node, model, message.released)
        lsn, wave = message.lsn, message.wave
        entry = model.entries.get(lsn)
        if entry is not None and wave in entry.copysets:
            return
        header = self._header(message.image)
        epoch = model.epochs.get(lsn >> 32)
        if epoch is None:
            epoch = self._begin_epoch(model, Epoch(lsn >> 32), node)
        if epoch.owner != (node.id, node.starts):
            self.fail(f"epoch {lsn >> 32} of log {model.log} is sequenced by {epoch.owner} and N{node.id}")
        if header.lng < epoch.lng_told:
            self.fail(f"LNG {header.lng} of {_at(model.log, lsn)} after {epoch.lng_told}")
        epoch.lng_told = header.lng
        if header.lng > epoch.lng:
            self.fail(f"{_at(model.log, lsn)} says LNG {header.lng}; fully replicated is what ends at {epoch.lng}")
        if entry is None:
            content = (header.timestamp, header.records, header.body_length, header.body_crc)
            entry = model.entries[lsn] = EntryModel(content, self.cluster.scheduler.now)
            self.image_bytes_max = max(self.image_bytes_max, len(message.image))
        else:
            self._check_content(model, header, "another wave sends")
        self._check_copyset(model, epoch, header)
        entry.copysets[wave] = header.copyset
        if lsn >> 32 <= model.fenced:
            entry.late.add(wave)

    def _begin_epoch(self, model: LogModel, epoch: Epoch, node: SimNode) -> EpochModel:
        metadata = self._epoch_store(model.log)
        interval = metadata.interval(epoch)
        assert interval is not None
        if epoch >= metadata.epoch:
            self.fail(f"N{node.id} uses epoch {epoch} of log {model.log}, which was not given yet")
        labels = interval.labels
        assert labels is not None, "every interval of this version has labels"
        domains = FailureDomains(interval.shards, interval.replication, labels)
        model.epochs[epoch] = made = EpochModel((node.id, node.starts), interval, domains)
        return made

    def _epoch_store(self, log: LogId) -> EpochMetaData:
        return EpochMetaData.decode(decode_cell(self.cluster.cells.cells[f"logs/{log}/sequencer"].content)[1])

    def _location(self, shard: ShardId) -> Location | None:
        """Where the shard is, or was before its node was taken out."""
        found = self.cluster.config.location(shard)
        if found is not None:
            self._locations[shard] = found
        return self._locations.get(shard)

    def _check_copyset(self, model: LogModel, epoch: EpochModel, header: EntryHeader) -> None:
        copyset = header.copyset
        known = epoch.can_replicate.get(copyset)
        if known is None:
            known = set(copyset) <= set(epoch.interval.shards) and epoch.domains.can_replicate(copyset)
            epoch.can_replicate[copyset] = known
        if not known:
            names = [format_shard(shard) for shard in copyset]
            self.fail(f"copyset {names} of {_at(model.log, header.lsn)} does not satisfy {epoch.interval.replication}")

    def _on_recovery_store(self, model: LogModel, message: Store) -> None:
        header = self._header(message.image)
        if not header.is_hole:
            self._check_content(model, header, "recovery stores")
        elif (
            message.lsn in model.acknowledged
            and message.lsn > model.trim_asked
            and not self._loses
            and not self._is_overtaken(model, message)
        ):
            self.fail(f"recovery by {message.seal_epoch} plugs {_at(model.log, message.lsn)}, which was acknowledged")

    def _is_overtaken(self, model: LogModel, message: Store) -> bool:
        """Whether an f-majority obeys a recovery with a higher seal: this one cannot end, and what it stores counts for less."""
        epoch = model.epochs.get(message.lsn >> 32)
        if epoch is None:
            return False
        obeying = [
            shard
            for shard in epoch.interval.shards
            if model.sealed.get(shard, {}).get(self._generations.get(shard, 0), 0) > message.seal_epoch
        ]
        return epoch.domains.f_majority(obeying).is_authoritative

    def _on_stored(self, node: SimNode, message: Stored) -> None:
        model = self.logs.get(message.log)
        if model is None or message.status is not Status.OK:
            return
        self._holding.on_stored(node, message)
        lsn, shard = message.lsn, message.shard
        sealed = model.sealed.get(shard, {}).get(self._generations.get(shard, 0), 0)
        if lsn >> 32 <= sealed:
            self.fail(f"{format_shard(shard)} stores {_at(model.log, lsn)} after it said that {sealed} is sealed")
        entry = model.entries.get(lsn)
        if entry is None:
            self.fail(f"{format_shard(shard)} answers for {_at(model.log, lsn)}, which nobody sent")
            raise AssertionError
        stored = entry.stored.setdefault(message.wave, set())
        stored.add(shard)
        if not entry.replicated and stored.issuperset(entry.copysets[message.wave]):
            if message.wave in entry.late:
                self.fail(f"{_at(model.log, lsn)} was sent after an f-majority was sealed, and is fully stored")
            entry.replicated = True
            self._advance(model, lsn >> 32)

    def _advance(self, model: LogModel, number: int) -> None:
        epoch, base = model.epochs[number], number << 32
        while (entry := model.entries.get(base | epoch.lng + 1)) is not None and entry.replicated:
            epoch.lng += 1

    def _on_appended(self, node: SimNode, message: Appended) -> None:
        model = self.logs.get(message.log)
        if model is None or message.status is not Status.OK:
            return
        if not message.split:
            self._on_acknowledged(model, message.lsn, message.copyset)
            return
        lsn = int(message.lsn)
        for run in message.split:
            for _ in range(run.records):
                self._on_acknowledged(model, lsn, run.copyset)
                lsn += 1

    def _on_acknowledged(self, model: LogModel, lsn: int, shards: list[ShardId]) -> None:
        """A client is told that the shards have the entry; none: they are not told."""
        if shards:
            entry = model.entries.get(lsn)
            copyset = tuple(shards)
            epoch = model.epochs.get(lsn >> 32)
            if entry is not None and epoch is not None and epoch.interval.extra_copies:
                self._check_holders(model, epoch, entry, lsn, copyset)
            elif entry is None or not entry.replicated:
                self.fail(f"{_at(model.log, lsn)} is acknowledged and not fully replicated")
            elif not any(
                sent == copyset and entry.stored.get(wave, set()).issuperset(copyset)
                for wave, sent in entry.copysets.items()
            ):
                self.fail(f"{_at(model.log, lsn)} is acknowledged with copyset {copyset}, which did not store a wave")
        self._retention.on_acknowledged(model, lsn)
        model.acknowledged.add(lsn)

    def _check_holders(
        self, model: LogModel, epoch: EpochModel, entry: EntryModel, lsn: int, holders: tuple[ShardId, ...]
    ) -> None:
        """With extra copies any shards that satisfy the property and stored some wave are enough to acknowledge an entry."""
        stored: set[ShardId] = set().union(*entry.stored.values())
        if not stored.issuperset(holders):
            names = [format_shard(shard) for shard in holders if shard not in stored]
            self.fail(f"{_at(model.log, lsn)} is acknowledged with {names}, which stored none of its waves")
        if not epoch.domains.can_replicate(holders):
            names = [format_shard(shard) for shard in holders]
            self.fail(
                f"{_at(model.log, lsn)} is acknowledged with {names}, which do not satisfy {epoch.interval.replication}"
            )

    def _on_release(self, node: SimNode, message: Release) -> None:
        for log, lsn in message.logs:
            model = self.logs.get(LogId(log))
            if model is not None:
                key = (node.id, node.starts, message.shard, model.log)
                if lsn < self._released.get(key, 0):
                    self.fail(f"N{node.id} releases {_at(log, lsn)} after {format_lsn(self._released[key])}")
                self._released[key] = lsn
                self._note_release(node, model, lsn)

    def _note_release(self, node: SimNode, model: LogModel, lsn: int) -> None:
        if lsn <= model.released:
            return
        number, esn = lsn >> 32, lsn & 0xFFFFFFFF
        if number - 1 > model.clean:
            model.clean = self._last_clean(model.log)
            if number - 1 > model.clean:
                self.fail(f"N{node.id} releases {_at(model.log, lsn)}; the last clean epoch is {model.clean}")
        epoch = model.epochs.get(number)
        if esn and (epoch is None or esn > epoch.lng):
            self.fail(f"N{node.id} releases {_at(model.log, lsn)}; replicated is {epoch.lng if epoch else 0}")
        model.released = lsn

    def _last_clean(self, log: LogId) -> int:
        cell = self.cluster.cells.cells.get(f"logs/{log}/lce")
        result = decide(GetLastCleanEpoch(log), cell, _NOBODY)
        assert isinstance(result, Result)
        assert isinstance(result.value, LastCleanEpoch)
        return int(result.value.epoch)

    # Seals and versions

    def _on_sealed(self, node: SimNode, message: Sealed) -> None:
        for row in message.logs:
            model = self.logs.get(row.log)
            if model is None or row.status is not Status.OK:
                continue
            shard, generation = message.shard, self._generations.get(message.shard, 0)
            by_generation = model.sealed.setdefault(shard, {})
            by_generation[generation] = max(by_generation.get(generation, 0), row.seal_epoch)
            self._note_fence(model, by_generation[generation])

    def _note_fence(self, model: LogModel, until: int) -> None:
        for number in range(model.fenced + 1, until + 1):
            epoch = model.epochs.get(number)
            if epoch is None:
                continue
            sealed = [
                shard
                for shard, generation in epoch.interval.nodeset
                if model.sealed.get(shard, {}).get(int(generation), 0) >= number
            ]
            if epoch.domains.f_majority(sealed).is_authoritative:
                model.fenced = number

    def _on_gossip(self, node: SimNode, message: Gossip) -> None:
        key = (node.id, node.starts)
        if message.config_version < self._versions.get(key, 0):
            self.fail(f"N{node.id} goes back to version {message.config_version} of the cluster file")
        self._versions[key] = message.config_version


def _at(log: int, lsn: int) -> str:
    kind = "metadata " if is_metadata_log(LogId(log)) else ""
    return f"{kind}log {log} {format_lsn(lsn)}"
