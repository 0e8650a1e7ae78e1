"""What a node answers to ldquery: rows, a failure, or something that is not understood."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from client.admin_access import AdminAccess
from client.node_tables import AnsweringNode, NodeAsker, parse_answer
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.catalog import TABLES
from logdevice_py.tables.constraints import EVERYTHING
from tests.unit.storage_node.fakes import make_config

TABLE = TABLES["stored_logs"]
NAMES = [column.name for column in TABLE.columns]


def body(**changes: Any) -> bytes:
    content = {"cluster": "dev", "node": 5, "columns": NAMES, "rows": [[5, 0, 1, 7]], "more": False, **changes}
    return json.dumps(content).encode()


def test_columns_of_another_version_are_matched_by_name() -> None:
    assert parse_answer(TABLE, 200, body(config_version=3)) == (AnsweringNode("dev", "", 5, 3), [[5, 0, 1, 7]])
    assert parse_answer(TABLE, 200, body(columns=["later", *NAMES[:3]])) == (
        AnsweringNode("dev", "", 5, 0),
        [[0, 1, 7, None]],
    )


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 200_000,
        b"null",
        body(columns=None),
        body(columns="columns"),
        body(rows=None),
        body(rows={"a": 1}),
        body(rows=[[1]]),
        body(rows=[None]),
        body(rows=["rows"]),
    ],
)
def test_what_is_no_answer_is_not_understood(content: bytes) -> None:
    for code in (200, 503):
        with pytest.raises(LogDeviceError) as refused:
            parse_answer(TABLE, code, content)
        assert refused.value.status is Status.INTERNAL


async def test_a_node_whose_host_is_no_name_fails_alone(tmp_path: Path) -> None:
    config = replace(make_config(), settings={"admin": {"expose": True}})
    nodes = {node: replace(each, host="db2..example", admin_port=4441) for node, each in config.nodes.items()}
    asker = NodeAsker(replace(config, nodes=nodes), AdminAccess(None, tmp_path / "cluster.toml"))
    try:
        rows, failures = await asker.ask_each(TABLE, [NodeId(1)], EVERYTHING, None, 10)
    finally:
        await asker.close()
    assert rows == []
    assert [(failure.node, failure.status) for failure in failures] == [(1, Status.CONNFAILED)]
    assert "label empty or too long" in failures[0].detail
