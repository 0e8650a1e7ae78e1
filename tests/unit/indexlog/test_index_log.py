"""What an index log tells of itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from client.replica.commands import CommandRefused, StateVersion, refusal
from indexlog.effects import ManifestOutcome
from indexlog.index_log import IndexLog
from indexlog.manifest.commands import AddGeneration, BeginJob, Deal, EndGeneration, Initialize, encode_manifest_command
from indexlog.manifest.state import ManifestState


def test_raw_logs_are_told_although_they_are_dealt_whole_meanwhile() -> None:
    """The manifest does not know them any more when their tails are found."""
    state = ManifestState()
    for command in (Initialize("memory", [1]), BeginJob(), AddGeneration([2]), EndGeneration(0, [5])):
        state.apply(encode_manifest_command(command), StateVersion(1, 0), 7)

    async def current(*, timeout: float) -> None:
        assert timeout > 0

    async def tail_lsn(log: int) -> str:
        if log == 1:
            state.apply(encode_manifest_command(Deal(1, 1, 1, 5, 0, 0, "", [])), StateVersion(1, 0), 7)
        return f"tail of {log}"

    log: Any = SimpleNamespace(
        manifest=SimpleNamespace(current=current), state=state, client=SimpleNamespace(tail_lsn=tail_lsn)
    )
    told = asyncio.run(IndexLog.describe(log))
    assert list(state.dealt) == [2]
    assert [(each["log"], each["generation"], each["tail"]) for each in told["raw_logs"]] == [
        (1, 0, "tail of 1"),
        (2, 1, "tail of 2"),
    ]


def test_raw_logs_end_where_a_dealer_found_their_tail_if_that_is_later() -> None:
    """A tail goes up without records when a sequencer changes, and who changes raw logs may have found it before."""
    state = ManifestState()
    for command in (Initialize("memory", [1]), BeginJob(), AddGeneration([2])):
        state.apply(encode_manifest_command(command), StateVersion(1, 0), 7)
    tails = iter([5, 9])

    async def end_log(log: int) -> int:
        return next(tails)

    async def propose(command: EndGeneration) -> ManifestOutcome:
        if command.ends == [5]:
            state.apply(encode_manifest_command(Deal(1, 1, 1, 9, 0, 0, "", [])), StateVersion(1, 0), 7)
        try:
            return ManifestOutcome(len(state.apply(encode_manifest_command(command), StateVersion(1, 0), 7)))
        except CommandRefused as error:
            return ManifestOutcome(0, *refusal(str(error)))

    log: Any = SimpleNamespace(_end_log=end_log, _propose=propose)
    asyncio.run(IndexLog.end_generation(log, state.generations[0]))
    assert [each.number for each in state.generations] == [1]
