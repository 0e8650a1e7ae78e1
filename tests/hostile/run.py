"""A cluster of five real processes that serves honest clients while a hostile one does what it can, and what must hold then.

The phases are: honest clients alone; the same beside a harmless process that is as busy as the hostile client; beside the attacks; beside mutated frames. All are
as long as they take, and in all of them the honest clients append, and read what they appended.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.percentiles import percentile
from benchmarks.storage_figures.processes import cost_of_node
from client.buffered_writer import BufferedWriter
from client.client import Client
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError
from server.dev import layout
from tests.integration.process_cluster import (
    Journal,
    ProcessCluster,
    StreamWorkload,
    compare,
    process_cluster,
    read_all,
)

HONEST, LARGE, ABUSED, FORGED, TIMED, KEPT = 1, 2, 3, 4, 5, 6
"""Logs: a BufferedWriter and a tailing reader; much that is read and never waited for; what strangers append to; a BufferedWriter whose stream is forged; direct appends that
are timed; records that were there before."""
LOGS = 6
_LARGE_RECORDS, _LARGE_SIZE = 40, 250_000
_SETTINGS = {"rebuilding": {"enabled": True}}
_PAUSE = 0.02
"""Seconds between timed appends."""


@dataclass
class Phase:
    """What was measured beside something."""

    name: str
    seconds: float = 0
    milliseconds: list[float] = field(default_factory=list)
    """Of each timed append."""
    failed: int = 0
    """Timed appends that ended with an error."""
    told: int = 0
    """Timed appends that were looked at when the last attack had ended."""

    def percentile(self, share: float) -> float:
        """Milliseconds within which this share of the appends was done."""
        return percentile(self.milliseconds, share)

    def __str__(self) -> str:
        return (
            f"{self.name}: {len(self.milliseconds)} appends in {self.seconds:.0f} s, p50 {self.percentile(0.5):.1f} ms, "
            f"p99 {self.percentile(0.99):.1f} ms, longest {max(self.milliseconds, default=math.nan):.0f} ms, {self.failed} failed"
        )


class ForgedWriter:
    """Writes to the log whose write streams are forged: what fails is written by another writer, with other numbers."""

    def __init__(self, client: Client) -> None:
        self.journal = Journal()
        self.writers = 0
        self._number = 0
        self._client = client
        self._stop = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self._stop.is_set():
            self.writers += 1
            with contextlib.suppress(LogDeviceError):  # closing says once more what was not acknowledged
                async with self._client.buffered_writer() as writer:
                    await self._write(writer)

    async def _write(self, writer: BufferedWriter) -> None:
        """Until it is told to stop, or the stream is broken."""
        while not self._stop.is_set():
            payload = b"forged-%d" % self._number
            self._number += 1
            try:
                receipt = await writer.append(LogId(FORGED), payload)
            except LogDeviceError as error:
                (self.journal.doubtful if error.maybe_applied else self.journal.failed).add(payload)
                return
            position = (int(receipt.lsn), receipt.batch_offset)
            assert position not in self.journal.acknowledged, "a position was given twice"
            self.journal.acknowledged[position] = payload
            self.journal.order.append(position)
            await asyncio.sleep(0.005)

    async def finish(self) -> Journal:
        """Stop and give the journal."""
        self._stop.set()
        await self._task
        return self.journal


class HonestUsers:
    """Clients that append and read, and remember what was acknowledged."""

    def __init__(self, cluster: ProcessCluster, client: Client) -> None:
        self.cluster = cluster
        self.client = client
        self.followed: dict[tuple[int, int], bytes] = {}
        self.timed = Journal()
        self.phase = Phase("start")
        self.stream = StreamWorkload(client, HONEST)
        self.forged = ForgedWriter(client)
        self.kept = Journal()
        self._number = 0
        self._stop = asyncio.Event()
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._time())]

    async def prepare(self, kept: int) -> None:
        """Fill the log that is only kept, and the large one."""
        payloads = [b"kept-%d" % number for number in range(kept)]
        async with self.client.buffered_writer() as writer:
            receipts = await writer.append_many(LogId(KEPT), payloads)
        for receipt, payload in zip(receipts, payloads, strict=True):
            self.kept.acknowledged[int(receipt.lsn), receipt.batch_offset] = payload
        for _ in range(_LARGE_RECORDS):
            await self.client.append(LogId(LARGE), bytes(_LARGE_SIZE), timeout=60)

    async def _follow(self) -> None:
        async with self.client.reader(LogId(HONEST), start=LSN.OLDEST) as reader:
            while batch := await reader.read(max_records=5000):
                bad = [gap for gap in batch.gaps if gap.kind.value in ("dataloss", "trim")]
                assert not bad, bad
                for payload, lsn, offset in zip(batch.payloads, batch.lsns, batch.batch_offsets, strict=True):
                    assert payload is not None
                    self.followed[lsn, offset] = payload

    async def _time(self) -> None:
        while not self._stop.is_set():
            payload = b"timed-%d" % self._number
            self._number += 1
            began = time.monotonic()
            try:
                receipt = await self.client.append(LogId(TIMED), payload)
            except LogDeviceError as error:
                self.phase.failed += 1
                (self.timed.doubtful if error.maybe_applied else self.timed.failed).add(payload)
            else:
                self.timed.acknowledged[int(receipt.lsn), receipt.batch_offset] = payload
            self.phase.milliseconds.append((time.monotonic() - began) * 1000)
            await asyncio.sleep(_PAUSE)

    @asynccontextmanager
    async def measured(self, name: str) -> AsyncIterator[Phase]:
        """What happens meanwhile is a phase."""
        phase = self.phase = Phase(name)
        began = time.monotonic()
        yield phase
        phase.seconds = time.monotonic() - began
        for task in self._tasks:
            if task.done():
                task.result()
                raise AssertionError("an honest client ended")

    async def finish(self) -> dict[str, int]:
        """Append once more, then read all and compare; says how many records were acknowledged of each kind.

        Raises:
            AssertionError: something that was acknowledged is lost, is there twice, is out of order, or is something else.
        """
        await self.stream.more(100)
        journals = {"stream": await self.stream.finish(), "forged stream": await self.forged.finish()}
        async with asyncio.timeout(60):
            while not self.followed.keys() >= set(journals["stream"].order):  # noqa: ASYNC110 - a reader has no event for it
                await asyncio.sleep(0.01)
        self._stop.set()
        await self._tasks[1]
        self._tasks[0].cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        after = b"kept-after"
        receipt = await self.client.append(LogId(KEPT), after, timeout=30)
        self.kept.acknowledged[int(receipt.lsn), receipt.batch_offset] = after
        journals |= {"direct": self.timed, "kept": self.kept}
        for log, name in ((HONEST, "stream"), (TIMED, "direct"), (KEPT, "kept"), (FORGED, "forged stream")):
            reading = await read_all(self.client, log)
            if log == FORGED:  # strangers may add to it, at positions of their own
                wanted = set(journals[name].acknowledged.values()) | journals[name].doubtful | journals[name].failed
                reading.records = {place: each for place, each in reading.records.items() if each in wanted}
            compare(reading, journals[name])
            assert not [gap for gap in reading.gaps if gap[0] == "trim"], reading.gaps
        return {name: len(journal.acknowledged) for name, journal in journals.items()}

    async def close(self) -> None:
        """End what runs."""
        for task in [*self._tasks, self.stream._task, self.forged._task]:
            task.cancel()
        await asyncio.gather(*self._tasks, self.stream._task, self.forged._task, return_exceptions=True)


@dataclass
class Outcome:
    """What a run has shown."""

    phases: list[Phase] = field(default_factory=list)
    peaks: dict[str, dict[int, int]] = field(default_factory=dict)
    """Bytes of memory that each node held at most up to the end of a phase."""
    attacks: list[dict[str, Any]] = field(default_factory=list)
    frames: dict[str, Any] = field(default_factory=dict)
    acknowledged: dict[str, int] = field(default_factory=dict)
    writers: int = 0
    """BufferedWriters that were needed in the log whose stream was forged."""


@asynccontextmanager
async def _process(niceness: int, *command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process with a small claim on processors; it is gone afterwards."""
    process = await asyncio.create_subprocess_exec(
        *("nice", "-n", str(niceness), sys.executable, *command),
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 20,
        start_new_session=True,
    )
    with contextlib.suppress(OSError):  # where Linux gives each session a share, niceness counts within one only
        Path(f"/proc/{process.pid}/autogroup").write_text(str(niceness))
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def _hostile(
    cluster: ProcessCluster, niceness: int, say: Callable[[dict[str, Any]], None], *arguments: str
) -> None:
    logs = [
        "--victims",
        *map(str, (HONEST, KEPT, TIMED)),
        "--streams",
        str(FORGED),
        "--abused",
        str(ABUSED),
        "--large",
        str(LARGE),
    ]
    async with _process(
        niceness, "-m", "tests.hostile.client", "--cluster", cluster.file, *logs, *arguments
    ) as process:
        assert process.stdout is not None
        async for line in process.stdout:
            say(json.loads(line))
        assert await process.wait() == 0, "the hostile client failed"


