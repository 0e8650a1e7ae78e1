"""Which writes wait for which sync, and when a sync begins."""

from __future__ import annotations

from collections.abc import Sequence

from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from storage_node.log_store.group_commit import DEFERRABLE_US, GroupCommit
from storage_node.log_store.interface import LogMetadataKind, WriteBatch, WriteShard, Written
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from storage_node.log_store.metrics import LogStoreMetrics
from storage_node.log_store.settings import LogStoreSettings

SHARD = ShardId(0)
INTERVAL = 1_000
WALL = Timestamp(77)


class SlowStore(MemoryLogStore):
    """Answers as it is told, and notes until when everything is durable."""

    def __init__(self) -> None:
        super().__init__(MemoryDisk())
        self.answers: list[Status] = []
        self.durable: list[Timestamp] = []
        self.much = False

    @property
    def wants_sync(self) -> bool:
        return self.much

    def write(self, batches: Sequence[WriteBatch]) -> list[Status]:
        answers, self.answers = self.answers[: len(batches)], self.answers[len(batches) :]
        return answers or [Status.OK] * len(batches)

    def mark_durable(self, until: Timestamp) -> None:
        self.durable.append(until)


class Bench:
    def __init__(self) -> None:
        self.store = SlowStore()
        self.metrics = LogStoreMetrics()
        self.commit = GroupCommit(self.store, LogStoreSettings(async_sync_interval_us=INTERVAL), self.metrics)

    def write(self, token: int, now: int = 0, *, sync: bool = True, deferrable: bool = False) -> list[int]:
        """One write; the tokens that are answered at once."""
        batch = WriteBatch()
        batch.put_log_metadata(LogId(1), LogMetadataKind.TRIM_POINT, b"x")
        return tokens(self.commit.write([WriteShard(token, SHARD, batch, sync, deferrable)], Micros(now)))

    def sync(self, status: Status = Status.OK) -> list[int]:
        self.commit.begin(WALL)
        return tokens(self.commit.end(status))


def tokens(written: list[Written]) -> list[int]:
    return [each.token for each in written]


def test_a_sync_begins_at_once_and_covers_what_was_written_before_it() -> None:
    bench = Bench()
    assert bench.commit.deadline() is None
    assert bench.write(1, 5) == bench.write(2, 6) == []
    assert bench.commit.deadline() == 5
    bench.commit.begin(WALL)
    assert bench.commit.deadline() is None
    assert bench.write(3, 7) == []
    assert bench.commit.deadline() is None, "one sync at a time"
    assert tokens(bench.commit.end(Status.OK)) == [1, 2]
    assert bench.commit.deadline() == 7
    assert bench.sync() == [3]
    assert bench.commit.deadline() is None
    assert (bench.metrics.syncs, bench.metrics.sync_waiters_max, bench.metrics.batches) == (2, 2, 3)


def test_a_deferrable_write_waits_for_a_sync_of_others_and_not_for_ever() -> None:
    bench = Bench()
    bench.write(1, 100, deferrable=True)
    assert bench.commit.deadline() == 100 + DEFERRABLE_US
    bench.write(2, 200, deferrable=True)
    assert bench.commit.deadline() == 100 + DEFERRABLE_US
    bench.write(3, 300)
    assert bench.commit.deadline() == 300
    assert bench.sync() == [1, 2, 3]


def test_a_deferrable_write_that_comes_during_a_sync_waits_for_the_next_one() -> None:
    bench = Bench()
    bench.write(1)
    bench.commit.begin(WALL)
    bench.write(2, 50, deferrable=True)
    assert tokens(bench.commit.end(Status.OK)) == [1]
    assert bench.commit.deadline() == 50 + DEFERRABLE_US
    bench.commit.hurry(Micros(60))
    assert bench.commit.deadline() == 60
    assert bench.sync() == [2]


def test_a_write_without_sync_is_answered_at_once_and_synced_in_time() -> None:
    bench = Bench()
    assert bench.write(1, 10, sync=False) == [1]
    bench.write(2, 20, sync=False)
    assert bench.commit.deadline() == 10 + INTERVAL
    bench.commit.hurry(Micros(30))
    assert bench.commit.deadline() == 10 + INTERVAL, "nobody waits for it"
    assert bench.sync() == []
    assert bench.store.durable == [WALL]
    assert bench.commit.deadline() is None


def test_what_was_written_without_sync_is_durable_with_a_sync_that_began_after_it_and_succeeded() -> None:
    bench = Bench()
    bench.write(1)
    bench.commit.begin(WALL)
    bench.write(2, sync=False)
    bench.commit.end(Status.OK)
    assert bench.store.durable == []
    assert bench.sync(Status.FAILED) == []
    assert bench.store.durable == []
    assert bench.metrics.failed == 1


def test_a_failed_sync_fails_all_that_it_covers() -> None:
    bench = Bench()
    bench.write(1)
    bench.commit.begin(WALL)
    assert [(each.token, each.status) for each in bench.commit.end(Status.FAILED)] == [(1, Status.FAILED)]


def test_who_wrote_past_it_is_told_of_the_first_sync_that_begins_after_that() -> None:
    bench = Bench()
    told: list[tuple[str, Status]] = []
    bench.commit.want(Micros(5), lambda status: told.append(("first", status)))
    assert bench.commit.deadline() == 5
    bench.commit.begin(WALL)
    bench.commit.want(Micros(6), lambda status: told.append(("second", status)))
    assert bench.commit.deadline() is None, "one sync at a time"
    bench.commit.end(Status.OK)
    assert told == [("first", Status.OK)]
    assert bench.commit.deadline() == 6
    bench.sync(Status.FAILED)
    assert told == [("first", Status.OK), ("second", Status.FAILED)]
    assert bench.commit.deadline() is None
    bench.sync()
    assert len(told) == 2


def test_refused_writes_are_answered_at_once_and_ask_for_no_sync() -> None:
    bench = Bench()
    bench.store.answers = [Status.OVERLOADED]
    assert bench.write(1) == [1]
    bench.store.answers = [Status.NOSPC]
    assert bench.write(2) == [2]
    bench.store.answers = [Status.FAILED]
    assert bench.write(3) == [3]
    assert bench.commit.deadline() is None
    metrics = bench.metrics
    assert (metrics.refused_overloaded, metrics.refused_no_space, metrics.failed_batches) == (1, 1, 1)


def test_a_store_with_much_that_is_not_durable_does_not_wait_for_the_interval() -> None:
    bench = Bench()
    bench.write(1, sync=False)
    assert bench.commit.deadline() == INTERVAL
    bench.store.much = True
    bench.write(2, 5, sync=False)
    assert bench.commit.deadline() == 5
