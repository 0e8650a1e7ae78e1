"""Serves the admin API. A slow or hostile client costs a bounded number of connections, requests, bytes and seconds, and no appends."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import json
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError

from logdevice_py.config.admin import AdminEndpoint, AdminSettings
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.admin_token import node_token, token_beside
from logdevice_py.runtime.clock import monotonic_us
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import Constraints
from server.admin import node_tables
from server.admin.actions import ACTIONS
from server.admin.answers import TableAnswer, answer, explain_failure, refusal
from server.admin.metrics import AdminMetrics
from server.admin.openapi import describe
from server.admin.places import ConnectionPlaces
from server.admin.prometheus import render
from server.admin.tables import NodeTables
from server.admin.try_page import PAGE, PAGE_HEADERS, TRY_PAGE
from server.process_metrics import ProcessMetrics

if TYPE_CHECKING:
    from server.node_view import AdminView

log = logging.getLogger("logdevice.admin")

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
_SWEEP: Final = 1.0
"""Seconds between looks for idle connections."""
_HEADER_MAX: Final = 4096
_BODY_MAX: Final = 4096
"""Bytes of the body of a request."""
_ACTIONS: Final = "/v1/actions/"
_TABLES: Final = "/v1/tables/"
_ROOT: Final = "/"
_UNLIMITED: Final = frozenset({"/v1/health", "/v1/ready"})
"""Answered whatever else is asked: whoever watches the node must not take a busy API for a dead node. They need no token."""
_NO_ACTIONS: Final = (
    "actions need a token, and this node has none: write one of 16 characters or more into a file beside its cluster file, with the name of "
    "that and the suffix .token, and start the node again"
)


def _is_worth_a_line(record: logging.LogRecord) -> bool:
    """Requests that cannot be understood are answered; anybody could fill the log with them."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


log.addFilter(_is_worth_a_line)


def read_token(cluster_file: Path, settings: AdminSettings, endpoint: AdminEndpoint) -> str | None:
    """The token that requests must carry; None for none.

    Raises:
        LogDeviceError: INVALID_CONFIG: it is required and there is none, it cannot be read, is too short, or others may read it.
    """
    token = node_token(cluster_file, settings.token_file)
    if token is not None:
        return token
    if not endpoint.is_loopback:
        raise LogDeviceError(
            Status.INVALID_CONFIG,
            "[settings.admin] expose = true: other machines reach the admin API, and there is no token: "
            f"write one into {token_beside(cluster_file)}, or name a file in token_file",
        )
    return None


