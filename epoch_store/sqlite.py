"""An epoch store in an SQLite file: for clusters whose nodes are all on one machine.

Write-ahead log with ``synchronous=FULL``: a commit is on disk before it is answered. One thread owns the connection; everything submitted
while it works is its next batch, in one transaction that takes the write lock first, so a batch neither loses against other processes
nor waits for the disk more than once. A transaction that fails to begin changed nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from epoch_store.cells import Cell, ConditionalWrite, WriteId, decide, is_read, key_of
from epoch_store.interface import EpochStoreMetrics, Operation, Result, WriterIdentity
from epoch_store.own_failure import own_failure
from logdevice_py.core.declare import setting
from logdevice_py.core.ids import InstanceId, NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND

APPLICATION_ID: Final = 0x4C444550
"""Marks the file as an epoch store."""
SCHEMA_VERSION: Final = 1
_SCHEMA: Final = """
    CREATE TABLE cells (
        cluster TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, content BLOB NOT NULL,
        PRIMARY KEY (cluster, key)
    ) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteEpochStoreSettings:
    """Settings of an epoch store in an SQLite file."""

    busy_timeout_us: int = setting(
        5 * SECOND,
        unit="us",
        lo=1_000,
        hi=600 * SECOND,
        doc="How long a batch waits for other processes that write to the epoch store's file before it is answered AGAIN.",
    )
    operations_per_transaction_max: int = setting(
        2_000, unit="operations", lo=1, hi=1_000_000, doc="How many operations go into one transaction at most."
    )


@dataclass(slots=True)
class _Batch:
    operations: tuple[Operation, ...]
    done: Callable[[list[Result]], None]


class SqliteEpochStore:
    """An epoch store in the file `path`, which is created when it is missing; its directory must exist."""

    def __init__(
        self,
        path: str,
        cluster: str,
        writer: WriterIdentity,
        loop: asyncio.AbstractEventLoop,
        settings: SqliteEpochStoreSettings | None = None,
    ) -> None:
        self.metrics = EpochStoreMetrics()
        self._settings = settings or SqliteEpochStoreSettings()
        self._loop = loop
        self._file = SqliteFile(path, cluster, writer, self._settings, self.metrics)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="epoch-store")
        self._waiting: list[_Batch] = []
        self._running: list[_Batch] = []
        self._closed = False

    def submit(self, operations: Sequence[Operation], done: Callable[[list[Result]], None]) -> None:
        """See `EpochStore.submit`. An operation waits at most for the batch before it and the busy timeout."""
        batch = _Batch(tuple(operations), done)
        self.metrics.batches += 1
        self.metrics.operations += len(batch.operations)
        if self._closed:
            self._loop.call_soon(done, [Result(Status.SHUTDOWN) for _ in batch.operations])
            return
        self._waiting.append(batch)
        if not self._running:
            self._run_next()

    def close(self) -> None:
        """See `EpochStore.close`. A transaction that is under way is completed or rolled back in its thread."""
        if self._closed:
            return
        self._closed = True
        for batch in self._waiting:
            self._loop.call_soon(batch.done, [Result(Status.SHUTDOWN) for _ in batch.operations])
        for batch in self._running:
            results = [Result(Status.SHUTDOWN, maybe_applied=not is_read(operation)) for operation in batch.operations]
            self._loop.call_soon(batch.done, results)
        self._waiting, self._running = [], []
        self._thread.submit(self._file.close)
        self._thread.shutdown(wait=False)

    def _run_next(self) -> None:
        self._running, self._waiting = self._waiting, []
        operations = [operation for batch in self._running for operation in batch.operations]
        self._thread.submit(self._file.run, operations).add_done_callback(self._post)

    def _post(self, finished: Future[list[Result]]) -> None:
        """On the store's thread."""
        # a loop that is closed has nobody left to hear the answer
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._finish, finished)

    def _finish(self, finished: Future[list[Result]]) -> None:
        if self._closed:
            return
        answered, self._running = self._running, []
        error = finished.exception()
        if error is None:
            results = finished.result()
        else:
            operations = [operation for batch in answered for operation in batch.operations]
            results = [own_failure(operation, error, was_written=True) for operation in operations]
        if self._waiting:
            self._run_next()
        at = 0
        for batch in answered:
            # in a turn of its own, so that whatever goes wrong in it does not stop the others
            self._loop.call_soon(batch.done, results[at : at + len(batch.operations)])
            at += len(batch.operations)


