"""The driver of Spark's jobs, step by step, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from client.replica.commands import StateVersion
from indexlog.effects import ConfirmView, FindTails, ManifestOutcome, ProposeCommand
from indexlog.manifest.commands import (
    AddGeneration,
    BeginJob,
    Deal,
    EndGeneration,
    EndJob,
    Initialize,
    ManifestCommand,
    encode_manifest_command,
)
from indexlog.manifest.parts import JobKind
from indexlog.manifest.state import ManifestState
from indexlog.spark.jobs import OnSpark


def apply(state: ManifestState, *commands: ManifestCommand) -> None:
    for command in commands:
        state.apply(encode_manifest_command(command), StateVersion(1, 0), 7)


def test_a_generation_that_others_deal_whole_meanwhile_is_left_behind() -> None:
    state = ManifestState()
    apply(state, Initialize("memory", [1, 2]), BeginJob(), AddGeneration([3]), EndGeneration(0, [5, 0]))
    steps: Any = OnSpark(None, "")._deal_job(lambda: state, 1000)  # type: ignore[arg-type]
    assert steps.send(None) == ProposeCommand(BeginJob(JobKind.DEAL))
    assert steps.send(ManifestOutcome(2)) == ConfirmView()
    assert steps.send(None) == FindTails((1, 2))
    apply(state, Deal(1, 1, 1, 5, 0, 0, "", []))
    assert list(state.dealt) == [3]
    assert steps.send({1: 5, 2: 0}) == FindTails((3,))
    assert steps.send({3: 0}) == ProposeCommand(EndJob(2))


def test_a_job_of_dealing_ends_although_more_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """It deals what there was when it began."""
    state = ManifestState()
    apply(state, Initialize("memory", [1]), BeginJob())
    steps: Any = OnSpark(None, "")._deal_job(lambda: state, 1000)  # type: ignore[arg-type]
    monkeypatch.setattr(OnSpark, "_make_containers", lambda *_: [])
    assert steps.send(None) == ProposeCommand(BeginJob(JobKind.DEAL))
    apply(state, BeginJob(JobKind.DEAL))
    assert steps.send(ManifestOutcome(2)) == ConfirmView()
    assert steps.send(None) == FindTails((1,))
    work = steps.send({1: 5})
    proposed = steps.send(work.work())
    assert proposed == ProposeCommand(Deal(2, 1, 1, 5, 0, 0, "", []))
    apply(state, proposed.command)
    assert steps.send(ManifestOutcome(1)) == ProposeCommand(EndJob(2)), "whatever was written behind 5"
