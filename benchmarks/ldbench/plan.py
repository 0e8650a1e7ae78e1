"""Which runs are made, in which order: systems take turns, bundle by bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.ldbench.engine import Engine
from benchmarks.ldbench.measurement import Case
from benchmarks.ldbench.worker import RunOrder
from benchmarks.ldbench.workload import Scale, Workload, settings_of


@dataclass(frozen=True, slots=True)
class Bundle:
    """Cases that are measured on the same servers of each system, one system after the other."""

    group: str
    durability: str
    record_bytes: int
    tolerate_failure: bool
    partitions: bool
    cases: tuple[Case, ...]


def all_cases(scale: Scale, workloads: Sequence[Workload], *, sync_delay_us: int = 0) -> Iterator[Case]:
    """Every case of a scale, workload by workload."""
    for workload in workloads:
        for durability in scale.durabilities:
            for size in workload.sizes(scale):
                for content in scale.contents:
                    for parameters in workload.parameters(scale):
                        yield Case(
                            workload=workload.name,
                            payload_bytes=size,
                            content=content,
                            durability=durability,
                            sync_delay_us=sync_delay_us,
                            seconds=scale.seconds,
                            warmup_seconds=scale.warmup_seconds,
                            parameters=dict(parameters),
                        )


def bundles(cases: Sequence[Case], workloads: Mapping[str, Workload], scale: Scale) -> list[Bundle]:
    """Cases that may share servers together, small records first, else in the order given.

    Always of the same durability and alike in what servers are started for; of the same group and size of records as well, where the scale
    does not save starts. Workloads that are made for some systems only, or want fresh servers, stay apart.
    """
    found: dict[tuple[str, str, int, bool, bool], list[Case]] = {}
    for case in cases:
        workload = workloads[case.workload]
        group, size = workload.group, case.payload_bytes
        if scale.share_servers:
            group, size = (group if workload.engines or workload.fresh else ""), 0
        key = (group, case.durability, size, workload.tolerate_failure, workload.partitions)
        found.setdefault(key, []).append(case)
    made = []
    for (group, durability, _, tolerate, partitions), members in found.items():
        # large records leave servers busy for a while
        members.sort(key=lambda case: case.payload_bytes)
        made.append(Bundle(group, durability, members[-1].payload_bytes, tolerate, partitions, tuple(members)))
    return made


def why_not(workload: Workload, engine: Engine) -> str | None:
    """Why a workload is not run on a system; None when it is."""
    if workload.engines is not None and engine.name not in workload.engines:
        return f"{workload.name} is made for {', '.join(sorted(workload.engines))} only"
    if (reason := workload.impossible()) is not None:
        return f"{workload.name}: {reason}"
    if workload.several_writers and engine.single_writer:
        return f"{workload.name}: a log of {engine.name} has one writer at a time"
    if workload.breaks_leaders and not engine.has_leaders:
        return f"{workload.name}: no server of {engine.name} leads a log"
    if not settings_of(workload, engine):
        return f"{workload.name}: the client of {engine.name} has nothing of the kind"
    return None


def runs_of(
    bundle: Bundle,
    engine: Engine,
    workloads: Mapping[str, Workload],
    scale: Scale,
    round_number: int,
    chosen: Callable[[str, str], str | None],
) -> list[RunOrder]:
    """The runs of a bundle on one system in one round.

    In the first round every setting is tried, as far as the scale says so; later the best one only.

    Args:
        bundle: the cases.
        engine: the system.
        workloads: by name.
        scale: how much is measured.
        round_number: from 1.
        chosen: the best setting so far, by engine and key of the case.
    """
    runs = []
    for case in bundle.cases:
        workload = workloads[case.workload]
        if why_not(workload, engine) is not None:
            continue
        settings = settings_of(workload, engine)
        best = chosen(engine.name, case.key)
        if round_number > 1 and best is not None:
            names = [best]
        elif case.payload_bytes <= scale.all_settings_up_to and (workload.decisive or scale.thorough):
            names = [setting.name for setting in settings]
        else:
            names = [settings[0].name]
        runs += [RunOrder(case=case, setting=name, round=round_number) for name in names]
    return runs
