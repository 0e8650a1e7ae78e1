"""A node that stops in order leaves no append of unknown outcome."""

from __future__ import annotations

from logdevice_py.core.lsn import compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import AppendedFlags, NodeState
from tests.unit.sequencer.fakes import ME, World, active, make_config


def leave(world: World) -> None:
    world.cluster.states[ME] = NodeState.LEAVING
    world.node.on_cluster_state(world.now)
    world.run()


def test_an_append_in_an_open_batch_is_stored_at_once() -> None:
    world = active(config=make_config(batching_time_us=1_000_000))
    request = world.append()
    world.run()
    assert not world.node.drained
    leave(world)
    assert world.answer_to(request).status is Status.OK
    assert world.node.drained


def test_an_append_that_waits_for_an_epoch_is_refused_and_nothing_of_it_is_stored() -> None:
    world = World()
    world.store.silent = True
    request = world.append()
    world.run()
    assert not world.node.drained
    leave(world)
    answer = world.answer_to(request)
    assert (answer.status, answer.flags) == (Status.SHUTDOWN, AppendedFlags.NOT_REPLICATED)
    assert world.node.drained
    assert world.node.metrics.bytes_buffered == 0


def test_an_append_that_waits_for_recovery_is_refused_with_the_position_that_it_may_have() -> None:
    world = World()
    world.recoveries.held = True
    world.append()
    world.run()
    world.sequencer.activate(world.now)
    world.run()
    earlier = compose_lsn(1, 5)
    request = world.append(previous_lsn=earlier)
    world.run()
    assert not world.node.drained
    leave(world)
    answer = world.answer_to(request)
    assert (answer.status, answer.flags, answer.lsn) == (Status.SHUTDOWN, 0, earlier)
    assert world.node.drained


def test_further_appends_are_refused() -> None:
    world = active()
    leave(world)
    request = world.append()
    world.run()
    assert world.answer_to(request).status is Status.SHUTDOWN
