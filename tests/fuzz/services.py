"""Fuzz targets that need a database or a server: the SQL of ldquery, requests to the admin API, and what nodes answer to ldquery."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw

from client import node_tables
from epoch_store.interface import Result
from ldquery.literals import replace_lsns, tokens
from ldquery.pushdown import Wanted
from ldquery.session import LDQuery
from logdevice_py.config.admin import AdminEndpoint, AdminSettings
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.security import SecuritySettings
from logdevice_py.core.ids import NodeId
from logdevice_py.core.machine import Outbox, TimerQueue
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.shell.proof import Principals
from logdevice_py.shell.settings import RuntimeSettings
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import Constraints
from logdevice_py.tables.declare import ColumnKind, TableDeclaration, TableSource
from server.admin.listener import AdminListener
from server.audit.audit_log import AuditLog
from server.live_settings import LiveSettings
from tests.fuzz.checking import Target
from tests.fuzz.decoders import cluster_seeds, same

# SQL

_STEPS_MAX = 20
"""Looks at the progress of SQLite, each after 1,000 steps of its machine, before a statement is ended: people may write what takes long."""


class _Offline(LDQuery):
    """Tables have rows that are made up, and no node is asked."""

    def __init__(self) -> None:
        super().__init__(load_cluster(cluster_seeds()[0].decode()))
        self.steps = 0
        self._connection.set_progress_handler(self._too_long, 1000)
        self._connection.limit(apsw.SQLITE_LIMIT_LENGTH, 1 << 20)  # zeroblob(1e9) is what it says

    def _too_long(self) -> bool:
        self.steps += 1
        return self.steps > _STEPS_MAX

    def _get(self, table: TableDeclaration, wanted: Wanted) -> Sequence[Any]:
        if table.source in (
            TableSource.SUMMARY,
            TableSource.COMPARISON,
            TableSource.NAMESPACES,
            TableSource.INDEX_LOGS,
            TableSource.MAINTENANCES,
        ):
            return []
        if table.source is TableSource.CONFIGURATION:
            return super()._get(table, wanted)
        assert Constraints.parse(wanted.constraints.parameters()) == wanted.constraints, wanted
        kinds = [column.kind for column in table.columns]
        return [tuple(7 if kind is not ColumnKind.TEXT else "text" for kind in kinds)] * 2


@functools.cache
def _session() -> _Offline:
    return _Offline()


def _sql(data: bytes) -> None:
    statement = data.decode("utf-8", "replace")
    same("".join(text for _, text in tokens(statement)), statement)
    replaced = replace_lsns(statement)
    same(replace_lsns(replaced), replaced)
    session = _session()
    session.steps = 0
    session.query(statement)


def _sql_seeds() -> list[bytes]:
    return [
        b"SELECT node_id, location FROM nodes WHERE sequencer = 0",
        b"SELECT * FROM record WHERE log_id = 1 AND lsn BETWEEN 'e1n1' AND 'e3n17' LIMIT 3",
        b"SELECT count(*) FROM log_storage_state s JOIN nodes n USING (node_id) WHERE s.log_id IN (1, 2) GROUP BY n.location",
        b"WITH t AS (SELECT log_id, max(last_released) r FROM log_storage_state GROUP BY 1) SELECT lsn_text(r) /* c */ FROM t -- end",
        b"SELECT x'00', [name], `n`, 'it''s', $1 FROM info WHERE node_id = 1.0 AND 'a' < lsn_text(9223372036854775807)",
        b"SELECT [[[[[ FROM nodes",
        b"SELECT * FROM stats; SELECT 1",
    ]


# Requests to the admin API


class _Tables:
    """Two rows of whatever table, and no host behind them."""

    sampler = SimpleNamespace(run=lambda: asyncio.sleep(0), process=SimpleNamespace(measure=lambda: None))

    def names(self) -> list[str]:
        return list(TABLES)

    def rows(self, name: str, constraints: Constraints) -> Iterator[Any]:
        table = TABLES[name]
        columns = table.columns[1:] if table.has_node_id else table.columns
        return iter([SimpleNamespace(**{column.name: 7 for column in columns})] * 2)


class _ErrorWatch(logging.Handler):
    """Keeps the records that say that something went wrong."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


async def _drained() -> bool:
    return True


def _audited(what: str, note: Callable[[AuditLog], None]) -> None:
    """As nodes write it, and as one line whatever was asked."""
    outbox = Outbox()
    note(AuditLog(NodeId(0), SecuritySettings(), outbox, TimerQueue(), Principals(), lambda: Timestamp(0)))
    (effect,) = outbox.take()
    assert json.loads(effect.line)["what"] == what
    assert len(effect.line.splitlines()) == 1, effect.line


async def _note_action(who: str, origin: str, what: str, given: Mapping[str, Any], outcome: str) -> None:
    _audited(what, lambda audit: audit.administered(who, origin, what, given, outcome, lambda ok, now: None))


def _note_refusal(who: str, origin: str, what: str) -> None:
    _audited(what, lambda audit: audit.request_refused(who, origin, what, Micros(0)))


async def _no_epoch_store() -> Result:
    return Result(Status.AGAIN)


def _host() -> Any:
    return SimpleNamespace(
        path=Path("cluster.toml"),
        node_id=NodeId(0),
        is_open=True,
        readiness=lambda: Status.OK,
        duties=list,
        health=dict,
        metric_sources=dict,
        config=SimpleNamespace(name="dev", uuid=b"x" * 16, version=1, log=lambda log: None),
        node=SimpleNamespace(sequencer=None, storage=None),
        live_settings=LiveSettings({}, {}),
        configuration=SimpleNamespace(read=_no_epoch_store),
        drain=_drained,
        note_action=_note_action,
        note_refusal=_note_refusal,
        stop_wanted=SimpleNamespace(done=lambda: True),
        runtime=RuntimeSettings(),
    )


