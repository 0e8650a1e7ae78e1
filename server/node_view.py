"""What those who look at a running node, or act on it, need of it: `server/host.py` gives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from epoch_store.interface import Operation, Result
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import InstanceId, NodeId, ShardId
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.runtime.append_trace import AppendTrace
from logdevice_py.runtime.driver import Driver
from logdevice_py.runtime.metric_source import MetricSource
from logdevice_py.runtime.transport import Transport
from server.configuration.keeper import ConfigurationKeeper
from server.live_settings import LiveSettings
from server.node import Node
from storage_node.service import ShardService


class NodeView(Protocol):
    """A node that runs."""

    config: ClusterConfig
    shards: dict[ShardId, ShardService]
    driver: Driver
    node: Node

    def event(self, handler: Callable[[Micros], None]) -> None:
        """Have the node's machines do something at this moment."""

    def ask_epoch_store(self, operations: Sequence[Operation], done: Callable[[list[Result]], None]) -> None:
        """Run operations that no machine asked for."""


class CopyReviewView(Protocol):
    """Which logs of the node are short of copies."""

    @property
    def done(self) -> bool:
        """All was looked at."""

    def rows(self) -> Iterable[Any]:
        """Of the table of logs that are short of copies."""


class AdminView(NodeView, Protocol):
    """A node, for its admin API."""

    path: Path
    node_id: NodeId
    instance: InstanceId
    serving_since: Timestamp
    transport: Transport
    trace: AppendTrace | None
    store_directories: dict[ShardId, str]
    live_settings: LiveSettings
    stop_wanted: asyncio.Future[None]
    configuration: ConfigurationKeeper
    duties: Callable[[], list[str]]
    """What the node sees to for the cluster."""

    def use_stored(self, config: ClusterConfig) -> None:
        """A stored configuration came into force."""

    @property
    def copy_review(self) -> CopyReviewView:
        """Which of its logs are short of copies."""

    @property
    def is_open(self) -> bool:
        """There is something to look at."""

    def readiness(self) -> Status:
        """OK when the node takes requests."""

    def health(self) -> Mapping[str, Any]:
        """What whoever watches the node may want to know."""

    def metric_sources(self) -> list[MetricSource]:
        """Everything that counts."""

    async def note_action(self, who: str, origin: str, what: str, given: Mapping[str, Any], outcome: str) -> None:
        """Write into the audit log what is asked for, or what became of it."""

    def note_refusal(self, who: str, origin: str, what: str) -> None:
        """Write into the audit log that somebody asked for what he may not have. who: empty when he proves nothing."""

    async def drain(self) -> bool:
        """Sequence nothing any more."""


class AdminApi(Protocol):
    """The admin API, for the node that it belongs to."""

    metrics: Any

    def use_settings(self, settings: Any) -> None:
        """Settings changed."""

    def process_metrics(self) -> Any:
        """Of the process."""

    def tell(self) -> None:
        """Say in the log what operators may miss, once the node serves."""

    async def close(self) -> None:
        """Stop."""
