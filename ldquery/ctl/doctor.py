"""``ldctl doctor``: looks for what will hurt later: clocks, versions, replication, places, disks, limits, certificates. Each finding says what to do."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from client.cli.program import EXIT_OK, EXIT_UNANSWERED, EXIT_UNHEALTHY
from client.maintenance.state import GOING, MaintenancesState
from client.node_tables import NodeAsker, as_dicts
from ldquery.ctl.verb import Verb, access_of, format_size, say_of_nodes, show, show_rows
from logdevice_py.config.admin import admin_endpoint, is_loopback
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Scope
from logdevice_py.config.logs import Durability
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.config.security import TLS_OFF
from logdevice_py.core.ids import NodeId, ShardId, node_of
from logdevice_py.core.some_names import name_some
from logdevice_py.core.status import LogDeviceError
from logdevice_py.core.units import SECOND
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.survival import domains_among, survival
from logdevice_py.runtime.clock import wall_us
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING

if TYPE_CHECKING:
    from client.client import Client

_SECONDS: Final = 5.0
SKEW_US: Final = 500_000
"""Clocks further apart are a finding: retention by time, and times of records, go by them."""
SPACE_LOW: Final = 20
"""Percent of a file system: less that is free is a finding; half of it is a bad one."""
OPEN_FILES_HIGH: Final = 80
"""Percent of the files and sockets that a process may have open: more is a finding."""
CERTIFICATE_DAYS: Final = 21
"""A certificate that counts for fewer days is a finding."""
_DAY_US: Final = 86_400 * SECOND
_TABLES: Final = ("settings", "shards", "quarantined_stores")
_PATHS_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """Something that will hurt."""

    severity: str
    """bad: it can cost records or availability; warn: look at it; note: it may be meant so."""
    about: str
    what: str
    do: str


@dataclass(frozen=True, slots=True)
class NodeClock:
    """What a node's clock says beside ours."""

    node: NodeId
    ahead_us: int
    """How far it is ahead of ours; negative: behind."""
    error_us: int
    """So far the truth may be from that, for the time that the answer took."""


@dataclass(slots=True)
class NodeAnswers:
    """What nodes say."""

    info: list[dict[str, Any]] = field(default_factory=list)
    clocks: list[NodeClock] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: {name: [] for name in _TABLES})
    silent: dict[NodeId, str] = field(default_factory=dict)
    asked_at: int = field(default_factory=wall_us)
    """By our clock, in microseconds since the Unix epoch."""
    maintenances: MaintenancesState | None = None
    """None: they could not be read."""


def examine(config: ClusterConfig, answers: NodeAnswers) -> list[DoctorFinding]:
    """All findings, the worst first."""
    found = [
        *_of_replication(config),
        *_of_cluster_file(config),
        *_of_clocks(answers.clocks),
        *_of_versions(config, answers.info),
        *_of_limits(answers.info),
        *_of_certificates(config, answers),
        *_of_nodes(answers),
        *_of_maintenances(answers),
    ]
    order = ("bad", "warn", "note")
    return sorted(found, key=lambda each: order.index(each.severity))


def _of_replication(config: ClusterConfig) -> Iterable[DoctorFinding]:
    groups: dict[tuple[ReplicationProperty, Durability], list[str]] = defaultdict(list)
    for group in config.groups():
        groups[group.attributes.replication, group.attributes.durability].append(group.path)
    for (replication, durability), paths in groups.items():
        name = name_some(paths, _PATHS_NAMED)
        yield from _of_property(config, name, replication)
        if durability is Durability.ASYNC and replication.copies < 3:
            what = f"async with {replication.copies} copies: a power cut of {replication.copies} machines takes what was just acknowledged"
            yield DoctorFinding(
                "warn",
                name,
                what,
                'Use durability = "sync", or three copies in places that do not lose power together.',
            )
    kept_by = config.metadata_log
    if len(config.storage_shards()) > 1 and kept_by.replication.copies < 2:
        what = f'metadata logs have one copy ("{kept_by.replication}"): when that shard is away, no log can be read from its beginning'
        yield DoctorFinding("bad", "metadata logs", what, "Name more shards and copies in [metadata_log].")


