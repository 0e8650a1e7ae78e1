"""What Python does for each record on its way from the socket to Arrow: nothing."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from client.client import Client
from client.spark.columns import ArrowColumns
from client.spark.options import SourceOptions
from client.spark.schema import arrow_schema, source_schema
from tests.spark.conftest import RunningCluster
from tests.spark.test_batch import write

RECORDS = 100_000


def test_no_python_frame_runs_for_a_single_record_between_socket_and_arrow(cluster: RunningCluster) -> None:
    write(cluster, 22, [b"x" * 100] * RECORDS, size_trigger=1 << 18)  # entries of thousands of records
    schema = arrow_schema(source_schema(SourceOptions.of({"cluster": "c", "logs": "22", "includeGaps": "true"})))
    made = ArrowColumns(schema, 22, "/logs")
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    async def read() -> int:
        rows = 0
        async with Client(cluster.file) as client:
            tail = await client.tail_lsn(22)
            async with client.reader(22, until=tail) as reader:
                try:
                    while batch := await reader.read(8_192):
                        if len(batch):
                            rows += made.records(batch).num_rows
                            sys.setprofile(count)  # from here on: the first records import what is needed
                finally:
                    sys.setprofile(None)
        return rows

    assert asyncio.run(read()) == RECORDS
    assert calls < RECORDS / 10
