"""Thousands of short runs of a small cluster with crashes, pauses, wiped and forgetful disks, and recoveries that compete."""

from __future__ import annotations

import pytest

from logdevice_py.core.marks import HITS
from tests.slow import quick
from tests.unit.sequencer.recovery.model import run_world

RUNS = 3000
BLOCK = 250
RARE = (
    "recovery_best_effort",
    "recovery_entry_behind_bridge",
    "recovery_goes_on_in_later_epoch",
    "recovery_last_clean_epoch_beyond",
    "recovery_last_clean_epoch_stale",
    "recovery_late_sealer",
    "recovery_member_died",
    "recovery_mutated_other_wave",
    "recovery_nobody_left",
    "recovery_preempted",
    "recovery_restart_in_clean",
    "recovery_restart_in_mutation",
    "recovery_second_wave",
    "recovery_shard_lacks_entries",
    "recovery_shard_rebuilding",
    "recovery_stream_broken",
)


@pytest.mark.parametrize("first", quick(range(0, RUNS, BLOCK), 2))
def test_what_was_acknowledged_survives_and_what_was_decided_stays(first: int) -> None:
    for seed in range(first, first + BLOCK):
        try:
            run_world(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error


def test_the_runs_reach_the_rare_branches() -> None:
    HITS.clear()
    for seed in range(900, 1300):
        run_world(seed)
    assert not [mark for mark in RARE if not HITS[mark]]
