"""A peer that says what it likes, over a plain connection, and messages with values at the edges of what is declared."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from logdevice_py.core.status import ProtocolError
from logdevice_py.protocol import messages as m
from logdevice_py.protocol.declare import (
    CODECS,
    BoolKind,
    BytesKind,
    FieldKind,
    IntKind,
    ListKind,
    MessageCodec,
    StatusKind,
    TextKind,
    TupleKind,
)
from logdevice_py.protocol.framing import FrameReader, encode_frame
from server.dev.supervisor import Supervisor

ANSWER_SECONDS = 60.0
"""Nodes do it at once; as long as this takes a machine on which others run, too, at most."""


class HostilePeer:
    """One connection to a node."""

    def __init__(self, supervisor: Supervisor, node: int) -> None:
        member = supervisor.config.nodes[node]  # type: ignore[index]
        self._address = member.host, member.port
        self._config = supervisor.config
        self._node = node
        self._frames = FrameReader()
        self.received: list[Any] = []
        self.closed = False
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> HostilePeer:
        self._reader, self._writer = await asyncio.open_connection(*self._address, limit=1 << 16)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.transport.abort()

    async def greet(self, **changes: Any) -> m.Ack | None:
        """HELLO as a client, or with other fields. None when the node only closed the connection."""
        fields: dict[str, Any] = {
            "protocol_min": 1,
            "protocol_max": 1,
            "cluster_name": self._config.name,
            "cluster_uuid": self._config.uuid,
            "node": -1,
            "instance": 7,
            "destination": self._node,
            "config_version": 1,
            "name": "hostile",
        }
        await self.say(m.Hello(**{**fields, **changes}))
        ack: m.Ack | None = await self.wait_for(m.Ack)
        return ack

    async def say(self, *messages: Any) -> None:
        """Send messages."""
        await self.say_bytes(b"".join(piece for message in messages for piece in encode_frame(message)))

    async def say_bytes(self, data: bytes) -> None:
        """Send bytes. That the node does not take them any more is no error."""
        try:
            self._writer.write(data)
            async with asyncio.timeout(5):
                await self._writer.drain()
        except (ConnectionError, TimeoutError):
            pass

    async def read_some(self, seconds: float) -> None:
        """Read what comes within a time, at most until the node closes."""
        try:
            async with asyncio.timeout(seconds):
                while data := await self._reader.read(1 << 16):
                    while data:
                        view = self._frames.get_buffer()
                        count = min(len(view), len(data))
                        view[:count] = data[:count]
                        del view
                        self.received += self._frames.received(count)
                        data = data[count:]
                self.closed = True
        except TimeoutError:
            pass
        except (ConnectionError, ProtocolError):
            self.closed = True

    async def wait_for(self, kind: type[Any]) -> Any:
        """The next message of a type; None when the node closes the connection first."""
        end = asyncio.get_running_loop().time() + ANSWER_SECONDS
        while not self.closed and asyncio.get_running_loop().time() < end:
            await self.read_some(0.05)
            for index, message in enumerate(self.received):
                if isinstance(message, kind):
                    return self.received.pop(index)
        return None

    async def is_cut_off(self) -> bool:
        """Whether the node closes the connection."""
        end = asyncio.get_running_loop().time() + ANSWER_SECONDS
        while not self.closed and asyncio.get_running_loop().time() < end:
            await self.read_some(0.2)
        return self.closed


@asynccontextmanager
async def connected(peers: list[HostilePeer]) -> AsyncIterator[None]:
    """All of them at once."""
    try:
        await asyncio.gather(*(peer.__aenter__() for peer in peers))
        yield
    finally:
        await asyncio.gather(*(peer.__aexit__(None, None, None) for peer in peers))


class Imagination:
    """Messages that decode, with values that nobody sends."""

    def __init__(self, rng: random.Random, logs: list[int], shards: list[int]) -> None:
        self._rng = rng
        self._logs = logs
        self._shards = shards

    def message(self, codec: MessageCodec) -> Any:
        """Any message of one type."""
        fields = {name: self._value(kind) for name, kind in codec.fields}
        if codec.payload is not None:
            fields[codec.payload] = self._rng.randbytes(self._rng.choice([0, 1, 56, 60, 64, 100, 1000]))
        return codec.cls(**fields)

    def frame(self, codec: MessageCodec) -> bytes:
        """A frame of such a message; lists are kept short enough for it."""
        return b"".join(encode_frame(self.message(codec)))

    def _value(self, kind: FieldKind) -> Any:
        rng = self._rng
        if isinstance(kind, IntKind):
            if kind.name == "log":
                return rng.choice(self._logs)
            if kind.name == "shard":
                return rng.choice(self._shards)
            edges = [kind.lo, kind.lo + 1, kind.hi, kind.hi - 1, rng.randint(kind.lo, kind.hi), 1, 2, 3, 1 << 32]
            return rng.choice([value for value in edges if kind.lo <= value <= kind.hi])
        if isinstance(kind, BytesKind):
            return rng.randbytes(rng.choice([0, kind.hi]))
        if isinstance(kind, TextKind):
            return rng.choice(["", "x", "\0\n\x1b[31m", "ü" * 20])
        if isinstance(kind, BoolKind):
            return rng.random() < 0.5
        if isinstance(kind, StatusKind):
            return rng.choice([0, 1, 5, 200, 99_999])
        if isinstance(kind, ListKind):
            return [self._value(kind.element) for _ in range(rng.choice([0, 0, 1, 2, 5]))]
        if isinstance(kind, TupleKind):
            return tuple(self._value(element) for element in kind.elements)
        raise AssertionError(kind)


ALL_CODECS = [codec for _, codec in sorted(CODECS.items())]
