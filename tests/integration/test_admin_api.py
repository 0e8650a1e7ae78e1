"""The admin API among clients that are slow, greedy or without the token."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import os
import ssl
import stat
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from client.admin_access import AdminAccess
from client.node_tables import NodeAsker
from ldquery.session import LDQuery
from logdevice_py.config.admin import admin_endpoint
from logdevice_py.config.logs import Durability
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.security import TLS_OFF, parse_security
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.admin_token import make_token, node_token, program_token, token_beside
from logdevice_py.runtime.http.places import HEALTH_PLACES
from logdevice_py.tables import from_cluster_file
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING
from server.admin.metrics import AdminMetrics
from server.admin.start import open_admin
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.free_ports import free_ports
from server.dev.local_cluster import LocalCluster
from server.dev.supervisor import write_cluster_file
from server.host import NodeHost
from tests.forked import run_program_async

LONG_ENOUGH = "5s"
"""For requests that must still be worked on while a test does something else, also on a machine that is busy."""


@asynccontextmanager
async def one_node(
    directory: Path, admin: Mapping[str, Any], *, token: bool = False, **sections: Mapping[str, Any]
) -> AsyncIterator[LocalCluster]:
    """A cluster of one node with these settings of its admin API, and of other sections; with or without a token."""
    directory.mkdir(exist_ok=True)
    config = make_config(
        directory, nodes=1, logs=2, replicate="node:1", racks=1, epoch_store=None, durability=Durability.SYNC
    )
    write_cluster_file(directory, dataclasses.replace(config, settings={"admin": dict(admin), **sections}))
    if token:
        make_token(layout.cluster_file(directory))
    async with LocalCluster(nodes=1, directory=directory) as cluster:
        yield cluster


def address(cluster: LocalCluster) -> tuple[str, int]:
    config = load_cluster(Path(cluster.config_file).read_text())
    endpoint = admin_endpoint(config, config.nodes[NodeId(0)])
    assert endpoint is not None
    return endpoint.host, endpoint.port


async def running(cluster: LocalCluster, count: int) -> AdminMetrics:
    """The admin API's metrics, once so many requests are worked on."""
    (metrics,) = (each.metrics for each in cluster.hosts[0].metric_sources() if isinstance(each.metrics, AdminMetrics))
    async with asyncio.timeout(30):
        while metrics.requests_running != count:  # noqa: ASYNC110 - the node has no event for it
            await asyncio.sleep(0.001)
    return metrics


def tls_of(config_file: str) -> ssl.SSLContext | None:
    """None: the cluster speaks clear text."""
    file = Path(config_file)
    security = parse_security(load_cluster(file.read_text()).settings)
    return None if security.tls == TLS_OFF else ssl.create_default_context(cafile=file.parent / security.ca_file)


