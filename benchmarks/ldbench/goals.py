"""What logdevice_py is meant to reach, declared once, and judged by a report."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from benchmarks.ldbench.figures import FIGURES
from benchmarks.ldbench.measurement import Case
from benchmarks.ldbench.statistics_of_runs import ratios_by_round
from benchmarks.ldbench.summary import OURS, CaseResult, EngineResult
from benchmarks.ldbench.workload import OUR_ENGINES

_SMALL: Final = 100
_LISTS: Final = "buffered-append-many"
_CALLS: Final = "buffered-append"
_DIRECT: Final = "append"


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """One row of the table of goals. Limits are at least or at most, as `FIGURES` says what is better."""

    title: str
    workloads: tuple[str, ...]
    """The best of these stands for us."""
    figure: str
    """What is compared with the other systems."""
    peer_workloads: tuple[str, ...] = ()
    """The best of these stands for another system, of which some have no batching writer; empty: the same as ours."""
    payload_bytes: int = _SMALL
    parameters: Mapping[str, Any] = field(default_factory=dict)
    """Of the workload, as far as they matter."""
    limits: Mapping[str, float] = field(default_factory=dict)
    """By figure, what ours has to keep."""
    times_better: Mapping[str, float] = field(default_factory=dict)
    """By system, how many times better ours has to be."""
    ahead_of_all: bool = False
    """Ours has to be better than every system that was measured."""
    ours: str = OURS
    """Which of our systems is judged."""
    judged_if: Mapping[str, float] = field(default_factory=dict)
    """By figure, what has to hold for the machine to be quiet enough to judge."""

    def text(self) -> str:
        """In words."""
        words = [limit_text(figure, limit) for figure, limit in self.limits.items()]
        words += [factor_text(factor, peer) for peer, factor in self.times_better.items()]
        if self.ahead_of_all:
            words.append("ahead of every other")
        return ", ".join(words)


GOALS: Final = (
    Goal(
        title="concurrent appends, 100 B",
        workloads=(_DIRECT,),
        figure="records_per_s",
        times_better={"jetstream": 10, "redis": 5, "kafka": 3},
    ),
    Goal(
        title="batching writer, 100 B, a call for each record",
        workloads=(_CALLS,),
        peer_workloads=(_CALLS, _DIRECT),
        figure="records_per_s",
        limits={"records_per_s": 1_000_000},
        ahead_of_all=True,
    ),
    Goal(
        title="batching writer, 100 B, lists of records",
        workloads=(_LISTS,),
        peer_workloads=(_LISTS, _CALLS, _DIRECT),
        figure="records_per_s",
        limits={"records_per_s": 2_000_000},
        ahead_of_all=True,
    ),
    *(
        Goal(
            title=f"appends, {size // 1000} KB, the best way",
            workloads=(_DIRECT, _CALLS, _LISTS),
            payload_bytes=size,
            figure="mb_per_s",
            ahead_of_all=True,
        )
        for size in (100_000, 900_000)
    ),
    Goal(
        title="lone append, 100 B",
        workloads=("lone-append",),
        figure="p50_ms",
        limits={"p99_over_p50": 3},
        times_better={"jetstream": 1},
    ),
    Goal(
        title="lone append, 100 B, two of three copies",
        workloads=("lone-append",),
        figure="p50_ms",
        times_better={"jetstream": 1.3},
        ours="logdevice-2of3",
    ),
    *(
        Goal(
            title=f"500 appends a second to delivery, {figure.removesuffix('_ms')}, {what}",
            workloads=("steady",),
            parameters={"rate": 500, "servers": servers},
            figure=figure,
            times_better={"jetstream": 1, "redis": 0.5},
        )
        for servers, what in (("fresh", "fresh servers"), ("written", "after gigabytes"))
        for figure in ("p50_ms", "p99_ms")
    ),
    *(
        Goal(
            title=f"bytes written, appends of {what}",
            workloads=(_DIRECT,),
            payload_bytes=size,
            figure="written_per_byte",
            limits={"written_per_byte": limit},
        )
        for size, what, limit in (
            (_SMALL, "100 B", 4.5),
            (10_000, "10 KB", 3.45),
            (100_000, "100 KB", 3.45),
            (900_000, "900 KB", 3.45),
        )
    ),
    Goal(
        title="memory of a node under concurrent appends",
        workloads=(_DIRECT,),
        figure="server_peak_mb",
        limits={"server_peak_mb": 250},
    ),
    Goal(
        title="open loop at half of the own saturation",
        workloads=("open-loop",),
        parameters={"load": "half"},
        figure="p99_ms",
        limits={"p99_ms": 10, "p99.9_ms": 25},
        judged_if={"control_p99_ms": 5},
    ),
    Goal(
        title="catch-up read, 100 B",
        workloads=("catch-up-read",),
        figure="records_per_s",
        limits={"records_per_s": 1_500_000},
        ahead_of_all=True,
    ),
    Goal(
        title="append to delivery at the tail, idle", workloads=("tail-read",), figure="p50_ms", limits={"p50_ms": 0.5}
    ),
    *(
        Goal(
            title=f"sequencer's node {fault}",
            workloads=(f"leader-{fault}",),
            figure="standstill_ms",
            limits={"standstill_ms": limit},
        )
        for fault, limit in (("killed", 300), ("paused", 1_500), ("partitioned", 1_500))
    ),
    *(
        Goal(
            title=f"storage node {fault}",
            workloads=(f"copy-{fault}",),
            figure="p99_over_control",
            limits={"p99_over_control": 3, "failed_appends": 0},
        )
        for fault in ("killed", "paused")
    ),
    Goal(title="idle logs", workloads=("idle-logs",), figure="bytes_per_log", limits={"bytes_per_log": 2_048}),
    Goal(
        title="idle logs, ZooKeeper",
        workloads=("idle-logs-zookeeper",),
        figure="bytes_per_log",
        limits={"bytes_per_log": 2_048},
    ),
    Goal(
        title="100,000 logs activated",
        workloads=("idle-logs",),
        parameters={"logs": 100_000},
        figure="activation_s",
        limits={"activation_s": 60},
    ),
)


class Verdict(enum.Enum):
    """Of one goal."""

    MET = "yes"
    MISSED = "no"
    UNKNOWN = "not judged"
    """Something that it takes was not measured, or the machine was not quiet."""


@dataclass(slots=True)
class GoalJudgement:
    """A goal beside what was measured."""

    goal: Goal
    verdict: Verdict
    reasons: list[str]
    """Why it is missed or not judged."""
    ours: EngineResult | None
    peers: dict[str, tuple[str, EngineResult]]
    """By system, the workload that stands for it, and its result."""
    ratios: dict[str, list[float]]
    """By system, how many times better ours is, of each round."""


def judge(goal: Goal, results: Sequence[CaseResult]) -> GoalJudgement:
    """A goal by cases of one durability class and content."""
    ours = goal.ours
    mine = _best(goal, ours, _cases(goal, goal.workloads, results))
    theirs = _cases(goal, goal.peer_workloads or goal.workloads, results)
    peers: dict[str, tuple[str, EngineResult]] = {}
    for name in dict.fromkeys(name for result in theirs for name in result.engines if name not in OUR_ENGINES):
        best = _best(goal, name, theirs)
        if best is not None:
            peers[name] = best
    if mine is None:
        return GoalJudgement(goal, Verdict.UNKNOWN, ["not measured"], None, peers, {})
    judged = GoalJudgement(goal, Verdict.UNKNOWN, [], mine[1], peers, {})
    higher = FIGURES[goal.figure].higher_is_better
    for name, (_, peer) in peers.items():
        ratios = ratios_by_round(mine[1].values(goal.figure), peer.values(goal.figure), higher_is_better=higher)
        if ratios:
            judged.ratios[name] = ratios
    void = {name for result in theirs for name in result.engines} - OUR_ENGINES - peers.keys()
    _decide(judged, mine[1], void)
    return judged


def _decide(judged: GoalJudgement, ours: EngineResult, void: set[str]) -> None:
    """`void`: systems of which every measurement is."""
    goal = judged.goal
    missed = [
        limit_text(figure, limit)
        for figure, limit in goal.limits.items()
        if (spread := ours.spread(figure)) is not None and not keeps(figure, spread.median, limit)
    ]
    unknown = [f"{FIGURES[figure].meaning} was not measured" for figure in goal.limits if ours.spread(figure) is None]
    for figure, limit in goal.judged_if.items():
        spread = ours.spread(figure)
        if spread is None or not keeps(figure, spread.median, limit):
            unknown.append(f"needs {limit_text(figure, limit)}")
    wanted = dict(goal.times_better)
    if goal.ahead_of_all:
        wanted = dict.fromkeys([*judged.ratios, *sorted(void)], 1.0) | wanted
        if not judged.ratios:
            unknown.append("no other system was measured")
    for peer, factor in wanted.items():
        if peer not in judged.ratios:
            unknown.append(f"{peer} was not measured")
        elif statistics.median(judged.ratios[peer]) < factor:
            missed.append(factor_text(factor, peer))
    judged.reasons = unknown or missed
    if not unknown:
        judged.verdict = Verdict.MISSED if missed else Verdict.MET
    elif missed and not goal.judged_if:
        # what is not known cannot make up for it
        judged.verdict, judged.reasons = Verdict.MISSED, [*missed, *unknown]


def keeps(figure: str, value: float, limit: float) -> bool:
    """Whether a value is as good as a limit, or better."""
    return value >= limit if FIGURES[figure].higher_is_better else value <= limit


def limit_text(figure: str, limit: float) -> str:
    """A limit in words."""
    known = FIGURES[figure]
    bound = "at least" if known.higher_is_better else "at most"
    return f"{figure_name(figure)} {bound} {limit:,.10g} {known.unit}".strip()


def figure_name(figure: str) -> str:
    """Short, for a table; empty when the unit says it all."""
    name = figure.replace("_over_", " / ")
    for ending in ("_ms", "_s"):
        name = name.removesuffix(ending)
    return "" if name.endswith("_per") else name.replace("_", " ")


def factor_text(factor: float, peer: str) -> str:
    """How far ahead of a system, in words."""
    return f"ahead of {peer}" if factor == 1 else f"{factor:g}x {peer}"


def _cases(goal: Goal, workloads: Iterable[str], results: Sequence[CaseResult]) -> list[CaseResult]:
    return [
        result
        for result in results
        if result.case.workload in workloads
        and result.case.payload_bytes == goal.payload_bytes
        and all(result.case.parameters.get(name) == value for name, value in goal.parameters.items())
    ]


def _best(goal: Goal, engine: str, cases: Sequence[CaseResult]) -> tuple[str, EngineResult] | None:
    measured = [
        (spread.median, result.case.workload, result.engines[engine])
        for result in cases
        if engine in result.engines and (spread := result.engines[engine].spread(goal.figure)) is not None
    ]
    if not measured:
        return None
    choose = max if FIGURES[goal.figure].higher_is_better else min
    _, workload, result = choose(measured, key=lambda each: each[0])
    return workload, result


def conditions(case: Case) -> tuple[str, str, int]:
    """What cases that are judged together have in common."""
    return case.durability, case.content, case.sync_delay_us
