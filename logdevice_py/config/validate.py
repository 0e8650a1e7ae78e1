"""What must hold between the parts of a cluster file, beyond what each key allows by itself."""

from __future__ import annotations

import re
from collections.abc import Iterable

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.config.table import invalid
from logdevice_py.core.ids import NODESET_SIZE_MAX, TREE_LOG_ID_MIN, ShardId, node_of

_SQLITE = re.compile(r"sqlite:///.+")
_ZOOKEEPER = re.compile(r"zookeeper://[^/,:]+:\d{1,5}(,[^/,:]+:\d{1,5})*(/\S*)?")
_MEMORY = re.compile(r"memory:.*")
_LOOPBACK = re.compile(r"127\.\d+\.\d+\.\d+|localhost|::1")


def validate_cluster(config: ClusterConfig) -> None:
    """Check a cluster as a whole.

    Replication properties are held against all storage nodes whatever their state: making a node read-only must not make the file invalid.

    Raises:
        LogDeviceError: INVALID_CONFIG, with the key that should be changed.
    """
    _check_addresses(config)
    _check_epoch_store(config)
    if not config.sequencer_nodes():
        raise invalid("nodes", "no node has the role sequencer")
    if not any(weight > 0 for weight in config.sequencer_weights):
        raise invalid("nodes", "every sequencer_weight is 0: no node would sequence any log")
    if not config.storage_shards():
        raise invalid("nodes", "no node has the role storage")
    if config.has_log_tree and config.logs.groups and config.logs.groups[-1].hi >= TREE_LOG_ID_MIN:
        raise invalid(
            f'logs."{config.logs.groups[-1].path}".ids',
            f"ids from {TREE_LOG_ID_MIN} on are given by the log tree, which [settings.log_tree] enables: choose lower ones",
        )
    _check_disabled_regions(config)
    nodeset = config.metadata_log.nodeset
    if len(nodeset) > NODESET_SIZE_MAX:
        raise invalid(
            "metadata_log.nodeset",
            f"holds {len(nodeset)} nodes, at most {NODESET_SIZE_MAX} are allowed: write the indices of some, like [0, 1, 2]",
        )
    check_replication("metadata_log.replicate", config, config.metadata_log.replication, nodeset)
    checked: set[ReplicationProperty] = set()
    for group in config.logs.groups:
        replication = group.attributes.replication
        if replication not in checked:
            check_replication(f'logs."{group.path}".replicate', config, replication, config.storage_shards())
            checked.add(replication)
        extras = group.attributes.extra_copies
        if 0 < group.attributes.nodeset_size < replication.copies + extras:
            raise invalid(
                f'logs."{group.path}".nodeset_size',
                f"found {group.attributes.nodeset_size}, the log keeps {replication.copies + extras} copies of a record",
            )


def _check_disabled_regions(config: ClusterConfig) -> None:
    """Whoever takes a region out of use wants appends to go on in the others."""
    disabled, where = config.disabled_regions, "settings.placement.disabled_regions"
    if not disabled:
        return
    regions = {config.nodes[node_of(shard)].location.region for shard in config.storage_shards()}
    unknown = sorted(disabled - regions)
    if unknown:
        known = ", ".join(sorted(filter(None, regions))) or "none: no location begins with a region"
        raise invalid(where, f"no storage stands in a region {unknown[0]!r}; there are {known}")

    def enabled(shards: Iterable[ShardId]) -> list[ShardId]:
        return [shard for shard in shards if config.nodes[node_of(shard)].location.region not in disabled]

    check_replication(where, config, config.metadata_log.replication, enabled(config.metadata_log.nodeset))
    for replication in {group.attributes.replication: None for group in config.logs.groups}:
        check_replication(where, config, replication, enabled(config.storage_shards()))


def check_replication(
    where: str, config: ClusterConfig, replication: ReplicationProperty, shards: Iterable[ShardId]
) -> None:
    """Whether records can be replicated so over these shards. Domains nest, so a copyset exists as soon as every scope by itself has enough domains.

    Args:
        where: the key that the error names.

    Raises:
        LogDeviceError: INVALID_CONFIG.
    """
    nodes = sorted({node_of(shard) for shard in shards})
    for scope, factor in replication.factors:
        domains = {config.nodes[node].location.domain(scope, node) for node in nodes}
        if len(domains) < factor:
            name = scope.name.lower()
            raise invalid(
                where,
                f'"{replication}" needs storage in {factor} different {name}s, there is storage in {len(domains)}; '
                f"lower {name}:{factor} or add storage nodes in another {name}",
            )


def _check_addresses(config: ClusterConfig) -> None:
    taken: dict[tuple[str, int], str] = {}
    for node in config.nodes.values():
        for key, port in (("port", node.port), ("admin_port", node.admin_port)):
            if port is None:
                continue
            where = f"nodes.N{node.node}.{key}"
            other = taken.setdefault((node.host, port), where)
            if other != where:
                raise invalid(where, f"{node.host}:{port} is also the address of {other}")


def _check_epoch_store(config: ClusterConfig) -> None:
    url = config.epoch_store
    if _SQLITE.fullmatch(url) is not None:
        hosts = {node.host for node in config.nodes.values()}
        if len(hosts) > 1 and not all(_LOOPBACK.fullmatch(host) for host in hosts):
            raise invalid(
                "epoch_store",
                f"found {url!r}, a file that {len(hosts)} hosts do not share: use zookeeper://host:port/root",
            )
    elif _ZOOKEEPER.fullmatch(url) is None and _MEMORY.fullmatch(url) is None:
        raise invalid(
            "epoch_store",
            f"found {url!r}, write sqlite:///absolute/path or zookeeper://host:port,host:port/root",
        )
