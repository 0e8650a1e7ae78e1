"""A headless Chromium for tests, where there is one: Debian's package and Playwright from the package index."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str:
    """Its path. The test is skipped where it is missing."""
    pytest.importorskip("playwright", reason="Playwright is not installed: pip install playwright")
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("there is no Chromium: apt-get install chromium")
    return found


@asynccontextmanager
async def page_of(path: str, **options: Any) -> AsyncIterator[Any]:
    """A page of a browser of its own; ``page.errors`` takes what goes wrong in it, refused content included."""
    from playwright.async_api import async_playwright

    async with async_playwright() as playwright:
        # as root Chromium has no sandbox; what it loads is our own
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            page = await browser.new_page(**options)
            page.set_default_timeout(20_000)
            yield page
        finally:
            await browser.close()
