"""The shape of the append path with nothing else in it: what this machine, Python, msgpack, RocksDB and sockets can do at best.

A sequencer process, three storage processes and a client, each record one message to the sequencer, all records of a turn one entry to each
storage process, one put a record. No recovery, checksums, flow control, batch records or futures; no syncs unless they are asked for.
It is the yardstick of ``benchmarks.append_path``, so its costs must not change::

    python -m benchmarks.bare_append_path storage DIRECTORY PORT [--sync] [--sync-delay 2ms]
    python -m benchmarks.bare_append_path sequencer PORT STORAGE_PORT STORAGE_PORT STORAGE_PORT
    python -m benchmarks.bare_append_path client PORT RECORDS SIZE WINDOW
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import os
import queue
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgpack
import uvloop

from benchmarks.percentiles import percentile
from logdevice_py.core.units import parse_duration

_LENGTH = struct.Struct(">I")
_APPEND, _STORE, _STORED, _APPENDED = 1, 2, 3, 4
_HOST = "127.0.0.1"
SWITCH_INTERVAL = 0.0002
"""Seconds; with a thread that syncs, as in the product."""


class Peer(asyncio.BufferedProtocol):
    """One connection: length-prefixed msgpack arrays; what is sent in a turn leaves in one write."""

    def __init__(self, loop: asyncio.AbstractEventLoop, on_message: Callable[[Peer, Any], None]) -> None:
        self._loop = loop
        self._on_message = on_message
        self._buffer = bytearray(1 << 22)
        self._read = 0
        self._write = 0
        self._transport: asyncio.Transport | None = None
        self.out: list[bytes] = []
        self.scheduled = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=64 << 20)
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        if len(self._buffer) - self._write < 65536:
            if self._read > 0:
                pending = self._write - self._read
                self._buffer[:pending] = self._buffer[self._read : self._write]
                self._read, self._write = 0, pending
            if len(self._buffer) - self._write < 65536:
                self._buffer.extend(bytes(len(self._buffer)))
        return memoryview(self._buffer)[self._write :]

    def buffer_updated(self, nbytes: int) -> None:
        self._write += nbytes
        buffer, read, write = self._buffer, self._read, self._write
        view = memoryview(buffer)
        while write - read >= 4:
            (length,) = _LENGTH.unpack_from(buffer, read)
            if write - read - 4 < length:
                break
            self._on_message(self, msgpack.unpackb(view[read + 4 : read + 4 + length], raw=True))
            read += 4 + length
        view.release()
        if read == write:
            read = self._write = 0
        self._read = read

    def connection_lost(self, exc: Exception | None) -> None:
        pass

    def send(self, message: Any) -> None:
        """Queue a message until the end of the turn."""
        packed = msgpack.packb(message)
        self.out.append(_LENGTH.pack(len(packed)))
        self.out.append(packed)
        if not self.scheduled:
            self.scheduled = True
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what is queued."""
        self.scheduled = False
        assert self._transport is not None
        self._transport.writelines(self.out)
        self.out = []


class _Storage:
    """Writes the entries of a turn as one batch and answers them; with a syncer, after a sync in its thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: Path, *, sync: bool, delay: float) -> None:
        from rocksdict import Options, Rdict, WriteBatch, WriteOptions

        self._loop = loop
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(128 << 20)
        self._db = Rdict(str(directory), options)
        self._batch = WriteBatch
        self._write_options = WriteOptions()
        self._pending: list[tuple[Peer, Any]] = []
        self._delay = delay
        self._written: list[tuple[Peer, Any]] = []
        self._syncing: list[tuple[Peer, Any]] = []
        self._requests: queue.SimpleQueue[bool] | None = None
        if sync:
            sys.setswitchinterval(SWITCH_INTERVAL)
            self._requests = queue.SimpleQueue()
            threading.Thread(target=self._sync_thread, daemon=True).start()

    def on_message(self, peer: Peer, message: Any) -> None:
        if not self._pending:
            self._loop.call_soon(self._commit)
        self._pending.append((peer, message))

    def _commit(self) -> None:
        batch = self._batch(raw_mode=True)
        pending, self._pending = self._pending, []
        for _, message in pending:
            lsn = message[1]
            for record in message[2]:
                batch.put(b"d" + lsn.to_bytes(16, "big"), record)
                lsn += 1
        self._db.write(batch, self._write_options)
        if self._requests is None:
            self._answer(pending)
            return
        self._written += pending
        if not self._syncing:
            self._start_sync(self._requests)

    def _answer(self, stored: list[tuple[Peer, Any]]) -> None:
        for peer, message in stored:
            peer.send((_STORED, message[1], len(message[2])))

    def _start_sync(self, requests: queue.SimpleQueue[bool]) -> None:
        self._syncing, self._written = self._written, []
        requests.put(True)

    def _sync_thread(self) -> None:
        assert self._requests is not None
        while self._requests.get():
            if self._delay:
                time.sleep(self._delay)
            self._db.flush_wal(True)
            self._loop.call_soon_threadsafe(self._on_synced)

    def _on_synced(self) -> None:
        assert self._requests is not None
        synced, self._syncing = self._syncing, []
        if self._written:
            self._start_sync(self._requests)
        self._answer(synced)


class _Sequencer:
    """Makes the records of a turn one entry, and answers its clients when all storage processes have it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.storage: list[Peer] = []
        self._next_lsn = 1
        self._pending: list[tuple[Peer, Any]] = []
        self._window: dict[int, list[Any]] = {}

    def on_stored(self, peer: Peer, message: Any) -> None:
        waiting = self._window[message[1]]
        waiting[0] -= 1
        if waiting[0] == 0:
            del self._window[message[1]]
            by_client = collections.defaultdict(list)
            for client, request in waiting[1]:
                by_client[client].append(request)
            for client, requests in by_client.items():
                client.send((_APPENDED, message[1], requests))

    def on_append(self, client: Peer, message: Any) -> None:
        if not self._pending:
            self._loop.call_soon(self._flush)
        self._pending.append((client, message))

    def _flush(self) -> None:
        pending, self._pending = self._pending, []
        first = self._next_lsn
        self._next_lsn += len(pending)
        self._window[first] = [len(self.storage), [(client, message[1]) for client, message in pending]]
        packed = msgpack.packb((_STORE, first, [message[2] for _, message in pending]))
        head = _LENGTH.pack(len(packed))
        for peer in self.storage:
            peer.out.append(head)
            peer.out.append(packed)
            if not peer.scheduled:
                peer.scheduled = True
                self._loop.call_soon(peer.flush)


