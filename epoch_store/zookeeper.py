"""An epoch store in ZooKeeper, through kazoo.

Cells are the znodes ``<root>/logdevice/<cluster>/logs/<log>/sequencer``, ``.../lce`` and ``.../shards/N3:S0``; the version of a cell is that of
its znode plus one. Every operation is a read, then a conditional write, then the same again if another writer was faster. Operations are
pipelined.

What can go wrong, and what is done about it:
  - A connection dies while a write is under way: the write may have been made, or may still be made. The cell is read back after the
    reconnection. Only when it holds our own write id at the version that the write makes, it counts as made. Otherwise the operation is
    decided again on what was read; both writes are conditional on a version, so at most one of the two can be made.
  - No connection: operations wait in here, not in kazoo, and are answered AGAIN at their deadline. A late success of a request whose
    operation was answered is ignored.
  - A server from which nothing comes: kazoo looks for that only while nobody asks for anything (a request counts as a sign of life), and waits long
    to connect to one. Requests without an answer are watched in here, and another client takes the place of theirs.
  - A lagging server: reads whose answer counts are preceded by a sync.
  - kazoo's calls may block (on its wake-up pipe, on its locks, in `stop`) and its callbacks run on its threads: calls are made by a thread
    of ours, and callbacks do nothing but post to the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
)
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import make_digest_acl

from epoch_store.cells import Cell, ConditionalWrite, WriteId, decide, decode_cell, is_read, key_of, won_by
from epoch_store.interface import EpochStoreMetrics, Operation, Result, WriterIdentity
from epoch_store.own_failure import own_failure
from epoch_store.zookeeper_sockets import SocketHandler
from logdevice_py.core import marks
from logdevice_py.core.declare import setting
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros

log = logging.getLogger("logdevice.epoch_store")
_LOST = (ConnectionLoss, ConnectionClosedError, SessionExpiredError, SessionMovedError, OperationTimeoutError)
"""The request may have had its effect, or may have none."""
_SILENT_SHARE: Final = 2 / 3
"""Of the session timeout, as kazoo takes it where nobody asks for anything."""
_CONFLICT = (BadVersionError, NodeExistsError)


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperEpochStoreSettings:
    """Settings of an epoch store in ZooKeeper."""

    deadline_us: int = setting(
        5 * SECOND,
        unit="us",
        lo=10 * MILLISECOND,
        hi=600 * SECOND,
        doc="When an operation without an answer fails.",
    )
    session_timeout_us: int = setting(
        4 * SECOND,
        unit="us",
        lo=100 * MILLISECOND,
        hi=600 * SECOND,
        doc="Session timeout asked of ZooKeeper; a server that is silent for two thirds of it is left for another one, as is one that does not begin a session within "
        "this time divided by the number of servers. Nothing is lost with a session.",
    )
    connect_timeout_us: int = setting(
        1500 * MILLISECOND,
        unit="us",
        lo=MILLISECOND,
        hi=60 * SECOND,
        doc="A server to which no connection is made within this time is left for another one.",
    )
    reconnect_delay_us_max: int = setting(
        SECOND, unit="us", lo=MILLISECOND, hi=60 * SECOND, doc="Longest pause between two attempts to connect."
    )
    retry_delay_us: int = setting(
        50 * MILLISECOND,
        unit="us",
        lo=MILLISECOND,
        hi=10 * SECOND,
        doc="Pause before an operation whose connection was lost goes on.",
    )
    requests_in_flight_max: int = setting(
        256,
        unit="requests",
        lo=1,
        hi=100_000,
        doc="How many requests are sent to ZooKeeper before answers are awaited.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ZooKeeperAccess:
    """How a node reaches ZooKeeper, and who it is there."""

    tls: bool = False
    ca: str | None = None
    """File of the certificates of those who sign servers' certificates."""
    certificate: str | None = None
    """File of this node's certificate."""
    key: str | None = None
    """File of its private key; None: it is in the file of the certificate."""
    credentials: tuple[str, str] | None = field(default=None, repr=False)
    """Name and password (digest); None: it does not authenticate."""

    def options(self) -> dict[str, Any]:
        """For kazoo. Files are read for each connection, so new ones need no restart."""
        options: dict[str, Any] = {}
        if self.tls:
            options |= {
                "use_ssl": True,
                "ca": self.ca,
                "certfile": self.certificate,
                "keyfile": self.key or self.certificate,
                "check_hostname": True,
            }
        if self.credentials is not None:
            name, password = self.credentials
            options["auth_data"] = [("digest", f"{name}:{password}")]
            options["default_acl"] = [make_digest_acl(name, password, all=True)]
        return options


