"""What a node answers to ldquery: rows, a failure, or something that is not understood."""

from __future__ import annotations

import json
from typing import Any

import pytest

from client.node_tables import _parse
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.tables.catalog import TABLES

TABLE = TABLES["stored_logs"]
NAMES = [column.name for column in TABLE.columns]


def body(**changes: Any) -> bytes:
    content = {"cluster": "dev", "node": 5, "columns": NAMES, "rows": [[5, 0, 1, 7]], "more": False, **changes}
    return json.dumps(content).encode()


def test_columns_of_another_version_are_matched_by_name() -> None:
    assert _parse(TABLE, 200, body(config_version=3)) == (("dev", 5, 3), [[5, 0, 1, 7]])
    assert _parse(TABLE, 200, body(columns=["later", *NAMES[:3]])) == (("dev", 5, 0), [[0, 1, 7, None]])


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
            _parse(TABLE, code, content)
        assert refused.value.status is Status.INTERNAL
