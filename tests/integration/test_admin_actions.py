"""What operators have nodes do over the admin API, and what nodes do not let them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ldquery.session import LDQuery
from logdevice_py.config.admin import admin_endpoint
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import LogId, NodeId, is_internal_log
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.admin_token import program_token, token_beside
from server.admin.actions import ACTIONS
from server.dev import layout
from server.dev.local_cluster import LocalCluster
from tests.integration.process_cluster import process_cluster
from tests.integration.test_admin_api import LONG_ENOUGH, RIGHT, exchange, get, is_ended, one_node, tls_of, write_token

LOG = LogId(1)
NO_ACTIONS = [
    (b"{}", "text/plain", 400),
    (b"{}", "application/x-www-form-urlencoded", 400),
    (b"", "application/json", 400),
    (b"\xff\xfe", "application/json", 400),
    (b"[" * 4000, "application/json", 400),
    (b"[1]", "application/json", 400),
    (b"null", "application/json", 400),
    (b'{"log_id": true}', "application/json", 400),
    (b'{"log_id": "1"}', "application/json", 400),
    (b'{"log_id": 0}', "application/json", 400),
    (b'{"log_id": 1e3}', "application/json", 400),
    (b'{"log_id": 4611686018427387905}', "application/json", 400),
    (b'{"log_id": 1, "force": true}', "application/json", 400),
    (b'{"log_id": ' + b"1" * 4090 + b"}", "application/json", 413),
    (b" " * 100_000 + b'{"log_id": 1}', "application/json", 413),
]
"""Body, content type, and the HTTP status of the answer."""


def post(path: str, body: bytes, *headers: str, content_type: str = "application/json") -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: 127.0.0.1",
        "Connection: close",
        f"Content-Type: {content_type}",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def act_at(config_file: str, node: int, name: str, parameters: Mapping[str, Any]) -> tuple[int, Any]:
    """HTTP status and answer of an action at a node."""
    config = load_cluster(await asyncio.to_thread(Path(config_file).read_text))
    endpoint = admin_endpoint(config, config.nodes[NodeId(node)])
    assert endpoint is not None
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=tls_of(config_file))
    token = program_token(Path(config_file), None)
    authorization = () if token is None else (f"Authorization: Bearer {token}",)
    writer.write(post(f"/v1/actions/{name}", json.dumps(parameters).encode(), *authorization))
    head, _, body = (await asyncio.wait_for(reader.read(), 60)).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), json.loads(body)


async def act(cluster: LocalCluster, action: str, node: int = 0, /, **parameters: Any) -> tuple[int, Any]:
    return await act_at(cluster.config_file, node, action, parameters)


async def query(cluster: LocalCluster, sql: str) -> list[tuple[Any, ...]]:
    # a node of which the rows were missing would look as if it had none
    with LDQuery(cluster.config_file, deadline=60) as session:
        return (await asyncio.to_thread(session.query, sql)).rows


async def home(cluster: LocalCluster) -> tuple[int, int]:
    """Who sequences the log, in which epoch."""
    (row,) = await query(
        cluster,
        f"SELECT node_id, epoch FROM sequencers WHERE state = 'ACTIVE' AND log_id = {LOG} ORDER BY epoch DESC LIMIT 1",
    )
    return row  # type: ignore[return-value]


async def read_all(client: Any) -> list[bytes]:
    tail = await client.tail_lsn(LOG)
    async with client.reader(LOG, start=LSN.OLDEST, until=tail) as reader:
        return [item.payload async for item in reader if hasattr(item, "payload")]


async def test_a_recovery_that_is_asked_for_takes_the_log_to_another_epoch(tmp_path: Path) -> None:
    async with LocalCluster(nodes=3, directory=tmp_path) as cluster, cluster.client() as client:
        for number in range(5):
            await client.append(LOG, b"%d" % number)
        refused: Any = {}
        async with asyncio.timeout(
            60
        ):  # on a machine that stalls for a second nodes know less of each other for a while
            while "sequences it" not in refused.get("error", {}).get("detail", ""):
                node, epoch = await home(cluster)
                other = next(each for each in range(3) if each != node)
                code, refused = await act(cluster, "start_recovery", other, log_id=LOG)
        assert (code, refused["error"]["status"]) == (409, "REDIRECTED")
        assert f"N{node} sequences it" in refused["error"]["detail"]
        assert await act(cluster, "start_recovery", node, log_id=LOG) == (200, {"log_id": 1, "started": True})
        # until the epoch store has given the next epoch, the old one takes appends
        moved: list[tuple[Any, ...]] = []
        async with asyncio.timeout(60):
            while not moved:
                moved = await query(
                    cluster,
                    f"SELECT node_id, epoch FROM sequencers WHERE state = 'ACTIVE' AND log_id = {LOG} AND epoch > {epoch}",
                )
        assert moved == [(node, epoch + 1)]
        await client.append(LOG, b"5")
        assert await read_all(client) == [b"%d" % number for number in range(6)]
        assert (await act(cluster, "start_recovery", node, log_id=77))[0] == 404


async def test_a_sequencer_that_is_deactivated_under_load_comes_back_in_another_epoch_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    async with LocalCluster(nodes=3, directory=tmp_path) as cluster, cluster.client() as client:
        appended: list[bytes] = []
        under_way = asyncio.Event()

        async def write() -> None:
            for number in range(300):
                payload = b"%d" % number
                await client.append(LOG, payload)
                appended.append(payload)
                if number == 20:
                    under_way.set()

        await client.append(LOG, b"first")
        node, epoch = await home(cluster)
        writing = asyncio.create_task(write())
        await under_way.wait()
        assert (await act(cluster, "deactivate_sequencer", node, log_id=LOG))[0] == 200
        await writing
        assert (await home(cluster))[1] > epoch
        assert await read_all(client) == [b"first", *appended]
        assert (await act(cluster, "deactivate_sequencer", node, log_id=2))[1]["error"]["status"] == "NOSEQUENCER"


async def test_an_operator_trims(tmp_path: Path) -> None:
    async with LocalCluster(nodes=3, directory=tmp_path) as cluster, cluster.client() as client:
        receipts = [await client.append(LOG, b"%d" % number) for number in range(5)]
        lsn = str(receipts[2].lsn)
        code, answer = await act(cluster, "trim", log_id=LOG, lsn=lsn)
        assert (code, answer) == (200, {"log_id": 1, "trimmed_through": int(receipts[2].lsn)})
        assert await read_all(client) == [b"3", b"4"]
        code, answer = await act(cluster, "trim", log_id=LOG, lsn="e900n1")
        assert (code, answer["error"]["status"]) == (413, "TOOBIG")
        assert (await act(cluster, "trim", log_id=LOG, lsn="three"))[0] == 400


async def test_settings_are_changed_and_taken_back_while_the_node_runs(tmp_path: Path) -> None:
    async with LocalCluster(nodes=1, directory=tmp_path) as cluster:
        told = "SELECT current_value, from_operator, is_live FROM settings WHERE name = 'graylist_us'"
        assert await query(cluster, told) == [("10s", 0, 1)]
        change = {"section": "settings.sequencer", "name": "graylist_us"}
        code, answer = await act(cluster, "set", **change, value="3s")
        assert (code, answer["value"]) == (200, "3s")
        assert await query(cluster, told) == [("3s", 1, 1)]
        sequencer = cluster.hosts[0].node.sequencer
        assert sequencer is not None
        context = sequencer.context
        users = (context, context.availability, context.store_timeouts, context.epoch_store, context.releases)
        assert {getattr(each, "settings", None) or each._settings for each in users} == {context.settings}  # type: ignore[attr-defined]
        assert context.settings.graylist_us == 3_000_000
        assert (await act(cluster, "unset", **change))[1]["value"] == "10s"
        assert await query(cluster, told) == [("10s", 0, 1)]
        for section, name, value in [
            ("settings.sequencer", "graylist_us", "3"),
            ("settings.sequencer", "graylist_us", "900h"),
            ("settings.sequencer", "nope", "3s"),
            ("settings.sequencer", "esn_max", "100"),
            ("settings.admin", "token_file", "/dev/null"),
            ("settings.storage", "sync_delay_us", "1s"),
            ("__class__", "x", "y"),
        ]:
            code, answer = await act(cluster, "set", section=section, name=name, value=value)
            assert (code, answer["error"]["status"]) == (400, "INVALID_PARAM"), (section, name, value)
        assert context.settings.graylist_us == 10_000_000


async def test_what_shards_do_is_changed_while_they_do_it(tmp_path: Path) -> None:
    file = {"scrub_interval_us": "1h", "partitions_max": 77}
    write_token(token_beside(layout.cluster_file(tmp_path)))
    async with one_node(tmp_path, {}, storage=file) as cluster, cluster.client() as client:
        change = {"section": "settings.storage", "name": "scrub_interval_us"}
        assert (await act(cluster, "set", **change, value="2h"))[1]["value"] == "2h"
        (row,) = await query(cluster, "SELECT current_value FROM settings WHERE name = 'scrub_interval_us'")
        assert row == ("2h",)
        storage = cluster.hosts[0].node.storage
        assert storage is not None
        (machines,) = storage.shards.values()
        assert machines.shard.settings.scrub_interval_us == 7_200_000_000
        assert (await act(cluster, "set", section="settings.storage", name="scrub_bytes_per_s", value="0"))[0] == 200
        cluster.hosts[0].driver.event(machines.scrubber.hurry)
        await client.append(LOG, b"x")
        assert await read_all(client) == [b"x"]
        assert (await act(cluster, "unset", **change))[1]["value"] == "1h", "as the file says"
        live = await query(
            cluster,
            "SELECT count(*) FROM settings WHERE name IN ('partitions_max', 'removed_logs_grace_us') AND is_live",
        )
        assert live == [(0,)]


async def test_the_limits_of_the_api_itself_can_be_changed(tmp_path: Path) -> None:
    write_token(token_beside(layout.cluster_file(tmp_path)))
    async with one_node(tmp_path, {}) as cluster:
        change = {"section": "settings.admin", "name": "connections_per_address_max"}
        assert (await act(cluster, "set", **change, value="1"))[0] == 200
        reader, writer = await asyncio.open_connection(*_address(cluster))
        assert (await exchange(cluster, get("/v1/health")))[0] == 200
        assert await is_ended(reader), "another one came"
        writer.close()


def _address(cluster: LocalCluster) -> tuple[str, int]:
    config = load_cluster(Path(cluster.config_file).read_text())
    endpoint = admin_endpoint(config, config.nodes[NodeId(0)])
    assert endpoint is not None
    return endpoint.host, endpoint.port


async def test_a_drained_node_sequences_nothing_and_can_still_be_looked_at(tmp_path: Path) -> None:
    async with LocalCluster(nodes=3, directory=tmp_path) as cluster, cluster.client() as client:
        await client.append(LOG, b"before")
        node, _ = await home(cluster)
        assert await act(cluster, "drain", node) == (200, {"drained": True})
        await client.append(LOG, b"after")
        rows = await query(cluster, f"SELECT node_id FROM sequencers WHERE state = 'ACTIVE' AND log_id = {LOG}")
        assert any(row[0] != node for row in rows)
        assert await read_all(client) == [b"before", b"after"]
        assert await query(cluster, f"SELECT readiness FROM info WHERE node_id = {node}") == [("SHUTDOWN",)]


async def test_a_node_that_is_told_to_stop_ends_in_order(tmp_path: Path) -> None:
    async with process_cluster(tmp_path, nodes=3, logs=1, replicate="node:2", racks=1) as cluster:
        child = cluster.supervisor.children[NodeId(1)]
        child.asked_to_stop = True
        assert await act_at(cluster.file, 1, "stop", {}) == (200, {"stopping": True})
        assert await asyncio.wait_for(child.process.wait(), 60) == 0
        assert "stopped" in cluster.logs_of_nodes()


async def test_what_is_no_action_is_refused_and_does_nothing(tmp_path: Path) -> None:
    write_token(token_beside(layout.cluster_file(tmp_path)))
    async with one_node(tmp_path, {}) as cluster:
        for body, content_type, code in NO_ACTIONS:
            request = post("/v1/actions/start_recovery", body, RIGHT, content_type=content_type)
            status, answer = await exchange(cluster, request)
            assert status == code, body[:100]
            assert json.loads(answer)["error"]["detail"]
        assert [row for row in await query(cluster, "SELECT * FROM sequencers") if not is_internal_log(row[1])] == []


async def test_actions_are_posted_known_and_authorized(tmp_path: Path) -> None:
    token = write_token(tmp_path / "token")
    async with one_node(tmp_path / "cluster", {"token_file": str(token)}) as cluster:
        right = RIGHT
        for headers in ((), ("Authorization: Bearer a secret of some lengtH",), ("Authorization: Bearer",)):
            assert (await exchange(cluster, post("/v1/actions/stop", b"{}", *headers)))[0] == 401
        assert not cluster.hosts[0].stop_wanted.done()
        assert (await exchange(cluster, get("/v1/actions/stop", right)))[0] == 405
        assert (await exchange(cluster, post("/v1/actions/reboot", b"{}", right)))[0] == 404
        assert not cluster.hosts[0].stop_wanted.done()
        assert (await exchange(cluster, post("/v1/actions/stop", b"{}", right)))[0] == 200
        assert cluster.hosts[0].stop_wanted.done()


async def test_a_node_without_a_token_does_nothing_that_it_is_asked_for_and_can_be_looked_at(tmp_path: Path) -> None:
    async with one_node(tmp_path, {}) as cluster:
        for name in ACTIONS:
            for headers in ((), ("Authorization: Bearer ",), ("Authorization: Bearer None",), (RIGHT,)):
                status, answer = await exchange(cluster, post(f"/v1/actions/{name}", b"{}", *headers))
                assert (status, json.loads(answer)["error"]["status"]) == (403, "ACCESS")
                assert "actions need a token, and this node has none" in json.loads(answer)["error"]["detail"]
        assert not cluster.hosts[0].stop_wanted.done()
        assert await query(cluster, "SELECT node_id FROM info") == [(0,)]
        described = json.loads((await exchange(cluster, get("/v1/openapi.json")))[1])
        assert "security" not in described
        assert described["paths"]["/v1/actions/stop"]["post"]["security"] == [{"token": []}]


async def test_a_body_that_never_comes_is_not_waited_for(tmp_path: Path) -> None:
    write_token(token_beside(layout.cluster_file(tmp_path)))
    async with one_node(tmp_path, {"request_timeout_us": LONG_ENOUGH}) as cluster:
        request = post("/v1/actions/stop", b"", RIGHT).replace(b"Content-Length: 0", b"Content-Length: 100")
        assert (await exchange(cluster, request + b'{"a'))[0] in (0, 408)
        assert not cluster.hosts[0].stop_wanted.done()
        assert (await exchange(cluster, get("/v1/health")))[0] == 200


async def test_the_description_has_every_path_and_what_it_takes(tmp_path: Path) -> None:
    write_token(token_beside(layout.cluster_file(tmp_path)))
    async with one_node(tmp_path, {}) as cluster:
        status, body = await exchange(cluster, get("/v1/openapi.json", RIGHT))
        document = json.loads(body)
        assert (status, document["openapi"]) == (200, "3.1.0")
        described_methods = [
            (path, method, described)
            for path, methods in document["paths"].items()
            for method, described in methods.items()
        ]
        assert len(described_methods) > len(ACTIONS) > 5
        for path, method, described in described_methods:
            assert described["summary"].endswith("."), path
            assert "default" in described["responses"]
            request = get(path, RIGHT) if method == "get" else post(path, b"[]", RIGHT)
            code, _ = await exchange(cluster, request)
            needs = any(each["required"] for each in described.get("parameters", ()))
            assert code == (400 if method == "post" or needs else 200), path
        _, listed = await exchange(cluster, get("/v1/tables", RIGHT))
        tables = json.loads(listed)["tables"]
        assert len(tables) > 20
        for table in tables:
            assert f"/v1/tables/{table['name']}" in document["paths"]
        for name, action in ACTIONS.items():
            content = document["paths"][f"/v1/actions/{name}"]["post"]["requestBody"]["content"]
            schema = content["application/json"]["schema"]
            assert schema["required"] == [parameter.name for parameter in action.parameters]
        assert document["security"] == [{"token": []}]
        assert document["paths"]["/v1/health"]["get"]["security"] == []


def test_a_parameter_that_is_missing_is_named_with_its_meaning() -> None:
    with pytest.raises(LogDeviceError) as refused:
        ACTIONS["trim"].check({"log_id": 1})
    assert refused.value.status is Status.INVALID_PARAM
    assert "lsn: is missing: The last LSN that goes" in refused.value.detail
