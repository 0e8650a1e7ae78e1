"""What is wrong with a cluster, and what to do about each: for the console."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ldquery.ctl import health
from ldquery.ctl.health import Found, all_of
from ldquery.ctl.lost_shards import drains, lacking_metadata, unfinished, without_a_place, without_authority
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import NodeId, format_shard, parse_shard
from logdevice_py.core.some_names import name_some
from logdevice_py.tables.storage import CopiesState
from logdevice_py.tables.waits import WaitCause

Row = Mapping[str, Any]
QUIET: Final = frozenset(WaitCause[name] for name in health.QUIET)
"""Causes of waiting that are part of a healthy cluster's work."""
_BACK: Final = (
    "Bring the nodes of these shards back (Cluster names them). If a disk is gone for good: ldctl rebuild SHARD."
)
_FOLLOW: Final = "Look at the row of that kind for the same log: it says what is really waited for."
_PASSES: Final = "Wait: it passes by itself. If it lasts longer than a minute, look at the log of the node."
REMEDIES: Final[dict[WaitCause, str]] = {
    WaitCause.STORES_AGAIN: "Look at the shards that are waited for: they are slow, or their nodes cannot be reached from the sequencer's.",
    WaitCause.STORE_REFUSED: "Look at the shards that refused: full disk, overload or a later epoch. The next wave takes others where there are any.",
    WaitCause.NODE_DEAD: f"{_BACK} Appends go on by themselves as soon as enough shards answer.",
    WaitCause.NO_SPACE: "Make space: trim (ldctl trim), shorten backlog, or add a storage node (ld-dev-cluster add; cluster file).",
    WaitCause.OVERLOADED: "The disks do not keep up: write less for a while, add nodes, or look for a slow disk among these shards.",
    WaitCause.DISABLED: "Make the shards read-write in the cluster file, or replace the failed disk and restart the node.",
    WaitCause.GRAYLIST: "Wait for a moment: slow shards are tried again. If they stay, look at their disks and network.",
    WaitCause.SHARD_LOST: "A new epoch without the lost shards comes by itself; ldctl recovery LOG asks for one at once.",
    WaitCause.WINDOW_FULL: "Writers are faster than the shards: look at what the oldest entry waits for, or raise max_writes_in_flight of the log.",
    WaitCause.MEMORY_FULL: "The node's sequencers hold too many bytes: write less, move logs to other nodes, or raise the limit.",
    WaitCause.EPOCH: _FOLLOW,
    WaitCause.RECOVERY: _FOLLOW,
    WaitCause.DRAINING: _PASSES,
    WaitCause.METADATA: _FOLLOW,
    WaitCause.EPOCH_STORE: "Look at the epoch store (ZooKeeper or the SQLite file): no log gets an epoch while it is silent.",
    WaitCause.ACTIVATION_LIMIT: "Something makes the log change epochs all the time: two nodes that fight for it, or a client that asks for it.",
    WaitCause.NO_NODESET: "Start the nodes of these shards: the log's first nodeset needs them.",
    WaitCause.EVENT_LOG: "The node reads the event log after its start. If it lasts, look at the shards that keep metadata logs.",
    WaitCause.METADATA_LOG: _BACK,
    WaitCause.OPERATOR: "The epoch store lost the epochs of the log, or gives no more. Repair it before the log is used again: docs/operators.md.",
    WaitCause.NO_SHARDS: "Put the nodes that hold earlier epochs back into the cluster file.",
    WaitCause.F_MAJORITY: f"{_BACK} Readers wait as well; ldctl unrecoverable SHARD declares the data lost.",
    WaitCause.STRAGGLERS: _PASSES,
    WaitCause.DAMAGED: f"The copies that were found cannot be read. {_BACK}",
    WaitCause.NON_AUTHORITATIVE: "Bring the lost shards back with their data, or accept the loss: ldctl unrecoverable SHARD.",
    WaitCause.RECOVERY_STORES: _BACK,
    WaitCause.CLEAN: _BACK,
    WaitCause.RELEASE: _FOLLOW,
    WaitCause.PURGE: _FOLLOW,
    WaitCause.PEERS: _BACK,
    WaitCause.DISK: "The shard's disk is slow: look at the system (iostat), and at what else uses the disk.",
    WaitCause.READER_CONGESTED: "The reader does not take what it asked for: look at the application, or at its network.",
}
"""What an operator can do about something that waits so."""


