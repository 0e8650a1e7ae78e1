"""Reports: kept, digested, shown, compared."""

from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.ldbench.compare import changes, render_changes
from benchmarks.ldbench.figures import FIGURES
from benchmarks.ldbench.measurement import BenchReport, Case, EngineInfo, Measurement, size_name
from benchmarks.ldbench.summary import CaseResult, decisive_failures, summarise
from benchmarks.ldbench.table import amount, as_text, render
from benchmarks.ldbench.workloads import all_workloads

PRIMARIES = {"append": "records_per_s", "lone-append": "p50_ms"}


def measured(
    engine: str, value: float, *, number: int = 1, setting: str = "default", error: str | None = None
) -> Measurement:
    return Measurement(
        case=Case(workload="append"),
        engine=engine,
        setting=setting,
        round=number,
        figures={} if error else {"records_per_s": value, "p50_ms": 1000 / value},
        latency={} if error else {"append": dict.fromkeys(("p50", "p90", "p99", "p99.9", "p99.99", "max"), 1.5)},
        cost={
            "client": {"cpu_seconds": 1.0, "peak_bytes": 1e6, "written_bytes": 0.0},
            "node": {"cpu_seconds": 3.0, "peak_bytes": 5e6, "written_bytes": 6e6},
        },
        moved_records=20_000,
        moved_bytes=2_000_000,
        verified_records=20_001,
        error=error,
    )


def report(*measurements: Measurement, complete: bool = True) -> BenchReport:
    return BenchReport(
        engines={each.engine: EngineInfo(title=each.engine.upper()) for each in measurements},
        measurements=list(measurements),
        complete=complete,
    )


def results(*measurements: Measurement) -> list[CaseResult]:
    return summarise(report(*measurements), PRIMARIES)


def test_a_report_survives_being_saved(tmp_path: Path) -> None:
    saved = report(measured("logdevice", 100.0), measured("kafka", 1.0, error="lost"))
    saved.save(tmp_path / "report.json")
    assert asdict(BenchReport.load(tmp_path / "report.json")) == asdict(saved)


