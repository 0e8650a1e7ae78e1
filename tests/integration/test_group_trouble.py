"""Ten members as processes, killed, paused and replaced: every record is handled, and by nobody behind a fence."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.group_trouble import troubled

SECONDS = 60.0
WAIT_MAX = 30.0
"""Seconds of a stream whose member was killed: two where the machine has nothing else to do, which `make groups` asks for."""


@pytest.mark.slow
async def test_members_that_are_killed_and_paused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = await troubled(SECONDS, 1, tmp_path)
    with capsys.disabled():
        print(f"\n{report}")
    assert report.counts["killed"] > 0
    assert report.records > SECONDS
    assert max(report.waits["killed"]) < WAIT_MAX
