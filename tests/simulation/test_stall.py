"""What a run calls a stall, and what it does not."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, ClassVar
from unittest.mock import patch

import pytest

from client.settings import WriterSettings
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.units import SECOND, Micros
from tests.history.stage import LOG, config_text
from tests.simulation import run, workload
from tests.simulation.run import STALL_BOUND, Failure, RunOutcome, run_seed
from tests.simulation.run_mode import RunMode
from tests.simulation.scenario import Scenario, draw
from tests.simulation.writers import StreamWriter

if TYPE_CHECKING:
    from tests.simulation.workload import Applications

RECORDS = 120
ONE_RECORD_AN_EPOCH = "\n".join(["[settings.sequencer]", "esn_max = 1", "reactivation_limit = 1"])


class OneCallWriter(StreamWriter):
    """Appends many records in one call. Each goes in a frame of its own, and waits for the one before."""

    ends_nodes: ClassVar[bool]
    """No node runs from the end of the faults on."""

    def __init__(self, run: Applications, name: str) -> None:
        super().__init__(run, name)
        self.settings = WriterSettings(size_trigger_bytes=1, frames_in_flight_max=1, timeout_us=600 * SECOND)
        self.streams = self.client.writer(self.settings)

    def act(self, now: Micros) -> None:
        if not self.sequence:
            with patch.object(self.rng, "choice", max):
                super().act(now)
            assert self.sequence == RECORDS

    def calm(self) -> None:
        if self.ends_nodes:
            for node in self.cluster.nodes.values():
                node.crash(machine=False)


@pytest.fixture(autouse=True)
def _scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    """One application, one log, whose sequencer may begin about two epochs a second, and no faults."""

    def drawn(seed: int, mode: RunMode = RunMode.USUAL) -> Scenario:
        source = draw(seed, mode)
        return dataclasses.replace(
            source,
            config=load_cluster(config_text(3, "node:2", ONE_RECORD_AN_EPOCH)),
            faults=[],
            logs=[LOG],
            duration=2 * SECOND,
            stream_writers=1,
            appenders=0,
            readers=0,
            succession_interval=0,
            exclusive_interval=0,
            trim_interval=0,
            epoch_interval=0,
            config_interval=0,
            removal_interval=0,
            move_interval=0,
        )

    monkeypatch.setattr(run, "draw", drawn)
    monkeypatch.setattr(workload, "StreamWriter", OneCallWriter)


def run_with(monkeypatch: pytest.MonkeyPatch, *, ends_nodes: bool) -> RunOutcome:
    monkeypatch.setattr(OneCallWriter, "ends_nodes", ends_nodes, raising=False)
    return run_seed(2)


def test_a_call_of_which_frames_are_stored_all_the_time_may_take_as_long_as_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = run_with(monkeypatch, ends_nodes=False)
    assert outcome.acknowledged == RECORDS + 1
    assert outcome.calm_after["answers to appends"] > STALL_BOUND


def test_a_call_of_which_nothing_more_is_stored_stalls(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Failure) as failed:
        run_with(monkeypatch, ends_nodes=True)
    assert "answers to appends: nothing for 45 s" in str(failed.value.__cause__)
