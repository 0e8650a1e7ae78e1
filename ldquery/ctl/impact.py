"""``ldctl check-impact``: what logs lose while nodes or shards are away, found out before anybody takes them away."""

from __future__ import annotations

import argparse
import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from client.cli.options import Words, complete_words
from client.cli.program import EXIT_OK, EXIT_UNANSWERED, EXIT_UNHEALTHY, say
from client.node_tables import NodeAsker, as_dicts
from ldquery.comparison import domains_of, interval_of, listed_shards
from ldquery.ctl.health import all_of, ask_in_turn
from ldquery.ctl.lost_shards import lacking_metadata
from ldquery.ctl.verb import PROGRAM, Verb, access_of, format_size, say_of_nodes, show, show_rows
from logdevice_py.config.cluster import ClusterConfig, Roles
from logdevice_py.core.declare import settings_from
from logdevice_py.core.ids import (
    EVENT_LOG_DELTAS,
    EVENT_LOG_SNAPSHOTS,
    INTERNAL_LOGS,
    LogId,
    NodeId,
    ShardId,
    format_shard,
    is_internal_log,
    node_of,
    parse_shard,
    shard_id,
)
from logdevice_py.core.lsn import ESN_MAX, Epoch, Lsn, compose_lsn, epoch_of
from logdevice_py.core.some_names import name_some
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import format_duration
from logdevice_py.event_log.events import RebuildMode
from logdevice_py.event_log.settings import RebuildingSettings
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.impact import Impact, Loss, PlacedEpochs, ShardsNow, impact
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING, Constraints

if TYPE_CHECKING:
    from client.client import Client

Row = Mapping[str, Any]
METADATA_LOGS: Final = "metadata logs"
"""Stands for all of them."""
_SECONDS: Final = 10.0
_TABLES: Final = (("shards", "shard_rebuildings", "cluster_state", "info"),)
_LOGS_NAMED: Final = 3
_ASKED_ALONE: Final = 64
"""Logs for which nodes are asked one by one, when whoever told all that he knows left them out."""


@dataclass(slots=True)
class Survey:
    """What is known of a cluster's shards and of the nodesets of its logs."""

    logs: dict[str, list[PlacedEpochs]]
    """By path."""
    sequencing: frozenset[NodeId]
    """Nodes that sequence and answer."""
    silent: dict[NodeId, str]
    """Nodes that do not answer, and why: their shards count as away."""
    unknown: list[str] = field(default_factory=list)
    """Logs whose nodesets nobody could tell."""
    shards: Mapping[ShardId, Row] = field(default_factory=dict)
    """Rows of table `shards`."""
    nodes: Mapping[NodeId, Row] = field(default_factory=dict)
    """Rows of table `info`, of nodes that answer."""
    rebuildings: Mapping[ShardId, Row] = field(default_factory=dict)
    """Rows of table `shard_rebuildings` that are about the generations that shards have now, of the node that is ahead."""


@dataclass(frozen=True, slots=True)
class LogImpact:
    """Something that a log loses."""

    log: str
    impact: Impact


def going_shards(config: ClusterConfig, names: Iterable[str]) -> list[tuple[str, frozenset[ShardId]]]:
    """What goes: N3 is a node with all its shards, N3:S0 one shard.

    Raises:
        LogDeviceError: INVALID_PARAM: the cluster file has no such node or shard.
    """
    found = []
    for name in names:
        try:
            shard = parse_shard(name if ":" in name else f"{name}:S0")
        except ValueError:
            raise LogDeviceError(Status.INVALID_PARAM, f"{name!r} is no node or shard: write N3 or N3:S0") from None
        member = config.nodes.get(node_of(shard))
        if member is None or (":" in name and shard not in member.shard_ids()):
            raise LogDeviceError(Status.INVALID_PARAM, f"{name}: the cluster file has no such node or shard")
        found.append((name, frozenset([shard] if ":" in name else member.shard_ids())))
    return found


