"""The stored configuration of a simulated node: what `NodeHost` does with it, on a simulated disk and epoch store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from epoch_store.interface import EpochStore, Operation, Result
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros
from logdevice_py.simulation.clock import SimClock
from server.configuration.begin import begin_with, read_stored
from server.configuration.change import change_configuration
from server.configuration.keeper import ConfigurationKeeper, parse_stored
from server.node import Node


class SimKeptConfiguration:
    """What a node keeps of the configuration, on its disk."""

    def __init__(self) -> None:
        self.text: str | None = None

    def write(self, text: str) -> None:
        """See `KeptConfiguration.write`."""
        self.text = text

    def read(self, cluster: ClusterConfig) -> ClusterConfig | None:
        """See `KeptConfiguration.read`."""
        return None if self.text is None else parse_stored(self.text, cluster, "the disk")


class SimConfiguration:
    """One run of a node: what it begins with, what it follows, and changes that it is asked for."""

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        store: EpochStore,
        kept: SimKeptConfiguration,
        file: ClusterConfig,
        clock: SimClock,
    ) -> None:
        """
        Args:
            name: of the node.
            store: its access to the epoch store.
            kept: what it keeps on its disk.
            file: what its cluster file says.
            clock: its clocks.
        """
        self.name = name
        self.config = file
        """The version in force."""
        self.configuration: ConfigurationKeeper
        """Made by `begin`."""
        self.node: Node
        """Its root, once it serves."""
        self._loop = loop
        self._store = store
        self._kept = kept
        self._file = file
        self._clock = clock
        self._ended = False
        self._event: Callable[[Callable[[Micros], None]], None]
        self._use: Callable[[ClusterConfig], None]
        self._task: asyncio.Task[None] | None = None

    def begin(self, ready: Callable[[], None], failed: Callable[[LogDeviceError], None]) -> None:
        """Find what the node begins with, then call `ready`; or `failed`, when it cannot start."""

        async def begin() -> None:
            file, kept = self._file, self._kept.read(self._file)
            try:
                begun = begin_with(file, kept, await self._read(wait=kept is None), self._clock.wall)
            except LogDeviceError as error:
                failed(error)
                return
            self.configuration = ConfigurationKeeper(self.ask_epoch_store, self._kept, file, begun, self._clock.wall)
            await self.configuration.keep_first()
            self.config = begun.config
            ready()

        self._task = self._loop.create_task(begin(), name=f"{self.name} configuration")

    def follow(
        self, root: Node, event: Callable[[Callable[[Micros], None]], None], use: Callable[[ClusterConfig], None]
    ) -> None:
        """The node serves: follow what is stored. `event` hands something to its machines; `use` gets each later version."""
        self.node, self._event, self._use = root, event, use
        following = self.configuration.follow(
            self._clock.monotonic, lambda: self.node.gossip.config_version, self.use_stored
        )
        self._task = self._loop.create_task(following, name=f"{self.name} configuration")

    async def change(self, text: str, who: str, why: str) -> int:
        """Have the node store the next version, as an operator does; that version.

        Raises:
            LogDeviceError: as `change_configuration`.
        """
        base = parse_stored(text, self._file, "the wanted text").version
        given = {"base": base, "text": text, "who": who, "why": why, "accept_data_loss": "none", "dry_run": 0}
        return int((await change_configuration(self, given))["version"])

    def end(self) -> None:
        """The process is gone: nothing of it runs any more."""
        self._ended = True
        if self._task is not None:
            self._task.cancel()

    async def _read(self, *, wait: bool) -> Result:
        return await read_stored(self.ask_epoch_store, "of the run", wait=wait)

    # What the node is to a change

    def event(self, handler: Callable[[Micros], None]) -> None:
        """Have the node's machines do something at this moment."""
        if not self._ended:
            self._event(handler)

    def ask_epoch_store(self, operations: Sequence[Operation], done: Callable[[list[Result]], None]) -> None:
        """Run operations of the epoch store."""

        def answered(results: list[Result]) -> None:
            ended = [Result(Status.SHUTDOWN, maybe_applied=True)] * len(results)
            done(ended if self._ended else results)

        self._store.submit(operations, answered)

    def use_stored(self, config: ClusterConfig) -> None:
        """A stored configuration came into force, which the node keeps."""
        if config.version > self.config.version and not self._ended:
            self.config = config
            self._use(config)
