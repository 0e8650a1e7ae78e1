"""ldquery as a library: `LDQuery(config).query(sql)`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import apsw

from client.admin_access import AdminAccess
from client.client import read_cluster_file
from client.identity import ClientIdentity
from client.node_tables import NodeAsker, NodeFailure, Row, as_dicts
from indexlog.places import index_logs_of
from ldquery.client_rows import TABLES_OF_CLIENTS, ClientRows
from ldquery.comparison import compare_copies
from ldquery.current_sequencers import with_current
from ldquery.index_logs import IndexLogRows
from ldquery.literals import FUNCTIONS_ELSEWHERE, bind, replace_lsns, tokens
from ldquery.log_status import ASKED, lacks_records, logs_rows
from ldquery.maintenance_rows import MaintenanceRows
from ldquery.namespaces import NamespaceRows
from ldquery.own_client import OwnClient
from ldquery.placement_report import placement_rows
from ldquery.pushdown import Wanted
from ldquery.result import QueryResult
from ldquery.virtual_tables import SQL_TYPES, TableModule
from logdevice_py.config.cluster import ClusterConfig, Roles
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.security import with_files_of
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.lsn import format_lsn
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.suggestion import nearest
from logdevice_py.tables import from_cluster_file
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.cluster import LogsRow
from logdevice_py.tables.constraints import EVERYTHING, Constraints
from logdevice_py.tables.declare import TableDeclaration, TableSource
from logdevice_py.tables.storage import LogPlacementRow, UnderReplicatedRow
from streams.own_logs import namespaces_of

if TYPE_CHECKING:
    from client.client import Client
    from client.sync import SyncClient

DEADLINE: Final = 5.0
"""Seconds that nodes get to answer for one statement, by default."""
ROWS_PER_NODE_MAX: Final = 100_000
"""More rows of one table from one node are refused, unless asked for in full."""
_KIND_OF: Final = {text: kind for kind, text in SQL_TYPES.items()}
_ALLOWED: Final = frozenset(
    {
        apsw.SQLITE_SELECT,
        apsw.SQLITE_READ,
        apsw.SQLITE_FUNCTION,
        apsw.SQLITE_RECURSIVE,
    }
)
_FORBIDDEN_FUNCTIONS: Final = frozenset({"load_extension", "readfile", "writefile", "edit"})
_HEAR_SECONDS: Final = 1.0
"""That nodes get to tell which configuration they use, where nothing else is asked of them."""
T = TypeVar("T")


class _LoopThread:
    """An event loop of our own: SQLite asks for rows from within a call, whatever loop the caller has."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ldquery", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


_STEPS: Final = 100_000
"""Of SQLite's machine, between two looks at signals: some milliseconds."""


