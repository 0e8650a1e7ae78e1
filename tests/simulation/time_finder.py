"""An application that asks where in a log a time is, and gives up what is older."""

from __future__ import annotations

import asyncio

from logdevice_py.core.lsn import LSN_OLDEST
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import SECOND
from tests.simulation.asyncio_clients import AsyncioApplication
from tests.simulation.history import TimeAnswer


class TimeFinder(AsyncioApplication):
    """Asks where a time is. In runs that trim it gives up, now and then, what lies before."""

    async def live(self, interval: int) -> None:
        await self.rest(self.rng.randrange(interval))
        while not self.is_calm.is_set():
            patience = self.rng.choice([1, 10, 30])
            try:
                async with asyncio.timeout(patience):
                    await self.find()
            except (LogDeviceError, TimeoutError) as error:
                self.cluster.note(self.client.name, "found no time", error)
            await self.rest(1 + self.rng.randrange(2 * interval))

    async def find(self) -> None:
        log = self.pick_log()
        history = self.run.histories[log]
        stamps = list(history.timestamps.values())
        when = self.rng.choice(stamps or [1]) + self.rng.choice([-SECOND, -1, 0, 0, 1, SECOND])
        before = history.acknowledged_max[0]
        lsn = int(await self.client.client.find_time(log, max(1, when)))
        self.cluster.note(self.client.name, "found time", (log, when, lsn))
        history.times.append(TimeAnswer(self.name, when, lsn, before))
        if self.run.scenario.trim_interval and lsn > LSN_OLDEST and self.rng.random() < 0.2:
            history.trim_asked = max(history.trim_asked, lsn - 1)
            model = self.run.invariants.logs[log]
            model.trim_asked = max(model.trim_asked, lsn - 1)
            await self.client.client.trim(log, lsn - 1, timeout=2)
            self.run.trims += 1
