"""Replicas of one state machine under the faults of the simulator; each rule that is left out is noticed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import pytest

from client.replica import applied_state
from client.replica.applied_state import AppliedState
from logdevice_py import SimulationFailed
from tests.simulation.deliberate_fault import DeliberateFault
from tests.simulation.replica_writers import CHANGES, SNAPSHOTS, WRITERS, change_under_faults
from tests.slow import quick
from tests.unit.client.replica.registers import Registers

SEEDS = range(6)
HUNTED_MAX = 12


@pytest.mark.parametrize("seed", quick(SEEDS, 2))
def test_replicas_agree_whatever_breaks(simulate: Callable[..., Any], seed: int) -> None:
    applied, compared, faults = simulate(change_under_faults, seed=seed, nodes=5, logs=SNAPSHOTS, faults="all")
    assert applied > WRITERS * CHANGES // 2
    assert compared > applied
    assert faults > 3


def reads_a_clock(original: Any) -> Any:
    clock = itertools.count()

    def apply(self: Registers, command: bytes, *where: Any) -> bytes:
        result: bytes = original(self, command, *where)
        self.values["clock"] = str(next(clock))
        self.counts["clock"] = 1
        return result

    return apply


def memory_left_out_of_snapshots(original: Any) -> Any:
    return lambda rows, horizon, position: {}


class Unseen(dict[bytes, Any]):
    """Finds what is asked for, and says that nothing is there."""

    def __contains__(self, key: object) -> bool:
        return False


def requests_are_applied_again(original: Any) -> Any:
    def init(self: AppliedState[Registers], kind: Any) -> None:
        original(self, kind)
        self._outcomes = Unseen()

    return init


BROKEN = (
    DeliberateFault("reads_a_clock", "applying reads a clock", reads_a_clock, ((Registers, "apply"),)),
    DeliberateFault(
        "memory_left_out_of_snapshots",
        "snapshots do not keep the memory of requests",
        memory_left_out_of_snapshots,
        ((applied_state, "_outcomes"),),
    ),
    DeliberateFault(
        "requests_are_applied_again",
        "a command that is there twice is applied twice",
        requests_are_applied_again,
        ((AppliedState, "__init__"),),
    ),
)


@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.name)
def test_a_few_seeds_catch_a_deliberate_fault(simulate: Callable[..., Any], fault: DeliberateFault) -> None:
    failures: list[SimulationFailed] = []
    with fault.planted():
        for seed in range(HUNTED_MAX):
            try:
                simulate(change_under_faults, seed=seed, nodes=5, logs=SNAPSHOTS, faults="all")
            except SimulationFailed as failed:
                failures.append(failed)
                break
    assert failures, f"{fault.breaks}, and nothing shows it"
    assert isinstance(failures[0].__cause__, AssertionError), failures
    assert re.search("two states of version|more than once|times", str(failures[0])), failures
