"""Faults of shards that take part in a recovery: what they hold is damaged, what they are to write is refused, and late copies turn up."""

from __future__ import annotations

from functools import partial
from typing import Any

from logdevice_py.core.ids import LogId, PeerId, data_log_of, metadata_log_of
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.protocol.messages import (
    Clean,
    Cleaned,
    Digested,
    EpochRecoveryMetadata,
    GetEpochRecoveryMetadata,
    Mutated,
    Seal,
    Sealed,
    Store,
)
from server.simulation.faults.catalog import FaultInstance, fault
from server.simulation.faults.moments import after_some, block_for, is_append, last_copies, when_sent
from server.simulation.machines import SimNode

_OF_SHARDS: tuple[type[Any], ...] = (Sealed, Digested, Digested, Mutated, Cleaned, EpochRecoveryMetadata)
"""What shards say in a recovery, or in a purge."""
_WRITES: tuple[type[Any], ...] = (Store, Clean, Clean, GetEpochRecoveryMetadata, GetEpochRecoveryMetadata)
"""What comes before a shard writes something for a recovery, or for a purge."""


def _is_recovery(message: Any, kind: type[Any]) -> bool:
    return type(message) is kind and (kind is not Store or bool(message.recovery_id))


def _logs(message: Any) -> list[LogId]:
    """Of which data logs, or metadata logs of them, a message of a shard speaks."""
    if type(message) in (Mutated, EpochRecoveryMetadata):
        return [data_log_of(message.log)]
    rows = message.ranges if type(message) is Digested else message.logs
    return [data_log_of(row.log) for row in rows]


def _rot(it: FaultInstance, node: SimNode, log: LogId) -> None:
    """Flip bits in the last copies of a log, and of its metadata log, that a node holds."""
    for shard, disk in node.disks.items():
        for key, of, lsn in last_copies(disk, log) + last_copies(disk, metadata_log_of(log))[-1:]:
            if it.budget.take_entry(shard, of, lsn):
                it.hit()
                disk.flip(key, it.rng.randrange(8 * disk.length_of(key)))


@fault(
    "a shard that takes part in a recovery loses its disk, or its last copies rot, at one of its messages",
    destroys=True,
)
def damage_in_recovery(it: FaultInstance) -> None:
    rng, cluster = it.rng, it.cluster
    everybody = rng.random() < 0.4
    # what everybody loses is missed when the recovery has decided and begins again
    kind, skipped = rng.choice((Mutated, Cleaned) if everybody else _OF_SHARDS), rng.choice([0, 0, 1, 4])

    wanted = after_some(skipped, lambda message: _is_recovery(message, kind))

    def strike(sender: SimNode, peer: PeerId, message: Any) -> None:
        nodes = [node for node in it.nodes() if int(node.id) != int(peer)] if everybody else [sender]
        wiped = rng.random() < 0.4
        for node in nodes:
            if wiped and it.budget.take_shards(node.disks):
                it.hit()
                node.crash(machine=True)
                node.wipe()
                it.later(lambda node=node: it.restart(node), most=2 * SECOND)  # type: ignore[misc]
            elif not wiped:
                for log in _logs(message):
                    _rot(it, node, log)
        if not wiped and (everybody or rng.random() < 0.3):
            # the recovery begins again, and finds less
            it.after(rng.choice([0, 5, 100]) * MILLISECOND, lambda: _break_connections(it, cluster.machine(peer)))

    when_sent(it, wanted, lambda *sent: it.after(rng.choice([0, 0, 200, 2000]), lambda: strike(*sent)))


def _break_connections(it: FaultInstance, node: SimNode) -> None:
    network = it.cluster.network
    for end in network.open_ends():
        if node.id in (end.host.address, end.other.host.address) and not end.broken:
            network.break_connection(end)


@fault("the disk of a shard that is to write for a recovery refuses it, is slow or hangs")
def overload_in_recovery(it: FaultInstance) -> None:
    rng, cluster = it.rng, it.cluster
    kind, how = rng.choice(_WRITES), rng.choice(["refuses", "slow", "hangs"])

    def strike(sender: SimNode, peer: PeerId, message: Any) -> None:
        it.hit()
        node = sender if kind is GetEpochRecoveryMetadata else cluster.machine(peer)

        def put(bad: bool) -> None:
            for disk in node.disks.values():
                disk.overloaded = bad

        if how == "slow":
            node.disk_settings.sync_max = rng.choice([SECOND, 5 * SECOND])
            it.after(rng.choice([1, 5]) * SECOND, node.disk_settings.clear)
        elif how == "hangs":
            node.disk_settings.hanging = True
            it.after(rng.choice([1, 5, 10]) * SECOND, node.disk_settings.clear)
        else:
            put(True)
            it.after(rng.choice([20, 300, 2000]) * MILLISECOND, lambda: put(False))

    when_sent(it, lambda node, peer, message: _is_recovery(message, kind), strike)


