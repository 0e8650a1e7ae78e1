"""`tests.dead_code` tells what nobody uses, and nothing that is declared."""

from __future__ import annotations

from pathlib import Path

from tests.dead_code import declared, entry_points


def test_declared_names_are_known(tmp_path: Path) -> None:
    path = tmp_path / "metrics.py"
    path.write_text("class A:\n    sent: int = counter('x', unit='y')\n    other: int = 0\n    rows: list = field()\n")
    assert list(declared(path)) == ["sent"]
    assert "ldquery" in set(entry_points())