class _Placed(asyncio.Protocol):
    """A connection that has a place from its first to its last moment; all it does is done by `inner`."""

    def __init__(self, inner: asyncio.Protocol, listener: AdminListener) -> None:
        self._inner = inner
        self._listener = listener
        self.data_received = inner.data_received  # type: ignore[method-assign]
        self.eof_received = inner.eof_received  # type: ignore[method-assign]
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._inner.connection_made(transport)
        self._listener.place(self._inner, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.places.gone(self._inner)
        self._inner.connection_lost(exc)


class AdminListener:
    """The admin API of one node. It answers from when it listens; until the node serves, NOTREADY."""

    def __init__(self, host: AdminView, settings: AdminSettings, endpoint: AdminEndpoint, token: str | None) -> None:
        self.metrics = AdminMetrics()
        self._host = host
        self._settings = settings
        self._endpoint = endpoint
        self._token = None if token is None else token.encode()
        self._tables = NodeTables(host)
        self.places = ConnectionPlaces(settings)
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._sampling: asyncio.Task[None] | None = None
        self._pages: dict[str, Handler] = {
            "/v1/health": self._health,
            "/v1/ready": self._ready,
            "/v1/node": self._node,
            "/v1/tables": self._list_tables,
            "/v1/openapi.json": self._description,
            "/metrics": self._metrics_page,
            TRY_PAGE: self._try_page,
            _ROOT: self._point_at_try_page,
        }
        self._runner: web.ServerRunner | None = None

    async def listen_on(self, sock: socket.socket) -> None:
        """Accept connections on an address that `bind` has taken."""
        # not aiohttp's Application: it answers some requests by itself, before anybody has looked at their token
        server = web.Server(
            self._guard,
            request_factory=_request,
            access_log=None,
            logger=log,
            max_line_size=_HEADER_MAX,
            max_field_size=_HEADER_MAX,
            lingering_time=1.0,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, sock=sock, backlog=64)
        self._sweeper = loop.call_later(_SWEEP, self._sweep)
        self._sampling = loop.create_task(self._tables.sampler.run(), name="samples of the admin API")

    def tell(self) -> None:
        """Say in the log what operators may miss, once the node serves."""
        if self._token is None:
            path = token_beside(self._host.path)
            log.info("the admin API refuses actions: there is no token; %s would hold it", path)

    async def close(self) -> None:
        """Stop; requests under way are ended."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.gather(self._sampling, return_exceptions=True)
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    # Connections

    def _accept(self) -> asyncio.Protocol:
        assert self._runner is not None
        assert self._runner.server is not None
        return _Placed(self._runner.server(), self)

    def place(self, protocol: asyncio.Protocol, transport: asyncio.BaseTransport) -> None:
        """A connection was accepted: where there is no place for it, an idle one makes way."""
        peer = transport.get_extra_info("peername")
        address = str(peer[0]) if peer else ""  # it may be gone already
        leaves = self.places.arrived(protocol, address, monotonic_us())
        if leaves is protocol:
            self.metrics.connections_refused += 1
            cast(asyncio.Transport, transport).abort()
        elif leaves is not None:
            self.metrics.connections_displaced += 1
            _abort(cast(asyncio.Protocol, leaves))

    def _sweep(self) -> None:
        for protocol in self.places.idle_before(monotonic_us() - self._settings.request_timeout_us):
            self.metrics.connections_idle += 1
            _abort(cast(asyncio.Protocol, protocol))
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP, self._sweep)

    # Requests

    async def _guard(self, request: web.BaseRequest) -> web.StreamResponse:
        protocol = cast(asyncio.Protocol, request.protocol)
        self.places.busy(protocol)
        metrics = self.metrics
        metrics.requests_running += 1
        try:
            response = await self._admit(request)
        finally:
            metrics.requests += 1
            metrics.requests_running -= 1
            self.places.idle(protocol, monotonic_us())
        if response.status >= 400:
            metrics.requests_failed += 1
            response.force_close()  # a body that was sent along is not read
        return response

    async def _admit(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if not self._has_token(request):
            refused = self._refuse_stranger(request)
            if refused is not None:
                self.metrics.requests_unauthorized += 1
                return refused
        running_max = min(
            self._settings.requests_max, self._settings.connections_max
        )  # places are left for health checks
        if path not in _UNLIMITED and self.metrics.requests_running > running_max:
            self.metrics.requests_overloaded += 1
            return refusal(Status.OVERLOADED, f"{running_max} requests are worked on")
        try:
            async with asyncio.timeout(self._settings.request_timeout_us / 1e6):
                await _expect(request)
                return await self._handler(request)(request)
        except TimeoutError:
            self.metrics.requests_timed_out += 1
            _abort(cast(asyncio.Protocol, request.protocol))  # a part of the answer may be out
            return refusal(Status.TIMEDOUT)
        except ConnectionResetError:
            self.metrics.requests_abandoned += 1
            return refusal(Status.PEER_CLOSED)  # to nobody
        except web.HTTPRequestEntityTooLarge:
            return refusal(Status.TOOBIG, f"a request has at most {_BODY_MAX} bytes")
        except LogDeviceError as error:
            return explain_failure(error)

    def _handler(self, request: web.BaseRequest) -> Handler:
        """What answers a request.

        Raises:
            LogDeviceError: NOTFOUND: nothing has that path; NOTSUPPORTED: it takes another method.
        """
        path, handler = request.path, self._pages.get(request.path)
        methods: tuple[str, ...] = ("GET", "HEAD")
        if path.startswith(_ACTIONS):
            methods, handler = ("POST",), partial(self._action, path.removeprefix(_ACTIONS))
        elif path.startswith(_TABLES):
            handler = partial(self._table, path.removeprefix(_TABLES))
        elif handler is None:
            raise LogDeviceError(
                Status.NOTFOUND, f"{path[:100]}: there is no such page; {TRY_PAGE} shows what there is"
            )
        if request.method not in methods:
            raise LogDeviceError(Status.NOTSUPPORTED, f"{request.method[:20]}: only {', '.join(methods)}")
        return handler

    def _has_token(self, request: web.BaseRequest) -> bool:
        if self._token is None:
            return False
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        # what is no UTF-8 in a header stands there as surrogates
        given_bytes = given.strip().encode("utf-8", "surrogateescape")
        return scheme.lower() == "bearer" and hmac.compare_digest(given_bytes, self._token)

    def _refuse_stranger(self, request: web.BaseRequest) -> web.Response | None:
        """Why a request without the token is refused; None when it needs none."""
        if request.path.startswith(_ACTIONS) and self._token is None:
            return refusal(Status.ACCESS, _NO_ACTIONS)
        if request.path.startswith(_ACTIONS) or not (
            self._reads_are_open() or request.path in _UNLIMITED or request.path in (TRY_PAGE, _ROOT)
        ):
            return refusal(Status.ACCESS, "a valid bearer token is required", code=401)
        if self._endpoint.is_loopback and not _names_a_machine(request.host):
            return refusal(Status.ACCESS, "Host: write an address, or localhost")
        return None

    def _reads_are_open(self) -> bool:
        """Whether what only reads needs no token."""
        return self._token is None or (self._settings.open_reads and self._endpoint.is_loopback)

    async def _health(self, request: web.BaseRequest) -> web.StreamResponse:
        """The process answers; what else is known of its health stands beside that, and is no reason to end it."""
        return answer({"status": "OK", **self._facts(request)})

    async def _ready(self, request: web.BaseRequest) -> web.StreamResponse:
        status = self._host.readiness()
        return answer({"status": status.name, **self._facts(request)}) if status is Status.OK else refusal(status)

    def _facts(self, request: web.BaseRequest) -> dict[str, Any]:
        """For whoever may read."""
        if not self._reads_are_open() and not self._has_token(request):
            return {}
        return {"node": self._host.node_id, **(self._host.health() if self._host.is_open else {})}

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
        logs = self._tables.sampler.logs.sources(self._settings.metrics_logs_max)
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
        rows = iter(()) if constraints.nothing else self._tables.rows(name, constraints)
        sending = TableAnswer(table, self._host.config.name, self._host.node_id, self.metrics, limit)
        return await sending.send(request, rows)

    async def _description(self, request: web.BaseRequest) -> web.StreamResponse:
        tables = (TABLES[name] for name in self._tables.names())
        return answer(describe(tables, protected=not self._reads_are_open()))

    async def _try_page(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=PAGE, content_type="text/html", headers=PAGE_HEADERS)

    async def _point_at_try_page(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": TRY_PAGE})

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
        log.warning("an operator asked for %s %s", name, parameters)
        return answer(await action.run(self._host, parameters))

    def use_settings(self, settings: AdminSettings) -> None:
        """Go on with other limits."""
        self._settings = self.places.settings = settings

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


def _names_a_machine(host: str) -> bool:
    """Whether the header Host holds an address: pages of the Web reach loopback addresses by names of their own."""
    name = host[1 : host.find("]")] if host.startswith("[") else host.partition(":")[0]
    if name.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _request(
    message: RawRequestMessage,
    payload: StreamReader,
    protocol: web.RequestHandler,
    writer: AbstractStreamWriter,
    task: asyncio.Task[None],
) -> web.BaseRequest:
    """A request whose body is bounded."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_BODY_MAX)


async def _expect(request: web.BaseRequest) -> None:
    """Tell a client that waits with the body for a word from us to send it."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def _abort(protocol: asyncio.Protocol) -> None:
    transport = getattr(protocol, "transport", None)
    if transport is not None:
        transport.abort()
