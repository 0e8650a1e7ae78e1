"""Faults of those who take a log over: a recovery that has to be done again, and a sequencer that does not know that it has a successor."""

from __future__ import annotations

from functools import partial
from typing import Any

from logdevice_py.core.ids import LogId, PeerId
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.protocol.messages import Cleaned, Release, Stored
from server.sim_faults.catalog import FaultInstance, fault
from server.sim_faults.moments import block_for, is_append, when_clean_moves, when_sent
from server.sim_machines import SimNode

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
        holder, log, left = cluster.machine(peer), message.log, rng.choice([1, 4, 15])
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
            return type(message) is Cleaned and any(row[0] == log and row[2] == Status.OK for row in message.logs)

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
    "no other node hears the node that sequences a log; one or two clients reach nobody else, and the others everybody but that one"
)
def old_sequencer_asked(it: FaultInstance) -> None:
    """The node hears everybody, so it does not take itself for cut off; others take it for dead, and one of them takes the log over. Appends
    through that one are acknowledged to most clients, and who is left with the old one may ask it for the tail."""
    rng = it.rng

    def strike(sequencing: SimNode, peer: PeerId, message: Any) -> None:
        others = [node.id for node in it.nodes() if node is not sequencing]
        pairs: list[tuple[int, int]] = [(sequencing.id, other) for other in others]
        clients = it.cluster.network.listening(below=0)
        left = rng.sample(clients, min(len(clients), rng.choice([1, 1, 2])))
        for client in clients:
            cut = others if client in left else [sequencing.id]
            pairs += [(client, node) for node in cut] + [(node, client) for node in cut]
        block_for(it, pairs, rng.choice([3, 8]) * SECOND)

    # everything that was appended is released: what is on its way would be refused, and tell the node of its successor
    when_sent(it, lambda node, peer, message: type(message) is Release, strike)


@fault("a shard loses what it has not synced, and another one is away while the epoch is recovered")
def power_cut_before_recovery(it: FaultInstance) -> None:
    """Where an entry counts as stored before it is synced, one copy of what was acknowledged is gone then, and another one is not to be had."""
    rng, cluster = it.rng, it.cluster

    def strike(sequencing: SimNode, peer: PeerId) -> None:
        nodes = [node for node in it.nodes() if node is not sequencing]
        rng.shuffle(nodes)
        cut = next((node for node in nodes if it.budget.take_unsynced(node.disks)), cluster.machine(peer))
        away = rng.choice([node for node in nodes if node is not cut])
        it.crash(cut, machine=True)
        for node in (sequencing, away):
            it.crash(node, machine=False)
        for node in (sequencing, cut):
            it.after(rng.choice([5, 300]) * MILLISECOND, partial(it.restart, node))
        it.after(rng.choice([500, 3000, 6000]) * MILLISECOND, partial(it.restart, away))

    when_sent(
        it,
        lambda node, peer, message: is_append(message),
        lambda sequencing, peer, message: it.after(
            rng.choice([5, 50, 300]) * MILLISECOND, partial(strike, sequencing, peer)
        ),
    )