async def exchange(cluster: LocalCluster, request: bytes) -> tuple[int, bytes]:
    """Send bytes, read to the end of the connection: the HTTP status and the body; 0 when it was closed without a word."""
    reader, writer = await asyncio.open_connection(*address(cluster), ssl=tls_of(cluster.config_file))
    try:
        writer.write(request)
        try:
            answer = await asyncio.wait_for(reader.read(), 60)
        except ConnectionResetError:
            return 0, b""
    finally:
        writer.close()
    if not answer:
        return 0, b""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def get(path: str, *headers: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Connection: close", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


TOKEN = "a secret of some length"
RIGHT = f"Authorization: Bearer {TOKEN}"


def write_token(path: Path, text: str = f"{TOKEN}\n") -> Path:
    """A file that only its owner reads."""
    path.write_text(text)
    path.chmod(0o600)
    return path


async def test_a_token_is_asked_for_where_the_file_names_one(tmp_path: Path) -> None:
    token = write_token(tmp_path / "token")
    async with one_node(tmp_path / "cluster", {"token_file": str(token)}) as cluster:
        for headers in ((), ("Authorization: Bearer another secret",), ("Authorization: Basic YTpi",)):
            for page in ("/v1/node", "/metrics", "/v1/tables/info", "/v1/openapi.json", "/nothing"):
                status, body = await exchange(cluster, get(page, *headers))
                assert status == 401
                assert b"instance" not in body
        status, body = await exchange(cluster, get("/v1/node", RIGHT))
        assert (status, json.loads(body)["node_id"]) == (200, 0)
        with LDQuery(cluster.config_file, deadline=60, token_file=token) as session:
            result = await asyncio.to_thread(session.query, "SELECT node_id FROM info")
        assert (result.rows, result.failures) == ([(0,)], [])


async def test_who_watches_a_node_needs_no_token_and_is_told_no_more_than_that_it_lives(tmp_path: Path) -> None:
    async with one_node(tmp_path / "cluster", {"token_file": str(write_token(tmp_path / "token"))}) as cluster:
        for page in ("/v1/health", "/v1/ready"):
            status, body = await exchange(cluster, get(page))
            assert (status, json.loads(body)) == (200, {"status": "OK"})
            status, body = await exchange(cluster, get(page, RIGHT))
            assert (status, json.loads(body)["shards"]["S0"]["status"]) == (200, "OK")


async def test_a_token_beside_the_cluster_file_is_found_by_nodes_and_programs(tmp_path: Path) -> None:
    cluster_file = layout.cluster_file(tmp_path)
    write_token(token_beside(cluster_file))
    async with one_node(tmp_path, {}) as cluster:
        assert (await exchange(cluster, get("/v1/node")))[0] == 401
        with LDQuery(cluster.config_file, deadline=60) as session:
            result = await asyncio.to_thread(session.query, "SELECT node_id FROM info")
        assert (result.rows, result.failures) == ([(0,)], [])
        with LDQuery(load_cluster(cluster_file.read_text()), deadline=60) as session:
            result = await asyncio.to_thread(session.query, "SELECT node_id FROM info")
        assert "it asks for a token: put the node's beside the cluster file" in str(result.failures[0])


async def test_reads_without_the_token_are_answered_where_the_file_says_so_and_actions_never(tmp_path: Path) -> None:
    write_token(token_beside(layout.cluster_file(tmp_path)))
    async with one_node(tmp_path, {"open_reads": True}) as cluster:
        assert (await exchange(cluster, get("/v1/node")))[0] == 200
        assert (await exchange(cluster, get("/v1/node").replace(b"127.0.0.1", b"web.example")))[0] == 403
        assert (await exchange(cluster, get("/")))[0] == 200, "the console, which holds no data"
        action = get("/v1/actions/stop", "Content-Type: application/json", "Content-Length: 2").replace(b"GET", b"POST")
        assert (await exchange(cluster, action + b"{}"))[0] == 401
        assert not cluster.hosts[0].stop_wanted.done()


class Stranger:
    """Somebody who answers HTTP and keeps what he was sent."""

    def __init__(self) -> None:
        self.heard = b""

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard += await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 307 See\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        writer.close()


async def test_a_secret_that_a_strangers_cluster_file_names_is_not_sent(tmp_path: Path) -> None:
    home, unpacked = tmp_path / "home", tmp_path / "unpacked"
    home.mkdir()
    mine = write_token(home / "cluster.token")
    other = write_token(home / ".netrc", "machine example.org login me password another\n")
    stranger = Stranger()
    server = await asyncio.start_server(stranger, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    unpacked.mkdir()
    config = make_config(unpacked, nodes=1, logs=1, replicate="node:1", racks=1, epoch_store=None)
    (member,) = config.nodes.values()
    there = {member.node: dataclasses.replace(member, host="127.0.0.1", admin_port=port)}
    for named in (mine, other, Path("../home/cluster.token"), Path(".netrc")):
        hostile = dataclasses.replace(config, nodes=there, settings={"admin": {"token_file": str(named)}})
        write_cluster_file(unpacked, hostile)
        saved = home / "downloaded.toml"  # beside the user's own
        saved.write_text(layout.cluster_file(unpacked).read_text())
        for opened in (layout.cluster_file(unpacked), saved):
            with LDQuery(opened, deadline=5) as session:
                result = await asyncio.to_thread(session.query, "SELECT * FROM info")
            assert result.failures
            options = ("-c", opened, "--timeout", "5s", "stop", "N0")
            assert (await run_program_async("ldquery.ctl.main", *options))[0] != 0
    for link in ("symlink_to", "hardlink_to"):
        getattr(token_beside(layout.cluster_file(unpacked)), link)(mine)
        with pytest.raises(LogDeviceError, match="--token-file"):
            LDQuery(layout.cluster_file(unpacked))
        token_beside(layout.cluster_file(unpacked)).unlink()
    assert stranger.heard.count(b"GET /v1/tables/info") >= 16
    assert b"uthorization" not in stranger.heard
    server.close()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o622])
def test_a_token_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, 1, 1)
    path = write_token(tmp_path / "cluster.token")
    if os.geteuid() == 0:
        os.chown(path, 1, 1)
    path.chmod(mode)
    for find in (
        lambda: node_token(tmp_path / "cluster.toml", ""),
        lambda: node_token(tmp_path / "cluster.toml", "cluster.token"),
        lambda: program_token(tmp_path / "cluster.toml", None),
        lambda: program_token(None, path),
        lambda: make_token(tmp_path / "cluster.toml"),
    ):
        with pytest.raises(LogDeviceError, match=f"other users may read or change it: chmod 600 {path}") as refused:
            find()
        assert refused.value.status is Status.INVALID_CONFIG


