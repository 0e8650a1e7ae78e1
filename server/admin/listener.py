"""Serves the admin API of a node, and costs no appends."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from logdevice_py.config.admin import AdminEndpoint, AdminSettings
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.admin_token import node_token, token_beside
from logdevice_py.runtime.http.answers import answer
from logdevice_py.runtime.http.listener import Handler, HttpListener, check_method, is_worth_a_line, no_such_page
from logdevice_py.runtime.http.prometheus import render
from logdevice_py.runtime.http.security import CLEAR_TEXT, Caller, HttpSecurity
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import Constraints
from server.admin import node_tables
from server.admin.actions import ACTIONS
from server.admin.answers import TableAnswer
from server.admin.metrics import AdminMetrics
from server.admin.openapi import describe
from server.admin.tables import NodeTables
from server.audit.audit_log import ALLOWED
from server.console.console import PREFIX, STREAMS, NodeConsole
from server.process_metrics import ProcessMetrics

if TYPE_CHECKING:
    from server.node_view import AdminView

log = logging.getLogger("logdevice.admin")
log.addFilter(is_worth_a_line)

_ACTIONS: Final = "/v1/actions/"
_TABLES: Final = "/v1/tables/"
_NO_ACTIONS: Final = (
    "actions need a token, and this node has none: write one of 16 characters or more into a file beside its cluster file, with the name of "
    "that and the suffix .token, and start the node again"
)


def read_token(
    cluster_file: Path, settings: AdminSettings, endpoint: AdminEndpoint, *, proves: bool = False
) -> str | None:
    """The token that requests must carry; None for none.

    Args:
        proves: administrators can prove who they are without one.

    Raises:
        LogDeviceError: INVALID_CONFIG: it is required and there is none, it cannot be read, is too short, or others may read it.
    """
    token = node_token(cluster_file, settings.token_file)
    if token is not None:
        return token
    if not endpoint.is_loopback and not proves:
        raise LogDeviceError(
            Status.INVALID_CONFIG,
            "[settings.admin] expose = true: other machines reach the admin API, and there is no token: "
            f"write one into {token_beside(cluster_file)}, or name a file in token_file",
        )
    return None


class AdminListener:
    """The admin API of one node. It answers from when it listens; until the node serves, NOTREADY."""

    no_token = _NO_ACTIONS

    def __init__(
        self,
        host: AdminView,
        settings: AdminSettings,
        endpoint: AdminEndpoint,
        token: str | None,
        security: HttpSecurity = CLEAR_TEXT,
    ) -> None:
        self.metrics = AdminMetrics()
        self._host = host
        self._has_token = token is not None
        self._tables = NodeTables(host)
        self._console = NodeConsole(host.path, host.node_id, token, for_administrators=security.permissions)
        self._http = HttpListener(
            self,
            settings,
            endpoint,
            token,
            self.metrics,
            log,
            open_pages=self._console.pages,
            streams=STREAMS,
            on_refused=self._note_refusal,
            bodies={f"{_ACTIONS}{name}": action.body_max for name, action in ACTIONS.items()},
            security=security,
        )
        self._sampling: asyncio.Task[None] | None = None
        self._pages: dict[str, Handler] = {
            "/v1/node": self._node,
            "/v1/tables": self._list_tables,
            "/v1/openapi.json": self._description,
            "/metrics": self._metrics_page,
        }

    async def listen_on(self, sock: socket.socket) -> None:
        """Accept connections on an address that `bind` has taken."""
        await self._http.listen_on(sock)
        self._sampling = asyncio.get_running_loop().create_task(
            self._tables.sampler.run(), name="samples of the admin API"
        )

    def tell(self) -> None:
        """Say in the log what operators may miss, once the node serves."""
        if not self._has_token and not self._http.security.permissions:
            path = token_beside(self._host.path)
            log.info("the admin API refuses actions: there is no token; %s would hold it", path)

    async def close(self) -> None:
        """Stop; requests under way are ended."""
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
        await self._console.close()
        await self._http.close()

    def use_settings(self, settings: AdminSettings) -> None:
        """Go on with other limits."""
        self._http.use_settings(settings)

    # What is served

    def handler(self, request: web.BaseRequest) -> Handler:
        """What answers a request: as `HttpApi`."""
        path = request.path
        if path.startswith(_ACTIONS):
            check_method(request, "POST")
            return partial(self._action, path.removeprefix(_ACTIONS))
        if path.startswith(_TABLES):
            found: Handler | None = partial(self._table, path.removeprefix(_TABLES))
        elif (of_console := self._console.handler(request, self._http.caller(request).is_administrator)) is not None:
            return of_console
        else:
            found = self._pages.get(path)
        if found is None:
            raise no_such_page(path)
        check_method(request, "GET", "HEAD")
        return found

    def changes(self, path: str) -> bool:
        """Actions do."""
        return path.startswith(_ACTIONS)

    def is_for_readers(self, path: str) -> bool:
        """What the console shows are records too."""
        return not path.startswith(PREFIX)

    def health(self) -> dict[str, Any]:
        """Of the node."""
        return {"node": self._host.node_id, **(self._host.health() if self._host.is_open else {})}

    def readiness(self) -> Status:
        """Of the node."""
        return self._host.readiness()

    async def _node(self, request: web.BaseRequest) -> web.StreamResponse:
        self._must_serve()
        table = TABLES["info"]
        names = [column.name for column in table.columns]
        row = next(node_tables.info_rows(self._host))
        return answer(dict(zip(names, (int(self._host.node_id), *table.cells(row)), strict=True)))

    def process_metrics(self) -> ProcessMetrics:
        """Of the process."""
        return self._tables.sampler.process

    async def _metrics_page(self, request: web.BaseRequest) -> web.StreamResponse:
        self._must_serve()
        logs = self._tables.sampler.logs.sources(self._http.settings.metrics_logs_max)
        sources = [*self._host.metric_sources(), *logs]
        text = await asyncio.to_thread(render, lambda: sources)  # hundreds of families: too much for one turn
        return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _list_tables(self, request: web.BaseRequest) -> web.StreamResponse:
        return answer(
            {
                "tables": [
                    {
                        "name": table.name,
                        "rows": table.doc,
                        "source": table.source.value,
                        "required": list(table.required),
                        "columns": [
                            {"name": each.name, "type": each.kind.value, "doc": each.doc} for each in table.columns
                        ],
                    }
                    for table in (TABLES[name] for name in self._tables.names())
                ]
            }
        )

    async def _table(self, name: str, request: web.BaseRequest) -> web.StreamResponse:
        if name not in self._tables.names():
            raise LogDeviceError(Status.NOTFOUND, f"{name[:100]}: no such table; /v1/tables lists them")
        self._must_serve()
        table = TABLES[name]
        try:
            limit, constraints = _parse(request)
        except ValueError as error:
            raise LogDeviceError(Status.INVALID_PARAM, str(error)) from None
        missing = sorted(set(table.required) - constraints.constrained)
        if missing:
            raise LogDeviceError(Status.INVALID_PARAM, f"table {name} is read by {' and '.join(table.required)} only")
        if table.has_payloads and not constraints.bare and not self._may_see_payloads(request):
            raise LogDeviceError(
                Status.ACCESS,
                f"table {name} shows payloads to administrators only: ask with bare=1, which leaves them out",
            )
        rows = iter(()) if constraints.nothing else self._tables.rows(name, constraints)
        config = self._host.config
        sending = TableAnswer(
            table, config.name, config.uuid, self._host.node_id, self.metrics, limit, config_version=config.version
        )
        return await sending.send(request, rows)

    def _may_see_payloads(self, request: web.BaseRequest) -> bool:
        """Who may read tables may not therefore read all logs, where permissions say who may."""
        return not self._http.security.permissions or self._http.caller(request).is_administrator

    async def _description(self, request: web.BaseRequest) -> web.StreamResponse:
        tables = (TABLES[name] for name in self._tables.names())
        return answer(describe(tables, protected=not self._http.reads_are_open()))

    async def _action(self, name: str, request: web.BaseRequest) -> web.StreamResponse:
        """What pages of the Web can have a browser send without asking has no such content type."""
        action = ACTIONS.get(name)
        if action is None:
            raise LogDeviceError(Status.NOTFOUND, f"{name[:100]}: no such action; there are {', '.join(ACTIONS)}")
        if request.content_type != "application/json":
            raise LogDeviceError(Status.INVALID_PARAM, "the content type must be application/json")
        try:
            given = json.loads(await request.read())
        except (ValueError, RecursionError):
            raise LogDeviceError(Status.INVALID_PARAM, "write a JSON object") from None
        parameters = action.check(given)
        self._must_serve()
        self.metrics.actions += 1
        told = action.told(parameters)
        host, origin, who = self._host, request.remote or "", self._http.caller(request).name
        log.warning("%s asked for %s %s", who, name, told)
        await host.note_action(who, origin, name, told, ALLOWED)
        outcome = Status.ABORTED
        try:
            done = await action.run(host, parameters)
            outcome = Status.OK
        except LogDeviceError as error:
            outcome = error.status
            raise
        finally:
            await host.note_action(who, origin, name, told, outcome.name)
        return answer(done)

    def _note_refusal(self, request: web.BaseRequest, caller: Caller) -> None:
        self._host.note_refusal(caller.name, request.remote or "", request.path[:200])

    def _must_serve(self) -> None:
        if not self._host.is_open:
            raise LogDeviceError(self._host.readiness())


def _parse(request: web.BaseRequest) -> tuple[int | None, Constraints]:
    parameters: dict[str, str] = {}
    for name, text in request.query.items():
        if name in parameters:
            raise ValueError(f"{name}: given twice")
        parameters[name] = text
    raw = parameters.pop("limit", None)
    if raw is not None and not (raw.isascii() and raw.isdigit() and len(raw) < 10):
        raise ValueError(f"limit: {raw[:20]!r} is no number of rows")
    return None if raw is None else int(raw), Constraints.parse(parameters)
