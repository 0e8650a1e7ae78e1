"""What Python does for each record on its way from the socket to Arrow: nothing."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from client.client import Client
from client.spark.connection import client_for
from client.spark.options import OnGap, SourceOptions
from client.spark.ranges import Cut
from client.spark.schema import arrow_schema, source_schema
from client.spark.task import TaskOptions, read_range
from logdevice_py.core.ids import LogId
from logdevice_py.core.units import Micros
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
    options = TaskOptions(
        cluster=cluster.text,
        on_gap=OnGap.FAIL_ON_LOSS,
        include_gaps=True,
        include_proof=False,
        read_timeout_us=Micros(30_000_000),
    )
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    async def profile(client: Client, what: Any) -> None:
        sys.setprofile(what)

    client = client_for(cluster.text)
    batches = read_range(Cut(LogId(log), "/logs", 1, client.tail_lsn(log)), schema, options)
    made = [next(batches)]  # imports what is needed
    client.run(lambda inner: profile(inner, count))  # the thread of the client's loop, which reads sockets
    sys.setprofile(count)
    try:
        made += batches
    finally:
        sys.setprofile(None)
        client.run(lambda inner: profile(inner, None))
    records = [batch for batch in made if batch.column("lsn").null_count == 0]
    assert sum(batch.num_rows for batch in records) == RECORDS
    with_key = sum(batch.num_rows - batch.column("key").null_count for batch in records)
    assert with_key == (0 if keys is None else RECORDS // 2)
    assert 0 < calls < RECORDS / 10