class LDQuery:
    """SQL over the live state of a cluster. Use it as a context manager, or close it. For one thread at a time."""

    def __init__(
        self,
        config: str | Path | ClusterConfig,
        *,
        deadline: float = DEADLINE,
        full: bool = False,
        clients: Sequence[Client | SyncClient] = (),
        token_file: str | Path | None = None,
        identity: ClientIdentity | None = None,
    ) -> None:
        """
        Args:
            config: the cluster file, or what it says; where nodes use a later version, they are asked by that.
            deadline: seconds that nodes get to answer for one statement.
            full: fetch tables however large they are.
            clients: of this process, open; what they read stands in table `client_read_streams`, and what holds it up in `waits`.
            token_file: holds the token of the nodes' admin API; by default the file beside the cluster file with its name and the suffix
                .token, if there is one.
            identity: who asks, where the cluster has TLS; None: as the environment says, or the files beside the cluster file, as with `Client`.

        Raises:
            LogDeviceError: INVALID_CONFIG.
        """
        self._file = None if isinstance(config, ClusterConfig) else Path(config)
        self.config = config if isinstance(config, ClusterConfig) else read_cluster_file(config)
        self.deadline = deadline
        self.full = full
        self._clients = [ClientRows(client) for client in clients]
        self._asker = NodeAsker(self.config, AdminAccess.of_program(self._file, token_file, identity))
        self._client = OwnClient(self._file or self.config, identity)
        self._namespaces = NamespaceRows(self._client)
        self._index_logs = IndexLogRows(self._client)
        self._maintenances = MaintenanceRows(self._client)
        self._thread = _LoopThread()
        self._closed = False
        self._ends = 0.0
        self._fetched: dict[tuple[str, Wanted], Sequence[Row]] = {}
        self._failures: dict[NodeId, NodeFailure] = {}
        self._rows_fetched = 0
        self._requests_before = 0
        """Of those that were sent before the statement."""
        self._connection = apsw.Connection(":memory:")
        self._connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)  # "e3n17" is a column's name and no LSN
        for table in TABLES.values():
            module: Any = TableModule(table, self._fetch)
            self._connection.create_module(
                table.name,
                module,
                use_bestindex_object=True,
                eponymous=True,
                eponymous_only=True,
                read_only=True,
            )
        self._connection.create_scalar_function("lsn_text", _lsn_text, 1, deterministic=True)
        self._connection.authorizer = _authorize
        # a statement that never ends can be interrupted: signals are handled when Python runs
        self._connection.set_progress_handler(lambda: False, _STEPS)

    def query(
        self,
        sql: str,
        parameters: Mapping[str, int | float | str | bytes | None] | None = None,
        *,
        rows_max: int | None = None,
    ) -> QueryResult:
        """Run one SELECT.

        Args:
            parameters: values of what stands as :name in the statement, by name; a text like e3n17 is that LSN, as a literal is.
            rows_max: rows of the result at most; `more` of the result says whether there are others. None: all.

        Raises:
            LogDeviceError: SHUTDOWN: the session was closed; INVALID_PARAM: SQLite does not understand it, it is no SELECT, a parameter has no value, or a table needs
                constraints that are missing; TOOBIG: it would fetch too much.
        """
        if self._closed:
            raise LogDeviceError(Status.SHUTDOWN, "the session was closed")
        _check_text(sql)
        statement = replace_lsns(sql)
        values = bind(statement, parameters or {})
        began, requests = time.monotonic(), self._asker.requests
        self._ends = began + self.deadline
        described, rows = self._run(statement, values, rows_max)
        if self._take_newest():
            described, rows = self._run(statement, values, rows_max)
        columns = described[0] if described else ()
        return QueryResult(
            columns=[name for name, _ in columns],
            kinds=[_KIND_OF.get(declared or "") for _, declared in columns],
            rows=rows[:rows_max],
            more=rows_max is not None and len(rows) > rows_max,
            failures=sorted(self._failures.values(), key=lambda failure: failure.node),
            requests=self._asker.requests - requests,
            rows_fetched=self._rows_fetched,
            seconds=time.monotonic() - began,
        )

    def _run(
        self, statement: str, values: Mapping[str, int | float | str | bytes | None], rows_max: int | None
    ) -> tuple[list[Sequence[tuple[str, str | None]]], list[Any]]:
        """Run a statement: its columns and its rows."""
        self._fetched.clear()
        self._failures.clear()
        self._rows_fetched = 0
        self._requests_before = self._asker.requests
        try:
            cursor = self._connection.cursor()
            described: list[Sequence[tuple[str, str | None]]] = []
            cursor.exec_trace = lambda running, *_: _note_columns(running, described)
            rows = list(islice(cursor.execute(statement, values), None if rows_max is None else rows_max + 1))
            cursor.close(True)
        except apsw.Error as error:
            raise LogDeviceError(Status.INVALID_PARAM, _explain(error, statement)) from None
        finally:
            self._fetched.clear()
        return described, rows

    def _take_newest(self) -> bool:
        """Use the configuration that nodes use, if one that answered has a later version: whether there is one. Other nodes are asked then."""
        newest = self._asker.newest
        if newest is None or newest[0] <= self.config.version:
            return False
        table = TABLES["configuration_history"]
        left = max(0.001, (self._ends - time.monotonic()) / 2)
        rows, _ = self._thread.run(self._asker.ask_each(table, [newest[1]], EVERYTHING, None, left))
        texts = [str(row["text"]) for row in as_dicts(table, rows) if row["in_force"]]
        try:
            config = load_cluster(texts[0])
        except (IndexError, LogDeviceError):
            return False  # it is gone, or of a later release: what is known has to do
        if config.uuid != self.config.uuid or config.version <= self.config.version:
            return False
        if self._file is None:
            config = replace(config, settings=with_files_of(config.settings, self.config.settings))
        self.config = config
        self._asker.use_config(config)
        return True

    def interrupt(self) -> None:
        """End the statement that another thread runs: it fails with INVALID_PARAM."""
        self._connection.interrupt()

    def close(self) -> None:
        """Give everything back."""
        if not self._closed:
            self._closed = True
            self._thread.run(self._namespaces.close())
            self._thread.run(self._index_logs.close())
            self._thread.run(self._maintenances.close())
            self._thread.run(self._client.close())
            self._thread.run(self._asker.close())
            self._thread.stop()
            self._connection.close()

    def __repr__(self) -> str:
        where = "" if self._file is None else f" ({self._file})"
        return f"<LDQuery of cluster {self.config.name}{where}: {'closed' if self._closed else 'open'}>"

    def __enter__(self) -> LDQuery:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # Rows

    def _fetch(self, table: TableDeclaration, wanted: Wanted) -> Sequence[Row]:
        if wanted.nothing:
            return ()
        missing = set(table.required) - wanted.constraints.constrained
        if missing:
            raise LogDeviceError(
                Status.INVALID_PARAM,
                f"table {table.name} is read by {' and '.join(table.required)} only: give log_id, and lsn as one value or with both ends, "
                "like log_id = 1 AND lsn BETWEEN 'e1n1' AND 'e3n17'",
            )
        key = (table.name, wanted)
        rows = self._fetched.get(key)
        if rows is None:
            # a join asks for the same again and again
            rows = self._fetched[key] = self._get(table, wanted)
            self._rows_fetched += len(rows)
        return rows

    def _get(self, table: TableDeclaration, wanted: Wanted) -> Sequence[Row]:
        if table.source is TableSource.CONFIGURATION:
            self._hear_of_newest()
            fill: Any = {"nodes": from_cluster_file.nodes_rows, "log_groups": from_cluster_file.log_groups_rows}
            return [table.cells(row) for row in fill[table.name](self.config)]
        if table.source is TableSource.COMPARISON:
            if table.name == "log_placement":
                return [table.cells(row) for row in self._placement(wanted)]
            assert table.name == "under_replicated", table.name
            return [table.cells(row) for row in self._compare(wanted)]
        if table.source is TableSource.SUMMARY:
            assert table.name == "logs", table.name
            return [table.cells(row) for row in self._logs(wanted.constraints.log_id)]
        if table.source in (TableSource.NAMESPACES, TableSource.INDEX_LOGS):
            return [table.cells(row) for row in self._of_tree(table, wanted.constraints.log_id)]
        if table.source is TableSource.MAINTENANCES:
            if not self.config.has_maintenances:
                return ()
            left = max(0.001, self._ends - time.monotonic())
            return [table.cells(row) for row in self._thread.run(self._maintenances.rows(left))]
        nodes = [node for node in self._who(table.source) if wanted.node is None or node == wanted.node]
        # who failed once in a statement is not waited for again
        nodes = [node for node in nodes if node not in self._failures]
        # half of what is left: a node that does not answer must leave the others time for the tables that follow
        seconds = max(0.001, (self._ends - time.monotonic()) / 2)
        limit = None if self.full else ROWS_PER_NODE_MAX
        ask = self._asker.ask_any if table.source is TableSource.ANY_NODE else self._asker.ask_each
        rows, failures = self._thread.run(ask(table, nodes, wanted.constraints, limit, seconds))
        for failure in failures:
            self._failures[failure.node] = failure
        if table.name in TABLES_OF_CLIENTS and wanted.node is None:
            for client in self._clients:
                rows += [(None, *table.cells(row)) for row in client.rows(table.name, wanted.constraints, seconds)]
        return with_current(table, rows)

    def _hear_of_newest(self) -> None:
        """Ask any node which configuration it uses, unless the statement asked one anyway."""
        if self._asker.requests == self._requests_before:
            left = min(_HEAR_SECONDS, max(0.001, (self._ends - time.monotonic()) / 2))
            self._thread.run(
                self._asker.ask_any(TABLES["configuration"], list(self.config.nodes), EVERYTHING, None, left)
            )

    def _of_tree(self, table: TableDeclaration, log: LogId | None) -> Sequence[Any]:
        """Of what has directories of its own in the log tree."""
        tree = as_dicts(TABLES["log_tree"], self._fetch(TABLES["log_tree"], Wanted()))
        live = [row["path"] for row in tree if row["state"] == "live"]
        asked: NamespaceRows | IndexLogRows
        if table.source is TableSource.NAMESPACES:
            asked, places = self._namespaces, namespaces_of(live)
        else:
            asked, places = self._index_logs, index_logs_of(live)
        if not places:
            return ()
        seconds = max(0.001, self._ends - time.monotonic())
        return self._thread.run(asked.rows(table.name, places, log, seconds))

    def _compare(self, wanted: Wanted) -> list[UnderReplicatedRow]:
        constraints = wanted.constraints
        log = constraints.log_id
        assert log is not None, "it is required"
        of_log = Wanted(Constraints(log_id=log))
        return compare_copies(
            self.config,
            log,
            as_dicts(
                TABLES["record"], self._fetch(TABLES["record"], Wanted(replace(constraints, shard=None, bare=True)))
            ),
            as_dicts(TABLES["historical_metadata"], self._fetch(TABLES["historical_metadata"], of_log)),
            as_dicts(TABLES["log_storage_state"], self._fetch(TABLES["log_storage_state"], of_log)),
            frozenset(self._failures),
        )

    def _placement(self, wanted: Wanted) -> list[LogPlacementRow]:
        constraints = wanted.constraints
        log = constraints.log_id
        assert log is not None, "it is required"
        of_log = Wanted(Constraints(log_id=log))
        table = TABLES["copyset_distribution"]
        return placement_rows(
            self.config,
            log,
            as_dicts(table, self._fetch(table, Wanted(replace(constraints, shard=None)))),
            as_dicts(TABLES["historical_metadata"], self._fetch(TABLES["historical_metadata"], of_log)),
            (constraints.lsn_min, constraints.lsn_max),
            frozenset(self._failures),
        )

    def _logs(self, log: LogId | None) -> Iterator[LogsRow]:
        tree = self.config.logs
        if log is None and len(tree) > ROWS_PER_NODE_MAX and not self.full:
            raise LogDeviceError(
                Status.TOOBIG, f"table logs: there are {len(tree)} logs: constrain log_id, or ask for --full"
            )
        logs = list(tree.ids()) if log is None else [log] if tree.group(log) is not None else []
        of_log = Wanted(Constraints(log_id=log))
        found = {name: as_dicts(TABLES[name], self._fetch(TABLES[name], of_log)) for name in ASKED}
        if lacks_records(logs, found["sequencers"]):
            found["epoch_store"] = as_dicts(TABLES["epoch_store"], self._fetch(TABLES["epoch_store"], of_log))
        return logs_rows(self.config, logs, found, self._failures)

    def _who(self, source: TableSource) -> Sequence[NodeId]:
        if source is TableSource.SEQUENCER_NODES:
            return self.config.sequencer_nodes()
        if source is TableSource.STORAGE_NODES:
            return [node for node, member in self.config.nodes.items() if Roles.STORAGE in member.roles]
        return list(self.config.nodes)


