"""A stream of which only cold copies are left, and the proof of its records that each of its readers gives: who wrote it, a reader, and Spark.

The proof goes over position and payload of each record and does not depend on their order: Spark's tasks make it of what they read, and the driver adds up a row of
each task.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from google_crc32c import value as crc32c

from benchmarks.ldbench.engine import ServerProcess
from benchmarks.ldbench.resources import children_of
from client.read.proof import entry_mix
from streams.attributes import Roll
from streams.namespace import Namespace
from streams.stream import Stream
from streams.upkeep.janitor import Janitor
from streams.upkeep.segments import StreamSegmentState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BYTES_AT_ONCE: Final = 8 << 20
"""Of records that are written, read or given to Python by Spark together."""
_TRIM_SECONDS: Final = 60.0
_MASK: Final = (1 << 64) - 1
_ROW: Final = "records bigint, bytes bigint, checksum string"


@dataclass(frozen=True, slots=True)
class RecordProof:
    """What a set of records holds. Proofs of sets that share no record add up, in any order."""

    records: int = 0
    payload_bytes: int = 0
    checksum: int = 0
    """Sum modulo 2^64 of 64 mixed bits of each record's LSN, offset in the entry, and crc32c of the payload."""

    def __add__(self, other: RecordProof) -> RecordProof:
        checksum = (self.checksum + other.checksum) & _MASK
        return RecordProof(self.records + other.records, self.payload_bytes + other.payload_bytes, checksum)

    @classmethod
    def of(cls, lsns: Iterable[int], offsets: Iterable[int], payloads: Sequence[bytes]) -> RecordProof:
        """Of records given as columns."""
        checksum = sum(map(entry_mix, offsets, lsns, map(crc32c, payloads)))
        return cls(len(payloads), sum(map(len, payloads)), checksum & _MASK)

    def __str__(self) -> str:
        return f"{self.records} records, {self.payload_bytes} bytes, checksum {self.checksum:016x}"


async def write_stream(
    namespace: Namespace, name: str, url: str, payloads: Sequence[bytes], times: int, segment_bytes: int
) -> tuple[Stream, RecordProof]:
    """Make a stream with `cold`, write the payloads so many times, end it; and the proof of what was acknowledged."""
    roll = Roll(bytes=segment_bytes)
    stream = await namespace.create(name, cold=url, ttl="1us", roll=roll)
    written = RecordProof()
    async with stream.writer() as writer:
        for _ in range(times):
            receipts = await writer.write_many(payloads)
            written += RecordProof.of(receipts.lsns(), receipts.batch_offsets(), payloads)
    await stream.mark_end()  # the last segment, too, is completed
    return stream, written


async def trim_copied(namespace: Namespace, stream: Stream) -> None:
    """Trim the log of a stream that is copied, so that only copies have its segments.

    Raises:
        LogDeviceError: a segment cannot be copied or trimmed; TimeoutError: it took too long.
    """
    async with asyncio.timeout(_TRIM_SECONDS), Janitor(namespace) as janitor:
        while True:
            await janitor.round()
            for failure in janitor.failures.values():
                raise failure
            if all(segment.state is StreamSegmentState.COLD for segment in await stream.segments()):
                return
            await asyncio.sleep(0.1)


async def read_by_client(stream: Stream, records_at_once: int) -> RecordProof:
    """What a reader of the stream gives."""
    proof = RecordProof()
    async with stream.reader(until="tail") as reader:
        while batch := await reader.read(records_at_once):
            columns = batch.columns
            proof += RecordProof.of(columns.lsns, columns.batch_offsets, _present(columns.payloads))
    return proof


def _present(payloads: Iterable[bytes | None]) -> list[bytes]:
    """Payloads of records none of which was written damaged."""
    return [b"" if payload is None else payload for payload in payloads]


# Spark


def start_spark(directory: Path, records_at_once: int) -> SparkSession:
    """Spark on this machine, with a task for each processor at a time and 1 GB for its Java."""
    from pyspark.sql import SparkSession

    root = str(Path(__file__).parents[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    builder = (
        SparkSession.builder.master("local[*]")
        .appName("cold copies")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(directory))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", str(records_at_once))
    )
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # what fails is raised
    return session


def load_stream(spark: SparkSession, cluster_file: str, path: str) -> DataFrame:
    """A stream as a table, by the path of its namespace and its name."""
    return spark.read.format("logdevice").option("cluster", cluster_file).load(f"stream:{path}")


def read_by_spark(frame: DataFrame) -> RecordProof:
    """What a DataFrame of a stream holds: executors read it and make the proofs, of which the driver gets one a task."""
    rows = frame.select("lsn", "batch_offset", "payload").mapInArrow(_task_proof, _ROW).collect()
    return sum((RecordProof(row.records, row.bytes, int(row.checksum, 16)) for row in rows), RecordProof())


def _task_proof(batches: Iterator[Any]) -> Iterator[Any]:
    """Of one task, as a row; a batch of the task's rows is in memory at a time."""
    proof = RecordProof()
    for batch in batches:
        lsns, offsets, payloads = (column.to_pylist() for column in batch.columns)
        proof += RecordProof.of(lsns, offsets, _present(payloads))
    columns = {"records": [proof.records], "bytes": [proof.payload_bytes], "checksum": [f"{proof.checksum:016x}"]}
    yield pa.RecordBatch.from_pydict(columns)


def spark_processes() -> list[ServerProcess]:
    """The Java that this process has started for Spark, and the Pythons of its tasks."""
    found = [ServerProcess("java", "java", pid) for pid in children_of(os.getpid()) if _program(pid) == "java"]
    pending = [pid for process in found for pid in children_of(process.pid)]
    while pending:
        pid = pending.pop()
        found.append(ServerProcess(f"task {pid}", "tasks", pid))
        pending += children_of(pid)
    return found


def _program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:  # it has ended meanwhile
        return ""


def change_a_byte(directory: Path) -> None:
    """Of the largest file of the copies below a directory, in its middle."""
    path = max(directory.rglob("*.parquet"), key=lambda file: file.stat().st_size)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        (byte,) = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
