"""Tables that are sent row by row."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from aiohttp import web

from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import Micros
from logdevice_py.runtime.clock import monotonic_us
from logdevice_py.tables.declare import TableDeclaration
from server.admin.metrics import AdminMetrics
from server.admin.tables import Rows

TURN_BUDGET_US: Final = 500
"""For so long rows are made before other events of the node get their share."""


class TableAnswer:
    """Sends one table: ``{"cluster": .., "uuid": .., "node": .., "config_version": .., "table": .., "columns": [..], "rows": [[..], ..], "more": false}``.

    An answer that breaks off is no JSON, so nobody takes a part of a table for all of it.
    """

    def __init__(
        self,
        table: TableDeclaration,
        cluster: str,
        uuid: bytes,
        node: int,
        metrics: AdminMetrics,
        limit: int | None,
        *,
        config_version: int,
    ) -> None:
        """
        Args:
            cluster: whose node this is, by name.
            uuid: and for certain: clusters may have equal names.
            node: who answers; the first cell of every row where each node has rows of its own.
            limit: rows at most; when there are more, ``more`` says so. None: all.
            config_version: of the configuration that the node uses: who asks may know an earlier one.
        """
        self._table = table
        self._head = {
            "cluster": cluster,
            "uuid": uuid.hex(),
            "node": node,
            "config_version": config_version,
            "table": table.name,
            "columns": [c.name for c in table.columns],
        }
        self._prefix: tuple[int, ...] = (node,) if table.has_node_id else ()
        self._metrics = metrics
        self._limit = limit
        self._sent = 0
        self._more = False
        self._began: Micros = monotonic_us()

    async def send(self, request: web.BaseRequest, rows: Rows) -> web.StreamResponse:
        """Make the rows and send them.

        Raises:
            LogDeviceError: rows could not be made. Where some were sent before, the connection is broken off.
        """
        chunks = self._chunks(rows)
        first = await anext(chunks)  # what fails at once is answered as an error
        response = web.StreamResponse(headers={"Content-Type": "application/json", "Cache-Control": "no-store"})
        await response.prepare(request)
        await response.write(f'{json.dumps(self._head)[:-1]}, "rows": ['.encode() + first)
        try:
            async for chunk in chunks:
                await response.write(chunk)
        except LogDeviceError:
            if request.transport is not None:
                request.transport.abort()  # an error cannot follow what is out already
            raise
        await response.write_eof(f'], "more": {json.dumps(self._more)}}}\n'.encode())
        return response

    async def _chunks(self, rows: Rows) -> AsyncIterator[bytes]:
        texts: list[str] = []
        source = _steps(rows)
        self._began = monotonic_us()
        async for row in source:
            if self._limit is not None and self._sent >= self._limit:
                self._more = True
                break
            cells = json.dumps(self._prefix + self._table.cells(row), separators=(",", ":"))
            texts.append(f",\n{cells}" if self._sent else f"\n{cells}")
            self._sent += 1
            if monotonic_us() - self._began >= TURN_BUDGET_US:
                yield self._cut(texts)
                await asyncio.sleep(0)
                self._began = monotonic_us()
        yield self._cut(texts)

    def _cut(self, texts: list[str]) -> bytes:
        chunk = "".join(texts).encode()
        self._metrics.rows_sent += len(texts)
        texts.clear()
        took = monotonic_us() - self._began
        self._metrics.table_time += took
        self._metrics.table_time_max = max(self._metrics.table_time_max, took)
        return chunk


async def _steps(rows: Rows) -> AsyncIterator[Any]:
    if isinstance(rows, Iterator):
        for row in rows:
            yield row
    else:
        async for row in rows:
            yield row
