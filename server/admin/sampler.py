"""Looks at a node now and then, so that nothing must be counted where it would cost something."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from logdevice_py.runtime.clock import monotonic_us
from logdevice_py.tables.constraints import Constraints
from sequencer.throughput import AppendThroughput
from server.admin.log_metrics import BusiestLogs
from server.process_metrics import ProcessMetrics
from storage_node.tables import readers_rows

if TYPE_CHECKING:
    from server.node_view import AdminView

_ROWS_AT_A_TIME: Final = 256
LAG_INTERVAL: Final = 0.1
LOOK_INTERVAL: Final = 10.0
_LAGS_PER_LOOK: Final = round(LOOK_INTERVAL / LAG_INTERVAL)


class NodeSampler:
    """The observations of one node; `run` makes them until it is cancelled."""

    def __init__(self, host: AdminView) -> None:
        self.throughput = AppendThroughput()
        self.process = ProcessMetrics()
        self.logs = BusiestLogs()
        self._host = host

    async def run(self) -> None:
        """Measure how late the loop is, and every ten seconds what was appended."""
        loop = asyncio.get_running_loop()
        while True:
            await self.look()
            for _ in range(_LAGS_PER_LOOK):
                due = loop.time() + LAG_INTERVAL
                await asyncio.sleep(LAG_INTERVAL)
                self.process.note_lag(max(0, round((loop.time() - due) * 1e6)))

    async def look(self) -> None:
        """What was appended since the last look, and which logs are behind."""
        if not self._host.is_open:
            return
        sequencer, storage = self._host.node.sequencer, self._host.node.storage
        if sequencer is not None:
            for _ in self.throughput.look(sequencer, monotonic_us()):
                await asyncio.sleep(0)
        if storage is not None:
            for _ in storage.look():
                await asyncio.sleep(0)
        logs = BusiestLogs()
        if sequencer is not None:
            for throughput in self.throughput.rows(sequencer, Constraints()):
                logs.add_throughput(throughput)
        if storage is not None:
            # listed first: streams come and go during the pauses
            for number, reader in enumerate(list(readers_rows(storage, Constraints())), 1):
                logs.add_reader(reader)
                if number % _ROWS_AT_A_TIME == 0:
                    await asyncio.sleep(0)
        self.logs = logs
