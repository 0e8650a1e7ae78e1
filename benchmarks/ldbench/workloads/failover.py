"""A server is killed, paused or cut off under a steady load: how long appends stall, and what the others notice."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final, Protocol

from benchmarks.ldbench.bench import WorkloadBench
from benchmarks.ldbench.engine import EngineError, Mode, RunningEngine
from benchmarks.ldbench.engines.logdevice import RunningLogDevice
from benchmarks.ldbench.latency import LatencyHistogram
from benchmarks.ldbench.pacing import pace
from benchmarks.ldbench.separate_machines import why_no_machines
from benchmarks.ldbench.streams import AppendStream
from benchmarks.ldbench.workload import Scale, SmallestOnly

RATE: Final = 300
"""Appends a second: a small part of what any of the systems takes."""
APPEND_TIMEOUT: Final = 15.0
RECOVERY_SECONDS: Final = 60.0
_CALM_SECONDS: Final = 2.0
_UNDER_WAY: Final = 500_000_000
"""Nanoseconds."""
_TRY_SECONDS: Final = 0.1
_LONGEST_WATCH: Final = 10.0


class ServerFault(Protocol):
    """What happens to a server."""

    async def begin(self, running: RunningEngine, victim: str) -> None:
        """Break it."""

    async def end(self, running: RunningEngine, victim: str) -> None:
        """Undo it."""


class Killed:
    """SIGKILL, and a new process on the same data."""

    async def begin(self, running: RunningEngine, victim: str) -> None:
        """As `ServerFault.begin`."""
        await running.kill(victim)

    async def end(self, running: RunningEngine, victim: str) -> None:
        """As `ServerFault.end`."""
        await running.restart(victim)


class Paused:
    """SIGSTOP: connections stay open, nothing is answered."""

    async def begin(self, running: RunningEngine, victim: str) -> None:
        """As `ServerFault.begin`."""
        await running.pause(victim)

    async def end(self, running: RunningEngine, victim: str) -> None:
        """As `ServerFault.end`."""
        await running.resume(victim)


class CutOff:
    """Nothing reaches it and nothing comes from it, without a word to anybody."""

    async def begin(self, running: RunningEngine, victim: str) -> None:
        """As `ServerFault.begin`."""
        assert isinstance(running, RunningLogDevice)
        await running.cut_off(victim)

    async def end(self, running: RunningEngine, victim: str) -> None:
        """As `ServerFault.end`."""
        assert isinstance(running, RunningLogDevice)
        await running.connect_again(victim)


class Failover(SmallestOnly):
    """The leader of a log, or a server that keeps copies of it, is broken, again and again."""

    group = "failover"
    mode: Mode | None = None
    tolerate_failure = True

    def __init__(self, name: str, title: str, *, leader: bool, fault: ServerFault) -> None:
        self.name = name
        self.title = title
        self.primary = "standstill_ms" if leader else "p99_over_control"
        self.breaks_leaders = self._leader = leader
        self._fault = fault

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """How often, and for how many seconds the load goes on behind the fault: latencies count, where others should not notice."""
        watch = min(_LONGEST_WATCH, max(3.0, scale.seconds)) if self._leader else scale.watch_copies
        return ({"repeats": scale.repeats, "watch": watch},)

    async def run(self, bench: WorkloadBench) -> None:
        """The same load before each fault is its control."""
        repeats, watch = int(bench.case.parameters["repeats"]), float(bench.case.parameters["watch"])
        (log,) = await bench.logs(1)
        stream = await bench.stream(log, Mode.SINGLE, timeout=APPEND_TIMEOUT)
        await stream.lone()
        before, after = LatencyHistogram(), LatencyHistogram()
        stalls, ratios = [], []
        async with bench.timed():
            for number in range(repeats):
                bench.say(f"fault {number + 1} of {repeats}")
                calm, broken, silence = await self._one_fault(bench, log, stream, watch, seed=number)
                stalls.append(silence / 1e6)
                if len(calm) and len(broken):
                    ratios.append(broken.percentile_ms(99) / calm.percentile_ms(99))
                before.merge(calm)
                after.merge(broken)
        bench.moved(stream.ledger.acknowledged)
        figures = bench.measurement.figures
        figures["standstill_ms"] = statistics.median(stalls)
        figures["standstill_max_ms"] = max(stalls)
        if ratios:
            figures["p99_over_control"] = statistics.median(ratios)
        figures["failed_appends"] = float(bench.acknowledgements.failed_records)
        bench.latency("append behind the fault", after)
        bench.latency("append before it", before, figures=False)
        if stream.errors:
            bench.note(f"appends failed, the first ones: {'; '.join(stream.errors)}")
        await bench.verify({log: stream}, faults=True)

    async def _one_fault(
        self, bench: WorkloadBench, log: str, stream: AppendStream, watch: float, *, seed: int
    ) -> tuple[LatencyHistogram, LatencyHistogram, int]:
        """Latencies before and behind the fault, and the longest silence, nanoseconds."""
        window = bench.window()
        window.call_records = 1
        victim = await self._victim(bench, log)
        loading = asyncio.create_task(
            pace(stream, RATE, _CALM_SECONDS + watch, window=window, seed=seed), name="steady load"
        )
        try:
            began = time.monotonic_ns()
            await asyncio.sleep(_CALM_SECONDS)
            fault = time.monotonic_ns()
            await self._fault.begin(bench.running, victim)
            _, ended = await loading
        finally:
            loading.cancel()
        bench.say("waiting until appends go on")
        recovered = await self._recovered(stream)
        await self._fault.end(bench.running, victim)
        await stream.settle()
        await self._recovered(stream)
        await self._all_up(bench, log)
        log_of = bench.acknowledgements
        # what was under way when the fault came belongs to it
        calm = log_of.latencies(began, fault - _UNDER_WAY)
        return calm, log_of.latencies(fault, ended), log_of.longest_silence(fault, max(ended, recovered))

    async def _victim(self, bench: WorkloadBench, log: str) -> str:
        if self._leader:
            return await bench.running.leader(log)
        followers = await bench.running.followers(log)
        if not followers:
            raise EngineError("no server keeps copies beside the leader")
        return followers[0]

    async def _recovered(self, stream: AppendStream) -> int:
        """When an append succeeded; the moment. Many are tried side by side: one that is lost with a server would be waited for in vain."""
        acknowledged = stream.ledger.acknowledged
        try:
            async with asyncio.timeout(RECOVERY_SECONDS):
                while stream.ledger.acknowledged == acknowledged:
                    stream.send(1)
                    await asyncio.sleep(_TRY_SECONDS)
        except TimeoutError:
            raise EngineError(f"no append succeeded within {RECOVERY_SECONDS:.0f} s of a fault") from None
        return time.monotonic_ns()

    async def _all_up(self, bench: WorkloadBench, log: str) -> None:
        """Give a server that came back the time to take part again: the next fault would be charged for two."""
        bench.say("letting the servers settle")
        await asyncio.sleep(_CALM_SECONDS)
        try:
            async with asyncio.timeout(RECOVERY_SECONDS):
                while not await _whole(bench.running, log):  # noqa: ASYNC110 - it is asked over the network
                    await asyncio.sleep(_TRY_SECONDS)
        except TimeoutError:
            raise EngineError(
                f"a server that came back does not take part again {RECOVERY_SECONDS:.0f} s after a fault"
            ) from None


async def _whole(running: RunningEngine, log: str) -> bool:
    try:
        return await running.whole(log)
    except EngineError:  # nobody answers yet
        return False


class PartitionFailover(Failover):
    """The sequencer's node is cut off from nodes, clients and the epoch store."""

    group = "partition"
    partitions = True
    engines: frozenset[str] | None = frozenset({"logdevice"})

    def impossible(self) -> str | None:
        """Without the right to make network namespaces, or without ZooKeeper."""
        return why_no_machines()


WORKLOADS = (
    Failover("leader-killed", "the node that orders the log's appends is killed", leader=True, fault=Killed()),
    Failover("leader-paused", "the node that orders the log's appends is paused", leader=True, fault=Paused()),
    Failover("copy-killed", "a server that keeps copies is killed", leader=False, fault=Killed()),
    Failover("copy-paused", "a server that keeps copies is paused", leader=False, fault=Paused()),
    PartitionFailover(
        "leader-partitioned",
        "the node that orders the log's appends is cut off from the network",
        leader=True,
        fault=CutOff(),
    ),
)
