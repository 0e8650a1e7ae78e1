"""Rows of the tables of a node as a whole, and of what the epoch store says."""

from __future__ import annotations

import dataclasses
import os
import platform
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import metadata as packages
from typing import TYPE_CHECKING, Any, Final

from client.log_tree.settings import LogTreeSettings
from client.maintenance.settings import MaintenanceSettings
from client.read.settings import ReadSettings
from client.settings import ClientSettings, WriterSettings
from epoch_store.interface import LastCleanEpoch, Result
from logdevice_py.config.admin import AdminSettings, format_address
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.security import SecuritySettings
from logdevice_py.core.declare import declarations, render_value, settings_from
from logdevice_py.core.histogram import Histogram
from logdevice_py.core.ids import LogId, format_peer, format_shard, shard_id
from logdevice_py.core.lsn import Epoch
from logdevice_py.core.status import Status
from logdevice_py.event_log.settings import RebuildingSettings
from logdevice_py.membership.settings import MembershipSettings
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData
from logdevice_py.placement.failure_domains import labelled_scopes
from logdevice_py.placement.settings import PlacementSettings
from logdevice_py.protocol.messages import PROTOCOL_VERSION_MAX, PROTOCOL_VERSION_MIN
from logdevice_py.runtime.append_trace import AppendTrace
from logdevice_py.runtime.clock import monotonic_us, wall_us
from logdevice_py.runtime.metric_source import MetricSource
from logdevice_py.runtime.transport import Transport
from logdevice_py.shell.settings import RuntimeSettings
from logdevice_py.tables.cluster import (
    AppendTraceRow,
    ClusterStateRow,
    ConfigurationHistoryRow,
    ConfigurationRow,
    EpochStoreRow,
    HistoricalMetadataRow,
    InfoRow,
    SettingsRow,
    SocketsRow,
    StatsRow,
)
from sequencer.recovery.settings import RecoverySettings
from sequencer.settings import SequencerSettings
from server.live_sections import is_live
from server.live_settings import LiveSettings
from server.node import Node
from server.open_files import open_files, open_files_limit
from storage_node.log_store.settings import LogStoreSettings
from storage_node.settings import StorageSettings

if TYPE_CHECKING:
    from server.node_view import AdminView

SETTINGS: Final[list[tuple[str, str, str, type[Any]]]] = [
    ("settings.sequencer", "", "Sequencers", SequencerSettings),
    ("settings.recovery", "", "Epoch recovery", RecoverySettings),
    ("settings.storage", "", "Storage nodes: protocol", StorageSettings),
    ("settings.storage", "", "Storage nodes: disk", LogStoreSettings),
    ("settings.client", "", "Clients", ClientSettings),
    ("settings.client", "writer_", "BufferedWriter", WriterSettings),
    ("settings.client", "read_", "Readers", ReadSettings),
    ("settings.membership", "", "Failure detection", MembershipSettings),
    ("settings.runtime", "", "Connections", RuntimeSettings),
    ("settings.admin", "", "Admin API", AdminSettings),
    ("settings.rebuilding", "", "Rebuilding", RebuildingSettings),
    ("settings.log_tree", "", "Log tree", LogTreeSettings),
    ("settings.maintenance", "", "Maintenances", MaintenanceSettings),
    ("settings.placement", "", "Placement", PlacementSettings),
    ("settings.security", "", "Security", SecuritySettings),
]
"""Section of the cluster file, prefix of the names in it, title, declaration."""


@lru_cache(1)
def _version() -> str:
    """Of the installed program; empty when it runs without being installed."""
    try:
        return packages.version("logdevice-py")
    except packages.PackageNotFoundError:
        return ""