def _check_text(sql: str) -> None:
    """INVALID_PARAM for what no statement holds, and what SQLite's interface refuses with an error of its own."""
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise LogDeviceError(Status.INVALID_PARAM, "the statement is no text in UTF-8") from None
    if "\0" in sql:
        raise LogDeviceError(
            Status.INVALID_PARAM, f"the statement holds a null character, behind {sql.index(chr(0))} others"
        )


def _note_columns(cursor: apsw.Cursor, described: list[Sequence[tuple[str, str | None]]]) -> bool:
    """Called before a statement runs: what its columns are."""
    if described:
        raise LogDeviceError(Status.INVALID_PARAM, "one statement at a time")
    described.append(cursor.get_description())
    return True


def _lsn_text(*values: Any) -> str | None:
    value = values[0]
    return format_lsn(value) if isinstance(value, int) and value >= 0 else None


def _authorize(operation: int, first: str | None, second: str | None, *_: Any) -> int:
    """Only what reads tables: no statement may change anything, open a file or load code."""
    if operation == apsw.SQLITE_FUNCTION and second in _FORBIDDEN_FUNCTIONS:
        return apsw.SQLITE_DENY
    return apsw.SQLITE_OK if operation in _ALLOWED else apsw.SQLITE_DENY


def _explain(error: apsw.Error, statement: str) -> str:
    if isinstance(error, apsw.AuthError):
        return "only SELECT is allowed here"
    text = str(error).removeprefix("SQLError: ")
    if missing := text.partition("no such table: ")[2]:
        return f"{text}{_similar(missing, list(TABLES))}; there are {', '.join(TABLES)}"
    if (missing := text.partition("no such function: ")[2].lower()) in FUNCTIONS_ELSEWHERE:
        return f"{text}; {FUNCTIONS_ELSEWHERE[missing]}"
    if missing := text.partition("no such column: ")[2]:
        named = {word.lower() for kind, word in tokens(statement) if kind == "word"}
        tables = [table for name, table in TABLES.items() if name in named]
        columns = list(dict.fromkeys(each.name for table in tables for each in table.columns))
        lists = "".join(f"; {table.name} has {', '.join(each.name for each in table.columns)}" for table in tables)
        return f"{text}{_similar(missing.rpartition('.')[2], columns)}{lists}"
    return text


def _similar(missing: str, names: list[str]) -> str:
    """A question after the name that does not exist, when another is much like it."""
    near = nearest(missing.lower(), names)
    return f", did you mean {near}?" if near else ""
