"""What the console asks the cluster when somebody opens a page: logs, one log, records, SQL. Runs in the worker."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from client.identity import ClientIdentity
from client.node_tables import NodeAsker, as_dicts
from client.read.items import CorruptRecord, Gap, Record
from ldquery.ctl.health import all_of, ask_in_turn
from ldquery.log_status import ASKED as LOG_TABLES
from ldquery.log_status import lacks_records, logs_rows
from logdevice_py.config.attributes import LogAttributes
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.ids import LogId, node_of
from logdevice_py.core.lsn import LSN, Lsn, compose_lsn, epoch_of, esn_of, format_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING, Constraints
from logdevice_py.tables.declare import ColumnKind, TableDeclaration
from server.console.log_names import log_name

if TYPE_CHECKING:
    from client.client import Client

SECONDS: Final = 5.0
LOGS_MAX: Final = 20_000
RECORDS_MAX: Final = 200
PAYLOAD_SHOWN: Final = 4096
"""Bytes of a payload that are sent to a browser."""
_PAYLOADS_MAX: Final = 8 << 20
SQL_ROWS_MAX: Final = 2000
SQL_SECONDS: Final = 4.0
_SAFE: Final = (1 << 53) - 1
"""JavaScript knows no larger integers."""
_COPIES_LOOKED_AT: Final = 2000
Row = Mapping[str, Any]


def shown_cell(kind: ColumnKind | None, cell: Any) -> Any:
    """A cell as a browser can hold it: LSNs as people write them, large integers and blobs as text."""
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else str(cell)  # JSON has no infinity
    if cell is None:
        return cell
    if isinstance(cell, bytes):
        return f"x'{cell[:PAYLOAD_SHOWN].hex()}'"
    if isinstance(cell, int):
        if kind is ColumnKind.LSN:
            return format_lsn(Lsn(cell))
        return cell if -_SAFE <= cell <= _SAFE else str(cell)
    return cell


def shown_rows(table: TableDeclaration, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows of a table with cells as `shown_cell`."""
    kinds = {column.name: column.kind for column in table.columns}
    return [{name: shown_cell(kinds.get(name), cell) for name, cell in row.items()} for row in rows]


def log_argument(config: ClusterConfig, given: Mapping[str, Any]) -> LogId:
    """The log that a request names by id or path.

    Raises:
        LogDeviceError: INVALID_PARAM; NOTFOUND.
    """
    name = str(given.get("log", ""))
    if not name:
        raise LogDeviceError(Status.INVALID_PARAM, "log: is missing: its id or path")
    return config.find_log(int(name) if name.isascii() and name.isdigit() else name)


async def list_logs(config: ClusterConfig, asker: NodeAsker, only: Collection[LogId] | None = None) -> dict[str, Any]:
    """Every log, with what its sequencer, its shards and the epoch store say of it.

    Args:
        only: these, of which those that are not configured are left out; None: all.
    """
    began = time.process_time()
    logs = [log for log in config.log_ids() if only is None or log in only]
    nodes = list(config.nodes)
    by_node, silent = await ask_in_turn(asker, nodes, (LOG_TABLES[:1], LOG_TABLES[1:]), SECONDS)
    found = {name: all_of(by_node, name) for name in LOG_TABLES}
    answering = [node for node in nodes if node not in silent]
    if lacks_records(logs, found["sequencers"]) and answering:
        table = TABLES["epoch_store"]
        rows, _ = await asker.ask_any(table, answering, EVERYTHING, None, SECONDS)
        found[table.name] = as_dicts(table, rows)
    table = TABLES["logs"]
    asked = {group.path: group.attributes for group in config.groups()}
    shown = []
    for row in shown_rows(table, [asdict(row) for row in logs_rows(config, logs[:LOGS_MAX], found, silent)]):
        group = config.group(LogId(row["log_id"]))
        attributes = None if group is None else asked.get(group.path)
        row["replicate"] = "" if attributes is None else str(attributes.replication)
        shown.append(row)
    return {
        "logs": shown,
        "left_out": max(0, len(logs) - LOGS_MAX),
        "silent": {f"N{node}": why for node, why in silent.items()},
        "took_us": round((time.process_time() - began) * 1e6),
    }


