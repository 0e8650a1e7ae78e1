"""Serves HTTP. A slow or hostile client costs a bounded number of connections, requests, bytes and seconds."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol, cast

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage
from aiohttp.http_exceptions import HttpProcessingError

from logdevice_py.config.admin import AdminEndpoint, AdminSettings
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.clock import monotonic_us
from logdevice_py.runtime.diagnostics import Diagnostics
from logdevice_py.runtime.http.answers import answer, explain_failure, refusal
from logdevice_py.runtime.http.connection import HttpConnection
from logdevice_py.runtime.http.metrics import HttpMetrics
from logdevice_py.runtime.http.places import ConnectionPlaces
from logdevice_py.runtime.http.security import CLEAR_TEXT, PROOF, TOKEN_BEARER, Caller, HttpSecurity, proof_of
from logdevice_py.runtime.http.try_page import PAGE, PAGE_HEADERS, TRY_PAGE

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
BODY_MAX: Final = 4096
"""Bytes of the body of a request."""
_LINE_MAX: Final = 4096
_SWEEP: Final = 1.0
"""Seconds between looks for idle connections."""
_ROOT: Final = "/"
HEALTH: Final = "/v1/health"
READY: Final = "/v1/ready"
UNLIMITED: Final = frozenset({HEALTH, READY})
"""Answered whatever else is asked: whoever watches the process must not take a busy service for a dead process. They need no token."""


def is_worth_a_line(record: logging.LogRecord) -> bool:
    """Requests that cannot be understood are answered; anybody could fill the log with them."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


class HttpApi(Protocol):
    """What a listener serves."""

    def handler(self, request: web.BaseRequest) -> Handler:
        """What answers a request, of which it is known who may send it.

        Raises:
            LogDeviceError: NOTFOUND: nothing has that path; NOTSUPPORTED: it takes another method.
        """

    def changes(self, path: str) -> bool:
        """Whether requests of a path change something: they need the token, or an administrator, always."""

    def is_for_readers(self, path: str) -> bool:
        """Whether a path is for those who may only read."""

    def health(self) -> dict[str, Any]:
        """What whoever may read is told besides that the process answers."""

    def readiness(self) -> Status:
        """OK when requests are served."""

    no_token: str
    """Why what changes something is refused where there is no token."""


