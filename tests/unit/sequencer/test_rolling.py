"""Epochs that end because of their age or size."""

from __future__ import annotations

import pytest

from logdevice_py.core.ids import USER_LOG_ID_MAX, LogId
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, SECOND
from sequencer.rolling import RollState
from sequencer.settings import SequencerSettings
from tests.unit.sequencer.fakes import LOG, World, make_config


def world_of(settings: SequencerSettings | None = None, **attributes: int) -> World:
    return World(make_config(**attributes), settings=settings)


def state(world: World) -> RollState:
    rolling = world.sequencer.rolling
    assert rolling is not None
    return rolling.state


class TestByAge:
    def test_an_epoch_ends_within_a_tenth_before_its_age(self) -> None:
        world = world_of(roll_every=10 * SECOND)
        world.append()
        world.run(9 * SECOND - MILLISECOND)
        assert world.sequencer.epoch == 1
        world.run(SECOND + 2 * MILLISECOND)
        assert world.sequencer.epoch == 2
        assert world.node.metrics.epochs_rolled == 1

    def test_the_age_counts_from_the_first_record(self) -> None:
        world = world_of(roll_every=10 * SECOND)
        world.ask_state()
        world.run(60 * SECOND)
        assert world.sequencer.epoch == 1, "it is empty"
        world.append()
        world.run(8 * SECOND)
        assert world.sequencer.epoch == 1
        world.run(2 * SECOND)
        assert world.sequencer.epoch == 2
        world.run(600 * SECOND)
        assert world.sequencer.epoch == 2, "it is empty again"
        assert state(world) is RollState.EMPTY

    def test_logs_that_begin_together_do_not_roll_together(self) -> None:
        world = world_of(roll_every=100 * SECOND)
        logs = [LogId(number) for number in range(1, 101)]
        for log in logs:
            world.append(log=log)
        world.run(90 * SECOND)
        rolled = []
        for _ in range(10):
            world.run(SECOND)
            rolled.append(sum(world.node.sequencers[log].epoch == 2 for log in logs))
        world.run(MILLISECOND)
        assert all(world.node.sequencers[log].epoch == 2 for log in logs)
        assert max(later - earlier for earlier, later in zip([0, *rolled], rolled, strict=False)) < 30

    def test_what_was_never_stored_does_not_make_an_epoch_roll(self) -> None:
        world = world_of(roll_every=SECOND)
        world.answer = lambda store: None
        world.append()
        world.run(5 * SECOND)
        assert world.sequencer.epoch == 1
        assert state(world) is RollState.DUE
        world.answer = lambda store: Status.OK
        world.run(60 * SECOND)
        assert world.sequencer.epoch == 2, "it rolls as soon as something is stored"


def test_the_log_of_the_greatest_id_rolls_as_others_do() -> None:
    world = World(make_config(logs=(USER_LOG_ID_MAX, USER_LOG_ID_MAX), roll_bytes=10))
    world.append(b"x" * 20, log=USER_LOG_ID_MAX)
    world.run()
    assert world.node.sequencers[USER_LOG_ID_MAX].epoch == 2


class TestBySize:
    def test_an_epoch_ends_when_it_has_taken_so_many_bytes(self) -> None:
        world = world_of(roll_bytes=1000)
        for _ in range(3):
            world.append(b"x" * 300)
            world.run()
        assert world.sequencer.epoch == 1
        world.append(b"x" * 300)
        world.run()
        assert world.sequencer.epoch == 2

    def test_appends_go_on_in_the_old_epoch_until_there_is_another_one(self) -> None:
        world = world_of(roll_bytes=1000)
        world.append()
        world.run()
        world.store.silent = True
        world.append(b"x" * 1000)
        world.run()
        later = world.append()
        world.run()
        assert world.answer_to(later).status is Status.OK
        assert world.answer_to(later).lsn >> 32 == 1
        assert state(world) is RollState.ROLLING

    def test_an_epoch_that_is_not_released_is_not_rolled(self) -> None:
        world = world_of(roll_bytes=10)
        world.append(b"x" * 20)
        world.run()
        assert world.sequencer.epoch == 2
        world.recoveries.held = True
        world.append(b"x" * 20)
        world.run()
        world.append(b"x" * 20)
        world.run(10 * SECOND)
        assert world.sequencer.epoch == 3, "the recovery of epoch 2 does not end"
        assert state(world) is RollState.DUE
        world.recoveries.finish(LOG, world.now)
        world.run()
        assert world.sequencer.epoch == 4


