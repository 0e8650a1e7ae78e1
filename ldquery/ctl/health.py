"""How a cluster is: what ``ldctl status`` and ``ld-dev-cluster status`` say of its nodes, and the exit status that follows."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from client.admin_access import AdminAccess
from client.cli.program import EXIT_DATA_LOSS, EXIT_OK, EXIT_UNANSWERED, EXIT_UNHEALTHY
from client.node_tables import NodeAsker, as_dicts
from ldquery.ctl.lost_shards import (
    drains,
    lacking_metadata,
    rebuilt,
    uncertain,
    unfinished,
    without_a_place,
    without_authority,
)
from ldquery.ctl.verb import format_size
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import NodeId, ShardId, format_shard, node_of, parse_shard, shard_id
from logdevice_py.core.lsn import format_lsn
from logdevice_py.core.some_names import name_some
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import NodeState
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING, Constraints
from logdevice_py.tables.storage import CopiesState

Row = Mapping[str, Any]
Found = dict[NodeId, list[dict[str, Any]]]
"""Rows of a table, by the node that gave them."""
ASKED: Final = (
    ("sequencers", "shards", "waits", "shard_rebuildings"),
    ("cluster_state",),
    ("info",),
    ("under_replicated_logs",),
)
"""One group after the other: which generations there are; then who has heard of them; then who has looked through its logs since; then what was found. Asked in
another order, or at once, a node could say that it looked before it heard, and that nothing is short before it looked."""
QUIET: Final = frozenset(
    {"TAIL", "STORES", "BATCH", "EARLIER_ENTRY", "READER_WINDOW", "READER_CREDIT", "QUOTA", "TURN"}
)
"""Causes of waiting that are part of a healthy cluster's work."""
_PASSES: Final = 3.0
"""Seconds within which what passes by itself does: nodes wait for a moment, or have not looked through their logs yet."""
_LOOK_AGAIN: Final = 0.2
_LOGS_NAMED: Final = 3
_SHARDS_NAMED: Final = 6
NOTHING_MISSED: Final = "No log has epochs of which records may be gone: there is nothing to do"
"""Of `harmless_ends`."""


@dataclass(slots=True)
class Health:
    """What nodes said of themselves and of each other."""

    rows: list[dict[str, Any]]
    """One a node; ``troubles`` says what is wrong with it."""
    silent: dict[NodeId, str]
    """The nodes that did not answer, and why."""
    elsewhere: list[str] = field(default_factory=list)
    """What is wrong with logs, and with shards whose nodes left the cluster file."""
    notes: list[str] = field(default_factory=list)
    """What is going on and as it should be."""
    logs_short: set[int] = field(default_factory=set)
    """Logs that are short of copies."""
    logs_gone: set[int] = field(default_factory=set)
    """Logs of which records may have no copy left."""
    rebuilding: set[str] = field(default_factory=set)
    """Shards that are lost and not rebuilt, or not as they should be."""
    draining: set[str] = field(default_factory=set)
    """Shards that are being emptied as somebody asked."""
    passing: int = 0
    """How many of the troubles may be over in a moment."""

    def told(self) -> list[str]:
        """Everything that is wrong, a line each."""
        return [f"{row['node']}: {trouble}" for row in self.rows for trouble in row["troubles"]] + self.elsewhere

    def summary(self) -> str:
        """What there is of losses, rebuildings and drains, in one line."""
        if self.rows and len(self.silent) == len(self.rows):
            return "not known, as no node answers: copies that are missing, generations, rebuildings and drains"
        anew = [
            f"{row['node']}:{shard} ({generation})"
            for row in self.rows
            for shard, generation in row["generations"].items()
            if generation > 1
        ]
        return "; ".join(
            (
                f"short of copies: {len(self.logs_short)} logs",
                f"records may be gone: {len(self.logs_gone)} logs",
                f"generations above 1: {', '.join(anew) or 'none'}",
                f"rebuildings: {', '.join(sorted(self.rebuilding)) or 'none'}",
                f"drains: {', '.join(sorted(self.draining)) or 'none'}",
            )
        )

    @property
    def exit_status(self) -> int:
        """What a program that told it ends with."""
        if self.logs_gone:
            return EXIT_DATA_LOSS
        if self.silent:
            return EXIT_UNANSWERED
        return EXIT_UNHEALTHY if self.told() else EXIT_OK


