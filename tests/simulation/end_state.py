"""What disks and memory hold: compared with the model while a run goes on and at its end."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from logdevice_py.core.entry import EntryFlags, parse_header
from logdevice_py.core.ids import ShardId, format_shard
from logdevice_py.core.lsn import LSN_MAX, format_lsn
from server.simulation.machines import SimMachines
from storage_node.log_store import keys
from storage_node.log_store.memory import MemoryDisk
from tests.simulation.history import Observation, Violation
from tests.simulation.invariants import LogModel
from tests.simulation.writers import StreamWriter

if TYPE_CHECKING:
    from storage_node.node import ShardMachines
    from tests.simulation.application import Application
    from tests.simulation.departures import CopiesOfDeparted
    from tests.simulation.workload import Applications


def check_bounds(apps: Applications) -> None:
    """No buffer is beyond its limit: of sequencers, shards, writers, and read streams on both sides."""
    entry_max = apps.invariants.image_bytes_max + _HEADERS_DIFFER
    for node in apps.cluster.nodes.values():
        root = node.root
        if root is None:
            continue
        if root.sequencer is not None:
            context = root.sequencer.context
            # what is appended at once when there is room may be one entry more
            limit = context.settings.appender_bytes + ENTRY_MAX
            if context.metrics.bytes_in_flight > limit:
                raise Violation(f"{node.name} replicates {context.metrics.bytes_in_flight} bytes at a time")
        if root.storage is not None:
            for machines in root.storage.shards.values():
                shard = machines.shard
                if shard.writes.bytes_in_flight > shard.settings.write_bytes_in_flight_max + ENTRY_MAX:
                    raise Violation(f"{format_shard(shard.shard)} holds {shard.writes.bytes_in_flight} bytes to write")
                _check_senders(machines, entry_max)
    for app in apps.apps:
        if isinstance(app, StreamWriter) and app.alive:
            held, limit = app.streams.unacknowledged_bytes, app.settings.memory_bytes_max
            if held > limit + app.batch_bytes_max:
                raise Violation(f"{app.name} holds {held} bytes of {limit}")
        if app.alive:
            _check_receivers(app, entry_max)


ENTRY_MAX = 4 << 20
_HEADERS_DIFFER = 1 << 10
_BY_RECOVERY = int(EntryFlags.WRITTEN_BY_RECOVERY)
"""Bytes by which another wave of an entry may be longer: its copyset."""


def _check_senders(machines: ShardMachines, entry_max: int) -> None:
    """No stream of a shard sends more than its reader has room for; what is kept in memory for those at the tail has a limit."""
    shard = machines.shard
    if shard.recent.size > shard.settings.recent_entries_bytes_max:
        raise Violation(f"{format_shard(shard.shard)} keeps {shard.recent.size} bytes of recent entries")
    for streams in machines.catchup._by_peer.values():
        for stream in streams.values():
            if stream.sent > stream.credit + entry_max:
                raise Violation(
                    f"{format_shard(shard.shard)} sent {stream.sent} bytes to a reader that takes {stream.credit}"
                )


def _check_receivers(app: Application, entry_max: int) -> None:
    """No read stream holds more of what a shard sent than the shard's share of its buffer, and one entry that passes it. A hedge may fill the shares of all."""
    for stream in app.client.session.streams.read_streams():
        reads = stream._read_set
        largest = max(
            reads._share, reads._settings.far_buffer_bytes // max(1, len(reads.senders))
        )  # of a shard that is far away
        hedged = len(reads.senders) * largest + entry_max if stream.request.hedged else 0
        share = largest + hedged
        for sender in reads.senders.values():
            if sender.held > share + entry_max:
                raise Violation(
                    f"{app.name} holds {sender.held} bytes of {format_shard(sender.shard)}; its share is {share}"
                )
        most = reads._settings.buffer_bytes + hedged + len(reads.senders) * (largest + entry_max)
        if stream._queue.bytes > most:
            raise Violation(f"{app.name} holds {stream._queue.bytes} bytes for its reader, who has room for {most}")