def _processor_seconds(cluster: ProcessCluster) -> float:
    return sum(cost_of_node(cluster.supervisor, node).cpu_seconds for node in cluster.supervisor.children)


async def run_hostile(
    directory: Path,
    *,
    attacks: int,
    frames: int,
    scale: float = 1.0,
    rate: float = 0,
    quiet_seconds: float = 20,
    kept: int = 2000,
    niceness: int = 19,
    say: Callable[[str], None] = print,
) -> Outcome:
    """A whole run.

    Args:
        attacks: how often each attack is made.
        frames: mutated frames, at most `rate` a second (0: as fast as nodes take them).
        scale: factor on the size of each attack.
        quiet_seconds: how long honest clients are measured without the hostile one.
        kept: records that are there before, and must stay.
        niceness: of the hostile client, and of the harmless process.

    Raises:
        AssertionError: a node ended or wrote a traceback, or honest clients lost something.
    """
    outcome = Outcome()
    async with process_cluster(directory, logs=LOGS, settings=_SETTINGS) as cluster, Client(cluster.file) as client:
        users = HonestUsers(cluster, client)
        try:
            await users.prepare(kept)

            @asynccontextmanager
            async def measured(name: str) -> AsyncIterator[None]:
                used = _processor_seconds(cluster)
                async with users.measured(name) as phase:
                    yield
                outcome.phases.append(phase)
                outcome.peaks[name] = cluster.peak_memory()
                assert len(outcome.peaks[name]) == 5, f"a node ended\n{cluster.logs_of_nodes()}"
                cost = (_processor_seconds(cluster) - used) / max(phase.seconds, 0.1)
                say(
                    f"{phase}; peak of a node {max(outcome.peaks[name].values()) >> 20} MiB; nodes use {cost:.2f} processors"
                )

            async with measured("alone"):
                await asyncio.sleep(quiet_seconds)
            async with measured("beside a harmless busy process"), _process(niceness, "-c", "while True: pass"):
                await asyncio.sleep(quiet_seconds)

            def attacked(content: dict[str, Any]) -> None:
                meanwhile = users.phase.milliseconds[users.phase.told :]
                users.phase.told += len(meanwhile)
                content["longest_append_ms"] = round(max(meanwhile, default=0))
                outcome.attacks.append(content)
                cost = f"{content['seconds']} s, longest append {content['longest_append_ms']} ms"
                say(f"  {content['attack']}: {content['outcomes']} in {cost}")

            def fed(content: dict[str, Any]) -> None:
                outcome.frames = content
                say(f"  {content['frames']} in {content['seconds']} s")

            if attacks:
                async with measured("beside the attacks"):
                    await _hostile(cluster, niceness, attacked, "--attacks", str(attacks), "--scale", str(scale))
            if frames:
                async with measured("beside mutated frames"):
                    await _hostile(cluster, niceness, fed, "--frames", str(frames), "--rate", str(rate))
            outcome.acknowledged = await users.finish()
            outcome.writers = users.forged.writers
        finally:
            await users.close()
        for node in range(5):
            text = layout.node_log(cluster.directory, NodeId(node)).read_text()
            assert " CRITICAL " not in text, text[-3000:]
    return outcome