@pytest.mark.parametrize(
    "text",
    ["", "too short", "two lines of it\nare no token", "no ASCII: \u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"],
)
def test_what_is_no_token_is_refused(tmp_path: Path, text: str) -> None:
    write_token(tmp_path / "cluster.token", text)
    with pytest.raises(LogDeviceError, match=r"token file .*cluster\.token: a token "):
        node_token(tmp_path / "cluster.toml", "")


def test_a_token_that_is_made_is_kept_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        token = make_token(tmp_path / "cluster.toml")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "cluster.token").stat().st_mode) == 0o600
    assert make_token(tmp_path / "cluster.toml") == program_token(tmp_path / "cluster.toml", None) == token
    assert len(token) == 32


async def test_other_machines_are_not_let_in_without_a_token(tmp_path: Path) -> None:
    config = make_config(
        tmp_path, nodes=1, logs=1, replicate="node:1", racks=1, epoch_store=None, durability=Durability.SYNC
    )
    (port,) = free_ports(1, "0.0.0.0")  # clusters of this machine have the usual one
    members = {node: dataclasses.replace(member, host="0.0.0.0", port=port) for node, member in config.nodes.items()}
    write_cluster_file(tmp_path, dataclasses.replace(config, nodes=members, settings={"admin": {"expose": True}}))
    path = layout.cluster_file(tmp_path)
    with pytest.raises(LogDeviceError, match="there is no token: write one into ") as refused:
        await NodeHost.open(path, NodeId(0), tmp_path / "n0", open_admin=open_admin)
    assert refused.value.status is Status.INVALID_CONFIG


HEADERS = (
    "Authorization",
    "Host",
    "Content-Type",
    "Accept",
    "Cookie",
    "Expect",
    "Content-Encoding",
    "Content-Length",
    "Range",
    "X",
)
STRANGE = (
    b"\xff",
    b"Bearer \xff\xfe",
    b"Bearer \xe2\x82",
    b"\xf0\x9f\x98\x80",
    b"a;b=\xff",
    b"text/plain; charset*=\xff''x",
    b"[\xff",
    b"\xff:1",
)


async def test_headers_and_paths_that_are_no_text_are_refused_without_a_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = write_token(tmp_path / "token")
    right = b"Authorization: Bearer a secret of some length\r\n"
    async with one_node(tmp_path / "cluster", {"token_file": str(token)}) as cluster:
        for path in (
            b"/v1/node",
            b"/v1/actions/stop",
            b"/v1/tables/info?log_id=%ff",
            b"/%ff\xff",
            b"/v1/tables/\xff?\xff=\xff",
        ):
            for name, value in itertools.product(HEADERS, STRANGE):
                for method, authorization in ((b"GET", b""), (b"POST", b""), (b"GET", right), (b"POST", right)):
                    start = b"%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n" % (method, path)
                    request = start + authorization + b"%s: %s\r\n\r\n" % (name.encode(), value)
                    status, _ = await exchange(cluster, request)
                    assert status < 500, request
        status, body = await exchange(
            cluster, get("/v1/node").replace(b"Connection", b"Authorization: Bearer \xff\r\nConnection")
        )
        assert (status, json.loads(body)["error"]["status"]) == (401, "ACCESS")
        assert not cluster.hosts[0].stop_wanted.done()
    assert "Traceback" not in caplog.text, "strangers do not fill the log"


async def test_oversized_and_malformed_requests_are_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with one_node(tmp_path, {}) as cluster:
        assert (await exchange(cluster, get("/v1/node", "X: " + "x" * 100_000)))[0] in (0, 400)
        assert (await exchange(cluster, get("/" + "x" * 100_000)))[0] in (0, 400, 414)
        assert (await exchange(cluster, b"\x00\xff" * 5000))[0] in (0, 400)
        length = "Content-Length: 1000000000000"
        status, body = await exchange(cluster, get("/v1/tables/info", length).replace(b"GET", b"POST") + b"x" * 100_000)
        assert (status, json.loads(body)["error"]["status"]) == (405, "NOTSUPPORTED")
        assert (await exchange(cluster, get("/v1/health")))[0] == 200
    assert "Traceback" not in caplog.text, "strangers do not fill the log"


