"""Offsets of a stream."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from client.spark import triggers
from client.spark.options import SourceOptions
from client.spark.schema import source_schema
from client.spark.stream import LogDeviceStreamReader, load_of, offset_of, positions_of
from logdevice_py.core.status import LogDeviceError


class Here:
    """Runs what a client would run."""

    def run(self, work: Callable[[Any], Any]) -> Any:
        return asyncio.run(work(self))


@pytest.fixture
def tails(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    positions: dict[int, int] = {}

    async def tail_positions(client: Any, options: SourceOptions) -> dict[int, int]:
        return dict(positions)

    monkeypatch.setattr(triggers, "tail_positions", tail_positions)
    return positions


def stream(**options: str) -> LogDeviceStreamReader:
    chosen = SourceOptions.of({"cluster": "cluster.toml", "logs": "1", **options}, streaming=True)
    reader = LogDeviceStreamReader(chosen, source_schema(chosen))
    reader._client = Here()  # type: ignore[assignment]
    return reader


def test_an_offset_is_the_same_text_whatever_order_it_was_made_in_and_comes_back() -> None:
    one, other = {10: 1 << 62, 9: 5}, {9: 5, 10: 1 << 62}
    assert json.dumps(offset_of(one)) == json.dumps(offset_of(other)) == f'{{"9": "5", "10": "{1 << 62}"}}'
    assert positions_of(json.loads(json.dumps(offset_of(one)))) == one


@pytest.mark.parametrize("positions", [{"offset": 3}, {"1": {"0": 17}}, {"1": None}, [1]])
def test_a_checkpoint_of_another_source_is_refused(positions: Any) -> None:
    with pytest.raises(LogDeviceError, match="no offsets of this source"):
        positions_of(positions)


def test_a_micro_batch_ends_at_the_tails_and_never_before_its_start(tails: dict[int, int]) -> None:
    tails.update({1: 10, 3: 7})
    reader = stream()
    assert reader.latestOffset({"1": "12", "2": "4"}, ReadAllAvailable()) == {"1": "12", "2": "4", "3": "7"}


def test_what_comes_after_the_start_of_an_available_now_run_is_left_for_the_next(tails: dict[int, int]) -> None:
    tails[1] = 10
    reader = stream()
    reader.prepareForTriggerAvailableNow()
    tails.update({1: 99, 2: 5})
    assert reader.latestOffset({"1": "1"}, ReadAllAvailable()) == {"1": "10"}
    assert reader.latestOffset({"1": "10"}, ReadAllAvailable()) == {"1": "10"}


def test_the_limit_is_asked_for_by_option_and_a_run_over_everything_disregards_it(tails: dict[int, int]) -> None:
    assert stream(maxRecordsPerTrigger="7").getDefaultReadLimit() == ReadMaxRows(7)
    assert stream().getDefaultReadLimit() == ReadAllAvailable()
    tails[1] = 1_000_000
    assert stream(maxRecordsPerTrigger="7").latestOffset({"1": "1"}, ReadAllAvailable()) == {"1": "1000000"}


def test_a_limit_of_bytes_is_asked_for_beside_one_of_records() -> None:
    assert stream(maxBytesPerTrigger="2MiB").getDefaultReadLimit() == ReadMaxBytes(2 << 20)
    both = stream(maxBytesPerTrigger="2MiB", maxRecordsPerTrigger="7")
    assert both.getDefaultReadLimit() == ReadMaxRows(7)
    assert load_of(both._options, ReadMaxRows(7)) == triggers.Load(7, 2 << 20)
    assert load_of(stream(maxBytesPerTrigger="2MiB")._options, ReadMaxBytes(5)) == triggers.Load(triggers.UNLIMITED, 5)
    assert load_of(both._options, ReadAllAvailable()) is None


def test_connections_do_not_travel_to_executors() -> None:
    reader = pickle.loads(pickle.dumps(stream()))
    assert reader._client is None
