"""What is acknowledged is read in bounded time although nothing follows it; each rule that is left out is noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import client.look_up.release_request
from logdevice_py import SimulationFailed
from sequencer.releases import Releases
from tests.simulation.last_records import LOGS, last_records
from tests.slow import quick

CLUSTER: dict[str, Any] = {"nodes": 4, "logs": max(LOGS), "replicate": "node:2", "virtual_seconds": 600}


@pytest.mark.parametrize("seed", quick(range(3), 1))
def test_the_last_record_is_read_whatever_breaks(simulate: Callable[..., Any], seed: int) -> None:
    told = simulate(last_records, seed=seed, faults="all", **CLUSTER)
    assert all(len(told.acknowledged[log]) > 5 for log in LOGS)


def _releases_with_the_next_entry(patch: pytest.MonkeyPatch) -> None:
    """What is released is told with the next entry only."""

    def forget(self: Releases) -> None:
        self._batch = {}
        self._urgent.clear()

    patch.setattr(Releases, "on_turn_end", forget)


def _tells_of_what_is_not_released(patch: pytest.MonkeyPatch) -> None:
    """Who asks storage nodes is told of an entry that they have not heard to be released."""
    greatest = client.look_up.release_request._greatest
    patch.setattr(client.look_up.release_request, "_greatest", lambda answers: greatest(answers) + 1)


FAULTS: Sequence[tuple[str, Callable[[pytest.MonkeyPatch], None], str]] = [
    ("a release waits for the next entry", _releases_with_the_next_entry, "rule 1"),
    ("storage nodes tell of what is not released", _tells_of_what_is_not_released, "rule 3"),
]


@pytest.mark.parametrize(("put", "rule"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_each_rule_of_last_records_that_is_left_out_is_noticed(
    simulate: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, put: Callable[[pytest.MonkeyPatch], None], rule: str
) -> None:
    put(monkeypatch)
    with pytest.raises(SimulationFailed, match=rule):
        simulate(last_records, seed=0, **CLUSTER)
