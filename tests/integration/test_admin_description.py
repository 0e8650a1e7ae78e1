"""The admin API's description is what nodes do: a validator, answers, a generated client and the page of the API go by it."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from prometheus_client.parser import text_string_to_metric_families

from logdevice_py import LSN, LocalCluster
from logdevice_py.config.admin import admin_endpoint
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import NodeId
from logdevice_py.runtime.admin_token import program_token
from logdevice_py.runtime.http.try_page import PAGE, TRY_PAGE
from tests.integration.test_admin_api import exchange, get, one_node, write_token
from tests.unit.server.admin.test_dashboard import of_alerts, shown

_USE = """
import sys
from admin_api import AuthenticatedClient, Client
from admin_api.api.actions import trim
from admin_api.api.node import get_health, get_node, list_tables
from admin_api.api.tables import get_table_sequencers, get_table_record
from admin_api.models import TrimBody, Error

url, token = sys.argv[1:]
with AuthenticatedClient(base_url=url, token=token) as client:
    assert get_health.sync(client=client).status == "OK"
    assert get_node.sync(client=client).node_id == 0
    assert len(list_tables.sync(client=client).tables) > 20
    table = get_table_sequencers.sync(client=client, log_id=1)
    state = table.rows[0][table.columns.index("state")]
    records = get_table_record.sync(client=client, log_id=1, lsn_min="e1n1", lsn_max="e1n9", limit=5)
    lsn = records.rows[0][records.columns.index("lsn")]
    refused = trim.sync(client=client, body=TrimBody(log_id=99, lsn="e1n1"))
    assert isinstance(refused, Error)
    print(state, lsn, refused.error.status)
