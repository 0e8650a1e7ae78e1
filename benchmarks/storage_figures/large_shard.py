"""A shard with many large partitions: how long it takes to open, what it costs, how look-ups do, and how space comes back."""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from pathlib import Path

from benchmarks.ldbench.page_cache import drop_page_cache
from benchmarks.percentiles import percentile
from benchmarks.storage_figures.appends import Latencies, PacedAppends, fill
from benchmarks.storage_figures.processes import bytes_of, cost_of_node, load, node_processes, say
from client.client import Client
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.units import Timestamp
from server.dev import layout
from storage_node.log_store.rocksdb import RocksLogStore
from storage_node.log_store.settings import LogStoreSettings

LOGS = 20
"""Log 21 takes the appends whose latency is measured; it is not trimmed."""
_PARTITIONS = 200
_PAYLOAD = 64 << 10
_LOOK_UPS = 1_000
_CONTROL = 15.0
"""Seconds."""
_STILL = 5.0
"""Seconds without a byte more, after which nothing else is to come."""


class LargeShard:
    """One node with one shard."""

    def __init__(self, directory: Path, size: int) -> None:
        """
        Args:
            size: bytes of payloads.
        """
        self.directory = directory
        self.size = size
        self._nodes = {
            "nodes": 1,
            "logs": LOGS + 1,
            "replicate": "node:1",
            "settings": {
                "storage": {
                    "partition_bytes": f"{size // _PARTITIONS}B",
                    "upkeep_interval_us": "50ms",
                    "partitions_soft_max": 1000,
                    "partitions_max": 1000,
                }
            },
        }

    def _client(self) -> Client:
        return Client(str(layout.cluster_file(self.directory)))

    async def fill(self) -> None:
        """Append what is missing of it."""
        there, logs = bytes_of(self.directory, 0), [LogId(log) for log in range(1, LOGS + 1)]
        began = time.monotonic()
        async with node_processes(self.directory, **self._nodes), self._client() as client:  # type: ignore[arg-type]
            await fill(client, logs, max(self.size - there, 0), _PAYLOAD)
        took = time.monotonic() - began
        say(f"filled: {bytes_of(self.directory, 0) / 1e9:.1f} GB on disk in {took:.0f} s")

    async def open_and_look_up(self) -> None:
        """Open it with cold files, alone and by a node that is started, and look for times."""
        how = await asyncio.to_thread(drop_page_cache, self.directory)
        say(f"page cache dropped ({how}); {load()}")
        said = await asyncio.to_thread(self._open_store)
        say(f"the store alone: {said}")
        await asyncio.to_thread(drop_page_cache, self.directory)
        began = time.monotonic()
        async with node_processes(self.directory, **self._nodes) as supervisor, self._client() as client:  # type: ignore[arg-type]
            say(f"all logs are writable {time.monotonic() - began:.2f} s after the process was started")
            say(f"{cost_of_node(supervisor, 0).resident_bytes / 1e6:.0f} MB resident")
            spans = [await self._span(client, log) for log in range(1, LOGS + 1)]
            first, last = min(span[0] for span in spans), max(span[1] for span in spans)
            rng = random.Random(1)
            took = []
            used, own = cost_of_node(supervisor, 0).cpu_seconds, time.process_time()
            for _ in range(_LOOK_UPS):
                log, when = rng.randrange(1, LOGS + 1), rng.randrange(first, last)
                at = time.perf_counter()
                await client.find_time(log, when)
                took.append((time.perf_counter() - at) * 1e3)
            used, own = cost_of_node(supervisor, 0).cpu_seconds - used, time.process_time() - own
            say(
                f"{_LOOK_UPS} look-ups of times over {(last - first) / 1e6:.0f} s: p50 {statistics.median(took):.1f} ms, "
                f"p99 {percentile(took, 0.99):.1f} ms, max {max(took):.1f} ms; processor time of each: "
                f"{used * 1e3 / _LOOK_UPS:.2f} ms of the node, {own * 1e3 / _LOOK_UPS:.2f} ms of the client; {load()}"
            )
            say(f"{cost_of_node(supervisor, 0).resident_bytes / 1e6:.0f} MB resident after the look-ups")

    def _open_store(self) -> str:
        directory = layout.node_directory(self.directory, NodeId(0)) / "shard0"
        began, used = time.monotonic(), time.process_time()
        store = RocksLogStore(str(directory), LogStoreSettings())
        assert store.found is not None
        store.adopt(store.found, boot="", now=Timestamp(time.time_ns() // 1000))
        contents = store.load()
        took, used = time.monotonic() - began, time.process_time() - used
        text = f"open after {took:.2f} s, {used:.2f} s of processor time, {len(store.partitions)} partitions, {len(contents.highest)} logs"
        store.close()
        return text

    async def drop(self, pieces: int, per_second: int) -> None:
        """Trim nine tenths, in so many pieces; before each, appends are measured for as long as they will be while it goes."""
        async with node_processes(self.directory, **self._nodes) as supervisor, self._client() as client:  # type: ignore[arg-type]
            spans = {log: await self._span(client, log) for log in range(1, LOGS + 1)}
            full = bytes_of(self.directory, 0)
            say(f"{full / 1e9:.1f} GB on disk; {load()}")
            ratios = []
            async with PacedAppends(client, [LogId(LOGS + 1)], per_second) as appends:
                await appends.during(2)
                for piece in range(1, pieces + 1):
                    before = bytes_of(self.directory, 0)
                    control = await appends.during(_CONTROL)
                    share = 0.9 * piece / pieces
                    began = time.monotonic()
                    await asyncio.gather(
                        *(
                            self._trim(client, log, first + int((last - first) * share))
                            for log, (first, last) in spans.items()
                        )
                    )
                    trimmed = time.monotonic() - began
                    left, took, dropping = await self._wait_for_space(appends)
                    ratios.append(dropping.percentile(0.99) / control.percentile(0.99))
                    say(f"control: {control}")
                    say(
                        f"{(before - left) / 1e9:.2f} of {full / 1e9:.1f} GB went within {trimmed + took:.1f} s of the TRIM: {dropping}; "
                        f"p99 is {ratios[-1]:.2f} times the control's"
                    )
            say(
                f"median of the ratios: {statistics.median(ratios):.2f}; {cost_of_node(supervisor, 0).resident_bytes / 1e6:.0f} MB resident; {load()}"
            )

    async def _wait_for_space(self, appends: PacedAppends) -> tuple[int, float, Latencies]:
        """Until space does not come back any more: bytes left, seconds until the last came back, appends up to then."""
        began = changed = time.monotonic()
        left, meanwhile, since = bytes_of(self.directory, 0), Latencies(), Latencies()
        while time.monotonic() - changed < _STILL:
            await asyncio.sleep(0.25)
            since.add(appends.take())
            if (now := bytes_of(self.directory, 0)) < left:
                left, changed = now, time.monotonic()
                meanwhile.add(since)
                since = Latencies()
        return left, changed - began, meanwhile

    @staticmethod
    async def _span(client: Client, log: int) -> tuple[int, int]:
        head, tail = await client.head(log), await client.tail(log)
        assert head.timestamp is not None
        assert tail.timestamp is not None
        return int(head.timestamp), int(tail.timestamp)

    @staticmethod
    async def _trim(client: Client, log: int, until: int) -> None:
        await client.trim(log, int(await client.find_time(log, until)) - 1)