async def describe_log(config: ClusterConfig, asker: NodeAsker, given: Mapping[str, Any]) -> dict[str, Any]:
    """One log: its sequencer, nodesets and epochs, what its shards know, where copies are and what may fail."""
    from ldquery.ctl.placement import PlacementReport, looked_at
    from ldquery.placement_report import placement_rows

    log = log_argument(config, given)
    nodes, of_log = list(config.nodes), Constraints(log_id=log)
    names = ("sequencers", "recoveries", "log_storage_state", "waits", "append_throughput", "logsdb_directory")
    by_node, silent = await ask_in_turn(asker, nodes, (("info",), (*names, "under_replicated_logs")), SECONDS, of_log)
    found = {name: all_of(by_node, name) for name in by_node}
    answering = [node for node in nodes if node not in silent] or nodes
    tables = (TABLES["historical_metadata"], TABLES["epoch_store"])
    answers = await asyncio.gather(*(asker.ask_any(each, answering, of_log, None, SECONDS) for each in tables))
    history, store = (as_dicts(table, rows) for table, (rows, _) in zip(tables, answers, strict=True))
    first, last = looked_at(found["log_storage_state"], everything=False)
    # who was silent is not waited for again: a node that hangs takes the time that the whole answer has
    storing = sorted({node_of(shard) for shard in config.storage_shards()} - silent.keys())
    copies = TABLES["copyset_distribution"]
    of_range = Constraints(log_id=log, lsn_min=first, lsn_max=last)
    cells, failures = await asker.ask_each(copies, storing, of_range, None, SECONDS)
    stored = as_dicts(copies, cells)
    not_told = frozenset(failure.node for failure in failures) | silent.keys()
    placed = placement_rows(config, log, stored, history, (first, last), not_told)
    report = PlacementReport(config, placed, not_told)
    summary = next(logs_rows(config, [log], {**found, "epoch_store": store}, silent))
    group = config.group(log)
    counts: dict[str, int] = {}
    for row in stored:
        counts[row["copyset"]] = max(counts.get(row["copyset"], 0), row["entries"])
    return {
        "log": str(log),  # JavaScript knows no integers as large as ids of internal logs
        "path": log_name(config, log),
        "summary": shown_rows(TABLES["logs"], [asdict(summary)])[0],
        "attributes": {} if group is None else _attributes(group.attributes),
        "sequencers": shown_rows(TABLES["sequencers"], found["sequencers"]),
        "recoveries": shown_rows(TABLES["recoveries"], found["recoveries"]),
        "states": shown_rows(TABLES["log_storage_state"], found["log_storage_state"]),
        "waits": shown_rows(TABLES["waits"], found["waits"]),
        "history": shown_rows(TABLES["historical_metadata"], history),
        "store": shown_rows(TABLES["epoch_store"], store),
        "survives": report.sentences(),
        "short": report.short(),
        "placement": report.table(),
        "copysets": [
            {"copyset": name, "entries": count}
            for name, count in sorted(counts.items(), key=lambda each: -each[1])[:50]
        ],
        "entries_looked_at": [format_lsn(first), format_lsn(last)],
        "silent": {f"N{node}": why for node, why in silent.items()},
    }


async def check_impact(config: ClusterConfig, asker: NodeAsker, given: Mapping[str, Any]) -> dict[str, Any]:
    """What logs lose while nodes or shards are away: as ``ldctl check-impact``.

    Args:
        given: `who`: names like N3 or N3:S0, separated by commas; `one_by_one`: 1.
    """
    from ldquery.ctl.impact import going_shards, report, survey

    names = [name.strip() for name in str(given.get("who", "")).split(",") if name.strip()]
    if not names:
        raise LogDeviceError(Status.INVALID_PARAM, "who: is missing: nodes like N3, or shards like N3:S0")
    going = going_shards(config, names)
    return report(config, await survey(config, asker, SECONDS), going, one_by_one=given.get("one_by_one") == "1")


def _attributes(attributes: LogAttributes) -> dict[str, Any]:
    """As JSON can hold them."""
    values = {field.name: getattr(attributes, field.name) for field in fields(attributes)}
    plain = {name: value if isinstance(value, bool | int) else str(value) for name, value in values.items()}
    return {**plain, "durability": attributes.durability.name.lower()}


async def read_records(client: Client, given: Mapping[str, Any]) -> dict[str, Any]:
    """Some records from a position on, with the gaps between them.

    Args:
        given: `log`; `from`: an LSN, `oldest`, or `tail` for the newest ones; `limit`.
    """
    log = log_argument(client.config, given)
    limit = _count(given.get("limit"), 50, RECORDS_MAX)
    tail = await client.tail_lsn(log, timeout=SECONDS)
    start = await _start(client, log, str(given.get("from") or "tail"), Lsn(tail), limit)
    before = await _lsns_before(client, log, start, limit)
    items: list[dict[str, Any]] = []
    records, sent, note = 0, 0, ""
    following = int(start)
    if start <= tail:
        async with client.reader(log, start=start, until=tail) as reader:
            try:
                while records < limit and sent < _PAYLOADS_MAX:
                    batch = await reader.read(limit - records, timeout=SECONDS)
                    if not batch:
                        following = tail + 1
                        break
                    for item in batch:
                        items.append(_shown_item(item))
                        if isinstance(item, Gap):
                            following = item.hi + 1
                            continue
                        records += 1
                        following = item.lsn + 1
                        sent += min(PAYLOAD_SHOWN, len(item.payload)) if isinstance(item, Record) else 0
            except LogDeviceError as error:
                if error.status is not Status.TIMEDOUT:
                    raise
                note = error.detail
    return {
        "log": str(log),
        "path": log_name(client.config, log),
        "from": format_lsn(start),
        "next": format_lsn(Lsn(following)) if following <= tail else None,
        "previous": None if before is None else format_lsn(before),
        "tail": format_lsn(tail),
        "items": items,
        "note": note,
    }