class HttpListener:
    """One service at one address, with its health, and a page on which it can be tried; the rest is the api's."""

    def __init__(
        self,
        api: HttpApi,
        settings: AdminSettings,
        endpoint: AdminEndpoint,
        token: str | None,
        metrics: HttpMetrics,
        log: logging.Logger,
        *,
        line_max: int = _LINE_MAX,
        open_pages: Mapping[str, Handler] | None = None,
        streams: frozenset[str] = frozenset(),
        on_refused: Callable[[web.BaseRequest, Caller], None] | None = None,
        bodies: Mapping[str, int] | None = None,
        security: HttpSecurity = CLEAR_TEXT,
    ) -> None:
        """
        Args:
            api: what is served.
            settings: limits, and what is open to whom.
            endpoint: where it is served.
            token: that requests must carry; None: what only reads needs none, what changes something is refused.
            metrics: count here.
            log: for what goes wrong.
            line_max: bytes of a line of a request's head.
            open_pages: pages without data, by path: anybody who reaches the service gets them. One of them may be `/`.
            streams: paths whose answers go on for as long as somebody reads them: they have no time limit and are counted apart,
                at most `streams_max` of the settings.
            on_refused: is told of requests of those who may not have what they ask for.
            bodies: bytes that the bodies of some requests may have, by path, instead of `BODY_MAX`.
            security: encryption, and who is believed to be whom.
        """
        self.places = ConnectionPlaces(settings)
        self.metrics = metrics
        self.security = security
        self._diagnostics = Diagnostics(log)
        self._proved: set[HttpConnection] = set()
        """Connections, where what they prove may cease to count."""
        self._streaming: dict[asyncio.Protocol, web.BaseRequest] = {}
        """Requests for streams that are answered, by connection."""
        self._api = api
        self._settings = settings
        self._endpoint = endpoint
        self._token = None if token is None else token.encode()
        self._log = log
        self._line_max = line_max
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._pages: dict[str, Handler] = {
            HEALTH: self._health,
            READY: self._ready,
            TRY_PAGE: self._try_page,
            _ROOT: self._point_at_try_page,
            **(open_pages or {}),
        }
        self._open_paths = frozenset({TRY_PAGE, _ROOT, *(open_pages or ())})
        self._stream_paths = streams
        self._on_refused = on_refused
        self._bodies = bodies or {}
        self._runner: web.ServerRunner | None = None

    async def listen_on(self, sock: socket.socket) -> None:
        """Accept connections on an address that `bind` has taken."""
        # not aiohttp's Application: it answers some requests by itself, before anybody has looked at their token
        server = web.Server(
            self._guard,
            request_factory=self._request,
            access_log=None,
            logger=self._log,
            max_line_size=self._line_max,
            max_field_size=self._line_max,
            lingering_time=1.0,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=1.0)
        await self._runner.setup()
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accept, sock=sock, backlog=64)
        self._sweeper = loop.call_later(_SWEEP, self._sweep)

    async def close(self) -> None:
        """Stop; requests under way are ended."""
        if self._sweeper is not None:
            self._sweeper.cancel()
        if self._server is not None:
            self._server.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def use_settings(self, settings: AdminSettings) -> None:
        """Go on with other limits."""
        self._settings = self.places.settings = settings

    @property
    def settings(self) -> AdminSettings:
        """Limits, and what is open to whom."""
        return self._settings

    # Connections

    def _accept(self) -> asyncio.Protocol:
        assert self._runner is not None
        assert self._runner.server is not None
        return HttpConnection(self._runner.server(), self)

    def arrived(self, connection: HttpConnection) -> None:
        """A connection was accepted: where there is no place for it, an idle one makes way."""
        assert connection.transport is not None
        if self.security.contexts is not None:
            self._proved.add(connection)
        peer = connection.transport.get_extra_info("peername")
        address = str(peer[0]) if peer else ""  # it may be gone already
        leaves = self.places.arrived(connection.inner, address, monotonic_us())
        if leaves is connection.inner:
            self.metrics.connections_refused += 1
            connection.abort()
        elif leaves is not None:
            self.metrics.connections_displaced += 1
            _abort(cast(asyncio.Protocol, leaves))

    def left(self, connection: HttpConnection) -> None:
        """A connection is gone."""
        self._proved.discard(connection)
        self.places.gone(connection.inner)

    def failed(self, connection: HttpConnection, why: str) -> None:
        """A connection is closed for what the other end sent."""
        self.metrics.tls_failed += 1
        assert connection.transport is not None
        peer = connection.transport.get_extra_info("peername")
        origin = str(peer[0]) if peer else "somebody"
        self._diagnostics.warn("no TLS connection", f"{origin}: {why}; connection closed", monotonic_us())

    def _sweep(self) -> None:
        for protocol in self.places.idle_before(monotonic_us() - self._settings.request_timeout_us):
            self.metrics.connections_idle += 1
            _abort(cast(asyncio.Protocol, protocol))
        self._end_fallen()
        self._sweeper = asyncio.get_running_loop().call_later(_SWEEP, self._sweep)

    def _end_fallen(self) -> None:
        """Read certificates and revoked numbers again if they changed; end connections that stand on what counts no longer, and streams of those
        who may not see them any more."""
        if self.security.contexts is None:
            return
        self.security.contexts.reload()
        for connection in [each for each in self._proved if self.security.fallen(each.proof)]:
            connection.abort()
        for protocol, request in list(self._streaming.items()):
            if self._refuse_stranger(request, self.caller(request)) is not None:
                _abort(protocol)

    # Requests

    async def _guard(self, request: web.BaseRequest) -> web.StreamResponse:
        protocol = cast(asyncio.Protocol, request.protocol)
        self.places.busy(protocol)
        metrics = self.metrics
        streams = request.path in self._stream_paths
        metrics.streams_open += streams
        metrics.requests_running += not streams
        if streams:
            self._streaming[protocol] = request
        try:
            response = await self._admit(request)
        finally:
            self._streaming.pop(protocol, None)
            metrics.requests += 1
            metrics.streams_open -= streams
            metrics.requests_running -= not streams
            self.places.idle(protocol, monotonic_us())
        if response.status >= 400:
            metrics.requests_failed += 1
            response.force_close()  # a body that was sent along is not read
        return response

    async def _admit(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        caller = self.caller(request)
        if not caller.is_administrator:
            refused = self._refuse_stranger(request, caller)
            if refused is not None:
                self.metrics.requests_unauthorized += 1
                if self._on_refused is not None:
                    self._on_refused(request, caller)
                return refused
        streams = path in self._stream_paths
        if streams and self.metrics.streams_open > self._streams_max():
            self.metrics.requests_overloaded += 1
            return refusal(Status.OVERLOADED, f"{self._streams_max()} streams are open")
        running_max = min(
            self._settings.requests_max, self._settings.connections_max
        )  # places are left for health checks
        if path not in UNLIMITED and not streams and self.metrics.requests_running > running_max:
            self.metrics.requests_overloaded += 1
            return refusal(Status.OVERLOADED, f"{running_max} requests are worked on")
        try:
            async with asyncio.timeout(None if streams else self._settings.request_timeout_us / 1e6):
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
            return refusal(Status.TOOBIG, f"a request has at most {self._body_max(path)} bytes")
        except LogDeviceError as error:
            return explain_failure(error)

    def _body_max(self, path: str) -> int:
        return self._bodies.get(path, BODY_MAX)

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        """A request whose body is bounded."""
        loop = asyncio.get_running_loop()
        body_max = self._body_max(message.url.path)
        return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=body_max)

    def _streams_max(self) -> int:
        settings = self._settings  # places are left for requests
        return min(settings.streams_max, max(0, settings.connections_max - settings.requests_max))

    def _handler(self, request: web.BaseRequest) -> Handler:
        own = self._pages.get(request.path)
        if own is None:
            return self._api.handler(request)
        check_method(request, "GET", "HEAD")
        return own

    def caller(self, request: web.BaseRequest) -> Caller:
        """Who sent a request: the bearer of the token, or whom a certificate or a signed token names."""
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        bearer = given.strip() if scheme.lower() == "bearer" else ""
        # what is no UTF-8 in a header stands there as surrogates
        if self._token is not None and hmac.compare_digest(bearer.encode("utf-8", "surrogateescape"), self._token):
            return TOKEN_BEARER
        told = None if request.transport is None else request.transport.get_extra_info(PROOF)
        return self.security.caller(proof_of(told), bearer)

    def _refuse_stranger(self, request: web.BaseRequest, caller: Caller) -> web.Response | None:
        """Why a request of somebody is refused; None when he may have what it asks for."""
        path = request.path
        if caller.is_administrator:
            return None
        changes = self._api.changes(path)
        if changes and caller.name:
            return refusal(Status.ACCESS, f"principal {caller.name} may not do this: it has no admin in [defaults]")
        if changes and self._token is None and self.security.contexts is None:
            return refusal(Status.ACCESS, self._api.no_token)
        is_open = self.reads_are_open() or path in UNLIMITED or path in self._open_paths
        if changes or not (is_open or (caller.is_reader and self._api.is_for_readers(path))):
            if caller.name:
                return refusal(Status.ACCESS, f"principal {caller.name} may not read this")
            return refusal(Status.ACCESS, "a valid bearer token, or a certificate, is required", code=401)
        if self._endpoint.is_loopback and not _names_a_machine(request.host):
            return refusal(Status.ACCESS, "Host: write an address, or localhost")
        return None

    def reads_are_open(self) -> bool:
        """Whether what only reads needs no proof of who asks."""
        if not self._endpoint.is_loopback and self.security.contexts is not None:
            return False
        return self._token is None or (self._settings.open_reads and self._endpoint.is_loopback)

    async def _health(self, request: web.BaseRequest) -> web.StreamResponse:
        """The process answers; what else is known of its health stands beside that, and is no reason to end it."""
        return answer({"status": "OK", **self._facts(request)})

    async def _ready(self, request: web.BaseRequest) -> web.StreamResponse:
        status = self._api.readiness()
        return answer({"status": status.name, **self._facts(request)}) if status is Status.OK else refusal(status)

    def _facts(self, request: web.BaseRequest) -> dict[str, Any]:
        return self._api.health() if self.reads_are_open() or self.caller(request).is_reader else {}

    async def _try_page(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=PAGE, content_type="text/html", headers=PAGE_HEADERS)

    async def _point_at_try_page(self, request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": TRY_PAGE})


def check_method(request: web.BaseRequest, *methods: str) -> None:
    """That a request has one of these methods.

    Raises:
        LogDeviceError: NOTSUPPORTED.
    """
    if request.method not in methods:
        raise LogDeviceError(Status.NOTSUPPORTED, f"{request.method[:20]}: only {', '.join(methods)}")


def no_such_page(path: str) -> LogDeviceError:
    """The error for a path that nothing has."""
    return LogDeviceError(Status.NOTFOUND, f"{path[:100]}: there is no such page; {TRY_PAGE} shows what there is")


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


async def _expect(request: web.BaseRequest) -> None:
    """Tell a client that waits with the body for a word from us to send it."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def _abort(protocol: asyncio.Protocol) -> None:
    transport = getattr(protocol, "transport", None)
    if transport is not None:
        transport.abort()
