"""What Python does for each record on its way from the socket to Arrow: nothing."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from client.client import Client
from client.spark.columns import ArrowColumns
from client.spark.options import SourceOptions
from client.spark.schema import arrow_schema, source_schema
from tests.spark.conftest import RunningCluster
from tests.spark.test_batch import write

RECORDS = 100_000


@pytest.mark.parametrize(("log", "keys"), [(22, None), (28, [b"key", None] * (RECORDS // 2))])
def test_no_python_frame_runs_for_a_single_record_between_socket_and_arrow(
    cluster: RunningCluster, log: int, keys: list[bytes | None] | None
) -> None:
    # entries of thousands of records
    write(cluster, log, [b"x" * 100] * RECORDS, at_once=RECORDS, size_trigger=1 << 18, keys=keys)
    schema = arrow_schema(source_schema(SourceOptions.of({"cluster": "c", "logs": "22", "includeGaps": "true"})))
    made = ArrowColumns(schema, log, "/logs")
    calls, with_key = 0, 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    async def read() -> int:
        nonlocal with_key
        rows = 0
        async with Client(cluster.file) as client:
            tail = await client.tail_lsn(log)
            async with client.reader(log, until=tail) as reader:
                try:
                    while batch := await reader.read(8_192):
                        if len(batch):
                            made_of_it = made.records(batch)
                            rows += made_of_it.num_rows
                            with_key += made_of_it.num_rows - made_of_it.column("key").null_count
                            sys.setprofile(count)  # from here on: the first records import what is needed
                finally:
                    sys.setprofile(None)
        return rows

    assert asyncio.run(read()) == RECORDS
    assert with_key == (0 if keys is None else RECORDS // 2)
    assert calls < RECORDS / 10