def test_other_files_are_no_reports(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    for text, why in {
        '{"format": 99}': "report.json is no report of format 1",
        "[]": "report.json is no report of format 1",
        "{": "report.json is no report: ",
        '{"format": 1}': "report.json is no report as this version writes it: KeyError",
        '{"format": 1, "engines": {}, "measurements": [], "more": 1}': "as this version writes it: TypeError",
        '{"format": 1, "engines": [], "measurements": []}': "as this version writes it: AttributeError",
    }.items():
        path.write_text(text)
        with pytest.raises(ValueError, match=why):
            BenchReport.load(path)


def test_the_best_setting_stands_for_a_system_and_all_are_kept() -> None:
    (result,) = results(
        measured("kafka", 50.0, setting="a"), measured("kafka", 80.0, setting="b"), measured("kafka", 0, error="broke")
    )
    engine = result.engines["kafka"]
    assert engine.setting == "b"
    assert {name: spread.median for name, spread in engine.others.items()} == {"a": 50.0, "b": 80.0}
    assert engine.errors == ["broke"]


def test_a_setting_that_was_lucky_once_does_not_stand_for_a_system() -> None:
    (result,) = results(
        measured("kafka", 100.0, setting="a", number=1),
        measured("kafka", 99.0, setting="b", number=1),
        measured("kafka", 90.0, setting="a", number=2),
        measured("kafka", 92.0, setting="a", number=3),
    )
    engine = result.engines["kafka"]
    assert engine.setting == "a"
    assert engine.values("records_per_s") == {1: 100.0, 2: 90.0, 3: 92.0}


def test_the_ratio_is_taken_in_each_round() -> None:
    (result,) = results(
        measured("logdevice", 100.0, number=1),
        measured("kafka", 50.0, number=1),
        measured("logdevice", 300.0, number=2),
        measured("kafka", 50.0, number=2),
    )
    assert result.ratios("kafka") == [2.0, 6.0]
    assert result.ratios("redis") == []
    assert result.ratios("kafka", figure="p50_ms") == pytest.approx([2.0, 6.0])


def test_a_void_measurement_gives_no_ratio() -> None:
    (result,) = results(measured("logdevice", 100.0), measured("kafka", 1.0, error="duplicates"))
    assert result.ratios("kafka") == []


def test_costs_are_for_a_million_bytes() -> None:
    (result,) = results(measured("logdevice", 100.0))
    engine = result.engines["logdevice"]
    client, servers = (engine.cost_per_mb("cpu_seconds", client=client) for client in (True, False))
    assert client is not None
    assert servers is not None
    assert (client.median, servers.median) == (0.5, 1.5)
    assert engine.peak_bytes() == 5_000_000


def test_the_table_shows_ratios_failures_and_whether_it_was_cut_short() -> None:
    shown = report(
        measured("logdevice", 100.0),
        measured("kafka", 40.0),
        measured("redis", 0, error="3 records lost"),
        complete=False,
    )
    text = as_text(render(shown, summarise(shown, PRIMARIES), {"append": "append: at full load"}))
    assert "2.50x" in text
    assert "redis, append 100B random sync: 3 records lost" in text
    assert "cut short" in text
    assert "append: at full load" in text
    assert "20,001" in text


def test_a_latency_of_nothing_is_not_shown() -> None:
    row = dict.fromkeys(("p50", "p90", "p99", "p99.9", "p99.99", "max"), 0.0) | {"count": 0.0}
    silent = measured("kafka", 40.0)
    silent.latency = {"behind": row, "before": row | {"p50": 77.7, "count": 9.0}}
    text = as_text(render(report(silent), results(silent), {}))
    assert "0.000" not in text
    assert "77.7" not in text, "another latency does not stand in for it"


def test_the_table_shows_the_figure_that_decides_whatever_its_name() -> None:
    each = measured("kafka", 40.0)
    each.figures |= {"p99_over_control": 3.25, "p99.9_ms": 4.75}
    text = as_text(render(report(each), results(each), {}))
    assert "3.25" in text
    assert "4.75" not in text, "percentiles have columns of their own"


def test_cases_differ_by_everything_that_matters() -> None:
    cases = [
        Case(workload="append"),
        Case(workload="append", payload_bytes=1_000),
        Case(workload="append", content="compressible"),
        Case(workload="append", durability="async"),
        Case(workload="append", sync_delay_us=2_000),
        Case(workload="append", parameters={"writers": 2}),
    ]
    assert len({case.key for case in cases}) == len(cases)
    assert Case(workload="append", seconds=1).key == Case(workload="append", seconds=9).key


def test_changes_are_called_noise_when_the_ranges_overlap() -> None:
    before = results(*(measured("logdevice", value, number=at) for at, value in enumerate((100.0, 110.0, 120.0))))
    noisy = results(*(measured("logdevice", value, number=at) for at, value in enumerate((119.0, 130.0, 140.0))))
    better = results(*(measured("logdevice", value, number=at) for at, value in enumerate((200.0, 220.0, 240.0))))
    assert [change.verdict for change in changes(before, noisy)] == ["same", "same"]
    assert [change.verdict for change in changes(before, better)] == ["better", "better"]
    assert [change.verdict for change in changes(better, before)] == ["worse", "worse"]
    assert changes(before, better)[0].gain == pytest.approx(2)
    assert render_changes(changes(before, noisy)).row_count == 0
    assert render_changes(changes(before, better)).row_count == 2


def test_one_round_proves_nothing() -> None:
    found = changes(results(measured("logdevice", 100.0)), results(measured("logdevice", 150.0)))
    assert {change.verdict for change in found} == {"better?"}


def test_only_what_both_reports_have_is_compared() -> None:
    assert changes(results(measured("kafka", 1.0)), results(measured("logdevice", 1.0))) == []


def test_numbers_are_short() -> None:
    assert [amount(value) for value in (0.01234, 1.2345, 12.345, 1234567.8)] == ["0.012", "1.23", "12.3", "1,234,568"]
    assert [size_name(size) for size in (100, 1_000, 1_500, 900_000, 2_000_000)] == [
        "100B",
        "1KB",
        "1500B",
        "900KB",
        "2MB",
    ]


def test_every_workload_is_judged_by_a_figure_that_is_declared() -> None:
    workloads = all_workloads()
    assert workloads
    assert {workload.primary for workload in workloads.values()} <= FIGURES.keys()


def test_a_setting_that_a_peer_does_not_bear_is_told_and_is_no_failure_of_the_run() -> None:
    void = measured("kafka", 1, setting="wide", error="refused")
    assert decisive_failures(report(measured("kafka", 10.0), void)) == []
    assert decisive_failures(report(void)) == [void]
    ours = measured("logdevice", 1, setting="wide", error="a record is gone")
    assert decisive_failures(report(measured("logdevice", 10.0), ours)) == [ours]