def info_rows(host: AdminView) -> Iterator[InfoRow]:
    """Table `info`."""
    now, sequencer, rebuilding = wall_us(), host.node.sequencer, host.node.rebuilding
    yield InfoRow(
        cluster=host.config.name,
        pid=os.getpid(),
        version=_version(),
        python=platform.python_version(),
        instance=str(host.instance),
        start_time=host.serving_since,
        uptime_seconds=max(0, now - host.serving_since) / 1e6,
        config_version=host.config.version,
        protocol_min=PROTOCOL_VERSION_MIN,
        protocol_max=PROTOCOL_VERSION_MAX,
        roles=", ".join(str(role.name).lower() for role in host.config.nodes[host.node_id].roles)
        if host.node_id in host.config.nodes
        else "",
        certificate_expires=host.transport.metrics.certificate_expiry or None,
        readiness=host.readiness().name,
        copies_reviewed=int(host.copy_review.done),
        departures_handled=int(sequencer is None or sequencer.idle_logs.departures_handled),
        logs_leaving_departed_shards=0 if sequencer is None else len(sequencer.idle_logs.waiting()),
        configuration_trouble=host.configuration.trouble,
        duties="; ".join(host.duties()),
        keeps_event_log=int(rebuilding is not None),
        rebuilding_awaits="" if rebuilding is None else "; ".join(rebuilding.explain(monotonic_us())),
        open_files=open_files(),
        open_files_max=open_files_limit(),
    )


def configuration_rows(host: AdminView) -> Iterator[ConfigurationRow]:
    """Table `configuration`."""
    state = host.configuration.in_force
    yield ConfigurationRow(
        version=host.config.version,
        source="epoch store" if state.is_stored else "cluster file",
        newest_known=max(host.node.gossip.config_version, host.config.version),
        stored_version=None if state.stored is None else state.stored.version,
        read_time=state.read_at or None,
        trouble=host.configuration.trouble,
    )


def configuration_history_rows(host: AdminView) -> Iterator[ConfigurationHistoryRow]:
    """Table `configuration_history`."""
    for each in host.configuration.rows():
        in_force = int(each.version == host.config.version)
        yield ConfigurationHistoryRow(each.version, each.when or None, each.who, each.why, in_force, each.text)


def settings_rows(live: LiveSettings) -> Iterator[SettingsRow]:
    """Table `settings`: those that nodes use, not those of clients."""
    for section, prefix, _, cls in SETTINGS:
        raw = live.raw(section)
        if section == "settings.client":
            continue
        names = {field.name for field in dataclasses.fields(cls)}
        # two declarations may share a section
        values = settings_from(cls, {name: value for name, value in raw.items() if name in names})
        for field in dataclasses.fields(cls):
            unit = field.metadata["unit"]
            yield SettingsRow(
                section=section,
                name=prefix + field.name,
                current_value=render_value(unit, getattr(values, field.name)),
                default_value=render_value(unit, field.default),
                from_config=int(field.name in raw and not live.is_changed(section, field.name)),
                from_operator=int(live.is_changed(section, field.name)),
                is_live=int(is_live(section, field.name)),
                doc=field.metadata["doc"],
            )


def cluster_state_rows(node: Node, config: ClusterConfig) -> Iterator[ClusterStateRow]:
    """Table `cluster_state`."""
    gossip = node.gossip
    for other, member in config.nodes.items():
        instance = gossip.instance(other)
        generations = [gossip.generation(shard_id(other, index)) for index in range(len(member.shard_ids()))]
        yield ClusterStateRow(
            observed_node_id=other,
            state=gossip.state(other).name,
            instance=str(instance) if instance else "",
            generations=", ".join(str(generation) if generation else "?" for generation in generations),
        )


def sockets_rows(transport: Transport) -> Iterator[SocketsRow]:
    """Table `sockets`."""
    for state in transport.connections():
        address = state.address
        yield SocketsRow(
            peer="" if state.peer is None else format_peer(state.peer),
            address="" if not address else format_address(address[0], address[1]),
            direction="out" if state.dialled else "in",
            state="up" if state.up else "connecting",
            pending_bytes=state.pending_bytes,
            is_paused=int(state.reading_paused),
        )


