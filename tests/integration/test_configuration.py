"""The configuration in the epoch store, and nodes that follow it: in one process, without Java."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from client.admin_access import AdminAccess
from client.client import Client
from client.node_tables import NodeAsker, as_dicts
from ldquery.session import LDQuery
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.admin_token import program_token
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING
from server.admin.start import open_admin
from server.configuration.begin import EpochStorePlace, write_cluster_file
from server.configuration.keeper import KEPT
from server.dev import layout
from server.dev.current_config import current_config
from server.dev.local_cluster import LocalCluster
from server.dev.supervisor import CommandError, Supervisor
from server.host import NodeHost
from tests.integration.test_ldctl_operator import Operator as Ldctl

N0 = NodeId(0)


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(nodes=2, logs=2, replicate="node:2") as found:
        yield found


class Operator:
    """Asks nodes as ldctl does."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.path = Path(cluster.config_file)
        self._asker = NodeAsker(load_cluster(self.path.read_text()), AdminAccess.of_program(self.path))

    async def change(self, base: int, text: str, node: NodeId = N0, **more: Any) -> Mapping[str, Any]:
        given = {"who": "ann", "why": "a test", "accept_data_loss": "none", "dry_run": 0, **more}
        return await self._asker.act(node, "change_configuration", {"base": base, "text": text, **given}, 10)

    async def table(self, name: str, node: NodeId = N0) -> list[dict[str, Any]]:
        rows, failures = await self._asker.ask_each(TABLES[name], [node], EVERYTHING, None, 10)
        assert not failures
        return as_dicts(TABLES[name], rows)

    async def close(self) -> None:
        await self._asker.close()


@pytest.fixture
async def operator(cluster: LocalCluster) -> AsyncIterator[Operator]:
    found = Operator(cluster)
    yield found
    await found.close()