class SqliteFile:
    """The connection to the file. Used by one thread only."""

    def __init__(
        self,
        path: str,
        cluster: str,
        writer: WriterIdentity,
        settings: SqliteEpochStoreSettings,
        metrics: EpochStoreMetrics,
    ) -> None:
        self._path = path
        self._cluster = cluster
        self._writer = writer
        self._settings = settings
        self._metrics = metrics
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._attempts = 0

    def run(self, operations: Sequence[Operation]) -> list[Result]:
        """Run operations in as few transactions as the limit allows."""
        size = self._settings.operations_per_transaction_max
        results: list[Result] = []
        for at in range(0, len(operations), size):
            results += self._run_transaction(operations[at : at + size])
        return results

    def close(self) -> None:
        """Close the connection; the last one that is closed folds the write-ahead log into the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    def _run_transaction(self, operations: Sequence[Operation]) -> list[Result]:
        writes = not all(map(is_read, operations))
        committing = False
        try:
            connection = self.connection()
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            try:
                results = [self._apply(connection, operation) for operation in operations]
                committing = True
                connection.execute("COMMIT")
            finally:
                if connection.in_transaction:
                    with contextlib.suppress(sqlite3.Error):
                        connection.execute("ROLLBACK")
        except (sqlite3.Error, OSError) as error:
            return self._failed(operations, error, committing)
        return results

    def _failed(self, operations: Sequence[Operation], error: Exception, committing: bool) -> list[Result]:
        self._metrics.unavailable += len(operations)
        detail = f"{self._path}: {error}"
        busy = getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        if busy:
            # a commit that could not get its lock was rolled back
            detail += f" by another process for more than {self._settings.busy_timeout_us // 1_000} ms"
            return [Result(Status.AGAIN, detail=detail) for _ in operations]
        # after an error of the disk the state of the connection is not to be trusted: begin with a fresh one
        self.close()
        return [
            Result(Status.FAILED, detail=detail, maybe_applied=committing and not is_read(operation))
            for operation in operations
        ]

    def _apply(self, connection: sqlite3.Connection, operation: Operation) -> Result:
        key = key_of(operation)
        row = connection.execute(
            "SELECT version, content FROM cells WHERE cluster = ? AND key = ?", (self._cluster, key)
        ).fetchone()
        self._attempts += 1
        try:
            decision = decide(operation, None if row is None else Cell(*row), WriteId(self._writer, self._attempts))
        except Exception as error:  # noqa: BLE001 - who asked for something else in this transaction goes on
            return own_failure(operation, error, was_written=False)
        if not isinstance(decision, ConditionalWrite):
            return decision
        if decision.expected_version == 0:
            changed = connection.execute(
                "INSERT INTO cells VALUES (?, ?, 1, ?)", (self._cluster, key, decision.content)
            ).rowcount
        else:
            changed = connection.execute(
                "UPDATE cells SET version = version + 1, content = ? WHERE cluster = ? AND key = ? AND version = ?",
                (decision.content, self._cluster, key, decision.expected_version),
            ).rowcount
        assert changed == 1, "the transaction holds the write lock, so the version cannot have changed"
        self._metrics.writes += 1
        return decision.result

    def connection(self) -> sqlite3.Connection:
        """The connection, made when there is none.

        A file that was removed or replaced while it was open would live on here without a name, while other processes use another one, and
        both would give the same epochs: that is an error for good.
        """
        if self._connection is not None:
            if self._file_identity() != self._identity:
                raise sqlite3.DatabaseError("the file was removed or replaced while it was in use: restart the node")
            return self._connection
        if self._identity != (0, 0) and self._file_identity() != self._identity:
            raise sqlite3.DatabaseError("the file was removed or replaced while it was in use: restart the node")
        # SQLite makes its other files with the mode of this one
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = sqlite3.connect(
            self._path,
            timeout=self._settings.busy_timeout_us / SECOND,
            isolation_level=None,
            # the thread that closes may be another one at the interpreter's exit
            check_same_thread=False,
        )
        try:
            self._prepare(connection)
        except (sqlite3.Error, OSError):
            connection.close()
            raise
        if self._identity != (0, 0):
            self._metrics.reconnects += 1
        self._connection, self._identity = connection, self._file_identity()
        return connection

    def _file_identity(self) -> tuple[int, int]:
        found = os.stat(self._path)
        return found.st_dev, found.st_ino

    def _prepare(self, connection: sqlite3.Connection) -> None:
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise sqlite3.DatabaseError(f"the file system does not allow a write-ahead log (journal mode is {mode})")
        connection.execute("PRAGMA synchronous = FULL")
        with _transaction(connection):
            application_id = connection.execute("PRAGMA application_id").fetchone()[0]
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if application_id == 0 and version == 0 and tables == 0:
                connection.execute(_SCHEMA)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            elif application_id != APPLICATION_ID:
                raise sqlite3.DatabaseError("the file is a database, but no epoch store")
            elif version != SCHEMA_VERSION:
                raise sqlite3.DatabaseError(
                    f"the epoch store has version {version}; this program knows {SCHEMA_VERSION}"
                )


@contextlib.contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def read_all_cells(path: str, cluster: str) -> dict[str, bytes]:
    """The contents of all cells of a cluster by key, as they are at one moment. Blocks; nodes may run.

    Raises:
        LogDeviceError: FAILED: the file is missing, or no epoch store.
    """
    with _whole_file(path, make=False) as connection:
        rows = connection.execute("SELECT key, content FROM cells WHERE cluster = ?", (cluster,)).fetchall()
    return dict(rows)


def write_all_cells(path: str, cluster: str, cells: Mapping[str, bytes]) -> None:
    """Store the cells of a cluster that has none, all or none of them. Blocks. The file is made when it is missing.

    Raises:
        LogDeviceError: EXISTS: the cluster has some; FAILED: the file cannot be written, or is no epoch store.
    """
    with _whole_file(path, make=True) as connection, _transaction(connection):
        if connection.execute("SELECT count(*) FROM cells WHERE cluster = ?", (cluster,)).fetchone()[0]:
            raise holds_cells(path, cluster)
        rows = [(cluster, key, content) for key, content in sorted(cells.items())]
        connection.executemany("INSERT INTO cells VALUES (?, ?, 1, ?)", rows)


def holds_cells(where: str, cluster: str) -> LogDeviceError:
    """Why nothing is restored: what is there might be newer."""
    return LogDeviceError(
        Status.EXISTS, f'{where} holds epochs of the cluster "{cluster}" already: restore into a place that has none'
    )


@contextlib.contextmanager
def _whole_file(path: str, *, make: bool) -> Iterator[sqlite3.Connection]:
    if not make and not os.path.exists(path):
        raise LogDeviceError(Status.FAILED, f"{path}: there is no such file")
    settings = SqliteEpochStoreSettings()
    file = SqliteFile(path, "", WriterIdentity(NodeId(-1), InstanceId(0)), settings, EpochStoreMetrics())
    try:
        yield file.connection()
    except (sqlite3.Error, OSError) as error:
        raise LogDeviceError(Status.FAILED, f"{path}: {error}") from None
    finally:
        file.close()
