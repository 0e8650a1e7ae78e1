"""A store in extents is cut off at every call of its disk, twice in a row, and gives back a prefix of its blocks with all that was durable."""

from __future__ import annotations

import pytest

from storage_node.log_store.extents.simulated_disk import PowerCutError, SimulatedDisk
from tests.unit.storage_node.log_store.crashing import Scenario, crash_and_check, open_on, state_of

SEED = 7


def steps_of_a_whole_run() -> int:
    disk = SimulatedDisk()
    Scenario(disk, SEED).run()
    return disk.steps


STEPS = steps_of_a_whole_run()


def test_the_scenario_does_all_that_a_store_does() -> None:
    disk = SimulatedDisk()
    Scenario(disk, SEED).run()
    names = disk.names()
    assert "table" in names
    assert sum(name.startswith("index-") for name in names) >= 2
    assert sum(name.startswith("extent-") for name in names) >= 3
    assert STEPS > 60


@pytest.mark.parametrize("mode", ["nothing", "all", "some sectors"])
def test_a_power_cut_at_every_call_leaves_a_prefix_with_all_that_is_durable(mode: str) -> None:
    found = set()
    for step in range(STEPS):
        disk = SimulatedDisk()
        scenario = Scenario(disk, SEED)
        disk.dies_at = step
        try:
            scenario.run()
        except PowerCutError:
            pass
        else:
            raise AssertionError("it was not cut off")
        state = crash_and_check(disk, scenario.allowed(), mode, step, again_at=None if step % 2 else step % 23)
        found.add(scenario.states.index(state))
    assert len(found) > 8


def test_what_a_process_that_died_wrote_is_all_there() -> None:
    for step in range(0, STEPS, 3):
        disk = SimulatedDisk()
        scenario = Scenario(disk, SEED)
        disk.dies_at = step
        with pytest.raises(PowerCutError):
            scenario.run()
        disk.dies_at = None
        store, contents = open_on(disk, "boot 1")
        # the batch that was being written may be there or not
        assert state_of(store, contents) in scenario.states[-2:]
        store.abandon()
