"""Tries of one task that are killed, overtaken or run side by side leave each row in its log once."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from client.client import Client
from client.spark.appending import append_batches
from client.spark.naming import WriteName
from client.spark.sink_options import SinkOptions
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Micros
from tests.spark.conftest import RunningCluster
from tests.spark.test_batch import restart_sequencer

LOG = 23


def options(cluster: RunningCluster) -> SinkOptions:
    return SinkOptions(
        cluster=cluster.text,
        log=LOG,
        compression=None,
        job=None,
        exact=True,
        since=None,
        read_timeout_us=Micros(60_000_000),  # while sequencers move on two cores that Spark uses, too
        request_timeout_us=Micros(60_000_000),
    )


def batches(rows: list[bytes], at_once: int = 100) -> Iterator[Any]:
    for start in range(0, len(rows), at_once):
        yield pa.RecordBatch.from_arrays([pa.array(rows[start : start + at_once], pa.binary())], names=["payload"])


def stored(cluster: RunningCluster) -> Counter[bytes]:
    async def work(client: Client) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        tail = await client.tail_lsn(LOG)
        async with client.reader(LOG, until=tail) as reader:
            while batch := await reader.read():
                found.update(payload for payload in batch.payloads if payload is not None)
        return found

    return cluster.do(work)


def rows_named(name: str, count: int) -> list[bytes]:
    """Some of them equal."""
    return [f"{name} {number // 2 if number < 50 else number}".encode() for number in range(count)]


def appended_by(by_log: dict[int, tuple[int, int, int]]) -> int:
    return by_log[LOG][0] if by_log else 0


def test_a_try_that_died_is_completed_in_whatever_order_its_rows_come(cluster: RunningCluster) -> None:
    rows = rows_named("died", 1000)
    name = WriteName.of_job("died", 0)

    def dying(count: int) -> Iterator[Any]:
        yield from batches(rows[:count])
        raise InterruptedError("the task was killed")

    for count in (300, 600):
        with pytest.raises(InterruptedError):
            append_batches(dying(count), options(cluster), name)
    shuffled = rows[:]
    random.Random(3).shuffle(shuffled)
    append_batches(batches(shuffled), options(cluster), name)
    expected = Counter(rows)
    assert {row: count for row, count in stored(cluster).items() if row.startswith(b"died")} == expected
    assert append_batches(batches(rows), options(cluster), name).by_log == {}
    assert append_batches(batches(rows), options(cluster), WriteName.of_job("died", 1)).by_log[LOG][0] == len(rows)


def test_tries_side_by_side_append_each_row_once_and_the_later_one_wins(cluster: RunningCluster) -> None:
    rows = rows_named("beside", 3000)
    name = WriteName.of_query("a query", 7, 2)
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Iterator[Any]:
        parts = list(batches(rows))
        yield from parts[:10]
        begun.set()
        assert go_on.wait(60)
        yield from parts[10:]

    with ThreadPoolExecutor() as pool:
        first = pool.submit(append_batches, slow(), options(cluster), name)
        assert begun.wait(60)
        append_batches(batches(rows), options(cluster), name)
        go_on.set()
        with pytest.raises(LogDeviceError) as caught:
            first.result(60)
    assert caught.value.status is Status.WRITE_STREAM_BROKEN
    assert {row: count for row, count in stored(cluster).items() if row.startswith(b"beside")} == Counter(rows)


def test_four_tries_at_once_and_sequencers_that_die_under_them(cluster: RunningCluster) -> None:
    rows = rows_named("crowd", 6000)
    name = WriteName.of_query("a crowd", 0, 0)
    done = threading.Event()

    def one(seed: int) -> bool:
        pauses = random.Random(seed)

        def paced() -> Iterator[Any]:
            for batch in batches(rows, 300):
                time.sleep(pauses.random() * 0.1)
                yield batch

        for _ in range(20):
            if done.is_set():
                break
            try:
                append_batches(paced(), options(cluster), name)
            except LogDeviceError as error:
                assert error.status is Status.WRITE_STREAM_BROKEN, error  # noqa: PT017 - the others are failures
            else:
                return True
        return False

    with ThreadPoolExecutor() as pool:
        tries = [pool.submit(one, seed) for seed in range(4)]
        for _ in range(2):
            time.sleep(0.7)
            restart_sequencer(cluster, LOG)
        outcomes = [each.result(150) for each in tries]
    done.set()
    assert any(outcomes)
    assert {row: count for row, count in stored(cluster).items() if row.startswith(b"crowd")} == Counter(rows)


def test_rows_that_are_not_those_of_the_earlier_try_are_refused_before_anything_is_appended(
    cluster: RunningCluster,
) -> None:
    name = WriteName.of_job("changed", 0)
    append_batches(batches([b"changed %d" % number for number in range(300)]), options(cluster), name)
    before = stored(cluster)
    others = [b"changed %d" % number for number in range(250)] + [b"changed other %d" % number for number in range(100)]
    with pytest.raises(LogDeviceError, match="50 records that are none of its rows"):
        append_batches(batches(others), options(cluster), name)
    assert stored(cluster) == before
