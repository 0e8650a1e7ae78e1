"""A server that only acknowledges: what the same load costs on this machine without a log system behind it.

``python -m benchmarks.ldbench.control`` listens on a free port of loopback and prints it.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

import uvloop

from benchmarks.ldbench.engine import EngineError
from logdevice_py.programs import own_program

_LENGTH: Final = struct.Struct(">I")
_HOST: Final = "127.0.0.1"


class _Acknowledger(asyncio.Protocol):
    """Answers a byte for each record."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        buffer = self._buffer
        buffer += data
        at, records = 0, 0
        while len(buffer) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, at)
            if len(buffer) - at - _LENGTH.size < length:
                break
            at += _LENGTH.size + length
            records += 1
        del buffer[:at]
        if records:
            self._transport.write(bytes(records))


class ControlProducer(asyncio.Protocol):
    """Appends to nothing."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._sent = 0
        self._answered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """So many records were taken."""
        self._answered += len(data)
        waiting = self._waiting
        while waiting and waiting[0][0] <= self._answered:
            waiting.popleft()[1].set_result(None)

    def append_many(self, records: Sequence[bytes]) -> Awaitable[object]:
        """Send them; done when the server has seen them."""
        assert self._transport is not None
        self._transport.writelines([part for record in records for part in (_LENGTH.pack(len(record)), record)])
        self._sent += len(records)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._sent, future))
        return future

    async def ready(self) -> None:
        """Always."""

    async def close(self) -> None:
        """Disconnect."""
        assert self._transport is not None
        self._transport.close()


@asynccontextmanager
async def control_producer() -> AsyncIterator[ControlProducer]:
    """A producer with a server process of its own."""
    process = await asyncio.create_subprocess_exec(
        *own_program("benchmarks.ldbench.control"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if not line:
            raise EngineError("the control's server did not start")
        _, producer = await asyncio.get_running_loop().create_connection(ControlProducer, _HOST, int(line))
        yield producer
        await producer.close()
    finally:
        process.kill()
        await process.wait()


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_Acknowledger, _HOST, 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    # standard input ends with the process that started us
    await loop.run_in_executor(None, sys.stdin.read)


def main() -> int:
    """The program; its exit status."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve())
    return 0


if __name__ == "__main__":
    sys.exit(main())
