"""What every epoch store must do, whatever it is made of."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from epoch_store.interface import (
    ChangeConfiguration,
    EpochStore,
    GetLastCleanEpoch,
    LastCleanEpoch,
    NoteIncarnation,
    ReadConfiguration,
    ReadMetadata,
    ReadShardIdentity,
    RegisterShard,
    Result,
    SetLastCleanEpoch,
    ShardIdentity,
    UpdateMetadata,
)
from epoch_store.memory import MemoryCells
from epoch_store.opening import open_epoch_store
from epoch_store.sqlite import SqliteEpochStoreSettings
from epoch_store.updaters import SetDisabled, ToNextEpoch, ToWritten, bump_many
from epoch_store.zookeeper import ZooKeeperEpochStoreSettings
from logdevice_py.config.stored import ConfigurationVersion, StoredConfiguration, ToNextConfiguration
from logdevice_py.core.ids import Generation, LogId, NodeId, shard_id
from logdevice_py.core.lsn import EPOCH_MAX, Epoch, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochMetaData, TailRecord
from server.dev.zookeeper_server import ZooKeeperServer, why_no_zookeeper
from tests.epoch_stores import LOG, NODE, given, identity, interval, next_epoch, run, run_batch, run_one

OpenStore: TypeAlias = Callable[..., EpochStore]
CLUSTER = bytes(range(16))
OTHER_CLUSTER = bytes(16)
# no deadline is the subject here, and a slow disk must not meet one
SQLITE = SqliteEpochStoreSettings(busy_timeout_us=60 * SECOND)
ZOOKEEPER = ZooKeeperEpochStoreSettings(deadline_us=60 * SECOND)


@pytest.fixture(scope="module")
def zookeeper_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    reason = why_no_zookeeper()
    if reason is not None:
        pytest.skip(reason)
    server = ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


_clusters = itertools.count(1)


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:  # type: ignore[misc]
    """Opens stores of one fresh cluster: all see the same cells."""
    loop = asyncio.get_running_loop()
    cells = MemoryCells()
    cluster = f"cluster{next(_clusters)}"
    if request.param == "memory":
        url = "memory:"
    elif request.param == "sqlite":
        url = f"sqlite://{tmp_path}/epochs.db"
    else:
        server: ZooKeeperServer = request.getfixturevalue("zookeeper_server")
        url = f"zookeeper://{server.address}/tests/root"
    stores: list[EpochStore] = []

    def open_one(node: int = 0, cluster: str = cluster) -> EpochStore:
        writer = identity(node, len(stores) + 1)
        store = open_epoch_store(url, cluster, writer, loop, memory=cells, sqlite=SQLITE, zookeeper=ZOOKEEPER)
        stores.append(store)
        return store

    yield open_one
    for store in stores:
        store.close()


class TestActivation:
    async def test_a_log_without_metadata_is_empty_until_it_is_provisioned(self, open_store: OpenStore) -> None:
        store = open_store()
        assert await run(store, ReadMetadata(LOG), UpdateMetadata(LOG, ToNextEpoch(), NODE)) == [
            Result(Status.EMPTY),
            Result(Status.EMPTY),
        ]
        first = await run_one(store, next_epoch())
        assert (first.status, given(first), first.version) == (Status.OK, 1, 1)
        assert await run_one(store, ReadMetadata(LOG)) == first

    async def test_each_activation_gets_the_next_epoch_on_every_node(self, open_store: OpenStore) -> None:
        stores = [open_store(node) for node in range(3)]
        results = [await run_one(stores[turn % 3], next_epoch(node=turn % 3)) for turn in range(9)]
        assert [given(result) for result in results] == list(range(1, 10))
        stored = (await run_one(stores[0], ReadMetadata(LOG))).value
        assert isinstance(stored, EpochMetaData)
        assert (stored.epoch, stored.writer) == (10, 2)

    async def test_no_epoch_is_given_twice_among_concurrent_activations(self, open_store: OpenStore) -> None:
        stores = [open_store(node) for node in range(4)]
        batches = await asyncio.gather(
            *(run_batch(store, [next_epoch(LogId(log)) for log in (1, 2, 3)]) for _ in range(5) for store in stores)
        )
        for log in range(3):
            epochs = [given(batch[log]) for batch in batches]
            assert sorted(epochs) == list(range(1, 21))

    async def test_only_one_of_those_that_want_the_same_epoch_gets_it(self, open_store: OpenStore) -> None:
        stores = [open_store(node) for node in range(4)]
        await run_one(stores[0], next_epoch())
        results = await asyncio.gather(
            *(run_one(store, next_epoch(node=n, acceptable=2)) for n, store in enumerate(stores))
        )
        winners = [node for node, result in enumerate(results) if result.status is Status.OK]
        assert len(winners) == 1
        assert len(results) == 4
        for result in results:
            assert isinstance(result.value, EpochMetaData)
            assert (result.value.epoch, result.value.writer) == (3, winners[0])
            assert result.status is Status.OK or (result.status is Status.ABORTED and not result.maybe_applied)

    async def test_the_operations_of_a_batch_are_independent(self, open_store: OpenStore) -> None:
        store = open_store()
        await run_one(store, next_epoch(LogId(1)))
        updates = {
            LogId(1): ToNextEpoch(acceptable_epoch=Epoch(9)),
            LogId(2): ToNextEpoch(interval(0), provision=True),
            LogId(3): ToNextEpoch(),
            **{LogId(log): ToNextEpoch(interval(0, 1), provision=True) for log in range(4, 300)},
        }
        results = await run_batch(store, bump_many(updates, NODE))
        assert [result.status for result in results[:3]] == [Status.ABORTED, Status.OK, Status.EMPTY]
        assert {(result.status, given(result)) for result in results[3:]} == {(Status.OK, 1)}

    async def test_a_batch_may_change_one_log_several_times(self, open_store: OpenStore) -> None:
        results = await run_batch(open_store(), [next_epoch() for _ in range(10)])
        assert sorted(given(result) for result in results) == list(range(1, 11))

    async def test_a_nodeset_changes_only_once_the_last_one_is_written(self, open_store: OpenStore) -> None:
        store = open_store()
        await run_one(store, next_epoch())
        kept = (await run_one(store, UpdateMetadata(LOG, ToNextEpoch(interval(3, 4)), NODE))).value
        assert isinstance(kept, EpochMetaData)
        assert (kept.given_epoch, kept.current) == (2, interval(0, 1, 2, since=1))
        written = await run_one(store, UpdateMetadata(LOG, ToWritten(kept.history), NodeId(5)))
        assert isinstance(written.value, EpochMetaData)
        assert (written.value.written, written.value.writer) == (True, NODE)
        changed = (await run_one(store, UpdateMetadata(LOG, ToNextEpoch(interval(3, 4)), NODE))).value
        assert isinstance(changed, EpochMetaData)
        assert (changed.given_epoch, changed.written) == (3, False)
        assert changed.history == (interval(0, 1, 2, since=1), interval(3, 4, since=3))
        stale = await run_one(store, UpdateMetadata(LOG, ToWritten(kept.history), NODE))
        assert stale.status is Status.STALE

    async def test_a_change_that_changes_nothing_is_not_written(self, open_store: OpenStore) -> None:
        store = open_store()
        first = await run_one(store, next_epoch())
        assert isinstance(first.value, EpochMetaData)
        written = [await run_one(store, UpdateMetadata(LOG, ToWritten(first.value.history), NODE)) for _ in range(2)]
        assert written[0] == written[1]
        assert written[0].version == 2

    async def test_a_disabled_log_gives_no_epoch(self, open_store: OpenStore) -> None:
        store = open_store()
        await run_one(store, next_epoch())
        await run_one(store, UpdateMetadata(LOG, SetDisabled(), NODE))
        assert (await run_one(store, next_epoch())).status is Status.DISABLED
        await run_one(store, UpdateMetadata(LOG, SetDisabled(False), NODE))
        assert given(await run_one(store, next_epoch())) == 2

    async def test_used_up_epochs_are_too_big(self, open_store: OpenStore) -> None:
        def to_the_end(current: EpochMetaData | None) -> EpochMetaData:
            return EpochMetaData(EPOCH_MAX, (interval(0, since=1),), True, False, NODE)

        store = open_store()
        await run_one(store, UpdateMetadata(LOG, to_the_end, NODE))
        assert (await run_one(store, next_epoch())).status is Status.TOOBIG


class TestLastCleanEpoch:
    async def test_it_only_grows(self, open_store: OpenStore) -> None:
        store = open_store()
        assert (await run_one(store, GetLastCleanEpoch(LOG))).value == LastCleanEpoch()
        tail = TailRecord(Lsn(5 << 32 | 17), Timestamp(1234567))
        assert await run_one(store, SetLastCleanEpoch(LOG, Epoch(5), tail)) == Result(
            Status.OK, LastCleanEpoch(Epoch(5), tail), 1
        )
        for epoch in (4, 5):
            refused = await run_one(store, SetLastCleanEpoch(LOG, Epoch(epoch), None))
            assert (refused.status, refused.value) == (Status.STALE, LastCleanEpoch(Epoch(5), tail))
        await run_one(store, SetLastCleanEpoch(LOG, Epoch(6), None))
        assert (await run_one(open_store(1), GetLastCleanEpoch(LOG))).value == LastCleanEpoch(Epoch(6), None)


class TestShards:
    async def test_an_older_state_of_a_disk_is_noticed_by_its_incarnation(self, open_store: OpenStore) -> None:
        store = open_store()
        await run_one(store, RegisterShard(CLUSTER, NODE, 0, None))
        noted = await run_one(store, NoteIncarnation(NODE, 0, Generation(1), 5))
        assert noted.value == ShardIdentity(CLUSTER, shard_id(NODE), Generation(1), 5)
        assert (await run_one(store, NoteIncarnation(NODE, 0, Generation(1), 4))).value == noted.value, (
            "it never shrinks"
        )
        for incarnation in (5, 6):
            same = await run_one(store, RegisterShard(CLUSTER, NODE, 0, Generation(1), incarnation))
            assert same.value == noted.value
        rolled_back = await run_one(store, RegisterShard(CLUSTER, NODE, 0, Generation(1), 4))
        assert rolled_back.value == ShardIdentity(CLUSTER, shard_id(NODE), Generation(2), 0)
        late = await run_one(store, NoteIncarnation(NODE, 0, Generation(1), 9))
        assert (late.status, late.value) == (Status.STALE, rolled_back.value)
        assert (await run_one(store, NoteIncarnation(NODE, 3, Generation(1), 1))).status is Status.STALE

    async def test_a_disk_whose_process_ended_before_it_had_a_marker_keeps_its_generation(
        self, open_store: OpenStore
    ) -> None:
        store = open_store()

        async def registered(birth: bytes, marker: Generation | None = None) -> Generation:
            result = await run_one(store, RegisterShard(CLUSTER, NODE, 0, marker, birth=birth))
            assert isinstance(result.value, ShardIdentity)
            return result.value.generation

        assert await registered(b"a disk") == 1
        assert await registered(b"a disk") == 1
        assert await registered(b"", Generation(1)) == 1
        assert await registered(b"another") == 2, "nobody knows whether the first one will come back"
        await run_one(store, NoteIncarnation(NODE, 0, Generation(2), 1))
        assert await registered(b"another") == 3, "it may have served"
        assert await registered(b"") == 4
        assert await registered(b"") == 5

    async def test_a_shard_keeps_its_generation_while_its_marker_has_it(self, open_store: OpenStore) -> None:
        store = open_store()
        assert (await run_one(store, ReadShardIdentity(NODE, 0))).status is Status.EMPTY
        first = await run_one(store, RegisterShard(CLUSTER, NODE, 0, None))
        assert (first.status, first.value) == (Status.OK, ShardIdentity(CLUSTER, shard_id(NODE), Generation(1)))
        assert await run_one(store, RegisterShard(CLUSTER, NODE, 0, Generation(1))) == first
        assert await run_one(store, ReadShardIdentity(NODE, 0)) == first

    async def test_a_missing_or_older_marker_takes_the_next_generation(self, open_store: OpenStore) -> None:
        store = open_store()
        for marker, generation in ((None, 1), (None, 2), (1, 3), (3, 3)):
            result = await run_one(
                store, RegisterShard(CLUSTER, NODE, 3, None if marker is None else Generation(marker))
            )
            assert result.value == ShardIdentity(CLUSTER, shard_id(NODE, 3), Generation(generation))

    async def test_a_store_that_forgot_a_shard_is_refused(self, open_store: OpenStore) -> None:
        store = open_store()
        lost = await run_one(store, RegisterShard(CLUSTER, NODE, 0, Generation(2)))
        assert lost.status is Status.FAILED
        assert "N0:S0" in lost.detail
        await run_one(store, RegisterShard(CLUSTER, NODE, 0, None))
        rolled_back = await run_one(store, RegisterShard(CLUSTER, NODE, 0, Generation(2)))
        assert rolled_back.status is Status.FAILED

    async def test_a_shard_of_another_cluster_is_refused(self, open_store: OpenStore) -> None:
        store = open_store()
        await run_one(store, RegisterShard(CLUSTER, NODE, 0, None))
        assert (await run_one(store, RegisterShard(OTHER_CLUSTER, NODE, 0, None))).status is Status.INVALID_CLUSTER


class TestStore:
    async def test_clusters_do_not_see_each_other(self, open_store: OpenStore, request: pytest.FixtureRequest) -> None:
        if "memory" in request.node.callspec.id:
            pytest.skip("what is in memory belongs to one cluster by nature")
        await run_one(open_store(), next_epoch())
        assert (await run_one(open_store(0, "another"), ReadMetadata(LOG))).status is Status.EMPTY

    async def test_an_empty_batch_is_answered(self, open_store: OpenStore) -> None:
        assert await run(open_store()) == []

    async def test_after_close_everything_is_answered_shutdown(self, open_store: OpenStore) -> None:
        store = open_store()
        await run_one(store, next_epoch())
        under_way = asyncio.ensure_future(run(store, next_epoch(), ReadMetadata(LOG)))
        await asyncio.sleep(0)
        store.close()
        assert {result.status for result in await under_way} == {Status.SHUTDOWN}
        assert await run_one(store, ReadMetadata(LOG)) == Result(Status.SHUTDOWN)
        store.close()


def next_configuration(base: int, who: str) -> ChangeConfiguration:
    version = ConfigurationVersion(base + 1, Timestamp(7), who, "a test", f"version = {base + 1}\n# {who}\n")
    return ChangeConfiguration(ToNextConfiguration(base, version))


class TestConfiguration:
    async def test_there_is_none_until_somebody_stores_one_and_then_all_read_it(self, open_store: OpenStore) -> None:
        mine, other = open_store(0), open_store(1)
        assert await run_one(mine, ReadConfiguration()) == Result(Status.EMPTY)
        changed = await run_one(mine, next_configuration(3, "ann"))
        assert changed.status is Status.OK
        read = await run_one(other, ReadConfiguration())
        assert (read.status, read.value) == (Status.OK, changed.value)
        assert isinstance(read.value, StoredConfiguration)
        assert (read.value.version, read.value.current.who) == (4, "ann")

    async def test_of_those_that_change_the_same_version_one_does_and_the_others_hear_who(
        self, open_store: OpenStore
    ) -> None:
        stores = [open_store(node) for node in range(4)]
        await run_one(stores[0], next_configuration(1, "ann"))
        results = await asyncio.gather(
            *(run_one(store, next_configuration(2, f"operator {n}")) for n, store in enumerate(stores))
        )
        winners = [n for n, result in enumerate(results) if result.status is Status.OK]
        assert len(winners) == 1
        for result in results:
            assert isinstance(result.value, StoredConfiguration)
            assert (result.value.version, result.value.current.who) == (3, f"operator {winners[0]}")
            assert result.status in (Status.OK, Status.STALE)
        assert [each.version for each in results[0].value.versions] == [2, 3]  # type: ignore[union-attr]
