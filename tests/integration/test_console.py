"""The console of a node: its pages and what they ask for, over real HTTP."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from logdevice_py.config.admin import admin_endpoint
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId
from logdevice_py.core.lsn import LSN
from logdevice_py.runtime.admin_token import node_token
from server.console.pages import DIRECTORY
from server.dev.local_cluster import LocalCluster
from tests.integration.test_admin_api import one_node
from tests.integration.test_ldctl import ldctl

HOSTILE = '<img src=x onerror="document.title=1">\u202e</script>'


def url(cluster: LocalCluster, path: str, node: int = 0) -> str:
    config = load_cluster(Path(cluster.config_file).read_text())
    endpoint = admin_endpoint(config, config.nodes[NodeId(node)])
    assert endpoint is not None
    return f"http://{endpoint.host}:{endpoint.port}{path}"


@asynccontextmanager
async def browser_of(cluster: LocalCluster) -> AsyncIterator[aiohttp.ClientSession]:
    """What a browser does, without one; with the token."""
    token = node_token(Path(cluster.config_file), "")
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
        yield session


async def states(session: aiohttp.ClientSession, cluster: LocalCluster) -> AsyncIterator[dict[str, Any]]:
    """The states that are told, one after the other."""
    async with session.get(url(cluster, "/v1/console/events")) as answer:
        assert answer.status == 200
        assert answer.content_type == "text/event-stream"
        async for line in answer.content:
            if line.startswith(b"data: "):
                yield json.loads(line[6:])


async def get(session: aiohttp.ClientSession, cluster: LocalCluster, path: str) -> tuple[int, Any]:
    return await asked(lambda: session.get(url(cluster, f"/v1/console/{path}")))


async def asked(request: Callable[[], Any], *, until: Sequence[str] = ()) -> tuple[int, Any]:
    """Status and answer; on a busy machine a worker that starts may take longer than a request may, so it is asked again."""
    async with asyncio.timeout(90):
        while True:
            async with request() as answer:
                content = await answer.json()
                error = content.get("error", {})
                if answer.status != 504 or any(words in error["detail"] for words in until):
                    return answer.status, content


async def test_pages_need_nothing_from_elsewhere_and_run_only_themselves() -> None:
    async with LocalCluster(nodes=1) as cluster, aiohttp.ClientSession() as stranger:
        paths = ["/", *(f"/console/{file.name}" for file in DIRECTORY.iterdir() if file.name != "index.html")]
        assert len(paths) > 8
        for path in paths:
            async with stranger.get(url(cluster, path)) as answer:
                text = await answer.text()
                assert answer.status == 200, path
                policy = answer.headers["Content-Security-Policy"]
                assert "unsafe" not in policy
                assert policy.startswith("default-src 'none'; script-src 'self';")
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
            external = set(re.findall(r"(?:https?:)?//[\w.]+", text)) - {"http://www.w3.org"}
            assert not [each for each in external if "." in each], path
        async with stranger.get(url(cluster, "/console/../console.py")) as answer:
            assert answer.status in (401, 404)
        async with stranger.post(url(cluster, "/")) as answer:
            assert answer.status == 405


async def test_who_may_not_read_is_told_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    async with one_node(directory, {}, token=True) as cluster, aiohttp.ClientSession() as stranger:
        asked = 0
        for path in ("events", "logs", "log?log=1", "records?log=1"):
            status, answer = await get(stranger, cluster, path)
            asked += 1
            assert (status, answer["error"]["status"]) == (401, "ACCESS"), path
        async with stranger.post(url(cluster, "/v1/console/sql"), json={"sql": "SELECT * FROM info"}) as refused:
            assert refused.status == 401
        assert asked == 4
        async with browser_of(cluster) as session:
            status, found = await get(session, cluster, "log?log=1")
            assert (status, found["silent"]) == (200, {}), "the worker has the token"


async def test_the_state_follows_a_node_that_dies() -> None:
    async with LocalCluster(nodes=3, replicate="node:2", racks=3) as cluster, browser_of(cluster) as session:
        async with asyncio.timeout(40):
            told = states(session, cluster)
            async for state in told:
                if not state["problems"]:
                    break
            assert [each["answers"] for each in state["nodes"]] == [True, True, True]
            assert state["nodes"][0]["shards"][0]["status"] == "OK"
            await cluster.stop_node(2)
            async for state in told:
                if not state["nodes"][2]["answers"]:
                    break
            problem = next(each for each in state["problems"] if each["where"] == "N2")
            assert problem["severity"] == "bad"
            assert "Start it again" in problem["do"]
            await told.aclose()


async def test_logs_a_log_and_its_records_with_gaps() -> None:
    async with LocalCluster(nodes=3, replicate="node:2") as cluster, cluster.client() as client:
        receipts = [
            await client.append(1, payload, key=b"k")
            for payload in (b'{"a": 1}', HOSTILE.encode(), b"\xff\x00binary", b"")
        ]
        await client.append(1, b"x" * 5000)
        await client.trim(1, receipts[0].lsn)
        async with browser_of(cluster) as session:
            status, found = await get(session, cluster, "logs")
            assert status == 200
            row = found["logs"][0]
            assert (row["log_id"], row["copies"], row["replicate"]) == (1, "OK", "node:2")
            assert row["head"] == str(receipts[1].lsn)
            status, found = await get(session, cluster, "log?log=1")
            assert status == 200, found
            assert "keeps every record that was looked at: without any one node" in found["survives"]
            assert sum(each["entries"] for each in found["copysets"]) >= 4
            assert found["states"][0]["trim_point"] == str(receipts[0].lsn)
            status, found = await get(session, cluster, "records?log=1&from=oldest&limit=20")
            assert status == 200, found
            gaps = [each for each in found["items"] if "gap" in each]
            assert gaps == [
                {"gap": "BRIDGE", "lo": "e0n1", "hi": "e1n0", "loss": ""},
                {"gap": "TRIM", "lo": "e1n1", "hi": str(receipts[0].lsn), "loss": ""},
            ]
            records = [each for each in found["items"] if "payload" in each]
            assert [bytes.fromhex(each["payload"]) for each in records[:3]] == [
                HOSTILE.encode(),
                b"\xff\x00binary",
                b"",
            ]
            assert records[0]["lsn"] == str(receipts[1].lsn)
            assert (records[3]["size"], len(records[3]["payload"])) == (5000, 2 * 4096)
            assert found["next"] is None
            status, found = await get(session, cluster, f"records?log=1&from={receipts[2].lsn}&limit=1")
            assert [each["lsn"] for each in found["items"]] == [str(receipts[2].lsn)]
            assert found["next"] == str(receipts[3].lsn)


async def test_records_before_a_change_of_epoch_are_found_from_the_tail() -> None:
    async with LocalCluster(nodes=3, replicate="node:2") as cluster, cluster.client() as client:
        lsns = [str((await client.append(1, b"%d" % number)).lsn) for number in range(5)]
        status, _, err = await ldctl(cluster, "recovery", "1")
        assert status == 0, err
        async with browser_of(cluster) as session:

            async def page(start: str) -> tuple[list[str], str | None]:
                status, found = await get(session, cluster, f"records?log=1&from={start}&limit=2")
                assert status == 200, found
                return [each["lsn"] for each in found["items"] if "lsn" in each], found["previous"]

            assert LSN.parse((await get(session, cluster, "records?log=1"))[1]["tail"]).epoch == 2
            shown, previous = await page("tail")
            assert (shown, previous) == (lsns[3:], lsns[1]), "of the new epoch there is nothing yet"
            lsns.append(str((await client.append(1, b"5")).lsn))
            shown, previous = await page("tail")
            assert (shown, previous) == (lsns[4:], lsns[2]), "what is before the change counts as well"
            shown, previous = await page(lsns[5])
            assert (shown, previous) == (lsns[5:], lsns[3])
            assert (await page(lsns[1]))[1] == lsns[0]
            await client.trim(1, LSN.parse(lsns[1]))
            assert (await page(lsns[5]))[1] == lsns[3]
            assert (await page(lsns[0]))[1] is None, "nothing lies before"


async def test_wrong_questions_are_answered_with_what_is_wrong() -> None:
    wrong = {
        "log?log=99": (404, "99"),
        "log": (400, "log: is missing"),
        "records?log=1&from=nonsense": (400, "from"),
        "records?log=1&limit=100000": (400, "limit"),
        "check": (400, "who: is missing"),
        "check?who=N9": (400, "no such node"),
        "stream?stream=/streams/none": (404, "there is no stream /streams/none"),
        "index-files?index=/indexlog/none": (404, "there is no index"),
        "nothing": (404, "no such page"),
    }
    async with LocalCluster(nodes=1) as cluster, browser_of(cluster) as session:
        for path, (code, words) in wrong.items():
            status, answer = await get(session, cluster, path)
            assert status == code, answer
            assert words in answer["error"]["detail"]
        # where nothing of a kind is, nothing is told, and nobody begins a log to find out
        status, found = await get(session, cluster, "streams")
        assert (status, found["namespaces"], found["streams"]) == (200, [], [])
        status, found = await get(session, cluster, "index-logs")
        assert (status, found["index_logs"]) == (200, [])
        status, found = await get(session, cluster, "maintenances")
        assert (status, found["live"], found["ended"]) == (200, [], [])
        status, found = await get(session, cluster, "access?from=spoofed")
        assert (status, found["token"], found["from"]) == (200, "shown", "127.0.0.1")


async def test_the_safety_check_says_what_would_be_lost_and_what_is_safe() -> None:
    async with (
        LocalCluster(nodes=4, replicate="node:2") as cluster,
        cluster.client() as client,
        browser_of(cluster) as session,
    ):
        await client.append(1, b"x")
        status, out, err = await ldctl(cluster, "check-impact", "N1")
        assert (status, err) == (0, "")
        assert out.startswith("safe: N1 may go: 1 logs in use and the metadata logs keep data")
        status, out, err = await ldctl(cluster, "check-impact", "N1", "N2")
        assert status == 5
        assert out.splitlines()[0] == "not safe: N1, N2 at once"
        losses = [line.split()[0] for line in out.splitlines()[2:]]
        assert {"DATA", "READS", "RECOVERY"} <= set(losses)
        assert "APPENDS" not in losses
        assert "one after the other is safe" in err
        status, out, err = await ldctl(cluster, "--json", "check-impact", "--copysets", "N0", "N1", "N2", "N3")
        told = json.loads(out)
        assert (status, told["safe"]) == (5, False)
        assert "no node with the role sequencer would be left: nothing is appended then" in told["advice"]
        status, found = await get(session, cluster, "check?who=N0,N1,N2,N3&one_by_one=1")
        assert (status, found["safe"]) == (200, True), found
        status, out, err = await ldctl(cluster, "doctor")
        assert (status, err) == (5, "")
        assert (
            "rebuilding is off: nobody re-replicates what a lost disk or node held\n      -> Take enabled = false out of"
            in out
        )
        assert "clock" not in out, "they share one"
        await cluster.stop_node(3)
        status, found = await get(session, cluster, "check?who=N1")
        assert (status, found["safe"]) == (200, False)
        assert found["advice"] == ["N3: does not answer and counts as away: bring it back first, then check again"]
        status, found = await get(session, cluster, "check?who=N3")
        assert (status, found["safe"]) == (200, True), "it is away already"


async def test_sql_reads_and_nothing_else_and_is_ended_when_it_takes_too_long() -> None:
    async with LocalCluster(nodes=2, replicate="node:2") as cluster, browser_of(cluster) as session:

        async def run(statement: str) -> tuple[int, Any]:
            target = url(cluster, "/v1/console/sql")
            return await asked(lambda: session.post(target, json={"sql": statement}), until=("was ended",))

        status, found = await run("SELECT node_id, readiness FROM info ORDER BY node_id")
        assert (status, found.get("rows")) == (200, [[0, "OK"], [1, "OK"]]), found
        status, found = await run("SELECT 9007199254740993, 9e999, x'ff00', NULL")
        assert found["rows"] == [["9007199254740993", "inf", "x'ff00'", None]]
        status, found = await run("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT i FROM n")
        assert (status, found["more"], len(found["rows"])) == (200, True, 2000)
        status, found = await run("CREATE TABLE t(x)")
        assert (status, found["error"]["detail"]) == (400, "only SELECT is allowed here")
        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT max(i) FROM n"
        status, found = await run(endless)
        assert (status, found["error"]["status"]) == (504, "TIMEDOUT")
        async with session.post(url(cluster, "/v1/console/sql"), data='{"sql": "SELECT 1"}') as answer:
            assert answer.status == 400, "a form of another page could send it"
        status, found = await run("")
        assert "waits" in [each["name"] for each in found["tables"]]


async def test_consoles_beyond_the_limit_are_refused_and_requests_still_answered() -> None:
    async with LocalCluster(nodes=1) as cluster, browser_of(cluster) as session:
        streams = []
        for _ in range(8):
            answer = await session.get(url(cluster, "/v1/console/events"))
            assert answer.status == 200
            streams.append(answer)
        refused = await session.get(url(cluster, "/v1/console/events"))
        assert refused.status == 429
        async with session.get(url(cluster, "/v1/node")) as answer:
            assert answer.status == 200
        for answer in streams:
            answer.close()
