"""The console of a node, for its admin API: which requests it answers, and how."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.http.listener import Handler, check_method
from server.console.pages import pages
from server.console.worker_link import WorkerLink

PREFIX: Final = "/v1/console/"
EVENTS: Final = f"{PREFIX}events"
STREAMS: Final = frozenset({EVENTS})
_ACCESS: Final = "access"
ASKED: Final = (
    "logs",
    "log",
    "records",
    "check",
    "streams",
    "stream",
    "index-logs",
    "index-files",
    "maintenances",
    _ACCESS,
)
"""What the worker is asked for by GET, with its parameters in the query."""
_SQL: Final = "sql"
_RECORDS: Final = "records"
ANSWER_SECONDS: Final = 9.0
"""Less than the time that a request has by default, so that whoever waits gets a reason."""
_STALL_SECONDS: Final = 30.0
"""A browser that does not take what is sent for so long is disconnected."""


class NodeConsole:
    """Pages, the live state, and questions. It changes nothing in the cluster."""

    def __init__(
        self, cluster_file: Path, node: NodeId, token: str | None, *, for_administrators: bool = False
    ) -> None:
        """
        Args:
            token: of the admin API.
            for_administrators: records are shown to administrators only.
        """
        self.pages = pages()
        self._for_administrators = for_administrators
        self._link = WorkerLink(cluster_file, node, token)

    def handler(self, request: web.BaseRequest, authorized: bool) -> Handler | None:
        """What answers a request; None: it is not the console's.

        Args:
            authorized: whether an administrator asks. Nobody sees more through the console than by asking the nodes himself: the worker
                shows the token and the node's certificate to other nodes only for administrators.

        Raises:
            LogDeviceError: NOTSUPPORTED: another method; ACCESS: records are for those who may read them.
        """
        if not request.path.startswith(PREFIX):
            return None
        name = request.path.removeprefix(PREFIX)
        if request.path == EVENTS:
            check_method(request, "GET")
            return partial(self._events, authorized)
        if name == _SQL:
            check_method(request, "POST")
            return partial(self._run_sql, authorized)
        if name == _RECORDS and self._for_administrators and not authorized:
            raise LogDeviceError(
                Status.ACCESS, "the console shows records to administrators only: key a asks for the token"
            )
        if name in ASKED:
            check_method(request, "GET")
            return partial(self._ask, name, authorized)
        return None

    async def close(self) -> None:
        """End the worker; streams end with it."""
        await self._link.close()

    async def _ask(self, name: str, authorized: bool, request: web.BaseRequest) -> web.StreamResponse:
        given = dict(request.query)
        if name == _ACCESS:
            given["from"] = request.remote or ""
        return await self._answer(name, given, authorized)

    async def _run_sql(self, authorized: bool, request: web.BaseRequest) -> web.StreamResponse:
        """A statement only reads. What pages of the Web can have a browser send without asking has no such content type."""
        if request.content_type != "application/json":
            raise LogDeviceError(Status.INVALID_PARAM, "the content type must be application/json")
        try:
            given = json.loads(await request.read())
            statement = given["sql"]
        except (ValueError, RecursionError, TypeError, KeyError):
            statement = None
        if not isinstance(statement, str):
            raise LogDeviceError(Status.INVALID_PARAM, 'write a JSON object: {"sql": "SELECT ..."}')
        return await self._answer(_SQL, {"sql": statement}, authorized)

    async def _answer(self, name: str, given: dict[str, Any], authorized: bool) -> web.StreamResponse:
        body = await self._link.ask(name, given, authorized=authorized, seconds=ANSWER_SECONDS)
        headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def _events(self, authorized: bool, request: web.BaseRequest) -> web.StreamResponse:
        """Server-sent events: `state` with the cluster's state, when it has changed; a comment otherwise, so that a lost browser is noticed."""
        async with aclosing(self._link.watch("watch", {}, authorized=authorized)) as states:  # type: ignore[type-var]
            first = await anext(states)  # what fails at once is answered as an error
            response = web.StreamResponse(
                headers={
                    "Content-Type": "text/event-stream; charset=utf-8",
                    "Cache-Control": "no-store",
                    "X-Content-Type-Options": "nosniff",
                }
            )
            await response.prepare(request)
            try:
                await _tell(response, first)
                async for state in states:
                    await _tell(response, state)
            except LogDeviceError as error:
                text = json.dumps({"status": error.status.name, "detail": error.detail})
                await response.write(f"event: failed\ndata: {text}\n\n".encode())
            await response.write_eof()
            return response


async def _tell(response: web.StreamResponse, state: bytes) -> None:
    try:
        async with asyncio.timeout(_STALL_SECONDS):
            await response.write(b": still\n\n" if state == b"null" else b"event: state\ndata: %b\n\n" % state)
    except TimeoutError:
        raise ConnectionResetError("the browser does not take what is sent") from None