class ShardsKnown:
    """What nodes say of the shards of a cluster, for epochs that list certain generations of them.

    Args:
        shards: rows of table `shards` of the nodes that answered.
        rebuildings: rows of table `shard_rebuildings`, of any nodes; those of the node that is ahead count.
    """

    def __init__(self, config: ClusterConfig, shards: Iterable[Row], rebuildings: Iterable[Row]) -> None:
        self._config = config
        self._rows = {shard_id(NodeId(row["node_id"]), row["shard"]): row for row in shards}
        told = list(rebuildings)
        newest = max((row["version"] for row in told), default=0)
        self._events = {parse_shard(row["rebuilding_shard"]): row for row in told if row["version"] == newest}

    @property
    def shards(self) -> Mapping[ShardId, Row]:
        """Rows of table `shards`."""
        return self._rows

    @property
    def rebuildings(self) -> Mapping[ShardId, Row]:
        """Rows of table `shard_rebuildings` that are about the generations that shards have now, of the node that is ahead."""
        return {shard: row for shard, row in self._events.items() if self._event_of(shard) is not None}

    def of(self, nodeset: Iterable[tuple[ShardId, int]]) -> ShardsNow:
        """The shards of a nodeset, each with the generation that it lists; 0: what it has now."""
        away, lost, emptied, unwritable = set(), set(), set(), set()
        for shard, listed in nodeset:
            row, event = self._rows.get(shard), self._event_of(shard, listed)
            if event is not None:
                unwritable.add(shard)
            if event is not None and event["status"] == "rebuilt":
                emptied.add(shard)
            elif self._has_lost(shard, listed, row, event):
                lost.add(shard)
            elif row is None or row["status"] != "OK":
                away.add(shard)
            if row is None or row["no_space"] or not row["accepting_writes"] or not self._config.is_writable(shard):
                unwritable.add(shard)
        return ShardsNow(frozenset(away), frozenset(lost), frozenset(emptied), frozenset(unwritable))

    def of_metadata_logs(self) -> ShardsNow:
        """The shards that keep metadata logs; those that have not got them back yet have lost them."""
        now = self.of((shard, 0) for shard in self._config.metadata_log.nodeset)
        return replace(now, lost=now.lost | lacking_metadata(self._rows.values()))

    def _event_of(self, shard: ShardId, listed: int = 0) -> Row | None:
        """What the event log says of a generation of a shard, 0: of what it has now. A shard that began anew has an entry of what it held before."""
        event, row = self._events.get(shard), self._rows.get(shard)
        generation = listed or (0 if row is None else row["generation"])
        return event if event is not None and generation <= event["generation"] else None

    def _has_lost(self, shard: ShardId, listed: int, row: Row | None, event: Row | None) -> bool:
        if node_of(shard) not in self._config.nodes:
            return True  # nobody can read what it had
        if row is not None and 0 < listed < row["generation"]:
            return True
        return event is not None and event["mode"] != RebuildMode.RELOCATE.name and not event["recoverable"]


def placed_metadata_logs(config: ClusterConfig, known: ShardsKnown) -> PlacedEpochs:
    """Where metadata logs lie: their one nodeset is that of the cluster file."""
    kept_by = config.metadata_log
    return PlacedEpochs(
        Epoch(1),
        Epoch(1),
        tuple(sorted(kept_by.nodeset)),
        kept_by.replication,
        FailureDomains.by_file(kept_by.nodeset, kept_by.replication, config.location).labels,
        is_current=True,
        now=known.of_metadata_logs(),
    )


def placed_epochs(
    config: ClusterConfig, known: ShardsKnown, history: Sequence[Row], lce: int | None, copies: Sequence[Row] | None
) -> list[PlacedEpochs]:
    """The epochs of one log.

    Args:
        history: its rows of `historical_metadata`.
        lce: all epochs up to here are recovered; None: not known.
        copies: rows of `copyset_distribution` of all its entries; None: they were not asked for, or not all who must have answered.
    """
    intervals = sorted((row for row in history if row["since"] is not None), key=lambda row: int(row["since"]))
    held: dict[int, list[Row]] = defaultdict(list)
    for each in copies or ():
        if (interval := interval_of(intervals, epoch_of(each["lsn"]))) is not None:
            held[interval["since"]].append(each)
    found = []
    for row in intervals:
        domains = domains_of(config, row)
        found.append(
            PlacedEpochs(
                Epoch(row["since"]),
                Epoch(row["epoch"]),
                domains.shards,
                domains.replication,
                domains.labels,
                is_current=row is intervals[-1],
                is_open=lce is None or row["epoch"] > lce,
                now=known.of(listed_shards(row)),
                copysets=None if copies is None else _copysets(held[row["since"]]),
            )
        )
    return found


