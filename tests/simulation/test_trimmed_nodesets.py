"""Nodesets of what is trimmed go out of the history of a log, whatever breaks; each rule that is left out is noticed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sequencer.history_trim
import server.simulation.cluster
from logdevice_py import SimulationFailed
from tests.simulation.causes import innermost
from tests.simulation.trimmed_nodesets import trimmed_nodesets

CLUSTER: dict[str, Any] = {
    "nodes": 5,
    "replicate": "node:3",
    "log_tree": True,
    "virtual_seconds": 3000,
    # nothing that destroys data: some epochs have two copies
    "faults": (
        "crash_process",
        "crash_machine",
        "pause",
        "stop_sequencer",
        "partition_node",
        "slow_start",
        "orderly_stop",
    ),
    "fault_interval": 2.0,
}
EAGER = ["[settings.sequencer]", "history_trim_from = 2", 'history_trim_interval_us = "200ms"']


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shards are asked as soon as there are two nodesets; production waits for 32."""
    text = server.simulation.cluster._cluster_file
    monkeypatch.setattr(
        server.simulation.cluster,
        "_cluster_file",
        lambda *arguments: "\n".join(
            [text(*arguments), *EAGER, "[settings.storage]", 'trim_exchange_interval_us = "500ms"']
        ),
    )


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_histories_get_shorter_and_nobody_notices(simulate: Callable[..., Any], seed: int) -> None:
    (told,) = simulate(trimmed_nodesets, seed=seed, **CLUSTER)
    assert len(told.acknowledged) > 30
    assert told.changes > 5
    assert told.begins > 1, "nothing was left out"
    assert told.history < told.changes


def _untrimmed(patch: pytest.MonkeyPatch) -> None:
    """Nodesets are left out whether all of it is trimmed or not."""
    patch.setattr(sequencer.history_trim, "first_needed", lambda history, present, trimmed: history[-1].since)


def test_what_is_left_out_before_it_is_trimmed_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _untrimmed(monkeypatch)

    def hunt() -> None:
        for seed in range(8):
            simulate(trimmed_nodesets, seed=seed, **CLUSTER)

    with pytest.raises((SimulationFailed, AssertionError)) as failed:
        hunt()
    assert "rule " in str(innermost(failed.value))
