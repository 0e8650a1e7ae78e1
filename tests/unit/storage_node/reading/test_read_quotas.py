"""Quotas of readers: what is sent in a while, and to whom."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from logdevice_py.config.quotas import PrincipalQuota
from logdevice_py.core.entry import records_of
from logdevice_py.core.ids import Generation, LogId, PeerId, metadata_log_of
from logdevice_py.core.lsn import LSN_MAX, Epoch, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Timestamp
from logdevice_py.protocol.messages import (
    DataSize,
    DataSized,
    Digest,
    Digested,
    DigestRange,
    EpochsListed,
    FindFlags,
    FindKey,
    KeyFound,
    ListEpochs,
    Records,
    Stop,
)
from logdevice_py.tables.constraints import Constraints
from storage_node.reading.read_stream import ServerStreamState
from storage_node.settings import StorageSettings
from storage_node.waits import waits_rows
from tests.simulation import deliberate_storage  # noqa: F401 (plants)
from tests.simulation.deliberate_fault import FAULTS
from tests.unit.storage_node.fakes import ME, READER, SYNC_LOG, ShardDriver, image, lsn, release, start, stores

COUNT = 200
PAYLOAD = b"x" * 1000
SIZE = len(image(lsn(1, 1), payload=PAYLOAD))
RATE = 20 * SIZE
OTHER_LOG = LogId(8)
NODE = PeerId(3)


def filled(settings: StorageSettings | None = None, **attributes: int) -> ShardDriver:
    """A shard with entries of two logs, the first of which has a quota."""
    driver = ShardDriver(settings)
    for log in (SYNC_LOG, OTHER_LOG):
        for first in range(1, COUNT + 1, 50):
            driver.turn(*stores([lsn(1, esn) for esn in range(first, first + 50)], payload=PAYLOAD, log=log))
        driver.turn(release(lsn(1, COUNT), log))
    set_quota(driver, **attributes)
    driver.sent.clear()
    return driver


def set_quota(driver: ShardDriver, quotas: dict[str, PrincipalQuota] | None = None, **attributes: int) -> None:
    """A newer cluster file."""
    config = driver.config
    groups = [("/limited", 7, 7, attributes), ("/sync", 8, 100, {})]
    logs = type(config.logs).build(defaults=config.logs.defaults, groups=groups)
    driver.config = replace(config, version=config.version + 1, logs=logs, quotas=quotas or {})
    driver.node.read_quotas._principals.on_config(driver.config, driver.now)
    driver.node.on_config(driver.config, driver.now)


def read(driver: ShardDriver, stream: int, *, peer: PeerId = READER, log: LogId = SYNC_LOG, **options: Any) -> None:
    driver.turn(start(stream=stream, peer=peer, log=log, until=Lsn(LSN_MAX), **options))


class Received:
    """What each stream got, and when."""

    def __init__(self, driver: ShardDriver) -> None:
        self.driver = driver
        self.entries: list[tuple[int, int, Lsn]] = []

    def run(self, micros: int) -> Received:
        end = self.driver.now + micros
        while self.driver.now < end:
            self.driver.advance(min(10_000, end - self.driver.now))
            for message in self.driver.take(Records):
                self.entries += [(int(self.driver.now), message.stream, Lsn(at)) for at, _ in message.entries]
        return self

    @property
    def by_stream(self) -> Counter[int]:
        return Counter(stream for _, stream, _ in self.entries)

    def most_in(self, micros: int) -> int:
        return max(sum(begin <= at < begin + micros for at, _, _ in self.entries) for begin, _, _ in self.entries)


@pytest.fixture(params=["from memory", "from disk"])
def recent(request: pytest.FixtureRequest) -> StorageSettings:
    return StorageSettings(recent_entries_bytes_max=1 << 20 if request.param == "from memory" else 0)


def all_in_order(received: Received, stream: int) -> bool:
    return [at for _, each, at in received.entries if each == stream] == [lsn(1, esn) for esn in range(1, COUNT + 1)]


def keeps_to_quota(settings: StorageSettings) -> None:
    driver = filled(settings, read_bytes_per_s=RATE)
    read(driver, 1)
    received = Received(driver).run(5 * SECOND)
    assert 80 <= len(received.entries) <= 102
    received.run(8 * SECOND)
    assert all_in_order(received, 1)
    # the rate over five seconds, a full bucket, and one entry that passes it
    assert received.most_in(5 * SECOND) <= 1.05 * 100 + 20 + 1


def test_a_reader_gets_what_the_quota_of_the_log_lets_through_and_all_of_it(recent: StorageSettings) -> None:
    keeps_to_quota(recent)


def test_records_count_too(recent: StorageSettings) -> None:
    driver = filled(recent, read_records_per_s=10)
    read(driver, 1)
    received = Received(driver).run(5 * SECOND)
    assert 40 <= len(received.entries) <= 51
    assert records_of(image(lsn(1, 1))) == 1


def test_those_who_share_a_quota_get_equal_shares(recent: StorageSettings) -> None:
    driver = filled(recent, read_bytes_per_s=RATE)
    read(driver, 1)
    received = Received(driver).run(SECOND // 2)
    read(driver, 2, peer=PeerId(-2))
    read(driver, 3, peer=PeerId(-3))
    received.entries.clear()
    received.run(12 * SECOND)
    shares = received.by_stream
    assert set(shares) == {1, 2, 3}
    assert max(shares.values()) - min(shares.values()) <= 22


def test_readers_of_other_logs_and_nodes_do_not_wait(recent: StorageSettings) -> None:
    driver = filled(recent, read_bytes_per_s=SIZE)
    read(driver, 1)
    read(driver, 2, log=OTHER_LOG)
    read(driver, 3, peer=NODE)
    received = Received(driver).run(SECOND // 100)
    assert received.by_stream[2] == received.by_stream[3] == COUNT
    assert received.by_stream[1] <= 1


def test_a_principal_has_one_quota_over_all_logs(recent: StorageSettings) -> None:
    driver = filled(recent)
    set_quota(driver, {"anonymous": PrincipalQuota(read_bytes_per_s=RATE)})
    read(driver, 1)
    read(driver, 2, log=OTHER_LOG, peer=PeerId(-2))
    received = Received(driver).run(5 * SECOND)
    assert 80 <= len(received.entries) <= 122
    assert min(received.by_stream[1], received.by_stream[2]) >= 20


def digested(driver: ShardDriver, micros: int, *, peer: PeerId, log: LogId = SYNC_LOG) -> int:
    """Bytes of entries that somebody gets in a while who sends nothing but DIGESTs of a log, several at a time."""
    got, end = 0, driver.now + micros
    while driver.now < end:
        ranges = [DigestRange(log, lsn(1, 1), lsn(1, COUNT), Generation(0))]
        asked = Digest(request_id=1, shard=ME, bytes_max=1 << 20, ranges=ranges)
        driver.turn(*[(peer, asked)] * 8)
        driver.advance(50_000)
        for message in driver.take(Digested):
            got += len(message.images)
            assert {each.status for each in message.ranges} <= {Status.OK, Status.OVERLOADED}
    return got


def test_digests_of_a_client_are_read_from_its_quota(recent: StorageSettings) -> None:
    driver = filled(recent, read_bytes_per_s=RATE)
    digested(driver, 2 * SECOND, peer=READER)
    got = digested(driver, 10 * SECOND, peer=READER)
    assert 0.8 * RATE * 10 <= got <= 1.05 * RATE * 10 + RATE + SIZE
    set_quota(driver, {"anonymous": PrincipalQuota(read_records_per_s=10)})
    digested(driver, 2 * SECOND, peer=READER)
    assert 80 * SIZE <= digested(driver, 10 * SECOND, peer=READER) <= 116 * SIZE


def test_digests_take_nothing_from_streams_that_wait(recent: StorageSettings) -> None:
    driver = filled(recent, read_bytes_per_s=RATE)
    digested(driver, 2 * SECOND, peer=READER)
    read(driver, 1)
    assert digested(driver, 5 * SECOND, peer=PeerId(-2)) <= SIZE
    driver.advance(7 * SECOND)
    assert sum(len(message.entries) for message in driver.take(Records)) == COUNT


def test_digests_of_nodes_and_of_other_logs_are_not(recent: StorageSettings) -> None:
    driver = filled(recent, read_bytes_per_s=SIZE)
    assert digested(driver, SECOND // 10, peer=NODE) >= 8 * COUNT * SIZE
    assert digested(driver, SECOND // 10, peer=READER, log=OTHER_LOG) >= 8 * COUNT * SIZE


def test_nodesets_are_told_to_who_is_over_his_quota() -> None:
    driver = filled()
    set_quota(driver, {"anonymous": PrincipalQuota(read_bytes_per_s=1)})
    ranges = [DigestRange(metadata_log_of(SYNC_LOG), lsn(1, 1), lsn(1, 9), Generation(0))]
    driver.turn((READER, Digest(request_id=1, shard=ME, bytes_max=1, ranges=ranges)))
    (answer,) = driver.take(Digested)
    assert [each.status for each in answer.ranges] == [Status.OK]


def test_a_quota_that_is_taken_away_lets_go_whoever_waits(recent: StorageSettings) -> None:
    driver = filled(recent, read_bytes_per_s=SIZE)
    for stream in (1, 2):
        read(driver, stream, peer=PeerId(-stream))
    received = Received(driver).run(3 * SECOND)
    assert len(received.entries) <= 5
    set_quota(driver)
    received.run(2 * SECOND)
    assert all_in_order(received, 1)
    assert all_in_order(received, 2)


def test_a_stream_that_waits_says_so_and_can_be_closed() -> None:
    driver = filled(read_bytes_per_s=SIZE)
    read(driver, 1)
    streams = list(driver.machines.catchup.streams())
    assert [each.state for each in streams] == [ServerStreamState.THROTTLED]
    assert "QUOTA" in [row.cause for row in waits_rows(driver.node, Constraints(), driver.now)]
    driver.node.on_peer_down(READER, driver.now)
    driver.turn()
    driver.advance(10 * SECOND)
    assert driver.take(Records) == []
    assert not driver.machines.catchup._held


def test_streams_that_are_closed_while_they_wait_leave_nothing_behind() -> None:
    driver = filled(read_bytes_per_s=SIZE)
    read(driver, 1)
    for stream in range(2, 50):
        read(driver, stream)
        driver.turn((READER, Stop(log=SYNC_LOG, stream=stream, shard=ME)))
    lines = driver.machines.catchup._held.values()
    assert [[stream.stream for stream in line] for line in lines] == [[1]]


def test_readers_that_are_not_charged_are_noticed(recent: StorageSettings) -> None:
    with FAULTS["readers_not_charged"].planted(), pytest.raises(AssertionError):
        keeps_to_quota(recent)


FIND = FindKey(
    request_id=1,
    shard=ME,
    log=SYNC_LOG,
    first=Lsn(1),
    last=lsn(1, COUNT),
    flags=int(FindFlags.APPROXIMATE),
    timestamp=Timestamp(0),
    key=b"",
)
SIZE_OF_LOG = DataSize(request_id=2, shard=ME, log=SYNC_LOG, first=Timestamp(0), last=Timestamp(1))
SEGMENTS = ListEpochs(request_id=3, shard=ME, log=SYNC_LOG, first=Epoch(1), last=Epoch(9), rows=9)


def looked_up(driver: ShardDriver, seconds: int, *, peer: PeerId = READER, asked: Any = FIND) -> Counter[Status]:
    """What somebody is answered who asks a hundred times a second."""
    statuses: Counter[Status] = Counter()
    for _ in range(100 * seconds):
        driver.turn((peer, asked))
        driver.advance(SECOND // 100)
        answers: list[Any] = [each for kind in (KeyFound, DataSized, EpochsListed) for each in driver.take(kind)]
        statuses += Counter(Status(each.status) for each in answers)
    return statuses


class TestLookUps:
    def limited(self) -> ShardDriver:
        driver = filled()
        set_quota(driver, {"anonymous": PrincipalQuota(look_ups_per_s=20)})
        return driver

    @pytest.mark.parametrize("asked", [FIND, SIZE_OF_LOG, SEGMENTS], ids=lambda asked: type(asked).__name__)
    def test_so_many_are_begun_and_others_throttled(self, asked: Any) -> None:
        driver = self.limited()
        statuses = looked_up(driver, 10, asked=asked)
        assert set(statuses) == {Status.OK, Status.THROTTLED}
        assert 195 <= statuses[Status.OK] <= 200
        assert driver.node.metrics.look_ups == statuses[Status.OK]
        assert driver.node.metrics.look_ups_throttled == statuses[Status.THROTTLED]

    def test_more_connections_give_a_principal_no_more(self) -> None:
        driver = self.limited()
        both = looked_up(driver, 5) + looked_up(driver, 5, peer=PeerId(-77), asked=SIZE_OF_LOG)
        assert both[Status.OK] <= 200

    def test_nodes_and_readers_are_not_limited_by_it(self) -> None:
        driver = self.limited()
        assert set(looked_up(driver, 1, peer=NODE)) == {Status.OK}
        read(driver, 1)
        assert len(Received(driver).run(SECOND).entries) == COUNT

    def test_it_is_taken_away_while_the_node_runs(self) -> None:
        driver = self.limited()
        looked_up(driver, 1)
        set_quota(driver)
        assert set(looked_up(driver, 1)) == {Status.OK}
