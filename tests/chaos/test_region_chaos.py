"""A short run of chaos between regions; long ones: ``make chaos REGIONS=us,eu,ap``."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.dev.region_network import why_no_regions
from server.dev.zookeeper_server import why_no_zookeeper
from tests.chaos.run import run_chaos

_WHY_NOT = why_no_regions() or why_no_zookeeper()


@pytest.mark.slow
@pytest.mark.skipif(_WHY_NOT is not None, reason=str(_WHY_NOT))
@pytest.mark.parametrize("kills", [0, 20], ids=["anything", "kills only"])
async def test_nothing_acknowledged_is_lost_while_regions_are_lost(tmp_path: Path, kills: int) -> None:
    outcome = await run_chaos(
        tmp_path, seed=11, seconds=30, interval=0.8, records=1000, kills=kills, regions=("us", "eu", "ap")
    )
    assert outcome.acknowledged > 500
    assert sum(outcome.caused.values()) > 5