def _count(text: Any, default: int, most: int) -> int:
    if text in (None, ""):
        return default
    if not (str(text).isascii() and str(text).isdigit() and 0 < int(text) <= most):
        raise LogDeviceError(Status.INVALID_PARAM, f"limit: {str(text)[:20]!r} is no number from 1 to {most}")
    return int(text)


async def _start(client: Client, log: LogId, text: str, tail: Lsn, limit: int) -> Lsn:
    if text == "oldest":
        return Lsn(1)
    if text == "tail":
        return await _lsns_before(client, log, Lsn(tail + 1), limit) or Lsn(1)
    try:
        return Lsn(max(1, LSN.parse(text)))
    except ValueError as error:
        raise LogDeviceError(Status.INVALID_PARAM, f"from: {error}") from None


async def _lsns_before(client: Client, log: LogId, end: Lsn, count: int) -> Lsn | None:
    """Where to begin so that so many LSNs with entries lie before `end`, as far as there are so many; None: nothing lies before it.

    Most LSNs between two epochs never held anything: of earlier epochs the log has to tell where they ended.
    """
    left = count - max(0, esn_of(end) - 1)
    if left <= 0:
        return Lsn(end - count)
    begin = compose_lsn(epoch_of(end), 1) if left < count else None
    try:
        segments = await client.segments(log, timeout=SECONDS)
    except LogDeviceError as error:
        if error.status not in (Status.PARTIAL, Status.TIMEDOUT):
            raise
        return begin  # too few shards tell where earlier epochs ended
    for segment in reversed(segments):
        if segment.epoch >= epoch_of(end) or segment.last_lsn is None:
            continue
        begin = Lsn(max(segment.first_lsn, segment.trimmed_to + 1, segment.last_lsn - left + 1))
        left -= segment.last_lsn - begin + 1
        if left <= 0:
            break
    return begin


def _shown_item(item: Record | CorruptRecord | Gap) -> dict[str, Any]:
    if isinstance(item, Gap):
        return {
            "gap": item.kind.name,
            "lo": format_lsn(item.lo),
            "hi": format_lsn(item.hi),
            "loss": "" if item.loss is None else str(item.loss),
        }
    shown: dict[str, Any] = {"lsn": format_lsn(item.lsn), "offset": item.batch_offset, "time": item.timestamp}
    if isinstance(item, CorruptRecord):
        return {**shown, "corrupt": True}
    key = item.key
    return {
        **shown,
        "key": None if key is None else key[:PAYLOAD_SHOWN].hex(),
        "size": len(item.payload),
        "payload": item.payload[:PAYLOAD_SHOWN].hex(),
    }


def run_sql(
    config: ClusterConfig | Path, statement: str, token_file: Path | None, identity: ClientIdentity | None = None
) -> dict[str, Any]:
    """One SELECT; blocks. A statement that takes too long is ended.

    Args:
        config: a cluster file, whose token is used; or what it says, then none is.
    """
    import threading

    try:
        from ldquery.session import LDQuery
    except ImportError as error:
        raise LogDeviceError(
            Status.NOTSUPPORTED,
            f"SQL needs the extra `query` on this node: pip install 'logdevice-py[query]' ({error})",
        ) from None
    with LDQuery(config, token_file=token_file, identity=identity) as session:
        timer = threading.Timer(SQL_SECONDS, session.interrupt)
        timer.start()
        try:
            result = session.query(statement, rows_max=SQL_ROWS_MAX)
        except LogDeviceError as error:
            if not timer.is_alive():
                raise LogDeviceError(Status.TIMEDOUT, f"it took longer than {SQL_SECONDS:g} s, and was ended") from None
            raise error
        finally:
            timer.cancel()
    return {
        "columns": result.columns,
        "kinds": [None if kind is None else kind.value for kind in result.kinds],
        "rows": [[shown_cell(kind, cell) for kind, cell in zip(result.kinds, row, strict=True)] for row in result.rows],
        "more": result.more,
        "failures": [str(failure) for failure in result.failures],
        "requests": result.requests,
        "rows_fetched": result.rows_fetched,
        "seconds": round(result.seconds, 3),
    }


def list_tables() -> list[dict[str, Any]]:
    """What SQL can be asked for."""
    return [
        {
            "name": table.name,
            "rows": table.doc,
            "required": list(table.required),
            "columns": [[column.name, column.kind.value] for column in table.columns],
        }
        for table in TABLES.values()
    ]
