"""Faults that wait for their moment: a message that a node sends, rather than a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from logdevice_py.core.ids import LogId, PeerId, is_metadata_log, metadata_log_of
from logdevice_py.core.machine import Send
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.protocol.messages import (
    Clean,
    Cleaned,
    Digest,
    Digested,
    EpochRecoveryMetadata,
    GetEpochRecoveryMetadata,
    Mutated,
    RebuildStore,
    Seal,
    Sealed,
    Store,
    Stored,
)
from server.simulation.faults.catalog import FaultInstance, fault
from server.simulation.machines import SimNode, SimNodeState
from storage_node.log_store.memory import MemoryDisk

_PHASES: tuple[type[Any], ...] = (
    Seal,
    Sealed,
    Digest,
    Digested,
    Store,
    Mutated,
    Clean,
    Cleaned,
    GetEpochRecoveryMetadata,
    EpochRecoveryMetadata,
)
_LOOK = 50 * MILLISECOND
_CLEAN_WAIT_MAX = 8 * SECOND
_COPIES = 20


def when_sent(
    it: FaultInstance, wanted: Callable[[SimNode, PeerId, Any], bool], then: Callable[[SimNode, PeerId, Any], None]
) -> None:
    """Call `then` once, with the sender, the receiver and the message, when a node sends to another one what is wanted."""
    watchers = it.cluster.watchers

    def watch(node: SimNode, effects: list[Any]) -> None:
        if it.is_over() or it.is_resting():
            watchers.remove(watch)
            return
        for effect in effects:
            if (
                type(effect) is Send
                and effect.to >= 0
                and int(effect.to) != int(node.id)
                and wanted(node, effect.to, effect.message)
            ):
                watchers.remove(watch)
                then(node, effect.to, effect.message)
                return

    watchers.append(watch)


def after_some(skipped: int, wanted: Callable[[Any], bool]) -> Callable[[SimNode, PeerId, Any], bool]:
    """For `when_sent`: a message that is wanted, when so many like it were passed over."""

    def is_due(node: SimNode, peer: PeerId, message: Any) -> bool:
        nonlocal skipped
        if not wanted(message):
            return False
        skipped -= 1
        return skipped < 0

    return is_due


def is_append(message: Any) -> bool:
    """Whether a sequencer stores what was appended."""
    return type(message) is Store and not message.recovery_id and not is_metadata_log(message.log)


def block_for(it: FaultInstance, pairs: list[tuple[int, int]], span: int) -> None:
    """Let nothing pass between these addresses for some microseconds."""
    network = it.cluster.network
    it.hit()
    for source, target in pairs:
        network.block(source, target, it.kind)

    def undo() -> None:
        for source, target in pairs:
            network.unblock(source, target, it.kind)

    it.after(span, undo)


@fault("a node that takes part in a recovery crashes, stalls or is cut off at one of its messages")
def strike_in_recovery(it: FaultInstance) -> None:
    rng, cluster = it.rng, it.cluster
    kind, skipped = rng.choice(_PHASES), rng.choice([0, 0, 1, 5])

    def wanted(message: Any) -> bool:
        return type(message) is kind and (kind is not Store or bool(message.recovery_id))

    def strike(sender: SimNode, peer: PeerId, message: Any) -> None:
        node = rng.choice([sender, cluster.machine(peer)])
        what = rng.choice(["crash", "crash", "pause", "cut", "break"])
        if what == "crash":
            it.crash(node, machine=rng.random() < 0.4)
            it.later(lambda: it.restart(node))
        elif what == "pause":
            it.hit()
            node.pause(it.kind)
            it.after(rng.choice([200, 1500, 4000]) * MILLISECOND, node.resume)
        elif what == "cut":
            pairs: list[tuple[int, int]] = [(sender.id, peer), (peer, sender.id)]
            block_for(it, rng.sample(pairs, rng.choice([1, 2])), rng.choice([300, 1500, 6000]) * MILLISECOND)
        else:
            it.hit()
            for end in cluster.network.open_ends():
                if node.id in (end.host.address, end.other.host.address) and not end.broken:
                    cluster.network.break_connection(end)

    when_sent(
        it,
        after_some(skipped, wanted),
        lambda *sent: it.after(rng.choice([0, 0, 200, 2000]), lambda: strike(*sent)),
    )


def when_clean_moves(it: FaultInstance, log: LogId, then: Callable[[], None]) -> None:
    """Call `then` when the last clean epoch of the log moves, or after some seconds."""
    cells, key = it.cluster.cells.cells, f"logs/{log}/lce"
    before, until = cells.get(key), it.cluster.scheduler.now + _CLEAN_WAIT_MAX

    def look() -> None:
        if cells.get(key) != before or it.cluster.scheduler.now >= until:
            then()
        else:
            it.after(_LOOK, look)

    look()


@fault("some shards alone get a wave; they are away while its epoch is recovered, and come back afterwards")
def stray_copies(it: FaultInstance) -> None:
    """The sequencing node reaches only one other node, and then both crash. What that one holds was acknowledged to nobody, and the recovery
    decides without it."""
    rng, cluster = it.rng, it.cluster

    def strike(sequencing: SimNode, peer: PeerId, message: Any) -> None:
        holder = cluster.machine(peer)
        others: list[tuple[int, int]] = [
            (sequencing.id, node.id) for node in it.nodes() if node not in (sequencing, holder)
        ]
        others.append((holder.id, sequencing.id))  # nor does an answer come from there: another wave is sent
        span = rng.choice([5, 30, 200]) * MILLISECOND
        block_for(it, others, span + SECOND)
        it.after(span, partial(part, sequencing, holder, message.log))

    def part(sequencing: SimNode, holder: SimNode, log: LogId) -> None:
        it.crash(sequencing, machine=rng.random() < 0.3)
        it.crash(holder, machine=False)
        it.after(rng.choice([10, 300, 1500]) * MILLISECOND, lambda: it.restart(sequencing))
        when_clean_moves(it, log, lambda: it.after(rng.choice([0, 500]) * MILLISECOND, partial(back, holder, log)))

    def back(holder: SimNode, log: LogId) -> None:
        it.restart(holder)
        if rng.random() < 0.4:

            def again(sequencing: SimNode, peer: PeerId, message: Any) -> None:
                it.crash(sequencing, machine=False)
                it.later(lambda: it.restart(sequencing), most=2 * SECOND)

            when_sent(
                it,
                lambda node, peer, message: is_append(message) and message.log == log,
                lambda *sent: it.after(rng.choice([1, 50]) * MILLISECOND, lambda: again(*sent)),
            )

    when_sent(it, lambda node, peer, message: is_append(message), strike)


@fault("the node that sequences a log does not reach other nodes, and clients reach it")
def partition_sequencer(it: FaultInstance) -> None:
    rng = it.rng

    def strike(sequencing: SimNode, peer: PeerId, message: Any) -> None:
        others = [node.id for node in it.nodes() if node is not sequencing]
        out: list[tuple[int, int]] = [(sequencing.id, other) for other in others]
        back = [(other, node) for node, other in out]
        pairs = rng.choice([out + back, out, back])
        block_for(it, pairs, rng.choice([500, 3000, 12_000]) * MILLISECOND)

    when_sent(it, lambda node, peer, message: is_append(message), strike)


@fault("a sequencing node stalls, and goes on when another one has the log")
def stop_sequencer(it: FaultInstance) -> None:
    rng = it.rng

    def strike(sequencing: SimNode, peer: PeerId, message: Any) -> None:
        sequencing.pause(it.kind)
        when_clean_moves(it, message.log, lambda: it.after(rng.choice([0, 20, 1000]) * MILLISECOND, sequencing.resume))

    when_sent(
        it,
        lambda node, peer, message: is_append(message),
        lambda *sent: it.after(rng.choice([0, 1, 5]) * MILLISECOND, lambda: strike(*sent)),
    )


@fault(
    "the last copies of an epoch rot on one shard, and another shard is away while the epoch is recovered",
    destroys=True,
)
def rot_before_recovery(it: FaultInstance) -> None:
    rng, cluster = it.rng, it.cluster

    def strike(sequencing: SimNode, peer: PeerId, message: Any) -> None:
        rotten = cluster.machine(peer)
        away = rng.choice([node for node in it.nodes() if node is not rotten])
        for node in (sequencing, rotten, away):
            it.crash(node, machine=False)
        for shard, disk in rotten.disks.items():
            for key, log, lsn in last_copies(disk, message.log) + last_copies(disk, metadata_log_of(message.log))[-1:]:
                if it.budget.take_entry(shard, log, lsn):
                    it.hit()
                    # behind the header, which begins the value: who cannot read that knows nothing of the copy
                    length = disk.length_of(key)
                    disk.flip(key, rng.randrange(4 * length if rng.random() < 0.3 else 0, 8 * length))
        for node in (sequencing, rotten):
            if node is not away:
                it.after(rng.choice([5, 300]) * MILLISECOND, lambda node=node: it.restart(node))  # type: ignore[misc]
        it.after(rng.choice([500, 3000, 6000]) * MILLISECOND, lambda: it.restart(away))

    when_sent(
        it,
        lambda node, peer, message: is_append(message),
        lambda *sent: it.after(rng.choice([5, 50]) * MILLISECOND, lambda: strike(*sent)),
    )


@fault("copies rot on a shard that a donor is giving other ones of the log", destroys=True)
def rot_beside_rebuilding(it: FaultInstance) -> None:
    rng = it.rng
    wanted = after_some(rng.choice([0, 1, 5]), lambda message: type(message) is RebuildStore)

    def strike(donor: SimNode, peer: PeerId, message: RebuildStore) -> None:
        taker = it.cluster.machine(peer)
        given = [lsn for lsn, _ in message.entries]
        first, last = given[0] - _COPIES, given[-1] + _COPIES
        for shard, disk in taker.disks.items():
            mine = [each for each in copies_of(disk, message.log) if first <= each[2] <= last]
            for key, log, lsn in rng.sample(mine, min(len(mine), rng.choice([1, 3, _COPIES]))):
                if lsn not in given and it.budget.take_entry(shard, log, lsn):
                    it.hit()
                    disk.flip(key, rng.randrange(8 * disk.length_of(key)))

    when_sent(it, wanted, lambda *sent: it.after(rng.choice([0, 1, 20, 200]) * MILLISECOND, lambda: strike(*sent)))


def last_copies(disk: MemoryDisk, log: LogId) -> list[tuple[bytes, int, int]]:
    """Key, log and LSN of the copies of the last entries that a disk holds."""
    return copies_of(disk, log)[-_COPIES:]


def copies_of(disk: MemoryDisk, log: LogId) -> list[tuple[bytes, int, int]]:
    """Key, log and LSN of the copies that a disk holds, ascending."""
    found = [(key, int.from_bytes(key[1:9], "big"), int.from_bytes(key[9:17], "big")) for key in disk.copies()]
    return sorted((each for each in found if each[1] == log), key=lambda each: each[2])


@fault("a node tells nobody what it stored, and takes what it gets")
def mute_storage(it: FaultInstance) -> None:
    """Answers to STOREs are lost, so that waves are sent again and again: late copies lie beyond what was acknowledged."""
    rng = it.rng

    def strike(holder: SimNode, peer: PeerId, message: Stored) -> None:
        pairs: list[tuple[int, int]] = [(holder.id, node.id) for node in it.nodes() if node is not holder]
        block_for(it, pairs, rng.choice([50, 300, 2000]) * MILLISECOND)

    when_sent(it, lambda node, peer, message: type(message) is Stored, strike)


@fault("a node is stopped in order, and comes back")
def orderly_stop(it: FaultInstance) -> None:
    node = it.node()
    process, root = node.process, node.root
    if node.state is not SimNodeState.RUNNING or process is None or root is None:
        return
    it.hit()
    node.leaving = True
    process.event(root.leave)

    def refuse() -> None:
        if node.root is root and node.process is not None and root.storage is not None:
            node.process.event(root.storage.shut_down)
        it.after(it.rng.choice([1, 10]) * MILLISECOND, end)

    def end() -> None:
        if node.root is root:
            for shard in node.shards.values():
                shard.store.close()
            node.crash(machine=False)
        it.later(lambda: it.restart(node))

    it.after(it.rng.choice([50, 500, 2000]) * MILLISECOND, refuse)