_LOGS_NAMED: Final = 5
_MOMENT: Final = 2.0
"""Seconds: what waits for less is on its way."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that is not as it should be."""

    severity: str
    """bad: data or availability is lost, or may be; warn: something is short of what it should be."""
    where: str
    """A node, a shard or a log, as people name it."""
    what: str
    do: str
    """What to do about it."""
    page: str = ""
    """The page of the console that shows more."""


def problems_of(
    config: ClusterConfig, found: Mapping[str, Found], silent: Mapping[NodeId, str]
) -> tuple[list[Problem], list[str]]:
    """Problems, the worst first; and what is going on and as it should be.

    Args:
        found: rows of `info`, `cluster_state`, `shards`, `shard_rebuildings`, `under_replicated_logs` and `waits` of all nodes that answered.
        silent: nodes that did not, with the reason.
    """
    problems = [_silent(config, found, node, why) for node, why in sorted(silent.items())]
    for node, rows in found["info"].items():
        for row in rows:
            problems += _of_node(config, node, row)
        problems += [Problem("warn", f"N{node}", text, _PASSES, "shards") for text in health.unreviewed(node, found)]
    for node, rows in found["shards"].items():
        for row in rows:
            problems += _of_shard(f"N{node}:S{row['shard']}", row)
    rebuilding, notes = _rebuildings(config, found, silent)
    problems += rebuilding + _short(config, all_of(found, "under_replicated_logs")) + _waits(all_of(found, "waits"))
    return sorted(problems, key=lambda each: each.severity != "bad"), notes


def _silent(config: ClusterConfig, found: Mapping[str, Found], node: NodeId, why: str) -> Problem:
    seen = {row["state"] for row in all_of(found, "cluster_state") if row["observed_node_id"] == node}
    if seen == {"ALIVE"}:
        do = "The other nodes see it alive, so only its admin port cannot be reached from here: look at admin_port, expose and the token."
    else:
        do = f"Start it again (systemctl start logdeviced, or ld-dev-cluster start {node}), or restart it if its process is there and hangs. If it does not start, its log says why; while it is away its copies count as missing."
    return Problem("bad", f"N{node}", f"does not answer: {why}", do, "cluster")


def _of_node(config: ClusterConfig, node: NodeId, info: Row) -> Iterable[Problem]:
    where = f"N{node}"
    if info["readiness"] != "OK":
        do = "Wait a moment after a start. ISOLATED: it cannot reach most other nodes: look at the network. SHUTDOWN: it is being stopped."
        yield Problem("bad", where, f"takes no requests: {info['readiness']}", do, "cluster")
    if info["config_version"] != config.version:
        what = f"uses version {info['config_version']} of the configuration; the newest that is known here is {config.version}"
        do = "A stored configuration reaches it within seconds; without one give all machines the same file."
        yield Problem("warn", where, what, do)
    if info.get("configuration_trouble"):
        do = "docs/configuration.md says what each means."
        yield Problem("warn", where, info["configuration_trouble"], do)
    if info["logs_leaving_departed_shards"]:
        what = f"{info['logs_leaving_departed_shards']} logs are leaving shards that departed"
        yield Problem("warn", where, what, "Remove no further node before that is done.", "shards")


def _of_shard(name: str, row: Row) -> Iterable[Problem]:
    if row["status"] != "OK":
        do = f"Replace the disk and start the node again; what the shard held is rebuilt (ldctl rebuild {name} --wait)."
        yield Problem("bad", name, f"is {row['status']}", do, "shards")
    elif row["no_space"]:
        yield Problem("bad", name, "refuses records for lack of space", REMEDIES[WaitCause.NO_SPACE], "shards")
    elif not row["accepting_writes"]:
        do = "Nothing, if somebody wants it so: the cluster file says read-only or disabled, or it is drained."
        yield Problem("warn", name, "takes no records", do, "shards")
    if row["damaged_ranges"]:
        what = f"{row['damaged_ranges']} damaged ranges are not repaired yet"
        do = "They are repaired from other copies. If the number does not fall, those copies are away: bring their nodes back."
        yield Problem("warn", name, what, do, "shards")


