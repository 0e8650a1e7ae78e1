"""``python -m benchmarks.cold_copies``: how fast a log becomes a cold copy in a directory and is read back, with verified data.

By default entries are made in memory, as a reader gives them, so what is timed is the copier: unpacking, Parquet, zstd, hashes, the disk with its syncs,
and reading everything back to compare proofs. ``--cluster`` copies from a log of a cluster of three nodes in processes of their own, after it was
filled. Both proofs are compared, and the time of a plain copy of the same bytes with a sync is printed beside.

``--spark`` copies a stream of such a cluster: it is written, ended, copied segment by segment, and trimmed, so that only copies have it. Then a reader of the stream and
Spark on this machine read all of it; their proofs over position and payload of each record have to equal that of what was acknowledged. Otherwise the command
ends with status 1, as it does with ``--wrong-byte``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from google_crc32c import value as crc32c

from benchmarks import cold_stream
from benchmarks.ldbench.resources import CLIENT, ResourceMeter, RoleCost
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
from streams.namespace import Namespace
from streams.upkeep.janitor import copy_now

_CLUSTER = "00000000-0000-4000-8000-000000000001"
_ENTRY_BYTES = 64 << 10
_FIRST = 3 << 32 | 1
_SEGMENTS_MIN = 4
_SEGMENT_BYTES_MAX = 256 << 20


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


@contextlib.asynccontextmanager
async def _cluster(directory: Path, *, log_tree: bool) -> AsyncIterator[Client]:
    """A client of a cluster of three nodes that are processes, while the block runs."""
    await asyncio.to_thread(directory.mkdir)
    config = make_config(directory, nodes=3, logs=1, replicate="node:3", racks=1, epoch_store=None, log_tree=log_tree)
    supervisor = Supervisor(directory, config)
    write_cluster_file(directory, supervisor.config)
    await supervisor.listen()
    try:
        await supervisor.start_all()
        await wait_until_acquainted(
            config, lambda: list(map(NodeId, range(3))), timeout=60, access=supervisor.admin_access
        )
        async with Client(str(layout.cluster_file(directory))) as client:
            yield client
    finally:
        await supervisor.stop_all()


def _payloads(arguments: argparse.Namespace) -> tuple[list[bytes], int]:
    """Records that are written together, and how often."""
    at_once = min(arguments.total, cold_stream.BYTES_AT_ONCE)
    payloads = make_payloads(arguments.size, at_once // arguments.size, arguments.content, 1)
    return payloads, arguments.total // at_once


async def _copy_from_cluster(arguments: argparse.Namespace, store: ColdStore) -> tuple[ColdCopy, _Timer, Proof]:
    async with _cluster(Path(arguments.directory) / "cluster", log_tree=False) as client:
        payloads, times = _payloads(arguments)
        async with client.buffered_writer() as writer:
            for _ in range(times):
                await writer.append_many(1, payloads)
        tail = await client.tail_lsn(1)
        timer = _Timer()
        copy = await copy_range(client, store, 1, LSN.OLDEST, tail, token="bench")
        timer.stop()
        async with client.reader(1, until=tail) as reader:
            while await reader.read():
                pass
            return copy, timer, reader.proof()


async def measure_stream(arguments: argparse.Namespace, url: str) -> dict[str, Any]:
    """One run with a stream, and Spark; seconds, sizes, memory, and whether all read the same."""
    payloads, times = _payloads(arguments)
    records_at_once = max(1, cold_stream.BYTES_AT_ONCE // arguments.size)
    directory = Path(arguments.directory)
    segment_bytes = max(1, min(_SEGMENT_BYTES_MAX, arguments.total // _SEGMENTS_MIN))
    async with _cluster(directory / "cluster", log_tree=True) as client, Namespace(client) as namespace:
        stream, written = await cold_stream.write_stream(namespace, "cold", url, payloads, times, segment_bytes)
        copying = _Timer()
        await copy_now(namespace, stream.number)
        copying.stop()
        copies = [each.copy for each in namespace.stream_entry(stream.number).upkeep.copies]
        await cold_stream.trim_copied(namespace, stream)
        meter = ResourceMeter(list)
        meter.start()
        reading = _Timer()
        read = await cold_stream.read_by_client(stream, records_at_once)
        reading.stop()
        client_cost = (await meter.stop())[CLIENT]
        if arguments.wrong_byte:
            cold_stream.change_a_byte(Path(url.removeprefix("file://")))
        file, path = str(layout.cluster_file(directory / "cluster")), f"{namespace.path}/{stream.name}"
        by_spark, spark_seconds, spark_costs = await _read_by_spark(directory / "spark", file, path, records_at_once)
    stored = sum(copy.stored_bytes for copy in copies)
    return {
        "source": "stream",
        "content": arguments.content,
        "record_bytes": arguments.size,
        "records": written.records,
        "payload_mb": round(written.payload_bytes / 1e6),
        "stored_mb": round(stored / 1e6),
        "copies": len(copies),
        "copy_mb_s": round(written.payload_bytes / copying.seconds / 1e6),
        "copy_mb_per_processor_s": round(written.payload_bytes / copying.processor / 1e6),
        "plain_copy_mb_s": round(_plain_copy(url, stored)),
        "client_mb_s": round(read.payload_bytes / reading.seconds / 1e6),
        "client_peak_mb": round(client_cost.peak_bytes / 1e6),
        "spark_mb_s": None if isinstance(by_spark, str) else round(by_spark.payload_bytes / spark_seconds / 1e6),
        "spark_java_peak_mb": _peak_mb(spark_costs, "java"),
        "spark_task_peak_mb": _peak_mb(spark_costs, "tasks"),
        "written": str(written),
        "client": str(read),
        "spark": str(by_spark),
        "proofs_equal": written == read == by_spark,
    }


async def _read_by_spark(
    directory: Path, cluster_file: str, path: str, records_at_once: int
) -> tuple[cold_stream.RecordProof | str, float, dict[str, RoleCost]]:
    """The proof of what Spark reads of a stream, or what failed; the seconds from planning to the end, and what its processes cost."""
    from pyspark.errors import PySparkException

    spark = await asyncio.to_thread(cold_stream.start_spark, directory, records_at_once)
    try:
        meter = ResourceMeter(cold_stream.spark_processes)
        meter.start()
        timer = _Timer()
        frame = await asyncio.to_thread(cold_stream.load_stream, spark, cluster_file, path)
        try:
            found: cold_stream.RecordProof | str = await asyncio.to_thread(cold_stream.read_by_spark, frame)
        except PySparkException as error:
            found = _said(error)
        timer.stop()
        return found, timer.seconds, await meter.stop()
    finally:
        await asyncio.to_thread(spark.stop)


def _said(error: Exception) -> str:
    """What failed, without the stacks of Java and Python."""
    lines = str(error).splitlines()
    told = [line.strip() for line in lines if "Error: " in line]
    return f"failed: {(told or lines)[-1]}"


def _peak_mb(costs: dict[str, RoleCost], role: str) -> int | None:
    """Of the process of a role that had most memory; None: there was none."""
    return round(costs[role].server_peak_bytes / 1e6) if role in costs else None


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


def main(given: Sequence[str] | None = None) -> int:
    """Entry point; 1: proofs differ."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.cold_copies", description=__doc__)
    options.add_argument("--total", type=parse_size, default=1 << 30, help="bytes of records (default: 1GiB)")
    options.add_argument("--size", type=int, action="append", help="bytes of a record (default: 100 and 10000)")
    options.add_argument("--content", choices=("json", "random"), default="json")
    options.add_argument("--cluster", action="store_true", help="copy from a cluster of processes")
    options.add_argument(
        "--spark", action="store_true", help="copy a stream of such a cluster, and have Spark read it, too"
    )
    options.add_argument(
        "--wrong-byte", action="store_true", help="with --spark: change a byte of a copy before Spark reads it"
    )
    arguments = options.parse_args(given)
    if arguments.wrong_byte and not arguments.spark:
        options.error("--wrong-byte is for --spark")
    is_equal = True
    for size in arguments.size or (100, 10_000):
        with tempfile.TemporaryDirectory(prefix="logdevice-cold-") as directory:
            one = argparse.Namespace(**vars(arguments) | {"size": size, "directory": directory})
            measured = measure_stream if arguments.spark else measure
            report = asyncio.run(measured(one, f"file://{directory}/cold"))
        print(json.dumps(report), flush=True)
        is_equal &= report.get("proofs_equal", True)
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
