"""Medians, spreads, ratios, and which setting is the best."""

from benchmarks.ldbench.statistics_of_runs import Spread, best_of, ratios_by_round


def test_a_spread_is_the_median_and_the_range() -> None:
    assert Spread.of([5.0, 1.0, 3.0]) == Spread(3.0, 1.0, 5.0, 3)


def test_ranges_overlap_when_they_have_a_value_in_common() -> None:
    assert Spread(2, 1, 3, 3).overlaps(Spread(4, 3, 5, 3))
    assert not Spread(2, 1, 2.9, 3).overlaps(Spread(4, 3, 5, 3))


def test_ratios_are_taken_round_by_round() -> None:
    ours, theirs = {1: 10.0, 2: 30.0, 3: 7.0}, {1: 5.0, 2: 10.0, 4: 1.0}
    assert ratios_by_round(ours, theirs, higher_is_better=True) == [2.0, 3.0]


def test_above_one_is_better_for_latencies_too() -> None:
    assert ratios_by_round({1: 2.0}, {1: 8.0}, higher_is_better=False) == [4.0]


def test_without_a_common_round_the_medians_are_compared() -> None:
    assert ratios_by_round({1: 10.0, 2: 20.0, 3: 30.0}, {4: 5.0}, higher_is_better=True) == [4.0]


def test_without_figures_there_is_no_ratio() -> None:
    assert ratios_by_round({}, {1: 5.0}, higher_is_better=True) == []
    assert ratios_by_round({1: 5.0}, {1: 0.0}, higher_is_better=True) == []


def test_the_best_setting_has_the_best_median() -> None:
    candidates = {"a": [1.0, 100.0, 2.0], "b": [3.0, 4.0], "failed": []}
    assert best_of(candidates, higher_is_better=True) == "b"
    assert best_of(candidates, higher_is_better=False) == "a"
    assert best_of({"failed": []}, higher_is_better=True) is None
