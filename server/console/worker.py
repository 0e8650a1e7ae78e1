"""The console's worker: a process beside its node that asks the cluster for what browsers want to see.

``python -m server.console.worker CLUSTER_FILE NODE``; requests come by standard input, see `WorkerLink`. It ends with its node.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from client.admin_access import AdminAccess
from client.identity import ClientIdentity
from client.node_tables import NodeAsker, as_dicts
from ldquery.ctl.health import all_of, ask_in_turn, without_followers
from logdevice_py.config.admin import admin_settings
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.security import TLS_OFF, parse_security
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.admin_token import token_beside
from logdevice_py.runtime.tls import TlsFiles
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING
from server.console import questions
from server.console.access import describe_access
from server.console.kept_states import KeptStates
from server.console.state import ASKED, cluster_state

if TYPE_CHECKING:
    from client.client import Client

INTERVAL: Final = 2.0
"""Seconds between two looks at the cluster, at least."""
SHARE: Final = 0.004
"""Of a processor for looks at the cluster: the dearer they are, the less often they are made."""
GLANCE: Final = 1.0
"""Seconds between two glances at what the own node knows of the others: a change is followed by a look at once."""
OFTEN_AFTER: Final = 10.0
"""Seconds after a change for which looks are not rare, however dear: a node that said that it leaves answers for a moment more."""
RATES: Final = 10.0
"""Seconds between two looks at rates: nodes take them every ten seconds."""
STILL: Final = 15.0
"""Seconds without a change after which watchers are told that there is none."""
_MEMORY: Final = 2 << 30
_SECONDS: Final = 3.0


_Given = Mapping[str, Any]
_States = list[tuple[int, Any]]
_OF_NODES: Final[dict[str, Callable[[ClusterConfig, NodeAsker, _Given], Awaitable[Any]]]] = {
    "logs": lambda config, asker, _: questions.list_logs(config, asker),
    "log": questions.describe_log,
    "check": questions.check_impact,
}
_OF_STATES: Final[dict[str, Callable[[KeptStates, NodeAsker, _Given], Awaitable[dict[str, Any]]]]] = {
    "streams": lambda states, asker, _: states.streams(asker),
    "stream": lambda states, _, given: states.stream(given),
    "index-logs": lambda states, *_: states.index_logs(),
    "index-files": lambda states, _, given: states.index_files(given),
    "maintenances": KeptStates.maintenances,
}


class ConsoleWorker:
    """Answers requests, and tells watchers the cluster's state while there are any."""

    def __init__(self, path: Path, node: NodeId, token: str | None) -> None:
        self._path = path
        self._client: Client | None = None
        self._client_opens = asyncio.Lock()
        self._file: tuple[tuple[int, int], ClusterConfig] | None = None
        self._node = node
        self._token = token
        """Shown to other nodes for administrators only, as is the certificate of the node."""
        self._askers: dict[bool, NodeAsker] = {}
        self._running: dict[int, asyncio.Task[None]] = {}
        self._sql = asyncio.Lock()
        self._states = KeptStates(self.opened)

    async def serve(self, requests: asyncio.StreamReader) -> None:
        """Until there are no more requests."""
        while line := await requests.readline():
            request = json.loads(line)
            number = int(request["id"])
            if request["ask"] == "forget":
                task = self._running.pop(number, None)
                if task is not None:
                    task.cancel()
                continue
            if request["ask"] == "alive":
                _say(number, None)
                continue
            self._running[number] = asyncio.create_task(self._answer(number, request))

    async def close(self) -> None:
        """End what is under way."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for asker in self._askers.values():
            await asker.close()
        await self._states.close()
        if self._client is not None:
            await self._client.close()

    async def opened(self) -> Client:
        """Reads records, and knows the logs of the log tree. Opened when it is needed: loading it takes half of the worker's start."""
        from client.client import Client

        async with self._client_opens:
            if self._client is None:
                client = Client(self._path, name="console")
                try:
                    await client.start()
                except BaseException:  # whoever asked went away meanwhile
                    await client.close()
                    raise
                self._client = client
            return self._client

    async def _config(self) -> ClusterConfig:
        """The configuration that is known: the cluster file, read again when it has changed, or what nodes use; with the logs of the log tree."""
        if self._client is not None:
            return self._client.config
        try:
            about = self._path.stat()
            seen = (about.st_mtime_ns, about.st_size)
            if self._file is None or self._file[0] != seen:
                self._file = (seen, load_cluster(self._path.read_text(encoding="utf-8")))
        except (OSError, UnicodeDecodeError, LogDeviceError) as error:
            if self._file is None:  # else: the version that was read before goes on
                raise LogDeviceError(Status.INVALID_CONFIG, f"cannot read {self._path}: {error}") from None
        config = self._file[1]
        return (await self.opened()).config if config.has_log_tree else config

    async def _answer(self, number: int, request: Mapping[str, Any]) -> None:
        authorized = bool(request["authorized"])
        try:
            if request["ask"] == "watch":
                await self._watch(number, authorized)
            else:
                _say(number, await self._ask(request["ask"], request["given"], authorized))
        except LogDeviceError as error:
            _say(number, (error.detail or str(error)) + self._what_helps(error.status), error.status)
        except (ValueError, OverflowError, RecursionError) as error:
            _say(number, str(error), Status.INVALID_PARAM)
        except Exception as error:
            _say(
                number, f"the console failed: {type(error).__name__}: {error}", Status.INTERNAL
            )  # else the page waits for ever
            raise
        finally:
            self._running.pop(number, None)

    def _what_helps(self, status: Status) -> str:
        """The console is a client of the cluster itself, which a person who has shown a token does not see."""
        client = self._client
        if status is not Status.ACCESS or client is None:
            return ""
        own = client.session.routes.principals.own or "anonymous"
        return (
            f" (The console reads this as a client of the cluster, and is {own}: give it the certificate of a principal who may, as "
            f"{self._path.with_suffix('.pem').name} beside the cluster file of this node.)"
        )

    async def _ask(self, what: str, given: Mapping[str, Any], authorized: bool) -> Any:
        config, asker = await self._asked(authorized)
        began = time.process_time()
        if what in _OF_NODES:
            return await _OF_NODES[what](config, asker, given)
        if what in _OF_STATES:
            found = await _OF_STATES[what](self._states, asker, given)
            return {**found, "took_us": round((time.process_time() - began) * 1e6)}
        if what == "access":
            return describe_access(config, self._path, given, shown=authorized, wanted=self._token is not None)
        if what == "records":
            return await questions.read_records(await self.opened(), given)
        if what == "sql":
            if given["sql"] == "":
                return {"tables": questions.list_tables()}
            async with self._sql:
                return await asyncio.to_thread(self._run_sql, config, given["sql"], authorized)
        raise LogDeviceError(Status.NOTFOUND, f"{what}: the console knows no such question")

    def _run_sql(self, config: ClusterConfig, statement: str, authorized: bool) -> Any:
        if not authorized or self._token is None:
            settings = parse_security(config.settings)
            ca = self._path.parent / settings.ca_file if settings.tls != TLS_OFF else None
            return questions.run_sql(config, statement, None, ClientIdentity(ca=ca))
        named = admin_settings(config).token_file
        file = self._path.parent / named if named else token_beside(self._path)
        return questions.run_sql(self._path, statement, file)

    async def _asked(self, authorized: bool) -> tuple[ClusterConfig, NodeAsker]:
        """Who asks nodes with what the viewer has shown. It stays the same, as others may be using it, and asks the nodes of the newest configuration."""
        config = await self._config()
        asker = self._askers.get(authorized)
        if asker is None:
            asker = self._askers[authorized] = NodeAsker(config, self._access(config, authorized))
        asker.use_config(config)
        return config, asker

    def _access(self, config: ClusterConfig, authorized: bool) -> AdminAccess:
        if not authorized:
            return AdminAccess(None, self._path)
        settings = parse_security(config.settings)
        if settings.tls == TLS_OFF:
            return AdminAccess(self._token, self._path)
        files = TlsFiles.of_node(settings, self._path.parent, self._node)
        return AdminAccess(self._token, self._path, ClientIdentity(certificate=files.certificate, key=files.key))

    async def _watch(self, number: int, authorized: bool) -> None:
        told: Any = None
        told_at = 0.0
        rates: list[dict[str, Any]] = []
        rates_at = -RATES
        seen_before: Any = None
        often_until = 0.0
        earlier: Sequence[Mapping[str, Any]] = ()
        while True:
            began, cost = time.monotonic(), time.process_time()
            config, asker = await self._asked(authorized)
            found, silent = await ask_in_turn(asker, list(config.nodes), ASKED, _SECONDS)
            waits = all_of(found, "waits")
            found["waits"] = {node: without_followers(rows, earlier) for node, rows in found["waits"].items()}
            earlier = waits
            if any(row["config_version"] > config.version for rows in found["info"].values() for row in rows):
                # the file of a node says how the cluster was; what is in force nodes tell
                await (await self.opened()).newest_config()
            if began - rates_at >= RATES:
                answering = [node for node in config.sequencer_nodes() if node not in silent]
                table = TABLES["append_throughput"]
                rows, _ = await asker.ask_each(table, answering, EVERYTHING, None, _SECONDS)
                rates, rates_at = as_dicts(table, rows), began
            state = cluster_state(config, self._node, found, silent, rates)
            cost = time.process_time() - cost
            if state != told:
                told, told_at = state, began
                _say(number, {**state, "interval": round(max(INTERVAL, cost / SHARE), 1)})
            elif began - told_at >= STILL:
                told_at = began
                _say(number, None)
            seen = _states_of(found["cluster_state"].get(self._node, ()))
            if seen != seen_before:
                seen_before, often_until = seen, began + OFTEN_AFTER
            apart = INTERVAL if began < often_until else max(INTERVAL, cost / SHARE)
            await self._until_due(began + apart, config, asker, seen)

    async def _until_due(self, due: float, config: ClusterConfig, asker: NodeAsker, seen: _States) -> None:
        """Until the next look is due, or the own node sees another node differently."""
        while (left := due - time.monotonic()) > 0:
            await asyncio.sleep(min(GLANCE, left))
            if left <= GLANCE:
                return
            rows, _ = await asker.ask_each(TABLES["cluster_state"], [self._node], EVERYTHING, None, _SECONDS)
            if _states_of(as_dicts(TABLES["cluster_state"], rows)) != seen or await self._config() is not config:
                return


def _states_of(rows: Iterable[Mapping[str, Any]]) -> _States:
    """Of nodes, as one of them sees them."""
    return [(row["observed_node_id"], row["state"]) for row in rows]


def _say(number: int, content: Any, status: Status = Status.OK) -> None:
    body = json.dumps(content, separators=(",", ":"))
    sys.stdout.buffer.write(f"{number} {status.name} {body}\n".encode())
    sys.stdout.buffer.flush()


async def run(path: Path, node: NodeId) -> None:
    """The program, until its input ends."""
    loop = asyncio.get_running_loop()
    requests = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(requests), sys.stdin.buffer)
    token = json.loads(await requests.readline() or b"{}").get("token")
    worker = ConsoleWorker(path, node, token)
    try:
        await worker.serve(requests)
    finally:
        await worker.close()


def main(arguments: list[str]) -> int:
    """Entry point; the exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # at a terminal the whole group gets it: the node says when to end
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    os.nice(5)  # the node comes first
    try:
        asyncio.run(run(Path(arguments[0]), NodeId(int(arguments[1]))))
    except LogDeviceError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    # a statement that runs in a thread must not keep the process
    status = main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(status)
