"""The example of a search service: killed and started again, it finds what an index finds that was built from nothing."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from benchmarks.index_log import MemoryIndexLog
from examples import search_service
from examples.debian_packages import modifications, paragraphs
from examples.search_index import KeptIndex, Place, SearchIndex
from examples.search_service import SearchService
from indexlog.columns import table_of
from indexlog.index_log import IndexLog, make_index_log
from indexlog.jobs import drop_index
from indexlog.manifest.state import ManifestState
from indexlog.paging import IndexPage, PageExpired, read_page
from indexlog.planning import ALL_AT_ONCE
from indexlog.records import LogRecord, Modification, document, merge
from indexlog.stores import MemoryStore
from indexlog.writer import record_of
from logdevice_py import LocalCluster
from logdevice_py.core.status import LogDeviceError, Status
from tests.integration.search_index_worker import DOCUMENTS, page_of
from tests.integration.searching import Searching, built_from_nothing, debian, differences

ROOT = Path(__file__).resolve().parents[2]


async def test_what_was_read_and_the_documents_are_committed_together(tmp_path: Path) -> None:
    """A process is killed at any moment, again and again: the index is that of all pages up to its token, and of no other."""
    found: dict[str, Modification] = {}
    folded = 0
    for lines in (1, 4, 2, 7):
        worker = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.search_index_worker", tmp_path),
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        assert worker.stdout is not None
        told = [int(await worker.stdout.readline()) for _ in range(lines)]
        worker.kill()
        await worker.wait()
        index = SearchIndex(tmp_path)
        reached = int(index.place.token or 0)
        assert told[0] == folded + 1, "it goes on where it was"
        assert reached >= told[-1]
        for number in range(folded + 1, reached + 1):
            for docid, change in page_of(number).rows():
                found[docid] = merge(found[docid], change) if docid in found else change
        folded = reached
        now = {docid: left for docid, change in found.items() if (left := document(change)) is not None}
        assert index.documents(f"doc-{number}" for number in range(DOCUMENTS)) == now
        assert index.count() == len(now)
        assert index.place.is_whole == (reached >= 3)
        for number in range(max(1, reached - 3), reached + 1):
            words = {docid for docid, left in now.items() if f"word{number} " in (left.fields or {}).get("text", "")}
            assert {hit.docid for hit in index.search(f"word{number}")} == words


def test_an_index_is_served_while_it_is_made_anew(tmp_path: Path) -> None:
    def page(text: str, *, is_last: bool) -> IndexPage:
        table = table_of([("a", Modification(True, {"text": text}))])
        return IndexPage(table, "", None if is_last else text, text if is_last else None)

    kept = KeptIndex(tmp_path)
    kept.apply(page("one", is_last=True))
    kept.begin_again()
    kept.apply(page("two", is_last=False))
    assert len(kept.serving.search("one")) == 1
    kept.rest()
    again = KeptIndex(tmp_path)  # as after a kill
    assert again.making.place == Place("two", False)
    assert len(again.serving.search("one")) == 1
    again.apply(page("three", is_last=True))
    assert (len(again.serving.search("one")), len(again.serving.search("three"))) == (0, 1)
    again.rest()
    assert len(list(tmp_path.iterdir())) == 1
    assert KeptIndex(tmp_path).making.place == Place("three", True)

    (meta,) = tmp_path.glob("*/meta.json")
    meta.write_text(meta.read_text().replace('"docid"', '"id"'))  # as an earlier version of the example made it
    upgraded = KeptIndex(tmp_path)
    assert upgraded.making.place == Place()
    upgraded.apply(page("four", is_last=True))
    assert len(upgraded.serving.search("four")) == 1


class SteppedLog:
    """As much of an `IndexLog` as the service uses, on lists."""

    def __init__(self) -> None:
        self.lists = MemoryIndexLog(MemoryStore(), 1)
        self.troubles: list[Exception] = []
        """Told to whoever reads next."""
        self._written = asyncio.Event()
        self.manifest = self

    @property
    def state(self) -> ManifestState:
        return self.lists.state

    async def keep_tail(self) -> None:
        pass

    async def changes(self) -> AsyncIterator[None]:
        while True:
            yield
            await self._written.wait()

    async def news(self, token: str, seconds: float) -> bool:
        await self._written.wait()
        return True

    async def read_page(self, index: str, token: str | None = None) -> IndexPage:
        if self.troubles:
            raise self.troubles.pop()
        return self.lists.run(read_page(lambda: self.state, self.lists.store, index, token))

    def write(self, *records: LogRecord) -> None:
        self.lists.write(records)
        self._written.set()
        self._written = asyncio.Event()


async def test_more_indexes_than_writers_are_kept_whatever_reading_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_service, "RETRY_SECONDS", 0.01)
    monkeypatch.setattr(search_service, "WRITERS_MAX", 2)
    log = SteppedLog()
    indexes = ["..", "a", "b", "c", "d"]

    def put(index: str, docid: str, text: str) -> LogRecord:
        return LogRecord(index, docid, Modification(True, {"text": text}))

    async def finds(service: SearchService, index: str, query: str, *docids: str) -> None:
        async with asyncio.timeout(60):
            while sorted(hit.docid for hit in await service.search(index, query, 10) or []) != sorted(docids):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    async def rest(service: SearchService) -> None:
        async with asyncio.timeout(60):
            while len(service._writers) > 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    for index in indexes:
        log.write(put(index, "one", "first"))
    log.lists.deal()
    for _ in range(2):  # the second one goes on where the first was stopped
        async with SearchService(log, tmp_path) as service:  # type: ignore[arg-type]
            for index in indexes:
                await finds(service, index, "first", "one")
                log.write(put(index, "two", "second"))
            log.troubles += [OSError("out of order"), LogDeviceError(Status.TIMEDOUT, "nobody answers")]
            for index in indexes:
                await finds(service, index, "second", "two")
            await rest(service)
            assert await service.search("unknown", "first", 10) is None
            log.write(put("new", "one", "undealt"))
            await finds(service, "new", "undealt", "one")
    async with SearchService(log, tmp_path) as service:  # type: ignore[arg-type]
        log.troubles.append(PageExpired("for a test"))
        log.write(LogRecord("a", "one", Modification(True)))
        await finds(service, "a", "first")
        log.lists.run(drop_index(lambda: log.state, "b"))
        log.write()
        await finds(service, "b", "first OR second")
        await finds(service, "c", "first OR second", "one", "two")


def test_a_newer_list_is_what_differs() -> None:
    old = "Package: a\nSection: x/y\nVersion: 1\nDescription: one\n two\n\nPackage: b\nVersion: 1\n"
    new = "Package: a\nSection: x/y\nVersion: 2\nInstalled-Size: 7\n\n\nPackage: c\nVersion: 1\nPriority: low\n"
    first = list(modifications(paragraphs(old.splitlines())))
    assert [(each["index"], each["docid"]) for each in first] == [("debian-x-y", "a"), ("debian-none", "b")]
    assert first[0]["fields"] == {"name": "a", "version": "1", "description": "one two"}
    changed = list(modifications(paragraphs(new.splitlines()), paragraphs(old.splitlines())))
    assert [(each["docid"], "fields" in each) for each in changed] == [("a", True), ("c", True), ("b", False)]
    assert changed[0]["variables"] == {"0": 7.0}
    assert changed[1]["categories"] == {"priority": "low"}
    assert record_of(changed[2]).change == Modification(True)
    assert list(modifications(paragraphs(new.splitlines()), paragraphs(new.splitlines()))) == []


@pytest.mark.slow
async def test_killed_and_started_again_it_finds_what_an_index_from_nothing_finds(tmp_path: Path) -> None:
    async with (
        LocalCluster(nodes=3, replicate="node:2", log_tree=True) as cluster,
        cluster.client() as client,
        Searching(cluster.config_file, tmp_path / "search") as service,
    ):
        await make_index_log(client, f"file://{tmp_path}/store", raw_logs=2)
        records = debian(sections=5, packages=1500)
        assert len(records) > 100
        async with IndexLog(client) as log, log.writer() as writer:
            await writer.bulk(records[::2])
            await log.deal()
            await log.optimize(ALL_AT_ONCE)
            await service.start()
            await writer.bulk(records[1::2])
            await writer.put("films", "f", {"text": "neither dealt nor known"})
            assert await service.found("films", "neither", "f")
            await writer.put("films", "g", {"text": "a moment ago"})
            assert await service.found("films", "moment", "g")
            await service.kill()

            await writer.bulk(LogRecord(each.index, each.docid, Modification(True)) for each in records[::20])
            await writer.bulk(
                LogRecord(each.index, each.docid, Modification(False, None, {}, {"seen": "everywhere"}))
                for each in records[5::20]
            )
            await log.deal()
            await service.start()
            await writer.bulk(records[::40])
            await service.kill()
            await log.deal()
            await log.optimize(ALL_AT_ONCE)
            await log.collect(grace=-1)
            await service.start()
            indexes = {each.index for each in records}
            assert indexes
            for index in indexes:
                await writer.put(index, "the last one", {"text": "zzlast"})
                assert await service.found(index, "zzlast", "the last one")
            nothing = await built_from_nothing(log, indexes, tmp_path / "nothing")
            assert await differences(service, nothing) == []
            hits = await service.search(records[5].index, "everywhere")
            assert hits
            assert all(hit["categories"]["seen"] == "everywhere" for hit in hits)
            assert await service.search("unknown", "word") is None
            with pytest.raises(ValueError, match="Syntax"):
                await service.search(min(indexes), "((")
