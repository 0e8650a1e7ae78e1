"""``ldctl logs status``: one row a log."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from client.cli.options import Words, complete_words
from client.cli.program import EXIT_OK, EXIT_UNANSWERED
from ldquery.ctl.verb import Verb, access_of, format_size, say_of_nodes, show, show_rows
from ldquery.log_status import ASKED, lacks_records, logs_rows
from logdevice_py.config.logs import LogGroup
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.lsn import format_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.cluster import LogsRow
from logdevice_py.tables.constraints import EVERYTHING, Constraints

if TYPE_CHECKING:
    from client.client import Client

LOGS_MAX: Final = 10_000
_SECONDS: Final = 5.0
_SHOWN: Final = ("log", "path", "sequencer", "epoch", "head", "tail", "stored", "newest time", "rate", "copies")


def _options(options: argparse.ArgumentParser) -> None:
    action = options.add_argument(
        "paths",
        metavar="PATH",
        nargs="*",
        help="a log, a group or a directory, by id, path or pattern like '/team/*' (default: all logs)",
    )
    complete_words(action, Words.LOGS_AND_PATHS)


def chosen_logs(groups: Sequence[LogGroup], matching: Callable[[str], list[LogId]], names: list[str]) -> list[LogId]:
    """The logs that are named, by themselves or with the group or directory that they are in; without names all. Each once, ascending.

    Args:
        groups: all there are.
        matching: the logs of an id, a path or a pattern.
        names: what people write.

    Raises:
        LogDeviceError: NOTFOUND; INVALID_PARAM: a name is malformed, or too many logs are named.
    """
    found: set[LogId] = set()
    for name in names or ["/"]:
        prefix = name.rstrip("/")
        below = [group for group in groups if group.path == prefix or group.path.startswith(f"{prefix}/")]
        count = len(found) + sum(map(len, below))
        if count > LOGS_MAX:
            raise LogDeviceError(
                Status.INVALID_PARAM, f"{name}: means {count} logs, at most {LOGS_MAX} are shown: name some of them"
            )
        found.update(LogId(log) for group in below for log in group.ids())
        if not below and prefix:
            found.update(matching(name))
    return sorted(found)


async def _status(client: Client, arguments: argparse.Namespace) -> int:
    from client.node_tables import NodeAsker, as_dicts  # takes a while that other verbs need not spend
    from ldquery.ctl.health import all_of, ask_in_turn

    config, seconds = client.config, arguments.timeout or _SECONDS
    logs = chosen_logs(list(config.groups()), config.matching_logs, arguments.paths)
    constraints = Constraints(log_id=logs[0]) if len(logs) == 1 else EVERYTHING
    asker, nodes = NodeAsker(config, access_of(arguments)), list(config.nodes)
    try:
        by_node, silent = await ask_in_turn(asker, nodes, (ASKED[:1], ASKED[1:]), seconds, constraints)
        found = {name: all_of(by_node, name) for name in ASKED}
        answering: list[NodeId] = [node for node in nodes if node not in silent]
        if lacks_records(logs, found["sequencers"]) and answering:
            table = TABLES["epoch_store"]
            rows, _ = await asker.ask_any(table, answering, constraints, None, seconds)
            found[table.name] = as_dicts(table, rows)
    finally:
        await asker.close()
    show_rows_of(arguments, list(logs_rows(config, logs, found, silent)))
    say_of_nodes((node, f"what is known there is missing: {why}") for node, why in silent.items())
    return EXIT_UNANSWERED if silent else EXIT_OK


def show_rows_of(arguments: argparse.Namespace, rows: list[LogsRow]) -> None:
    """Print logs: as JSON with the names and values of table `logs`, or as people read it."""
    if arguments.json:
        for row in rows:
            show(arguments, asdict(row))
    else:
        show_rows(arguments, [_readable(row) for row in rows], _SHOWN)


def _readable(row: LogsRow) -> dict[str, Any]:
    rate = None
    if row.entries_1min is not None:
        rate = f"{row.entries_1min:.1f}/s {format_size(round(row.bytes_1min or 0))}/s"
    return {
        "log": row.log_id,
        "path": row.path,
        "sequencer": None if row.sequencer_node_id is None else f"N{row.sequencer_node_id}",
        "epoch": row.epoch,
        "head": None if row.head is None else format_lsn(row.head),
        "tail": None if row.tail is None else format_lsn(row.tail),
        "stored": format_size(row.stored_bytes),
        "newest time": row.newest_time,
        "rate": rate,
        "copies": row.copies,
    }


VERBS: tuple[Verb, ...] = (
    Verb(
        "logs status",
        "one row a log: sequencer, epoch, head, tail, bytes, newest record, rate, copies",
        "Print a row for each log: the node that sequences it, its epoch, the first and the last LSN that can be read, about how many bytes are stored "
        "of it (all copies together; ldctl data-size counts one), the time of its newest record, what was appended per second over the last minute, and whether copies are missing. "
        "With --json the columns of table logs of ldquery, which has those of the cluster file only. Exits with 4 when a node did not answer, so that what it knows is missing.",
        _options,
        _status,
    ),
)