def check_copies(
    cluster: SimMachines,
    model: LogModel,
    damaged: Collection[ShardId],
    trimmed: int,
    departed: CopiesOfDeparted | None = None,
) -> None:
    """Every acknowledged entry has copies that satisfy the replication property of its epoch, and no plug of recovery; every
    copyset of what a shard answers with names shards that hold or held a copy, but for what an unfinished attempt of recovery
    left below the LNG from which the recovery that ended began.

    Shards that a fault destroyed count for what they had. What departed shards lost before they were rebuilt, and what those
    that are empty hold, does not: it was stored again elsewhere. Recovery may have done without a shard that was lost at
    the time, though it may be back.
    """
    rebuilt = {} if departed is None else departed.rebuilt
    emptied = frozenset() if departed is None else departed.emptied
    destroyed = cluster.destroyed_entries()
    held = [
        (shard, _counting_copies(disk, model.log))
        for node in cluster.nodes.values()
        if not node.disks_broken
        for shard, disk in node.disks.items()
    ]
    for lsn in sorted(model.acknowledged):
        if lsn <= trimmed:
            continue
        entry, epoch = model.entries[lsn], model.epochs[lsn >> 32]
        lost = set(damaged) | destroyed.get((model.log, lsn), set())  # type: ignore[call-overload]
        holders: set[ShardId] = set()
        copysets: list[set[ShardId]] = []
        excused: set[ShardId] = set()
        rank_max = (-1, 0)
        for shard, copies in held:
            image = copies.get(lsn)
            if image is None:
                continue
            header = parse_header(image)
            if header.is_hole:
                if shard not in lost:
                    raise Violation(f"{format_shard(shard)} holds a plug at {format_lsn(lsn)}, acknowledged")
                continue
            holders.add(shard)
            if departed is not None and header.flags & _BY_RECOVERY:
                excused.update(departed.once_lost)
            if header.flags & _BY_RECOVERY and lsn & 0xFFFFFFFF <= model.recovered_from.get(lsn >> 32, 0):
                # Of an attempt that did not end, and that knew of a lower LNG than the one that did. The entry has all its copies without
                # this one, whose copyset is then a wrong hint.
                continue
            if header.rank >= rank_max:
                if header.rank > rank_max:
                    copysets.clear()
                rank_max = header.rank
                copysets.append(set(header.copyset))
        re_replicated = {
            shard for shard, generation in rebuilt.items() if (epoch.interval.generation(shard) or 0) <= generation
        }
        counted = (lost - re_replicated | excused) & set(epoch.interval.shards)
        # one that began anew since it was emptied holds what later epochs stored there
        if not epoch.domains.can_replicate(holders - (emptied & re_replicated) | counted):
            names = [format_shard(shard) for shard in sorted(holders)]
            raise Violation(f"log {model.log} {format_lsn(lsn)} was acknowledged; copies are on {names}")
        ever = set().union(*entry.stored.values()) | holders | lost | model.written.get(lsn, set())
        untrue = [copyset for copyset in copysets if not copyset <= ever]
        # A round of rebuilding that a later one took the place of leaves copies that name shards which were to get one, too.
        if untrue and (departed is None or len(untrue) == len(copysets)):
            names = [format_shard(shard) for shard in sorted(untrue[0] - ever)]
            raise Violation(f"log {model.log} {format_lsn(lsn)}: its copyset names {names}, which never had a copy")


def check_clean_epochs(cluster: SimMachines, model: LogModel, whole: Observation, trimmed: int) -> None:
    """What a shard holds of an epoch that it calls clean is what readers were told: a record where there is one, and none in a gap."""
    lsns = {lsn for lsn, _, _ in whole.records}
    for node in cluster.nodes.values():
        storage = node.root.storage if node.root is not None else None
        if storage is None:
            continue
        for shard, machines in storage.shards.items():
            state = machines.shard.logs.get(model.log)
            if state is None:
                continue
            generations = {number: dict(epoch.interval.nodeset).get(shard) for number, epoch in model.epochs.items()}
            for lsn, image in _counting_copies(node.disks[shard], model.log).items():
                if not trimmed < lsn <= whole.last or lsn >> 32 > state.clean_epoch:
                    continue
                if generations.get(lsn >> 32) != machines.shard.generation:
                    continue
                if parse_header(image).is_hole == (lsn in lsns):
                    what = "a plug" if lsn in lsns else "an entry"
                    raise Violation(
                        f"{format_shard(shard)} holds {what} at log {model.log} {format_lsn(lsn)} in a clean epoch; "
                        f"readers were told otherwise"
                    )


def intact_copies(cluster: SimMachines, model: LogModel, lsn: int) -> set[ShardId]:
    """From whom a reader can get the entry: shards of the generation that its epoch lists, with a sound copy and no plug above it."""
    epoch = model.epochs[lsn >> 32]
    listed = dict(epoch.interval.nodeset)
    found = set()
    for node in cluster.nodes.values():
        for shard, running in node.shards.items():
            if listed.get(shard) != running.contents.marker.generation:
                continue
            image = _counting_copy(node.disks[shard], model.log, lsn)
            if image is not None and not parse_header(image).is_hole:
                found.add(shard)
    return found


def _counting_copy(disk: MemoryDisk, log: int, lsn: int) -> bytes | None:
    return disk.counting(log, lsn)


def _counting_copies(disk: MemoryDisk, log: int, first: int = 0, last: int = LSN_MAX) -> dict[int, bytes]:
    """By LSN, ascending: the copy that a shard answers with."""
    begin, end = keys.data_bounds(log, first, last)
    lsns = dict.fromkeys(keys.split_data_key(key)[0] for key in disk.rows.irange(begin, end, inclusive=(True, False)))
    found = {lsn: disk.counting(log, lsn) for lsn in lsns}
    return {lsn: image for lsn, image in found.items() if image is not None}
