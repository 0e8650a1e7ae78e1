"""What an index log tells of itself."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from client.replica.commands import StateVersion
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
