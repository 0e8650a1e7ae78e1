"""The state of a cluster as the console shows it: made of what nodes say in their tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from ldquery.ctl.health import Found
from logdevice_py.config.cluster import ClusterConfig, Roles
from logdevice_py.core.ids import NodeId, data_log_of
from logdevice_py.core.lsn import format_lsn
from logdevice_py.tables.waits import WaitCause
from server.console.log_names import log_name
from server.console.problems import is_quiet, problems_of

ASKED: Final = (
    ("shards", "waits", "shard_rebuildings"),
    ("cluster_state",),
    ("info",),
    ("under_replicated_logs",),
)
"""Tables of all nodes that the state takes, one group after the other: see `ldquery.ctl.health.ASKED`."""
WAITS_MAX: Final = 500
REBUILDINGS_MAX: Final = 200
BUSIEST_MAX: Final = 8
Row = Mapping[str, Any]


def cluster_state(
    config: ClusterConfig,
    node: NodeId,
    found: Mapping[str, Found],
    silent: Mapping[NodeId, str],
    rates: Sequence[Row],
) -> dict[str, Any]:
    """What a browser is sent: equal while nothing has changed that is worth showing.

    Args:
        node: who serves the console.
        found: rows of the tables `ASKED`.
        rates: rows of `append_throughput` of all nodes.
    """
    problems, notes = problems_of(config, found, silent)
    waits = [_wait(config, row) for rows in found["waits"].values() for row in rows if row["cause"] not in _ENDLESS]
    waits.sort(key=lambda row: (row["quiet"], -(row["seconds"] or 0)))
    newest = max((row["version"] for rows in found["shard_rebuildings"].values() for row in rows), default=0)
    rebuildings = {
        row["rebuilding_shard"]: _rebuilding(row)
        for rows in found["shard_rebuildings"].values()
        for row in rows
        if row["version"] == newest
    }
    busiest = sorted((row for row in rates if _is_written(row)), key=lambda row: (-row["bytes_1min"], row["log_id"]))
    return {
        "cluster": config.name,
        "node": int(node),
        "version": config.version,
        "nodes": [_node(config, each, found, silent, rates) for each in config.nodes],
        "logs": sum(map(len, config.groups())),
        "busiest": [_rate(config, row) for row in busiest[:BUSIEST_MAX]],
        "problems": [asdict(problem) for problem in problems],
        "notes": notes,
        "waits": waits[:WAITS_MAX],
        "waits_left_out": max(0, len(waits) - WAITS_MAX),
        "rebuildings": [rebuildings[shard] for shard in sorted(rebuildings)][:REBUILDINGS_MAX],
    }


_ENDLESS: Final = frozenset({WaitCause.TAIL.name, WaitCause.QUOTA.name})
"""A reader at the tail waits for records for ever: nobody looks for that among waits."""


def _node(
    config: ClusterConfig, node: NodeId, found: Mapping[str, Found], silent: Mapping[NodeId, str], rates: Sequence[Row]
) -> dict[str, Any]:
    member = config.nodes[node]
    info = next(iter(found["info"].get(node, ())), None)
    seen = Counter(
        row["state"]
        for observer, rows in found["cluster_state"].items()
        for row in rows
        if row["observed_node_id"] == node and observer != node
    )
    own = [row for row in rates if row["node_id"] == node]
    return {
        "node": int(node),
        "address": f"{member.host}:{member.port}",
        "admin_port": member.admin_port,
        "place": list(member.location.labels),
        "roles": [str(role.name).lower() for role in Roles if role in member.roles],
        "storage_state": member.shard_state.value,
        "answers": node not in silent,
        "silence": silent.get(node, ""),
        "seen_as": [[state, count] for state, count in seen.most_common()],
        "readiness": None if info is None else info["readiness"],
        "start_time": None if info is None else info["start_time"],
        "version": None if info is None else info["version"],
        "python": None if info is None else info["python"],
        "pid": None if info is None else info["pid"],
        "shards": [_shard(row) for row in found["shards"].get(node, ())],
        "entries": round(sum(row["entries_1min"] for row in own), 1),
        "bytes": round(sum(row["bytes_1min"] for row in own)),
        "busy_logs": len(own),
    }


_OF_SHARD: Final = (
    "shard",
    "generation",
    "status",
    "accepting_writes",
    "no_space",
    "previous_stop",
    "damaged_ranges",
    "logs",
    "read_streams",
    "partitions",
    "dirty_logs",
    "scrubbing_log",
    "verified_since",
)


def _shard(row: Row) -> dict[str, Any]:
    return {**{name: row[name] for name in _OF_SHARD}, "stored_bytes": in_steps(row["stored_bytes"])}


def in_steps(size: int) -> int:
    """A number of bytes to three digits, and to a kilobyte: a state is sent again when it differs."""
    step: int = 10 ** max(3, len(str(size)) - 3)
    return round(size / step) * step


def _is_written(row: Row) -> bool:
    """As it is shown: a rate of nothing is none."""
    return bool(round(row["entries_1min"], 1) > 0 or round(row["bytes_1min"]) > 0)


def _rate(config: ClusterConfig, row: Row) -> dict[str, Any]:
    log = row["log_id"]
    return {
        "log": str(log),  # JavaScript knows no integers as large as ids of internal logs
        "path": log_name(config, log),
        "node": row["node_id"],
        "entries": round(row["entries_1min"], 1),
        "bytes": round(row["bytes_1min"]),
    }


def _wait(config: ClusterConfig, row: Row) -> dict[str, Any]:
    log = row["log_id"]
    cause = WaitCause.__members__.get(row["cause"])
    seconds = row["waited_seconds"]
    return {
        "node": row["node_id"],
        "shard": row["shard"],
        "kind": row["kind"],
        "log": str(data_log_of(log)),
        "path": log_name(config, log) if data_log_of(log) == log else f"metadata log of {data_log_of(log)}",
        "cause": row["cause"],
        "means": "" if cause is None else cause.value,
        "shards": row["shards"],
        "lsn": None if row["lsn"] is None else format_lsn(row["lsn"]),
        "waiting": row["waiting"],
        "seconds": None if seconds is None else round(seconds),
        "detail": row["detail"],
        "quiet": is_quiet(row),
    }


def _rebuilding(row: Row) -> dict[str, Any]:
    names = ("rebuilding_shard", "generation", "mode", "status", "authoritative_status", "recoverable", "donors_left")
    return {
        **{name: row[name] for name in (*names, "rate", "pace", "source")},
        "since": format_lsn(row["since_version"]),
    }