class _Client:
    """Keeps a window of records under way and notes the latency of each."""

    def __init__(self, records: int, payload: bytes, window: int) -> None:
        self._records = records
        self._window = window
        self._payload = payload
        self._waiting: dict[int, float] = {}
        self._sent = 0
        self.latencies: list[float] = []
        self.done = asyncio.Event()
        self.peer: Peer | None = None

    def on_message(self, peer: Peer, message: Any) -> None:
        now = time.perf_counter()
        for request in message[2]:
            self.latencies.append(now - self._waiting.pop(request))
        self.pump()

    def pump(self) -> None:
        """Send as far as the window allows."""
        assert self.peer is not None
        while len(self._waiting) < self._window and self._sent < self._records:
            request = self._sent
            self._sent += 1
            self._waiting[request] = time.perf_counter()
            self.peer.send((_APPEND, request, self._payload))
        if len(self.latencies) >= self._records:
            self.done.set()


async def _serve_storage(directory: Path, port: int, *, sync: bool, delay: float) -> None:
    loop = asyncio.get_running_loop()
    storage = _Storage(loop, directory, sync=sync, delay=delay)
    await loop.create_server(lambda: Peer(loop, storage.on_message), _HOST, port)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def _serve_sequencer(port: int, storage_ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    sequencer = _Sequencer(loop)
    for storage_port in storage_ports:
        _, peer = await loop.create_connection(lambda: Peer(loop, sequencer.on_stored), _HOST, storage_port)
        sequencer.storage.append(peer)
    await loop.create_server(lambda: Peer(loop, sequencer.on_append), _HOST, port)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def _run_client(port: int, records: int, payload: bytes, window: int) -> None:
    loop = asyncio.get_running_loop()
    client = _Client(records, payload, window)
    _, client.peer = await loop.create_connection(lambda: Peer(loop, client.on_message), _HOST, port)
    began = time.perf_counter()
    client.pump()
    await client.done.wait()
    took = time.perf_counter() - began
    result = {
        "records": records,
        "seconds": took,
        "p50_ms": percentile(client.latencies, 0.5) * 1e3,
        "p99_ms": percentile(client.latencies, 0.99) * 1e3,
    }
    print(json.dumps(result), flush=True)


def main(argv: list[str] | None = None) -> int:
    """The program; its exit status."""
    parser = argparse.ArgumentParser(prog="bare_append_path", description=__doc__)
    roles = parser.add_subparsers(dest="role", required=True, metavar="ROLE")
    storage = roles.add_parser("storage", help="a storage process")
    storage.add_argument("directory", type=Path)
    storage.add_argument("port", type=int)
    storage.add_argument("--sync", action="store_true", help="answer after a sync in a thread")
    storage.add_argument("--sync-delay", default="0us", help="every sync takes this much longer, like 2ms")
    sequencer = roles.add_parser("sequencer", help="the sequencer process")
    sequencer.add_argument("port", type=int)
    sequencer.add_argument("storage_ports", type=int, nargs="+")
    client = roles.add_parser("client", help="append records, print what was measured as JSON")
    client.add_argument("port", type=int)
    client.add_argument("records", type=int)
    client.add_argument("size", type=int)
    client.add_argument("window", type=int)
    client.add_argument("--random", action="store_true", help="bytes that cannot be compressed; otherwise all are x")
    arguments = parser.parse_args(argv)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        if arguments.role == "storage":
            delay = parse_duration(arguments.sync_delay) / 1e6
            runner.run(_serve_storage(arguments.directory, arguments.port, sync=arguments.sync, delay=delay))
        elif arguments.role == "sequencer":
            runner.run(_serve_sequencer(arguments.port, arguments.storage_ports))
        else:
            payload = os.urandom(arguments.size) if arguments.random else b"x" * arguments.size
            runner.run(_run_client(arguments.port, arguments.records, payload, arguments.window))
    return 0


if __name__ == "__main__":
    sys.exit(main())
