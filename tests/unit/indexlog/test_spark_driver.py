"""The driver of Spark's jobs, step by step, without Spark."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from client.replica.commands import CommandRefused, StateVersion, refusal
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


class HeldLog:
    """An index log whose steps the test does."""

    def __init__(self, state: ManifestState) -> None:
        self.state = state
        self.steps: Any = None

    async def run(self, steps: Any) -> None:
        self.steps = steps


def dealing(state: ManifestState, job: OnSpark | None = None) -> Any:
    """The steps of dealing from a manifest in this state."""
    log: Any = HeldLog(state)
    asyncio.run((job or OnSpark(None, "")).deal(log, bytes_max=1000))  # type: ignore[arg-type]
    return log.steps


class Session:
    """Notes what raw logs are read with."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.read = self

    def format(self, name: str) -> Session:
        return self

    def option(self, name: str, value: str) -> Session:
        self.given[name] = value
        return self

    def options(self, **options: str) -> Session:
        self.given.update(options)
        return self

    def load(self) -> Session:
        return self

    def mapInArrow(self, task: Any, schema: Any) -> Session:
        return self

    def collect(self) -> list[Any]:
        return []


def test_a_generation_that_others_deal_whole_meanwhile_is_left_behind() -> None:
    state = ManifestState()
    apply(state, Initialize("memory", [1, 2]), BeginJob(), AddGeneration([3]), EndGeneration(0, [5, 0]))
    steps = dealing(state)
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
    steps = dealing(state)
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


@pytest.mark.parametrize("ends_behind_the_task", [False, True])
def test_a_log_that_ends_meanwhile_is_dealt_to_its_end(
    monkeypatch: pytest.MonkeyPatch, ends_behind_the_task: bool
) -> None:
    """Its tail was found behind the end: tails go up without records when a sequencer changes."""
    state = ManifestState()
    apply(state, Initialize("memory", [1]), BeginJob(), AddGeneration([2]))
    end = EndGeneration(0, [5])
    steps = dealing(state)
    monkeypatch.setattr(OnSpark, "_make_containers", lambda *_: [])
    assert steps.send(None) == ProposeCommand(BeginJob(JobKind.DEAL))
    apply(state, BeginJob(JobKind.DEAL))
    assert steps.send(ManifestOutcome(2)) == ConfirmView()
    assert steps.send(None) == FindTails((1,))
    if ends_behind_the_task:
        work = steps.send({1: 9})
        proposed = steps.send(work.work())
        apply(state, end)
        with pytest.raises(CommandRefused, match="ended at 5") as refused:
            apply(state, proposed.command)
        work = steps.send(ManifestOutcome(0, *refusal(str(refused.value))))
    else:
        apply(state, end)
        work = steps.send({1: 9})
    proposed = steps.send(work.work())
    assert proposed == ProposeCommand(Deal(2, 1, 1, 5, 0, 0, "", []))
    apply(state, proposed.command)
    assert steps.send(ManifestOutcome(1)) == FindTails((2,))


def test_raw_logs_are_dealt_with_the_identity_of_the_job() -> None:
    session = Session()
    state = ManifestState()
    apply(state, Initialize("memory", [1]), BeginJob())
    job = OnSpark(session, "c.toml", {"identityFile": "/etc/dealer.pem"})  # type: ignore[arg-type]
    steps = dealing(state, job)
    assert steps.send(None) == ProposeCommand(BeginJob(JobKind.DEAL))
    apply(state, BeginJob(JobKind.DEAL))
    assert steps.send(ManifestOutcome(2)) == ConfirmView()
    assert steps.send(None) == FindTails((1,))
    assert steps.send({1: 5}).work() == []
    assert (session.given["cluster"], session.given["identityFile"]) == ("c.toml", "/etc/dealer.pem")
