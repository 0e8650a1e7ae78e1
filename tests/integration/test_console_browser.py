"""The console in a real browser, on a cluster of which a node dies."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from client.client import Client
from indexlog.index_log import IndexLog, make_index_log
from server.dev.local_cluster import LocalCluster
from streams.namespace import Namespace
from streams.stream_subscriptions import Subscription
from tests.integration.accessibility import violations
from tests.integration.browser import chromium, page_of
from tests.integration.test_console import HOSTILE, url
from tests.integration.test_ldctl import ldctl


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
        await page.wait_for_selector(
            ".problems:has-text('Start it again')"
        )  # it answers that it stops, and then nothing
        assert await violations(page) == []
        await page.click(".node.bad")
        await page.wait_for_selector("h1:has-text('N2')")
        await cluster.start_node(2)
        await page.goto(f"{base}#/cluster")
        await page.wait_for_selector(".node.ok:has-text('N2')")

        # the node that serves the page goes: what is shown is marked as old
        await page.route("**/v1/console/events", lambda route: route.abort())
        await page.reload()
        await page.wait_for_selector("text=connection lost")
        await page.wait_for_selector("#stale:has-text('This node does not tell how the cluster is')")
        await page.unroute("**/v1/console/events")
        await page.wait_for_selector(".node.ok >> nth=2")
        assert await page.is_hidden("#stale")
        errors[:] = [each for each in errors if "ERR_FAILED" not in each]
        await cluster.stop_node(0)
        await page.wait_for_selector("#stale:has-text('What is shown was true at')")
        errors[:] = [each for each in errors if "ERR_" not in each]
        assert not [each for each in errors if "TrustedHTML" not in each], errors
        external = [each for each in requested if not each.startswith(base)]
        assert not external
        assert len(requested) > 10


async def _fill(client: Client, directory: Path) -> None:
    """Streams that are read and owned, an index log with files and more to deal."""
    async with Namespace(client, "/streams") as namespace:
        orders = await namespace.create("team/orders", txid="writer")
        async with orders.writer() as writer:
            for number in range(1, 6):
                await writer.write(HOSTILE.encode(), txid=number)
        async with orders.reader(Subscription("billing")) as reader:
            await reader.read(2)
            await reader.commit()
        ledger = await namespace.create("ledger", writers="exclusive")
        async with ledger.exclusive_writer(owner=HOSTILE[:20]) as owner:
            await owner.write(b"opened")
    await make_index_log(client, f"file://{directory}", raw_logs=1)
    async with IndexLog(client) as log, log.writer() as writer_of_index:
        await writer_of_index.put("books", "walden", {"title": "Walden"})
        await log.deal()
        await writer_of_index.put("books", "dune", {"title": "Dune"})


PAGES = {
    "cluster": ".node >> nth=2",
    "logs": "tr.row >> nth=3",
    "log/1": "text=What it survives",
    "records/1": ".records li",
    "node/0": "text=May it go away?",
    "streams": "tr.row:has-text('team/orders') >> nth=1",
    "stream//streams/team/orders": "tr.row:has-text('billing')",
    "indexlogs": "text=waits to be dealt",
    "index//indexlog/books": "tr.row:has-text('unsorted')",
    "waits": "h1:has-text('Waits')",
    "shards": "tr.row >> nth=2",
    "maintenances": ".problems li >> nth=1",
    "safety?who=N2": "text=What comes next",
    "sql": "details",
    "access": "tr.row >> nth=1",
}
"""What is there when a page is."""


@pytest.mark.slow
async def test_all_pages_show_what_they_are_for(tmp_path: Path) -> None:
    errors: list[str] = []
    async with (
        LocalCluster(nodes=3, replicate="node:2", logs=4, log_tree=True) as cluster,
        cluster.client() as client,
        page_of(chromium(), viewport={"width": 1360, "height": 850}) as page,
    ):
        await client.append(1, HOSTILE.encode())
        await _fill(client, tmp_path)
        status, _, err = await ldctl(
            cluster,
            "maintenance",
            "apply",
            "N1",
            "--may-disappear",
            "--for",
            "1h",
            "--within",
            "1min",
            "--reason",
            HOSTILE,
        )
        assert status == 0, err
        await ldctl(cluster, "maintenance", "apply", "N2", "--drain", "--no-wait")
        page.set_default_timeout(120_000)  # a question that took too long is asked again after a while
        page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(url(cluster, "/"))
        seen = {}
        for name, there in PAGES.items():
            await page.evaluate(f"location.hash = '#/{name}'")
            await page.wait_for_selector(there)
            seen[name] = await page.inner_text("main")
        assert "3 entries" in seen["streams"], "billing has handled two of five"
        assert "ago" in seen["stream//streams/team/orders"]
        assert "1 entry" in seen["indexlogs"]
        assert "It waits because" in seen["maintenances"]
        assert "may disappear until" in seen["maintenances"]
        assert "Others may take away N1 (maintenance 1 of" in seen["safety?who=N2"]
        assert "ldctl maintenance apply N2" in seen["safety?who=N2"]
        assert "You have not shown the token" in seen["access"] or "This node has no token" in seen["access"]

        # what others may take away is counted when somebody says so
        await page.evaluate("location.hash = '#/safety?who=N2'")
        await page.click("text=Count them as going")
        await page.wait_for_selector(".banner.bad:has-text('Not safe')")

        # keys lead to each page
        await page.focus("main")
        for key, title in (("t", "Streams"), ("i", "Index logs"), ("m", "Maintenances"), ("a", "Access")):
            await page.keyboard.press("g")
            await page.keyboard.press(key)
            await page.wait_for_selector(f"h1:has-text('{title}')")
        # a busy machine refuses or ends questions, which are asked again
        assert [each for each in errors if "429" not in each and "504" not in each] == []