def _copysets(copies: Iterable[Row]) -> frozenset[frozenset[ShardId]]:
    """The shards that have copies: of a copyset, those that have most of its entries, since others lack some."""
    held: dict[str, dict[ShardId, int]] = defaultdict(lambda: defaultdict(int))
    for row in copies:
        held[row["copyset"]][shard_id(NodeId(row["node_id"]), row["shard"])] += row["entries"]
    return frozenset(
        frozenset(shard for shard, count in by_shard.items() if count == max(by_shard.values()))
        for by_shard in held.values()
    )


async def survey(
    config: ClusterConfig,
    asker: NodeAsker,
    seconds: float,
    *,
    copysets: bool = False,
    rebuildings: Sequence[Row] | None = None,
) -> Survey:
    """Ask the cluster.

    Args:
        seconds: for each round of questions.
        rebuildings: rows as of table `shard_rebuildings`, from the event log itself; None: nodes are asked, which may be behind.
        copysets: ask for those of all entries, which reads the headers of everything.

    Raises:
        LogDeviceError: AGAIN: no node tells the nodesets, or which logs there are.
    """
    by_node, silent = await ask_in_turn(asker, list(config.nodes), _TABLES, seconds)
    found = {name: all_of(by_node, name) for name in by_node}
    known = ShardsKnown(config, found["shards"], found["shard_rebuildings"] if rebuildings is None else rebuildings)
    answering = [node for node in config.nodes if node not in silent]
    await _check_tree_known(config, asker, answering, seconds)
    history: dict[int, list[Row]] = defaultdict(list)
    clean: dict[int, int] = {}
    internal_logs = [log for log in INTERNAL_LOGS if config.log(log) is not None]
    if not keep_event_log(config, found["info"]):
        internal_logs = [log for log in internal_logs if log not in (EVENT_LOG_DELTAS, EVENT_LOG_SNAPSHOTS)]
    # those that take appends, as far as whoever asks knows them
    wanted = [*(LogId(log) for group in config.groups() for log in group.ids()), *internal_logs]
    # without a log id, a table has no internal logs
    internal = [Constraints(log_id=log) for log in internal_logs]
    for row in await _ask_any(asker, "historical_metadata", answering, (EVERYTHING, *internal), seconds):
        history[row["log_id"]].append(row)
    missing = [log for log in wanted if log not in history and config.log(log) is not None]
    alone = [Constraints(log_id=log) for log in missing[:_ASKED_ALONE]]
    for row in await _ask_any(asker, "historical_metadata", answering, alone, seconds):
        history[row["log_id"]].append(row)
    for row in await _ask_any(asker, "epoch_store", answering, (EVERYTHING, *internal, *alone), seconds):
        if row["lce"] is not None:
            clean[row["log_id"]] = row["lce"]
    logs = {METADATA_LOGS: [placed_metadata_logs(config, known)]}
    unknown = [_name(config, log) for log in missing if log not in history]
    cramped: set[int] = set()
    for log in sorted(history):
        rows_of_log = history[log]
        if any(row["status"] not in (Status.OK.name, Status.EMPTY.name) for row in rows_of_log):
            unknown.append(_name(config, LogId(log)))
            continue
        last = max((Epoch(row["epoch"]) for row in rows_of_log if row["epoch"] is not None), default=None)
        copies = None
        if copysets and last is not None:
            copies = await _copies(config, asker, LogId(log), compose_lsn(last, ESN_MAX), seconds)
        epochs = placed_epochs(config, known, rows_of_log, clean.get(log), copies)
        if epochs:
            logs[_name(config, LogId(log))] = epochs
            cramped |= {log} if any(map(is_cramped, epochs)) else set()
    if cramped:
        trimmed = await _trim_points(config, asker, answering, cramped, seconds)
        for log in cramped:
            name = _name(config, LogId(log))
            logs[name] = [each for each in logs[name] if not is_trimmed(each, trimmed[log])]
    sequencing = frozenset(node for node in answering if Roles.SEQUENCER in config.nodes[node].roles)
    nodes = {NodeId(row["node_id"]): row for row in found["info"]}
    return Survey(logs, sequencing, dict(silent), unknown, known.shards, nodes, known.rebuildings)


