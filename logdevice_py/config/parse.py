"""The cluster file: TOML to `ClusterConfig`. Every error is INVALID_CONFIG and begins with the key that it is about."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from collections.abc import Mapping
from typing import Any, Final

from logdevice_py.config.attributes import ATTRIBUTES, attribute_key, parse_attribute
from logdevice_py.config.cluster import (
    SETTINGS_SECTIONS,
    ClusterConfig,
    MetadataLogConfig,
    NodeConfig,
    Roles,
    ShardState,
    default_metadata_nodeset,
)
from logdevice_py.config.location import NOWHERE, Location
from logdevice_py.config.logs import LogTree, parse_ids
from logdevice_py.config.quotas import PrincipalQuota, parse_principal_quota
from logdevice_py.config.render import render_cluster
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.config.table import Table, describe, invalid, key_path
from logdevice_py.config.validate import validate_cluster
from logdevice_py.core.ids import NODE_ID_MAX, SHARD_INDEX_MAX, USER_LOG_ID_MAX, NodeId, ShardId, shard_id
from logdevice_py.core.suggestion import suggestion

__all__ = ["load_cluster", "render_cluster", "validate_cluster"]

_TOP: Final = (
    "version",
    "name",
    "uuid",
    "epoch_store",
    "nodes",
    "metadata_log",
    "settings",
    "defaults",
    "logs",
    "quotas",
)
_NODE: Final = (
    "host",
    "port",
    "roles",
    "location",
    "shards",
    "sequencer_weight",
    "storage_capacity",
    "state",
    "data_dir",
    "admin_port",
)
_NODE_NAME = re.compile(r"N(0|[1-9][0-9]{0,4})")
_HOST_LABEL = re.compile(r"\w([\w-]*\w)?")
_ADDRESS_6 = re.compile(r"[0-9A-Fa-f:.]+(%[\w.-]+)?")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_IDS_EXAMPLE: Final = 'write ids = "1..8", ids = [1, 8] for the same range, or ids = 1 for a single log'
_WEIGHT_MIN: Final = 1e-6
_WEIGHT_MAX: Final = 1e6


def load_cluster(text: str) -> ClusterConfig:
    """The cluster that a file describes, checked as a whole.

    Raises:
        LogDeviceError: INVALID_CONFIG; the text names the key, what was found and what is allowed.
    """
    try:
        top = Table("", tomllib.loads(text))
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits and deep nesting included
        raise invalid("not valid TOML", str(error)) from None
    top.only(_TOP)
    name = top.text("name", '"production"')
    if _NAME.fullmatch(name) is None:
        raise top.error("name", f"found {name!r}, a name is up to 100 letters, digits, _, . and -")
    nodes = _nodes(top.table("nodes"))
    config = ClusterConfig(
        name=name,
        uuid=_uuid(top),
        version=top.integer("version", 1, 2**64 - 1),
        nodes=nodes,
        logs=_logs(top),
        metadata_log=_metadata_log(top.table("metadata_log"), nodes),
        epoch_store=top.text("epoch_store", '"sqlite:///var/lib/logdevice/epochs.db"'),
        settings=_settings(top.table("settings")),
        quotas=_quotas(top.table("quotas")),
    )
    validate_cluster(config)
    return config


def _uuid(top: Table) -> bytes:
    example = '"5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"'
    text = top.text("uuid", f"{example} (the program uuidgen makes one; it stays the same for the cluster's life)")
    if _UUID.fullmatch(text) is None:
        raise top.error("uuid", f"found {text!r}, write it like {example}; the program uuidgen makes one")
    return bytes.fromhex(text.replace("-", ""))


def _nodes(table: Table) -> dict[NodeId, NodeConfig]:
    nodes: dict[NodeId, NodeConfig] = {}
    for key in table.keys():  # noqa: SIM118
        match = _NODE_NAME.fullmatch(key)
        if match is None or int(match[1]) > NODE_ID_MAX:
            raise table.error(key, f"a node is called N and its index, N0 to N{NODE_ID_MAX}, like [nodes.N0]")
        node = NodeId(int(match[1]))
        nodes[node] = _node(node, table.table(key))
    if not nodes:
        raise invalid("nodes", "there are none; write a table for each, like [nodes.N0]")
    return dict(sorted(nodes.items()))


def _node(node: NodeId, table: Table) -> NodeConfig:
    table.only(_NODE)
    states = [state.value for state in ShardState]
    state = table.text("state", '"read-write"', ShardState.READ_WRITE.value)
    if state not in states:
        raise table.error("state", f"found {state!r}{suggestion(state, states)}")
    host = table.text("host", '"10.0.0.7"')
    if not _is_host(host):
        raise table.error("host", f"found {host!r}, write a host name or an address without a port")
    location = NOWHERE
    if table.raw("location") is not None:
        try:
            location = Location.parse(table.text("location", '"region.datacenter.cluster.row.rack"'))
        except ValueError as error:
            raise table.error("location", str(error)) from None
    return NodeConfig(
        node=node,
        host=host,
        port=table.integer("port", 1, 65535),
        roles=_roles(table),
        location=location,
        shards=table.integer("shards", 1, SHARD_INDEX_MAX + 1, 1),
        sequencer_weight=table.number("sequencer_weight", 0.0, _WEIGHT_MAX, 1.0),
        storage_capacity=table.number("storage_capacity", _WEIGHT_MIN, _WEIGHT_MAX, 1.0),
        shard_state=ShardState(state),
        data_dir=None if table.raw("data_dir") is None else table.text("data_dir", '"/var/lib/logdevice"'),
        admin_port=None if table.raw("admin_port") is None else table.integer("admin_port", 1, 65535),
    )


def _is_host(text: str) -> bool:
    """Whether it can be looked up and dialled: a name with labels of 1 to 63 characters, or an address. Operators put it into commands of their shell."""
    if ":" in text:
        try:
            return _ADDRESS_6.fullmatch(text) is not None and ipaddress.ip_address(text).version == 6
        except ValueError:
            return False
    try:
        text.encode("idna")  # as whoever looks it up does, which refuses labels that are empty or too long
    except UnicodeError:
        return False
    return all(_HOST_LABEL.fullmatch(label) for label in text.removesuffix(".").split("."))


def _roles(table: Table) -> Roles:
    names = [role.name.lower() for role in Roles if role.name is not None]
    roles = Roles(0)
    for raw in table.array("roles", '["sequencer", "storage"]', names):
        if not isinstance(raw, str) or raw not in names:
            raise table.error("roles", f"found {describe(raw)}{suggestion(str(raw), names)}")
        roles |= Roles[raw.upper()]
    if not roles:
        raise table.error("roles", "is empty; a node has at least one of " + ", ".join(names))
    return roles


def _metadata_log(table: Table, nodes: Mapping[NodeId, NodeConfig]) -> MetadataLogConfig:
    table.only(("replicate", "nodeset"))
    try:
        replication = ReplicationProperty.parse(table.text("replicate", '"rack:2,node:3"'))
    except ValueError as error:
        raise table.error("replicate", str(error)) from None
    if table.raw("nodeset") is None:
        return MetadataLogConfig(default_metadata_nodeset(nodes), replication)
    shards: set[ShardId] = set()
    for raw in table.array("nodeset", "[0, 1, 2]"):
        if type(raw) is not int:
            raise table.error("nodeset", f"found {describe(raw)}, write the indices of nodes like [0, 1, 2]")
        node = nodes.get(NodeId(raw))
        if node is None or Roles.STORAGE not in node.roles:
            why = "is not in this file" if node is None else "does not have the role storage"
            raise table.error("nodeset", f"node {raw} {why}")
        if shard_id(node.node) in shards:
            raise table.error("nodeset", f"node {raw} is there twice")
        shards.add(shard_id(node.node))
    return MetadataLogConfig(tuple(sorted(shards)), replication)


def _settings(table: Table) -> dict[str, dict[str, Any]]:
    table.only(SETTINGS_SECTIONS)
    settings: dict[str, dict[str, Any]] = {}
    for name in table.keys():  # noqa: SIM118
        section = table.table(name)
        for key in section.keys():  # noqa: SIM118
            if type(section.raw(key)) not in (str, int, float, bool):
                raise section.error(
                    key, f"found {describe(section.raw(key))}; a setting is a string, a number, true or false"
                )
        settings[name] = {key: section.raw(key) for key in section.keys()}  # noqa: SIM118
    return settings


def _quotas(table: Table) -> dict[str, PrincipalQuota]:
    quotas: dict[str, PrincipalQuota] = {}
    for name in table.keys():  # noqa: SIM118
        one = table.table(name)
        try:
            quotas[name] = parse_principal_quota(name, {key: one.raw(key) for key in one.keys()})  # noqa: SIM118
        except ValueError as error:
            raise table.error(name, str(error)) from None
    return quotas


def _attributes(table: Table) -> dict[str, Any]:
    """What a table of the log tree sets, by field name."""
    overrides: dict[str, Any] = {}
    for key in table.keys():  # noqa: SIM118
        if key == "ids":
            continue
        name = attribute_key(key)
        if name is None:
            if isinstance(table.raw(key), dict):
                raise table.error(
                    key, f'tables of the log tree are not nested: write the whole path, [logs."/a/{key}"]'
                )
            raise table.error(key, f"no such attribute{suggestion(key, [*ATTRIBUTES, 'ids'])}")
        try:
            field, value = parse_attribute(name, table.raw(key))
        except (ValueError, OverflowError) as error:
            raise invalid(key_path(table.path, key), str(error).removeprefix(f"{name}: ")) from None
        if field in overrides:
            raise table.error(key, f"is there twice, also as {name}")
        overrides[field] = value
    return overrides


def _logs(top: Table) -> LogTree:
    defaults = top.table("defaults")
    if defaults.raw("ids") is not None:
        raise defaults.error("ids", 'log ids belong to a group: write [logs."/some/group"]')
    directories: dict[str, dict[str, Any]] = {}
    groups: list[tuple[str, int, int, dict[str, Any]]] = []
    tree = top.table("logs")
    root = _attributes(defaults)
    for path in tree.keys():  # noqa: SIM118
        table = tree.table(path)
        overrides = _attributes(table)
        if table.raw("ids") is None:
            directories[path] = overrides
        else:
            groups.append((path, *_ids(table), overrides))
    try:
        return LogTree.build(defaults=root, directories=directories, groups=groups)
    except ValueError as error:
        raise invalid("logs", str(error)) from None


def _ids(table: Table) -> tuple[int, int]:
    raw = table.raw("ids")
    if type(raw) is int:
        lo, hi = raw, raw
    elif isinstance(raw, list) and len(raw) == 2 and all(type(number) is int for number in raw):
        lo, hi = raw
    elif isinstance(raw, str) and (found := parse_ids(raw)) is not None:
        lo, hi = found
    else:
        raise table.error("ids", f"found {describe(raw)}; {_IDS_EXAMPLE}")
    if not 1 <= lo <= USER_LOG_ID_MAX or not 1 <= hi <= USER_LOG_ID_MAX:
        raise table.error("ids", f"found {describe(raw)}, log ids are 1 to {USER_LOG_ID_MAX}")
    if lo > hi:
        raise table.error("ids", f"found {describe(raw)}: the first id comes first")
    return lo, hi
