"""``python -m benchmarks.cold_copies``: how fast a log becomes a cold copy in a directory and is read back, with verified data.

By default entries are made in memory, as a reader gives them, so what is timed is the copier: unpacking, Parquet, zstd, hashes, the disk with its syncs,
and reading everything back to compare proofs. ``--cluster`` copies from a log of a cluster of three nodes in processes of their own, after it was
filled. Both proofs are compared, and the time of a plain copy of the same bytes with a sync is printed beside.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google_crc32c import value as crc32c

from client.client import Client
from client.read.items import Gap
from client.read.proof import Proof, ProofBuilder
from logdevice_py.core.batch import encode_batch
from logdevice_py.core.entry import Constituent, ConstituentFlags, EntryHeader, encode_body, encode_entry
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.units import parse_size
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.readiness import wait_until_acquainted
from server.dev.supervisor import Supervisor, write_cluster_file
from streams.cold.cold_reader import ColdReader
from streams.cold.copier import Copier, copy_range
from streams.cold.copies import ColdCopy
from streams.cold.cutting import CutLimits
from streams.cold.file_format import FileIdentity
from streams.cold.store import ColdStore

_CLUSTER = "00000000-0000-4000-8000-000000000001"
_ENTRY_BYTES = 64 << 10
_FIRST = 3 << 32 | 1
_APPENDED_AT_ONCE = 8 << 20


def make_payloads(size: int, count: int, content: str, seed: int) -> list[bytes]:
    """Records of a size: random bytes, or JSON that differs in a few numbers."""
    rng = random.Random(seed)
    if content == "random":
        return [rng.randbytes(size) for _ in range(count)]
    payloads = []
    for _ in range(count):
        text = ""
        while len(text) < size:
            text += f'{{"user":{rng.randrange(10**6)},"page":"/shop/item/{rng.randrange(10**4)}","session":"{rng.randbytes(6).hex()}"}},'
        payloads.append(text[:size].encode())
    return payloads


class _Timer:
    """Seconds that pass, and that this process computes, from its making to `stop`."""

    def __init__(self) -> None:
        self.seconds, self.processor = -time.perf_counter(), -time.process_time()

    def stop(self) -> None:
        """It took that long."""
        self.seconds += time.perf_counter()
        self.processor += time.process_time()


class MadeEntries:
    """Gives entries as a reader of a log does, made of a few that repeat."""

    def __init__(self, total: int, size: int, content: str) -> None:
        self.log = LogId(1)
        self.first = LSN(_FIRST)
        self._proof = ProofBuilder(self.log, self.first)
        per_entry = max(1, _ENTRY_BYTES // size)
        bodies = []
        for seed in range(32):
            payload = encode_batch(make_payloads(size, per_entry, content, seed))
            bodies.append(encode_body([Constituent(payload, per_entry, crc32c(payload), int(ConstituentFlags.BATCH))]))
        self._entries = self._make(total // (size * per_entry), per_entry, bodies)

    def _make(self, count: int, records: int, bodies: list[bytes]) -> Iterator[tuple[EntryHeader, bytes]]:
        sums = [crc32c(body) for body in bodies]
        for index in range(count):
            which = index % len(bodies)
            body = bodies[which]
            header = EntryHeader(
                log=self.log,
                lsn=LSN(self.first + index),  # type: ignore[arg-type]
                timestamp=1_764_165_642_000_000 + index * 500,  # type: ignore[arg-type]
                wave=1,
                copyset=(),
                lng=0,  # type: ignore[arg-type]
                records=records,
                body_length=len(body),
                body_crc=sums[which],
            )
            self._proof.add_entry(header.lsn, records, len(body), header.body_crc)
            yield header, encode_entry(header, body)

    async def read_entries(self, max_entries: int) -> list[tuple[EntryHeader, bytes] | Gap]:
        """The next entries."""
        return [entry for _, entry in zip(range(max_entries), self._entries, strict=False)]

    def proof(self) -> Proof:
        """Of what was given."""
        return self._proof.build()


async def measure(arguments: argparse.Namespace, url: str) -> dict[str, Any]:
    """One run; seconds and sizes."""
    store = ColdStore(url)
    if arguments.cluster:
        copy, copying, source = await _copy_from_cluster(arguments, store)
    else:
        entries = MadeEntries(arguments.total, arguments.size, arguments.content)
        identity = FileIdentity(_CLUSTER, entries.log, "bench")
        copying = _Timer()
        copy = await Copier(store, identity, "bench", limits=CutLimits()).copy(entries, entries.first)
        copying.stop()
        source = entries.proof()
    reading = _Timer()
    async with ColdReader(store, [copy], copy.first) as reader:
        read = 0
        while batch := await reader.read():
            read += sum(map(len, filter(None, batch.payloads)))
        assert reader.proof() == source, "what was read back is not what was copied"
    reading.stop()
    return {
        "source": "cluster" if arguments.cluster else "memory",
        "content": arguments.content,
        "record_bytes": arguments.size,
        "records": copy.records,
        "payload_mb": round(read / 1e6),
        "stored_mb": round(copy.stored_bytes / 1e6),
        "files": copy.files,
        "copy_mb_s": round(read / copying.seconds / 1e6),
        "copy_mb_per_processor_s": round(read / copying.processor / 1e6),
        "read_back_mb_s": round(read / reading.seconds / 1e6),
        "read_back_mb_per_processor_s": round(read / reading.processor / 1e6),
        "plain_copy_mb_s": round(_plain_copy(url, copy.stored_bytes)),
        "proof": f"{source.checksum:016x}",
    }


async def _copy_from_cluster(arguments: argparse.Namespace, store: ColdStore) -> tuple[ColdCopy, _Timer, Proof]:
    directory = Path(arguments.directory) / "cluster"
    config = make_config(directory, nodes=3, logs=1, replicate="node:3", racks=1, epoch_store=None)
    supervisor = Supervisor(directory, config)
    write_cluster_file(directory, supervisor.config)
    await supervisor.listen()
    try:
        await supervisor.start_all()
        await wait_until_acquainted(
            config, lambda: list(map(NodeId, range(3))), timeout=60, access=supervisor.admin_access
        )
        async with Client(str(layout.cluster_file(directory))) as client:
            payloads = make_payloads(arguments.size, _APPENDED_AT_ONCE // arguments.size, arguments.content, 1)
            async with client.buffered_writer() as writer:
                for _ in range(arguments.total // _APPENDED_AT_ONCE):
                    await writer.append_many(1, payloads)
            tail = await client.tail_lsn(1)
            timer = _Timer()
            copy = await copy_range(client, store, 1, LSN.OLDEST, tail, token="bench")
            timer.stop()
            async with client.reader(1, until=tail) as reader:
                while await reader.read():
                    pass
                return copy, timer, reader.proof()
    finally:
        await supervisor.stop_all()


def _plain_copy(url: str, size: int) -> float:
    """MB/s of as many bytes written to a file that is synced at its end, and read again."""
    path = Path(url.removeprefix("file://")) / "plain"
    piece = os.urandom(8 << 20)
    begin = time.perf_counter()
    with path.open("wb") as out:
        for _ in range(max(1, size // len(piece))):
            out.write(piece)
        out.flush()
        os.fsync(out.fileno())
    with path.open("rb") as file:
        while file.read(8 << 20):
            pass
    seconds = time.perf_counter() - begin
    path.unlink()
    return size / seconds / 1e6


def main() -> int:
    """Entry point."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.cold_copies", description=__doc__)
    options.add_argument("--total", type=parse_size, default=1 << 30, help="bytes of records (default: 1GiB)")
    options.add_argument("--size", type=int, action="append", help="bytes of a record (default: 100 and 10000)")
    options.add_argument("--content", choices=("json", "random"), default="json")
    options.add_argument("--cluster", action="store_true", help="copy from a cluster of processes")
    arguments = options.parse_args()
    for size in arguments.size or (100, 10_000):
        with tempfile.TemporaryDirectory(prefix="logdevice-cold-") as directory:
            one = argparse.Namespace(**vars(arguments) | {"size": size, "directory": directory})
            print(json.dumps(asyncio.run(measure(one, f"file://{directory}/cold"))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