def _rebuildings(
    config: ClusterConfig, found: Mapping[str, Found], silent: Collection[NodeId]
) -> tuple[list[Problem], list[str]]:
    rows, away = all_of(found, "shard_rebuildings"), health.away_shards(config, found)
    planned, harmless, problems = drains(rows), health.harmless_ends(found, silent), []
    notes, lost = health.undeclared(config, away, found) + health.replaceable(away, found), set(away)
    for shard, text in unfinished(rows).items():
        if shard in planned:
            notes.append(f"{shard} {text}")
        elif shard in harmless:
            notes.append(f"{shard} {text}. {health.NOTHING_MISSED}")
        else:
            lost.add(parse_shard(shard))
            do = f"Wait for the donors, or bring the node back with its data. If the data is gone for good: ldctl unrecoverable {shard}."
            problems.append(Problem("warn", shard, text, do, "shards"))
    for text in without_a_place(config, lost):
        problems.append(Problem("bad", "cluster", text, "Bring the node back, or add a storage node.", "shards"))
    begun, what_follows = without_authority(config, lacking_metadata(all_of(found, "shards")))
    for each in begun:
        problems.append(Problem("bad", format_shard(each), what_follows, "Start the nodes that are named.", "shards"))
    return problems, notes


def _short(config: ClusterConfig, rows: Iterable[Row]) -> list[Problem]:
    short: dict[tuple[str, str], set[int]] = defaultdict(set)
    for row in rows:
        short[row["state"], row["lost_shards"]].add(row["log_id"])
    enabled = config.rebuilding_enabled
    problems = []
    for (state, lost), logs in sorted(short.items()):
        names = name_some(sorted(logs), _LOGS_NAMED)
        where = f"log{'s' * (len(logs) > 1)} {names}"
        if state == CopiesState.GONE.name:
            what = f"records may have no copy left: {lost} lost what they held"
            do = "If one of the disks still exists, put it back. Otherwise readers are told DATALOSS where it is so, and go on."
            problems.append(Problem("bad", where, what, do, "logs"))
        else:
            do = (
                "Nothing: rebuilding is on and stores them again."
                if enabled
                else "Take enabled = false out of [settings.rebuilding]: nobody stores them again otherwise."
            )
            problems.append(Problem("warn", where, f"short of the copies that {lost} held", do, "logs"))
    return problems


def is_quiet(row: Row) -> bool:
    """Whether a row of table `waits` is part of a healthy cluster's work, or has only begun to wait."""
    known, waited = WaitCause.__members__.get(row["cause"]), row["waited_seconds"]
    return known in QUIET or (waited is not None and waited < _MOMENT)


def _waits(rows: Iterable[Row]) -> list[Problem]:
    grouped: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if not is_quiet(row):
            grouped[row["kind"], row["cause"]].append(row)
    problems = []
    for (kind, cause), of_kind in sorted(grouped.items()):
        logs = sorted({row["log_id"] for row in of_kind})
        names = name_some(logs, _LOGS_NAMED)
        shards = sorted({name for row in of_kind for name in row["shards"].split(", ") if name})
        longest = max((row["waited_seconds"] or 0.0 for row in of_kind), default=0.0)
        known = WaitCause.__members__.get(cause)
        what = f"{kind} waits for {cause}" + (f" ({', '.join(shards[:6])})" if shards else "")
        what += f", for {longest:.0f} s" if longest >= 1 else ""
        do = "This node does not know that cause: upgrade it." if known is None else REMEDIES[known]
        problems.append(
            Problem(
                "bad" if kind == "APPEND" else "warn",
                f"log{'s' * (len(logs) > 1)} {names}",
                what,
                do,
                "waits",
            )
        )
    return problems
