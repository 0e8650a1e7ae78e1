"""The console in a real browser, on a cluster of which a node dies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from server.dev.local_cluster import LocalCluster
from tests.integration.browser import chromium, page_of
from tests.integration.test_console import HOSTILE, url


async def test_a_node_dies_while_somebody_looks_and_hostile_payloads_stay_text() -> None:
    path = chromium()
    errors: list[str] = []
    requested: list[str] = []
    async with (
        LocalCluster(nodes=3, replicate="rack:2,node:2", racks=3, logs=4) as cluster,
        cluster.client() as client,
        page_of(path, viewport={"width": 1280, "height": 800}) as page,
    ):
        await client.append(1, HOSTILE.encode(), key=HOSTILE.encode())
        receipt = await client.append(1, json.dumps({"name": HOSTILE, "n": [1, 2]}).encode())
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("request", lambda request: requested.append(request.url))
        base = url(cluster, "/")
        await page.goto(base)
        await page.wait_for_selector(".node.ok >> nth=2")
        await page.wait_for_selector("text=All 3 nodes answer, and nothing is wrong.")

        # keys lead everywhere; a row opens with Enter
        await page.keyboard.press("g")
        await page.keyboard.press("l")
        await page.wait_for_selector("h1:has-text('Logs')")
        await page.wait_for_selector("tr.row >> nth=3")
        await page.keyboard.press("/")
        await page.keyboard.type("/logs/1")
        await page.wait_for_selector("text=1 of 4 logs")
        await page.focus("tr.row")
        await page.keyboard.press("Enter")
        await page.wait_for_selector("text=What it survives")
        assert "without any one" in await page.inner_text(".survives")
        await page.click("text=Browse records")

        # a payload is text, whatever it says
        await page.click(f".records summary:has-text('{receipt.lsn}')")
        shown = await page.inner_text(".records details[open] pre")
        assert json.loads(shown.replace("\\u202e", "\u202e")) == {"name": HOSTILE, "n": [1, 2]}
        summary = await page.inner_text(".records details >> nth=0")
        assert HOSTILE.replace("\u202e", "\\u202e")[:40] in summary
        assert await page.eval_on_selector_all("main img, main script", "found => found.length") == 0
        assert await page.title() != "1"
        with pytest.raises(Exception, match="TrustedHTML"):
            await page.evaluate("document.body.innerHTML = '<b>x</b>'")

        # SQL
        await page.goto(f"{base}#/sql")
        await page.fill("textarea", "SELECT node_id, readiness FROM info ORDER BY node_id")
        await page.keyboard.press("Control+Enter")
        await page.wait_for_selector("text=3 rows in")
        assert (await page.inner_text("tbody")).split() == ["0", "OK", "1", "OK", "2", "OK"]

        # a node dies: the page says so by itself, and what to do
        await page.goto(f"{base}#/cluster")
        await page.wait_for_selector(".node.ok >> nth=2")
        await cluster.stop_node(2)
        await page.wait_for_selector(".node.bad:has-text('N2')")
        advice = await page.inner_text(".problems")
        assert "Start it again" in advice
        await page.click(".node.bad")
        await page.wait_for_selector("h1:has-text('N2')")
        await cluster.start_node(2)
        await page.goto(f"{base}#/cluster")
        await page.wait_for_selector(".node.ok:has-text('N2')")

        # the node that serves the page goes: what is shown is marked as old
        await page.route("**/v1/console/events", lambda route: route.abort())
        await page.reload()
        await page.wait_for_selector("text=connection lost")
        assert await page.is_hidden("#stale"), "there is nothing to be old"
        await page.unroute("**/v1/console/events")
        await page.wait_for_selector(".node.ok >> nth=2")
        await _is_accessible(page)
        errors[:] = [each for each in errors if "ERR_FAILED" not in each]
        await cluster.stop_node(0)
        await page.wait_for_selector("#stale:has-text('What is shown was true at')")
        errors[:] = [each for each in errors if "ERR_" not in each]
        assert not [each for each in errors if "TrustedHTML" not in each], errors
        foreign = [each for each in requested if not each.startswith(base)]
        assert not foreign
        assert len(requested) > 10


async def _is_accessible(page: Any) -> None:
    """Controls have names, text has contrast, in both colour schemes."""
    pages = ("cluster", "logs", "waits", "shards", "sql", "log/1", "records/1", "node/0")
    looked_at = 0
    for name in pages:
        await page.evaluate(f"location.hash = '#/{name}'")
        await page.wait_for_selector("h1")
        for scheme in ("light", "dark"):
            await page.emulate_media(color_scheme=scheme)
            found = await page.evaluate(_CHECKS)
            assert found["problems"] == [], (name, scheme)
            assert found["texts"] > 5
            looked_at += 1
    assert looked_at == 2 * len(pages)


_CHECKS = """() => {
  const problems = [];
  const name = each => each.getAttribute("aria-label") || each.textContent.trim() || each.labels?.[0]?.textContent.trim() || each.title;
  for (const each of document.querySelectorAll("a, button, input, select, textarea, nav, dialog[open], [role=region]"))
    if (each.checkVisibility() && !name(each)) problems.push("no name: " + each.outerHTML.slice(0, 80));
  const channel = value => (value /= 255) <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const colour = text => (text.match(/[\\d.]+/g) || [0, 0, 0, 0]).map(Number);
  const behind = each => {
    for (let at = each; at; at = at.parentElement) {
      const found = colour(getComputedStyle(at).backgroundColor);
      if (found.length < 4 || found[3] > 0.99) return found;
    }
    return [255, 255, 255];
  };
  let texts = 0;
  for (const each of document.querySelectorAll("body *")) {
    if (!each.checkVisibility() || each.disabled || each.closest(".sr, .skip") || ![...each.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    texts++;
    const [a, b] = [luminance(colour(getComputedStyle(each).color)), luminance(behind(each))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)}: ${each.outerHTML.slice(0, 80)}`);
  }
  if (document.querySelectorAll("h1").length !== 1) problems.push("one h1 is needed");
  if (document.querySelectorAll("[id]").length !== new Set([...document.querySelectorAll("[id]")].map(each => each.id)).size) problems.push("an id is there twice");
  return { problems, texts };
}"""