def keep_event_log(config: ClusterConfig, infos: Iterable[Row]) -> bool:
    """Whether all nodes that answer keep the event log. As long as some are of a version that keeps none unless the file asks for it, nothing was lost or drained
    yet, and nobody needs the event log.

    Args:
        infos: rows of table `info`.
    """
    return not config.rebuilding_by_default or all(row.get("keeps_event_log") for row in infos)


async def _check_tree_known(
    config: ClusterConfig, asker: NodeAsker, answering: Sequence[NodeId], seconds: float
) -> None:
    """Who has not read the log tree cannot see whether nodes leave out logs of it: then all of them must have read it."""
    if config.all_logs_known:
        return
    table = TABLES["log_tree_replicas"]
    rows, _ = await asker.ask_each(table, answering, EVERYTHING, None, seconds)
    knowing = {row["node_id"] for row in as_dicts(table, rows) if row["is_known"]}
    others = [f"N{node}" for node in answering if node not in knowing]
    if others:
        raise LogDeviceError(
            Status.AGAIN,
            f"which logs there are is not known: the log tree is not read here, nor by {name_some(others, _LOGS_NAMED)}. Try again soon; "
            "with a cluster file from before the tree was enabled, take that of now (ldctl config show --to FILE)",
        )


async def _ask_any(
    asker: NodeAsker, name: str, answering: Sequence[NodeId], questions: Iterable[Constraints], seconds: float
) -> list[Row]:
    """The rows of a table that any node has, for all questions."""
    table = TABLES[name]
    asked = [asker.ask_any(table, answering, each, None, seconds) for each in questions]
    answers = await asyncio.gather(*asked)
    failures = [failure for _, failed in answers for failure in failed]
    if failures or not answering:
        why = str(failures[0]) if failures else "none answers"
        raise LogDeviceError(Status.AGAIN, f"no node could tell the nodesets of logs: {why}")
    return [row for rows, _ in answers for row in as_dicts(table, rows)]


def is_cramped(epochs: PlacedEpochs) -> bool:
    """Whether earlier epochs lie on so few shards that one of them cannot be spared: only then it matters whether anything is left of them."""
    domains = FailureDomains(epochs.shards, epochs.replication, epochs.labels)
    return not epochs.is_current and not all(
        domains.can_replicate([other for other in epochs.shards if other != shard]) for shard in epochs.shards
    )


def is_trimmed(epochs: PlacedEpochs, trim_points: Mapping[ShardId, Lsn]) -> bool:
    """Whether nobody has anything of earlier epochs any more: each of their shards says so, as retention moves the trim point of one alone."""
    last = compose_lsn(epochs.until, ESN_MAX)
    return not epochs.is_current and all(trim_points.get(shard, 0) >= last for shard in epochs.shards)


async def _trim_points(
    config: ClusterConfig, asker: NodeAsker, answering: Iterable[NodeId], logs: Iterable[int], seconds: float
) -> Mapping[int, Mapping[ShardId, Lsn]]:
    """How far shards say that logs are trimmed."""
    table = TABLES["log_storage_state"]
    storing = [node for node in answering if config.nodes[node].shard_ids()]
    internal = [Constraints(log_id=LogId(log)) for log in logs if is_internal_log(LogId(log))]
    asked = [asker.ask_each(table, storing, each, None, seconds) for each in (EVERYTHING, *internal)]
    found: dict[int, dict[ShardId, Lsn]] = defaultdict(dict)
    for rows, _ in await asyncio.gather(*asked):
        for row in as_dicts(table, rows):
            found[row["log_id"]][shard_id(NodeId(row["node_id"]), row["shard"])] = Lsn(row["trim_point"])
    return found


def _name(config: ClusterConfig, log: LogId) -> str:
    """Internal logs have a path of their kind, which others share."""
    attributes = config.log(log) if is_internal_log(log) else None
    return config.log_name(log) if attributes is None else f"{attributes.path}/{log}"


async def _copies(config: ClusterConfig, asker: NodeAsker, log: LogId, last: Lsn, seconds: float) -> list[Row] | None:
    """None: somebody did not answer."""
    table = TABLES["copyset_distribution"]
    storing = sorted({node_of(shard) for shard in config.storage_shards()})
    everything = Constraints(log_id=log, lsn_min=Lsn(1), lsn_max=last)
    rows, failures = await asker.ask_each(table, storing, everything, None, seconds)
    return None if failures else list(as_dicts(table, rows))


