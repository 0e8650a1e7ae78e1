"""Timeouts of waves follow the latency of STOREs."""

from __future__ import annotations

import pytest

from logdevice_py.core.ids import ShardId
from logdevice_py.core.machine import TimerQueue
from logdevice_py.core.units import Micros
from sequencer.settings import SequencerSettings
from sequencer.store_timeouts import StoreTimeouts

SHARD = ShardId(0)


def timeout_behind(*latencies: int, medians: int = 1000) -> int:
    timers = TimerQueue()
    settings = SequencerSettings(store_timeout_factor=1, store_timeout_min_us=1, store_timeout_medians=medians)
    timeouts = StoreTimeouts(settings, timers)
    for latency in latencies:
        timeouts.note(SHARD, latency, Micros(0))
    timers.advance(Micros(1_000_000))
    return timeouts.timeout((SHARD,), 1)


@pytest.mark.parametrize("latency", [0, 1, 3, 4, 7, 8, 9, 100, 1_023, 1_024, 5_000, 33_333, 999_999, 4_000_000])
def test_a_timeout_is_above_the_latency_that_it_follows_and_at_most_a_quarter_longer(latency: int) -> None:
    assert latency < timeout_behind(latency) <= max(latency + 1, latency * 5 / 4)


def test_a_store_of_a_process_that_stalled_for_a_month_counts_as_the_longest() -> None:
    assert timeout_behind(30 * 86_400 * 1_000_000) == SequencerSettings().store_timeout_max_us


def test_one_store_in_a_hundred_may_take_longer() -> None:
    assert timeout_behind(*[1_000] * 198, 50_000, 60_000) < 1_300
    assert timeout_behind(*[1_000] * 197, 50_000, 60_000, 70_000) > 50_000


def test_a_few_slow_stores_do_not_make_all_wait_for_a_shard_that_is_gone() -> None:
    latencies = [*[1_000] * 90, *[50_000] * 10]
    assert timeout_behind(*latencies) > 50_000
    assert 20_000 < timeout_behind(*latencies, medians=20) <= 25_000
    assert timeout_behind(*[50_000] * 90, *[60_000] * 10, medians=20) > 60_000


def test_the_slowest_shard_of_a_copyset_sets_the_timeout() -> None:
    timers = TimerQueue()
    timeouts = StoreTimeouts(SequencerSettings(), timers)
    timeouts.note(SHARD, 1_000, Micros(0))
    timeouts.note(ShardId(1), 100_000, Micros(0))
    timers.advance(Micros(1_000_000))
    assert timeouts.timeout((SHARD,), 1) == 20_000
    assert 400_000 < timeouts.timeout((SHARD, ShardId(1)), 1) <= 500_000


def test_what_is_usual_is_the_p99_of_the_slowest_shard() -> None:
    timers = TimerQueue()
    settings = SequencerSettings(store_timeout_initial_us=400_000, store_timeout_factor=4)
    timeouts = StoreTimeouts(settings, timers)
    assert timeouts.usual([SHARD]) == 100_000, "nothing is known: a part of the timeout"
    for latency in [*[1_000] * 99, 60_000]:
        timeouts.note(SHARD, latency, Micros(0))
        timeouts.note(ShardId(1), 4 * latency, Micros(0))
    timers.advance(Micros(1_000_000))
    assert 1_000 < timeouts.usual([SHARD]) <= 1_250
    assert 4_000 < timeouts.usual([SHARD, ShardId(1)]) <= 5_000


def test_a_shard_is_silent_when_it_answers_nothing_for_a_while() -> None:
    timeouts = StoreTimeouts(SequencerSettings(silent_shard_us=100_000), TimerQueue())
    sent = [Micros(start) for start in range(0, 120_000, 10_000)]
    assert [timeouts.is_silent(SHARD, at, Micros(at + 20_000)) for at in sent] == [False] * 8 + [True] * 4
    assert not timeouts.is_silent(ShardId(1), Micros(110_000), Micros(130_000)), "another one"
    timeouts.answered(SHARD)
    assert not timeouts.is_silent(SHARD, Micros(120_000), Micros(140_000))


def test_what_was_late_long_ago_does_not_count() -> None:
    timeouts = StoreTimeouts(SequencerSettings(silent_shard_us=100_000), TimerQueue())
    assert not timeouts.is_silent(SHARD, Micros(0), Micros(50_000))
    assert not timeouts.is_silent(SHARD, Micros(1_000_000), Micros(1_050_000)), "nobody asked it meanwhile"
    assert timeouts.is_silent(SHARD, Micros(1_040_000), Micros(1_100_000))
