"""Figures from the moments at which records were acknowledged."""

import pytest

from benchmarks.ldbench.acknowledgements import NANOSECONDS, AcknowledgementLog
from benchmarks.ldbench.latency import LatencyHistogram

MS = 1_000_000


def acknowledged(*entries: tuple[int, int, int]) -> AcknowledgementLog:
    log = AcknowledgementLog()
    for began, ended, count in entries:
        log.add(began * MS, ended * MS, count)
    return log


def test_throughput_counts_what_ended_in_the_time() -> None:
    log = acknowledged((0, 99, 5), (50, 100, 7), (90, 199, 11), (100, 200, 13))
    assert log.acknowledged(100 * MS, 200 * MS) == 18


def test_latency_counts_what_began_in_the_time_by_records() -> None:
    histogram = acknowledged((0, 500, 1), (100, 101, 99), (150, 160, 1)).latencies(100 * MS, 200 * MS)
    assert len(histogram) == 100
    assert histogram.percentile_ms(50) == pytest.approx(1, rel=0.002)
    assert histogram.percentile_ms(100) == pytest.approx(10, rel=0.002)


def test_the_longest_silence_includes_the_ends() -> None:
    log = acknowledged((0, 100, 1), (0, 110, 1), (0, 400, 1), (0, 450, 1))
    assert log.longest_silence(90 * MS, 500 * MS) == 290 * MS
    assert log.longest_silence(120 * MS, 390 * MS) == 270 * MS
    assert log.longest_silence(440 * MS, 1_000 * MS) == 550 * MS


def test_over_time_there_is_a_row_for_each_whole_step() -> None:
    log = acknowledged((0, 500, 10), (900, 1_100, 20), (1_900, 2_100, 40))
    series = log.series(0, int(2.5 * NANOSECONDS))
    assert series["t"] == [0.0, 1.0]
    assert series["records_per_s"] == [10.0, 20.0]
    assert series["p50_ms"] == pytest.approx([500, 200], rel=0.002)


def test_histograms_keep_three_digits_and_survive_encoding() -> None:
    histogram = LatencyHistogram()
    for value in range(1, 10_001):
        histogram.record(value * 1_000)
    summary = LatencyHistogram.decode(histogram.encode()).summary()
    assert summary["p50"] == pytest.approx(5.0, rel=0.002)
    assert summary["p99"] == pytest.approx(9.9, rel=0.002)
    assert summary["p99.99"] == pytest.approx(9.999, rel=0.002)
    assert summary["max"] == pytest.approx(10, rel=0.002)
    assert summary["count"] == 10_000


def test_latencies_beyond_the_range_stay_at_its_end() -> None:
    histogram = LatencyHistogram()
    histogram.record(1)
    histogram.record(10**15)
    assert histogram.percentile_ms(50) == pytest.approx(0.001)
    assert histogram.percentile_ms(100) == pytest.approx(600_000, rel=0.002)
