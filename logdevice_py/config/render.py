"""`ClusterConfig` to TOML that `load_cluster` reads back to an equal one."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from logdevice_py.config.attributes import render_attribute
from logdevice_py.config.cluster import ClusterConfig, NodeConfig, Roles, ShardState, default_metadata_nodeset
from logdevice_py.config.location import NOWHERE
from logdevice_py.config.table import key_path, quote
from logdevice_py.core.declare import render_value
from logdevice_py.core.ids import node_of


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, (int, float)):
        return repr(value)
    assert isinstance(value, list), value
    return "[" + ", ".join(map(_value, value)) + "]"


def _table(header: str, values: Mapping[str, Any]) -> str:
    lines = [f"[{header}]"] if header else []
    lines += [f"{key_path('', key)} = {_value(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"


def _uuid(raw: bytes) -> str:
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def render_node(node: NodeConfig) -> dict[str, Any]:
    """The values of a node's table, by key."""
    values: dict[str, Any] = {"host": node.host, "port": node.port}
    values["roles"] = [role.name.lower() for role in Roles if role in node.roles and role.name is not None]
    if node.location != NOWHERE:
        values["location"] = str(node.location)
    if node.shards != 1:
        values["shards"] = node.shards
    if node.sequencer_weight != 1.0:
        values["sequencer_weight"] = node.sequencer_weight
    if node.storage_capacity != 1.0:
        values["storage_capacity"] = node.storage_capacity
    if node.shard_state is not ShardState.READ_WRITE:
        values["state"] = node.shard_state.value
    if node.data_dir is not None:
        values["data_dir"] = node.data_dir
    if node.admin_port is not None:
        values["admin_port"] = node.admin_port
    return values


def _attributes(overrides: Mapping[str, Any]) -> dict[str, Any]:
    return dict(render_attribute(name, value) for name, value in overrides.items())


def _set(settings: Any) -> dict[str, Any]:
    """What is not at its default, in a dataclass of settings."""
    values: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value, unit = getattr(settings, field.name), field.metadata["unit"]
        if value != field.default:
            values[field.name] = render_value(unit, value) if unit in ("us", "bytes") else value
    return values


def render_cluster(config: ClusterConfig) -> str:
    """The file of a cluster. What stands at its default is left out."""
    top = {
        "version": config.version,
        "name": config.name,
        "uuid": _uuid(config.uuid),
        "epoch_store": config.epoch_store,
    }
    metadata: dict[str, Any] = {"replicate": str(config.metadata_log.replication)}
    if config.metadata_log.nodeset != default_metadata_nodeset(config.nodes):
        metadata["nodeset"] = [int(node_of(shard)) for shard in config.metadata_log.nodeset]
    parts = [_table("", top)]
    parts += [_table(f"nodes.N{node.node}", render_node(node)) for node in config.nodes.values()]
    parts.append(_table("metadata_log", metadata))
    parts += [_table(f"settings.{name}", values) for name, values in config.settings.items()]
    parts.append(_table("defaults", _attributes(config.logs.defaults)))
    for path, overrides in config.logs.directories.items():
        parts.append(_table(key_path("logs", path), _attributes(overrides)))
    for group in config.logs.groups:
        ids: Any = int(group.lo) if group.lo == group.hi else f"{group.lo}..{group.hi}"
        parts.append(_table(key_path("logs", group.path), {"ids": ids, **_attributes(group.overrides)}))
    parts += [_table(key_path("quotas", name), _set(quota)) for name, quota in config.quotas.items()]
    return "\n".join(parts)
