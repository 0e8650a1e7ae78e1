"""Goals: when they are met, missed, or cannot be judged."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from benchmarks.ldbench.figures import FIGURES
from benchmarks.ldbench.goals import GOALS, Goal, Verdict, judge
from benchmarks.ldbench.markdown import markdown
from benchmarks.ldbench.measurement import BenchReport, Case, EngineInfo, Measurement
from benchmarks.ldbench.summary import CaseResult, summarise
from benchmarks.ldbench.workload import FULL
from benchmarks.ldbench.workloads import all_workloads

PRIMARIES = {name: workload.primary for name, workload in all_workloads().items()}
TEN_TIMES = Goal(title="x", workloads=("append",), figure="records_per_s", times_better={"jetstream": 10})
FAST = Goal(title="x", workloads=("append",), figure="records_per_s", limits={"records_per_s": 100}, ahead_of_all=True)
CALLS = Goal(
    title="x",
    workloads=("buffered-append",),
    peer_workloads=("buffered-append", "append"),
    figure="records_per_s",
    ahead_of_all=True,
)
QUIET = Goal(
    title="x",
    workloads=("open-loop",),
    parameters={"load": "half"},
    figure="p99_ms",
    limits={"p99_ms": 10},
    judged_if={"control_p99_ms": 5},
)


def measured(
    engine: str, workload: str, *, number: int = 1, parameters: dict[str, Any] | None = None, **figures: float
) -> Measurement:
    case = Case(workload=workload, parameters=parameters or {})
    return Measurement(case=case, engine=engine, setting="only", round=number, figures=figures)


def results(*measurements: Measurement) -> list[CaseResult]:
    return summarise(BenchReport(measurements=list(measurements)), PRIMARIES)


def test_a_ratio_has_to_be_reached_in_the_median_of_the_rounds() -> None:
    rounds = [
        *(measured("logdevice", "append", number=at, records_per_s=100) for at in (1, 2, 3)),
        *(measured("jetstream", "append", number=at, records_per_s=value) for at, value in ((1, 5), (2, 10), (3, 20))),
    ]
    assert judge(TEN_TIMES, results(*rounds)).verdict is Verdict.MET
    slower = [*rounds[:-2], *(measured("jetstream", "append", number=at, records_per_s=11) for at in (2, 3))]
    found = judge(TEN_TIMES, results(*slower))
    assert (found.verdict, found.reasons) == (Verdict.MISSED, ["10x jetstream"])


def test_a_ratio_to_a_system_that_was_not_measured_is_not_judged() -> None:
    found = judge(TEN_TIMES, results(measured("logdevice", "append", records_per_s=100)))
    assert (found.verdict, found.reasons) == (Verdict.UNKNOWN, ["jetstream was not measured"])
    assert judge(TEN_TIMES, []).verdict is Verdict.UNKNOWN


def test_a_missed_limit_is_a_miss_whatever_else_is_unknown() -> None:
    found = judge(FAST, results(measured("logdevice", "append", records_per_s=99)))
    assert (found.verdict, found.reasons[0]) == (Verdict.MISSED, "at least 100 records/s")


def test_being_ahead_of_all_means_all_that_were_measured() -> None:
    ours = measured("logdevice", "append", records_per_s=200)
    behind, before = (measured("kafka", "append", records_per_s=value) for value in (199, 201))
    assert judge(FAST, results(ours, behind)).verdict is Verdict.MET
    assert judge(FAST, results(ours, before)).reasons == ["ahead of kafka"]


def test_a_system_whose_measurements_are_void_is_not_left_behind() -> None:
    void = measured("kafka", "append")
    void.error = "EngineError: the broker is gone"
    slower = measured("redis", "append", records_per_s=50)
    found = judge(FAST, results(measured("logdevice", "append", records_per_s=100), slower, void))
    assert (found.verdict, found.reasons) == (Verdict.UNKNOWN, ["kafka was not measured"])


def test_a_system_without_a_batching_writer_stands_with_its_best_way() -> None:
    found = judge(
        CALLS,
        results(
            measured("logdevice", "buffered-append", records_per_s=200),
            measured("logdevice", "append", records_per_s=900),
            measured("jetstream", "append", records_per_s=100),
            measured("kafka", "append", records_per_s=300),
            measured("kafka", "buffered-append", records_per_s=50),
        ),
    )
    assert found.ratios == {"jetstream": [2.0], "kafka": [pytest.approx(2 / 3)]}
    assert found.peers["kafka"][0] == "append"
    assert found.verdict is Verdict.MISSED


def test_a_latency_is_not_judged_on_a_machine_that_was_not_quiet() -> None:
    def run(p99: float, control: float) -> Verdict:
        parameters = {"load": "half"}
        ours = measured("logdevice", "open-loop", parameters=parameters, p99_ms=p99, control_p99_ms=control)
        return judge(QUIET, results(ours)).verdict

    assert [run(9, 4), run(11, 4), run(9, 6), run(11, 6)] == [
        Verdict.MET,
        Verdict.MISSED,
        Verdict.UNKNOWN,
        Verdict.UNKNOWN,
    ]


def test_a_case_with_other_parameters_does_not_count() -> None:
    other = measured("logdevice", "open-loop", parameters={"load": 1_000}, p99_ms=1, control_p99_ms=1)
    assert judge(QUIET, results(other)).verdict is Verdict.UNKNOWN


def test_every_goal_is_measured_by_the_full_run() -> None:
    workloads = all_workloads()
    for goal in GOALS:
        assert {goal.figure, *goal.limits, *goal.judged_if} <= FIGURES.keys(), goal.title
        measuring = [*goal.workloads, *goal.peer_workloads]
        assert measuring, goal.title
        for name in measuring:
            assert goal.payload_bytes in workloads[name].sizes(FULL), goal.title
            assert any(
                goal.parameters.items() <= parameters.items() for parameters in workloads[name].parameters(FULL)
            ), goal.title


def test_the_tables_show_goals_and_ratios_for_each_durability_class() -> None:
    asynchronous = measured("logdevice", "append", records_per_s=5_000)
    asynchronous.case.durability = "async"
    report = BenchReport(
        command=["ldbench", "run"],
        engines={
            "logdevice": EngineInfo(title="ours"),
            "jetstream": EngineInfo(title="NATS JetStream by nats-py", versions={"nats-server": "2.15"}),
            "kafka": EngineInfo(unavailable="no Java"),
        },
        measurements=[
            measured("logdevice", "append", records_per_s=1_500),
            measured("jetstream", "append", records_per_s=100),
            asynchronous,
        ],
    )
    text = markdown(report, summarise(report, PRIMARIES))
    assert "  - kafka: not measured, no Java" in text
    assert "**Durability sync, random bytes, goals**" in text
    assert "**Durability async, random bytes, all ratios**" in text
    _, row = (line for line in text.splitlines() if line.startswith("| concurrent appends"))
    assert "| 1,500 records/s | 100 |  | JetStream 15.0x |" in row
    assert "| 10x jetstream, 5x redis, 3x kafka |" in row
    assert "| **not judged**: redis was not measured; kafka was not measured |" in row
    assert "| append 100B | records/s | 1,500 | 100 | 15.0x |  |  |" in text
    assert "| append 100B | records/s | 5,000 |  |  |  |  |" in text


def test_our_systems_are_no_peers_of_each_other_and_are_judged_apart() -> None:
    quorum = Goal(
        title="lone", workloads=("append",), figure="records_per_s", times_better={"kafka": 2}, ours="logdevice-2of3"
    )
    measured_all = results(
        measured("logdevice", "append", records_per_s=100),
        measured("logdevice-2of3", "append", records_per_s=250),
        measured("kafka", "append", records_per_s=99),
    )
    ahead = Goal(title="ahead", workloads=("append",), figure="records_per_s", ahead_of_all=True)
    assert judge(ahead, measured_all).verdict is Verdict.MET, "only others count as others"
    assert judge(quorum, measured_all).verdict is Verdict.MET
    assert judge(dataclasses.replace(quorum, ours="logdevice"), measured_all).verdict is Verdict.MISSED


def test_costs_of_the_servers_are_figures_that_goals_name() -> None:
    measurement = measured("logdevice", "append", records_per_s=1)
    measurement.cost = {
        "client": {"server_peak_bytes": 9e9, "written_bytes": 9e9},
        "node": {"server_peak_bytes": 3e8, "written_bytes": 900.0},
    }
    measurement.moved_bytes = 300
    measurement.add_costs()
    assert (measurement.figures["server_peak_mb"], measurement.figures["written_per_byte"]) == (300, 3)
    named = {figure for goal in GOALS for figure in (goal.figure, *goal.limits, *goal.judged_if)}
    assert {"server_peak_mb", "written_per_byte"} <= named <= FIGURES.keys()
