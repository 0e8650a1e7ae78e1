"""What shuts people out of a page: axe-core looks for it in a browser."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import pytest


async def violations(page: Any) -> list[str]:
    """All violations on a page, best practices included: the rule, where, and what is wrong. The test is skipped where axe-core is missing."""
    pytest.importorskip("axe_playwright_python", reason="axe-core is not installed: pip install axe-playwright-python")
    if not await page.evaluate("'axe' in window"):
        await page.evaluate((files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8"))
    found = await page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert len(found["passes"]) > 10, "it looked at nothing"
    return [
        f"{rule['id']}: {node['target']}: {node['failureSummary']}: {node['html'][:120]}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