async def cluster_health(
    config: ClusterConfig, access: AdminAccess, seconds: float, nodes: Collection[NodeId] | None = None
) -> Health:
    """Ask the nodes; where all that is wrong may be over in a moment, ask again a little later.

    Args:
        access: to the admin API.
        seconds: how long they get to answer.
        nodes: those that are asked; None: all of the cluster file.
    """
    asker = NodeAsker(config, access)
    try:
        return await look_twice(config, asker, list(config.nodes if nodes is None else nodes), seconds)
    finally:
        await asker.close()


async def look_twice(config: ClusterConfig, asker: NodeAsker, nodes: Sequence[NodeId], seconds: float) -> Health:
    """`cluster_health` by a given asker: what may be over in a moment counts when it was so twice at least."""
    end = time.monotonic() + min(_PASSES, seconds)
    earlier: list[dict[str, Any]] | None = None
    while True:
        found, silent = await ask_in_turn(asker, nodes, ASKED, seconds)
        waits = all_of(found, "waits")
        if earlier is not None:
            found["waits"] = {node: without_followers(rows, earlier) for node, rows in found["waits"].items()}
        health = judge(config, found, silent)
        if health.silent or len(health.told()) > health.passing or not health.passing:
            return health
        if earlier is not None and time.monotonic() > end:
            return health
        earlier = waits
        await asyncio.sleep(_LOOK_AGAIN)


