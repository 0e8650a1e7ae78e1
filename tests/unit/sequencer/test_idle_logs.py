"""A node sequences hundreds of thousands of logs, most of which lie idle: what is equal among them is there once."""

from __future__ import annotations

import sys
from dataclasses import replace

from logdevice_py.core.ids import LogId, NodeId, shard_id
from logdevice_py.core.lsn import Epoch, Esn, compose_lsn
from sequencer.recovery.result import EpochContents, Found, find
from sequencer.sequencer import Sequencer
from tests.unit.sequencer.fakes import World

LOGS = (LogId(1), LogId(2))
_OWN_BYTES = 800
"""Of an idle log, without what it shares with others."""


def idle(world: World) -> list[Sequencer]:
    for log in LOGS:
        world.ask_state(log=log)
    world.run(10_000_000)
    return [world.node.sequencers[log] for log in LOGS]


def test_what_placement_says_is_shared() -> None:
    world = World()
    first, second = idle(world)
    assert first.metadata is not None
    assert second.metadata is not None
    assert first.metadata.history is second.metadata.history
    assert first.release_shards is second.release_shards
    assert first.current is not None
    assert second.current is not None
    assert first.current.generations is second.current.generations
    assert first.current.lost is second.current.lost
    assert world.node.context.nodeset(LOGS[0], first.attributes) is world.node.context.nodeset(
        LOGS[1], first.attributes
    )


def test_what_is_left_is_small() -> None:
    first, _ = idle(World())
    assert (first.activation, first.open_batch, first.buffer, first.held, first.draining) == (None,) * 5
    own = (first, first.current, first.metadata)
    assert sum(map(sys.getsizeof, own)) < _OWN_BYTES


def test_the_contents_of_epochs_that_held_nothing_are_shared() -> None:
    world = World()
    sequencers = idle(world)
    world.recoveries.held = True
    for sequencer in sequencers:
        sequencer.activate(world.now)
    world.run()
    for log in LOGS:
        empty = EpochContents(Epoch(1), Esn(0), (), frozenset(), Esn(0), authoritative=True)
        world.recoveries.finish(log, world.now, epochs=(empty,))
    first, second = (sequencer.recovered for sequencer in sequencers)
    assert first is second
    assert first is not None
    assert find(first, compose_lsn(1, 1)) is Found.HOLE


def test_those_of_others_are_their_own() -> None:
    context = World().node.context
    nothing = EpochContents(Epoch(1), Esn(0), (), frozenset(), Esn(0), authoritative=True)
    for contents in (
        replace(nothing, lng=Esn(3), tail=Esn(3)),
        replace(nothing, entries=(Esn(2),), tail=Esn(2)),
        replace(nothing, lost=frozenset({Esn(1)})),
        replace(nothing, authoritative=False),
    ):
        epochs = (contents,)
        assert context.interned_contents(epochs) is epochs
        assert context.interned_contents((replace(contents),)) is not epochs


def test_a_nodeset_that_is_remembered_ends_with_the_configuration() -> None:
    world = World()
    first, _ = idle(world)
    context = world.node.context
    before = context.nodeset(first.log, first.attributes)
    world.config = replace(
        world.config, nodes={node: world.config.nodes[node] for node in list(world.config.nodes)[:3]}
    )
    world.node.on_config(world.config, world.now)
    assert before is not None
    assert context.nodeset(first.log, first.attributes) == tuple(
        shard for shard in before if shard < shard_id(NodeId(3))
    )