@fault("a shard that alone got a wave comes back while others recover without it, and then they have to begin again")
def late_copies(it: FaultInstance) -> None:
    rng, cluster = it.rng, it.cluster

    def strike(sequencing: SimNode, peer: PeerId, message: Any) -> None:
        holder = cluster.machine(peer)
        others: list[tuple[int, int]] = [
            (sequencing.id, node.id) for node in it.nodes() if node not in (sequencing, holder)
        ]
        span = rng.choice([5, 30, 200]) * MILLISECOND
        block_for(it, [*others, (holder.id, sequencing.id)], span + 20 * MILLISECOND)
        it.after(span, partial(part, sequencing, holder, message.log))

    def part(sequencing: SimNode, holder: SimNode, log: LogId) -> None:
        it.crash(sequencing, machine=False)
        it.crash(holder, machine=False)
        it.after(rng.choice([10, 300]) * MILLISECOND, lambda: it.restart(sequencing))
        it.after(8 * SECOND, lambda: it.restart(holder))
        kind = rng.choice([Store, Clean])
        when_sent(
            it,
            lambda node, peer, message: _is_recovery(message, kind) and (kind is Clean or message.log == log),
            partial(back, holder),
        )

    def back(holder: SimNode, recovering: SimNode, peer: PeerId, message: Any) -> None:
        it.restart(holder)
        member = cluster.machine(peer)
        member.pause(it.kind)
        wait = rng.choice([100, 500, 1500]) * MILLISECOND
        it.after(wait, member.resume)
        it.after(max(0, wait - MILLISECOND), lambda: _break_connections(it, member))

    when_sent(it, lambda node, peer, message: is_append(message), strike)


@fault("a sequencing node hears nobody, and the seals of the next one reach some shards long before others")
def uneven_seals(it: FaultInstance) -> None:
    rng = it.rng

    def strike(sequencing: SimNode, peer: PeerId, message: Any) -> None:
        others = [node.id for node in it.nodes() if node is not sequencing]
        block_for(it, [(other, sequencing.id) for other in others], rng.choice([1500, 3000]) * MILLISECOND)
        when_sent(
            it,
            lambda node, to, sent: type(sent) is Seal and node is not sequencing,
            lambda node, to, sent: it.after(0, lambda: part(node)),
        )

    def part(sealing: SimNode) -> None:
        others = [node.id for node in it.nodes() if node is not sealing]
        late = rng.sample(others, max(1, len(others) // 2))
        block_for(it, [(sealing.id, other) for other in late], rng.choice([100, 500, 2000]) * MILLISECOND)

    when_sent(it, lambda node, peer, message: is_append(message), strike)


@fault(
    "a sequencing node does not hear one shard, and what others took of the same entries rots before it is sent again",
    destroys=True,
)
def rot_before_amend(it: FaultInstance) -> None:
    rng = it.rng

    def strike(sequencing: SimNode, peer: PeerId, message: Any) -> None:
        block_for(it, [(int(peer), sequencing.id)], rng.choice([300, 1500]) * MILLISECOND)
        for delay in (2, 8, 20):
            it.after(delay * MILLISECOND, partial(again, int(peer), message.log))

    def again(unheard: int, log: LogId) -> None:
        for node in it.nodes():
            if int(node.id) != unheard:
                _rot(it, node, log)

    when_sent(it, lambda node, peer, message: is_append(message), strike)


@fault(
    "a sequencing node reaches one shard no more, and crashes before it has found another way: entries are missing before later ones"
)
def crash_behind_cut(it: FaultInstance) -> None:
    rng = it.rng

    def strike(sequencing: SimNode, peer: PeerId, message: Any) -> None:
        block_for(it, [(sequencing.id, int(peer))], SECOND)
        it.after(rng.choice([2, 10, 40, 150]) * MILLISECOND, lambda: end(sequencing))

    def end(sequencing: SimNode) -> None:
        it.crash(sequencing, machine=rng.random() < 0.3)
        it.later(lambda: it.restart(sequencing), most=2 * SECOND)

    when_sent(it, lambda node, peer, message: is_append(message), strike)
