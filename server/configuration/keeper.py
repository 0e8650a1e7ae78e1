"""The stored configuration of a node that runs: reads it from the epoch store, keeps it on the node's disk, and says once what is wrong."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from epoch_store.interface import Operation, ReadConfiguration, Result
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.config.stored import ConfigurationVersion, StoredConfiguration
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Micros, Timestamp
from logdevice_py.runtime.clock import wall_us
from logdevice_py.runtime.durable_file import write_durably
from server.cluster_file import REMINDER, read_cluster_file

log = logging.getLogger("logdevice.node")

KEPT: Final = "configuration.toml"
"""The file in a node's data directory that holds the stored configuration in force."""
LOOK_EVERY: Final = 5 * SECOND
"""How often a node reads the stored configuration that nobody told of."""
LOOK_APART: Final = SECOND // 4
"""Between two reads, however much is told."""
Ask = Callable[[Sequence[Operation], Callable[[list[Result]], None]], None]


def parse_stored(text: str, cluster: ClusterConfig, where: str) -> ClusterConfig:
    """A configuration of the cluster that a file names.

    Raises:
        LogDeviceError: INVALID_CONFIG: it cannot be read; INVALID_CLUSTER: it is another cluster's.
    """
    try:
        config = load_cluster(text)
    except LogDeviceError as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"{where}: {error.detail}") from None
    if config.uuid != cluster.uuid:
        raise LogDeviceError(
            Status.INVALID_CLUSTER,
            f'{where} is of the cluster "{config.name}", {config.uuid.hex()}, the cluster file of {cluster.uuid.hex()}',
        )
    return config


class KeptConfiguration(Protocol):
    """Where a node keeps the stored configuration in force, so that it knows it when it starts again."""

    def write(self, text: str) -> None:
        """Replace what is kept; it is durable when this returns.

        Raises:
            OSError: it cannot be.
        """

    def read(self, cluster: ClusterConfig) -> ClusterConfig | None:
        """What the node kept; None: nothing, or nothing that can be read."""


class ConfigurationFile:
    """A file in the node's data directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / KEPT

    def write(self, text: str) -> None:
        """See `KeptConfiguration.write`."""
        try:
            write_durably(self._path, text, alone=True)
        except OSError as error:
            raise OSError(error.errno, f"{self._path} cannot be written ({error.strerror})") from None

    def read(self, cluster: ClusterConfig) -> ClusterConfig | None:
        """See `KeptConfiguration.read`."""
        try:
            return parse_stored(self._path.read_text(), cluster, str(self._path))
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, LogDeviceError) as error:
            log.error("the configuration that was kept is not used: %s", error)
            return None


async def ask_epoch_store(ask: Ask, operation: Operation) -> Result:
    """The result of one operation."""
    answered: asyncio.Future[list[Result]] = asyncio.get_running_loop().create_future()
    ask([operation], partial(_resolve, answered))
    return (await answered)[0]


def _resolve(answered: asyncio.Future[list[Result]], results: list[Result]) -> None:
    if not answered.done():
        answered.set_result(results)


@dataclass(slots=True, kw_only=True)
class InForce:
    """Which configuration a node uses, and where it is from."""

    config: ClusterConfig
    is_stored: bool = False
    """It is one that was stored; else it is the cluster file's."""
    stored: StoredConfiguration | None = None
    """What the epoch store was last known to hold."""
    read_at: Timestamp = field(default=Timestamp(0))
    """When the epoch store last answered; 0: it did not."""


