"""The swarm of applications of later features: what its seeds are, that one gives the same run again, and that a rule that is left out shows."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import tests.simulation.features as features_module
from logdevice_py import SimCluster
from sequencer.tail import Tail
from tests.simulation import atomic_batches, group_members, guards, last_records, replica_writers, strict_order
from tests.simulation.features import DRAWN, FEATURES, LOGS, NAMESPACES, FeatureFailure, draw_features, run_features
from tests.simulation.run_mode import RunMode
from tests.simulation.search import run_one


def test_every_application_is_in_many_seeds_alone_and_with_others() -> None:
    plans = [draw_features(seed) for seed in range(300)]
    for name in FEATURES:
        assert sum(name in plan.features for plan in plans) >= 20
        assert name not in DRAWN or any(plan.features == (name,) for plan in plans)
    assert max(len(DRAWN.keys() & plan.features) for plan in plans) == 3
    assert all(len(NAMESPACES.intersection(plan.features)) < 2 for plan in plans)


def test_no_two_applications_share_a_log() -> None:
    logs = [
        *(guards.CHAIN, guards.NUMBERS, guards.OWNED, guards.ENDED),
        *(atomic_batches.SHARED, atomic_batches.CHAIN, strict_order.LOG),
        *(replica_writers.COMMANDS, replica_writers.SNAPSHOTS),
        *(group_members.COMMANDS, group_members.SNAPSHOTS, *group_members.STREAMS.values()),
        *last_records.LOGS,
    ]
    assert sorted(logs) == list(range(1, LOGS + 1))


@pytest.mark.slow
def test_a_seed_gives_the_same_run_again() -> None:
    first, second = run_features(10), run_features(10)
    assert first.digest == second.digest
    assert first.plan.features[0] == "last_records"


def test_a_rule_that_is_left_out_fails_a_seed_which_is_told_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tail, "judge", lambda self, guard: None)
    result = run_one(0, RunMode.FEATURES, 10)
    assert result.cause.startswith("AssertionError: rule ")
    assert "replay: make sim SEED=0 FEATURES=1" in result.failure


def test_faults_go_on_until_all_applications_want_calm(monkeypatch: pytest.MonkeyPatch) -> None:
    calm: list[str] = []

    def application(name: str, seconds: float) -> Any:
        async def run(cluster: SimCluster) -> None:
            await asyncio.sleep(seconds)
            calm.append(name)
            await cluster.calm()
            assert calm == ["quick", "slow"]

        return run

    several = {"quick": application("quick", 1), "slow": application("slow", 2)}
    monkeypatch.setattr(features_module, "FEATURES", several)
    monkeypatch.setattr(features_module, "draw_features", lambda seed: _plan(("quick", "slow")))
    run_features(0)


def _plan(features: tuple[str, ...]) -> Any:
    return features_module.FeaturePlan(0, features, {"nodes": 3})


def test_the_first_failure_of_an_application_is_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(cluster: SimCluster) -> None:
        raise AssertionError("rule 7")

    async def waits(cluster: SimCluster) -> None:
        await cluster.calm()

    monkeypatch.setattr(features_module, "FEATURES", {"fails": fails, "waits": waits})
    monkeypatch.setattr(features_module, "draw_features", lambda seed: _plan(("waits", "fails")))
    with pytest.raises(FeatureFailure, match="rule 7") as raised:
        run_features(0)
    assert raised.value.__cause__ is not None
    assert raised.value.__cause__.__notes__ == ["application: fails"]
