"""A short run of chaos; long ones: ``make chaos``."""

from __future__ import annotations

from pathlib import Path

from tests.chaos.run import run_chaos


async def test_nothing_acknowledged_is_lost_while_real_machines_break(tmp_path: Path) -> None:
    outcome = await run_chaos(tmp_path, seed=11, seconds=20, interval=0.8, records=1000)
    assert outcome.acknowledged > 500
    assert sum(outcome.caused.values()) > 5