class _Kind(enum.Enum):
    READ = enum.auto()  # get the cell
    CREATE = enum.auto()  # make the cell, which was missing
    SET = enum.auto()  # replace the content of the cell at a version
    MAKE_PARENTS = enum.auto()  # make the path above the cell


@dataclass(slots=True, eq=False)
class _Batch:
    done: Callable[[list[Result]], None]
    results: list[Result | None]
    unanswered: int
    calls: list[_Call] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False)
class _Call:
    """One operation until it is answered."""

    operation: Operation
    path: str
    batch: _Batch
    index: int
    attempts: dict[WriteId, ConditionalWrite] = field(default_factory=dict)
    """Writes that were sent and of which it is not known that they failed."""
    request: _Request | None = None
    """What is under way; at most one at a time."""
    answered: bool = False
    doubted: bool = False
    """What was read without a sync would have been the answer: it is read again with one."""


@dataclass(slots=True, eq=False)
class _Request:
    call: _Call
    kind: _Kind
    write: WriteId | None = None
    change: ConditionalWrite | None = None


@dataclass(frozen=True, slots=True)
class _Completed:
    """Posted to the loop: kazoo has an answer."""

    request: _Request
    value: Any
    error: BaseException | None


@dataclass(frozen=True, slots=True)
class _Connection:
    """Posted to the loop: the state of a client's connection changed."""

    client: KazooClient
    connected: bool
    dead: bool
    """The client will not connect again."""


