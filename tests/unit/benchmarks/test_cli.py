"""The command line: what it refuses, and what it says then."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.ldbench import cli
from benchmarks.ldbench.append_tracing import TraceOrder
from benchmarks.ldbench.engine import EngineError
from benchmarks.ldbench.measurement import BenchReport, Case, EngineInfo, Measurement


@pytest.mark.parametrize(
    ("flag", "value", "why"),
    [
        ("--engines", "redis,,foo", "there is no '', 'foo', but logdevice, logdevice-2of3, jetstream"),
        ("--workloads", "apend", "there is no 'apend', but append,"),
        ("--content", "text", "there is no 'text', but random, compressible"),
        ("--sizes", "0", "a payload needs 16 bytes at least"),
        ("--sizes", "100,8", "a payload needs 16 bytes at least"),
        ("--sizes", "1KB", "is no size"),
        ("--rounds", "0", "'0' is no whole number of at least 1"),
        ("--rounds", "-1", "'-1' is no whole number of at least 1"),
        ("--repeats", "0", "'0' is no whole number of at least 1"),
        ("--copies", "0", "'0' is no whole number of at least 1"),
        ("--idle-logs", "4", "'4' is no whole number of at least 5"),
        ("--seconds", "0", "'0' is no time: give seconds above 0"),
        ("--seconds", "-1", "'-1' is no time"),
        ("--seconds", "nan", "'nan' is no time"),
        ("--seconds", "inf", "'inf' is no time"),
        ("--warmup", "-0.5", "'-0.5' is no time"),
        ("--sync-delay", "5", "'5' is no duration: write it like 10ms"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str, value: str, why: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["run", f"--output={tmp_path / 'out'}", f"{flag}={value}"])
    assert ended.value.code == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_is_named_twice_is_measured_once() -> None:
    arguments = cli.parser().parse_args(["run", "--engines", "redis, kafka,redis", "--sizes", "100,1KiB,100"])
    assert arguments.engines == ["redis", "kafka"]
    assert arguments.sizes == [100, 1024]


def test_a_directory_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = cli.main(["run", f"--output={tmp_path / 'out'}", f"--directory={tmp_path / 'disk'}"])
    assert status == 2
    assert f"--directory {tmp_path / 'disk'} is no directory" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_run_of_nothing_is_no_success(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "describe_environment", lambda directory: {})
    monkeypatch.setattr("benchmarks.ldbench.session.load_engine", lambda name: f"{name} needs a library")
    status = cli.main(["run", f"--output={tmp_path}", "--engines=redis", "--workloads=append"])
    assert status == 2
    assert "nothing was measured: redis: redis needs a library" in capsys.readouterr().err


def test_an_interruption_leaves_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: Path) -> BenchReport:
        raise KeyboardInterrupt

    monkeypatch.setattr(BenchReport, "load", interrupted)
    assert cli.main(["table", str(tmp_path / "report.json")]) == 130
    assert "cut short" in capsys.readouterr().err


def saved(path: Path, *measurements: Measurement) -> str:
    BenchReport(engines={"redis": EngineInfo()}, measurements=list(measurements), complete=True).save(path)
    return str(path)


def measured(workload: str, value: float, *, error: str | None = None, seconds: float = 5.0) -> Measurement:
    case = Case(workload=workload, seconds=seconds)
    return Measurement(case=case, engine="redis", setting="", round=1, figures={"records_per_s": value}, error=error)


def test_reports_without_a_common_case_are_not_called_unchanged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = saved(tmp_path / "a.json", measured("append", 1.0))
    second = saved(tmp_path / "b.json", measured("buffered-append", 1.0))
    assert cli.main(["compare", first, second]) == 2
    assert "no case in common" in capsys.readouterr().err


def test_a_comparison_tells_what_is_void_what_is_alone_and_what_was_measured_for_another_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = saved(
        tmp_path / "a.json",
        measured("append", 100.0),
        measured("buffered-append", 100.0),
        measured("many-writers", 100.0),
    )
    second = saved(
        tmp_path / "b.json",
        measured("append", 100.0, seconds=1.0),
        measured("buffered-append", 0.0, error="a record is gone\nat 5"),
    )
    assert cli.main(["compare", first, second]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "1 figures compared, 1 of them unchanged or within the noise",
        "redis, buffered-append 100B random sync: void in the second report: a record is gone",
        "only in the first report: 1 of 3 pairs of case and system",
        "timed parts of 5 s are compared with those of 1 s",
    ]


def test_a_trace_of_a_cluster_that_runs_wants_a_log_and_one_of_its_own_wants_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOGDEVICE_CLUSTER", raising=False)
    assert cli.main(["trace", "--cluster", str(tmp_path / "cluster.toml"), f"--output={tmp_path / 'out'}"]) == 2
    assert "name a log that takes the appends: --log 7" in capsys.readouterr().err
    asked: list[TraceOrder] = []

    async def no_trace(order: TraceOrder, directory: Path) -> None:
        asked.append(order)
        raise EngineError("nothing starts here")

    monkeypatch.setattr(cli, "trace", no_trace)
    assert cli.main(["trace", "--rate", "500", "--fill", "5GiB", f"--output={tmp_path / 'out'}"]) == 2
    assert asked == [TraceOrder(rate=500, fill_bytes=5 << 30)]
    assert "nothing starts here" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