def _of_property(config: ClusterConfig, name: str, replication: ReplicationProperty) -> Iterable[DoctorFinding]:
    shards = config.writable_shards()
    if replication.copies < 2:
        what = f'"{replication}": one copy: a lost disk takes records for good'
        yield DoctorFinding(
            "bad" if len(shards) > 1 else "warn", name, what, 'Use replicate = "node:2" or more, with as many nodes.'
        )
        return
    domains = FailureDomains.by_file(shards, replication, config.location)

    def can_append(lost: frozenset[ShardId]) -> bool:
        return domains.can_replicate([shard for shard in shards if shard not in lost])

    nodes = domains_among(shards, lambda shard: f"N{node_of(shard)}")
    found = survival(nodes, can_append)
    if found.any_of < 0:
        what = f'"{replication}": the read-write shards cannot hold it: nothing can be appended'
        yield DoctorFinding("bad", name, what, "Add nodes or racks, or lower replicate.")
    elif found.any_of == 0:
        what = f'"{replication}": without {" and ".join(found.fatal)} nothing can be appended: no node may be away'
        yield DoctorFinding("bad", name, what, "Add a storage node, or lower replicate.")
    scope = replication.factors[0][0]
    racks = domains_among(shards, lambda shard: _rack(config, shard))
    crowded = any(len({node_of(shard) for shard in members}) >= replication.copies for members in racks.values())
    if scope is Scope.NODE and len(racks) > 1 and crowded:
        what = f'"{replication}": all copies of a record may lie in one rack, though there are {len(racks)}'
        yield DoctorFinding(
            "note",
            name,
            what,
            f'Use replicate = "rack:2,node:{max(2, replication.copies)}" if a rack can fail as a whole.',
        )


def _rack(config: ClusterConfig, shard: ShardId) -> str:
    location = config.location(shard)
    return "" if location is None else location.domain(Scope.RACK, node_of(shard))


def _of_cluster_file(config: ClusterConfig) -> Iterable[DoctorFinding]:
    hosts = {member.host for member in config.nodes.values()}
    elsewhere = {host for host in hosts if not is_loopback(host)}
    if config.epoch_store.startswith("sqlite") and len(elsewhere) > 1:
        what = f"epochs are kept in SQLite, and nodes are on {len(elsewhere)} hosts: it works on one machine only"
        yield DoctorFinding("bad", "epoch store", what, 'Use epoch_store = "zookeeper://host:2181,host:2181/path".')
    if not config.rebuilding_enabled and len(config.storage_shards()) > 2:
        what = "rebuilding is off: nobody re-replicates what a lost disk or node held"
        yield DoctorFinding(
            "warn", "cluster file", what, "Take enabled = false out of [settings.rebuilding] on all nodes."
        )
    without = [f"N{node}" for node, member in config.nodes.items() if admin_endpoint(config, member) is None]
    if without:
        what = "no admin_port: neither ldctl status nor the console sees it"
        yield DoctorFinding("warn", ", ".join(without), what, "Give it an admin_port in the cluster file.")
    located = [node for node, member in config.nodes.items() if str(member.location)]
    if located and len(located) < len(config.nodes):
        missing = ", ".join(f"N{node}" for node in config.nodes if node not in located)
        what = "has no location although others have: it counts as being in no rack"
        yield DoctorFinding("warn", missing, what, "Write its location, or run ldctl locations.")
    sequencing = config.sequencer_nodes()
    if len(sequencing) == 1 and len(config.nodes) > 1:
        what = "one node alone sequences: when it is away, nothing is appended"
        yield DoctorFinding("bad", f"N{sequencing[0]}", what, "Give more nodes the role sequencer.")