_TOKEN = "0123456789abcdef"


class _NoWorker:
    """In place of a process for what the console asks."""

    async def ask(self, what: str, given: Any, *, authorized: bool, seconds: float) -> bytes:
        raise LogDeviceError(Status.FAILED, what)

    async def watch(self, what: str, given: Any, *, authorized: bool) -> AsyncIterator[bytes]:
        yield b"{}"

    async def close(self) -> None:
        pass


class _AdminServer:
    """The listener of the admin API on a socket of this process."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.errors = _ErrorWatch()
        for name in ("logdevice.admin", "asyncio", "aiohttp.server", "aiohttp.web", "aiohttp.internal"):
            logger = logging.getLogger(name)
            logger.addHandler(self.errors)
            logger.propagate = False
        self.listener = AdminListener(
            _host(), AdminSettings(connections_max=10_000), AdminEndpoint("127.0.0.1", 1, True), _TOKEN
        )
        self.listener._tables = _Tables()  # type: ignore[assignment]
        self.listener._console._link = _NoWorker()  # type: ignore[assignment]
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.bind("")  # an abstract address
        self.address = sock.getsockname()
        self.loop.run_until_complete(self.listener.listen_on(sock))

    async def _talk(self, data: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(self.address)
        answer = bytearray()
        try:
            writer.write(data)
            quiet = 0
            while quiet < 6:
                try:
                    piece = await asyncio.wait_for(reader.read(1 << 16), 0.0005)
                except TimeoutError:
                    quiet += 3
                    continue
                if not piece:
                    break
                answer += piece
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()
        return bytes(answer)

    def check(self, data: bytes) -> None:
        """Send bytes; every answer is one of those that are declared."""
        self.errors.records.clear()
        answer = self.loop.run_until_complete(self._talk(data))
        for record in self.errors.records:
            if record.exc_info and record.exc_info[1] is not None:
                raise record.exc_info[1]
            raise AssertionError(record.getMessage())
        for line in answer.split(b"\r\n"):
            assert not line.startswith(b"HTTP/1.1 500 "), answer[:300]


@functools.cache
def _server() -> _AdminServer:
    return _AdminServer()


def _admin(data: bytes) -> None:
    _server().check(data)


def _request(line: str, body: str = "", headers: str = "") -> bytes:
    length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return (
        f"{line} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {_TOKEN}\r\n{headers}{length}\r\n{body}".encode()
    )


def _admin_seeds() -> list[bytes]:
    return [
        _request("GET /v1/health", headers="Expect: 100-continue\r\n"),
        _request("GET /v1/tables"),
        _request("GET /v1/tables/log_storage_state?log_id=7&shard=0&lsn_min=e1n1&lsn_max=17&bare=1&limit=3"),
        _request("GET /v1/openapi.json"),
        _request("GET /") + _request("GET /console/app.js") + _request("GET /v1/console/log?log=1"),
        _request("GET /v1/console/events"),
        _request("POST /v1/console/sql", '{"sql": "SELECT 1"}'),
        _request("POST /v1/actions/set", '{"section": "settings.sequencer", "name": "window", "value": "12"}'),
        _request("POST /v1/actions/start_recovery", '{"log_id": 1}'),
        _request("POST /v1/actions/trim", '{"log_id": 1, "lsn": "e3n17"}'),
        _request("POST /v1/actions/drain", "{}"),
        b"POST /v1/actions/stop HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2\r\n{}\r\n0\r\n\r\n",
        _request("GET /v1/ready") + _request("DELETE /v1/ready") + _request("GET /nothing"),
    ]


# What nodes answer to ldquery


def _answers(data: bytes) -> None:
    """``u8 which table, u8 0 for the status 200``, then the body of the answer."""
    if len(data) < 2:
        return
    table = TABLES[sorted(TABLES)[data[0] % len(TABLES)]]
    _, rows = node_tables.parse_answer(table, 503 if data[1] else 200, data[2:])
    for row in rows:
        assert len(row) == len(table.columns), row


def _answer_seeds() -> list[bytes]:
    found = [b'\x00\x01{"error": {"status": "NOTREADY", "detail": "not yet"}}']
    for index, name in enumerate(sorted(TABLES)):
        names = [column.name for column in TABLES[name].columns]
        for columns in (names, [*names[1:], "later"]):
            rows = [list(range(len(columns))), [None] * len(columns)]
            content = {"cluster": "dev", "node": 1, "columns": columns, "rows": rows, "more": False}
            if len(names) < 6:
                found.append(bytes([index, 0]) + json.dumps(content).encode())
    return found


SERVICES = (
    Target(
        "sql",
        _sql,
        _sql_seeds,
        (LogDeviceError,),
        seconds_max=0.15,  # SQLite's own parser, and ours three times
        words=tuple(b"SELECT FROM WHERE 'e3n17' BETWEEN nodes record log_id lsn /* -- x' [ \"".split()),
    ),
    Target(
        "admin",
        _admin,
        _admin_seeds,
        (),
        tuple(b"GET POST /v1/tables/ /v1/actions/ Authorization: Host: Content-Type: chunked Expect: HTTP/1.1".split()),
    ),
    Target("answers", _answers, _answer_seeds, (LogDeviceError,), (b"[", b"]", b",", b"null", b"{", b'"', b"0", b"[]")),
)
