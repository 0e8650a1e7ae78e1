"""A connection of an HTTP service: clear text or TLS at the same port, as its first byte tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol, cast

from logdevice_py.core.status import LogDeviceError
from logdevice_py.runtime.http.security import PROOF, HttpSecurity
from logdevice_py.runtime.tls import HANDSHAKE_RECORD, TlsChannel
from logdevice_py.shell.proof import NO_PROOF

_READ_SIZE: Final = 64 << 10
_CLEAR_TEXT_BODY: Final = b'{"error": {"status": "ACCESS", "detail": "clear text is not taken here: ask with https"}}'
_CLEAR_TEXT_REFUSED: Final = (
    b"HTTP/1.1 426 Upgrade Required\r\nUpgrade: TLS/1.3, HTTP/1.1\r\nContent-Type: application/json\r\nCache-Control: no-store\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(_CLEAR_TEXT_BODY), _CLEAR_TEXT_BODY)
)


class ConnectionOwner(Protocol):
    """The service that a connection is one of."""

    security: HttpSecurity

    def arrived(self, connection: HttpConnection) -> None:
        """It was accepted."""

    def left(self, connection: HttpConnection) -> None:
        """It is gone."""

    def failed(self, connection: HttpConnection, why: str) -> None:
        """It is closed for what the other end sent."""


class HttpConnection(asyncio.Protocol):
    """One connection; what it carries is handled by `inner`, the protocol of HTTP."""

    def __init__(self, inner: asyncio.Protocol, owner: ConnectionOwner) -> None:
        self.inner = inner
        self._owner = owner
        self._undecided = owner.security.contexts is not None
        """The first byte tells clear text from TLS, and has not come."""
        self._tls: TlsChannel | None = None
        self.transport: asyncio.Transport | None = None
        self.proof = NO_PROOF
        self._receive: Callable[[bytes], None] = self._decide if self._undecided else inner.data_received
        self.pause_writing = inner.pause_writing  # type: ignore[method-assign]
        self.resume_writing = inner.resume_writing  # type: ignore[method-assign]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop has classes of its own
        given = self.transport if not self._undecided else _EncryptingTransport(self.transport, self)
        self.inner.connection_made(given)
        self._owner.arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._owner.left(self)
        self.inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._receive(data)

    def eof_received(self) -> bool | None:
        return self.inner.eof_received()

    def _decide(self, data: bytes) -> None:
        """The first bytes."""
        assert self.transport is not None
        security = self._owner.security
        self._undecided = False
        if data[0] == HANDSHAKE_RECORD and security.contexts is not None:
            self._tls = security.contexts.accept()
            self._receive = self._take
            self._take(data)
        elif security.refuses_clear_text:
            self._receive = _ignore
            self._owner.failed(self, "it speaks clear text")
            self.transport.write(_CLEAR_TEXT_REFUSED)
            self.transport.close()
        else:
            self._receive = self.inner.data_received
            self.inner.data_received(data)

    def _take(self, data: bytes) -> None:
        """Bytes of TLS."""
        tls, transport = self._tls, self.transport
        assert tls is not None
        assert transport is not None
        tls.feed(data)
        try:
            if not tls.established and tls.shake_hands():
                self.proof = tls.proof()
            self._flush(tls, transport)
            if not tls.established:
                return
            buffer = memoryview(bytearray(_READ_SIZE))
            while not transport.is_closing() and (size := tls.read_into(buffer)):
                self.inner.data_received(bytes(buffer[:size]))
        except LogDeviceError as error:
            self._owner.failed(self, error.detail)
            self._flush(tls, transport)
            transport.close()  # behind what tells the other end why
            return
        self._flush(tls, transport)
        if tls.ended:
            transport.close()

    def _flush(self, tls: TlsChannel, transport: asyncio.Transport) -> None:
        data = tls.take()
        if data and not transport.is_closing():
            transport.write(data)

    def write(self, pieces: Iterable[bytes]) -> None:
        """Send what `inner` has written."""
        tls, transport = self._tls, self.transport
        assert transport is not None
        if tls is None:
            transport.write(b"".join(pieces))
        elif tls.established and not transport.is_closing():
            try:
                transport.write(tls.write(pieces))
            except LogDeviceError as error:
                self._owner.failed(self, error.detail)
                transport.abort()

    def close(self) -> None:
        """Close it, behind what was written."""
        transport = self.transport
        assert transport is not None
        if self._tls is not None and self._tls.established and not transport.is_closing():
            transport.write(self._tls.close())
        transport.close()

    def abort(self) -> None:
        """Close it at once."""
        if self.transport is not None:
            self.transport.abort()


def _ignore(data: bytes) -> None:
    """Nothing more is taken."""


class _EncryptingTransport(asyncio.Transport):
    """What HTTP writes to. It knows by the time it writes which kind of connection this is."""

    def __init__(self, transport: asyncio.Transport, connection: HttpConnection) -> None:
        super().__init__()
        self._transport = transport
        self._connection = connection
        self.is_closing = transport.is_closing  # type: ignore[method-assign]
        self.abort = transport.abort  # type: ignore[method-assign]
        self.pause_reading = transport.pause_reading  # type: ignore[method-assign]
        self.resume_reading = transport.resume_reading  # type: ignore[method-assign]
        self.set_write_buffer_limits = transport.set_write_buffer_limits  # type: ignore[method-assign]
        self.get_write_buffer_size = transport.get_write_buffer_size  # type: ignore[method-assign]

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == PROOF:
            return self._connection.proof
        return self._transport.get_extra_info(name, default)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._connection.write((bytes(data),))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self._connection.write(list(map(bytes, list_of_data)))

    def close(self) -> None:
        self._connection.close()
