"""An application that asks where in a log a time or a key is, how the log begins, and how large it is, and trims what is older."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_OLDEST
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import SECOND
from tests.simulation.asyncio_clients import AsyncioApplication
from tests.simulation.end_state import intact_copies
from tests.simulation.history import KeyAnswer, TimeAnswer


class TimeFinder(AsyncioApplication):
    """Asks where a time is. In runs that trim it trims, now and then, what lies before."""

    async def live(self, interval: int) -> None:
        await self.rest(self.rng.randrange(interval))
        while not self.is_calm.is_set():
            timeout_seconds = self.rng.choice([1, 10, 30])
            try:
                async with asyncio.timeout(timeout_seconds):
                    await self.rng.choice([self.find, self.find, self.find_key, self.look])()
            except (LogDeviceError, TimeoutError) as error:
                self.cluster.note(self.client.name, "found no time", error)
            await self.rest(1 + self.rng.randrange(2 * interval))

    async def find_key(self) -> None:
        log = self.pick_log()
        history = self.run.histories[log]
        key = b"%d" % self.rng.randrange(1 + 3 * len(history.at))
        before = history.acknowledged_max[0]
        lsn = int(await self.client.client.find_key(log, key))
        self.cluster.note(self.client.name, "found key", (log, key, lsn))
        history.keys.append(KeyAnswer(self.name, key, lsn, before))

    async def look(self) -> None:
        """What holds of the answers at any time."""
        log = self.pick_log()
        history, client = self.run.histories[log], self.client.client
        if self.rng.random() < 0.5:
            before, is_readable = history.acknowledged_max[0], self.what_is_readable(log)
            head = await client.head(log)
            if head.trim_point > history.trim_asked:
                history.fail(f"{self.name} was told of the trim point {head.trim_point}; nobody asked for it")
            elif head.lsn is None and is_readable():
                history.fail(f"{self.name} was told that the log is empty; {before} was acknowledged")
            elif head.lsn is not None and head.lsn <= head.trim_point:
                history.fail(f"{self.name} was told that the log begins at {head.lsn}, trimmed to {head.trim_point}")
        else:
            when = self.rng.choice(list(history.timestamps.values()) or [1])
            near = int(await client.find_time(log, when, approximate=True))
            self.cluster.note(self.client.name, "found time about", (log, when, near))
            await client.data_size(log)

    def what_is_readable(self, log: LogId) -> Callable[[], bool]:
        """Whether something that is acknowledged by now can be read, whenever that is asked. Where more is destroyed than tolerated, nothing of it
        may be left: there it is the first record of which some shard has a sound copy, as long as that shard has it."""
        history, model = self.run.histories[log], self.run.invariants.logs[log]
        last = history.acknowledged_max[0]
        if not history.loses:
            return lambda: last > history.trim_asked
        for lsn in sorted(model.acknowledged):
            if history.trim_asked < lsn <= last and (copies := intact_copies(self.cluster, model, lsn)):
                return lambda: (
                    lsn > history.trim_asked and not copies.isdisjoint(intact_copies(self.cluster, model, lsn))
                )
        return lambda: False

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