def is_drained(found: Survey, shard: ShardId) -> bool:
    """Whether a shard is empty, as the event log says."""
    row = found.rebuildings.get(shard)
    return row is not None and row["mode"] == RebuildMode.RELOCATE.name and row["status"] == "rebuilt"


def takes_copies(found: Survey, shard: ShardId) -> bool:
    """Whether a shard stores copies of others now, as far as it and the event log say."""
    row = found.shards.get(shard)
    return row is not None and bool(row["accepting_writes"]) and not row["no_space"] and shard not in found.rebuildings


def space_lacking(found: Survey, going: Iterable[ShardId], takers: Iterable[ShardId]) -> str | None:
    """What is said where what shards hold has no room elsewhere; None: it has, as far as is known.

    Args:
        going: whose copies are to be stored elsewhere.
        takers: which store them.
    """
    full = [shard for shard in going if shard in found.shards and not is_drained(found, shard)]
    held = sum(found.shards[shard]["stored_bytes"] for shard in full)
    room = sum(found.shards[shard].get("spare_bytes") or 0 for shard in takers)
    if held <= room:
        return None
    return f"{format_size(held)} are to be stored elsewhere, and the other shards have room for {format_size(room)}"


def _advice_on_space(
    config: ClusterConfig, found: Survey, going: Sequence[tuple[str, frozenset[ShardId]]]
) -> Iterator[str]:
    """Copies of who is away for long are stored elsewhere; who is soon back keeps them."""
    grace = settings_from(RebuildingSettings, config.settings.get("rebuilding", {})).self_initiated_grace_period_us
    if not config.rebuilding_enabled:
        return
    for names, shards in going:
        takers = [shard for shard in config.writable_shards() if shard not in shards and takes_copies(found, shard)]
        if any(found.shards[shard].get("spare_bytes") is None for shard in takers):
            continue  # nodes of an earlier version do not tell
        lacking = space_lacking(found, shards, takers)
        if lacking is not None:
            yield f"{names}: away for longer than {format_duration(grace)}, {lacking}: bring it back before, or trim or add space first"


def impact_on(found: Survey, going: Collection[ShardId]) -> list[LogImpact]:
    """What logs lose that they have now, the worst first."""
    losses = [
        LogImpact(log, each) for log, epochs in found.logs.items() for each in impact(epochs, going) if each.is_new
    ]
    order = list(Loss)
    return sorted(losses, key=lambda each: order.index(each.impact.loss))


def lost_already(found: Survey) -> list[LogImpact]:
    """What logs have lost before anybody goes."""
    return [LogImpact(log, each) for log, epochs in found.logs.items() for each in impact(epochs, ())]


def rows_of(losses: Iterable[LogImpact]) -> list[dict[str, Any]]:
    """A row for each loss, with the logs that have it in common."""
    grouped: dict[tuple[Loss, tuple[ShardId, ...]], list[str]] = defaultdict(list)
    for each in losses:
        logs = grouped[each.impact.loss, each.impact.shards]
        if each.log not in logs:
            logs.append(each.log)
    return [
        {
            "loses": loss.name,
            "logs": len(logs),
            "which": name_some(logs, _LOGS_NAMED),
            "missing then": ", ".join(map(format_shard, shards)),
            "means": loss.value,
        }
        for (loss, shards), logs in grouped.items()
    ]