def append_trace_rows(trace: AppendTrace | None) -> Iterator[AppendTraceRow]:
    """Table `append_trace`: what is there at the first look."""
    for each in () if trace is None else list(trace.instants):
        yield AppendTraceRow(
            at_ns=each.at_ns,
            event=each.event.name,
            log_id=each.log,
            lsn=each.lsn,
            peer=format_peer(each.peer) if each.peer is not None else None,
            copy=format_shard(each.shard) if each.shard is not None else None,
            wave=each.wave,
            request_id=each.request_id,
            batch_offset=each.batch_offset,
            took_ns=each.took_ns,
        )


def stats_rows(sources: Iterable[MetricSource]) -> Iterator[StatsRow]:
    """Table `stats`."""
    for source in sources:
        for metric in declarations(type(source.metrics)):
            value = getattr(source.metrics, metric.name)
            yield StatsRow(
                section=source.section,
                shard=source.shard,
                name=metric.name,
                kind=metric.kind,
                unit="samples" if isinstance(value, Histogram) else metric.unit,
                value=sum(value.counts) if isinstance(value, Histogram) else value,
            )


def epoch_store_row(log: LogId, read: Result, clean: LastCleanEpoch | None) -> EpochStoreRow:
    """A row of table `epoch_store`."""
    metadata = read.value if isinstance(read.value, EpochMetaData) else None
    tail = None if clean is None else clean.tail
    return EpochStoreRow(
        log_id=log,
        status=read.status.name,
        epoch=None if metadata is None else metadata.epoch,
        since=None if metadata is None else metadata.effective_since,
        replication=None if metadata is None else str(metadata.current.replication),
        storage_set_size=None if metadata is None else len(metadata.current.nodeset),
        storage_set=None if metadata is None else _nodeset(metadata.current),
        metadata_log_written=None if metadata is None else int(metadata.written),
        disabled=None if metadata is None else int(metadata.disabled),
        written_by=None if metadata is None or metadata.writer < 0 else metadata.writer,
        epoch_given_at=None if metadata is None else metadata.epoch_given_at or None,
        lce=None if clean is None else clean.epoch,
        tail_lsn=None if tail is None else tail.lsn,
        tail_time=None if tail is None else tail.timestamp,
        version=None if metadata is None else read.version,
    )


def historical_metadata_rows(
    log: LogId, status: Status, metadata: EpochMetaData | None
) -> Iterator[HistoricalMetadataRow]:
    """Rows of table `historical_metadata`."""
    if metadata is None:
        yield HistoricalMetadataRow(log, status.name, None, None, None, None, None, None, None)
        return
    history = metadata.history
    for position, interval in enumerate(history):
        last = position + 1 == len(history)
        yield HistoricalMetadataRow(
            log_id=log,
            status=status.name,
            since=interval.since,
            epoch=metadata.given_epoch if last else Epoch(history[position + 1].since - 1),
            replication=str(interval.replication),
            storage_set_size=len(interval.nodeset),
            storage_set=_nodeset(interval),
            failure_domains=_failure_domains(interval),
            extra_copies=interval.extra_copies,
        )


def _failure_domains(interval: EpochInterval) -> str | None:
    if interval.labels is None:
        return None
    parts = []
    for scope, level in zip(labelled_scopes(interval.replication), interval.labels, strict=True):
        domains: dict[int, list[str]] = {}
        for shard, label in zip(sorted(interval.shards), level, strict=True):
            domains.setdefault(label, []).append(format_shard(shard))
        parts.append(f"{scope.name.lower()}={'|'.join(map(' '.join, domains.values()))}")
    return ", ".join(parts)


def _nodeset(interval: EpochInterval) -> str:
    return ", ".join(f"{format_shard(shard)}={generation}" for shard, generation in interval.nodeset)
