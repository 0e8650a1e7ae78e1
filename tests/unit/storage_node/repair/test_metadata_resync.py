"""A shard in a new generation gets the records of metadata logs back, and is authoritative for them again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logdevice_py.config.cluster import MetadataLogConfig
from logdevice_py.core.entry import EntryFlags
from logdevice_py.core.ids import Generation, LogId, PeerId, ShardId, metadata_log_of, node_peer
from logdevice_py.core.lsn import LSN_MAX, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND
from logdevice_py.protocol.messages import Digested, Fetch, Fetched, FetchMetadata, LogEntry, MetadataFetched, Stored
from storage_node.log_store import keys
from tests.unit.storage_node.fakes import (
    ME,
    SHARDS,
    SYNC_LOG,
    THREE_COPIES,
    ShardDriver,
    digest,
    image,
    lsn,
    store,
)

OTHERS = SHARDS[1:]
LOG = metadata_log_of(SYNC_LOG)
MANY = [metadata_log_of(LogId(number)) for number in range(1, 101)]
METADATA = int(EntryFlags.METADATA)


def record(position: Lsn, log: LogId = LOG) -> bytes:
    """A record of a metadata log."""
    return image(position, log=log, flags=METADATA)


def answer(
    request: FetchMetadata,
    *records: bytes,
    at: Lsn | None = None,
    log: LogId = LOG,
    status: Status = Status.OK,
    ended: bool = True,
    version: int = 1,
) -> tuple[PeerId, MetadataFetched]:
    """The answer to a FETCH_METADATA, with records of one log."""
    position = lsn(1, 1) if at is None else at
    message = MetadataFetched(
        request_id=request.request_id,
        shard=request.shard,
        status=status,
        through=log,
        ended=ended,
        config_version=version,
        entries=[LogEntry(log, position, len(each)) for each in records],
        images=b"".join(records),
    )
    return node_peer(request.shard), message


def asked(driver: ShardDriver) -> dict[ShardId, FetchMetadata]:
    """What other shards are asked for."""
    return {message.shard: message for message in driver.take(FetchMetadata)}


def is_authoritative(driver: ShardDriver) -> bool:
    """Whether it says of a metadata log that it has told everything."""
    driver.turn(digest(Lsn(1), LSN_MAX, log=LOG, generation=0))
    [(_, status, _)] = driver.take_one(Digested).ranges
    assert status in (Status.OK, Status.REBUILDING)
    return status == Status.OK


class TestAsking:
    def test_it_is_authoritative_when_an_f_majority_of_the_others_has_told_everything(self) -> None:
        driver = ShardDriver(generation=2)
        requests = asked(driver)
        assert sorted(requests) == sorted(OTHERS)
        assert all(request.after == 0 for request in requests.values())
        driver.turn(answer(requests[OTHERS[0]], record(lsn(1, 1))))
        driver.turn(answer(requests[OTHERS[1]]))
        assert not is_authoritative(driver), "the other two may have had a record together with this one"
        driver.turn(answer(requests[OTHERS[2]], record(lsn(3, 1)), at=lsn(3, 1)))
        assert is_authoritative(driver)
        assert driver.stored(LOG) == [lsn(1, 1), lsn(3, 1)]
        assert driver.notices[-1].kind == "metadata resynced"
        assert not asked(driver)

    def test_that_is_known_after_a_restart(self) -> None:
        driver = ShardDriver(generation=2)
        driver.turn(*(answer(request) for request in asked(driver).values()))
        driver.restart()
        assert is_authoritative(driver)
        driver.power_cut()
        assert is_authoritative(driver)
        assert not asked(driver)

    def test_who_never_lost_anything_asks_nobody(self) -> None:
        driver = ShardDriver()
        assert is_authoritative(driver)
        assert not asked(driver)

    def test_nor_does_who_keeps_no_metadata_logs_until_it_does(self) -> None:
        driver = ShardDriver(generation=2)
        driver.config = replace(driver.config, metadata_log=MetadataLogConfig(OTHERS, THREE_COPIES))
        driver.open()
        assert not asked(driver)
        assert not is_authoritative(driver)
        config = replace(driver.config, version=2, metadata_log=MetadataLogConfig(SHARDS[:4], THREE_COPIES))
        driver.node.on_config(config, driver.now)
        driver.turn()
        requests = asked(driver)
        assert sorted(requests) == sorted(OTHERS[:3])
        driver.turn(*(answer(requests[shard]) for shard in OTHERS[:2]))
        assert not is_authoritative(driver), "they went by another file"
        driver.advance(SECOND)
        requests = asked(driver)
        driver.turn(*(answer(requests[shard], version=2) for shard in OTHERS[:2]))
        assert is_authoritative(driver), "three copies fit on no two shards"

    @pytest.mark.parametrize("status", [Status.REBUILDING, Status.OK], ids=["lost data", "sent a damaged record"])
    def test_who_is_not_authoritative_is_asked_for_everything_again(self, status: Status) -> None:
        driver = ShardDriver(generation=2)
        requests = asked(driver)
        bad = record(lsn(1, 1))
        if status is Status.OK:
            bad = bad[:-1] + bytes([bad[-1] ^ 1])
        driver.turn(answer(requests[OTHERS[0]], bad, status=status))
        driver.turn(*(answer(requests[shard]) for shard in OTHERS[1:3]))
        assert not is_authoritative(driver)
        assert driver.stored(LOG) == ([lsn(1, 1)] if status is Status.REBUILDING else [])
        driver.advance(SECOND)
        again = asked(driver)
        assert again[OTHERS[0]].after == 0
        driver.turn(answer(again[OTHERS[0]], record(lsn(1, 1))))
        assert is_authoritative(driver)
        assert driver.stored(LOG) == [lsn(1, 1)]

    def test_what_does_not_fit_into_an_answer_is_asked_for_from_there_on(self) -> None:
        driver = ShardDriver(generation=2)
        requests = asked(driver)
        driver.turn(answer(requests[OTHERS[0]], record(lsn(1, 1)), ended=False))
        driver.advance(SECOND)
        more = asked(driver)[OTHERS[0]]
        assert more.after == LOG
        later = metadata_log_of(LogId(SYNC_LOG + 1))
        driver.turn(answer(more, record(lsn(2, 1), later), at=lsn(2, 1), log=later))
        assert driver.stored(LOG) == [lsn(1, 1)]
        assert driver.stored(later) == [lsn(2, 1)]
        driver.turn(*(answer(requests[shard]) for shard in OTHERS[1:3]))
        assert is_authoritative(driver)

    @pytest.mark.parametrize("broken", [True, False], ids=["broken connection", "silence"])
    def test_who_does_not_answer_is_asked_again(self, broken: bool) -> None:
        driver = ShardDriver(generation=2)
        requests = asked(driver)
        driver.turn(*(answer(requests[shard]) for shard in OTHERS[:2]))
        if broken:
            driver.node.on_peer_down(node_peer(OTHERS[2]), driver.now)
            driver.advance(SECOND)
        else:
            driver.advance(3 * SECOND)
        again = asked(driver)
        assert set(again) >= {OTHERS[2]}
        driver.turn(answer(requests[OTHERS[2]]))
        assert not is_authoritative(driver), "that is an answer to the first question"
        driver.turn(answer(again[OTHERS[2]]))
        assert is_authoritative(driver)

    def test_who_is_back_is_asked_at_once(self) -> None:
        driver = ShardDriver(generation=2)
        driver.turn(*(answer(request) for shard, request in asked(driver).items() if shard in OTHERS[:2]))
        driver.advance(100 * SECOND)
        asked(driver)
        for shard in OTHERS[2:]:
            driver.node.on_peer_down(node_peer(shard), driver.now)
        driver.node.on_peer_up(node_peer(OTHERS[2]), driver.now)
        driver.advance(SECOND)
        assert OTHERS[2] in asked(driver)

    def test_what_the_disk_refuses_is_asked_for_again(self) -> None:
        driver = ShardDriver(generation=2)
        requests = asked(driver)
        driver.disk.overloaded = True
        driver.turn(answer(requests[OTHERS[0]], record(lsn(1, 1))))
        driver.disk.overloaded = False
        driver.turn(*(answer(requests[shard]) for shard in OTHERS[1:]))
        assert not is_authoritative(driver)
        driver.advance(SECOND)
        again = asked(driver)
        assert again
        assert all(request.after == 0 for request in again.values())
        driver.turn(*(answer(request, record(lsn(1, 1))) for request in again.values()))
        assert is_authoritative(driver)
        assert driver.stored(LOG) == [lsn(1, 1)]

    def test_a_mark_is_not_refused_with_what_others_want_stored(self) -> None:
        """No disk is too full for it."""
        driver = ShardDriver(generation=2)
        requests = asked(driver)
        driver.turn(*(answer(requests[shard]) for shard in OTHERS[:2]))
        driver.disk.free = 0
        message = store(lsn(1, 1), generation=2)
        driver.turn(answer(requests[OTHERS[2]]), (PeerId(1), message))
        assert driver.take_one(Stored).status is Status.NOSPC
        assert is_authoritative(driver)

    def test_a_later_record_that_was_refused_hides_no_earlier_one(self) -> None:
        driver = ShardDriver(generation=2)
        requests = asked(driver)
        driver.disk.overloaded = True
        driver.turn((PeerId(1), store(lsn(5, 1), log=LOG, flags=METADATA, generation=2)))
        driver.disk.overloaded = False
        driver.turn(*(answer(requests[shard], record(lsn(1, 1))) for shard in OTHERS))
        assert driver.stored(LOG) == [lsn(1, 1)]


class TestAnotherClusterFile:
    @staticmethod
    def publish(driver: ShardDriver, *nodeset: ShardId) -> None:
        metadata = MetadataLogConfig(nodeset, THREE_COPIES)
        driver.config = replace(driver.config, version=driver.config.version + 1, metadata_log=metadata)
        driver.node.on_config(driver.config, driver.now)
        driver.turn()

    def test_who_is_put_back_has_to_tell_what_it_has_before_the_shard_is_authoritative_again(self) -> None:
        """It was away, and taken out, when a record was on it and on two shards that lost their disks."""
        driver = ShardDriver(generation=2)
        self.publish(driver, *SHARDS[:4])
        requests = asked(driver)
        driver.turn(*(answer(requests[shard], version=2) for shard in SHARDS[1:3]))
        assert is_authoritative(driver)
        driver.restart()
        assert is_authoritative(driver)
        self.publish(driver, *SHARDS)
        requests = asked(driver)
        driver.turn(*(answer(requests[shard], version=3) for shard in SHARDS[1:3]))
        assert not is_authoritative(driver), "one of them may have got back what it has without asking that one"
        driver.turn(answer(requests[SHARDS[4]], record(lsn(1, 1)), version=3))
        assert is_authoritative(driver)
        assert driver.stored(LOG) == [lsn(1, 1)]
        self.publish(driver, *SHARDS[:4])
        self.publish(driver, *SHARDS)
        assert is_authoritative(driver)
        driver.restart()
        assert is_authoritative(driver)

    def test_who_joins_and_has_told_is_enough(self) -> None:
        """Others that lost their disks before wait for it as well: nobody waits for them."""
        driver = ShardDriver(generation=2)
        self.publish(driver, *SHARDS[:4])
        requests = asked(driver)
        driver.turn(*(answer(requests[shard], version=2) for shard in SHARDS[1:3]))
        self.publish(driver, *SHARDS)
        requests = asked(driver)
        driver.turn(*(answer(requests[shard], status=Status.REBUILDING, version=3) for shard in SHARDS[1:4]))
        assert not is_authoritative(driver)
        driver.turn(answer(requests[SHARDS[4]], version=3))
        assert is_authoritative(driver)

    def test_what_is_proved_of_two_nodesets_is_not_proved_of_both_together(self) -> None:
        """A record that this shard lost may be on one that left before the second of them, and one that joined with it."""
        driver = ShardDriver(generation=2)
        here, first, second, leaves, joins = SHARDS
        self.publish(driver, here, first, second, leaves)
        requests = asked(driver)
        driver.turn(*(answer(requests[shard], version=2) for shard in (first, second)))
        assert is_authoritative(driver)
        self.publish(driver, here, first, second, joins)
        requests = asked(driver)
        driver.turn(*(answer(requests[shard], version=3) for shard in (first, second)))
        assert is_authoritative(driver)
        self.publish(driver, *SHARDS)
        assert not is_authoritative(driver), "neither of the two others has told anything"
        requests = asked(driver)
        driver.turn(*(answer(requests[shard], version=4) for shard in (first, second)))
        assert not is_authoritative(driver)
        driver.turn(answer(requests[leaves], record(lsn(1, 1)), version=4))
        assert is_authoritative(driver)
        assert driver.stored(LOG) == [lsn(1, 1)]

    def test_what_was_told_by_the_file_before_proves_nothing_by_the_next_one(self) -> None:
        """Not even in the turn in which that comes: who told, and had lost data itself, had not asked whom it adds."""
        driver = ShardDriver(generation=2)
        self.publish(driver, *SHARDS[:4])
        requests = asked(driver)
        driver.hold = True
        driver.turn(*(answer(requests[shard], record(lsn(1, 1)), version=2) for shard in SHARDS[1:4]))
        metadata = MetadataLogConfig(SHARDS, THREE_COPIES)
        driver.config = replace(driver.config, version=3, metadata_log=metadata)
        driver.node.on_config(driver.config, driver.now)
        driver.complete()
        driver.let_go()
        assert driver.stored(LOG) == [lsn(1, 1)]
        assert not is_authoritative(driver)

    def test_what_was_refused_is_not_taken_for_stored_when_another_file_comes_in_between(self) -> None:
        driver = ShardDriver(generation=2)
        requests = asked(driver)
        driver.hold = True
        driver.disk.overloaded = True
        driver.turn(answer(requests[OTHERS[0]], record(lsn(1, 1))))
        driver.disk.overloaded = False
        driver.let_go()
        self.publish(driver, *SHARDS)
        requests = asked(driver)
        driver.turn(*(answer(requests[shard], record(lsn(1, 1)), version=2) for shard in OTHERS))
        assert is_authoritative(driver)
        assert driver.stored(LOG) == [lsn(1, 1)]

    def test_it_is_not_authoritative_by_a_file_that_is_older_than_that_of_others(self) -> None:
        driver = ShardDriver(generation=2)
        driver.turn(*(answer(request) for request in asked(driver).values()))
        assert is_authoritative(driver)
        driver.view.config_version = driver.config.version + 1
        driver.turn()
        assert not is_authoritative(driver)
        assert not asked(driver)
        self.publish(driver, *SHARDS)
        assert is_authoritative(driver)


class TestAnswering:
    @staticmethod
    def filled(driver: ShardDriver, logs: list[LogId]) -> None:
        for log in logs:
            driver.turn(*((PeerId(1), store(lsn(epoch, 1), log=log, flags=METADATA)) for epoch in (1, 2)))
        driver.sent.clear()

    @staticmethod
    def fetch(driver: ShardDriver, after: LogId = LogId(0), bytes_max: int = 1 << 20) -> MetadataFetched:
        request = FetchMetadata(request_id=1, shard=ME, after=after, bytes_max=bytes_max)
        driver.turn((PeerId(2), request))
        return driver.take_one(MetadataFetched)

    def test_the_last_record_of_each_metadata_log_is_sent_in_pieces(self) -> None:
        driver = ShardDriver()
        self.filled(driver, MANY)
        driver.turn((PeerId(1), store(lsn(1, 1))))
        driver.sent.clear()
        found: list[tuple[int, int]] = []
        message = self.fetch(driver)
        pieces = 1
        while True:
            assert message.status is Status.OK
            found += [(log, position) for log, position, _ in message.entries]
            if message.ended:
                break
            message = self.fetch(driver, message.through)
            pieces += 1
        assert found == [(log, lsn(2, 1)) for log in MANY]
        assert pieces == 2
        message = self.fetch(driver, bytes_max=1)
        assert ([log for log, _, _ in message.entries], message.ended) == ([MANY[0]], False)

    def test_where_nothing_is_the_end_is_told_at_once(self) -> None:
        message = self.fetch(ShardDriver())
        assert (message.status, message.entries, message.ended) == (Status.OK, [], True)

    def test_what_cannot_be_read_is_not_told_with_authority(self) -> None:
        driver = ShardDriver()
        self.filled(driver, MANY[:3])
        driver.disk.unreadable.add(keys.data_key(MANY[1], lsn(2, 1), False, 1))
        message = self.fetch(driver)
        assert message.status is Status.REBUILDING
        assert [log for log, _, _ in message.entries] == [MANY[0], MANY[2]]

    def test_what_a_shard_has_that_lost_data_proves_nothing_and_is_not_read(self) -> None:
        driver = ShardDriver(generation=2)
        driver.turn((PeerId(1), store(lsn(1, 1), log=MANY[0], flags=METADATA, generation=2)))
        driver.sent.clear()
        reads = driver.reads
        message = self.fetch(driver)
        assert (message.status, message.entries, message.ended) == (Status.REBUILDING, [], True)
        assert driver.reads == reads

    def test_nor_does_it_say_that_there_is_nothing_of_a_log_that_it_has_not_met_since(self) -> None:
        """Whoever repairs a damaged record would take its word that there is no later one."""
        driver = ShardDriver(generation=2)
        requests = asked(driver)
        fetch = Fetch(
            request_id=1,
            shard=ME,
            generation=Generation(0),
            holder=SHARDS[1],
            log=LOG,
            first=Lsn(1),
            last=lsn(9, 1),
            bytes_max=1 << 20,
        )
        driver.turn((PeerId(1), fetch))
        assert driver.take_one(Fetched).status == Status.REBUILDING
        driver.turn((PeerId(1), replace(fetch, generation=Generation(2))))
        assert driver.take_one(Fetched).status == Status.OK
        driver.turn(*(answer(request) for request in requests.values()))
        driver.turn((PeerId(1), fetch))
        message = driver.take_one(Fetched)
        assert (message.status, message.through) == (Status.OK, lsn(9, 1))

    def test_what_was_stored_since_somebody_asked_before_is_sent_too(self) -> None:
        driver = ShardDriver()
        self.filled(driver, MANY[:1])
        assert [log for log, _, _ in self.fetch(driver).entries] == MANY[:1]
        self.filled(driver, MANY[1:2])
        assert [log for log, _, _ in self.fetch(driver).entries] == MANY[:2]

    def test_no_more_is_worked_on_than_a_few_at_a_time(self) -> None:
        driver = ShardDriver()
        self.filled(driver, MANY[:2])
        driver.hold = True
        request = FetchMetadata(request_id=1, shard=ME, after=LogId(0), bytes_max=1)
        for _ in range(5):
            driver.turn((PeerId(2), request))
        assert driver.take_one(MetadataFetched).status is Status.OVERLOADED
        driver.let_go()
        assert len(driver.take(MetadataFetched)) == 4

    def test_a_disk_that_fails_is_told_of(self) -> None:
        driver = ShardDriver()
        self.filled(driver, MANY[:2])
        driver.machines.shard.fail()
        message = self.fetch(driver)
        assert (message.status, message.ended) == (Status.FAILED, False)