"""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalCluster]:
    async with LocalCluster(nodes=1, logs=3, directory=tmp_path / "cluster") as cluster, cluster.client() as client:
        await client.append(1, b"hello", key=b"k")
        yield cluster


def url_and_token(cluster: LocalCluster) -> tuple[str, str]:
    config = load_cluster(Path(cluster.config_file).read_text())
    endpoint = admin_endpoint(config, config.nodes[NodeId(0)])
    assert endpoint is not None
    token = program_token(Path(cluster.config_file), None)
    assert token is not None
    return f"http://{endpoint.host}:{endpoint.port}", token


async def ask(cluster: LocalCluster, path: str, *, token: bool = True) -> tuple[int, str, Any]:
    url, right = url_and_token(cluster)
    headers = {"Authorization": f"Bearer {right}"} if token else {}
    async with aiohttp.ClientSession() as session, session.get(url + path, headers=headers) as response:
        return response.status, await response.text(), response.headers


async def description(cluster: LocalCluster) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await ask(cluster, "/v1/openapi.json"))[1])
    return found


async def test_a_validator_finds_nothing_wrong_and_operations_have_names_and_tags(cluster: LocalCluster) -> None:
    document = await description(cluster)
    validate(document)
    operations = [described for methods in document["paths"].values() for described in methods.values()]
    names = Counter(described["operationId"] for described in operations)
    assert max(names.values()) == 1
    assert all(re.fullmatch(r"[a-z_]+", name) for name in names)
    tags = {tag["name"] for tag in document["tags"]}
    assert {tag for described in operations for tag in described["tags"]} == tags


async def test_every_answer_is_what_the_description_says(cluster: LocalCluster) -> None:
    document = await description(cluster)
    rows = 0
    for path, methods in document["paths"].items():
        if "get" not in methods or path == "/metrics":
            continue
        needs = {each["name"] for each in methods["get"].get("parameters", ()) if each["required"]}
        query = "?log_id=1&lsn_min=e1n1&lsn_max=e1n9" if needs else ""
        status, text, _ = await ask(cluster, path + query)
        assert status == 200, (path, text)
        schema = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
        Draft202012Validator.check_schema(schema)
        answer = json.loads(text)
        Draft202012Validator(schema).validate(answer)
        rows += len(answer["rows"]) if path.startswith("/v1/tables/") else 0
    assert rows > 100, "types were compared with something"
    status, text, _ = await ask(cluster, "/v1/tables/record")
    assert status == 400
    Draft202012Validator(document["components"]["schemas"]["Error"]).validate(json.loads(text))


async def test_rows_have_the_type_of_each_column(cluster: LocalCluster) -> None:
    document = await description(cluster)
    schema = document["paths"]["/v1/tables/append_throughput"]["get"]["responses"]["200"]["content"]
    cells = schema["application/json"]["schema"]["properties"]["rows"]["items"]["prefixItems"]
    assert [(each["title"], each["type"]) for each in cells[:4]] == [
        ("node_id", "integer"),
        ("log_id", "integer"),
        ("log_group", ["string", "null"]),
        ("seconds_1min", "number"),
    ]


async def test_a_generated_client_works(cluster: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_text(json.dumps(await description(cluster)))
    (tmp_path / "config.yml").write_text("package_name_override: admin_api\npost_hooks: []\n")
    await run(
        tmp_path, "openapi_python_client", "generate", "--path", "openapi.json", "--config", "config.yml",
        "--output-path", "generated", "--fail-on-warning",
    )  # fmt: skip
    (tmp_path / "generated" / "use.py").write_text(_USE)
    told = await run(tmp_path / "generated", "use", *url_and_token(cluster))
    assert told.split() == ["ACTIVE", str(int(LSN.parse("e1n1"))), "NOTFOUND"]


async def run(directory: Path, module: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, *arguments, cwd=directory,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, error = await process.communicate()
    assert process.returncode == 0, out.decode() + error.decode()
    return out.decode()


async def test_the_page_needs_nothing_from_elsewhere_and_no_token(cluster: LocalCluster) -> None:
    status, text, headers = await ask(cluster, TRY_PAGE, token=False)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert text == PAGE
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "://" not in text
    assert re.findall(r"(?:src|href|@import)\s*=", text) == []
    assert "innerHTML" not in text, "what nodes say is text, never markup"


async def test_the_page_is_given_to_who_has_no_token_and_nothing_else_is(tmp_path: Path) -> None:
    token = write_token(tmp_path / "token")
    async with one_node(tmp_path / "cluster", {"token_file": str(token)}) as cluster:
        status, body = await exchange(cluster, get(TRY_PAGE))
        assert (status, body.decode()) == (200, PAGE)
        for path in ("/v1/openapi.json", f"{TRY_PAGE}/", f"{TRY_PAGE}/x"):
            assert (await exchange(cluster, get(path)))[0] == 401
        elsewhere = get(TRY_PAGE).replace(b"Host: 127.0.0.1", b"Host: example.org")
        assert (await exchange(cluster, elsewhere))[0] == 403, "a page of the Web that names our address its own"


async def test_metrics_tell_of_the_process_of_python_and_of_logs(cluster: LocalCluster) -> None:
    admin = cluster.hosts[0]._admin
    assert admin is not None
    sampler = admin._tables.sampler
    await sampler.look()
    async with cluster.client() as client, client.reader(1, start=LSN.parse("e1n2")) as reader:
        with pytest.raises(Exception, match="nothing came"):
            await reader.read(timeout=0.2)
        await client.append(1, b"x" * 1000)
        await sampler.look()
        families = {
            family.name: family for family in text_string_to_metric_families((await ask(cluster, "/metrics"))[1])
        }
    for name in (
        "process_cpu_seconds",
        "process_resident_memory_bytes",
        "process_open_fds",
        "python_info",
        "python_gc_collections",
    ):
        assert families[name].samples, name
    assert families["process_resident_memory_bytes"].samples[0].value > 1 << 20
    for name, least in (("append_entries_rate", 1), ("append_bytes_rate", 1), ("read_streams", 1), ("reader_lag", 0)):
        (sample,) = families[f"logdevice_log_{name}"].samples
        assert sample.labels == {"log_id": "1"}
        assert sample.value >= least, name


async def test_a_node_exports_every_series_of_the_dashboard_and_of_alerts(cluster: LocalCluster) -> None:
    page = (await ask(cluster, "/metrics"))[1]
    exported = {line.partition("{")[0].partition(" ")[0] for line in page.splitlines() if not line.startswith("#")}
    assert shown() - exported == set()
    of_ldindexd = {"logdevice_index_log_undealt_age_seconds"}
    assert of_alerts() - exported == of_ldindexd, "test_ldindexd.py looks for it"
