"""What ``ldindex export-delta`` takes and says."""

from __future__ import annotations

from typing import Any

import pytest

from indexlog.cli.delta import export_table
from indexlog.cli.main import parser
from indexlog.delta import DeltaReport


async def test_what_was_exported_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[tuple[Any, ...]] = []

    async def export(log: object, url: str, **options: Any) -> DeltaReport:
        asked.append((log, url, options))
        return DeltaReport(3, 17, 1200, 2)

    monkeypatch.setattr("indexlog.delta.export_delta", export)
    given = parser().parse_args(["-c", "x.toml", "export-delta", "--index", "a", "--index", "b", "file:///t"])
    log: Any = object()
    assert await export_table(log, given, "ldindex") == 0
    assert asked == [(log, "file:///t", {"indexes": ["a", "b"], "live_tail": True})]
    assert "1200 documents of 2 indexes, state 17, are version 3" in capsys.readouterr().err
    given = parser().parse_args(["-c", "x.toml", "export-delta", "--dealt-only", "file:///t"])
    await export_table(log, given, "ldindex")
    assert asked[1][2] == {"indexes": [], "live_tail": False}
