"""The policy that docs/placement.md shows is one."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from logdevice_py.core.ids import LogId, node_of
from logdevice_py.placement.cluster_placement import ClusterPlacement
from tests.unit.logdevice_py.placement.clusters import attributes, cluster

PAGE = Path(__file__).parents[4] / "docs" / "placement.md"


def test_the_policy_on_the_page_keeps_each_log_in_one_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (shown,) = (
        text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "class CellPolicy" in text
    )
    (tmp_path / "cells.py").write_text(shown)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "cells", raising=False)
    places = [f"row{index % 3}.r" for index in range(11)] + ["row9.r"]
    config = replace(cluster(places), settings={"placement": {"policy": "cells:CellPolicy"}})
    placement = ClusterPlacement(config, lambda text: pytest.fail(text))
    used = set()
    for log in range(1, 60):
        nodeset = placement.select_nodeset(LogId(log), attributes("node:3"))
        rows = {places[node_of(shard)] for shard in nodeset}
        used.add(frozenset(rows))
        assert len(rows) == 1 or len(nodeset) == 12  # row9 has one node: such logs are spread over all
    assert len(used) == 4
