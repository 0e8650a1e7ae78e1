"""Pages of the console in a real browser, with made-up answers: what is old says so, what is not known is not shown as nothing, and windows may be narrow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.integration.browser import chromium, page_of
from tests.integration.made_up_cluster import everything, made_up_console
from tests.integration.test_console_accessible import PAGES


@asynccontextmanager
async def console(answers: dict[str, Any] | None = None, **options: Any) -> AsyncIterator[Any]:
    """The page of the cluster; time stops where a test does not move it."""
    async with made_up_console(answers or everything()) as base, page_of(chromium(), **options) as page:
        await page.clock.install()
        await page.goto(base)
        await page.wait_for_selector(".node >> nth=5")
        yield page


async def open_page(page: Any, name: str, there: str) -> None:
    await page.evaluate(f"location.hash = '#/{name}'")
    await page.wait_for_selector(there)


async def test_a_node_that_says_nothing_any_more_is_not_live() -> None:
    async with console() as page:
        assert await page.inner_text("#live") == "live"
        await page.clock.fast_forward(40_000)
        assert await page.is_hidden("#stale"), "it looks every two seconds, and may take some for that"
        await page.clock.fast_forward(5_000)
        await page.wait_for_selector("#stale:has-text('What is shown was true at')")
        assert await page.get_attribute("#live", "title") == "the node says nothing any more"
        await page.clock.fast_forward(1_000)
        await page.wait_for_selector("#live:has-text('live')")
        assert await page.is_hidden("#stale")


async def test_what_is_not_known_of_a_silent_node_is_not_nothing() -> None:
    answers = everything()
    silent = answers["state"]["nodes"][2]
    silent.update(shards=[], entries=0, bytes=0, busy_logs=0, readiness=None, version=None)
    async with console(answers) as page:
        assert await page.inner_text(".tile:has-text('Stored') dd") == "at least 18.0 GB"
        await open_page(page, "node/2", "text=not known: it does not answer")
        load = await page.inner_text(".panel:has(h2:text-is('Load'))")
        assert "0 B" not in load
        await open_page(page, "node/1", "text=logs with appends")
        assert "2.0 GB" in await page.inner_text(".panel:has(h2:text-is('Load'))")
        await open_page(page, "shards", "text=N2 did not answer")


async def test_keys_walk_through_a_table_wherever_a_key_led() -> None:
    async with console() as page:
        await page.keyboard.press("g")
        await page.keyboard.press("l")
        await page.wait_for_selector("tr.row >> nth=5")
        await page.keyboard.press("j")
        assert await page.evaluate("document.activeElement.matches('tr.row')")


async def test_who_does_not_give_a_token_is_asked_once() -> None:
    async with console() as page:
        refused = 0

        async def refuse(route: Any) -> None:
            nonlocal refused
            refused += 1
            await route.fulfill(status=401, json={"error": {"status": "ACCESS", "detail": "show the token"}})

        await page.route("**/v1/console/logs", refuse)
        await page.evaluate("location.hash = '#/logs'")
        await page.wait_for_selector("#access[open]")
        await page.keyboard.press("Escape")
        for _ in range(5):
            await page.clock.fast_forward(30_000)
        assert await page.query_selector("#access[open]") is None
        assert refused == 1


async def test_what_is_shown_stays_and_is_said_to_be_old_when_a_question_fails() -> None:
    async with console() as page:
        await open_page(page, "logs", "tr.row >> nth=5")
        await page.route("**/v1/console/logs", lambda route: route.abort())
        await page.clock.fast_forward(30_000)
        await page.wait_for_selector("main .note:has-text('What is shown was true at')")
        assert await page.query_selector("tr.row >> nth=5") is not None


async def test_a_verdict_on_safety_tells_when_and_is_looked_for_again_when_a_node_changes() -> None:
    answers = everything()
    async with console(answers) as page:
        await open_page(page, "safety?who=N3", "text=not safe")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if "/check" in request.url else None)
        assert "True at" in await page.inner_text("main .note[role=status]")
        answers["state"]["nodes"][2]["answers"] = True
        await page.clock.fast_forward(45_000)  # the connection is silent, and another one tells the new state
        await page.clock.fast_forward(1_000)
        await page.wait_for_selector("#live:has-text('live')")
        await page.wait_for_selector("text=True at")
        assert len(asked) == 1


@pytest.mark.parametrize("width", [360, 800])
async def test_no_page_is_wider_than_a_narrow_window(width: int) -> None:
    answers = everything()
    answers["state"]["busiest"][0].update(path="/a/very/long/path/of/a/log/that/somebody/made", entries=123456.7)
    async with console(answers, viewport={"width": width, "height": 800}) as page:
        for name, there in {"cluster": ".node >> nth=5", **PAGES}.items():
            await open_page(page, name, there)
            wide = await page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, (name, wide)