class ZooKeeperEpochStore:
    """An epoch store in ZooKeeper. It connects by itself, for ever, from its construction until `close`."""

    def __init__(
        self,
        hosts: str,
        root: str,
        cluster: str,
        writer: WriterIdentity,
        loop: asyncio.AbstractEventLoop,
        settings: ZooKeeperEpochStoreSettings | None = None,
        access: ZooKeeperAccess | None = None,
    ) -> None:
        """`hosts` like ``host:2181,host2:2181``; `root` is "" or an absolute path."""
        assert not root or (root.startswith("/") and not root.endswith("/")), root
        self.metrics = EpochStoreMetrics()
        self._hosts = hosts
        self._base = f"{root}/logdevice/{cluster}"
        self._writer = writer
        self._loop = loop
        self._settings = settings or ZooKeeperEpochStoreSettings()
        self._access = access or ZooKeeperAccess()
        self._waiting: deque[_Call] = deque()
        self._batches: dict[_Batch, None] = {}
        self._in_flight: set[_Request] = set()
        self._attempts = 0
        self._connected = False
        self._was_connected = False
        self._closed = False
        self._events: deque[_Completed | _Connection] = deque()
        self._posted = False
        self._silence: asyncio.TimerHandle | None = None
        """When requests have been without an answer for too long."""
        self._sockets: SocketHandler | None = None
        """Of the client."""
        self._caller = ThreadPoolExecutor(1, thread_name_prefix="zookeeper-calls")
        self._client = self._start_client()

    def submit(self, operations: Sequence[Operation], done: Callable[[list[Result]], None]) -> None:
        """See `EpochStore.submit`."""
        self.metrics.batches += 1
        self.metrics.operations += len(operations)
        if self._closed or not operations:
            self._loop.call_soon(done, [Result(Status.SHUTDOWN) for _ in operations])
            return
        batch = _Batch(done, [None] * len(operations), len(operations))
        batch.calls = [
            _Call(operation, f"{self._base}/{key_of(operation)}", batch, index)
            for index, operation in enumerate(operations)
        ]
        batch.timer = self._loop.call_later(self._settings.deadline_us / SECOND, self._on_deadline, batch)
        self._batches[batch] = None
        self._waiting.extend(batch.calls)
        self._pump()

    def close(self) -> None:
        """See `EpochStore.close`. The session ends in a thread of its own."""
        if self._closed:
            return
        self._closed = True
        self._connected = False
        if self._silence is not None:
            self._silence.cancel()
        for batch in self._batches:
            assert batch.timer is not None
            batch.timer.cancel()
            for call in batch.calls:
                if not call.answered:
                    call.answered = True
                    batch.results[call.index] = Result(Status.SHUTDOWN, maybe_applied=bool(call.attempts))
            self._loop.call_soon(batch.done, [result for result in batch.results if result is not None])
        self._batches.clear()
        self._waiting.clear()
        self._in_flight.clear()
        self._caller.submit(_stop_in_background, self._client)
        self._caller.shutdown(wait=False)

    # ---- the loop's side

    def _pump(self) -> None:
        """Send what may be sent."""
        if not self._connected:
            return
        requests = []
        while self._waiting and len(self._in_flight) < self._settings.requests_in_flight_max:
            call = self._waiting.popleft()
            if not call.answered:
                requests.append(self._request(call, _Kind.READ))
        if requests:
            self._send(requests)

    def _request(
        self, call: _Call, kind: _Kind, write: WriteId | None = None, change: ConditionalWrite | None = None
    ) -> _Request:
        assert call.request is None
        call.request = _Request(call, kind, write, change)
        self._in_flight.add(call.request)
        return call.request

    def _send(self, requests: list[_Request]) -> None:
        self._caller.submit(self._call_kazoo, self._client, requests)
        if self._silence is None:
            self._watch_silence()

    def _watch_silence(self) -> None:
        """From now on, as long as requests are under way."""
        if self._silence is not None:
            self._silence.cancel()
        seconds = self._settings.session_timeout_us / SECOND * _SILENT_SHARE
        self._silence = self._loop.call_later(seconds, self._on_silence) if self._in_flight else None

    def _on_silence(self) -> None:
        self._silence = None
        if self._connected:
            marks.hit("zookeeper_server_silent")
            log.warning("ZooKeeper: the server does not answer; another connection is made")
            self._connected = False
            self._replace_client(self._client)

    def _drain(self) -> None:
        """Handle what kazoo's threads posted."""
        self._posted = False
        follow_ups: list[_Request] = []
        answered = False
        while self._events:
            event = self._events.popleft()
            if self._closed:
                continue
            if isinstance(event, _Connection):
                self._on_connection(event)
            elif event.request in self._in_flight:
                answered = True
                self._in_flight.discard(event.request)
                event.request.call.request = None
                if not event.request.call.answered:
                    try:
                        follow_ups += self._on_completed(event)
                    except Exception as error:  # noqa: BLE001 - the operations beside it go on
                        self._fail(event.request.call, error)
        if self._closed:
            return
        # an operation is completed before the next one begins
        if follow_ups:
            self._send(follow_ups)
        self._pump()
        if answered:
            self._watch_silence()

    def _on_connection(self, event: _Connection) -> None:
        if event.client is not self._client:
            return
        self._connected = event.connected
        if event.connected:
            if self._was_connected:  # kazoo said that it is gone, and does not say this
                log.info("ZooKeeper: connected again")
            self.metrics.reconnects += self._was_connected
            self._was_connected = True
        if event.dead:
            marks.hit("zookeeper_client_died")
            self._loop.call_later(self._settings.reconnect_delay_us_max / SECOND, self._replace_client, event.client)

    def _replace_client(self, dead: KazooClient) -> None:
        if self._closed or dead is not self._client:
            return
        self._caller.submit(_stop_in_background, dead)
        self._client = self._start_client()
        for request in list(self._in_flight):
            self._in_flight.discard(request)
            request.call.request = None
            self._count_unanswered(request)
            self._enqueue(request.call)

    def _count_unanswered(self, request: _Request) -> None:
        """No answer to it comes any more."""
        if request.kind in (_Kind.CREATE, _Kind.SET):
            self.metrics.unknown_outcomes += 1
            marks.hit("epoch_store_answer_lost")

    def _on_completed(self, event: _Completed) -> list[_Request]:
        """What is to be sent next for the same operation."""
        request, error = event.request, event.error
        call = request.call
        if isinstance(error, _LOST):
            self._count_unanswered(request)
            self._loop.call_later(self._settings.retry_delay_us / SECOND, self._enqueue, call)
            return []
        if request.write is not None and isinstance(error, (*_CONFLICT, NoNodeError)):
            # refused by the server, so this attempt is over
            del call.attempts[request.write]
        if isinstance(error, NoNodeError):
            if request.kind is _Kind.CREATE:
                return [self._request(call, _Kind.MAKE_PARENTS)]
            if request.kind is _Kind.READ:
                return self._on_cell(call, None)
        elif isinstance(error, _CONFLICT):
            self.metrics.conflicts += request.kind is not _Kind.MAKE_PARENTS
        elif error is not None:
            detail = f"ZooKeeper at {self._hosts}, {call.path}: {type(error).__name__} {error}".rstrip()
            self._answer(call, Result(Status.FAILED, detail=detail))
            return []
        elif request.kind is _Kind.READ:
            content, stat = event.value
            return self._on_cell(call, Cell(stat.version + 1, content))
        elif request.kind in (_Kind.CREATE, _Kind.SET):
            assert request.change is not None
            self.metrics.writes += 1
            self._answer(call, request.change.result)
            return []
        return [self._request(call, _Kind.READ)]

    def _on_cell(self, call: _Call, cell: Cell | None) -> list[_Request]:
        if call.attempts:
            won = won_by(cell, call.attempts)
            if won is not None:
                marks.hit("epoch_store_lost_answer_was_won")
                self.metrics.writes += 1
                self._answer(call, won)
                return []
            self._forget_lost_attempts(call, cell)
        self._attempts += 1
        write = WriteId(self._writer, self._attempts)
        decision = decide(call.operation, cell, write)
        if isinstance(decision, Result):
            if not (call.doubted or call.attempts or is_read(call.operation)):
                # a write checks the version that it was made from, a refusal checks nothing
                call.doubted = True
                return [self._request(call, _Kind.READ)]
            self._answer(call, decision)
            return []
        call.attempts[write] = decision
        return [self._request(call, _Kind.CREATE if cell is None else _Kind.SET, write, decision)]

    @staticmethod
    def _forget_lost_attempts(call: _Call, cell: Cell | None) -> None:
        """Another's write at the version that an attempt would have made proves that the attempt was not and will not be made."""
        if cell is None:
            return
        try:
            decode_cell(cell.content)
        except CorruptEntryError:
            return
        for write, attempt in list(call.attempts.items()):
            if attempt.expected_version + 1 == cell.version:
                del call.attempts[write]

    def _enqueue(self, call: _Call) -> None:
        if not call.answered and not self._closed and call.request is None:
            self._waiting.append(call)
            self._pump()

    def _answer(self, call: _Call, result: Result) -> None:
        assert not call.answered
        call.answered = True
        if result.status is not Status.OK and call.attempts:
            result = replace(result, maybe_applied=True)
        batch = call.batch
        batch.results[call.index] = result
        batch.unanswered -= 1
        if batch.unanswered == 0:
            self._finish(batch)

    def _fail(self, call: _Call, error: Exception) -> None:
        """An operation cannot go on, by a bug of ours."""
        if call.request is not None:
            self._in_flight.discard(call.request)
            call.request = None
        if not call.answered:
            self._answer(call, own_failure(call.operation, error, was_written=bool(call.attempts)))

    def _on_deadline(self, batch: _Batch) -> None:
        where = f"ZooKeeper at {self._hosts} did not answer"
        for call in batch.calls:
            if not call.answered:
                self.metrics.unavailable += 1
                if call.attempts:
                    self._answer(call, Result(Status.TIMEDOUT, detail=where))
                else:
                    self._answer(call, Result(Status.AGAIN, detail=where))

    def _finish(self, batch: _Batch) -> None:
        assert batch.timer is not None
        batch.timer.cancel()
        del self._batches[batch]
        results = [result for result in batch.results if result is not None]
        assert len(results) == len(batch.results)
        # in a turn of its own, so that whatever goes wrong in it does not stop the others
        self._loop.call_soon(batch.done, results)

    # ---- other threads

    def _start_client(self) -> KazooClient:
        last = None if self._sockets is None else self._sockets.last
        self._sockets = SocketHandler(Micros(self._settings.connect_timeout_us), last)
        client = KazooClient(
            hosts=self._hosts,
            handler=self._sockets,
            timeout=self._settings.session_timeout_us / SECOND,
            connection_retry={
                "max_tries": -1,
                "delay": 0.05,
                "backoff": 2,
                "max_delay": self._settings.reconnect_delay_us_max / SECOND,
            },
            **self._access.options(),
        )
        client.add_listener(partial(self._on_state, client))
        self._caller.submit(client.start_async)
        return client

    def _on_state(self, client: KazooClient, state: str) -> None:
        """On a thread of kazoo's."""
        dead = state == KazooState.LOST and client.client_state in (KeeperState.CLOSED, KeeperState.AUTH_FAILED)
        self._post(_Connection(client, state == KazooState.CONNECTED, dead))

    def _call_kazoo(self, client: KazooClient, requests: Iterable[_Request]) -> None:
        """On the caller thread."""
        synced = False
        for request in requests:
            call, change = request.call, request.change
            try:
                if request.kind is _Kind.READ:
                    if not synced and (call.attempts or call.doubted or is_read(call.operation)):
                        # of this session only: it is done before the reads that follow
                        client.sync_async("/")
                        synced = True
                    pending = client.get_async(call.path)
                elif request.kind is _Kind.MAKE_PARENTS:
                    pending = client.ensure_path_async(call.path.rpartition("/")[0])
                else:
                    assert change is not None
                    if request.kind is _Kind.CREATE:
                        pending = client.create_async(call.path, change.content)
                    else:
                        pending = client.set_async(call.path, change.content, change.expected_version - 1)
            except Exception as error:  # noqa: BLE001 - without an answer it would count as under way for ever
                self._post(_Completed(request, None, error))
            else:
                pending.rawlink(partial(self._on_kazoo_answer, request))

    def _on_kazoo_answer(self, request: _Request, answer: Any) -> None:
        """On a thread of kazoo's."""
        error = answer.exception
        self._post(_Completed(request, answer.value if error is None else None, error))

    def _post(self, event: _Completed | _Connection) -> None:
        """Hand an event to the loop; one wake-up serves all events until the loop looks."""
        self._events.append(event)
        if not self._posted:
            self._posted = True
            # a loop that is closed has nobody left to hear the answer
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._drain)


def _stop_in_background(client: KazooClient) -> None:
    """`stop` waits for the server, so it gets a thread that does not keep the process alive."""

    def stop() -> None:
        with contextlib.suppress(KazooException):
            client.stop()
            client.close()

    threading.Thread(target=stop, name="zookeeper-stop", daemon=True).start()