MALFORMED = [
    b"GET /v1/health HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET /v1/health HTTP/9.9\r\nHost: 127.0.0.1\r\n\r\n",
    b"GET http://somewhere.example/v1/health HTTP/1.1\r\nHost: somewhere.example\r\nConnection: close\r\n\r\n",
    b"POST /v1/actions/stop HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    b"POST /v1/actions/stop HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"POST /v1/actions/stop HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n{}",
    b"GET /v1/tables/../actions/stop HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"DELETE /v1/actions/stop HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"GET /v1/tables/info?log_id=1%3BDROP%20TABLE%20info HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
    b"GET /v1/tables/info?sql=SELECT%201 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n",
]


async def test_requests_that_are_put_together_wrongly_do_nothing(tmp_path: Path) -> None:
    async with one_node(tmp_path, {"request_timeout_us": LONG_ENOUGH}) as cluster:
        answers = await asyncio.gather(*(exchange(cluster, request) for request in MALFORMED))
        assert {status for status, _ in answers} <= {0, 400, 403, 404, 405, 408}, answers
        assert not cluster.hosts[0].stop_wanted.done()
        assert (await exchange(cluster, get("/v1/health")))[0] == 200


async def test_readers_that_take_nothing_are_ended_and_hold_up_no_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"request_timeout_us": LONG_ENOUGH, "requests_max": 4}
    async with one_node(tmp_path, settings) as cluster, cluster.client() as client:
        (row,) = from_cluster_file.nodes_rows(cluster.hosts[0].config)
        monkeypatch.setattr(from_cluster_file, "nodes_rows", lambda config: itertools.repeat(row))
        await client.append(1, b"first")
        connections = [await asyncio.open_connection(*address(cluster)) for _ in range(4)]
        for reader, writer in connections:
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(get("/v1/tables/nodes"))  # without an end
        metrics = await running(cluster, 4)
        assert (await exchange(cluster, get("/v1/tables/info")))[0] == 429
        await client.append(1, b"x")
        assert metrics.requests_running == 4, "it did not wait for their end"
        await running(cluster, 0)
        assert metrics.requests_timed_out == 4
        assert (await exchange(cluster, get("/v1/tables/info")))[0] == 200, "there is room for others"
        for _, writer in connections:
            writer.close()


async def is_ended(reader: asyncio.StreamReader, seconds: float = 60) -> bool:
    """Whether the other side ends a connection without a word within so many seconds."""
    try:
        return await asyncio.wait_for(reader.read(), seconds) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


async def test_connections_that_say_nothing_are_ended(tmp_path: Path) -> None:
    async with one_node(tmp_path, {"request_timeout_us": LONG_ENOUGH}) as cluster:
        silent = [await asyncio.open_connection(*address(cluster)) for _ in range(3)]
        silent[0][1].write(b"GET /v1/health HTTP/1.1\r\nHost: 127")
        for reader, writer in silent:
            assert await is_ended(reader)
            writer.close()
        status, page = await exchange(cluster, get("/metrics"))
        assert status == 200
        assert b"logdevice_admin_connections_idle_total 3.0" in page


async def test_idle_connections_make_way_for_a_health_check(tmp_path: Path) -> None:
    async with one_node(tmp_path, {"request_timeout_us": "10min", "connections_per_address_max": 10_000}) as cluster:
        silent = [await asyncio.open_connection(*address(cluster)) for _ in range(64 + HEALTH_PLACES)]
        silent[1][1].write(b"GET /v1/health HTTP/1.1\r\nHost: 127")
        assert (await exchange(cluster, get("/v1/health")))[0] == 200
        assert await is_ended(silent[0][0]), "it was idle for longest"
        assert not await is_ended(silent[-1][0], 0.1)
        status, page = await exchange(cluster, get("/metrics"))
        assert status == 200
        assert b"logdevice_admin_connections_displaced_total 1.0" in page
        for _, writer in silent:
            writer.close()


async def test_an_address_that_opens_many_connections_displaces_its_own(tmp_path: Path) -> None:
    async with one_node(tmp_path, {"request_timeout_us": "10min", "connections_per_address_max": 4}) as cluster:
        other = await asyncio.open_connection(*address(cluster), local_addr=("127.0.0.2", 0))
        silent = [await asyncio.open_connection(*address(cluster)) for _ in range(100)]
        assert all([await is_ended(reader) for reader, _ in silent[:96]])
        other[1].write(get("/v1/health"))
        assert (await asyncio.wait_for(other[0].read(), 60)).startswith(b"HTTP/1.1 200 ")
        for _, writer in (other, *silent):
            writer.close()


