"""The entries of an epoch that are on their way: which fit, and in which order they leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logdevice_py.core.ids import EVENT_LOG_DELTAS, USER_LOG_ID_MAX, LogId
from logdevice_py.core.lsn import ESN_MAX
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND
from sequencer.appender import AppenderState
from sequencer.settings import SequencerSettings
from sequencer.sliding_window import SlidingWindow
from tests.unit.sequencer.fakes import LOG, World, active, make_config
from tests.unit.sequencer.test_appender_alone import Bench


def filled(entries: int) -> SlidingWindow:
    """A window with entries of 44 bytes."""
    window = SlidingWindow()
    for _ in range(entries):
        window.grow(Bench().appender)
    return window


class TestRoom:
    @pytest.mark.parametrize(("entries", "status"), [(1, Status.OK), (2, Status.OK), (3, Status.SEQNOBUFS)])
    def test_so_many_entries_fit(self, entries: int, status: Status) -> None:
        assert filled(3).room(entries, 0, 5, 1 << 20) is status

    @pytest.mark.parametrize(("size", "status"), [(12, Status.OK), (13, Status.SEQNOBUFS)])
    def test_so_many_bytes_fit(self, size: int, status: Status) -> None:
        assert filled(2).room(1, size, 10, 100) is status

    def test_what_left_takes_no_room(self) -> None:
        window = filled(2)
        window.appenders[1].state = AppenderState.REPLICATED
        assert window.reap() is not None
        assert (window.bytes, len(window)) == (44, 1)
        assert window.room(1, 56, 2, 100) is Status.OK

    def test_an_entry_larger_than_the_window_goes_alone(self) -> None:
        assert SlidingWindow().room(7, 1000, 5, 100) is Status.OK

    @pytest.mark.parametrize(("entries", "status"), [(4, Status.OK), (5, Status.TOOBIG)])
    def test_the_esns_of_an_epoch_are_used_to_the_last(self, entries: int, status: Status) -> None:
        assert filled(3).room(entries, 0, 100, 1 << 20, 7) is status
        full = SlidingWindow()
        full.next_esn = full.tail = int(ESN_MAX)
        assert [full.room(each, 0, 10, 100) for each in (1, 2)] == [Status.OK, Status.TOOBIG]


def test_entries_leave_in_order_and_only_at_their_end() -> None:
    window = filled(3)
    assert window.reap() is None
    window.appenders[2].state = AppenderState.PREEMPTED
    assert window.reap() is None
    first, second, third = window
    first.state = AppenderState.ABORTED
    assert [window.reap(), window.reap(), window.reap()] == [first, second, None]
    assert (window.tail, window.next_esn, list(window)) == (3, 4, [third])


class TestEpoch:
    """What an epoch makes of its window."""

    def test_what_is_on_its_way_is_counted_until_it_is_reaped(self) -> None:
        world = active()
        epoch = world.sequencer.current
        assert epoch is not None
        assert (epoch.in_flight, epoch.window_bytes, epoch.bytes_taken) == (0, 0, 5)
        world.answer = lambda store: None
        world.append(b"x" * 100)
        world.run()
        assert (epoch.in_flight, epoch.window_bytes, epoch.bytes_taken) == (1, 356, 105)
        assert (world.node.context.metrics.bytes_in_flight, len(world.node.context.busy)) == (356, 1)
        [appender] = epoch.entries()
        assert [frame.payload for frame in appender.frames] == [b""], "the image has it"
        world.reply_to_held()
        assert (epoch.in_flight, epoch.window_bytes, epoch.bytes_taken) == (0, 0, 105)
        assert (world.node.context.metrics.bytes_in_flight, len(world.node.context.busy)) == (0, 0)
        assert epoch.lng_timestamp == appender.timestamp

    @pytest.mark.parametrize(("limit", "status"), [(712, Status.OK), (711, Status.SEQNOBUFS)])
    def test_all_logs_together_are_bounded_to_the_byte(self, limit: int, status: Status) -> None:
        world = active(settings=SequencerSettings(appender_bytes=limit))
        world.answer = lambda store: None
        world.append(b"x" * 100)
        world.run()
        world.answer = lambda store: Status.OK
        request = world.append(b"x" * 100)
        world.run()
        assert world.answer_to(request).status is status

    @pytest.mark.parametrize(("log", "status"), [(USER_LOG_ID_MAX, Status.SEQNOBUFS), (EVENT_LOG_DELTAS, Status.OK)])
    def test_every_log_of_users_is_and_no_log_of_the_cluster_itself(self, log: LogId, status: Status) -> None:
        config = make_config(logs=(USER_LOG_ID_MAX, USER_LOG_ID_MAX))
        world = World(
            replace(config, settings={"rebuilding": {"enabled": True}}), settings=SequencerSettings(appender_bytes=150)
        )
        request = world.append(b"x" * 100, log=log)
        world.run(1_000_000)
        assert world.answer_to(request).status is status

    def test_an_epoch_without_an_entry_has_its_first_lsn_to_give(self) -> None:
        world = active()
        world.sequencer.activate(world.now)
        world.run(100 * MILLISECOND)
        epoch = world.sequencer.current
        assert epoch is not None
        assert (epoch.next_esn, epoch.in_flight, epoch.window_bytes, epoch.bytes_taken) == (1, 0, 0, 0)
        assert epoch.next_lsn == world.sequencer.epoch << 32 | 1

    def test_copysets_follow_the_cluster_file(self) -> None:
        world = active(config=make_config(4, sticky_copysets=False))
        moved = make_config(4, sticky_copysets=False, version=2, read_only=[1])
        world.node.on_config(moved, world.now)
        world.run(1_000_000)
        requests = []
        for _ in range(8):
            requests.append(world.append())
            world.run()
        chosen = {shard >> 8 for request in requests for shard in world.answer_to(request).copyset}
        assert chosen == {0, 2, 3}
        assert LOG in world.node.sequencers

    def test_ended_entries_are_told_apart_from_the_epoch_that_is_over(self) -> None:
        world = active()
        world.answer = lambda store: None
        request = world.append()
        world.run()
        epoch = world.sequencer.current
        assert epoch is not None
        epoch.destroy(world.node.context.node, world.now)
        assert (epoch.state.name, epoch.in_flight) == ("QUIESCENT", 0)
        world.run()
        assert world.answer_to(request).status is Status.PREEMPTED
        epoch.destroy(world.node.context.node, world.now)
        assert epoch.state.name == "QUIESCENT"
