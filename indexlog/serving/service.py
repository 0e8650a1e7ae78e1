"""The service of an index log: pages, indexes, status. Any number of processes may serve one index log; none holds anything that another needs."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from bisect import bisect_right
from collections.abc import Mapping
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, Final

import pyarrow as pa
from aiohttp import web

from indexlog.index_log import IndexLog
from indexlog.paging import IndexPage, PageExpired
from indexlog.serving import api
from indexlog.serving.api import ARROW, JSON, IndexOperation
from indexlog.serving.metrics import IndexServiceMetrics, SeenParts
from logdevice_py.config.admin import AdminEndpoint, AdminSettings
from logdevice_py.core.status import Status
from logdevice_py.runtime.clock import monotonic_us
from logdevice_py.runtime.http.answers import answer, refusal
from logdevice_py.runtime.http.listener import (
    Handler,
    HttpListener,
    check_method,
    is_worth_a_line,
    no_such_page,
)
from logdevice_py.runtime.http.openapi import query_values
from logdevice_py.runtime.http.prometheus import render
from logdevice_py.runtime.http.security import CLEAR_TEXT, HttpSecurity
from logdevice_py.runtime.metric_source import MetricSource

log_ = logging.getLogger("logdevice.indexlog")
log_.addFilter(is_worth_a_line)

SETTINGS: Final = AdminSettings(
    requests_max=256,
    connections_max=1024,
    connections_per_address_max=1024,
    request_timeout_us=60_000_000,
)
"""Readers that wait for something to be written count as requests that are worked on."""
PAGES_AT_ONCE: Final = 16
"""Each holds a page several times: as rows, and as the bytes of the answer, until these are sent."""
_LINE_MAX: Final = 2 * api.TOKEN_BYTES_MAX
_PREFIX: Final = "/v1/indexes/"


class IndexService:
    """Serves one index log. Use it as ``async with IndexService(log, endpoint) as service``, and then `listen_on`."""

    no_token = "nothing is changed here"

    def __init__(
        self,
        log: IndexLog,
        endpoint: AdminEndpoint,
        *,
        token: str | None = None,
        settings: AdminSettings = SETTINGS,
        security: HttpSecurity = CLEAR_TEXT,
        pages_at_once: int = PAGES_AT_ONCE,
    ) -> None:
        """
        Args:
            log: that is entered, and closed after this.
            endpoint: where it is served.
            token: that requests must carry; None: none.
            settings: limits.
            security: encryption, and who may read by certificate or signed token.
            pages_at_once: pages that are made or sent at a time; others wait.
        """
        self.log = log
        self.metrics = IndexServiceMetrics()
        self._seen = SeenParts()
        self._http = HttpListener(
            self, settings, endpoint, token, self.metrics, log_, line_max=_LINE_MAX, security=security
        )
        self._pages = asyncio.Semaphore(pages_at_once)
        self._serving = False
        self._sorted: tuple[int, list[str]] = (-1, [])
        """The index codes as of a state."""
        self._own: dict[str, Handler] = {"/v1/openapi.json": self._description, "/metrics": self._metrics_page}

    async def __aenter__(self) -> IndexService:
        await self.log.keep_tail()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._serving = False
        await self._http.close()

    async def listen_on(self, sock: socket.socket) -> None:
        """Accept connections on an address that `bind` has taken."""
        await self._http.listen_on(sock)
        self._serving = True

    # What is served

    def handler(self, request: web.BaseRequest) -> Handler:
        """What answers a request: as `HttpApi`."""
        path = request.path
        own = self._own.get(path)
        if own is None:
            index, rest = "", path
            if path.startswith(_PREFIX):
                index, slash, what = path.removeprefix(_PREFIX).partition("/")
                rest = f"{_PREFIX}{{index}}{slash}{what}"
            operation = OPERATIONS.get(rest)
            if operation is None:
                raise no_such_page(path)
            own = partial(self._run, operation, index)
        check_method(request, "GET", "HEAD")
        return own

    async def _run(self, operation: IndexOperation, index: str, request: web.BaseRequest) -> web.StreamResponse:
        return await operation.run(self, request, index, query_values(request.query, operation.parameters))

    def changes(self, path: str) -> bool:
        """Nothing does."""
        return False

    def is_for_readers(self, path: str) -> bool:
        """Everything is."""
        return True

    def health(self) -> dict[str, Any]:
        """Which index log it is."""
        return {"path": self.log.path}

    def readiness(self) -> Status:
        """OK while it serves."""
        return Status.OK if self._serving else Status.NOTREADY

    async def _description(self, request: web.BaseRequest) -> web.StreamResponse:
        return answer(api.describe(OPERATIONS, protected=not self._http.reads_are_open()))

    async def _metrics_page(self, request: web.BaseRequest) -> web.StreamResponse:
        tailer = await self.log.keep_tail()
        self.metrics.readers_waiting, self.metrics.tail_bytes = tailer.waiting, tailer.size
        seen = self._seen.look(self.log)
        sources = [
            MetricSource("index service", self.metrics),
            MetricSource("index log", seen),
            MetricSource("replica", self.log.manifest.metrics),
        ]
        text = await asyncio.to_thread(render, lambda: sources)
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def status(self, request: web.BaseRequest, index: str, given: Mapping[str, Any]) -> web.StreamResponse:
        """How far dealing is, and what there is."""
        seen = self._seen.look(self.log)
        undealt = {
            "records": seen.undealt_records,
            "bytes": seen.undealt_bytes,
            "seconds": round(seen.undealt_age / 1e6, 3),
        }
        return answer({**await self.log.describe(), "undealt": undealt})

    async def indexes(self, request: web.BaseRequest, index: str, given: Mapping[str, Any]) -> web.StreamResponse:
        """The indexes that are dealt, by code."""
        state = self.log.state
        if self._sorted[0] != state.serial:
            self._sorted = state.serial, sorted(state.indexes)
        codes, limit = self._sorted[1], given.get("limit", api.LIMIT_MAX)
        begin = bisect_right(codes, given["after"]) if "after" in given else 0
        rows = []
        for code in islice(codes, begin, begin + limit):
            parts = state.indexes[code]
            records, size = sum(part.records for part in parts), sum(part.bytes for part in parts)
            rows.append({"index": code, "parts": len(parts), "records": records, "bytes": size})
        return answer({"indexes": rows, "more": begin + limit < len(codes)})

    async def files(self, request: web.BaseRequest, index: str, given: Mapping[str, Any]) -> web.StreamResponse:
        """What an index consists of, oldest first."""
        rows = [
            {
                "name": part.name,
                "path": part.path,
                "place": part.place,
                "kind": part.kind.name.lower(),
                "records": part.records,
                "bytes": part.bytes,
            }
            for part in self.log.state.parts(index)
        ]
        return answer({"files": rows})

    async def page(self, request: web.BaseRequest, index: str, given: Mapping[str, Any]) -> web.StreamResponse:
        """A page of an index."""
        deadline = monotonic_us() + given.get("wait_ms", 0) * 1000
        token = given.get("token")
        try:
            while True:
                async with self._pages:
                    began = monotonic_us()
                    found = await self.log.read_page(index, token)
                    left = deadline - monotonic_us()
                    token = found.tail_token
                    if token is None or len(found.table) or left <= 0:
                        return await self._send(request, found, began)
                if not await self.log.news(token, left / 1e6):
                    deadline = 0
        except PageExpired as error:
            self.metrics.pages_expired += 1
            return refusal(error.status, error.detail, code=410)

    async def _send(self, request: web.BaseRequest, page: IndexPage, began: int) -> web.StreamResponse:
        media = ARROW if ARROW in request.headers.get("Accept", "") else JSON
        body = await asyncio.to_thread(_ENCODERS[media], page)
        metrics = self.metrics
        metrics.pages += 1
        metrics.page_rows += len(page.table)
        metrics.page_bytes += len(body)
        metrics.page_time.note(monotonic_us() - began)
        response = web.StreamResponse(
            headers={"Content-Type": media, "Cache-Control": "no-store", "Content-Length": str(len(body))}
        )
        await response.prepare(request)
        if request.method != "HEAD":
            await response.write(body)
        await response.write_eof()
        return response


def page_as_json(page: IndexPage) -> bytes:
    """A page as `indexlog.serving.api.PAGE` says."""
    rows = [
        {
            "docid": docid,
            "deleted": change.deleted,
            "timestamp": change.timestamp,
            "fields": change.fields,
            "variables": {str(number): worth for number, worth in change.variables.items()},
            "categories": change.categories,
        }
        for docid, change in page.rows()
    ]
    told = {"source": page.source, "next_token": page.next_token, "tail_token": page.tail_token, "rows": rows}
    return json.dumps(told, ensure_ascii=False).encode()


def page_as_arrow(page: IndexPage) -> bytes:
    """A page as a stream of Arrow, with columns of `indexlog.columns.SCHEMA`; source and tokens stand in the metadata of its schema."""
    told = {"source": page.source, "next_token": page.next_token, "tail_token": page.tail_token}
    table = page.table.replace_schema_metadata({name: text for name, text in told.items() if text is not None})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    body: bytes = sink.getvalue().to_pybytes()
    return body


_ENCODERS: Final = {ARROW: page_as_arrow, JSON: page_as_json}
OPERATIONS: Final[dict[str, IndexOperation]] = {
    operation.path: operation
    for operation in (
        IndexOperation(
            "get_status",
            "/v1/status",
            "How far dealing is, and what there is.",
            (),
            api.STATUS,
            IndexService.status,
        ),
        IndexOperation(
            "list_indexes",
            "/v1/indexes",
            "The indexes that have files or slices, by code.",
            (api.AFTER, api.LIMIT),
            api.INDEXES,
            IndexService.indexes,
        ),
        IndexOperation(
            "list_files",
            "/v1/indexes/{index}/files",
            "What an index consists of, oldest first.",
            (),
            api.FILES,
            IndexService.files,
        ),
        IndexOperation(
            "get_page",
            "/v1/indexes/{index}/pages",
            "A page of an index: the first one, or the one behind a token; 410 when the token has expired.",
            (api.TOKEN, api.WAIT),
            api.PAGE,
            IndexService.page,
            is_arrow=True,
        ),
    )
}
"""By path."""
