"""``ldctl placement``: how far apart the copies of a log are, and what may fail at once."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from client.cli.options import Words, complete_words
from client.cli.program import EXIT_OK, EXIT_UNANSWERED, EXIT_UNHEALTHY, say
from ldquery.ctl.verb import PROGRAM, Verb, access_of, say_of_nodes, show, show_rows
from ldquery.placement_report import domain_name, placement_rows
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Scope
from logdevice_py.core.ids import LogId, NodeId, node_of
from logdevice_py.core.lsn import Lsn, compose_lsn, epoch_of, esn_of, format_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.placement.survival import Survival, domains_among, in_words, survival
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.storage import LogPlacementRow

if TYPE_CHECKING:
    from client.client import Client

_ENTRIES: Final = 10_000
_SECONDS: Final = 10.0
_SHOWN: Final = ("scope", "domains", "copies in", "asked", "keeps data", "takes appends", "recovers")


def _options(options: argparse.ArgumentParser) -> None:
    complete_words(
        options.add_argument("log", metavar="LOG", help="id of the log, or its path like /team/clicks"), Words.LOGS
    )
    options.add_argument(
        "--all",
        action="store_true",
        help=f"look at all entries instead of the newest {_ENTRIES:,}; reads the whole log",
    )


class PlacementReport:
    """What rows of table `log_placement` say of a log as a whole.

    Args:
        rows: of all nodesets that were looked at.
        silent: nodes that did not answer.
    """

    def __init__(self, config: ClusterConfig, rows: Sequence[LogPlacementRow], silent: Collection[NodeId]) -> None:
        self._config = config
        self._rows = rows
        self._silent = silent
        current = max((row.since_epoch for row in rows), default=0)
        self.entries = sum(row.entries for row in rows if row.scope == "node")
        self.copysets = sum(row.copysets for row in rows if row.scope == "node")
        self.partial = sum(row.entries_partial for row in rows if row.scope == "node")
        self._current = [row for row in rows if row.since_epoch == current]

    def data(self) -> dict[str, Survival]:
        """By scope, large to small, how many domains may be lost so that every entry that was looked at keeps a copy."""
        found: dict[str, Survival] = {}
        for scope in _scopes(self._rows):
            of_scope = [row for row in self._rows if row.scope == scope and row.data_survives is not None]
            if of_scope:
                worst = min(of_scope, key=lambda row: row.data_survives or 0)
                found[scope] = _survival(worst.data_survives, worst.data_fatal)
        return found

    def reads(self) -> dict[str, Survival]:
        """The same for readers, who also ask the shards of metadata logs for the history of nodesets."""
        found = {}
        for scope, of_data in self.data().items():
            of_metadata = self._metadata_logs(Scope[scope.upper()])
            found[scope] = min(of_data, of_metadata, key=lambda each: each.any_of)
        return found

    def appends(self) -> dict[str, Survival]:
        """The same for appends to the current epoch."""
        return {row.scope: _survival(row.appends_survive, row.appends_fatal) for row in self._current}

    def recovery(self) -> dict[str, Survival]:
        """The same for the recovery of the current epoch, when its sequencer dies."""
        return {row.scope: _survival(row.recovery_survives, row.recovery_fatal) for row in self._current}

    def short(self) -> list[str]:
        """What is stored otherwise than is configured, a line each."""
        return [
            f"{row.entries_short} entries of epochs {row.since_epoch} to {row.until_epoch} have copysets in {row.spanned_min} {row.scope}s or more, "
            f"{row.asked} are asked for"
            for row in self._rows
            if row.entries_short
        ]

    def table(self) -> list[dict[str, Any]]:
        """A row a scope, for people."""
        data, shown = self.data(), []
        for row in self._current:
            spans = [
                span
                for each in self._rows
                if each.scope == row.scope
                for span in (each.spanned_min, each.spanned_max)
                if span is not None
            ]
            narrow, wide = min(spans, default=0), max(spans, default=0)
            shown.append(
                {
                    "scope": row.scope,
                    "domains": row.domains,
                    "copies in": "" if not spans else str(narrow) if narrow == wide else f"{narrow} to {wide}",
                    "asked": row.asked,
                    "keeps data": "" if row.scope not in data else _lost(data[row.scope]),
                    "takes appends": _lost(_survival(row.appends_survive, row.appends_fatal)),
                    "recovers": _lost(_survival(row.recovery_survives, row.recovery_fatal)),
                }
            )
        return shown

    def sentences(self) -> list[str]:
        """What the log survives, a line each."""
        needs = {
            "keeps every record that was looked at": self.data(),
            "can be read from its beginning": self.reads(),
            "takes appends": self.appends(),
            "goes on after its sequencer dies": self.recovery(),
        }
        return [f"{need}: {_in_words(survived)}" for need, survived in needs.items() if survived]

    def _metadata_logs(self, scope: Scope) -> Survival:
        config, silent = self._config, self._silent
        kept_by = config.metadata_log
        domains = FailureDomains.by_file(kept_by.nodeset, kept_by.replication, config.location)

        def readable(lost: frozenset[Any]) -> bool:
            left = [shard for shard in domains.shards if shard not in lost and node_of(shard) not in silent]
            return domains.f_majority(left).is_authoritative

        return survival(domains_among(domains.shards, lambda shard: domain_name(config, scope, shard)), readable)


def _scopes(rows: Iterable[LogPlacementRow]) -> list[str]:
    return sorted({row.scope for row in rows}, key=lambda name: -Scope[name.upper()])


def _survival(any_of: int | None, fatal: str) -> Survival:
    return Survival(-1 if any_of is None else any_of, tuple(filter(None, fatal.split(", "))))


def _lost(found: Survival) -> str:
    if found.any_of < 0:
        return "no"
    return f"without any {found.any_of}" + (f", not {' and '.join(found.fatal)}" if found.fatal else "")


def _in_words(survived: Mapping[str, Survival]) -> str:
    if all(found.any_of < 0 for found in survived.values()):
        return "no"
    words = in_words(dict(survived))
    return f"without {words}" if words else "as long as nothing else fails"


def looked_at(states: Iterable[Mapping[str, Any]], *, everything: bool) -> tuple[Lsn, Lsn]:
    """The first and the last LSN of the entries to look at: released ones, the newest or all that are not trimmed.

    Args:
        states: rows of table `log_storage_state`.
    """
    states = list(states)
    last = max((row["last_released"] for row in states), default=0)
    trimmed = max((row["trim_point"] for row in states), default=0)
    first = 1 if everything else compose_lsn(epoch_of(last), max(0, esn_of(last) - _ENTRIES + 1))
    first = max(first, trimmed + 1, 1)
    return Lsn(first), Lsn(max(first, last))


async def _placement(client: Client, arguments: argparse.Namespace) -> int:
    from client.node_tables import NodeAsker, as_dicts

    config, seconds = client.config, arguments.timeout or _SECONDS
    log = config.find_log(arguments.log)
    history, states, copies = (
        TABLES[name] for name in ("historical_metadata", "log_storage_state", "copyset_distribution")
    )
    storing = sorted({node_of(shard) for shard in config.storage_shards()})
    asker, of_log = NodeAsker(config, access_of(arguments)), Constraints(log_id=log)
    try:
        metadata, _ = await asker.ask_any(history, list(config.nodes), of_log, None, seconds)
        stored, _ = await asker.ask_each(states, storing, of_log, None, seconds)
        first, last = looked_at(as_dicts(states, stored), everything=arguments.all)
        of_range = Constraints(log_id=log, lsn_min=first, lsn_max=last)
        stored, not_told = await asker.ask_each(copies, storing, of_range, None, seconds)
    finally:
        await asker.close()
    say_of_nodes((failure.node, failure.detail) for failure in not_told)
    if not metadata:
        raise LogDeviceError(Status.AGAIN, f"no node could tell the nodesets of log {log}")
    silent = frozenset(failure.node for failure in not_told)
    rows = placement_rows(config, log, as_dicts(copies, stored), as_dicts(history, metadata), (first, last), silent)
    report = PlacementReport(config, rows, silent)
    if arguments.json:
        for row in rows:
            show(arguments, asdict(row))
    else:
        _tell(arguments, config, log, report, (first, last))
    for text in report.short():
        say(PROGRAM, text)
    if silent:
        return EXIT_UNANSWERED
    return EXIT_UNHEALTHY if report.short() else EXIT_OK


def _tell(
    arguments: argparse.Namespace,
    config: ClusterConfig,
    log: LogId,
    report: PlacementReport,
    looked_at: tuple[Lsn, Lsn],
) -> None:
    attributes = config.log(log)
    asked = "not configured" if attributes is None else str(attributes.replication)
    entries = f"{report.entries} entries in {report.copysets} copysets, {format_lsn(looked_at[0])} to {format_lsn(looked_at[1])}"
    extras = {"extra copies": attributes.extra_copies} if attributes is not None and attributes.extra_copies else {}
    show(arguments, {"log": config.log_name(log), "replicate": asked, **extras, "looked at": entries})
    show_rows(arguments, report.table(), _SHOWN)
    lines = report.sentences()
    if report.entries and not report.short():
        lines.insert(0, "what is stored satisfies what is configured")
    for line in lines:
        show(arguments, {}, plain=line)


VERBS: tuple[Verb, ...] = (
    Verb(
        "placement",
        "how far apart the copies of a log are, and what may fail at once",
        "Looks at the copysets of the newest entries of a log and prints in how many regions, racks and nodes they lie, and how many of these may fail at once before records "
        "are lost, cannot be read, or appends stop. Nodes that do not answer count as lost. Exit status 5: something is stored otherwise than is configured now.",
        _options,
        _placement,
    ),
)