def without_followers(waits: Iterable[dict[str, Any]], earlier: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows of table `waits` without those of readers that wait for the release of another entry than at an earlier look.

    Who follows a log that is written to waits for the release of its next entry whenever somebody looks, and gets on.
    """
    stood = {_place(row) for row in earlier}
    return [row for row in waits if (row["kind"], row["cause"]) != ("READ", "RELEASE") or _place(row) in stood]


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("node_id", "shard", "log_id", "kind", "cause", "lsn"))


async def ask_in_turn(
    asker: NodeAsker,
    nodes: Sequence[NodeId],
    groups: Sequence[Sequence[str]],
    seconds: float,
    constraints: Constraints = EVERYTHING,
) -> tuple[dict[str, Found], dict[NodeId, str]]:
    """`ask_tables` for groups of tables, each when the one before is answered. Who was silent is not asked again."""
    found: dict[str, Found] = {}
    silent: dict[NodeId, str] = {}
    for names in groups:
        asked = [node for node in nodes if node not in silent]
        rows, failed = await ask_tables(asker, asked, names, seconds, constraints)
        for name in names:
            found[name] = {node: rows[name].get(node, []) for node in nodes}
        silent |= failed
    return found, silent


async def ask_tables(
    asker: NodeAsker,
    nodes: Sequence[NodeId],
    names: Sequence[str],
    seconds: float,
    constraints: Constraints = EVERYTHING,
) -> tuple[dict[str, Found], dict[NodeId, str]]:
    """The rows of some tables at all these nodes, and why those that did not answer for one did not."""
    answers = await asyncio.gather(*(asker.ask_each(TABLES[name], nodes, constraints, None, seconds) for name in names))
    found: dict[str, Found] = {}
    silent: dict[NodeId, str] = {}
    for name, (rows, failures) in zip(names, answers, strict=True):
        by_node = found[name] = {node: [] for node in nodes}
        for cells in as_dicts(TABLES[name], rows):
            by_node[NodeId(int(cells["node_id"] or 0))].append(cells)
        for failure in failures:
            silent.setdefault(failure.node, f"{failure.status.name}: {failure.detail}")
    return found, silent


def judge(config: ClusterConfig, found: Mapping[str, Found], silent: Mapping[NodeId, str]) -> Health:
    """What the tables say.

    Args:
        found: rows of the tables `ASKED`, of each node that was asked.
    """
    health = Health([], dict(silent))
    for node in found["info"]:
        health.rows.append(_node_row(config, node, found, silent))
        passing = _waits(found["waits"][node])
        passing += unreviewed(node, found) + _leaving(found["info"][node])
        health.rows[-1]["troubles"] += passing
        health.passing += len(passing)
    away = away_shards(config, found)
    health.notes += undeclared(config, away, found) + replaceable(away, found)
    _add_lost_shards(config, health, found, away)
    _add_lost_copies(config, health, all_of(found, "under_replicated_logs"))
    return health


def all_of(found: Mapping[str, Found], name: str) -> list[dict[str, Any]]:
    """The rows of a table, of all nodes that answered."""
    return [row for each in found[name].values() for row in each]


def away_shards(config: ClusterConfig, found: Mapping[str, Found]) -> set[ShardId]:
    """Shards that serve nobody at present: all others take their nodes for dead, or their disks failed."""
    seen: dict[int, set[str]] = defaultdict(set)
    for observer, rows in found["cluster_state"].items():
        for row in rows:
            if row["observed_node_id"] != observer:
                seen[row["observed_node_id"]].add(row["state"])
    dead = {node for node, states in seen.items() if states == {NodeState.DEAD.name}}
    away = {shard for shard in config.storage_shards() if node_of(shard) in dead}
    away.update(
        shard_id(NodeId(row["node_id"]), row["shard"])
        for row in all_of(found, "shards")
        if row["status"] == Status.FAILED.name
    )
    return away


def undeclared(config: ClusterConfig, away: Collection[ShardId], found: Mapping[str, Found]) -> list[str]:
    """What becomes of shards that are away and not taken for lost."""
    if not config.rebuilding_enabled:
        if not away:
            return []
        names = name_some(map(format_shard, sorted(away)), _SHARDS_NAMED)
        return [f"{names}: gone, and nobody re-replicates what was held there, as rebuilding is off"]
    return [row["rebuilding_awaits"] for row in all_of(found, "info") if row.get("rebuilding_awaits")]


def replaceable(away: Collection[ShardId], found: Mapping[str, Found]) -> list[str]:
    """What to do about nodes that are away and of which the others have everything: metadata logs are not re-replicated."""
    re_replicated = rebuilt(all_of(found, "shard_rebuildings"))
    generations: dict[int, set[int]] = defaultdict(set)
    for row in all_of(found, "cluster_state"):
        generations[row["observed_node_id"]].update(
            int(each) for each in row["generations"].split(", ") if each.isdigit()
        )
    nodes = {node_of(shard) for shard in away}
    for shard in away:  # of a living node only the disk failed
        node = node_of(shard)
        if found["info"].get(node) or re_replicated.get(format_shard(shard), 0) < max(generations[node], default=1):
            nodes.discard(node)
    if not nodes:
        return []
    names = name_some((f"N{node}" for node in sorted(nodes)), _SHARDS_NAMED)
    return [
        f"{names}: gone, and others have what was held there. If that is for good, take {'it' if len(nodes) == 1 else 'them'} out (ldctl nodes remove), or start "
        "with an empty disk: until then metadata logs bear so many fewer nodes that are away"
    ]


def _add_lost_shards(
    config: ClusterConfig, health: Health, found: Mapping[str, Found], away: Collection[ShardId]
) -> None:
    """What is the matter with lost and drained shards goes to the troubles of their nodes, or elsewhere."""
    rebuildings = all_of(found, "shard_rebuildings")
    planned = drains(rebuildings)
    harmless = harmless_ends(found, health.silent)
    for shard, text in unfinished(rebuildings).items():
        if shard in planned:
            health.draining.add(shard)
            health.notes.append(f"{shard} {text}")
        elif shard in harmless:
            health.notes.append(f"{shard} {text}. {NOTHING_MISSED}")
        else:
            health.rebuilding.add(shard)
            _blame(health, shard, text)
    lost = {parse_shard(shard) for shard in health.rebuilding}
    health.elsewhere += without_a_place(config, lost.union(away))
    new_generations, what_follows = without_authority(config, lacking_metadata(all_of(found, "shards")))
    for each in new_generations:
        _blame(health, format_shard(each), what_follows)


def harmless_ends(found: Mapping[str, Found], silent: Collection[NodeId]) -> set[str]:
    """Shards of which the rebuilding ended uncertain, while no log has epochs of which records may be gone: what they held is trimmed. None before all
    nodes have looked through their logs."""
    if silent or any(unreviewed(node, found) for node in found["info"]):
        return set()
    gone = [row for row in all_of(found, "under_replicated_logs") if row["state"] == CopiesState.GONE.name]
    missed = {each.partition("=")[0] for row in gone for each in row["lost_shards"].split(", ")}
    return uncertain(all_of(found, "shard_rebuildings")) - missed


def _blame(health: Health, shard: str, text: str) -> None:
    node, _, index = shard.partition(":")
    row = next((row for row in health.rows if row["node"] == node), None)
    if row is None:
        health.elsewhere.append(f"{shard} {text}")
    else:
        row["troubles"].append(f"{index} {text}")


def _add_lost_copies(config: ClusterConfig, health: Health, rows: Iterable[Row]) -> None:
    """Logs that are short of what a shard held go to the troubles of its node; records that may be gone are nobody's alone."""
    short: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    gone: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        if row["state"] == CopiesState.GONE.name:
            gone[row["lost_shards"]].add(row["log_id"])
            health.logs_gone.add(row["log_id"])
            continue
        health.logs_short.add(row["log_id"])
        for each in row["lost_shards"].split(", "):
            shard, _, generation = each.partition("=")
            first = short[shard, int(generation)].setdefault(row["log_id"], row["first_lsn"])
            short[shard, int(generation)][row["log_id"]] = min(first, row["first_lsn"])
    is_rebuilding = config.rebuilding_enabled
    remedy = (
        "rebuilding is on and stores them again"
        if is_rebuilding
        else "rebuilding is off: nobody stores them again until enabled = false is taken out of [settings.rebuilding]"
    )
    for (shard, generation), logs in sorted(short.items()):
        what = "left the cluster file" if node_of(parse_shard(shard)) not in config.nodes else "began anew, empty"
        held = f"the copies that its generation {generation} held are missing"
        _blame(health, shard, f"{what}; {held} in {_named(logs)}; {remedy}")
    for lost, log_ids in sorted(gone.items()):
        health.elsewhere.append(
            f"{_named(dict.fromkeys(log_ids, 0))}: records may have no copy left, because these shards lost what they held in the generations "
            f"named: {lost}; readers are told DATALOSS where it is so (table under_replicated_logs of ldquery has the epochs)"
        )


def _named(logs: Mapping[int, int]) -> str:
    """Some logs, each with the LSN from which on it is concerned (0: it does not matter)."""
    names = [f"log {log} from {format_lsn(lsn)} on" if lsn else f"log {log}" for log, lsn in sorted(logs.items())]
    more = len(names) - _LOGS_NAMED
    return ", ".join(names[:_LOGS_NAMED]) + (f" and {more} more logs" if more > 0 else "")


def _waits(rows: Iterable[Row]) -> list[str]:
    waiting = Counter((row["kind"], row["cause"]) for row in rows if row["cause"] not in QUIET)
    return [
        f"{kind} waits for {cause} ({count} row{'s' * (count != 1)} in table waits of ldquery)"
        for (kind, cause), count in waiting.most_common()
    ]


def unreviewed(node: NodeId, found: Mapping[str, Found]) -> list[str]:
    """Of a node that does not know yet which of its logs are short of copies, because it just started, or a shard began anew."""
    info = next(iter(found["info"][node]), None)
    if info is None:
        return []
    anew = [row for row in all_of(found, "shards") if row["generation"] > 1]
    heard = {row["observed_node_id"]: row["generations"].split(", ") for row in found["cluster_state"][node]}
    if info["copies_reviewed"] != 0 and all(
        heard[row["node_id"]][row["shard"]] == str(row["generation"]) for row in anew if row["node_id"] in heard
    ):
        return []
    return ["it has not looked through its logs yet for copies that lost shards held"]


def _leaving(infos: Iterable[Row]) -> list[str]:
    """Logs that rely on shards which are not there any more, until their epochs are recovered."""
    count = sum(info["logs_leaving_departed_shards"] or 0 for info in infos)
    if not count:
        return []
    return [
        f"{count} logs are on their way to epochs without shards that departed: remove no further node before that is done"
    ]


def _node_row(
    config: ClusterConfig, node: NodeId, found: Mapping[str, Found], silent: Mapping[NodeId, str]
) -> dict[str, Any]:
    member = config.nodes[node]
    info = next(iter(found["info"][node]), None)
    others = [
        row["state"]
        for observer, rows in found["cluster_state"].items()
        for row in rows
        if observer != node and row["observed_node_id"] == node
    ]
    seen_as = ", ".join(f"{state} by {count}" for state, count in Counter(others).most_common())
    if len(set(others)) == 1:
        seen_as = others[0]
    shards = found["shards"][node]
    active = [row for row in found["sequencers"][node] if row["state"] == "ACTIVE"]
    troubles = [] if node not in silent else [f"it does not answer: {silent[node]}"]
    if info is not None:
        troubles += _troubles(config, info, shards)
    return {
        "node": f"N{node}",
        "address": f"{member.host}:{member.port}",
        "roles": [str(role.name).lower() for role in member.roles],
        "location": str(member.location),
        "readiness": None if info is None else info["readiness"],
        "seen as": seen_as or None,
        "up": None if info is None else _age(info["uptime_seconds"]),
        "uptime seconds": None if info is None else info["uptime_seconds"],
        "config version": None if info is None else info["config_version"],
        "logs": None if info is None else len(active),
        "shards": [_shard(row) for row in shards],
        "generations": {f"S{row['shard']}": row["generation"] for row in shards},
        "stored bytes": sum(row["stored_bytes"] for row in shards),
        "troubles": troubles,
    }


def _shard(row: Row) -> str:
    began_anew = f" generation {row['generation']}" if row["generation"] > 1 else ""
    return f"S{row['shard']} {row['status']} {format_size(row['stored_bytes'])}{began_anew}"


def _troubles(config: ClusterConfig, info: Row, shards: Sequence[Row]) -> list[str]:
    found = []
    if info["readiness"] != "OK":
        found.append(f"it takes no requests: {info['readiness']}")
    if info["config_version"] != config.version:
        found.append(_other_version(info["config_version"], config.version))
    if info.get("configuration_trouble"):
        found.append(info["configuration_trouble"])
    for row in shards:
        name = f"S{row['shard']}"
        if row["status"] != "OK":
            found.append(f"{name}: {row['status']}")
        elif row["no_space"]:
            found.append(f"{name}: refuses records for lack of space")
        elif not row["accepting_writes"]:
            found.append(f"{name}: takes no records")
        if row["damaged_ranges"]:
            found.append(f"{name}: {row['damaged_ranges']} damaged ranges are not repaired yet")
    return found


def _other_version(used: int, known: int) -> str:
    if used < known:
        return f"it uses version {used} of the configuration, the newest is {known}"
    return f"it uses version {used} of the configuration, newer than {known}, which is known here"


def _age(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02}h"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"
