"""``python -m benchmarks.index_log_readers WHAT``: what readers of an index log see while it is troubled, on a cluster of processes.

``killed`` kills the node that sequences the raw log, again and again, while documents are written and one reader waits for them through ``ldindexd``: how long
after its acknowledgement each is there. ``consistent`` reads an index page by page, for as many seconds as it is told, while all its documents are written
anew, dealt, merged and collected all the time: its pages have to be those of the moment at which it began. Each prints JSON, a line for each figure.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.index_log import (
    IndexLogCluster,
    PageAsker,
    all_acquainted,
    index_log_cluster,
    percentiles,
    served,
    tell,
)
from indexlog.columns import rows_of
from indexlog.index_log import IndexLog
from indexlog.planning import ALL_AT_ONCE
from indexlog.records import LogRecord, Modification
from indexlog.writer import IndexWriter
from logdevice_py.core.ids import LogId
from logdevice_py.core.units import parse_size

INDEX = "books"
NEAR_SECONDS = 3.0
"""So long after a kill a write counts as one of those that it may have delayed."""


# A sequencer that is killed


@dataclass
class Seen:
    """When documents were acknowledged, and when a reader had them; seconds of the monotonic clock."""

    began: dict[str, float] = field(default_factory=dict)
    acknowledged: dict[str, float] = field(default_factory=dict)
    read: dict[str, float] = field(default_factory=dict)

    async def follow(self, asker: PageAsker) -> None:
        """Read what is written, for ever."""
        token = None
        while True:
            table, token, _ = await asker.page(INDEX, token, 10_000)
            now = time.monotonic()
            for docid in table.column("docid").to_pylist():
                self.read.setdefault(docid, now)

    async def write(self, writer: IndexWriter, stop: asyncio.Event, every: float) -> None:
        """A document every so many seconds, whether those before are acknowledged or not."""
        async with asyncio.TaskGroup() as group:
            number = 0
            while not stop.is_set():
                number += 1
                group.create_task(self._put(writer, f"doc-{number}"))
                await asyncio.sleep(every)

    async def _put(self, writer: IndexWriter, docid: str) -> None:
        self.began[docid] = time.monotonic()
        await writer.put(INDEX, docid, {"n": docid})
        self.acknowledged[docid] = time.monotonic()

    async def all_read(self, seconds: float) -> None:
        """Wait until the reader has all that was acknowledged."""
        async with asyncio.timeout(seconds):
            while not self.acknowledged.keys() <= self.read.keys():  # noqa: ASYNC110 - the reader tells nobody
                await asyncio.sleep(0.01)

    def delays(self, wanted: Callable[[float], bool]) -> list[float]:
        """From acknowledgement to reader, of the documents that were acknowledged at such times."""
        return [max(0.0, self.read[docid] - at) for docid, at in self.acknowledged.items() if wanted(at)]


async def killed(given: argparse.Namespace, directory: Path) -> int:
    """Kill sequencers; 1 when a document came later than a second after its acknowledgement."""
    async with index_log_cluster(directory, 1) as cluster, served(cluster) as asker:
        seen, stop, kills = Seen(), asyncio.Event(), []
        reading = asyncio.create_task(seen.follow(asker))
        async with cluster.log.writer() as writer:
            await writer.put(INDEX, "first", {})
            seen.acknowledged["first"] = time.monotonic()
            await seen.all_read(60)  # the first page of a service that starts
            seen.acknowledged.clear()
            writing = asyncio.create_task(seen.write(writer, stop, given.every))
            for _ in range(given.kills):
                await asyncio.sleep(NEAR_SECONDS)
                kills.append(time.monotonic())
                await _kill_sequencer(cluster)
            stop.set()
            await writing
        await seen.all_read(30)
        reading.cancel()
        near = seen.delays(lambda at: any(0 <= at - kill < NEAR_SECONDS for kill in kills))
        tell(
            "from acknowledgement to a reader that waits",
            writes=len(seen.acknowledged),
            **percentiles(seen.delays(lambda at: True)),
        )
        tell("of those within 3 s of a kill", writes=len(near), kills=len(kills), **percentiles(near))
        waits = [seen.acknowledged[docid] - began for docid, began in seen.began.items()]
        tell("writes", **percentiles(waits))
        return int(max(near) > 1)


async def _kill_sequencer(cluster: IndexLogCluster) -> None:
    """And start its node again once another one has taken over for a while."""
    (raw,) = cluster.log.state.generations[-1].logs
    node = (await cluster.client.sequencer(LogId(raw))).node
    await cluster.supervisor.kill(node)
    await asyncio.sleep(NEAR_SECONDS)
    await cluster.supervisor.start(node)
    await all_acquainted(cluster.supervisor)


# A reader that takes its time


async def consistent(given: argparse.Namespace, directory: Path) -> int:
    """Read one state while everything is rewritten; 1 when it is not one."""
    body = "x" * given.size
    count = max(1, given.bytes // given.size)

    def all_documents(number: int) -> list[LogRecord]:
        change = Modification(True, {"round": str(number), "body": body})
        return [LogRecord(INDEX, f"doc-{docid:08}", change) for docid in range(count)]

    async with index_log_cluster(directory, given.raw_logs) as cluster, cluster.log.writer() as writer:
        log = cluster.log
        await writer.bulk(all_documents(0))
        await log.deal()
        await log.optimize(ALL_AT_ONCE)
        await writer.bulk(all_documents(1)[::10])  # a slice
        await log.deal()
        await writer.bulk(all_documents(2)[1::10])  # live
        expected = {f"doc-{docid:08}": str({0: 1, 1: 2}.get(docid % 10, 0)) for docid in range(count)}
        async with served(cluster) as asker:
            reading = asyncio.create_task(_read_slowly(asker, given.seconds))
            rewriting = asyncio.create_task(_rewrite(log, writer, all_documents, reading))
            found, pages = await reading
            rewrites = await rewriting
        wrong = {docid for docid in found.keys() | expected.keys() if found.get(docid) != expected.get(docid)}
        tell(
            "a reader while everything is rewritten",
            seconds=given.seconds,
            pages=pages,
            documents=count,
            rewrites=rewrites,
            states=log.state.serial,
            documents_of_another_state=len(wrong),
        )
        return int(bool(wrong) or rewrites == 0)


async def _read_slowly(asker: PageAsker, seconds: float) -> tuple[dict[str, str], int]:
    """All pages, the last one after so many seconds at the earliest: the round of each document, and how many pages."""
    found: dict[str, str] = {}
    until = time.monotonic() + seconds
    token, pages, is_last = None, 0, False
    while not is_last:
        table, token, is_last = await asker.page(INDEX, token)
        pages += 1
        for docid, change in rows_of(table):
            if change.fields is not None:
                found[docid] = change.fields["round"]
        # most of the time passes behind the first pages, so that the many others are of files that were replaced long ago
        await asyncio.sleep(max(0.0, until - time.monotonic()) / 4)
        if pages > 1000:
            raise AssertionError("it reads for ever")
    return found, pages


async def _rewrite(
    log: IndexLog, writer: IndexWriter, all_documents: Callable[[int], list[LogRecord]], reading: asyncio.Task[object]
) -> int:
    rounds = 0
    while not reading.done():
        await writer.bulk(all_documents(10 + rounds))
        await log.deal()
        await log.optimize(ALL_AT_ONCE)
        await log.collect()
        rounds += 1
    return rounds


def main() -> int:
    """Entry point."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.index_log_readers", description=__doc__)
    whats = options.add_subparsers(dest="what", required=True)
    own = whats.add_parser("killed")
    own.add_argument("--kills", type=int, default=10, metavar="N", help="(default: 10)")
    own.add_argument("--every", type=float, default=0.02, metavar="SECONDS", help="a write so often (default: 0.02)")
    own = whats.add_parser("consistent")
    own.add_argument("--seconds", type=float, default=600, help="that reading takes (default: 600)")
    own.add_argument("--bytes", type=parse_size, default=100_000_000, help="of all documents (default: 100 MB)")
    own.add_argument("--size", type=parse_size, default=10_000, help="of a document (default: 10000)")
    own.add_argument("--raw-logs", type=int, default=2, metavar="N", help="(default: 2)")
    given = options.parse_args()
    work = {"killed": killed, "consistent": consistent}[given.what]
    with tempfile.TemporaryDirectory(prefix="ld-index-log-") as name:
        return asyncio.run(work(given, Path(name)))


if __name__ == "__main__":
    sys.exit(main())
