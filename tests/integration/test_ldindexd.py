"""``ldindexd``: pages over HTTP, in Arrow and JSON, as its description says; and a process that is killed between two pages."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from prometheus_client.parser import text_string_to_metric_families

from client.client import Client
from indexlog.columns import rows_of
from indexlog.index_log import IndexLog, make_index_log
from indexlog.paging import PageToken
from indexlog.planning import ALL_AT_ONCE
from indexlog.records import LogRecord, Modification, document, merge
from indexlog.serving.api import ARROW
from indexlog.serving.service import IndexService
from logdevice_py.config.admin import AdminEndpoint
from logdevice_py.programs import own_program
from logdevice_py.runtime.transport import bind
from server.dev.free_ports import free_ports
from server.dev.local_cluster import LocalCluster
from tests.integration.process_cluster import process_cluster

TOKEN = "a secret of some length"
HOST = "127.0.0.1"


class Asker:
    """Sends requests to one service."""

    def __init__(self, log: IndexLog, session: aiohttp.ClientSession, url: str) -> None:
        self.log = log
        self.session = session
        self.url = url
        self.token = TOKEN

    async def __call__(self, path: str, *, accept: str = "*/*", **query: str | int) -> tuple[int, bytes]:
        headers = {"Accept": accept, "Authorization": f"Bearer {self.token}"}
        async with self.session.get(self.url + path, params=query, headers=headers) as answer:
            return answer.status, await answer.read()

    async def json(self, path: str, **query: str | int) -> Any:
        """An answer in JSON; it is no error."""
        status, body = await self(path, **query)
        assert status == 200, body
        return json.loads(body)


@pytest.fixture
async def ask(tmp_path: Path) -> AsyncIterator[Asker]:
    """A service with an index of 40 documents, some of them not dealt, and pages of all sources."""
    async with (
        LocalCluster(nodes=3, replicate="node:2", log_tree=True) as cluster,
        cluster.client() as client,
        aiohttp.ClientSession() as session,
    ):
        await make_index_log(client, f"file://{tmp_path}/store", raw_logs=2)
        async with IndexLog(client) as log, log.writer() as writer:
            for number in range(40):
                change = Modification(True, {"n": str(number)}, {1: number / 2}, {"kind": "ü"})
                await writer.append(LogRecord("books", f"doc-{number:02}", change))
                if number == 10:
                    await writer.put("songs", "a", {})
                if number in (10, 20, 30):
                    await writer.delete("books", f"doc-{number:02}")
                    await log.deal()
                if number in (10, 20):
                    await log.optimize(ALL_AT_ONCE)
            await writer.patch("books", "doc-05", variables={2: 1.0})
            (port,) = free_ports(1, HOST)
            async with IndexService(log, AdminEndpoint(HOST, port, True), token=TOKEN) as service:
                await service.listen_on(bind(HOST, port))
                yield Asker(log, session, f"http://{HOST}:{port}")


async def test_pages_in_json_and_arrow_are_those_of_the_library(ask: Asker) -> None:
    expected = await ask.log.documents("books")
    assert len(expected) == 37
    token: dict[str, str] = {}
    sources, compared = [], 0
    in_json: dict[str, Modification] = {}
    in_arrow: dict[str, Modification] = {}
    while True:
        page = await ask.json("/v1/indexes/books/pages", **token)
        status, body = await ask("/v1/indexes/books/pages", accept=f"{ARROW}, */*;q=0.1", **token)
        assert status == 200
        table = pa.ipc.open_stream(body).read_all()
        told = {name.decode(): text.decode() for name, text in table.schema.metadata.items()}
        if token:  # else each began at a moment of its own
            compared += 1
            assert told == {
                name: page[name] for name in ("source", "next_token", "tail_token") if page[name] is not None
            }
        for row in page["rows"]:
            variables = {int(number): worth for number, worth in row["variables"].items()}
            change = Modification(row["deleted"], row["fields"], variables, row["categories"], row["timestamp"])
            older = in_json.get(row["docid"])
            in_json[row["docid"]] = change if older is None else merge(older, change)
        for docid, change in rows_of(table):
            in_arrow[docid] = change if docid not in in_arrow else merge(in_arrow[docid], change)
        sources.append(page["source"])
        if page["next_token"] is None:
            break
        token = {"token": page["next_token"]}
    for found in (in_json, in_arrow):
        assert {docid: left for docid, change in found.items() if (left := document(change)) is not None} == expected
    assert [re.sub(r"\d", "9", source) for source in dict.fromkeys(sources)][:1] == [
        "9999-99-99-99-99-99-999__optimized_99"
    ]
    assert compared > 0
    assert {"unsorted"} < set(sources)
    assert page["tail_token"] is not None


async def test_who_waits_is_answered_when_something_is_written(ask: Asker) -> None:
    page = await ask.json("/v1/indexes/songs/pages")
    while page["next_token"] is not None:
        page = await ask.json("/v1/indexes/songs/pages", token=page["next_token"])
    waiting = asyncio.create_task(ask.json("/v1/indexes/songs/pages", token=page["tail_token"], wait_ms=30_000))
    async with ask.log.writer() as writer:
        await writer.put("books", "other", {})
        await writer.put("songs", "b", {"n": "1"})
    page = await waiting
    assert [row["docid"] for row in page["rows"]] == ["b"]
    empty = await ask.json("/v1/indexes/songs/pages", token=page["tail_token"] or page["next_token"], wait_ms=1)
    assert empty["rows"] == []


async def test_expired_and_wrong_tokens_are_told_apart(ask: Asker) -> None:
    page = await ask.json("/v1/indexes/books/pages")
    await ask.log.optimize(ALL_AT_ONCE)
    await ask.log.collect(grace=-1)
    status, body = await ask("/v1/indexes/books/pages", token=page["next_token"])
    assert (status, json.loads(body)["error"]["status"]) == (410, "STALE")
    assert "are not kept any more; begin again" in json.loads(body)["error"]["detail"]
    for path, query, code in (
        ("/v1/indexes/books/pages", {"token": "x"}, 400),
        ("/v1/indexes/songs/pages", {"token": page["next_token"]}, 400),
        ("/v1/indexes/books/pages", {"wait_ms": "1s"}, 400),
        ("/v1/indexes/books/pages", {"wait": 1}, 400),
        ("/v1/indexes/a%20b/pages", {}, 400),
        ("/v1/indexes/books", {}, 404),
        ("/v1/indexes/books/pages/x", {}, 404),
        ("/v1/indexes/books/files", {"token": "x"}, 400),
    ):
        status, body = await ask(path, **query)  # type: ignore[arg-type]
        assert status == code, (path, query, body)
    ask.token = "another secret of some length"
    assert (await ask("/v1/indexes"))[0] == 401
    assert json.loads((await ask("/v1/health"))[1]) == {"status": "OK"}


async def test_a_token_that_is_made_up_does_not_wait_for_what_nobody_wrote(ask: Asker) -> None:
    page = await ask.json("/v1/indexes/books/pages")
    while page["next_token"] is not None:
        page = await ask.json("/v1/indexes/books/pages", token=page["next_token"])
    token = PageToken.decode(page["tail_token"])
    beyond = tuple((log, first, first + 1_000_000) for log, first, _ in token.tail)
    async with asyncio.timeout(30):
        status, body = await ask("/v1/indexes/books/pages", token=replace(token, tail=beyond, step=0).encode())
    assert (status, json.loads(body)["error"]["status"]) == (400, "INVALID_PARAM")


async def test_every_answer_is_what_the_description_says(ask: Asker) -> None:
    described = await ask.json("/v1/openapi.json")
    validate(described)
    operations = [each for methods in described["paths"].values() for each in methods.values()]
    assert max(Counter(each["operationId"] for each in operations).values()) == 1
    assert {tag["name"] for tag in described["tags"]} == {tag for each in operations for tag in each["tags"]}
    checked = 0
    for path, methods in described["paths"].items():
        media = methods["get"]["responses"]["200"]["content"]
        if "application/json" not in media:
            continue
        schema = media["application/json"]["schema"]
        Draft202012Validator.check_schema(schema)
        Draft202012Validator(schema).validate(await ask.json(path.replace("{index}", "books")))
        checked += 1
    assert checked == 7
    (error,) = [body for _, body in [await ask("/v1/indexes", limit=0)]]
    Draft202012Validator(described["components"]["schemas"]["Error"]).validate(json.loads(error))


async def test_indexes_are_listed_in_pieces(ask: Asker) -> None:
    first = await ask.json("/v1/indexes", limit=1)
    assert ([row["index"] for row in first["indexes"]], first["more"]) == (["books"], True)
    rest = await ask.json("/v1/indexes", after="books")
    assert ([row["index"] for row in rest["indexes"]], rest["more"]) == (["songs"], False)
    files = (await ask.json("/v1/indexes/books/files"))["files"]
    assert files[0]["kind"] == "optimized"
    assert sum(row["records"] for row in files) == first["indexes"][0]["records"]


async def test_metrics_tell_of_pages_and_of_what_is_not_dealt(ask: Asker) -> None:
    async def metrics() -> dict[str, float]:
        families = text_string_to_metric_families((await ask("/metrics"))[1].decode())
        return {sample.name: sample.value for family in families for sample in family.samples if not sample.labels}

    page = await ask.json("/v1/indexes/books/pages")
    while page["next_token"] is not None:  # so that all raw logs are read
        page = await ask.json("/v1/indexes/books/pages", token=page["next_token"])
    before = await metrics()
    assert before["logdevice_index_service_pages_total"] >= 3
    assert before["logdevice_index_service_page_rows_total"] >= 38
    assert before["logdevice_index_service_page_time_seconds_count"] >= 3
    assert before["logdevice_index_log_undealt_records"] == 10
    assert 0 < before["logdevice_index_log_undealt_age_seconds"] < 600
    assert (await ask.json("/v1/status"))["undealt"]["records"] == 10
    await ask.log.deal()
    after = await metrics()
    assert after["logdevice_index_log_undealt_records"] == 0
    assert after["logdevice_index_log_undealt_age_seconds"] == 0
    assert after["logdevice_index_log_records"] == before["logdevice_index_log_records"] + 10


@contextmanager
def ldindexd(cluster: str, port: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = own_program("indexlog.serving.ldindexd", "-c", cluster, "--listen", f"{HOST}:{port}", *options)
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert b"serving /indexlog at" in line, line + process.stderr.read()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.slow
async def test_a_process_that_is_killed_is_gone_on_with_where_it_was(tmp_path: Path) -> None:
    """And one that is told to deal does; one that is told to stop ends its job first."""
    directory = tmp_path / "cluster"
    directory.mkdir()
    (port,) = free_ports(1, HOST)
    url = f"http://{HOST}:{port}/v1/indexes/books/pages"
    async with (
        process_cluster(directory, nodes=3, replicate="node:2", racks=1, log_tree=True) as cluster,
        Client(cluster.file) as client,
        aiohttp.ClientSession() as session,
    ):
        await make_index_log(client, f"file://{tmp_path}/store", raw_logs=2)
        async with IndexLog(client) as log, log.writer() as writer:
            for number in range(20):
                await writer.put("books", f"doc-{number:02}", {"n": str(number)})
            await log.deal()
            await writer.put("books", "late", {})
            secret = cluster.supervisor.admin_token
            headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
            seen: list[str] = []
            token: dict[str, str] = {}
            for number in range(2):
                with ldindexd(cluster.file, port) as process:
                    for _ in range(2 if number == 0 else 20):
                        async with session.get(url, params=token, headers=headers) as answer:
                            page = await answer.json()
                            assert answer.status == 200, page
                        seen += [row["docid"] for row in page["rows"]]
                        token = {"token": page["next_token"] or page["tail_token"]}
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                await writer.put("books", f"new-{number}", {})
            assert seen == [*(f"doc-{number:02}" for number in range(20)), "late", "new-0"]
            with ldindexd(cluster.file, port, "--deal-every", "1h", "--optimize-every", "1h") as process:
                await asyncio.to_thread(_stop, process)
                assert process.returncode == 0
            await log.manifest.current()
            assert log.state.jobs == {}
            assert (await log.deal()).records == 0, "the process has dealt"


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(30)
