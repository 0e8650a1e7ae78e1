"""Rows of the tables that follow from the cluster file alone."""

from __future__ import annotations

from collections.abc import Iterator

from logdevice_py.config.admin import admin_endpoint, format_address
from logdevice_py.config.cluster import ClusterConfig, Roles
from logdevice_py.core.ids import node_of
from logdevice_py.tables.cluster import LogGroupsRow, NodesRow


def nodes_rows(config: ClusterConfig) -> Iterator[NodesRow]:
    """Table `nodes`."""
    metadata_nodes = {node_of(shard) for shard in config.metadata_log.nodeset}
    for node, member in config.nodes.items():
        endpoint = admin_endpoint(config, member)
        yield NodesRow(
            node_id=node,
            address=format_address(member.host, member.port),
            admin_address=None if endpoint is None else format_address(endpoint.host, endpoint.port),
            location=str(member.location),
            sequencer=int(Roles.SEQUENCER in member.roles),
            storage=int(Roles.STORAGE in member.roles),
            sequencer_weight=member.sequencer_weight,
            storage_state=member.shard_state.value,
            storage_capacity=member.storage_capacity,
            num_shards=len(member.shard_ids()),
            is_metadata_node=int(node in metadata_nodes),
        )


def log_groups_rows(config: ClusterConfig) -> Iterator[LogGroupsRow]:
    """Table `log_groups`."""
    for group in config.logs.groups:
        attributes = group.attributes
        yield LogGroupsRow(
            name=group.path,
            logid_lo=group.lo,
            logid_hi=group.hi,
            replication=str(attributes.replication),
            durability=attributes.durability.name.lower(),
            nodeset_size=attributes.nodeset_size,
            max_writes_in_flight=attributes.max_writes_in_flight,
            window_bytes=attributes.window_bytes,
            sequencer_batching=int(attributes.sequencer_batching),
            single_copy_delivery=int(attributes.single_copy_delivery),
            backlog_us=attributes.backlog_us,
        )
