"""The search service of examples/ as a process, asked by tests; and ``python -m tests.integration.searching``, which measures it with all packages of Debian."""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp

from benchmarks.percentiles import percentile
from client.client import Client
from examples.debian_packages import modifications, paragraphs
from examples.search_index import SearchIndex
from indexlog.index_log import IndexLog, make_index_log
from indexlog.records import LogRecord, Modification
from indexlog.writer import record_of
from server.dev.free_ports import free_ports
from tests.integration.process_cluster import process_cluster

ROOT = Path(__file__).resolve().parents[2]
_STATUS = Path("/var/lib/dpkg/status")
WORDS = (
    "library",
    "python",
    "game",
    "server",
    "data",
    "file",
    "development",
    "team",
    "lists.debian.org",
    "the",
    "optional",
)
LIMIT = 1000


def debian(*, sections: int | None = None, packages: int | None = None) -> list[LogRecord]:
    """The packages of this machine's lists, those of the sections that have most of them; made-up ones where there is no Debian."""
    if shutil.which("apt-cache"):
        told = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, check=True).stdout.decode(
            errors="replace"
        )
        if told.count("\nPackage: ") < 1000 and _STATUS.exists():
            told = _STATUS.read_text(errors="replace")
        found = list(modifications(paragraphs(told.splitlines())))
    else:
        found = [
            {"index": f"debian-{n % 5}", "docid": f"p{n}", "deleted": True, "fields": {"text": f"library {n % 50}"}}
            for n in range(1000)
        ]
    most = {index for index, _ in Counter(each["index"] for each in found).most_common(sections)}
    return [record_of(each) for each in found if each["index"] in most][:packages]


class Searching:
    """The service, as processes one after the other. Use it as ``async with Searching(cluster, directory) as service``."""

    def __init__(self, cluster: str, directory: Path) -> None:
        self._command = [sys.executable, "-m", "examples.search_service", cluster, str(directory)]
        (port,) = free_ports(1, "127.0.0.1")
        self._command += ["--port", str(port)]
        self.url = f"http://127.0.0.1:{port}"
        self._process: asyncio.subprocess.Process | None = None
        self._session = aiohttp.ClientSession()

    async def __aenter__(self) -> Searching:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
        await self._session.close()

    async def start(self) -> None:
        """Returns when it answers."""
        process = await asyncio.create_subprocess_exec(*self._command, stderr=asyncio.subprocess.PIPE, cwd=ROOT)
        assert process.stderr is not None
        self._process = process
        line = await process.stderr.readline()
        assert b"searching at" in line, line + await process.stderr.read()

    async def kill(self) -> None:
        """SIGKILL."""
        if self._process is not None:
            self._process.kill()
            assert self._process.stderr is not None
            said = (await self._process.stderr.read()).decode()
            await self._process.wait()
            self._process = None
            assert "Traceback" not in said, said

    async def search(self, index: str, query: str) -> list[dict[str, Any]] | None:
        """All hits; None: there is no such index."""
        async with self._session.get(f"{self.url}/{index}", params={"q": query, "limit": LIMIT}) as answer:
            told = json.loads(await answer.read())
            if answer.status == 400:
                raise ValueError(told["error"])
            return told["hits"] if answer.status == 200 else None

    async def indexes(self) -> dict[str, Any]:
        """What it keeps."""
        async with self._session.get(self.url) as answer:
            found: dict[str, Any] = json.loads(await answer.read())
            return found

    async def whole(self, indexes: set[str]) -> None:
        """Returns when all of these are kept, and were read to their ends."""
        while True:
            told = await self.indexes()
            if indexes <= {index for index, each in told.items() if each["is_whole"]}:
                return
            await asyncio.sleep(0.05)

    async def found(self, index: str, query: str, docid: str, *, seconds: float = 60) -> float:
        """Ask until a document is found: after how many seconds."""
        began = time.monotonic()
        while not any(hit["docid"] == docid for hit in await self.search(index, query) or []):
            assert time.monotonic() - began < seconds, f"{docid} is not found"
            await asyncio.sleep(0.005)
        return time.monotonic() - began


