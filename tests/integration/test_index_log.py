"""An index log on a cluster: real input through writers, dealing, optimizing, collecting and readers, compared with what was written."""

from __future__ import annotations

import asyncio
import json
import pickle
import re
import textwrap
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client.client import Client
from indexlog.index_log import IndexLog, make_index_log
from indexlog.paging import PageExpired, PageToken
from indexlog.planning import ALL_AT_ONCE
from indexlog.records import LogRecord, Modification, document, merge
from indexlog.spark.schema import DOCUMENTS
from indexlog.spark.source import IndexLogSource
from indexlog.trimming import trim_raw_logs
from indexlog.verifying import verify
from indexlog.writer import IndexWriter, wall_clock
from logdevice_py.core.status import LogDeviceError, Status
from server.dev.local_cluster import LocalCluster
from tests.integration.debian import packages


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(nodes=3, replicate="node:2", log_tree=True) as running:
        yield running


@pytest.fixture
async def client(cluster: LocalCluster, tmp_path: Path) -> AsyncIterator[Client]:
    async with cluster.client() as opened:
        await make_index_log(opened, f"file://{tmp_path}/store", raw_logs=2)
        yield opened


async def test_the_page_does_what_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/indexlog.md").read_text()
    code, *_ = re.findall(r"^```python\n(.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"directory": tmp_path}
    exec(compile(f"async def example():\n{textwrap.indent(code, '    ')}", "docs/indexlog.md", "exec"), names)
    await names["example"]()


async def is_verified(log: IndexLog) -> int:
    """How many indexes are what their raw logs say."""
    reports = [report async for report in verify(log)]
    assert [report for report in reports if report.trouble] == []
    return len(reports)


@pytest.mark.slow
async def test_packages_are_documents_whatever_is_done_to_their_files(client: Client) -> None:
    """Each section of Debian is an index, each package a document; versions are updates, and some packages are removed."""
    async with IndexLog(client) as log, log.writer() as writer:
        found = packages()
        assert len(found) > 100
        for number, (section, name, fields) in enumerate(found):
            if number % 150 == 149:
                await log.deal()
            if number % 400 == 399:
                await log.optimize(ALL_AT_ONCE)
            await writer.append(LogRecord(section, name, Modification(True, fields, {0: float(len(name))})))
            if number % 10 == 0:
                await writer.append(LogRecord(section, name, Modification(False, None, {1: 1.0}, {"seen": "yes"})))
            if number % 7 == 0:
                await writer.append(LogRecord(section, name, Modification(True)))
        await writer.put(found[0][0], found[0][1], found[0][2])
        assert await is_verified(log) >= 1
        await log.deal()
        assert set(log.state.indexes) == {section for section, _, _ in found}
        assert await is_verified(log) == len(log.state.indexes)
        await log.optimize(ALL_AT_ONCE)
        await log.collect(grace=-1)
        assert await is_verified(log) == len(log.state.indexes)
        assert len(log.store.list()) == len(log.state.indexes)
        parts = {index: log.state.parts(index) for index in log.state.indexes}
        assert {index: sum(part.records for part in of_index) for index, of_index in parts.items()} == {
            index: len(await log.documents(index)) for index in parts
        }, "each document is there once"
        first = await log.documents(found[0][0])
        assert first[found[0][1]].fields == found[0][2]


async def test_a_reader_gets_one_state_while_everything_is_rewritten(client: Client) -> None:
    async with IndexLog(client) as log, log.writer() as writer:
        body = {"body": "x" * 50_000}
        for number in range(150):
            await writer.append(LogRecord("books", f"doc-{number:03}", Modification(True, body, {1: float(number)})))
        await writer.put("books", "doc-000", body)
        await log.deal()
        await log.optimize(ALL_AT_ONCE)
        await writer.put("books", "late", {"body": "live"})
        expected = await log.documents("books")
        page = await log.read_page("books")
        pages = [page]
        while page.next_token is not None:
            await writer.bulk(
                LogRecord("books", f"doc-{number:03}", Modification(True, {"body": "new"})) for number in range(150)
            )
            await log.deal()
            await log.optimize(ALL_AT_ONCE)
            await log.collect()
            async with IndexLog(client) as other:  # a server that knows nothing of the reader
                page = await other.read_page("books", page.next_token)
            pages.append(page)
        found = {docid: change for page in pages for docid, change in page.rows()}
        assert {docid: change.fields for docid, change in found.items()} == {
            docid: change.fields for docid, change in expected.items()
        }
        assert len(pages) >= 3
        old = pages[0].next_token
        await log.collect(grace=-1)
        with pytest.raises(PageExpired):
            await log.read_page("books", old)
        with pytest.raises(LogDeviceError, match="of index books, not of songs"):
            await log.read_page("songs", (await log.read_page("books")).next_token)


async def test_writers_go_on_in_the_next_generation_in_order(client: Client) -> None:
    async with IndexLog(client) as log, log.writer() as writer, IndexLog(client) as other, other.writer() as second:
        last: dict[str, int] = {}

        written = asyncio.Condition()
        done = asyncio.Event()

        async def write(own: str, chosen: IndexWriter) -> None:
            number = 0
            while not done.is_set():
                number += 1
                await chosen.put("books", own, {"n": str(number)})
                async with written:
                    last[own] = number
                    written.notify_all()

        docids = [f"doc-{number}" for number in range(8)]
        tasks = [asyncio.create_task(write(docid, (writer, second)[at % 2])) for at, docid in enumerate(docids)]
        for raw_logs in (3, 1, 2):
            await log.deal()
            await log.change_routing(raw_logs)
            seen = dict(last)
            async with written:  # all writers go on
                while any(last.get(docid, 0) <= seen.get(docid, 0) for docid in docids):
                    await written.wait()
        done.set()
        await asyncio.gather(*tasks)
        await other.manifest.current()
        assert [each.number for each in other.state.generations][-1] == 3
        for _ in range(2):
            found = await other.documents("books")
            assert {docid: int((change.fields or {})["n"]) for docid, change in found.items()} == last
            await other.deal()
        assert [each.number for each in other.state.generations] == [3]
        assert other.state.unreadable == 0
        assert await is_verified(other) == 1


async def test_a_dropped_index_is_gone_and_can_be_written_again(client: Client) -> None:
    async with IndexLog(client) as log, log.writer() as writer:
        for name in ("a", "b", "c"):
            await writer.put("books", name, {"n": "1"})
            await writer.put("songs", name, {"n": "1"})
        await log.deal()
        await writer.put("books", "d", {"n": "1"})
        await log.drop("books")
        assert await log.documents("books") == {}
        await writer.put("books", "e", {"n": "2"})
        for _ in range(2):
            assert list(await log.documents("books")) == ["e"]
            assert len(await log.documents("songs")) == 3
            await log.deal()
        assert await is_verified(log) == 2


async def test_what_is_no_modification_is_counted_and_passed_over(client: Client) -> None:
    async with IndexLog(client) as log, log.writer() as writer:
        for raw in log.state.generations[0].logs:
            await client.append(raw, json.dumps({"index": "books"}).encode())
        await writer.put("books", "a", {"n": "1"})
        assert (await log.deal()).unreadable == 2
        assert log.state.unreadable == 2
        assert list(await log.documents("books")) == ["a"]


async def test_a_job_that_somebody_ended_commits_nothing(client: Client, tmp_path: Path) -> None:
    seen = []

    def end_it(effect: object) -> None:
        seen.append(effect)

    async with IndexLog(client) as other, IndexLog(client, on_step=end_it) as log, log.writer() as writer:
        await writer.put("books", "a", {"n": "1"})
        from indexlog.effects import ProposeCommand
        from indexlog.manifest.commands import Deal

        original = log._propose

        async def propose(command: object) -> object:
            if isinstance(command, Deal):
                await other.manifest.current()
                await other.end_job(command.token)
                await other.collect()
            return await original(command)

        log._propose = propose
        with pytest.raises(LogDeviceError) as refused:
            await log.deal()
        assert refused.value.status is Status.PREEMPTED
        assert any(isinstance(each, ProposeCommand) for each in seen)
        await other.manifest.current()
        assert other.state.indexes == {}
        await other.collect()
        assert other.store.list() == []
        await other.deal()
        assert list(await other.documents("books")) == ["a"]


async def test_who_follows_gets_what_is_written_whatever_is_done_to_it(client: Client) -> None:
    """Another process follows an index through deals, merges and other raw logs, and begins again in between from the token of its last page."""
    found: dict[str, Modification] = {}

    async def follow(token: str | None, until: str) -> str:
        async with IndexLog(client) as log:
            async for page in log.follow("books", token):
                for docid, change in page.rows():
                    found[docid] = merge(found[docid], change) if docid in found else change
                if until in found:
                    return page.token
        raise AssertionError("it follows for ever")

    async with IndexLog(client) as log, log.writer() as writer:
        await writer.put("books", "first", {"n": "0"})
        token: str | None = None
        for number in range(4):
            following = asyncio.create_task(follow(token, f"last-{number}"))
            for step in range(5):
                for name in ("a", "b", "c"):
                    await writer.put("books", name, {"n": f"{number}-{step}"})
                    await writer.patch("books", name, variables={number: float(step)})
                    await writer.put("songs", name, {})
            await writer.delete("books", "first")
            await log.deal()
            await log.optimize(ALL_AT_ONCE)
            await log.collect(grace=-1)
            if number % 2:
                await log.change_routing(3)
            await writer.put("books", f"last-{number}", {})
            token = await asyncio.wait_for(following, 60)
        now = {docid: left for docid, change in found.items() if (left := document(change)) is not None}
        assert now == await log.documents("books")
        assert set(now) == {"a", "b", "c", *(f"last-{number}" for number in range(4))}
        await log.drop("books")
        with pytest.raises(PageExpired, match="index books was dropped"):
            await read_to_the_end_twice(log, token)


async def test_tasks_of_spark_read_what_their_plan_says(cluster: LocalCluster, client: Client) -> None:
    """Without Spark: the plan is made where it runs in production, and tasks get it as bytes."""

    def plan(**options: str) -> list[bytes]:
        source = IndexLogSource({"cluster": str(cluster.config_file), **options})
        partitions = source.reader(source.schema()).partitions()
        return [pickle.dumps(each) for each in partitions]

    def read(partitions: list[bytes]) -> list[dict[str, Any]]:
        reader = IndexLogSource({"cluster": "elsewhere.toml"}).reader(DOCUMENTS)
        batches = [batch for each in partitions for batch in reader.read(pickle.loads(each))]
        return [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]

    async with IndexLog(client) as log, log.writer() as writer:
        await writer.put("books", "a", {"n": "1"}, variables={3: 1.5})
        await writer.put("songs", "s", {})
        await log.deal()
        await writer.put("books", "b", {})
        await writer.delete("songs", "s")
        planned = await asyncio.to_thread(plan)
        few = await asyncio.to_thread(plan, indexes="son*", livetail="false")
        await writer.put("books", "c", {})
        await log.deal()
        await log.optimize(ALL_AT_ONCE)
        rows = read(planned)
        assert [(row["index"], row["docid"], row["fields"], row["variables"]) for row in rows] == [
            ("books", "a", {"n": "1"}, {3: 1.5}),
            ("books", "b", {}, {}),
        ]
        assert [row["docid"] for row in read(few)] == ["s"]
        await log.collect(grace=-1)
        with pytest.raises(LogDeviceError, match="are not kept any more"):
            read(planned)


async def test_raw_logs_are_trimmed_as_far_as_they_are_dealt(client: Client) -> None:
    async with IndexLog(client) as log, log.writer() as writer:
        old = log.state.generations[0].logs
        await writer.put("books", "a", {})
        await writer.put("books", "b", {})
        _, token = await read_on(log, None)
        early = replace(PageToken.decode((await log.read_page("books")).token), step=0).encode()
        await log.deal()
        await trim_raw_logs(log, keep=3600)
        await log.read_page("books", early)  # what is young is kept
        await writer.put("books", "c", {})
        assert await trim_raw_logs(log, keep=-60) == log.state.dealt
        with pytest.raises(PageExpired, match="was dealt and trimmed meanwhile"):
            await log.read_page("books", early)
        found = await log.documents("books")
        assert sorted(found) == ["a", "b", "c"], "what is not dealt stays"
        seen, token = await read_on(log, token)
        assert seen == ["c"]
        await log.deal()
        assert sorted(await log.documents("books")) == ["a", "b", "c"]

        await log.change_routing(1)
        await writer.put("books", "d", {})
        await log.deal()
        assert set(await trim_raw_logs(log, keep=-60)) > set(old), "also of a generation that is dealt whole"
        heads = [(await client.head(raw)).trim_point for raw in old]
        assert heads == [await client.tail_lsn(raw) for raw in old]
        assert sorted(await log.documents("books")) == ["a", "b", "c", "d"]
        with pytest.raises(LogDeviceError, match="is not whole"):
            await is_verified(log)


async def test_what_is_old_is_so_by_the_clock_of_the_index_log(client: Client) -> None:
    ahead = 0
    async with IndexLog(client, clock=lambda: wall_clock() + ahead) as log, log.writer() as writer:
        await writer.put("books", "a", {})
        await log.deal()
        await log.optimize(ALL_AT_ONCE)
        assert await trim_raw_logs(log, keep=3600) != log.state.dealt
        assert (await log.collect(grace=3600)).files == 0
        ahead = 2 * 3600 * 1000
        assert await trim_raw_logs(log, keep=3600) == log.state.dealt
        assert (await log.collect(grace=3600)).files == 2, "the container, and the sorted file that was optimized"
        await writer.put("books", "b", {})
        found = await log.documents("books")
        assert found["b"].timestamp - found["a"].timestamp >= ahead


async def read_to_the_end_twice(log: IndexLog, token: str | None) -> None:
    """What a token begins is read as of its moment; then a newer moment is asked for."""
    for _ in range(2):
        _, token = await read_on(log, token)


async def read_on(log: IndexLog, token: str | None) -> tuple[list[str], str]:
    """What there is behind a token, and the token behind that."""
    seen = []
    while True:
        page = await log.read_page("books", token)
        seen += [docid for docid, _ in page.rows()]
        token = page.token
        if page.next_token is None:
            return seen, token


async def test_the_newest_modifications_are_found_in_memory(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    async with IndexLog(client) as log, log.writer() as writer:
        await log.keep_tail()
        await writer.put("books", "a", {})
        seen, token = await read_on(log, None)
        assert seen == ["a"]
        monkeypatch.setattr(log, "_read", None)  # nothing is read from raw logs for one reader alone
        await writer.put("books", "b", {})
        seen, token = await read_on(log, token)
        assert seen == ["b"]
        waiting = asyncio.create_task(log.read_page("books", token, wait=60))
        await writer.put("songs", "s", {})
        await writer.put("books", "c", {})
        assert [docid for docid, _ in (await waiting).rows()] == ["c"]
        _, token = await read_on(log, None)
        empty = await log.read_page("books", token, wait=0.01)
        assert (len(empty.table), empty.next_token) == (0, None)
