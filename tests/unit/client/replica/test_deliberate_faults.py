"""The tests of replicas can fail: each rule that is left out is caught by one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from client.replica import applied_state
from client.replica.applied_state import AppliedState
from client.replica.chunked_snapshots import ChunkedSnapshots
from client.replica.command_replica import CommandReplica, CommandRules
from client.replica.commands import NOTHING
from logdevice_py.core.lsn import LSN_INVALID
from tests.simulation.deliberate_fault import DeliberateFault, Place
from tests.unit.client.replica.fakes import MemoryLogs
from tests.unit.client.replica.test_command_replica import TestLosses as Losses
from tests.unit.client.replica.test_command_replica import TestProposals as Proposals
from tests.unit.client.replica.test_command_replica import TestRequests as Requests
from tests.unit.client.replica.test_command_replica import TestSnapshots as Snapshots

Test = Callable[[MemoryLogs], None]


def without(value: Any) -> Callable[[Any], Any]:
    """A function that returns the same whatever it is asked."""
    return lambda original: lambda *arguments: value


class Unseen(dict[bytes, Any]):
    """Finds what is asked for, and says that nothing is there."""

    def __contains__(self, key: object) -> bool:
        return False


def forgetting_requests(original: Any) -> Any:
    def init(self: Any, kind: Any) -> None:
        original(self, kind)
        self._outcomes = Unseen()

    return init


def forgetting_the_horizon(original: Any) -> Any:
    def remember(self: Any, request: Any, outcome: Any) -> None:
        original(self, request, outcome)
        self.horizon = NOTHING

    return remember


CAUGHT: dict[str, tuple[Place, Callable[[Any], Any], Test]] = {
    "trimmed before it is read back": (
        (CommandRules, "on_snapshot_written"),
        lambda original: lambda self, version: version,
        Snapshots().test_two_are_kept_and_commands_from_the_older_on,
    ),
    "trimmed without comparing what was read back": (
        (ChunkedSnapshots, "removable"),
        lambda original: lambda self, tail, written: (self._found[-1].version, LSN_INVALID) if self._found else (0, 0),
        Snapshots().test_a_lagging_writer_trims_nothing,
    ),
    "losses are skipped": (
        (CommandRules, "skips_losses"),
        lambda original: True,
        Losses().test_nothing_is_applied_behind_one,
    ),
    "memory left out of snapshots": (
        (applied_state, "_outcomes"),
        without({}),
        Requests().test_memory_and_horizon_are_part_of_snapshots,
    ),
    "a base is not compared with the horizon": (
        (AppliedState, "_remember"),
        forgetting_the_horizon,
        Requests().test_a_copy_that_comes_after_it_was_forgotten_is_refused,
    ),
    "requests are applied again": (
        (AppliedState, "__init__"),
        forgetting_requests,
        Proposals().test_what_fails_is_appended_again_and_applied_once,
    ),
    "outcomes are not looked for in a snapshot": (
        (CommandReplica, "_look_for_outcomes"),
        without(None),
        Snapshots().test_a_proposal_that_a_snapshot_skips_gets_its_outcome,
    ),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_a_rule_that_is_left_out_is_caught(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    place, change, test = CAUGHT[name]
    if test.__self__.__class__ is Requests:  # type: ignore[attr-defined]
        monkeypatch.setattr(applied_state, "REQUESTS_MAX", 3)
    test(MemoryLogs(monkeypatch))
    with DeliberateFault(name, name, change, (place,)).planted(), pytest.raises(AssertionError):
        test(MemoryLogs(monkeypatch))
