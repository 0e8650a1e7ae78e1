"""How fast the console answers in a real browser, with 1,000 logs and 60 nodes that are made up. By the clock: `tests.integration.console_figures`."""

from __future__ import annotations

from typing import Any

from tests.integration.browser import chromium, page_of
from tests.integration.console_figures import ANSWERED_MS, FILTERED, LARGE, PAINTED_MS, SCROLLED, TYPED
from tests.integration.made_up_cluster import made_up_console


async def _spent(session: Any) -> float:
    """Milliseconds of a processor that the page's thread has worked: what else the machine does counts for nothing."""
    found = await session.send("Performance.getMetrics")
    return 1000 * next(float(each["value"]) for each in found["metrics"] if each["name"] == "TaskDuration")


async def test_a_thousand_logs_are_filtered_and_scrolled_at_once() -> None:
    async with made_up_console(LARGE) as base, page_of(chromium(), viewport={"width": 1360, "height": 850}) as page:
        session = await page.context.new_cdp_session(page)
        await session.send("Performance.enable", {"timeDomain": "threadTicks"})
        await page.goto(base)
        await page.wait_for_selector(".node.ok >> nth=59")
        figures = {"cluster": await _spent(session)}
        await page.evaluate("location.hash = '#/logs'")
        await page.wait_for_selector("text=1,000 logs")
        drawn = await page.eval_on_selector_all("tr.row", "rows => rows.length")
        assert 20 < drawn <= 60, "only rows that can be seen are in the document"
        seen = {}
        for name, script, given in (("filter", FILTERED, TYPED), ("scroll", SCROLLED, None)):
            before = await _spent(session)
            taken = sorted(await page.evaluate(script, given))
            figures[name] = (await _spent(session) - before) / len(taken)
            seen[name] = taken[len(taken) // 2]
        print(
            {name: f"{value:.0f} ms of a processor" for name, value in figures.items()},
            {name: f"{value:.0f} ms" for name, value in seen.items()},
        )
        assert figures["filter"] < ANSWERED_MS, figures
        assert figures["scroll"] < ANSWERED_MS, figures
        assert figures["cluster"] < PAINTED_MS, figures

        await page.fill("#filter", "no such log")
        assert await page.inner_text("td.empty") == "Nothing matches."
        await page.fill("#filter", "service-3/events/9")
        found = sum("service-3/events/9" in row["path"] for row in LARGE["logs"]["logs"])
        await page.wait_for_selector(f"text={found} of 1,000 logs")
        await page.wait_for_url("**/#/logs?filter=service-3*")
        await page.fill("#filter", "")
        await page.click("th button:has-text('path')")
        assert (await page.inner_text("tr.row")).split()[1] == "/team0/service-0/events/140"
