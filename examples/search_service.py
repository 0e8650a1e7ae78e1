"""A search service on an index log: it keeps a Tantivy index for each index code, and answers queries over HTTP.

    apt-cache dumpavail > packages
    python examples/debian_packages.py packages | ldindex -c cluster.toml bulk
    python -m examples.search_service cluster.toml /srv/search
    curl 'http://127.0.0.1:4490/debian-games?q=ancient+warfare'

Indexes that are dealt are kept, and others from the first query on. A document is found some hundred milliseconds after its write was acknowledged. Kill it,
start it again: it goes on where it was. Delete its directory, and it reads everything again. One process has a directory; whoever is on the machine may search.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from aiohttp import web

from examples.search_index import Hit, KeptIndex
from indexlog.index_log import IndexLog
from indexlog.paging import IndexPage, PageExpired
from logdevice_py import Client
from logdevice_py.core.status import LogDeviceError, Status

PAGES_AT_ONCE = 4
"""That are in memory."""
WRITERS_MAX = 8
"""Tantivy's writers that are open; the others' indexes rest until there is something to apply."""
IDLE_SECONDS = 600.0
"""How far an index is read that nobody writes to is committed so often, so that raw logs can be trimmed behind it."""
RETRY_SECONDS = 1.0
LIMIT_MAX = 1000
T = TypeVar("T")


class Keeping:
    """What is known of an index that is kept."""

    def __init__(self, follow: Coroutine[Any, Any, None]) -> None:
        self.lock = asyncio.Lock()
        """Of whoever changes it."""
        self.index: asyncio.Future[KeptIndex] = asyncio.get_running_loop().create_future()
        self.is_whole = asyncio.Event()
        self.task = asyncio.create_task(follow)


class SearchService:
    """Keeps the indexes of an index log. Use it as ``async with SearchService(log, directory) as service``."""

    def __init__(self, log: IndexLog, directory: Path) -> None:
        self._log = log
        self._directory = directory
        self._kept: dict[str, Keeping] = {}
        self._pages = asyncio.Semaphore(PAGES_AT_ONCE)
        self._writers: OrderedDict[str, KeptIndex] = OrderedDict()
        """Those that are open, in the order in which they were used last."""
        self._dealt: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, "tantivy")

    async def _in_turn(self, call: Callable[..., T], *arguments: Any) -> T:
        """Tantivy's calls keep other threads of Python from running, and wait for each other's locks: one at a time."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    async def __aenter__(self) -> SearchService:
        await self._log.keep_tail()
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in self._directory.iterdir():
            self.keep(path.name.removeprefix("of-"))
        self._dealt = asyncio.create_task(self._keep_what_is_dealt())
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = [*(each.task for each in self._kept.values()), *filter(None, [self._dealt])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for kept in self._writers.values():
            await self._in_turn(kept.rest)
        self._thread.shutdown()

    async def _keep_what_is_dealt(self) -> None:
        async for _ in self._log.manifest.changes():
            for index in self._log.state.indexes:
                self.keep(index)

    def keep(self, index: str) -> Keeping:
        """Keep an index from now on."""
        if index not in self._kept:
            self._kept[index] = Keeping(self._follow(index))
        return self._kept[index]

    # Following

    async def _follow(self, index: str) -> None:
        keeping = self._kept[index]
        # "." and ".." are index codes
        kept = await self._in_turn(KeptIndex, self._directory / f"of-{index}")
        keeping.index.set_result(kept)
        token, is_idle = kept.making.place.token, False
        while True:
            if kept.serving.place.is_whole:
                keeping.is_whole.set()
            try:
                async with self._pages:
                    page = await self._log.read_page(index, token)
                    token = page.token
                    is_news = len(page.table) > 0 or not kept.making.place.is_whole or is_idle
                    if is_news:
                        await self._apply(index, kept, page)
                is_idle = False
                if page.tail_token is not None and not is_news:
                    is_idle = not await self._log.news(page.tail_token, IDLE_SECONDS)
            except PageExpired as error:
                print(f"{index}: {error.detail}", file=sys.stderr)
                async with keeping.lock:
                    await _to_its_end(self._in_turn(kept.begin_again))
                token = None
            except (LogDeviceError, OSError, ValueError) as error:  # ValueError: Tantivy's errors
                print(f"{index}: {error}", file=sys.stderr)
                await asyncio.sleep(RETRY_SECONDS)
                token = kept.making.place.token

    async def _apply(self, index: str, kept: KeptIndex, page: IndexPage) -> None:
        async with self._kept[index].lock:
            self._writers[index] = kept
            self._writers.move_to_end(index)
            await _to_its_end(self._in_turn(kept.apply, page))
        for other in list(self._writers):
            lock = self._kept[other].lock
            if len(self._writers) > WRITERS_MAX and other in self._writers and not lock.locked():
                async with lock:
                    await _to_its_end(self._in_turn(self._writers.pop(other).rest))

    # Serving

    async def search(self, index: str, query: str, limit: int) -> list[Hit] | None:
        """The best documents; None: there is no such index."""
        if index not in self._kept:
            page = await self._log.read_page(index)
            if not len(page.table) and page.next_token is None:
                return None
        keeping = self.keep(index)
        await keeping.is_whole.wait()
        return await self._in_turn((await keeping.index).serving.search, query, limit)

    def application(self) -> web.Application:
        """What answers over HTTP."""
        application = web.Application()
        application.add_routes([web.get("/", self._indexes), web.get("/{index}", self._search)])
        return application

    async def _indexes(self, request: web.Request) -> web.Response:
        rows = {
            index: {"documents": keeping.index.result().serving.count(), "is_whole": keeping.is_whole.is_set()}
            for index, keeping in sorted(self._kept.items())
            if keeping.index.done()
        }
        return web.json_response(rows)

    async def _search(self, request: web.Request) -> web.Response:
        try:
            limit = min(int(request.query.get("limit", 10)), LIMIT_MAX)
            found = await self.search(request.match_info["index"], request.query.get("q", ""), limit)
        except (ValueError, LogDeviceError) as error:
            if isinstance(error, LogDeviceError) and error.status is not Status.INVALID_PARAM:
                raise
            return web.json_response({"error": str(error)}, status=400)
        if found is None:
            return web.json_response({"error": "there is no such index"}, status=404)
        return web.json_response({"hits": [_told(hit) for hit in found]})


async def _to_its_end(work: Coroutine[Any, Any, Any]) -> Any:
    """Who cancels this waits all the same: an index is not changed by two threads."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await task
        raise


def _told(hit: Hit) -> dict[str, Any]:
    contents = hit.contents
    return {
        "docid": hit.docid,
        "score": hit.score,
        "fields": contents.fields,
        "variables": contents.variables,
        "categories": contents.categories,
    }


async def serve(cluster: str, path: str, directory: Path, port: int) -> None:
    """Until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with Client(cluster) as client, IndexLog(client, path) as log, SearchService(log, directory) as service:
        runner = web.AppRunner(service.application())
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", port).start()
            print(f"searching at http://127.0.0.1:{port}", file=sys.stderr, flush=True)
            await stop.wait()
        finally:
            await runner.cleanup()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Search in the documents of an index log.")
    parser.add_argument("cluster", help="the cluster file")
    parser.add_argument("directory", type=Path, help="where the search indexes are kept")
    parser.add_argument("--path", default="/indexlog", help="of the index log in the log tree (default: /indexlog)")
    parser.add_argument("--port", type=int, default=4490, help="on this machine (default: 4490)")
    given = parser.parse_args(arguments)
    asyncio.run(serve(given.cluster, given.path, given.directory, given.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
