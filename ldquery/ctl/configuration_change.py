"""How ``ldctl`` reads and changes the configuration of a cluster: the stored one, through a node; where there is none, the cluster file is all there is."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import socket
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ldquery.ctl.verb import access_of, say_of_nodes
from logdevice_py.config.admin import admin_endpoint
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.edit import with_node
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.stored import with_version
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING

if TYPE_CHECKING:
    from client.admin_access import AdminAccess
    from client.client import Client
    from client.node_tables import NodeAsker

SECONDS: Final = 10.0
_LOOK_AGAIN: Final = 0.1
_IN_USE_WITHIN: Final = 5.0
_GRACE: Final = 0.3
"""Seconds that nodes get to tell the stored configuration once one has told it."""
STORED: Final = "epoch store"
"""Where a configuration is from that is stored: column source of table configuration."""
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class KnownConfiguration:
    """What nodes tell of the configuration."""

    node: NodeId
    """A node that uses the newest version."""
    version: int
    is_stored: bool
    """Else the cluster file of each node holds."""
    versions: Sequence[Row]
    """Rows of table configuration_history, the oldest first."""
    nodes: Sequence[Row]
    """Rows of table configuration, of all nodes that answered."""
    old: Collection[NodeId]
    """Nodes whose release follows its file alone."""
    silent: Mapping[NodeId, str]
    """Nodes that did not answer, and why."""

    @property
    def text(self) -> str:
        """All of the version in force."""
        return str(next(row["text"] for row in self.versions if row["in_force"]))

    def find(self, version: int) -> Row:
        """A version that is kept.

        Raises:
            LogDeviceError: NOTFOUND.
        """
        for row in self.versions:
            if row["version"] == version:
                return row
        kept = ", ".join(str(row["version"]) for row in self.versions)
        raise LogDeviceError(Status.NOTFOUND, f"version {version} is not kept; there are {kept}")


class ConfigurationEditor:
    """Reads and changes the configuration of one cluster; use it as an async context manager."""

    def __init__(self, client: Client, access: AdminAccess, seconds: float = SECONDS) -> None:
        """
        Args:
            access: with what nodes are asked.
            seconds: that nodes get to answer.
        """
        self._client = client
        self._access = access
        self._seconds = seconds
        self._asker: NodeAsker | None = None

    @classmethod
    def of_program(cls, client: Client, arguments: argparse.Namespace) -> ConfigurationEditor:
        """As the options of ``ldctl`` say."""
        return cls(client, access_of(arguments), arguments.timeout or SECONDS)

    async def __aenter__(self) -> ConfigurationEditor:
        from client.node_tables import NodeAsker

        config = await self._client.newest_config()
        self._asker = NodeAsker(config, self._access)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._asker is not None:
            await self._asker.close()

    async def read(self) -> KnownConfiguration:
        """What nodes use.

        Raises:
            LogDeviceError: as the nodes say why none tells it.
        """
        assert self._asker is not None, "it is entered"
        from client.node_tables import as_dicts

        config, table = self._client.config, TABLES["configuration"]
        nodes = [node for node, member in config.nodes.items() if admin_endpoint(config, member) is not None]
        if not nodes:
            raise LogDeviceError(
                Status.NOTSUPPORTED, "no node has an admin_port, over which configurations are changed"
            )
        rows, failures = await self._asker.ask_each(table, nodes, EVERYTHING, None, self._seconds, grace=_GRACE)
        found = as_dicts(table, rows)
        if not any(row["source"] == STORED for row in found):
            # the first one is stored: a slow node may be one that cannot follow it
            slow = [failure.node for failure in failures if failure.status is Status.TIMEDOUT]
            rows, others = await self._asker.ask_each(table, slow, EVERYTHING, None, self._seconds)
            found += as_dicts(table, rows)
            failures = [each for each in failures if each.node not in slow] + others
        old = {failure.node for failure in failures if failure.status is Status.NOTFOUND}
        silent = {each.node: f"{each.status.name}: {each.detail}" for each in failures if each.node not in old}
        if not found:
            first = next(iter(failures))
            status = Status.NOTSUPPORTED if old else first.status
            why = "all nodes run a release that follows its file alone" if old else str(first)
            raise LogDeviceError(status, f"no node tells the configuration: {why}")
        newest = max(found, key=lambda row: (row["version"], row["source"] == STORED))
        node = NodeId(newest["node_id"])
        history, failures = await self._asker.ask_any(
            TABLES["configuration_history"], [node], EVERYTHING, None, self._seconds
        )
        if not history:
            raise LogDeviceError(failures[0].status, str(failures[0]))
        versions = as_dicts(TABLES["configuration_history"], history)
        is_stored = newest["source"] == STORED
        return KnownConfiguration(node, newest["version"], is_stored, versions, found, old, silent)

    async def change(
        self, known: KnownConfiguration, text: str, why: str, *, accept: Sequence[NodeId] = (), dry_run: bool = False
    ) -> Mapping[str, Any]:
        """Have a node store a text, which says from which version it was made; what the node answered.

        Raises:
            LogDeviceError: it is refused, with all reasons.
        """
        assert self._asker is not None, "it is entered"
        if not known.is_stored and known.old:
            names = ", ".join(f"N{node}" for node in sorted(known.old))
            raise LogDeviceError(
                Status.NOTSUPPORTED,
                f"{names}: this release follows its file alone: upgrade it before the configuration is stored",
            )
        given = {
            "base": load_cluster(text).version,
            "text": text,
            "who": _who(),
            "why": why,
            "accept_data_loss": ",".join(f"N{node}" for node in accept) or "none",
            "dry_run": int(dry_run),
        }
        return await self._asker.act(known.node, "change_configuration", given, self._seconds)

    async def in_use(self, version: int) -> list[NodeId]:
        """Wait for a while until nodes use a version; those that are known to be late."""
        assert self._asker is not None, "it is entered"
        from client.node_tables import as_dicts

        table, config = TABLES["configuration"], await self._client.newest_config()
        late = [node for node, member in config.nodes.items() if admin_endpoint(config, member) is not None]
        loop = asyncio.get_running_loop()
        ends = loop.time() + min(self._seconds, _IN_USE_WITHIN)
        while True:
            rows, failures = await self._asker_of(config).ask_each(
                table, late, EVERYTHING, None, max(0.05, ends - loop.time())
            )
            using = {row["node_id"] for row in as_dicts(table, rows) if row["version"] >= version}
            gone = {each.node for each in failures if each.status is Status.CONNFAILED}
            late = [node for node in late if node not in using]
            if loop.time() >= ends or all(node in gone for node in late):
                return late
            await asyncio.sleep(_LOOK_AGAIN)

    def _asker_of(self, config: ClusterConfig) -> NodeAsker:
        assert self._asker is not None
        self._asker.use_config(config)
        return self._asker


def text_with_node(known: KnownConfiguration, node: NodeId, values: Mapping[str, Any], *, new: bool) -> str:
    """The text in force with a node that is new, or says other things.

    Args:
        values: by key; None: the default holds again.

    Raises:
        LogDeviceError: EXISTS, NOTINCONFIG; INVALID_CONFIG: it cannot be read then.
    """
    nodes = load_cluster(known.text).nodes
    if new and node in nodes:
        raise LogDeviceError(
            Status.EXISTS, f"there is a N{node} already, at {nodes[node].host}: ldctl nodes set changes it"
        )
    if not new and node not in nodes:
        raise LogDeviceError(
            Status.NOTINCONFIG, f"there is no N{node}; there are {', '.join(f'N{each}' for each in nodes)}"
        )
    return with_node(known.text, node, values)


async def edit_stored(
    client: Client, arguments: argparse.Namespace, edited: Callable[[str], str], why: str
) -> ClusterConfig | None:
    """Change the stored configuration by an edit of its text; what it says then. None: there is none, the cluster file holds.

    Raises:
        LogDeviceError: it is refused.
    """
    if not any(member.admin_port is not None for member in client.config.nodes.values()):
        return None
    async with ConfigurationEditor.of_program(client, arguments) as editor:
        try:
            known = await editor.read()
        except LogDeviceError:
            return None
        if not known.is_stored:
            return None
        text = with_version(edited(known.text), known.version)
        answer = await editor.change(known, text, why)
        say_of_nodes((node, "does not use it yet") for node in await editor.in_use(answer["version"]))
        return load_cluster(with_version(text, answer["version"]))


def _who() -> str:
    try:
        user = getpass.getuser()
    except (OSError, KeyError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"
