"""The wire format as docs/messages.md describes it: an encoder, a decoder and a connection that share no code with the cluster.

The tables of that page are read when this module is imported. What a reader of the page cannot know is not known here either.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgpack
from google_crc32c import value as crc32c

_PAGE = (Path(__file__).resolve().parents[2] / "docs" / "messages.md").read_text()
_SIMPLE = (
    "node, or -1", "text up to 1024", "up to 16 bytes", "up to 1024 bytes", "raw payload", "timestamp", "status", "bool", "epoch", "esn", "log", "lsn",
    "shard", "u8", "u16", "u32", "u64",
)  # fmt: skip
BOUNDS: dict[str, tuple[int, int]] = {
    match[1]: (int(match[2]), int(match[3]))
    for match in re.finditer(r"^\| ([^|`]+) \| (-?\d+) \| (\d+) \|$", _PAGE, re.M)
}
"""Kinds of integers, with the least and the greatest."""
FLAGS: dict[str, int] = {
    f"{match[1]}.{match[3]}": int(match[2]) for match in re.finditer(r"^\| (\w+) \| (\d+) \| `(\w+)` \|$", _PAGE, re.M)
}
_HEAD = struct.Struct(">IHBB")
_WHOLE_HEAD = struct.Struct(">IHBBI")
HEAD_SIZE = _WHOLE_HEAD.size
ENTRY_HEAD = struct.Struct(">BBHIIIIIqQQ")


@dataclass(frozen=True)
class Kind:
    """How a field is written."""

    name: str
    """One of those of the page, or ``list`` or ``tuple``."""
    elements: tuple[Kind, ...] = ()
    count_max: int = 64
    """Of a list."""


@dataclass(frozen=True)
class Layout:
    """One message of the page."""

    number: int
    name: str
    fields: tuple[tuple[str, Kind], ...]
    has_payload: bool


_ROWS = {
    match[1]: match[2]
    for match in re.finditer(r"^### (\w+)\n\n.+\n\n((?:\|.*\n)+)", _PAGE.split("## Payloads")[1], re.M)
}
"""Tables of rows."""


def _fields(table: str) -> Iterator[tuple[str, str]]:
    for match in re.finditer(r"^\| `(\w+)` \| ([^|]+) \| .*\|$", table, re.M):
        yield match[1], match[2].strip()


def _whole_kind(text: str) -> Kind:
    kind, rest = _kind(text)
    limit = re.fullmatch(r" \(at most (\d+)\)", rest)
    assert limit or not rest, text
    return replace(kind, count_max=int(limit[1])) if limit else kind


def _kind(text: str) -> tuple[Kind, str]:
    """The kind at the beginning, and what follows it."""
    if text.startswith("list of "):
        element, rest = _kind(text.removeprefix("list of "))
        return Kind("list", (element,)), rest
    if text.startswith("("):
        elements, rest = [], text[1:]
        while not rest.startswith(")"):
            element, rest = _kind(rest.partition(": ")[2])
            elements.append(element)
            rest = rest.removeprefix(", ")
        return Kind("tuple", tuple(elements)), rest[1:]
    for name in sorted(_SIMPLE, key=len, reverse=True):
        if text.startswith(name):
            return Kind(name), text[len(name) :]
    row = text.partition(" ")[0]
    if row in _ROWS:
        return Kind("tuple", tuple(_whole_kind(kind) for _, kind in _fields(_ROWS[row]))), text[len(row) :]
    raise ValueError(f"docs/messages.md has a kind that is not explained: {text}")


def _layouts() -> Iterator[Layout]:
    for part in re.split(r"^## (?=\d+ \w+$)", _PAGE, flags=re.M)[1:]:
        number, name = part.split("\n", 1)[0].split()
        fields, has_payload = [], False
        for field, text in _fields(part.split("\n### ")[0]):
            kind = _whole_kind(text)
            if kind.name == "raw payload":
                has_payload = True
            else:
                fields.append((field, kind))
        yield Layout(int(number), name, tuple(fields), has_payload)


LAYOUTS = {layout.name: layout for layout in _layouts()}
_BY_NUMBER = {layout.number: layout for layout in LAYOUTS.values()}


def _empty(kind: Kind) -> Any:
    if kind.name == "list":
        return []
    if kind.name == "tuple":
        return [_empty(element) for element in kind.elements]
    if kind.name == "node, or -1":
        return -1
    return {"text up to 1024": "", "up to 16 bytes": b"", "up to 1024 bytes": b"", "bool": False}.get(kind.name, 0)


def raw_frame(number: int, fields: bytes, payload: bytes = b"", flags: int = 0) -> bytes:
    """A frame with a right length and checksum, whatever its fields are."""
    head = _HEAD.pack(8 + len(fields) + len(payload), len(fields), number, flags)
    return b"".join((head, crc32c(head + fields).to_bytes(4, "big"), fields, payload))


def encode(message: str, payload: bytes = b"", /, **values: Any) -> bytes:
    """A frame of a message; fields that are not given are 0, empty, or no node."""
    layout = LAYOUTS[message]
    unknown = values.keys() - {field for field, _ in layout.fields}
    assert not unknown, unknown
    fields = [values.get(field, _empty(kind)) for field, kind in layout.fields]
    return raw_frame(layout.number, msgpack.packb(fields), payload)


@dataclass(frozen=True)
class Answer:
    """A message that came."""

    name: str
    fields: dict[str, Any]
    payload: bytes


@dataclass(frozen=True)
class Cluster:
    """What a stranger who has the cluster file knows."""

    name: str
    uuid: bytes
    nodes: dict[int, tuple[str, int, int]]
    """Host, port and port of the admin API."""

    @classmethod
    def read(cls, path: Path) -> Cluster:
        """From the cluster file."""
        content = tomllib.loads(path.read_text())
        nodes = {
            int(name[1:]): (node["host"], node["port"], node.get("admin_port", 0))
            for name, node in content["nodes"].items()
        }
        return cls(content["name"], bytes.fromhex(content["uuid"].replace("-", "")), dict(sorted(nodes.items())))


class Connection:
    """One connection to a node, from any address or from a certain one of this machine."""

    def __init__(self, cluster: Cluster, node: int, address: str | None = None) -> None:
        self.cluster = cluster
        self.node = node
        self.address = address
        self.closed = False
        self._input = bytearray()
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def __aenter__(self) -> Connection:
        host, port, _ = self.cluster.nodes[self.node]
        own = None if self.address is None else (self.address, 0)
        self._reader, self._writer = await asyncio.open_connection(host, port, limit=1 << 16, local_addr=own)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.transport.abort()

    async def say(self, *frames: bytes, seconds: float = 10) -> bool:
        """Send; False when the node does not take it (any more)."""
        try:
            async with asyncio.timeout(seconds):
                self._writer.write(b"".join(frames))
                await self._writer.drain()
        except (ConnectionError, TimeoutError):
            return False
        return not self._writer.transport.is_closing()

    async def answers(self, seconds: float) -> list[Answer]:
        """What comes within a time, or until something has come."""
        found = self._take()
        try:
            async with asyncio.timeout(seconds):
                while not found and not self.closed:
                    piece = await self._reader.read(1 << 16)
                    if not piece:
                        self.closed = True
                    self._input += piece
                    found = self._take()
        except TimeoutError:
            pass
        except ConnectionError:
            self.closed = True
        return found

    async def wait_for(self, name: str, seconds: float = 10) -> Answer | None:
        """The next message of that name; None: the node closed the connection, or said nothing in time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while loop.time() < end:
            for answer in await self.answers(end - loop.time()):
                if answer.name == name:
                    return answer
            if self.closed:
                return None
        return None

    async def hear_the_end(self, seconds: float = 20) -> bool:
        """Read until the node closes the connection; False: it does not."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(seconds):
                while await self._reader.read(1 << 16):
                    pass
                self.closed = True
        return self.closed or self._reader.exception() is not None

    async def greet(self, **changes: Any) -> Answer | None:
        """HELLO as a client, or with other fields, and its ACK."""
        await self.say(self.hello(**changes))
        return await self.wait_for("Ack")

    def hello(self, **changes: Any) -> bytes:
        """The first frame of a connection."""
        values = {
            "protocol_min": 1,
            "protocol_max": 1,
            "cluster_name": self.cluster.name,
            "cluster_uuid": self.cluster.uuid,
            "instance": 7,
            "destination": self.node,
            "config_version": 1,
            "name": "stranger",
        }
        return encode("Hello", **{**values, **changes})

    def _take(self) -> list[Answer]:
        found, at, data = [], 0, self._input
        while len(data) - at >= HEAD_SIZE:
            length, size, number, _, _ = _WHOLE_HEAD.unpack_from(data, at)
            end = at + 4 + length
            if len(data) < end:
                break
            layout = _BY_NUMBER[number]
            fields = msgpack.unpackb(bytes(data[at + HEAD_SIZE : at + HEAD_SIZE + size]))
            named = {field: value for (field, _), value in zip(layout.fields, fields, strict=False)}
            found.append(Answer(layout.name, named, bytes(data[at + HEAD_SIZE + size : end])))
            at = end
        del data[:at]
        return found


def shard(node: int) -> int:
    """The first shard of a node."""
    return node << 8


async def sequencer_of(cluster: Cluster, log: int) -> int:
    """The node that sequences a log, asked for as docs/protocol.md says; it is activated if need be."""
    node = next(iter(cluster.nodes))
    for _ in range(50):
        with contextlib.suppress(ConnectionError):
            async with Connection(cluster, node) as connection:
                if await connection.greet() is not None:
                    await connection.say(encode("GetSeqState", request_id=1, log=log))
                    answer = await connection.wait_for("SeqState")
                    if answer is not None and answer.fields["status"] == 0:
                        return node
                    if answer is not None and answer.fields["redirect"] >= 0:
                        node = answer.fields["redirect"]
                        continue
        await asyncio.sleep(0.1)
        node = (node + 1) % len(cluster.nodes)
    raise RuntimeError(f"nobody sequences log {log}")


@dataclass(frozen=True)
class ForgeableFrame:
    """A frame of a write stream as it is stored."""

    lsn: int
    writer: bytes
    sequence: int
    payload: bytes
    flags: int


def stream_frames(answer: Answer) -> Iterator[ForgeableFrame]:
    """Those that a message Records brings."""
    at = 0
    for lsn, size in answer.fields["entries"]:
        image = answer.payload[at : at + size]
        at += size
        begin = ENTRY_HEAD.size + 4 * image[1] + 4
        body = image[begin:]
        if len(body) < 4:
            continue
        rows, place = [], 4
        for _ in range(int.from_bytes(body[:4], "big")):
            length, _, _, flags = struct.unpack_from(">IIIB", body, place)
            place += 13
            writer, sequence = b"", 0
            if flags & FLAGS["Constituent.WRITE_STREAM"]:
                writer, sequence = struct.unpack_from(">16sQ", body, place)
                place += 24
            rows.append((length, writer, sequence, flags))
        for length, writer, sequence, flags in rows:
            if writer:
                yield ForgeableFrame(lsn, writer, sequence, body[place : place + length], flags)
            place += length
