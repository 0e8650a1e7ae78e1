"""Strict order: nobody is told that an entry is stored before the epochs before are sealed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from logdevice_py.core.lsn import Epoch, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import AppendedFlags
from sequencer.activation import TakeEpoch
from tests.unit.sequencer.fakes import LOG, World, active, make_config


def strict(**attributes: Any) -> World:
    return World(config=make_config(strict_order=True, **attributes))


def taken_over(**attributes: Any) -> World:
    """A strict log whose earlier epoch is not sealed."""
    world = active(strict(**attributes))
    world.recoveries.held = True
    world.sequencer.activate(world.now)
    world.run()
    assert world.sequencer.epoch == 2
    return world


class TestAnswers:
    def test_the_first_epoch_of_a_log_has_nothing_to_wait_for(self) -> None:
        world = strict()
        world.recoveries.held = True
        request = world.append()
        world.run()
        assert world.answer_to(request).status is Status.OK

    @pytest.mark.parametrize("kind", ["direct", "stream"])
    def test_an_entry_of_a_later_epoch_is_acknowledged_when_those_before_are_sealed(self, kind: str) -> None:
        world = taken_over()
        requests = []
        for number in range(1, 4):
            if kind == "direct":
                requests.append(world.append())
            else:
                requests.append(world.stream_append(number, resume=number == 1, epoch=2))
            world.run()
        current = world.sequencer.current
        assert current is not None
        assert current.lng >= 3, "they are stored meanwhile"
        assert not any(map(world.is_answered, requests))
        world.recoveries.sealed(world.now)
        world.run()
        assert [world.answer_to(request).status for request in requests] == [Status.OK] * 3
        lsns = [world.answer_to(request).lsn for request in requests]
        assert lsns == sorted(lsns)
        request = world.append()
        world.run()
        assert world.answer_to(request).status is Status.OK, "nothing is withheld any more"
        assert world.sequencer.recovered is None

    def test_the_end_of_recovery_says_as_much(self) -> None:
        world = taken_over()
        request = world.append()
        world.run()
        world.recoveries.finish(LOG, world.now)
        world.run()
        assert world.answer_to(request).status is Status.OK

    def test_nothing_is_withheld_behind_seals_for_which_nobody_waited(self) -> None:
        world = taken_over()
        world.recoveries.sealed(world.now)
        request = world.append()
        world.run()
        assert world.answer_to(request).status is Status.OK
        assert world.sequencer.recovered is None

    def test_seals_for_an_earlier_epoch_of_this_node_say_nothing(self) -> None:
        world = taken_over()
        earlier = world.recoveries.sealed
        request = world.append()
        world.run()
        world.sequencer.activate(world.now)
        world.run()
        assert world.sequencer.epoch == 3
        later = world.append()
        world.run()
        earlier(world.now)
        world.run()
        assert not world.is_answered(request)
        assert not world.is_answered(later)
        world.recoveries.finish(LOG, world.now)
        world.run()
        assert world.answer_to(request).lsn >> 32 == 2
        assert world.answer_to(later).lsn >> 32 == 3

    def test_who_is_preempted_says_that_the_entry_may_be_stored(self) -> None:
        world = taken_over()
        request = world.append()
        world.run()
        world.sequencer.on_sealed(Epoch(2), world.node.context.node, world.now)
        world.run()
        answer = world.answer_to(request)
        assert answer.status is Status.PREEMPTED
        assert answer.lsn >> 32 == 2
        assert not answer.flags & AppendedFlags.NOT_REPLICATED
        assert world.sequencer.withheld.entries == 0

    def test_a_position_of_the_epoch_itself_is_no_answer_before(self) -> None:
        world = taken_over()
        world.append()
        world.run()
        request = world.append(previous_lsn=compose_lsn(2, 1))
        world.run()
        assert not world.is_answered(request)
        world.recoveries.finish(LOG, world.now)
        world.run()
        assert (world.answer_to(request).status, world.answer_to(request).lsn) == (Status.OK, compose_lsn(2, 1))

    def test_memory_is_bounded(self) -> None:
        world = taken_over(max_writes_in_flight=4)
        requests = []
        for _ in range(8):
            requests.append(world.append())
            world.run()
        refused = [request for request in requests if world.is_answered(request)]
        assert {world.answer_to(request).status for request in refused} == {Status.SEQNOBUFS}
        assert world.sequencer.withheld.entries == 4

    def test_a_log_whose_answers_are_withheld_is_not_deactivated(self) -> None:
        world = taken_over()
        world.append()
        world.run()
        assert not world.sequencer.deactivate(world.now)

    def test_logs_without_it_are_acknowledged_at_once(self) -> None:
        world = active()
        world.recoveries.held = True
        world.sequencer.activate(world.now)
        world.run()
        request = world.append()
        world.run()
        assert world.answer_to(request).status is Status.OK


class TestPromise:
    def test_the_attribute_makes_an_epoch_that_keeps_it(self) -> None:
        world = active()
        assert not world.store.metadata[LOG].strict_since
        world.sequencer.on_attributes(replace(world.sequencer.attributes, strict_order=True), world.now)
        world.sequencer.reconsider(world.now)
        world.run()
        assert world.store.metadata[LOG].strict_since == world.sequencer.epoch == 2
        world.sequencer.reconsider(world.now)
        world.run()
        assert world.sequencer.epoch == 2

    def test_a_node_that_has_not_heard_of_it_keeps_it_all_the_same(self) -> None:
        world = active(strict())
        world.sequencer.on_attributes(replace(world.sequencer.attributes, strict_order=False), world.now)
        world.recoveries.held = True
        world.sequencer.activate(world.now)
        world.run()
        assert world.store.metadata[LOG].strict_since == 1
        request = world.append()
        world.run()
        assert not world.is_answered(request)

    def test_nothing_is_taken_back_by_the_updater(self) -> None:
        world = active(strict())
        metadata = world.store.metadata[LOG]
        taken = TakeEpoch(None, None, False, metadata.epoch_given_at, world.node.context.config, strict=False)(metadata)
        assert taken.strict_since == 1  # type: ignore[union-attr]