class ConfigurationKeeper:
    """Follows the stored configuration. What cannot be used changes nothing: the version before it stays in force."""

    def __init__(
        self,
        ask: Ask,
        kept: KeptConfiguration,
        file: ClusterConfig,
        begin: InForce,
        wall: Callable[[], Timestamp] = wall_us,
    ) -> None:
        """
        Args:
            ask: runs operations of the epoch store.
            kept: where what is in force is kept.
            file: what the cluster file said when the node was started.
            begin: what the node was started with.
            wall: the wall clock.
        """
        self.wall = wall
        self.in_force = begin
        self._ask = ask
        self._kept = kept
        self._file = file
        self._file_seen = 0
        self._file_trouble = ""
        self._looked_at = Micros(-LOOK_EVERY)
        self._said = ""
        self._text_in_force = ""
        """A stored text that is known to say what is in force."""
        self._remind_at = Micros(0)
        self.trouble = self._judge()
        """What somebody should see to; empty: nothing."""

    async def keep_first(self) -> None:
        """Keep what the node begins with, if it was stored."""
        state = self.in_force
        if state.is_stored and state.stored is not None and state.stored.version == state.config.version:
            await self.use(state.config, state.stored.current.text)

    async def follow(
        self, now: Callable[[], Micros], told: Callable[[], int], use: Callable[[ClusterConfig], None]
    ) -> None:
        """Look again and again, for as long as the node runs.

        Args:
            now: the monotonic clock.
            told: the greatest version that somebody has.
            use: gets each later version.
        """
        while True:
            await asyncio.sleep(LOOK_APART / 1e6)
            config = await self.look(now(), told())
            if config is not None:
                use(config)

    async def look(self, now: Micros, told: int = 0) -> ClusterConfig | None:
        """The stored version that is newer than the one in force, once it is on the disk of the node; None: there is none, or it is too early to look again.

        Args:
            now: monotonic.
            told: a version that somebody has.
        """
        apart = LOOK_APART if told > self.in_force.config.version else LOOK_EVERY
        if now < self._looked_at + apart:
            return None
        self._looked_at = now
        result = await self.read()
        if result.status not in (Status.OK, Status.EMPTY):
            self._say(
                f"the epoch store does not tell the configuration: {result.status.name} {result.detail}".strip(), now
            )
            return None
        stored = self.in_force.stored
        if stored is None or stored.version <= self.in_force.config.version:
            self._say(self._judge(), now)
            return None
        try:
            config = parse_stored(stored.current.text, self._file, f"version {stored.version} in the epoch store")
        except LogDeviceError as error:
            self._say(error.detail, now)
            return None
        await self.use(config, stored.current.text)
        self._say(self._judge(), now)
        return config

    async def read(self) -> Result:
        """What the epoch store holds at this moment. Value: `StoredConfiguration`."""
        result = await ask_epoch_store(self._ask, ReadConfiguration())
        if result.status in (Status.OK, Status.EMPTY):
            self.in_force.read_at = self.wall()
            self.in_force.stored = result.value if isinstance(result.value, StoredConfiguration) else None
        return result

    async def use(self, config: ClusterConfig, text: str) -> None:
        """A stored version comes into force: it is kept first."""
        try:
            await asyncio.to_thread(self._kept.write, text)
        except OSError as error:
            log.error(
                "%s: should the epoch store be away when the node starts again, it does not know this configuration",
                error.strerror,
            )
        self.in_force.config = config
        self.in_force.is_stored = True

    def look_at_file(self, path: Path) -> None:
        """Somebody may have edited the cluster file, as before there was a stored configuration."""
        try:
            seen = path.stat().st_mtime_ns
            if seen == self._file_seen:
                return
            self._file_seen = seen
            version = read_cluster_file(path).version
        except (OSError, LogDeviceError):
            return  # it is not needed
        self._file_trouble = ""
        if version > self.in_force.config.version:
            self._file_trouble = (
                f"{path} has version {version}, and is not used: this cluster is configured in its epoch store (version "
                f"{self.in_force.config.version}). Put version {self.in_force.config.version} back into the file and use ldctl config apply"
            )

    def rows(self) -> list[ConfigurationVersion]:
        """The versions that the node knows, the oldest first; the cluster file's alone where there is no other."""
        state = self.in_force
        versions = [] if state.stored is None else list(state.stored.versions)
        if all(each.version != state.config.version for each in versions):
            why = "kept by a node" if state.is_stored else "cluster file"
            text = render_cluster(state.config)
            versions.append(ConfigurationVersion(state.config.version, Timestamp(0), "", why, text))
        return sorted(versions, key=lambda each: each.version)

    def _judge(self) -> str:
        """What is wrong between what is in force and what is stored."""
        state = self.in_force
        if not state.is_stored:
            return ""
        stored = 0 if state.stored is None else state.stored.version
        if stored < state.config.version and state.read_at:
            has = f"has version {stored}" if stored else "has no configuration"
            return (
                f"the epoch store {has}, older than version {state.config.version} which is in force: was it restored from a copy? "
                "ldctl config show > FILE, then ldctl config apply FILE stores it again"
            )
        if self._is_another():
            return (
                f"the epoch store has another version {stored} than this node uses: it was restored from a copy, and changed while nobody heard this node. "
                "ldctl config show > FILE, then ldctl config apply FILE makes a version for all"
            )
        return self._file_trouble

    def _is_another(self) -> bool:
        """What is stored has the version in force, and says something else."""
        state = self.in_force
        if state.stored is None or state.stored.version != state.config.version:
            return False
        text = state.stored.current.text
        if text == self._text_in_force:
            return False
        try:
            if load_cluster(text) != state.config:
                return True
        except LogDeviceError:
            return True  # what is in force can be read
        self._text_in_force = text
        return False

    def _say(self, trouble: str, now: Micros) -> None:
        self.trouble = trouble
        if trouble == self._said and now < self._remind_at:
            return
        self._said, self._remind_at = trouble, Micros(now + REMINDER)
        if trouble:
            log.error("configuration version %d stays in force: %s", self.in_force.config.version, trouble)
