"""Appends to a cluster of its own while every process notes what happens to them (``ldbench trace``)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.ldbench.append_waterfall import (
    CLIENT,
    ProcessInstant,
    TracedAppend,
    Waterfall,
    as_svg,
    as_text,
    instants_of,
    waterfall,
)
from benchmarks.ldbench.engine import DurabilityClass, StartOptions
from benchmarks.ldbench.engines.logdevice import LogDeviceEngine
from benchmarks.ldbench.precise_timer import PreciseTimer
from client.admin_access import AdminAccess
from client.client import Client
from client.network import ClientMachines
from client.node_tables import NodeAsker
from client.sockets import SocketNetwork
from ldquery.ctl.health import ask_tables
from logdevice_py.core.ids import NodeId, format_peer, format_shard
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.append_trace import AppendTrace
from server.dev import layout
from storage_node.log_store.settings import STORE_KINDS

_INSTANTS: Final = 200_000
"""A process keeps so many: of some ten thousand appends."""
_SECONDS: Final = 60.0
_WARM: Final = 200
"""Appends before any that count."""
_FIRST: Final = 20
"""Appends whose trace is done for the first time."""


class TracedNetwork(SocketNetwork):
    """A client's connections with a trace that can be begun and ended."""

    def __init__(self, machines: ClientMachines) -> None:
        super().__init__(machines)
        self.trace: AppendTrace | None = None

    def begin_trace(self) -> None:
        """From here on."""
        assert self._driver is not None
        assert self._transport is not None
        self.trace = AppendTrace(_INSTANTS)
        self.trace.install(self._driver, self._transport)

    def instants(self) -> list[ProcessInstant]:
        """What was noted."""
        return [
            ProcessInstant(
                CLIENT,
                each.at_ns,
                each.event.name,
                each.log,
                each.lsn,
                None if each.peer is None else format_peer(each.peer),
                None if each.shard is None else format_shard(each.shard),
                each.wave,
                each.request_id,
                each.batch_offset,
                each.took_ns,
            )
            for each in (() if self.trace is None else self.trace.instants)
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOrder:
    """What is traced."""

    appends: int = 500
    size: int = 100
    rate: float = 0.0
    """Appends a second, evenly spaced; 0: each when the one before was delivered."""
    copies: int = 3
    durability: str = "sync"
    store: str = STORE_KINDS[0]
    fill_bytes: int = 0
    """Written just before, in records of 10 KB."""


@dataclass(slots=True)
class TraceReport:
    """What came out."""

    order: TraceOrder
    untraced_p50_us: float
    """Of acknowledgements, of the same load before anything was traced."""
    waterfall: Waterfall

    def title(self) -> str:
        """One line."""
        order = self.order
        load = f"{order.rate:g} a second" if order.rate else "one at a time"
        return f"append of {order.size} B, {load}, {order.copies} copies, {order.durability}, {order.store}; untraced p50 {self.untraced_p50_us:,.0f} us"

    def save(self, directory: Path) -> list[Path]:
        """Text, picture and figures; the paths."""
        directory.mkdir(parents=True, exist_ok=True)
        files = {
            "trace.txt": as_text(self.waterfall, self.title()),
            "trace.svg": as_svg(self.waterfall, self.title()),
            "trace.json": json.dumps(dataclasses.asdict(self), indent=1) + "\n",
        }
        for name, text in files.items():
            (directory / name).write_text(text)
        return [directory / name for name in files]


async def trace(order: TraceOrder, directory: Path) -> TraceReport:
    """Start a cluster in an empty directory, and trace appends to it.

    Raises:
        EngineError, LogDeviceError: it did not work.
    """
    options = StartOptions(
        directory=directory, durability=DurabilityClass(order.durability), copies=order.copies, logs=4
    )
    running = await LogDeviceEngine(order.store).start(options)
    try:
        log, filler = map(int, await running.create_logs(2))
        if order.fill_bytes:
            await _fill(running.client, filler, order.fill_bytes)
        return await trace_log(order, layout.cluster_file(running.directory), log)
    finally:
        await running.stop()


async def trace_log(order: TraceOrder, config_file: Path, log: int) -> TraceReport:
    """Append to a log of a cluster that runs, and put together what all its processes noted. The nodes note it for so long.

    Raises:
        LogDeviceError: it did not work.
    """
    networks: list[TracedNetwork] = []

    def network(machines: ClientMachines) -> TracedNetwork:
        networks.append(TracedNetwork(machines))
        return networks[-1]

    async with Client(str(config_file), network=network) as client:
        nodes, asker = list(client.config.nodes), NodeAsker(client.config, AdminAccess.of_program(config_file))
        try:
            await _appends(client, log, order, min(_WARM, order.appends))
            untraced = await _appends(client, log, order, order.appends)
            try:
                await _tell(asker, nodes, "set", value=str(_INSTANTS))
                networks[0].begin_trace()
                await _appends(client, log, order, min(_FIRST, order.appends))
                traced = await _appends(client, log, order, order.appends)
                instants = [*networks[0].instants(), *await _instants(asker, nodes, log)]
            finally:
                await _tell(asker, nodes, "unset")
        finally:
            await asker.close()
    took = sorted(each.returned_ns - each.called_ns for each in untraced)
    return TraceReport(order, took[len(took) // 2] / 1000, waterfall(instants, traced))


async def _fill(client: Client, log: int, size: int) -> None:
    record = os.urandom(10_000)
    async with client.buffered_writer() as writer:
        left = size
        while left > 0:
            await writer.ready()
            await writer.append_many(log, [record] * min(100, -(-left // len(record))))
            left -= 100 * len(record)


async def _appends(client: Client, log: int, order: TraceOrder, count: int) -> list[TracedAppend]:
    """Append and read at the tail; what the callers saw."""
    clock = time.monotonic_ns
    payload = os.urandom(order.size)
    found: dict[tuple[int, int], TracedAppend] = {}
    delivered: dict[tuple[int, int], int] = {}
    news = asyncio.Event()

    async def one() -> TracedAppend:
        called = clock()
        receipt = await client.append(log, payload)
        place = int(receipt.lsn), receipt.batch_offset
        append = found[place] = TracedAppend(*place, called, clock())
        return append

    async def read(reader: Any) -> None:
        while True:
            batch = await reader.read()
            at = clock()
            delivered.update(((place), at) for place in zip(map(int, batch.lsns), batch.batch_offsets, strict=True))
            news.set()

    async def until_delivered(append: TracedAppend) -> None:
        while (append.lsn, append.batch_offset) not in delivered:
            news.clear()
            await news.wait()

    async with client.reader(log, start=await client.tail_lsn(log) + 1) as reader:
        reading = asyncio.create_task(read(reader))
        try:
            async with asyncio.timeout(_SECONDS + (count / order.rate if order.rate else 0)):
                if order.rate:
                    await _paced(one, order.rate, count)
                    for append in list(found.values()):
                        await until_delivered(append)
                else:
                    for _ in range(count):
                        await until_delivered(await one())
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
    for place, append in found.items():
        append.delivered_ns = delivered.get(place)
    return list(found.values())


async def _paced(one: Any, rate: float, count: int) -> None:
    timer, start = PreciseTimer(), time.monotonic_ns()
    try:
        async with asyncio.TaskGroup() as tasks:
            for number in range(count):
                await timer.until(start + round(number * 1e9 / rate))
                tasks.create_task(one())
    finally:
        timer.close()


async def _tell(asker: NodeAsker, nodes: Sequence[NodeId], action: str, **given: str) -> None:
    """Have every node change the setting by which it notes what happens to appends."""
    given |= {"section": "settings.runtime", "name": "trace_instants"}
    await asyncio.gather(*(asker.act(node, action, given, _SECONDS) for node in nodes))


async def _instants(asker: NodeAsker, nodes: Sequence[NodeId], log: int) -> list[ProcessInstant]:
    found, silent = await ask_tables(asker, nodes, ("append_trace",), _SECONDS)
    if silent:
        raise LogDeviceError(Status.TIMEDOUT, f"nodes did not tell what they noted: {silent}")
    return [
        each
        for node, rows in found["append_trace"].items()
        for each in instants_of(f"N{node}", rows)
        if each.log in (None, log)
    ]
