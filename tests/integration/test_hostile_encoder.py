"""A client that is written from docs/messages.md alone breaks every rule, beside honest clients that lose nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile.attacks import ATTACKS
from tests.hostile.run import run_hostile

FRAMES = 5000
PEAK_BYTES_MAX = 300 << 20


@pytest.mark.slow
@pytest.mark.asyncio
async def test_attacks_and_mutated_frames_cost_honest_clients_nothing(tmp_path: Path) -> None:
    """Before them, 2,000 records were acknowledged. A TRIM beyond the end, to one shard, would have all of them, and all later ones, read as trimmed."""
    outcome = await run_hostile(tmp_path, attacks=2, frames=FRAMES, scale=0.05, quiet_seconds=0.5, niceness=0)
    results = {result["attack"]: result["outcomes"] for result in outcome.attacks}
    assert results.keys() == ATTACKS.keys()
    assert "status 0" not in results["TRIM beyond the end, to one shard"]
    assert "status 0" not in results["ends and fences of the cluster's own logs"]
    assert results["msgpack bombs before HELLO"] == results["msgpack bombs after HELLO"] == {"all refused": 2}
    assert results["wrong introductions"] == {"all refused": 2}
    assert outcome.acknowledged["kept"] == 2001
    assert outcome.frames["reached"] >= FRAMES * 0.9, outcome.frames
    assert max(outcome.peaks["beside mutated frames"].values()) < PEAK_BYTES_MAX
