"""The bookkeeping of a campaign: what it counts, what it asks for, and that it can be put down and taken up."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.simulation.campaign import Campaign, InOrder, NoCampaignError
from tests.simulation.report_file import ReportFiles
from tests.simulation.run_mode import RunMode, campaign_mode
from tests.simulation.search import SeedResult


def campaign(first: int = 100, runs: int = 12) -> Campaign:
    return Campaign(
        commit="abc",
        sources="123",
        command="python -m tests.simulation --campaign",
        first=first,
        runs=runs,
        marks=["rare", "usual"],
        kinds={"pause": "pause", "disks_full": "disk_full"},
    )


def good(seed: int) -> SeedResult:
    return SeedResult(
        seed,
        "",
        took=2.0,
        acknowledged=3000,
        epochs=8,
        virtual=3_600_000_000,
        caused={"pause": 10, "disks_full": 1},
        effects={"pause": 3, "disk_full": 2},
        marks={"usual", "rare", "of somebody else"},
    )


def test_a_campaign_that_shows_everything_has_no_shortfall() -> None:
    made = campaign()
    for seed in range(100, 112):
        made.add(good(seed))
    assert made.shortfalls() == []
    assert made.medians == (3000, 8, 11)
    assert made.mark_rows() == [(12, "rare", "100"), (12, "usual", "100")]
    assert made.fault_rows() == [(12, 12, "pause"), (12, 12, "disks_full")]


def test_a_seed_that_failed_is_named_with_its_kind_of_store() -> None:
    made = campaign()
    made.store = "extents"
    made.add(SeedResult(100, "", took=1.0, failure="long", cause="Violation: x"))
    assert made.shortfalls()[0] == "make sim SEED=100 STORE=extents failed: Violation: x"


def test_a_mark_that_too_few_seeds_reach_is_named() -> None:
    made = campaign()
    for seed in range(100, 112):
        made.add(replace(good(seed), marks={"usual", "rare"} if seed < 109 else {"usual"}))
    assert made.shortfalls() == ["mark rare: reached by 9 seeds, less than 10"]


def test_a_kind_of_fault_that_never_did_anything_is_named() -> None:
    made = campaign()
    for seed in range(100, 112):
        made.add(replace(good(seed), effects={"pause": 1}))
    assert made.shortfalls() == ["fault disks_full: caused in 12 seeds, and had an effect in none"]


@pytest.mark.parametrize(
    ("poor", "told"),
    [
        ({"acknowledged": 1999}, "the median of acknowledged records is 1999, less than 2000"),
        ({"epochs": 4}, "the median of epochs is 4, less than 5"),
        ({"caused": {"pause": 8, "disks_full": 1}}, "the median of faults is 9, less than 10"),
    ],
)
def test_runs_in_which_little_happens_are_a_shortfall(poor: dict[str, object], told: str) -> None:
    made = campaign()
    for seed in range(100, 112):
        made.add(replace(good(seed), **poor))  # type: ignore[arg-type]
    assert made.shortfalls() == [told]


def test_a_failed_seed_and_a_part_that_is_missing_are_told() -> None:
    made = campaign()
    for seed in range(100, 110):
        made.add(good(seed))
    made.add(SeedResult(110, "", took=1.0, failure="long", cause="Violation: x"))
    assert made.shortfalls() == ["make sim SEED=110 failed: Violation: x", "partial: 11 of 12 seeds"]
    assert "seeds 100 to 110: 11 of 12 (partial), 1 failed" in "\n".join(made.summary())


@pytest.mark.parametrize(("seed", "replay"), [(108, "make sim SEED=108 REBUILD=1"), (109, "make sim SEED=109 LOSS=1")])
def test_a_failed_seed_is_told_with_the_mode_to_replay_it_in(seed: int, replay: str) -> None:
    made = campaign(first=seed, runs=1)
    made.add(SeedResult(seed, "", took=1.0, failure="long", cause="Violation: x"))
    assert made.shortfalls()[0] == f"{replay} failed: Violation: x"


def test_a_part_of_a_campaign_is_not_asked_for_what_is_rare() -> None:
    made = campaign()
    made.add(replace(good(100), acknowledged=1, marks=set(), effects={}))
    assert made.shortfalls() == ["partial: 1 of 12 seeds"]


def test_an_empty_campaign_says_so_and_does_not_fail_to() -> None:
    assert "partial: 0 of 12 seeds" in campaign().shortfalls()
    assert "0 of 12" in campaign().markdown()


def test_a_seed_counts_once_and_in_order() -> None:
    made = campaign()
    made.add(good(100))
    for seed in (100, 102):
        with pytest.raises(AssertionError):
            made.add(good(seed))


def test_one_seed_of_ten_is_in_loss_mode_and_only_its_losses_count_and_two_rebuild() -> None:
    made = campaign()
    for seed in range(100, 112):
        made.add(replace(good(seed), lost=5))
    modes = {mode: [seed for seed in range(100, 130) if campaign_mode(seed) is mode] for mode in RunMode}
    assert modes[RunMode.LOSS] == [109, 119, 129]
    assert modes[RunMode.REBUILDING] == [107, 108, 117, 118, 127, 128]
    assert (made.loss_seeds, made.seeds_with_losses, made.rebuilding_seeds) == (1, 1, 2)


def test_a_campaign_that_was_put_down_goes_on_where_it_was(tmp_path: Path) -> None:
    whole, part, path = campaign(), campaign(), tmp_path / "report.json"
    whole.store = part.store = "extents"
    for seed in range(100, 105):
        whole.add(good(seed))
        part.add(good(seed))
    part.add(SeedResult(105, "", took=1.0, failure="long", cause="Violation: x"))
    whole.add(SeedResult(105, "", took=1.0, failure="long", cause="Violation: x"))
    ReportFiles().write(part.texts(path))
    assert "Short of what a campaign has to show" in path.with_suffix(".md").read_text(encoding="utf-8")
    part = Campaign.load(path)
    assert part.next_seed == 106
    for seed in range(106, 112):
        whole.add(good(seed))
        part.add(good(seed))
    assert part == whole


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "No such file"),
        ("", "not JSON"),
        ('{"first": 1', "not JSON"),
        ("[1, 2]", "no object"),
        ('{"name": "another program"}', "it has name"),
        ('{"commit": "abc"}', "it has no sources"),
        (json.dumps(asdict(campaign()) | {"marks": {}}), "its marks is not of type list"),
        (json.dumps(asdict(campaign()) | {"failures": {"x": "y"}}), "its failures"),
    ],
)
def test_a_file_that_is_no_campaign_is_told_with_the_reason(tmp_path: Path, text: str | None, told: str) -> None:
    path = tmp_path / "report.json"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(NoCampaignError, match=told):
        Campaign.load(path)


def test_a_directory_is_no_campaign(tmp_path: Path) -> None:
    with pytest.raises(NoCampaignError, match="directory"):
        Campaign.load(tmp_path)


def test_a_report_that_cannot_be_written_any_more_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "reports"
    files, texts = ReportFiles(), {folder / "report.json": "x"}
    for _ in range(2):
        files.write(texts)
    assert not files.up_to_date
    assert capsys.readouterr().err.count("cannot be written") == 1
    folder.mkdir()
    files.write(texts)
    assert files.up_to_date
    assert [path.name for path in folder.iterdir()] == ["report.json"]


def test_results_that_come_early_wait_for_those_before_them() -> None:
    in_order = InOrder(7)
    assert in_order.put(good(8)) == []
    assert in_order.put(good(9)) == []
    assert [result.seed for result in in_order.put(good(7))] == [7, 8, 9]
    assert [result.seed for result in in_order.put(good(10))] == [10]
