"""What all machines of a simulated cluster share."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from client.read.settings import ReadSettings
from client.settings import ClientSettings
from epoch_store.interface import Operation, Result
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.config.security import parse_security
from logdevice_py.core.principal import Principal
from logdevice_py.shell.proof import PeerProof
from logdevice_py.simulation.network import Network, NetworkSettings
from logdevice_py.simulation.scheduler import Scheduler
from logdevice_py.simulation.trace import Trace
from server.node_settings import NodeSettings
from server.simulation.epoch_store import EpochStoreWeather, SimCells
from storage_node.log_store.interface import Completion


class SimWorld:
    """Time, chance, network, epoch store and configuration of one run, and who watches it."""

    def __init__(
        self,
        config: ClusterConfig,
        seed: int,
        *,
        network: NetworkSettings | None = None,
        client_settings: ClientSettings | None = None,
        read_settings: ReadSettings | None = None,
        trace: Trace | None = None,
        turn_max: int = 50,
        checks: bool = True,
        disk_bytes: int = 1 << 40,
        store: str | None = None,
        scheduler: Scheduler | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """
        Args:
            seed: of everything that is left to chance.
            turn_max: a turn of a process ends up to so many microseconds after its first event.
            checks: let every root assert after each turn what must hold.
            disk_bytes: of the file system of each shard.
            store: what shards are stored in, as of `LogStoreSettings`; None: as the cluster file says.
            scheduler: virtual time that others use, too.
            loop: runs what nodes do about a stored configuration, in that time; None: the cluster file holds, and nobody stores one.
        """
        self.loop = loop
        self.file = config
        """What the cluster file says; `config` is the newest version that is in force anywhere."""
        self.config = config
        self.rng = random.Random(seed)
        self.scheduler = scheduler or Scheduler()
        self.trace = trace or Trace()
        self.trace.watch(self.scheduler)
        self.fault_effects: Counter[str] = Counter()
        """For each kind of fault, how often it did something to somebody."""
        self.network = Network(
            self.scheduler, random.Random(self.rng.getrandbits(64)), network or NetworkSettings(), self.fault_effects
        )
        self.security = parse_security(config.settings)
        if self.security.proves_nodes:
            self.network.stranger = PeerProof(encrypted=True)
            for node in config.nodes:
                self.network.proofs[node] = PeerProof(encrypted=True, node=node, cluster_uuid=config.uuid)
        self.cells = SimCells()
        self.weather = EpochStoreWeather()
        self.client_settings = client_settings or ClientSettings()
        self.read_settings = read_settings or ReadSettings()
        self.turn_max = turn_max
        self.checks = checks
        self.disk_bytes = disk_bytes
        self.store = store or NodeSettings.of(config.settings).log_store.store
        self.client_location: Callable[[int], Location | None] = lambda address: None
        """Where the client of an address stands; None: nobody knows."""
        self.client_principal: Principal | None = None
        """Whom clients of the run prove to be."""
        self.watch: Callable[[Any, list[Any]], None] | None = None
        """Sees the effects of every turn of every node before they are run."""
        self.watch_done: Callable[[Any, list[Completion]], None] | None = None
        """Sees the outcomes of what a node asked of its disks, before the node does."""
        self.watch_epoch_store: Callable[[Any, Sequence[Operation], list[Result]], None] | None = None
        """Sees the outcomes of what a node asked of the epoch store, before the node does."""
        self.watchers: list[Callable[[Any, list[Any]], None]] = []
        """See the same after `watch`, and may take themselves out; what they cause must not happen before the turn has ended."""
        self._populate()

    def _populate(self) -> None:
        """Make the machines, when all that they share is there."""

    def certify_client(self, address: int, principal: Principal | None) -> None:
        """The process at an address has a certificate of a principal; None: it has none."""
        if principal is not None:
            self.network.proofs[address] = PeerProof(encrypted=True, principal=principal)

    def note(self, who: str, what: str, detail: Any = "") -> None:
        """Put a line into the trace."""
        self.trace.note(self.scheduler.now, who, what, detail)
