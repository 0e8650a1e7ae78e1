"""How a node follows the stored configuration, and judges a change: without a cluster."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from epoch_store.interface import ChangeConfiguration, Operation, ReadConfiguration, Result, WriterIdentity
from epoch_store.memory import Fault, MemoryCells, MemoryEpochStore
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.config.stored import ConfigurationVersion, StoredConfiguration, ToNextConfiguration, with_version
from logdevice_py.core.ids import InstanceId, NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Micros, Timestamp
from server.cluster_file import REMINDER
from server.configuration.change import WantedChange, judge
from server.configuration.keeper import KEPT, LOOK_APART, LOOK_EVERY, ConfigurationFile, ConfigurationKeeper, InForce

FILE = load_cluster(
    """
version = 3
name = "test"
uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
epoch_store = "memory:"
[nodes.N0]
host = "h"
port = 1
[metadata_log]
replicate = "node:1"
"""
)
TEXT = render_cluster(FILE)


def stored(*versions: int, text: str = TEXT) -> StoredConfiguration:
    return StoredConfiguration(
        tuple(ConfigurationVersion(each, Timestamp(1), "ann", "why", with_version(text, each)) for each in versions)
    )


class StoreOfOneNode:
    """The epoch store of one node."""

    def __init__(self) -> None:
        self.cells = MemoryCells()
        self.away = False
        self.reads = 0
        loop = asyncio.get_running_loop()
        writer = WriterIdentity(NodeId(0), InstanceId(1))
        self._store = MemoryEpochStore(self.cells, writer, loop.call_soon, self._fault)

    def _fault(self, operation: Operation) -> Fault:
        self.reads += isinstance(operation, ReadConfiguration)
        return Fault.REFUSED if self.away else Fault.NONE

    def ask(self, operations: Sequence[Operation], done: Callable[[list[Result]], None]) -> None:
        self._store.submit(operations, done)

    async def put(self, configuration: StoredConfiguration) -> None:
        done = asyncio.get_running_loop().create_future()
        self.ask([ChangeConfiguration(lambda before: configuration)], done.set_result)
        await done


def keeper(store: StoreOfOneNode, directory: Path, in_force: InForce | None = None) -> ConfigurationKeeper:
    return ConfigurationKeeper(store.ask, ConfigurationFile(directory), FILE, in_force or InForce(config=FILE))


async def test_it_reads_now_and_then_and_at_once_when_somebody_has_a_later_version(tmp_path: Path) -> None:
    store = StoreOfOneNode()
    found = keeper(store, tmp_path)
    assert await found.look(Micros(0)) is None
    assert await found.look(Micros(LOOK_EVERY - 1)) is None
    assert store.reads == 1
    await store.put(stored(4))
    assert await found.look(Micros(LOOK_APART), told=4) == load_cluster(with_version(TEXT, 4))
    assert found.in_force.is_stored
    assert await found.look(Micros(LOOK_APART + 1), told=4) is None
    assert store.reads == 2


async def test_what_comes_into_force_is_on_disk_and_a_node_that_starts_again_knows_it(tmp_path: Path) -> None:
    store = StoreOfOneNode()
    await store.put(stored(4, 7))
    await keeper(store, tmp_path).look(Micros(0))
    assert (tmp_path / KEPT).read_text() == with_version(TEXT, 7)
    kept = ConfigurationFile(tmp_path).read(FILE)
    assert kept is not None
    assert kept.version == 7
    (tmp_path / KEPT).write_text("no configuration")
    assert ConfigurationFile(tmp_path).read(FILE) is None


async def test_nothing_older_comes_into_force_and_an_older_store_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = StoreOfOneNode()
    await store.put(stored(5))
    newer = load_cluster(with_version(TEXT, 9))
    found = keeper(store, tmp_path, InForce(config=newer, is_stored=True))
    for second in range(0, 30, 5):
        assert await found.look(Micros(second * SECOND)) is None
    assert "has version 5, older than version 9" in found.trouble
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 1
    await found.look(Micros(REMINDER + SECOND))
    assert len([each for each in caplog.records if each.levelno == logging.ERROR]) == 2
    assert [row.version for row in found.rows()] == [5, 9]


async def test_another_text_of_the_same_version_is_told(tmp_path: Path) -> None:
    """The epoch store was put back, and changed by a node that did not hear this one."""
    store = StoreOfOneNode()
    found = keeper(store, tmp_path, InForce(config=load_cluster(with_version(TEXT, 9)), is_stored=True))
    await store.put(stored(9))
    assert await found.look(Micros(0)) is None
    assert found.trouble == ""
    await store.put(stored(9, text=TEXT.replace("port = 1", "port = 2")))
    assert await found.look(Micros(LOOK_EVERY)) is None
    assert "another version 9 than this node uses" in found.trouble
    await store.put(stored(9, 10))
    assert await found.look(Micros(2 * LOOK_EVERY)) is not None
    assert found.trouble == ""


async def test_a_store_that_is_away_changes_nothing_and_is_told_until_it_is_back(tmp_path: Path) -> None:
    store = StoreOfOneNode()
    await store.put(stored(4))
    found = keeper(store, tmp_path)
    store.away = True
    assert await found.look(Micros(0), told=4) is None
    assert "does not tell the configuration" in found.trouble
    store.away = False
    assert await found.look(Micros(LOOK_EVERY)) is not None
    assert found.trouble == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT + "\n[settings.from_a_later_release]\nx = 1\n", "from_a_later_release"),
        (TEXT.replace("5f0c9d4e", "00000000"), "of the cluster"),
    ],
)
async def test_a_text_that_cannot_be_used_changes_nothing(tmp_path: Path, text: str, why: str) -> None:
    store = StoreOfOneNode()
    await store.put(stored(4, text=text))
    found = keeper(store, tmp_path)
    assert await found.look(Micros(0)) is None
    assert why in found.trouble
    assert not (tmp_path / KEPT).exists()


def wants(text: str, base: int = 3) -> WantedChange:
    return WantedChange(base, text, frozenset())


def test_a_change_is_the_next_version_of_what_it_was_made_from() -> None:
    after, text, changed = judge(wants(TEXT + "\n# a remark\n"), None, FILE, set())
    assert (after.version, changed) == (4, True)
    assert text == with_version(TEXT, 4) + "\n# a remark\n"


def test_what_is_stored_already_is_no_change() -> None:
    at_four: ClusterConfig = load_cluster(with_version(TEXT, 4))
    before = stored(4)
    assert judge(wants(with_version(TEXT, 4), 4), before, at_four, set())[2] is False
    assert judge(wants(with_version(TEXT, 4) + "# x\n", 4), before, at_four, set())[2] is True


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT.replace("version = 3", "version=4"), "the text has version 4, the request version 3"),
        (TEXT.replace("version = 3", "  version = 3"), "at the beginning of a line"),
        (TEXT.replace("memory:", "sqlite:///x") + "\n[settings.sequencer]\nnone = 1\n", "epoch_store.*\n.*none"),
    ],
)
def test_a_change_that_cannot_be_is_refused(text: str, why: str) -> None:
    with pytest.raises(LogDeviceError, match=why) as refused:
        judge(wants(text), None, FILE, set())
    assert refused.value.status in (Status.INVALID_CONFIG, Status.INVALID_PARAM)


def test_of_a_store_that_was_put_back_the_next_version_is_above_what_is_in_force() -> None:
    change = ToNextConfiguration(9, stored(10).current)
    after = change(stored(5))
    assert isinstance(after, StoredConfiguration)
    assert [each.version for each in after.versions] == [5, 10]