def report(
    config: ClusterConfig, found: Survey, going: Sequence[tuple[str, frozenset[ShardId]]], *, one_by_one: bool
) -> dict[str, Any]:
    """What is said: whether it is safe, why not, and what would be."""
    names = [name for name, _ in going]
    together = frozenset[ShardId]().union(*(shards for _, shards in going))
    alone = {name: impact_on(found, shards) for name, shards in going}
    losses = [each for of_one in alone.values() for each in of_one] if one_by_one else impact_on(found, together)
    left = found.sequencing - {NodeId(int(name[1:])) for name in names if ":" not in name}
    without_sequencer = bool(found.sequencing) and not left and not (one_by_one and len(found.sequencing) > 1)
    safe = not losses and not without_sequencer and not found.unknown
    advice = []
    if without_sequencer:
        advice.append("no node with the role sequencer would be left: nothing is appended then")
    if away := ", ".join(name for node in found.silent if (name := f"N{node}") not in names):
        advice.append(f"{away}: does not answer and counts as away: bring it back first, then check again")
    if losses and not one_by_one and len(going) > 1 and not any(alone.values()):
        advice.append(
            "one after the other is safe: take the next one when the one before is back and ldctl status is well"
        )
    if losses and all(each.impact.loss is Loss.REBUILDING for each in losses):
        advice.append(
            "a restart does no harm: nobody restores copies elsewhere before a node was away for long "
            f"(ldctl maintenance apply {' '.join(names)} --may-disappear --for 10min)"
        )
    if losses and not advice:
        advice.append("empty the shards first (ldctl drain SHARD --wait), or add nodes; then check again")
    if found.unknown:
        advice.append(
            f"nobody tells the nodesets of {len(found.unknown)} logs, {', '.join(found.unknown[:_LOGS_NAMED])}: unsafe as far as anybody knows"
        )
    advice += _advice_on_space(config, found, going if one_by_one else [(", ".join(names), together)])
    how = "one after the other" if one_by_one else "at once" if len(going) > 1 else ""
    who = f"{', '.join(names)}{f' {how}' if how else ''}"
    verdict = f"safe: {who} may go: {len(found.logs) - 1} logs in use and the {METADATA_LOGS} keep data, reads, appends, recovery and rebuilding"
    return {
        "safe": safe,
        "verdict": verdict if safe else f"not safe: {who}",
        "losses": rows_of(losses),
        "before": rows_of(lost_already(found)),
        "advice": advice,
    }


def _options(options: argparse.ArgumentParser) -> None:
    action = options.add_argument("names", metavar="WHO", nargs="+", help="nodes like N3, or shards like N3:S0")
    complete_words(action, Words.NODES)
    options.add_argument(
        "--one-by-one",
        action="store_true",
        help="each comes back before the next one goes, as in a rolling restart",
    )
    options.add_argument(
        "--copysets",
        action="store_true",
        help="look at where the copies of all entries are, rather than at where they may be; reads the headers of everything",
    )


async def know_all_logs(client: Client, seconds: float) -> None:
    """Wait until the client knows the log tree as it is at this moment, if it follows it: what nodes leave out is noticed then.

    Raises:
        LogDeviceError: TIMEDOUT: it cannot be read.
    """
    if client.log_tree is not None:
        await client.list_logs(timeout=seconds)


async def _check_impact(client: Client, arguments: argparse.Namespace) -> int:
    await know_all_logs(client, arguments.timeout or _SECONDS)
    config = client.config
    going = going_shards(config, arguments.names)
    asker = NodeAsker(config, access_of(arguments))
    try:
        found = await survey(config, asker, arguments.timeout or _SECONDS, copysets=arguments.copysets)
    finally:
        await asker.close()
    told = report(config, found, going, one_by_one=arguments.one_by_one)
    if arguments.json:
        show(arguments, told)
    else:
        show(arguments, {}, plain=told["verdict"])
        if told["losses"]:
            show_rows(arguments, told["losses"], ("loses", "logs", "which", "missing then", "means"))
        for row in told["before"]:
            say(PROGRAM, f"already so: {row['loses']}: {row['which']}: {row['means']}")
        for line in told["advice"]:
            say(PROGRAM, line)
    say_of_nodes(found.silent.items())
    if found.unknown:
        return EXIT_UNANSWERED
    return EXIT_OK if told["safe"] else EXIT_UNHEALTHY


VERBS: tuple[Verb, ...] = (
    Verb(
        "check-impact",
        "what logs lose while nodes or shards are away",
        "Works out from the nodesets of all logs in use, and of the metadata logs, what is lost while these nodes or shards are away, for a while or for good: records (DATA), "
        "READS, APPENDS, RECOVERY after a sequencer dies, and REBUILDING of missing copies. Nodes that do not answer count as away. It changes nothing. "
        "Exit status 0: nothing is lost that is not lost already; 5: something is; 4: not all nodesets could be read. That the others lack room for their copies is said; it loses nothing before these are away for longer than the grace period of rebuilding.",
        _options,
        _check_impact,
    ),
)
