"""Logs of the log tree at a sequencer: unknown ones are asked for again, removed ones are refused, and the end of one ends its epochs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from client.log_tree.commands import MakeLogGroup, Remove, Retired, SetAttributes
from client.log_tree.view import LogTreeView
from logdevice_py.core.ids import TREE_LOG_ID_MIN
from logdevice_py.core.status import Status
from sequencer.sequencer import SequencerPhase
from tests.unit.client.log_tree.trees import Commands
from tests.unit.sequencer.fakes import World, make_config

LOG = TREE_LOG_ID_MIN


class TreeWorld(World):
    """A node with a log tree, of which it knows what the test says."""

    def __init__(self) -> None:
        self.tree, self.known = Commands(), LogTreeView()
        super().__init__(
            config=replace(make_config(), settings={"log_tree": {"enabled": True}}, run_time_logs=self.known)
        )

    def hear(self) -> None:
        """The node's replica has applied what there is."""
        change = self.known.take(self.tree.state, is_known=True)
        self.node.on_logs_changed(None if change.everything else change.logs, self.now)
        self.run()

    def status(self) -> Status:
        """Of an append."""
        request = self.append(log=LOG)
        self.run()
        return self.answer_to(request).status


@pytest.fixture
def world() -> TreeWorld:
    return TreeWorld()


def test_a_log_that_may_have_been_made_is_asked_for_again(world: TreeWorld) -> None:
    assert world.status() is Status.AGAIN
    world.tree.make(MakeLogGroup("/a"))
    world.hear()
    assert world.status() is Status.OK


def test_a_log_that_is_removed_is_refused_at_once(world: TreeWorld) -> None:
    world.tree.make(MakeLogGroup("/a"))
    world.hear()
    assert world.status() is Status.OK
    world.tree.apply(Remove("/a"))
    world.hear()
    assert LOG not in world.node.sequencers
    assert world.status() is Status.AGAIN
    world.tree.apply(Retired(LOG))
    world.hear()
    assert world.status() is Status.NOTFOUND


def test_attributes_change_where_the_log_is_sequenced(world: TreeWorld) -> None:
    world.tree.make(MakeLogGroup("/a"))
    world.hear()
    world.status()
    epoch = world.node.sequencers[LOG].epoch
    world.tree.apply(SetAttributes("/a", {"replicate": "node:2"}))
    world.hear()
    world.run(1_000_000)
    sequencer = world.node.sequencers[LOG]
    assert sequencer.attributes.replication.copies == 2
    assert sequencer.epoch == epoch + 1


def test_the_end_of_a_log_takes_an_epoch_in_which_nothing_is_appended(world: TreeWorld) -> None:
    world.tree.make(MakeLogGroup("/a"))
    world.hear()
    world.status()
    epoch = world.node.sequencers[LOG].epoch
    group = world.tree.state.group(LOG)
    assert group is not None
    attributes = world.known.attributes_of(group, world.node.context.config)
    world.tree.apply(Remove("/a"))
    world.hear()
    sequencer = world.node.end_earlier_epochs(LOG, attributes, world.now)
    world.run(1_000_000)
    assert (sequencer.state, sequencer.epoch) == (SequencerPhase.ACTIVE, epoch + 1)
    assert world.status() is Status.AGAIN
    world.node.forget(LOG, world.now)
    assert LOG not in world.node.sequencers


def test_who_ends_a_log_serves_no_append_although_it_sequenced_the_log_before(world: TreeWorld) -> None:
    """Not even when the sweep over all logs, which follows a change of everything, has not come to it."""
    world.tree.make(MakeLogGroup("/a"))
    world.hear()
    assert world.status() is Status.OK
    group = world.tree.state.group(LOG)
    assert group is not None
    attributes = world.known.attributes_of(group, world.node.context.config)
    world.tree.apply(Remove("/a"))
    world.known.take(world.tree.state, is_known=True)
    sequencer = world.node.end_earlier_epochs(LOG, attributes, world.now)
    world.run(1_000_000)
    assert sequencer.state is SequencerPhase.ACTIVE
    assert world.status() is Status.AGAIN


def test_a_change_of_everything_is_felt_before_the_sweep_is_over(world: TreeWorld) -> None:
    world.tree.make(MakeLogGroup("/a"))
    world.hear()
    assert world.status() is Status.OK
    world.tree.apply(Remove("/a"))
    world.known.take(world.tree.state, is_known=True)
    sequencer = world.node.sequencers[LOG]
    world.node._reconfiguration._unread.append(LOG)  # a sweep is under way, and far from its end
    world.node.on_logs_changed(None, world.now)
    assert world.node.sequencers[LOG] is sequencer
    assert world.status() is Status.AGAIN
