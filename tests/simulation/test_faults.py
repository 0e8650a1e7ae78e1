"""The faults of a run: planned before it, told apart by their index, and each of them does something to somebody."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from logdevice_py.core.units import SECOND
from server.simulation.faults.catalog import FaultInstance
from server.simulation.faults.moments import when_sent
from server.simulation.faults.nemesis import CATALOG, Nemesis
from server.simulation.machines import SimMachines
from tests.simulation.run import run_seed
from tests.simulation.scenario import Scenario, draw

ROOT = Path(__file__).parents[2]


def scenario_with(kinds: list[str], seed: int = 3) -> Scenario:
    scenario = draw(seed)
    scenario.faults, scenario.duration, scenario.fault_interval = kinds, 10 * SECOND, SECOND // 3
    return scenario


def nemesis(scenario: Scenario, disabled: frozenset[int] = frozenset()) -> tuple[SimMachines, Nemesis]:
    cluster = SimMachines(scenario.config, scenario.seed)
    return cluster, Nemesis(scenario.fault_schedule, cluster, lambda: None, random.Random(2), disabled=disabled)


class TestPlan:
    @pytest.mark.parametrize("first", ["handovers", "moments", "catalog", "nemesis"])
    def test_a_seed_draws_the_same_kinds_whichever_module_is_imported_first(self, first: str) -> None:
        program = f"import server.simulation.faults.{first}; from tests.simulation.scenario import draw; print(draw(11).faults)"
        done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(draw(11).faults)

    def test_every_kind_says_what_it_is(self) -> None:
        assert all(kind.text and kind.name == name for name, kind in CATALOG.items())
        assert {name for name, kind in CATALOG.items() if kind.silent} == {"roll_back", "lying_sync"}

    def test_faults_come_in_bursts_with_rests_between_them(self) -> None:
        scenario = scenario_with(["pause"])
        schedule = replace(scenario.fault_schedule, duration=60 * SECOND, burst=3 * SECOND, rest=5 * SECOND)
        cluster = SimMachines(scenario.config, scenario.seed)
        made = Nemesis(schedule, cluster, lambda: None, random.Random(2))
        assert {planned.at // (8 * SECOND) for planned in made.plan} == set(range(8))
        assert all(planned.at % (8 * SECOND) < 3 * SECOND for planned in made.plan)

    def test_what_waits_for_its_moment_lapses_in_a_rest(self, monkeypatch: pytest.MonkeyPatch) -> None:
        struck: list[int] = []

        def wait(it: FaultInstance) -> None:
            when_sent(
                it,
                lambda node, peer, message: it.cluster.scheduler.now % (8 * SECOND) > 4 * SECOND,
                lambda *_: struck.append(it.index),
            )

        monkeypatch.setitem(CATALOG, "stray_copies", replace(CATALOG["stray_copies"], cause=wait))
        scenario = scenario_with(["stray_copies"])

        def strikes(**bursts: int) -> int:
            struck.clear()
            cluster = SimMachines(scenario.config, scenario.seed)
            schedule = replace(scenario.fault_schedule, duration=20 * SECOND, **bursts)
            for node in cluster.nodes.values():
                node.start()
            Nemesis(schedule, cluster, lambda: None, random.Random(2)).start()
            cluster.scheduler.run_until(20 * SECOND)
            return len(struck)

        assert strikes() > 5
        assert strikes(burst=3 * SECOND, rest=5 * SECOND) == 0

    def test_a_fault_that_is_left_out_changes_no_other_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def caused(disabled: frozenset[int]) -> dict[int, tuple[int, str, float]]:
            seen: dict[int, tuple[int, str, float]] = {}

            def note(it: FaultInstance) -> None:
                seen[it.index] = (it.at, it.kind, it.rng.random())

            for name, kind in CATALOG.items():
                monkeypatch.setitem(CATALOG, name, replace(kind, cause=note))
            scenario = scenario_with(list(CATALOG))
            cluster, made = nemesis(scenario, disabled)
            made.start()
            cluster.scheduler.run_until(scenario.duration)
            return seen

        whole = caused(frozenset())
        assert len(whole) > 5
        for index in whole:
            without = caused(frozenset({index}))
            assert without == {other: each for other, each in whole.items() if other != index}

    def test_the_plan_is_known_before_the_run_and_lists_disabled_faults_too(self) -> None:
        scenario = scenario_with(["pause", "wipe"])
        _, whole = nemesis(scenario)
        _, part = nemesis(scenario, frozenset({0, 2}))
        assert whole.plan == part.plan
        assert [planned.index for planned in whole.plan] == list(range(len(whole.plan)))
        assert all(planned.at < scenario.duration for planned in whole.plan)


def test_the_faults_of_some_runs_have_effects() -> None:
    """Which kinds ever do anything is counted over many seeds; here the counting itself is checked."""
    effects: Counter[str] = Counter()
    for seed in range(3):
        scenario = scenario_with(["crash_process", "pause", "break_connection", "bit_flip", "wipe"], seed)
        cluster, made = nemesis(scenario)
        for node in cluster.nodes.values():
            node.start()
        made.start()
        cluster.scheduler.run_until(scenario.duration)
        made.stop()
        assert not made.budget.take_shards([shard for node in cluster.nodes.values() for shard in node.disks]), (
            "the budget holds"
        )
        effects.update(cluster.fault_effects)
    assert {"crash_process", "break_connection", "wipe"} <= set(effects)


@pytest.mark.slow
def test_a_run_without_a_fault_is_the_same_run_again() -> None:
    assert run_seed(2, disabled=[0]).digest == run_seed(2, disabled=[0]).digest


def test_a_node_that_is_stopping_when_the_faults_end_comes_back() -> None:
    scenario = scenario_with(["orderly_stop"])
    for end in range(1, 40):
        cluster, made = nemesis(scenario)
        for node in cluster.nodes.values():
            node.start()
        made.start()
        cluster.scheduler.run_until(end * SECOND // 4)
        made.stop()
        cluster.scheduler.run_until(cluster.scheduler.now + 10 * SECOND)
        stopping = [node.name for node in cluster.nodes.values() if node.root is None or node.leaving]
        assert not stopping, (end, stopping)
