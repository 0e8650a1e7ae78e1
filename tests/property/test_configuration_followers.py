"""Nodes that follow and change one stored configuration while the epoch store refuses, loses answers and is put back, and nodes start again."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epoch_store.cells import CONFIGURATION, Cell
from epoch_store.interface import Operation, WriterIdentity
from epoch_store.memory import Fault, MemoryCells, MemoryEpochStore
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.core.ids import InstanceId, NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Micros
from server.configuration.change import change_configuration
from server.configuration.keeper import LOOK_EVERY, ConfigurationFile, ConfigurationKeeper, InForce

NODES = 3
FILE = load_cluster(
    """
version = 1
name = "test"
uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
epoch_store = "memory:"
[nodes.N0]
host = "h"
port = 1
[metadata_log]
replicate = "node:1"
"""
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["change", "change", "change with an old text", "look", "look", "restart", "put back"]),
        st.integers(0, NODES - 1),
        st.sampled_from([Fault.NONE, Fault.NONE, Fault.NONE, Fault.REFUSED, Fault.ANSWER_LOST, Fault.EXPIRED]),
    ),
    min_size=8,
    max_size=20,
)


class Cluster:
    """Nodes without anything else, and what they had in force."""

    def __init__(self, directory: Path) -> None:
        self.cells = MemoryCells()
        self.fault = Fault.NONE
        self.now = 0
        self.runs = 0
        self.directories = [directory / f"n{node}" for node in range(NODES)]
        for each in self.directories:
            each.mkdir()
        self.texts: dict[int, str] = {}
        """What each version says, whoever has it in force."""
        self.copy: Cell | None = None
        """The first state of the cell."""
        self.nodes: list[Any] = []
        self.nodes = [self.start(node, InForce(config=FILE)) for node in range(NODES)]

    def start(self, node: int, begin: InForce) -> Any:
        self.runs += 1
        store = MemoryEpochStore(
            self.cells,
            WriterIdentity(NodeId(node), InstanceId(self.runs)),
            asyncio.get_running_loop().call_soon,
            self._fault,
        )
        host = SimpleNamespace(
            configuration=ConfigurationKeeper(store.submit, ConfigurationFile(self.directories[node]), FILE, begin),
            config=begin.config,
            ask_epoch_store=store.submit,
            node=SimpleNamespace(rebuilding=None, gossip=SimpleNamespace(config_version=0)),
        )

        def use_stored(config: ClusterConfig) -> None:
            assert config.version > host.config.version, "a node goes back"
            self.see(config)
            host.config = config

        host.use_stored = use_stored
        return host

    def _fault(self, operation: Operation) -> Fault:
        return self.fault

    def see(self, config: ClusterConfig) -> None:
        text = render_cluster(config)
        assert self.texts.setdefault(config.version, text) == text, f"two versions {config.version}"

    def gossip(self) -> int:
        newest = max(host.config.version for host in self.nodes)
        for host in self.nodes:
            host.node.gossip.config_version = newest
        return newest

    async def step(self, what: str, node: int, fault: Fault) -> None:
        host = self.nodes[node]
        newest = self.gossip()
        self.now += LOOK_EVERY + SECOND
        self.fault = fault
        if what == "look":
            config = await host.configuration.look(Micros(self.now), newest)
            if config is not None:
                host.use_stored(config)
        elif what == "restart":
            kept = ConfigurationFile(self.directories[node]).read(FILE)
            assert host.configuration.in_force.is_stored == (kept is not None)
            begin = InForce(config=kept or FILE, is_stored=kept is not None)
            assert begin.config.version >= host.config.version, "a node forgets"
            self.nodes[node] = self.start(node, begin)
        elif what == "put back":
            cell = self.cells.cells.get(CONFIGURATION)
            if cell is not None and self.copy is not None:
                self.cells.cells[CONFIGURATION] = Cell(cell.version + 1, self.copy.content)
        else:
            base = newest if what == "change" else max(1, newest - 1)
            other = f"port = {2 + self.now // SECOND}"
            text = render_cluster(FILE).replace("version = 1", f"version = {base}").replace("port = 1", other)
            given = {"base": base, "text": text, "who": f"N{node}", "why": "", "accept_data_loss": "none", "dry_run": 0}
            refused: Status | None = None
            try:
                await change_configuration(host, given)
            except LogDeviceError as error:
                refused = error.status
            self.copy = self.copy or self.cells.cells.get(CONFIGURATION)
            assert refused in (None, Status.AGAIN, Status.TIMEDOUT, Status.STALE)
            assert refused is not None or base == newest, "it was made from a version that is not the newest"

    async def converges(self) -> None:
        self.fault = Fault.NONE
        newest = self.gossip()
        for host in self.nodes:
            self.now += LOOK_EVERY + SECOND
            config = await host.configuration.look(Micros(self.now), newest)
            if config is not None:
                host.use_stored(config)
            state = host.configuration.in_force
            stored = 0 if state.stored is None else state.stored.version
            assert host.config.version >= stored, "a node lacks what is stored"
            assert bool(host.configuration.trouble) == (state.is_stored and host.config.version > stored)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_versions_mean_one_text_nobody_goes_back_and_all_get_what_is_stored(
    steps: list[tuple[str, int, Fault]],
) -> None:
    async def run() -> None:
        with tempfile.TemporaryDirectory() as directory:
            cluster = Cluster(Path(directory))
            for step in steps:
                await cluster.step(*step)
            await cluster.converges()

    logging.getLogger("logdevice.node").setLevel(logging.CRITICAL)
    asyncio.run(run())
