"""Somebody sends under the writer ids of applications: what these are told is true, and without the comparison it is not."""

from __future__ import annotations

import pytest

from logdevice_py.core.units import SECOND
from server.simulation.faults.attacks import ATTACKS
from tests.simulation import run
from tests.simulation.deliberate import FAULTS
from tests.simulation.run import Failure, run_seed
from tests.simulation.run_mode import RunMode
from tests.simulation.scenario import Scenario, draw

NAME = "send_under_the_id_of_another"
SEEDS = (2, 8)
SEEDS_OF_UNKNOWN_OUTCOME = (11, 35)
"""In these somebody takes a number whose own frame is lost on the way, or its answer."""
CUTS = ["half_open", "break_connection", "cut_frames", "break_all", "slow_link", "lagging_link"]


@pytest.fixture
def attacked(monkeypatch: pytest.MonkeyPatch) -> None:
    """This attack once a second or more often, and no other fault."""
    attack(monkeypatch, [], SECOND)


@pytest.fixture
def attacked_while_outcomes_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """This attack among connections that break: it is not known what became of many frames."""
    attack(monkeypatch, CUTS, SECOND // 5)


def attack(monkeypatch: pytest.MonkeyPatch, others: list[str], interval: int) -> None:
    def drawn(seed: int, mode: RunMode = RunMode.USUAL) -> Scenario:
        scenario = draw(seed, mode)
        scenario.faults = ["hostile_client"] * (3 if others else 1) + others
        scenario.fault_interval = min(scenario.fault_interval, interval)
        return scenario

    monkeypatch.setattr(run, "draw", drawn)
    for name in list(ATTACKS):
        if name != NAME:
            monkeypatch.delitem(ATTACKS, name)


@pytest.mark.usefixtures("attacked")
@pytest.mark.parametrize("seed", SEEDS)
def test_no_record_is_acknowledged_where_other_content_is_and_writers_are_told(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.effects[f"attack {NAME}"] > 100
    assert {"write_stream_number_taken", "stream_number_taken"} <= outcome.marks
    assert outcome.failures["WRITE_STREAM_BROKEN"]
    assert outcome.acknowledged > 100


@pytest.mark.usefixtures("attacked")
def test_a_sequencer_that_compares_numbers_alone_acknowledges_what_is_stored_nowhere() -> None:
    check_caught("repeats_uncompared", SEEDS)


@pytest.mark.slow
@pytest.mark.usefixtures("attacked_while_outcomes_are_unknown")
def test_a_client_that_compares_numbers_alone_takes_the_place_of_other_content_for_its_own() -> None:
    for seed in SEEDS_OF_UNKNOWN_OUTCOME:
        assert run_seed(seed).acknowledged
    check_caught("found_frames_uncompared", SEEDS_OF_UNKNOWN_OUTCOME)


def check_caught(fault: str, seeds: tuple[int, ...]) -> None:
    for seed in seeds:
        with FAULTS[fault].planted(), pytest.raises(Failure) as failed:
            run_seed(seed)
        # whoever looks first: the writer at its receipt, or a reader
        assert "holds" in str(failed.value.__cause__)
        assert "b'forged" in str(failed.value.__cause__)