async def test_a_health_check_finds_a_place_while_requests_have_all_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"request_timeout_us": "10min", "requests_max": 1000, "connections_max": 3}
    async with one_node(tmp_path, settings) as cluster:
        monkeypatch.setattr(cluster.hosts[0], "ask_epoch_store", lambda operations, done: None)
        waiting = [asyncio.create_task(exchange(cluster, get("/v1/tables/epoch_store"))) for _ in range(3)]
        await running(cluster, 3)
        silent = [await asyncio.open_connection(*address(cluster)) for _ in range(2 * HEALTH_PLACES)]
        assert (await exchange(cluster, get("/v1/tables/info")))[0] == 429
        assert (await exchange(cluster, get("/v1/health")))[0] == 200
        assert not any(task.done() for task in waiting), "what is worked on does not make way"
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        for _, writer in silent:
            writer.close()


async def test_requests_that_take_long_are_bounded_and_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"requests_max": 2, "request_timeout_us": LONG_ENOUGH}
    async with one_node(tmp_path, settings) as cluster:
        monkeypatch.setattr(cluster.hosts[0], "ask_epoch_store", lambda operations, done: None)
        waiting = [asyncio.create_task(exchange(cluster, get("/v1/tables/epoch_store"))) for _ in range(2)]
        await running(cluster, 2)
        status, body = await exchange(cluster, get("/v1/tables/info"))
        assert (status, json.loads(body)["error"]["status"]) == (429, "OVERLOADED")
        assert (await exchange(cluster, get("/v1/health")))[0] == 200, "who watches the node is always answered"
        assert [status for status, _ in await asyncio.gather(*waiting)] == [0, 0]
        assert (await exchange(cluster, get("/v1/tables/info")))[0] == 200


async def test_an_answer_of_somebody_else_is_not_taken(tmp_path: Path) -> None:
    async with one_node(tmp_path, {}) as cluster:
        config = load_cluster(Path(cluster.config_file).read_text())
        for other in (
            dataclasses.replace(config, name="another"),
            dataclasses.replace(
                config, nodes={NodeId(1): dataclasses.replace(config.nodes[NodeId(0)], node=NodeId(1))}
            ),
        ):
            with LDQuery(other, deadline=60) as session:
                result = await asyncio.to_thread(session.query, "SELECT * FROM info")
            assert result.rows == []
            assert [failure.status for failure in result.failures] == [Status.INVALID_CLUSTER]


async def test_a_large_table_is_refused_with_the_reason_unless_all_of_it_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ldquery.session.ROWS_PER_NODE_MAX", 10)
    async with one_node(tmp_path, {}) as cluster:
        with LDQuery(cluster.config_file, deadline=60) as session:
            with pytest.raises(
                LogDeviceError, match="constrain log_id, shard or node_id, or ask for --full"
            ) as refused:
                await asyncio.to_thread(session.query, "SELECT count(*) FROM stats")
            assert refused.value.status is Status.TOOBIG
            session.full = True
            result = await asyncio.to_thread(session.query, "SELECT count(*) FROM stats")
            assert result.rows[0][0] > 10


async def test_settings_are_told_as_the_node_uses_them_whatever_the_file_says_since(tmp_path: Path) -> None:
    async with one_node(tmp_path, {"requests_max": 3}) as cluster:
        host = cluster.hosts[0]
        changed = dataclasses.replace(host.config, version=2, settings={"admin": {"requests_max": 9}})
        write_cluster_file(tmp_path, changed)
        host.reload_config()
        assert host.config.version == 2
        with LDQuery(cluster.config_file, deadline=60) as session:
            result = await asyncio.to_thread(
                session.query,
                "SELECT current_value, default_value, from_config FROM settings WHERE name = 'requests_max'",
            )
        assert result.rows == [("3", "4", 1)]


async def test_whose_file_is_of_another_cluster_of_the_same_name_hears_so(tmp_path: Path) -> None:
    async with one_node(tmp_path, {}, token=True) as cluster:
        config = load_cluster(Path(cluster.config_file).read_text())
        access = AdminAccess.of_program(Path(cluster.config_file))
        for uuid, told in ((config.uuid, []), (bytes(16), [Status.INVALID_CLUSTER])):
            asker = NodeAsker(dataclasses.replace(config, uuid=uuid), access)
            try:
                rows, failures = await asker.ask_each(TABLES["info"], [NodeId(0)], EVERYTHING, None, 30)
            finally:
                await asker.close()
            assert [failure.status for failure in failures] == told
            assert len(rows) == 1 - len(told)
        assert f"N0 of another cluster named {config.name} answers at" in failures[0].detail