class TestHistory:
    def test_a_roll_adds_no_nodeset_and_writes_no_metadata(self) -> None:
        world = world_of(roll_bytes=10)
        world.append(b"x" * 20)
        world.run()
        written = len(world.metadata_stores)
        for _ in range(600):
            world.append(b"x" * 20)
            world.run(SECOND)
        assert world.sequencer.epoch > 600
        assert len(world.store.metadata[LOG].history) == 1
        assert len(world.metadata_stores) == written


class TestLimit:
    def test_few_logs_of_a_node_roll_at_the_same_time(self) -> None:
        world = world_of(SequencerSettings(concurrent_rolls=2), roll_bytes=10)
        for log in range(1, 6):
            world.append(b"x", log=LogId(log))
        world.run()
        world.recoveries.held = True
        for log in range(1, 6):
            world.append(b"x" * 20, log=LogId(log))
        world.run()
        assert [world.node.sequencers[LogId(log)].epoch for log in range(1, 6)] == [2, 2, 1, 1, 1]
        metrics = world.node.metrics
        assert (metrics.rolls_under_way, metrics.rolls_queued) == (2, 3)
        world.recoveries.finish(LogId(2), world.now)
        world.run()
        assert [world.node.sequencers[LogId(log)].epoch for log in range(1, 6)] == [2, 2, 2, 1, 1]

    def test_a_roll_that_takes_too_long_holds_up_nobody(self) -> None:
        world = world_of(SequencerSettings(concurrent_rolls=1, roll_turn_us=SECOND), roll_bytes=10)
        for log in (1, 2):
            world.append(b"x", log=LogId(log))
        world.run()
        world.recoveries.held = True
        for log in (1, 2):
            world.append(b"x" * 20, log=LogId(log))
        world.run(SECOND - 1)
        assert world.node.sequencers[LogId(2)].epoch == 1
        world.run(1)
        assert world.node.sequencers[LogId(2)].epoch == 2

    def test_a_log_whose_turn_comes_when_it_gets_an_epoch_anyway_lets_others_go_first(self) -> None:
        world = world_of(SequencerSettings(concurrent_rolls=1), roll_bytes=10)
        for log in (1, 2, 3):
            world.append(b"x", log=LogId(log))
        world.run()
        world.recoveries.held = True
        for log in (1, 2, 3):
            world.append(b"x" * 20, log=LogId(log))
        world.run()
        world.store.silent = True
        world.node.sequencers[LogId(2)].activate(world.now)
        world.recoveries.finish(LogId(1), world.now)
        world.run()
        second, third = (world.node.sequencers[LogId(log)].rolling for log in (2, 3))
        assert second is not None
        assert third is not None
        assert (second.state, third.state) == (RollState.DUE, RollState.ROLLING)


class TestEnds:
    def test_a_log_that_was_taken_over_does_not_roll(self) -> None:
        world = world_of(roll_every=SECOND)
        world.append()
        world.run()
        world.store.take_over()
        world.run(2 * SECOND)
        assert state(world) is RollState.EMPTY
        assert world.node.metrics.rolls_under_way == 0

    def test_a_roll_that_the_epoch_store_refuses_is_tried_again_later(self) -> None:
        world = world_of(roll_bytes=10)
        world.append(b"x")
        world.run()
        world.store.failures = [Status.DISABLED]
        world.append(b"x" * 20)
        world.run()
        assert world.sequencer.epoch == 1
        assert world.node.metrics.rolls_under_way == 0
        world.run(10 * SECOND)
        assert world.sequencer.epoch == 2

    @pytest.mark.parametrize("begins", [True, False])
    def test_a_log_begins_and_stops_to_roll_with_its_attributes(self, begins: bool) -> None:
        world = world_of(roll_every=0 if begins else SECOND)
        world.append()
        world.run()
        world.node.on_config(make_config(version=2, roll_every=SECOND if begins else 0), world.now)
        world.run(2 * SECOND)
        assert world.sequencer.epoch == (2 if begins else 1)
        assert (world.sequencer.rolling is not None) == begins