def _of_clocks(clocks: list[NodeClock]) -> Iterable[DoctorFinding]:
    if not clocks:
        return
    middle = sorted(each.ahead_us for each in clocks)[len(clocks) // 2]
    for each in clocks:
        apart = each.ahead_us - middle if len(clocks) > 2 else each.ahead_us
        if abs(apart) - each.error_us > SKEW_US:
            beside = "most others'" if len(clocks) > 2 else "this machine's"
            what = f"its clock is {abs(apart) / 1e6:.1f} s {'ahead of' if apart > 0 else 'behind'} {beside}"
            do = "Synchronize clocks (chrony, systemd-timesyncd): retention by time and times of records go by them."
            yield DoctorFinding("bad" if abs(apart) > 60e6 else "warn", f"N{each.node}", what, do)


def _of_versions(config: ClusterConfig, info: list[dict[str, Any]]) -> Iterable[DoctorFinding]:
    for name, what in (("version", "versions of the program"), ("config_version", "versions of the configuration")):
        nodes: dict[str, list[str]] = defaultdict(list)
        for row in info:
            nodes[str(row[name])].append(f"N{row['node_id']}")
        if len(nodes) > 1:
            told = "; ".join(
                f"{version or 'not installed'}: {', '.join(who)}" for version, who in sorted(nodes.items())
            )
            do = (
                "Finish the upgrade."
                if name == "version"
                else "Wait a few seconds; without a stored configuration give all machines the same file."
            )
            yield DoctorFinding("warn", "nodes", f"{len(nodes)} {what}: {told}", do)
    newest, oldest = (
        max((row["protocol_min"] for row in info), default=0),
        min((row["protocol_max"] for row in info), default=0),
    )
    if info and newest > oldest:
        yield DoctorFinding("bad", "nodes", "some nodes have no protocol in common", "Upgrade one release at a time.")


def _of_limits(info: list[dict[str, Any]]) -> Iterable[DoctorFinding]:
    for row in info:
        used, most = row["open_files"], row["open_files_max"]
        if used is not None and most is not None and used * 100 > most * OPEN_FILES_HIGH:
            what = f"{used} of the {most} files and sockets are open that its process may have: the next connection or file after these fails"
            do = "Raise the limit (LimitNOFILE= of its systemd unit, ulimit -n) and restart it; table sockets of ldquery says who is connected."
            yield DoctorFinding("warn", f"N{row['node_id']}", what, do)


def _of_certificates(config: ClusterConfig, answers: NodeAnswers) -> Iterable[DoctorFinding]:
    elsewhere = any(not is_loopback(member.host) for member in config.nodes.values())
    if elsewhere and str(config.settings.get("security", {}).get("tls", TLS_OFF)) == TLS_OFF:
        what = "nodes on other machines, and tls is off: whoever reaches their ports reads and changes what goes by"
        yield DoctorFinding(
            "warn", "cluster file", what, "docs/security.md has the steps; a running cluster can go to tls."
        )
    for row in answers.info:
        expires = row["certificate_expires"]
        if expires is None:
            continue
        days = (expires - answers.asked_at) / _DAY_US
        if days < CERTIFICATE_DAYS:
            what = "its certificate has expired" if days < 0 else f"its certificate expires in {days:.1f} days"
            do = "Make a new one (ldctl identity make --renew) and put it in the place of the old one: nodes read it again by themselves."
            yield DoctorFinding("bad" if days < CERTIFICATE_DAYS / 3 else "warn", f"N{row['node_id']}", what, do)


def _of_nodes(answers: NodeAnswers) -> Iterable[DoctorFinding]:
    changed: dict[str, list[str]] = defaultdict(list)
    for row in answers.tables["settings"]:
        if row["from_operator"]:
            changed[f"{row['section']}.{row['name']} = {row['current_value']}"].append(f"N{row['node_id']}")
    for setting, nodes in sorted(changed.items()):
        do = "Write it into the cluster file, or take it back: ldctl settings unset."
        yield DoctorFinding(
            "note", ", ".join(nodes), f"{setting} was set by an operator and is gone after a restart", do
        )
    for row in answers.tables["quarantined_stores"]:
        size = "of unknown size" if row["stored_bytes"] is None else f"of {format_size(row['stored_bytes'])}"
        what = f"a store {size} in {row['directory']} does not count ({row['reason']}) and takes space"
        yield DoctorFinding(
            "warn", f"N{row['node_id']}:S{row['shard']}", what, "Delete it when nobody wants anything from it."
        )
    for row in answers.tables["shards"]:
        name = f"N{row['node_id']}:S{row['shard']}"
        if row["no_space"]:
            yield DoctorFinding(
                "bad", name, "refuses records for lack of space", "Trim, shorten backlog, or add space."
            )
        elif row["available_bytes"] * 100 < row["disk_bytes"] * SPACE_LOW:
            free, size = row["available_bytes"], row["disk_bytes"]
            what = f"{format_size(free)} of {format_size(size)} are free on its disk; it refuses records before there are none"
            do = "Trim, shorten backlog, or add space or nodes: ldctl logs status shows what each takes."
            yield DoctorFinding("bad" if free * 200 < size * SPACE_LOW else "warn", name, what, do)
        if row["previous_stop"] not in ("CLEAN", None) and row["dirty_logs"]:
            what = f"went down without a stop ({row['previous_stop']}) and may lack records of {row['dirty_logs']} logs"
            yield DoctorFinding(
                "note", name, what, "They are fetched from other shards; keep these up until there are none left."
            )


def _of_maintenances(answers: NodeAnswers) -> Iterable[DoctorFinding]:
    state = answers.maintenances
    if state is None:
        return
    for each in state.live.values():
        name = f"maintenance {each.number} of {each.names}"
        if each.expires is not None and answers.asked_at > each.expires:
            do = f"Bring back what it took away; then ldctl maintenance cancel {each.number}."
            yield DoctorFinding("warn", name, f"its time is over, and it is {each.phase.name.lower()}", do)
        elif answers.asked_at - each.since > _DAY_US and each.phase not in GOING:
            do = "ldctl maintenance list says what it waits for; ldctl maintenance manage sees to it."
            yield DoctorFinding("note", name, f"it has been {each.phase.name.lower()} for more than a day", do)
    restart = state.restart
    if restart is not None and answers.asked_at - restart.began > _DAY_US:
        what = f"of {restart.by} is under way for more than a day, with {len(restart.left)} nodes left"
        do = "Run ldctl rolling-restart again to go on, or with --abandon."
        yield DoctorFinding("warn", f"rolling restart {restart.number}", what, do)


async def ask(config: ClusterConfig, asker: NodeAsker, seconds: float) -> NodeAnswers:
    """Ask all nodes."""
    answers = NodeAnswers()
    await asyncio.gather(*(_ask_clock(asker, node, seconds, answers) for node in config.nodes))
    answering = [node for node in config.nodes if node not in answers.silent]
    for name in _TABLES:
        rows, failures = await asker.ask_each(TABLES[name], answering, EVERYTHING, None, seconds)
        answers.tables[name] = as_dicts(TABLES[name], rows)
        for failure in failures:
            answers.silent.setdefault(failure.node, f"{failure.status.name}: {failure.detail}")
    return answers


async def _ask_clock(asker: NodeAsker, node: NodeId, seconds: float, answers: NodeAnswers) -> None:
    """A node tells since when it serves, and for how long: that is what its clock says now."""
    began, before = time.time_ns() // 1000, time.monotonic()
    rows, failures = await asker.ask_each(TABLES["info"], [node], EVERYTHING, None, seconds)
    took = round((time.monotonic() - before) * 1e6)
    for failure in failures:
        answers.silent[node] = f"{failure.status.name}: {failure.detail}"
    for row in as_dicts(TABLES["info"], rows):
        answers.info.append(row)
        says = row["start_time"] + round(row["uptime_seconds"] * 1e6)
        answers.clocks.append(NodeClock(node, says - began - took // 2, took // 2 + 1))


async def _maintenances(client: Client) -> MaintenancesState | None:
    from ldquery.maintenance.manager import read_maintenances

    try:
        return await read_maintenances(client, _SECONDS)
    except LogDeviceError:
        return None  # ldctl status says why


def lines_of(config: ClusterConfig, answers: NodeAnswers, found: Sequence[DoctorFinding]) -> list[str]:
    """What people read. Where no node answers, nobody looked for anything, and nothing is said of findings."""
    if found or not answers.info:
        return [f"{each.severity:<4}  {each.about}: {each.what}\n      -> {each.do}" for each in found]
    return [f"nothing found: {len(answers.info)} nodes, {sum(1 for _ in config.groups())} groups of logs"]


async def _doctor(client: Client, arguments: argparse.Namespace) -> int:
    config = client.config
    asker = NodeAsker(config, access_of(arguments))
    try:
        answers = await ask(config, asker, arguments.timeout or _SECONDS)
        answers.maintenances = await _maintenances(client)
    finally:
        await asker.close()
    found = examine(config, answers)
    rows: list[Mapping[str, Any]] = [asdict(each) for each in found]
    if arguments.json:
        show_rows(arguments, rows)
    else:
        for line in lines_of(config, answers, found):
            show(arguments, {}, plain=line)
    say_of_nodes(answers.silent.items())
    if answers.silent:
        return EXIT_UNANSWERED
    return EXIT_UNHEALTHY if any(each.severity != "note" for each in found) else EXIT_OK


VERBS: tuple[Verb, ...] = (
    Verb(
        "doctor",
        "looks for what will hurt later, and says what to do",
        "Looks at clocks, versions, replication, locations, free space, limits of open files, certificates, the epoch store, rebuilding, settings that operators changed and stores that take space for nothing; prints each finding with what to do "
        "about it. What is wrong at this moment is told by ldctl status. Exit status 0: nothing to do; 5: something is bad or to be looked at; 4: a node did not answer.",
        lambda options: None,
        _doctor,
    ),
)
