"""Gets rows of tables from nodes, in parallel and until a deadline."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import aiohttp

from client.admin_access import AdminAccess
from client.identity import CLEAR_TEXT_VARIABLE, client_contexts
from logdevice_py.config.admin import AdminEndpoint, admin_endpoint, format_address
from logdevice_py.config.cluster import ClusterConfig, NodeConfig
from logdevice_py.config.security import TLS_ACCEPT, parse_security
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.admin_token import SUFFIX
from logdevice_py.runtime.tls import TlsContexts
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING, Constraints
from logdevice_py.tables.declare import Cell, TableDeclaration

_UNAUTHORIZED: Final = 401
HEDGE: Final = 0.3
"""Seconds after which another node is asked for what any node knows."""
Row = Sequence[Cell]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """A node that did not answer for a table, so that its rows are missing."""

    node: NodeId
    table: str
    status: Status
    detail: str

    def __str__(self) -> str:
        return f"N{self.node}: {self.table}: {self.status.name}: {self.detail}"


@dataclass(frozen=True, slots=True)
class AnsweringNode:
    """Who answered for a table."""

    cluster: str
    """The name of the cluster."""
    uuid: str
    """Of the cluster, in hexadecimal; empty: an earlier release, which does not say it."""
    node: int
    config_version: int
    """Of the configuration that it uses; 0: an earlier release, which does not say it."""


class NodeAsker:
    """Asks the nodes of one cluster. Its coroutines run on one loop."""

    def __init__(self, config: ClusterConfig, access: AdminAccess) -> None:
        """
        Args:
            access: with what nodes are asked; its cluster file is that of `config`.
        """
        self._config = config
        self._access = access
        self._contexts: TlsContexts | None = None
        self._session: aiohttp.ClientSession | None = None
        self.requests = 0
        """Requests sent so far."""
        self.newest: tuple[int, NodeId] | None = None
        """The greatest version of the configuration that a node said to use, and that node."""

    def use_config(self, config: ClusterConfig) -> None:
        """Ask the nodes of a newer configuration from here on."""
        self._config = config

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()

    async def ask_each(
        self,
        table: TableDeclaration,
        nodes: Sequence[NodeId],
        constraints: Constraints,
        limit: int | None,
        seconds: float,
        *,
        grace: float | None = None,
    ) -> tuple[list[Row], list[NodeFailure]]:
        """The rows of all the nodes, and those that did not answer within so many seconds.

        Args:
            grace: seconds that the others get once one has answered; None: all that there are.

        Raises:
            LogDeviceError: TOOBIG: a node has more rows than `limit`; INVALID_PARAM: it does not take the request.
        """
        asked = [asyncio.create_task(self._ask(table, node, constraints, limit, seconds)) for node in nodes]
        try:
            if grace is not None:
                await _one_answers(asked)
                await asyncio.wait(asked, timeout=grace)
                for task in asked:
                    task.cancel()
            answers = await asyncio.gather(*asked, return_exceptions=grace is not None)
        finally:
            for task in asked:
                task.cancel()
        rows: list[Row] = []
        failures = []
        for node, answer in zip(nodes, answers, strict=True):
            if isinstance(answer, asyncio.CancelledError):
                detail = f"no answer {grace:g} s after the first one"
                failures.append(NodeFailure(node, table.name, Status.TIMEDOUT, detail))
                continue
            if isinstance(answer, BaseException):
                raise answer
            if isinstance(answer, NodeFailure):
                _raise_if_fatal(answer)
                failures.append(answer)
            else:
                rows += answer
        return rows, failures

    async def ask_any(
        self,
        table: TableDeclaration,
        nodes: Sequence[NodeId],
        constraints: Constraints,
        limit: int | None,
        seconds: float,
    ) -> tuple[list[Row], list[NodeFailure]]:
        """The rows of the first node that answers; failures only when none did."""
        waiting = list(nodes)
        asked: set[asyncio.Task[list[Row] | NodeFailure]] = set()
        failures: list[NodeFailure] = []
        try:
            while waiting or asked:
                if waiting:
                    asked.add(asyncio.create_task(self._ask(table, waiting.pop(0), constraints, limit, seconds)))
                done, asked = await asyncio.wait(
                    asked, timeout=HEDGE if waiting else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    answer = task.result()
                    if not isinstance(answer, NodeFailure):
                        return answer, []
                    _raise_if_fatal(answer)
                    failures.append(answer)
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)
        return [], failures

    async def act(self, node: NodeId, action: str, given: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Have a node do something; its answer.

        Raises:
            LogDeviceError: it does not, or did not answer within so many seconds.
        """
        member = self._config.nodes[node]

        async def request() -> dict[str, Any]:
            # another node may answer at the address: it must not be the one that is stopped
            await self._request(TABLES["info"], member, EVERYTHING, None)
            code, body, _ = await self._send("POST", member, f"actions/{action}", content=dict(given))
            content = _content(code, body)
            if not isinstance(content, dict):
                raise LogDeviceError(Status.INTERNAL, "an answer that is not understood")
            return content

        outcome = await self._guarded(request(), node, action, seconds)
        if isinstance(outcome, NodeFailure):
            raise LogDeviceError(outcome.status, f"N{node}: {outcome.detail}")
        return outcome

    async def _ask(
        self, table: TableDeclaration, node: NodeId, constraints: Constraints, limit: int | None, seconds: float
    ) -> list[Row] | NodeFailure:
        return await self._guarded(
            self._request(table, self._config.nodes[node], constraints, limit), node, table.name, seconds
        )

    async def _guarded(self, request: Awaitable[T], node: NodeId, what: str, seconds: float) -> T | NodeFailure:
        """What a request came to, until the deadline."""
        try:
            async with asyncio.timeout(seconds):
                return await request
        except TimeoutError:
            return NodeFailure(node, what, Status.TIMEDOUT, f"no answer within {seconds:.1f} s")
        except LogDeviceError as error:
            return NodeFailure(node, what, error.status, error.detail)
        except aiohttp.ClientConnectorCertificateError as error:
            return NodeFailure(node, what, Status.ACCESS, f"not the node that was asked: {error.certificate_error}")
        except aiohttp.ClientConnectorError as error:
            number = error.os_error.errno
            reason = str(error.os_error) if number is None else os.strerror(number)
            return NodeFailure(node, what, Status.CONNFAILED, reason)
        except ssl.SSLError as error:
            return NodeFailure(node, what, Status.ACCESS, f"the TLS connection failed: {error.reason or error}")
        except UnicodeError as error:  # its host is no name
            return NodeFailure(node, what, Status.CONNFAILED, f"it cannot be asked: {error}")
        except (aiohttp.ClientError, OSError) as error:
            return NodeFailure(node, what, Status.PEER_CLOSED, str(error) or type(error).__name__)

    def _check_allowed(self, code: int, *, withheld: bool) -> None:
        if code == _UNAUTHORIZED and withheld:
            raise LogDeviceError(
                Status.ACCESS,
                "it asks for a token and does not speak TLS, so it was not sent: whoever is between could read it. Restart the node, so that it speaks TLS, "
                f"or set {CLEAR_TEXT_VARIABLE}=1 on a network that you trust",
            )
        if code == _UNAUTHORIZED:
            why = "it asks for a token" if self._access.token is None else "it does not take this token"
            raise LogDeviceError(
                Status.INVALID_CONFIG,
                f"{why}: put the node's beside the cluster file, with the name of that and the suffix {SUFFIX}, or name a file with --token-file",
            )

    def _url(self, member: NodeConfig, path: str) -> tuple[str, AdminEndpoint]:
        endpoint = admin_endpoint(self._config, member)
        if endpoint is None:
            raise LogDeviceError(Status.NOTSUPPORTED, "it has no admin_port in the cluster file")
        return f"{format_address(endpoint.host, endpoint.port)}/v1/{path}", endpoint

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._contexts = client_contexts(self._config, self._access.cluster_file, self._access.identity)
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None), connector=aiohttp.TCPConnector(limit=64)
            )
        return self._session

    async def _send(
        self,
        method: str,
        member: NodeConfig,
        path: str,
        *,
        parameters: Mapping[str, str] | None = None,
        content: Mapping[str, Any] | None = None,
    ) -> tuple[int, bytes, AdminEndpoint]:
        """Send a request: the status of HTTP, the answer, and who was asked. Over TLS where the cluster has it; while it changes to that, a node that
        does not speak it yet is asked in clear text, and on another machine without the token."""
        url, endpoint = self._url(member, path)
        session, contexts = self._connected(), self._contexts
        security = parse_security(self._config.settings)
        if contexts is not None:
            contexts.reload()
            try:
                code, body = await self._ask_once(
                    session, method, f"https://{url}", contexts.asking(member.node), parameters, content
                )
                return code, body, endpoint
            except aiohttp.ClientConnectorCertificateError:
                raise
            except (aiohttp.ClientConnectorSSLError, aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                refused = isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
                    error, aiohttp.ClientConnectorSSLError
                )
                if refused or security.tls != TLS_ACCEPT or security.permissions:
                    raise
        withhold = contexts is not None and not (endpoint.is_loopback or self._access.clear_text)
        code, body = await self._ask_once(
            session, method, f"http://{url}", None, parameters, content, withhold=withhold
        )
        return code, body, endpoint

    async def _ask_once(
        self,
        session: aiohttp.ClientSession,
        method: str,
        url: str,
        context: ssl.SSLContext | None,
        parameters: Mapping[str, str] | None,
        content: Mapping[str, Any] | None,
        *,
        withhold: bool = False,
    ) -> tuple[int, bytes]:
        """withhold: do not send the token."""
        bearer = None if withhold else self._access.bearer(encrypted=context is not None)
        self.requests += 1
        async with session.request(
            method,
            url,
            params=parameters,
            json=content,
            headers={} if bearer is None else {"Authorization": f"Bearer {bearer}"},
            ssl=True if context is None else context,
            allow_redirects=False,
        ) as response:
            body = await response.read()
        self._check_allowed(response.status, withheld=withhold and self._access.token is not None)
        return response.status, body

    async def _request(
        self, table: TableDeclaration, member: NodeConfig, constraints: Constraints, limit: int | None
    ) -> list[Row]:
        parameters = constraints.parameters()
        if limit is not None:
            parameters["limit"] = str(limit)
        code, body, endpoint = await self._send("GET", member, f"tables/{table.name}", parameters=parameters)
        who, rows = parse_answer(table, code, body)
        is_other = who.uuid not in ("", self._config.uuid.hex())
        if is_other or (who.cluster, who.node) != (self._config.name, member.node):
            other = f" another cluster named {who.cluster}" if is_other else f" {who.cluster}"
            hint = " (without expose in [settings.admin] only programs on its own machine reach a node)"
            where = format_address(endpoint.host, endpoint.port)
            raise LogDeviceError(
                Status.INVALID_CLUSTER,
                f"N{who.node} of{other} answers at {where}{hint if endpoint.is_loopback else ''}",
            )
        if self.newest is None or who.config_version > self.newest[0]:
            self.newest = (who.config_version, member.node)
        return rows