async def until(reached: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while True:
            if await reached():
                return
            await asyncio.sleep(0.02)


async def in_force(cluster: LocalCluster, version: int) -> None:
    async def reached() -> bool:
        return all(host.config.version == version for host in cluster.hosts.values())

    await until(reached)


def more_logs(text: str) -> str:
    return text + '\n[logs."/more"]\nids = "11..12"\n'


async def test_all_nodes_use_what_one_of_them_stored_and_keep_it(cluster: LocalCluster, operator: Operator) -> None:
    text = operator.path.read_text()
    (before,) = await operator.table("configuration")
    assert (before["version"], before["source"], before["stored_version"]) == (1, "cluster file", None)
    judged = await operator.change(1, more_logs(text), dry_run=1)
    assert judged == {"version": 2, "changed": True, "stored": False}
    assert await operator.change(1, more_logs(text)) == {"version": 2, "changed": True, "stored": True}
    await in_force(cluster, 2)
    assert all(host.config.logs.get(11) is not None for host in cluster.hosts.values())
    for node in cluster.hosts:
        kept = layout.node_directory(cluster.directory, NodeId(node)) / KEPT
        assert load_cluster(kept.read_text()).version == 2
    history = await operator.table("configuration_history")
    assert [(row["version"], row["who"], row["why"], row["in_force"]) for row in history] == [(2, "ann", "a test", 1)]
    (after,) = await operator.table("configuration", NodeId(1))
    assert (after["version"], after["source"], after["stored_version"], after["trouble"]) == (2, "epoch store", 2, "")


async def test_a_client_that_knows_the_file_alone_takes_what_nodes_use(
    cluster: LocalCluster, operator: Operator
) -> None:
    async with cluster.client() as client:
        await client.append(1, b"first")
        assert client.config.version == 1
        await operator.change(1, more_logs(operator.path.read_text()))

        async def reached() -> bool:
            return client.config.version == 2

        await until(reached)
        await client.append(11, b"to a log that its file does not have")
    await in_force(cluster, 2)
    async with cluster.client() as later:
        assert (await later.newest_config(10)).version == 2
        await later.append(12, b"x")


async def test_of_two_operators_the_second_hears_who_was_first(cluster: LocalCluster, operator: Operator) -> None:
    text = operator.path.read_text()
    both = await asyncio.gather(
        operator.change(1, more_logs(text), N0, who="ann", why="more logs"),
        operator.change(1, text + "# mine\n", NodeId(1), who="bob", why="a remark"),
        return_exceptions=True,
    )
    refused = [each for each in both if isinstance(each, LogDeviceError)]
    assert len(refused) == 1
    assert refused[0].status is Status.STALE
    assert "ann stored version 2 since (more logs)" in refused[0].detail or "bob stored" in refused[0].detail


async def test_a_bad_one_is_refused_with_all_reasons_and_changes_nothing(
    cluster: LocalCluster, operator: Operator
) -> None:
    text = operator.path.read_text()
    config = load_cluster(text)
    bad = text.replace(config.epoch_store, "sqlite:///elsewhere").replace('name = "dev"', 'name = "other"')
    bad += "\n[settings.sequencer]\nno_such_setting = 1\n"
    with pytest.raises(LogDeviceError) as caught:
        await operator.change(1, bad)
    assert caught.value.status is Status.INVALID_CONFIG
    assert all(part in caught.value.detail for part in ("name, uuid", "epoch_store", "no_such_setting"))
    with pytest.raises(LogDeviceError, match="leave the version in it"):
        await operator.change(5, text.replace("version = 1", "version = 5"))
    assert (await operator.table("configuration"))[0]["stored_version"] is None


async def test_what_is_stored_holds_for_a_node_that_starts_with_an_old_file_and_an_edited_file_is_not_used(
    cluster: LocalCluster, operator: Operator
) -> None:
    text = operator.path.read_text()
    await operator.change(1, more_logs(text))
    await in_force(cluster, 2)
    await cluster.stop_node(1)
    operator.path.write_text(text.replace("version = 1", "version = 9"))
    await cluster.start_node(1)
    assert cluster.hosts[1].config.version == 2

    async def is_told() -> bool:
        return bool((await operator.table("configuration"))[0]["trouble"])

    await until(is_told)
    (row,) = await operator.table("configuration")
    assert "has version 9, and is not used" in row["trouble"]
    assert row["version"] == 2


async def test_an_epoch_store_that_was_put_back_changes_nothing_and_the_next_change_goes_on(
    cluster: LocalCluster, operator: Operator
) -> None:
    text = operator.path.read_text()
    await operator.change(1, more_logs(text))
    first = cluster.hosts[0].configuration.in_force.stored
    assert first is not None
    second = first.current.text + "# more\n"
    await operator.change(2, second)
    await in_force(cluster, 3)
    put_back(config_of(cluster), first)
    await cluster.stop_node(0)
    await cluster.start_node(0)
    assert cluster.hosts[0].config.version == 3
    (row,) = await operator.table("configuration")
    assert "has version 2, older than version 3" in row["trouble"]
    with pytest.raises(LogDeviceError) as caught:
        await operator.change(2, first.current.text)
    assert caught.value.status is Status.STALE
    in_force_now = next(row for row in await operator.table("configuration_history") if row["in_force"])
    assert (await operator.change(3, in_force_now["text"]))["version"] == 4
    await in_force(cluster, 4)


async def test_what_an_operator_does_with_ldctl(cluster: LocalCluster, capsys: pytest.CaptureFixture[str]) -> None:
    ldctl = Ldctl(cluster, capsys)
    assert "configured by its file" in str(await ldctl.is_refused("nodes", "set", "N1", "state=read-only"))
    shown = await ldctl.types("config", "show")
    assert load_cluster(shown).version == 1
    assert "it is the cluster file's" in ldctl.said.err
    await ldctl.types("config", "apply", cluster.config_file, "--why", "it begins")
    assert "configured in its epoch store" in ldctl.said.err
    out = await ldctl.types("nodes", "set", "N1", "storage_capacity=2.5", "--dry-run")
    assert "+storage_capacity = 2.5" in out
    assert "it would be version 3" in out
    await ldctl.types("nodes", "set", "N1", "storage_capacity=2.5")
    await in_force(cluster, 3)
    assert cluster.hosts[0].config.nodes[NodeId(1)].storage_capacity == 2.5
    await ldctl.types("nodes", "set", "N1", "storage_capacity=")
    assert "nothing changes" in await ldctl.types("nodes", "set", "N1", "storage_capacity=")
    assert "-storage_capacity = 2.5" in await ldctl.types("config", "diff", "3")
    assert (
        await ldctl.types("config", "diff", "2", "4")
        == await ldctl.types("config", "diff", "4", "2")
        == "nothing differs\n"
    )
    rows = await ldctl.gets("config", "history")
    assert [(row["version"], row["why"]) for row in rows] == [
        (4, "nodes set N1 storage_capacity="),
        (3, "nodes set N1 storage_capacity=2.5"),
        (2, "it begins"),
    ]
    assert "N7; there are N0, N1" in str(await ldctl.is_refused("nodes", "remove", "N7"))
    assert "is not kept; there are 2, 3, 4" in str(await ldctl.is_refused("config", "rollback", "9"))
    refused = await ldctl.is_refused("nodes", "remove", "N1")
    assert '"node:2" needs storage in 2 different nodes' in str(refused)
    await ldctl.types("logs", "create", "/stored", "--ids", "21..22")
    await in_force(cluster, 5)
    assert cluster.hosts[1].config.logs.get(22) is not None
    assert "/stored" not in Path(cluster.config_file).read_text()
    (first, *_) = await ldctl.sees(lambda rows: not any(row["troubles"] for row in rows))
    assert first["config_version"] == 5


async def test_a_node_that_says_nothing_holds_up_nobody_who_wants_one_answer(
    cluster: LocalCluster, operator: Operator, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its process is stopped: whoever dials it is connected and gets no word."""
    host, reached = layout.node_host(cluster.directory, NodeId(3)), []

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reached.append(writer)
        while await reader.read(1 << 16):
            pass
        writer.close()

    servers = [await asyncio.start_server(say_nothing, host, port) for port in (layout.NODE_PORT, layout.ADMIN_PORT)]
    more = f'\n[nodes.N3]\nhost = "{host}"\nport = {layout.NODE_PORT}\nadmin_port = {layout.ADMIN_PORT}\nroles = ["sequencer"]\n'
    await operator.change(1, operator.path.read_text() + more)
    await in_force(cluster, 2)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert "[nodes.N3]" in await Ldctl(cluster, capsys).types("config", "show")
    assert loop.time() - began < 5, "nodes get ten seconds to answer"
    assert reached
    for server in servers:
        server.close()


async def test_ldquery_and_clients_without_a_file_take_what_nodes_use(
    cluster: LocalCluster, operator: Operator
) -> None:
    text = operator.path.read_text()
    more = '\n[nodes.N3]\nhost = "127.0.0.1"\nport = 1\nroles = ["sequencer"]\n'

    def rows_of(config: ClusterConfig | str, statement: str) -> list[Any]:
        access = {"token_file": cluster.directory / "cluster.token"} if isinstance(config, ClusterConfig) else {}
        with LDQuery(config, **access) as ldquery:
            return [row[0] for row in ldquery.query(statement).rows]

    async with Client(load_cluster(text)) as client:
        await client.append(1, b"first")
        await operator.change(1, more_logs(text) + more)
        await in_force(cluster, 2)

        async def reached() -> bool:
            return client.config.version == 2

        await until(reached)
    for given in (load_cluster(text), cluster.config_file):
        ids = await asyncio.to_thread(rows_of, given, "SELECT node_id FROM nodes ORDER BY 1")
        assert ids == [0, 1, 3]
        logs = await asyncio.to_thread(rows_of, given, "SELECT log_id FROM logs ORDER BY 1")
        assert logs == [1, 2, 11, 12]


# A node that is told the epoch store


def place_of(cluster: LocalCluster, name: str = "dev") -> EpochStorePlace:
    return EpochStorePlace(config_of(cluster).epoch_store, name)


async def test_a_node_starts_from_the_epoch_store_and_its_own_number(
    cluster: LocalCluster, operator: Operator, tmp_path: Path
) -> None:
    file, place = tmp_path / "machine" / "cluster.toml", place_of(cluster)
    with pytest.raises(LogDeviceError, match="ldctl config apply FILE stores one") as refused:
        await write_cluster_file(file, place, NodeId(1))
    assert refused.value.status is Status.NOTFOUND
    await operator.change(1, more_logs(operator.path.read_text()))
    await cluster.stop_node(1)
    await write_cluster_file(file, place, NodeId(1))
    assert file.stat().st_mode & 0o077 == 0
    data = layout.node_directory(cluster.directory, NodeId(1))
    host = cluster.hosts[1] = await NodeHost.open(file, NodeId(1), data, open_admin=open_admin, place=place)
    assert host.config.version == 2
    assert host.configuration.in_force.is_stored
    async with cluster.client() as client:
        await client.append(1, b"both nodes are needed")
    with pytest.raises(LogDeviceError, match="has no node N7: ldctl nodes add N7 host=HOST") as refused:
        await NodeHost.open(file, NodeId(7), tmp_path / "n7", place=place)
    assert refused.value.status is Status.NOTINCONFIG


async def test_what_a_node_is_told_of_the_epoch_store_has_to_be_right(
    cluster: LocalCluster, operator: Operator, tmp_path: Path
) -> None:
    await operator.change(1, more_logs(operator.path.read_text()))
    file = tmp_path / "cluster.toml"
    for place, status in [
        (place_of(cluster, "other"), Status.NOTFOUND),
        (EpochStorePlace(f"sqlite://{tmp_path}/none.sqlite", "dev"), Status.NOTFOUND),
        (EpochStorePlace("memory:", "dev"), Status.INVALID_CONFIG),
        (EpochStorePlace("zookeeper:", "dev"), Status.INVALID_CONFIG),
    ]:
        with pytest.raises(LogDeviceError) as refused:
            await write_cluster_file(file, place, NodeId(1))
        assert refused.value.status is status
    assert list(tmp_path.glob("*.toml")) == []
    assert not (tmp_path / "none.sqlite").exists()
    with pytest.raises(LogDeviceError, match='of the cluster "dev", not of "other"'):
        await NodeHost.open(operator.path, NodeId(1), tmp_path, place=place_of(cluster, "other"))


async def test_a_node_works_with_the_epoch_store_that_its_file_names(cluster: LocalCluster, operator: Operator) -> None:
    text = operator.path.read_text()
    await operator.change(1, more_logs(text))
    for node in (0, 1):
        await cluster.stop_node(node)
    before = Path(load_cluster(text).epoch_store.removeprefix("sqlite://"))
    after = before.with_name("moved.sqlite")
    with sqlite3.connect(before) as source, sqlite3.connect(after) as target:
        source.backup(target)
    for file in before.parent.glob(f"{before.name}*"):
        file.unlink()
    operator.path.write_text(text.replace(str(before), str(after)))
    for node in (0, 1):
        await cluster.start_node(node)
    assert not before.exists()
    async with cluster.client() as client:
        await client.append(1, b"as before")


# ld-dev-cluster


async def test_the_tool_of_developers_changes_what_is_stored(
    cluster: LocalCluster, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = operator.path.read_text()
    supervisor = Supervisor(cluster.directory, load_cluster(text))
    supervisor.admin_token = program_token(operator.path, None)
    started: list[int] = []

    async def start(node: int) -> str:
        started.append(node)
        return ""

    monkeypatch.setattr(supervisor, "start", start)
    monkeypatch.setattr(supervisor, "_answering", lambda: [N0, NodeId(1)])
    await supervisor.follow()
    assert not supervisor.is_stored
    await operator.change(1, more_logs(text))
    await in_force(cluster, 2)
    await supervisor.follow()
    assert (supervisor.is_stored, supervisor.config.version) == (True, 2)
    assert "N2 added" in await supervisor.add(None)
    await in_force(cluster, 3)
    assert started == [2]
    added = config_of(cluster).nodes[NodeId(2)]
    assert (added.host, added.port) == (layout.node_host(cluster.directory, NodeId(2)), layout.NODE_PORT)
    with pytest.raises(CommandError, match="the cluster file not used"):
        await supervisor.set_replication("node:1")
    assert "N2 removed" in await supervisor.remove(2)
    await in_force(cluster, 4)
    assert list(config_of(cluster).nodes) == [0, 1]
    (*_, last) = await operator.table("configuration_history")
    assert last["why"] == "ld-dev-cluster remove N2"
    assert operator.path.read_text() == text
    assert current_config(cluster.directory).version == 4
    with pytest.raises(CommandError, match='"node:2" needs storage in 2 different nodes'):
        await supervisor.remove(1, without_drain=True)


def config_of(cluster: LocalCluster) -> ClusterConfig:
    return cluster.hosts[0].config


def put_back(config: ClusterConfig, stored: Any) -> None:
    """The cell as it was, at another version of its own."""
    from epoch_store.cells import CONFIGURATION, WriteId, encode_cell
    from epoch_store.interface import WriterIdentity
    from logdevice_py.core.ids import InstanceId

    content = encode_cell(WriteId(WriterIdentity(NodeId(-1), InstanceId(1)), 1), stored.encode())
    with sqlite3.connect(config.epoch_store.removeprefix("sqlite://")) as connection:
        connection.execute(
            "UPDATE cells SET version = version + 1, content = ? WHERE key = ?", (content, CONFIGURATION)
        )
