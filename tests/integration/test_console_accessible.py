"""All pages of the console, light and dark, by axe-core in a real browser."""

from __future__ import annotations

from tests.integration.accessibility import violations
from tests.integration.browser import chromium, page_of
from tests.integration.made_up_cluster import everything, made_up_console

PAGES = {
    "cluster": ".node >> nth=5",
    "node/2": "text=May it go",
    "logs": "tr.row",
    "records/1": ".records details",
    "streams": "tr.row >> nth=6",
    "stream//streams/a": "tr.row >> nth=4",
    "indexlogs": "tr.row >> nth=2",
    "index//indexlog/books": "tr.row >> nth=1",
    "waits": "tr.row",
    "shards": "tr.row >> nth=6",
    "maintenances": ".problems li >> nth=4",
    "safety?who=N2": "text=What comes next",
    "sql": "details",
    "access": "tr.row",
}
"""What is there when a page is."""


async def test_no_page_shuts_anybody_out() -> None:
    errors: list[str] = []
    async with (
        made_up_console(everything()) as base,
        page_of(chromium(), viewport={"width": 1280, "height": 800}) as page,
    ):
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(base)
        for name, there in PAGES.items():
            await page.evaluate(f"location.hash = '#/{name}'")
            await page.wait_for_selector(there)
            if name.startswith("records"):
                await page.click("summary")
            for scheme in ("light", "dark"):
                await page.emulate_media(color_scheme=scheme)
                assert await violations(page) == [], (name, scheme)
        for key, dialog in (("?", "#keys"), ("a", "#access")):
            await page.keyboard.press(key)
            await page.wait_for_selector(f"{dialog}[open]")
            assert await violations(page) == [], dialog
            await page.keyboard.press("Escape")
        assert errors == []

        # what it is there for is found
        await page.evaluate("document.querySelector('.chip').style.color = '#777'")
        await page.evaluate(
            "document.querySelector('#help').removeAttribute('aria-label'); document.querySelector('#help').textContent = ''"
        )
        found = {each.partition(":")[0] for each in await violations(page)}
        assert {"button-name", "color-contrast"} <= found