async def _one_answers(asked: Sequence[asyncio.Task[list[Row] | NodeFailure]]) -> None:
    """Until one has, or none will."""
    for done in asyncio.as_completed(asked):
        if not isinstance(await done, NodeFailure):
            return


def as_dicts(table: TableDeclaration, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Rows of a table with the names of its columns."""
    names = [column.name for column in table.columns]
    return [dict(zip(names, row, strict=True)) for row in rows]


def _content(code: int, body: bytes) -> Any:
    """What a node answered.

    Raises:
        LogDeviceError: with the status that it answered; INTERNAL when the answer is not understood.
    """
    try:
        content = json.loads(body)
        if code != 200:
            error = content["error"]
            raise LogDeviceError(Status[error["status"]], error["detail"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _not_understood(code) from None
    return content


def _not_understood(code: int) -> LogDeviceError:
    return LogDeviceError(Status.INTERNAL, f"HTTP status {code}, and no answer that is understood")


def parse_answer(table: TableDeclaration, code: int, body: bytes) -> tuple[AnsweringNode, list[Row]]:
    """Who answered, and the rows.

    Raises:
        LogDeviceError: with the status that the node answered; INTERNAL: it is not understood; TOOBIG: there are more rows.
    """
    content = _content(code, body)
    try:
        columns: list[str] = content["columns"]
        found: list[list[Any]] = content["rows"]
        more: bool = content["more"]
        version, uuid = content.get("config_version"), content.get("uuid")
        who = AnsweringNode(
            str(content["cluster"]),
            uuid if type(uuid) is str else "",
            int(content["node"]),
            version if type(version) is int else 0,
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise _not_understood(code) from None
    if type(columns) is not list or type(found) is not list:
        raise _not_understood(code)
    if any(type(row) is not list or len(row) != len(columns) for row in found):
        raise _not_understood(code)
    if more:
        raise LogDeviceError(Status.TOOBIG, f"more than {len(found)} rows")
    wanted = [each.name for each in table.columns]
    if columns == wanted:
        return who, list(found)
    # a node of another version: what it does not know is NULL
    places = [columns.index(name) if name in columns else None for name in wanted]
    return who, [[None if place is None else row[place] for place in places] for row in found]


def _raise_if_fatal(failure: NodeFailure) -> None:
    """Some answers say that the question is wrong, not that the node is in trouble."""
    if failure.status is Status.TOOBIG:
        raise LogDeviceError(
            Status.TOOBIG,
            f"table {failure.table}: N{failure.node} has {failure.detail}: constrain log_id, shard or node_id, or ask for --full",
        )
    if failure.status is Status.INVALID_PARAM:
        raise LogDeviceError(Status.INVALID_PARAM, str(failure))
