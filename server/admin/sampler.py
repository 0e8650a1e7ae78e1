"""Looks at a node now and then, so that nothing must be counted where it would cost something."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from logdevice_py.runtime.clock import monotonic_us
from sequencer.throughput import AppendThroughput
from server.process_metrics import ProcessMetrics

if TYPE_CHECKING:
    from server.node_view import AdminView

LAG_INTERVAL: Final = 0.1
LOOK_INTERVAL: Final = 10.0
_LAGS_PER_LOOK: Final = round(LOOK_INTERVAL / LAG_INTERVAL)


class NodeSampler:
    """The observations of one node; `run` makes them until it is cancelled."""

    def __init__(self, host: AdminView) -> None:
        self.throughput = AppendThroughput()
        self.process = ProcessMetrics()
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
