"""Faults of those who take a log over: a recovery that has to be done again, and a sequencer that does not know that it has a successor."""

from __future__ import annotations

from functools import partial
from typing import Any

from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import LogId, PeerId, node_of
from logdevice_py.core.machine import Send
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.protocol.messages import Cleaned, SeqState, Stored
from server.simulation.faults.catalog import FaultInstance, fault
from server.simulation.faults.moments import block_for, is_append, when_clean_moves, when_sent
from server.simulation.machines import SimNode

_STRAYS_SPAN = 300 * MILLISECOND
_AWAY_MAX = 8 * SECOND


@fault(
    "when an epoch is clean on one shard, it is recovered again without that one, and with a shard that alone holds more of it"
)
def recovered_twice(it: FaultInstance) -> None:
    """The recovering node dies before the epoch store knows that the epoch is clean. What the first recovery decided must hold in the second
    one, for the shard that is clean comes back and answers readers."""
    rng, cluster = it.rng, it.cluster

    def strike(sequencing: SimNode, peer: PeerId, message: Any) -> None:
        holder, log, left = cluster.machine(peer), message.log, rng.choice([1, 2, 5])
        others: list[tuple[int, int]] = [
            (sequencing.id, node.id) for node in it.nodes() if node not in (sequencing, holder)
        ]
        block_for(it, [*others, (holder.id, sequencing.id)], _STRAYS_SPAN)
        # what its own disk has not synced is lost with its machine
        sequencing.disk_settings.hanging = True
        it.after(_STRAYS_SPAN, lambda: setattr(sequencing.disk_settings, "hanging", False))

        def is_last(node: SimNode, peer: PeerId, message: Any) -> bool:
            nonlocal left
            if node is holder and type(message) is Stored and message.log == log:
                left -= 1
            return not left

        when_sent(it, is_last, lambda *sent: it.after(0, partial(part, sequencing, holder, log)))

    def part(sequencing: SimNode, holder: SimNode, log: LogId) -> None:
        it.crash(sequencing, machine=rng.random() < 0.8)
        if rng.random() < 0.5:
            it.crash(holder, machine=False)
        else:
            holder.pause(it.kind)
        it.after(_STRAYS_SPAN + rng.choice([10, 300]) * MILLISECOND, lambda: it.restart(sequencing))
        it.after(_AWAY_MAX, partial(come_back, holder))

        def is_clean(node: SimNode, peer: PeerId, message: Any) -> bool:
            return type(message) is Cleaned and any(row.log == log and row.status is Status.OK for row in message.logs)

        when_sent(it, is_clean, lambda clean, peer, message: it.after(0, partial(again, clean, peer, holder, log)))

    def again(clean: SimNode, recovering: PeerId, holder: SimNode, log: LogId) -> None:
        it.crash(cluster.machine(recovering), machine=False)
        it.crash(clean, machine=False)
        come_back(holder)
        it.after(rng.choice([10, 300]) * MILLISECOND, lambda: it.restart(cluster.machine(recovering)))
        when_clean_moves(it, log, lambda: it.after(rng.choice([0, 500]) * MILLISECOND, lambda: it.restart(clean)))

    def come_back(holder: SimNode) -> None:
        it.restart(holder)
        holder.resume()

    when_sent(it, lambda node, peer, message: is_append(message), strike)


@fault(
    "no other node hears the node that sequences a log; a client that asks it reaches nobody else, the others everybody but that node"
)
def old_sequencer_asked(it: FaultInstance) -> None:
    """The node hears everybody, so it does not take itself for cut off; others take it for dead, and one of them takes the log over. Appends
    through that one are acknowledged to most clients, and who is left with the old one may ask it for the tail again."""
    rng, watchers = it.rng, it.cluster.watchers

    def strike(sequencing: SimNode, asker: int) -> None:
        others = [node.id for node in it.nodes() if node is not sequencing]
        pairs: list[tuple[int, int]] = [(sequencing.id, other) for other in others]
        for client in it.cluster.network.listening(below=0):
            cut = others if client == asker or rng.random() < 0.1 else [sequencing.id]
            pairs += [(client, node) for node in cut] + [(node, client) for node in cut]
        block_for(it, pairs, rng.choice([3, 8]) * SECOND)

    def watch(node: SimNode, effects: list[Any]) -> None:
        if it.is_over():
            watchers.remove(watch)
            return
        for effect in effects:
            if type(effect) is Send and effect.to < 0 and type(effect.message) is SeqState and effect.message.tail_lsn:
                assert node.process is not None
                asker = node.process.address_of(effect.to)
                if asker is not None:
                    watchers.remove(watch)
                    strike(node, asker)
                    return

    watchers.append(watch)


@fault(
    "of the shards that have an entry one loses what it has not synced, and the others are away while its epoch is recovered"
)
def power_cut_before_recovery(it: FaultInstance) -> None:
    """Where an entry counts as stored before it is synced, a copy of what was acknowledged is gone then, and the other ones are not to be had."""
    rng, cluster = it.rng, it.cluster

    def is_elsewhere(node: SimNode, peer: PeerId, message: Any) -> bool:
        return is_append(message) and all(node_of(shard) != node.id for shard in parse_header(message.image).copyset)

    def strike(sequencing: SimNode, peer: PeerId, message: Any) -> None:
        holders = [cluster.machine(node_of(shard)) for shard in parse_header(message.image).copyset]
        rng.shuffle(holders)
        cut = next((node for node in holders if it.budget.take_unsynced(node.disks)), holders[0])
        it.crash(cut, machine=True)
        it.crash(sequencing, machine=False)
        for node in (sequencing, cut):
            it.after(rng.choice([5, 300]) * MILLISECOND, partial(it.restart, node))
        for node in holders:
            if node is not cut:
                it.crash(node, machine=False)
                it.after(rng.choice([500, 3000, 6000]) * MILLISECOND, partial(it.restart, node))

    when_sent(it, is_elsewhere, lambda *sent: it.after(rng.choice([2, 5, 50]) * MILLISECOND, partial(strike, *sent)))