async def built_from_nothing(log: IndexLog, indexes: Iterable[str], directory: Path) -> dict[str, SearchIndex]:
    """Search indexes of all pages, as of this moment."""
    made = {}
    for index in sorted(indexes):
        made[index] = SearchIndex(directory / index)
        async for page in log.pages(index):
            await asyncio.to_thread(made[index].apply, page)
        await asyncio.to_thread(made[index].rest)
    return made


async def differences(service: Searching, expected: dict[str, SearchIndex]) -> list[str]:
    """Indexes whose size differs, and queries whose documents do."""
    there = await service.indexes()
    found = [index for index, of in expected.items() if there[index]["documents"] != of.count()]
    hits = 0
    for index, of in expected.items():
        for word in WORDS:
            one = {hit["docid"]: hit["fields"] for hit in await service.search(index, word) or []}
            two = {hit.docid: hit.contents.fields for hit in of.search(word, LIMIT)}
            hits += len(two)
            # of more than are told it is chance which
            if len(two) < LIMIT and one != two:
                found.append(f"{index}: {word}")
    assert hits > 0
    return found


async def measure(packages: int, restarts: int, writes: int) -> None:
    """The whole way, printed."""
    records = debian(packages=packages)
    with TemporaryDirectory(prefix="ld-search-") as name:
        directory = Path(name)
        (directory / "cluster").mkdir()
        async with (
            process_cluster(directory / "cluster", nodes=3, replicate="node:2", racks=1, log_tree=True) as cluster,
            Client(cluster.file) as client,
            Searching(cluster.file, directory / "search") as service,
        ):
            await make_index_log(client, f"file://{directory}/store", raw_logs=4)
            async with IndexLog(client) as log, log.writer() as writer:
                began = time.monotonic()
                await writer.bulk(records)
                indexes = {each.index for each in records}
                print(f"{len(records)} packages of {len(indexes)} indexes written: {time.monotonic() - began:.1f} s")
                began = time.monotonic()
                await log.deal()
                print(f"dealt: {time.monotonic() - began:.1f} s")
                began = time.monotonic()
                await service.start()
                await service.whole(indexes)
                print(f"all searchable: {time.monotonic() - began:.1f} s")
                for number in range(restarts):
                    gone = records[number::restarts][::20]
                    await writer.bulk(LogRecord(each.index, each.docid, Modification(True)) for each in gone)
                    await service.kill()
                    await writer.bulk(gone[::2])
                    await log.deal()
                    began = time.monotonic()
                    await service.start()
                    await writer.put("debian-games", f"new-{number}", {"text": f"zznew{number}"})
                    waited = await service.found("debian-games", f"zznew{number}", f"new-{number}")
                    started = time.monotonic() - began
                    print(
                        f"killed and started again: {started:.1f} s until a new document is found, {waited:.2f} s after its write"
                    )
                times = []
                for number in range(writes):
                    index = sorted(indexes)[number % len(indexes)]
                    await writer.put(index, f"late-{number}", {"text": f"zzlate{number}"})
                    times.append(await service.found(index, f"zzlate{number}", f"late-{number}"))
                print(
                    f"from acknowledged write to found, {writes} writes one after the other: median {percentile(times, 0.5) * 1000:.0f} ms,"
                    f" 99 % {percentile(times, 0.99) * 1000:.0f} ms, at most {max(times) * 1000:.0f} ms"
                )
                for index in sorted(indexes):
                    await writer.put(index, "the last one", {"text": "zzlast"})
                    await service.found(index, "zzlast", "the last one")
                began = time.monotonic()
                nothing = await built_from_nothing(log, indexes, directory / "nothing")
                print(f"built from nothing by one thread: {time.monotonic() - began:.1f} s")
                print(f"differences: {await differences(service, nothing) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="The search service with the packages of Debian, killed and started again."
    )
    parser.add_argument("--packages", type=int, default=50_000)
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--writes", type=int, default=200)
    given = parser.parse_args()
    asyncio.run(measure(given.packages, given.restarts, given.writes))


if __name__ == "__main__":
    main()
