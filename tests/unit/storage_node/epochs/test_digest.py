"""DIGEST and TRIM."""

from __future__ import annotations

import pytest

from logdevice_py.core.entry import EntryFlags
from logdevice_py.core.ids import Generation, LogId, PeerId, ShardId, metadata_log_of
from logdevice_py.core.lsn import ESN_MAX, LSN_MAX, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.framing import encode_frame
from logdevice_py.protocol.messages import Digest, Digested, DigestRange, Trim, Trimmed, TrimPoints
from storage_node.epochs.digest import damaged_lsns
from storage_node.log_store.interface import ReadResult
from storage_node.settings import StorageSettings
from tests.unit.storage_node.fakes import (
    ASYNC_LOG,
    ME,
    READER,
    SEQUENCER,
    SYNC_LOG,
    ShardDriver,
    clean,
    digest,
    headers,
    image,
    lsn,
    recovery_store,
    release,
    stores,
)


@pytest.fixture(params=["from memory", "from disk"])
def recent(request: pytest.FixtureRequest) -> StorageSettings:
    return StorageSettings(recent_entries_bytes_max=1 << 20 if request.param == "from memory" else 0)


class TestDigest:
    def test_unreleased_entries_are_shown(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        driver.turn(*stores([lsn(1, 1), lsn(1, 3)]))
        driver.turn(digest(lsn(1, 1), lsn(1, 99)))
        answer = driver.take_one(Digested)
        assert answer.ranges == [(SYNC_LOG, Status.OK, lsn(1, 99))]
        assert [header.lsn for header in headers(answer)] == [lsn(1, 1), lsn(1, 3)]

    def test_the_copy_of_highest_rank_is_shown_with_its_body(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        driver.turn(*stores([lsn(1, 1)], wave=2))
        driver.turn(*stores([lsn(1, 1)], wave=1))
        driver.turn((SEQUENCER, recovery_store(lsn(1, 1), 1, flags=EntryFlags.AMEND)))
        driver.turn(digest(lsn(1, 1), lsn(1, 1)))
        [header] = headers(driver.take_one(Digested))
        assert header.rank == (1, 1)
        assert not header.is_amend
        assert header.body_length > 0

    def test_an_answer_is_cut_at_the_limit_and_goes_on_from_there(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        driver.turn(*stores([lsn(1, esn) for esn in range(1, 8)]))
        size = len(image(lsn(1, 1)))
        found: list[Lsn] = []
        position = lsn(1, 1)
        while position <= lsn(1, 9):
            driver.turn(digest(position, lsn(1, 9), bytes_max=2 * size))
            answer = driver.take_one(Digested)
            assert len(answer.images) <= 2 * size
            found += [header.lsn for header in headers(answer)]
            [(_, status, through)] = answer.ranges
            assert status == Status.OK
            assert through >= position
            position = Lsn(through + 1)
        assert found == [lsn(1, esn) for esn in range(1, 8)]

    def test_one_entry_is_shown_however_large(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        driver.turn(*stores([lsn(1, 1), lsn(1, 2)]))
        driver.turn(digest(lsn(1, 1), lsn(1, 9), bytes_max=1))
        assert len(driver.take_one(Digested).entries) == 1

    def test_many_ranges_in_one_request(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        driver.turn(*stores([lsn(1, 1)]), *stores([lsn(2, 1)], log=LogId(8)))
        ends = {SYNC_LOG: lsn(1, 9), LogId(99): lsn(1, 9), LogId(8): lsn(2, 9)}
        ranges = [DigestRange(log, lsn(1, 1), last, Generation(1)) for log, last in ends.items()]
        driver.turn((PeerId(2), Digest(request_id=8, shard=ME, bytes_max=1 << 20, ranges=ranges)))
        answer = driver.take_one(Digested)
        assert [(each.log, each.through) for each in answer.ranges] == [
            (7, lsn(1, 9)),
            (99, lsn(1, 9)),
            (8, lsn(2, 9)),
        ]
        assert [(log, at) for log, at, _ in answer.entries] == [(7, lsn(1, 1)), (8, lsn(2, 1))]
        assert LogId(99) not in driver.machines.shard.logs

    def test_another_generation_is_rebuilding(self) -> None:
        driver = ShardDriver(generation=2)
        driver.turn(digest(lsn(1, 1), lsn(1, 9), generation=1))
        assert driver.take_one(Digested).ranges == [(SYNC_LOG, Status.REBUILDING, lsn(1, 9))]

    def test_an_entry_that_cannot_be_read_is_shown_as_such_and_the_rest_is_told_with_authority(self) -> None:
        driver = ShardDriver(StorageSettings(recent_entries_bytes_max=0))
        driver.turn(*stores([lsn(1, 1), lsn(1, 2), lsn(1, 3)]))
        driver.disk.corrupt(SYNC_LOG, lsn(1, 2))
        driver.turn(digest(lsn(1, 1), lsn(1, 9)))
        answer = driver.take_one(Digested)
        assert answer.ranges == [(SYNC_LOG, Status.OK, lsn(1, 9))]
        assert [(entry.lsn, entry.length > 0) for entry in answer.entries] == [
            (lsn(1, 1), True),
            (lsn(1, 2), False),
            (lsn(1, 3), True),
        ]

    def test_so_it_is_in_a_metadata_log(self) -> None:
        driver = ShardDriver(StorageSettings(recent_entries_bytes_max=0))
        log = metadata_log_of(SYNC_LOG)
        driver.turn(*stores([lsn(1, 1), lsn(4, 1)], log=log, flags=0))
        driver.disk.corrupt(log, lsn(1, 1))
        driver.turn(digest(Lsn(1), LSN_MAX, log=log, generation=0))
        answer = driver.take_one(Digested)
        assert answer.ranges == [(log, Status.OK, LSN_MAX)]
        assert [(entry.lsn, entry.length > 0) for entry in answer.entries] == [(lsn(1, 1), False), (lsn(4, 1), True)]

    def test_wide_damage_is_rebuilding(self) -> None:
        result = ReadResult(Status.OK, lsn(1, 9000), [(lsn(1, 5), b"x")], corrupt=[(lsn(1, 4), lsn(1, 6))])
        assert damaged_lsns(result, lsn(1, 1)) == [lsn(1, 4), lsn(1, 6)]
        assert damaged_lsns(result, lsn(1, 6)) == [lsn(1, 6)]
        result.corrupt.append((lsn(1, 1000), lsn(1, 8000)))
        assert damaged_lsns(result, lsn(1, 1)) is None

    def test_epochs_that_lost_entries_are_rebuilding(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        driver.turn(*stores([lsn(1, 1)], log=ASYNC_LOG))
        driver.power_cut()
        driver.turn(digest(lsn(1, 1), lsn(1, 9), log=ASYNC_LOG))
        answer = driver.take_one(Digested)
        assert answer.ranges[0].status == Status.REBUILDING
        assert len(answer.entries) == 1
        driver.turn(digest(lsn(2, 1), lsn(2, 9), log=ASYNC_LOG))
        assert driver.take_one(Digested).ranges[0].status == Status.OK

    def test_metadata_logs_are_shown_whole(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        log = metadata_log_of(SYNC_LOG)
        driver.turn(*stores([lsn(1, 1), lsn(4, 1)], log=log, flags=0))
        driver.turn(digest(Lsn(1), LSN_MAX, log=log, generation=0))
        answer = driver.take_one(Digested)
        assert answer.ranges == [(log, Status.OK, LSN_MAX)]
        assert [header.lsn for header in headers(answer)] == [lsn(1, 1), lsn(4, 1)]

    def test_a_shard_that_lost_its_data_is_not_authoritative_for_metadata_logs(self) -> None:
        driver = ShardDriver(generation=2)
        log = metadata_log_of(SYNC_LOG)
        driver.turn(digest(Lsn(1), LSN_MAX, log=log, generation=0))
        assert driver.take_one(Digested).ranges == [(log, Status.REBUILDING, LSN_MAX)]

    def test_it_is_authoritative_for_what_metadata_logs_got_since_it_has_its_generation(self) -> None:
        driver = ShardDriver(generation=2)
        log = metadata_log_of(SYNC_LOG)
        driver.turn(digest(Lsn(1), LSN_MAX, log=log, generation=2))
        assert driver.take_one(Digested).ranges == [(log, Status.OK, LSN_MAX)]
        driver.turn(digest(Lsn(1), LSN_MAX, log=log, generation=1))
        assert driver.take_one(Digested).ranges == [(log, Status.REBUILDING, LSN_MAX)]

    def test_a_copy_of_a_sequencer_that_the_disk_has_not_taken_is_not_shown(self) -> None:
        driver = ShardDriver()
        driver.hold = True
        driver.turn(*stores([lsn(1, 1)]), digest(lsn(1, 1), lsn(1, 9)))
        assert driver.take_one(Digested).entries == []

    def test_what_a_recovery_stored_before_is_waited_for(self, recent: StorageSettings) -> None:
        """An attempt was abandoned before this shard had written its copy; the next attempt must not plan without that copy."""
        driver = ShardDriver(recent)
        driver.turn(*stores([lsn(1, 1)]))
        driver.hold = True
        driver.turn((SEQUENCER, recovery_store(lsn(1, 2), 1)))
        driver.turn(digest(lsn(1, 1), lsn(1, 9)), digest(lsn(1, 1), lsn(1, 9), log=LogId(8)))
        assert [answer.ranges[0].log for answer in driver.take(Digested)] == [8]
        driver.let_go()
        assert [header.rank for header in headers(driver.take_one(Digested))] == [(0, 1), (1, 1)]

    def test_so_is_an_amend_whose_body_is_still_looked_up(self) -> None:
        driver = ShardDriver(StorageSettings(recent_entries_bytes_max=0))
        driver.turn(*stores([lsn(1, 1)]))
        driver.hold = True
        driver.turn((SEQUENCER, recovery_store(lsn(1, 1), 1, flags=EntryFlags.AMEND)))
        driver.turn(digest(lsn(1, 1), lsn(1, 9)))
        driver.complete()
        assert not driver.take(Digested)
        driver.let_go()
        assert [header.rank for header in headers(driver.take_one(Digested))] == [(1, 1)]

    def test_it_goes_on_when_what_it_waits_for_is_refused(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1)]))
        driver.hold = True
        driver.turn((SEQUENCER, recovery_store(lsn(1, 2), 1)), digest(lsn(1, 1), lsn(1, 9)))
        effect, _ = driver.held[0]
        driver.held[0] = (effect, Status.OVERLOADED)
        driver.let_go()
        answer = driver.take_one(Digested)
        assert answer.ranges[0].status == Status.OK
        assert [header.lsn for header in headers(answer)] == [lsn(1, 1)]

    def test_nothing_is_told_with_authority_when_what_it_waits_for_fails(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1)]))
        driver.hold = True
        driver.disk.fail_write = True
        driver.turn((SEQUENCER, recovery_store(lsn(1, 2), 1)), digest(lsn(1, 1), lsn(1, 9)))
        driver.let_go()
        assert driver.take_one(Digested).ranges[0].status == Status.FAILED

    def test_while_the_disk_hangs_repeated_requests_are_bounded_and_forgotten_with_their_peer(self) -> None:
        driver = ShardDriver(StorageSettings(digests_waiting_max=1))
        driver.hold = True
        driver.turn((SEQUENCER, recovery_store(lsn(1, 2), 1)))
        asked = digest(lsn(1, 1), lsn(1, 9))
        for _ in range(7):
            driver.turn(asked)
        assert [answer.ranges[0].status for answer in driver.take(Digested)] == [Status.OVERLOADED] * 2
        driver.node.on_peer_down(asked[0], driver.now)
        driver.turn((PeerId(-7), asked[1]))
        driver.let_go()
        assert [to for to, message in driver.sent if isinstance(message, Digested)] == [PeerId(-7)]

    def test_requests_under_way_are_bounded(self) -> None:
        driver = ShardDriver(StorageSettings(recent_entries_bytes_max=0, digests_waiting_max=1))
        driver.turn(*stores([lsn(1, 1)]))
        driver.hold = True
        driver.turn(*[digest(lsn(1, 1), lsn(1, 9)) for _ in range(7)])
        refused = driver.take(Digested)
        assert [answer.ranges for answer in refused] == [[(SYNC_LOG, Status.OVERLOADED, lsn(1, 0))]] * 2
        driver.let_go()
        assert [len(answer.entries) for answer in driver.take(Digested)] == [1] * 5

    def test_a_peer_that_does_not_read_is_sent_no_more_answers_until_it_does(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        driver.turn(*stores([lsn(1, 1)]))
        asked = digest(lsn(1, 1), lsn(1, 9))
        driver.node.on_peer_congested(asked[0], driver.now)
        driver.turn(asked, asked, (PeerId(-7), asked[1]))
        assert len(driver.take(Digested, PeerId(-7))) == 1
        assert driver.take(Digested) == []
        driver.node.on_peer_drained(asked[0], driver.now)
        driver.turn()
        assert len(driver.take(Digested, asked[0])) == 2

    def test_what_a_gone_peer_asked_for_is_forgotten(self) -> None:
        driver = ShardDriver(StorageSettings(digests_waiting_max=3))
        driver.turn(*stores([lsn(1, 1)]))
        asked = digest(lsn(1, 1), lsn(1, 9))
        driver.node.on_peer_congested(asked[0], driver.now)
        driver.turn(*[asked] * 7)
        driver.node.on_peer_down(asked[0], driver.now)
        driver.turn(*[asked] * 7)
        assert [answer.ranges[0].status for answer in driver.take(Digested)] == [Status.OK] * 7

    def test_one_turn_sends_a_bounded_part_and_the_next_turn_goes_on(self) -> None:
        driver = ShardDriver(StorageSettings(read_bytes_per_turn_max=len(image(lsn(1, 1)))))
        driver.turn(*stores([lsn(1, 1)]))
        driver.turn(*[digest(lsn(1, 1), lsn(1, 9))] * 3)
        for _ in range(3):
            assert len(driver.take(Digested)) == 1
            driver.turn()

    def test_many_ranges_count_like_many_requests(self) -> None:
        driver = ShardDriver()
        peer, request = digest(lsn(1, 1), lsn(1, 9))
        request.ranges = request.ranges * 2000
        driver.turn(*[(peer, request)] * 110)
        refused = [answer for answer in driver.take(Digested) if answer.ranges[0].status == Status.OVERLOADED]
        assert len(refused) == 10

    def test_whatever_is_asked_the_answer_fits_a_frame(self) -> None:
        """Log ids, LSNs and lengths in their longest form, and more of them than one message holds."""
        log = metadata_log_of(SYNC_LOG)
        driver = ShardDriver(StorageSettings(digest_bytes_max=64 << 20))
        count = 3000
        for first in range(0, count, 500):
            driver.turn(*stores([lsn(1 + epoch, 1) for epoch in range(first, first + 500)], log=log, flags=0))
        peer, request = digest(Lsn(1), LSN_MAX, log=log, generation=0)
        request.bytes_max = 2**32 - 1
        row = request.ranges[0]
        for ranges in ([row], [row] * 2000):
            request.ranges = ranges
            driver.turn((peer, request))
            [answer] = driver.take(Digested)
            encode_frame(answer)
            assert answer.entries
        request.ranges = [DigestRange(LogId(1), Lsn(1), Lsn(1), Generation(0))] * 4000
        driver.turn((peer, request))
        [answer] = driver.take(Digested)
        encode_frame(answer)
        assert {each.status for each in answer.ranges} == {Status.INVALID_PARAM}

    def test_a_failed_disk_says_so(self) -> None:
        driver = ShardDriver()
        driver.disk.fail_write = True
        driver.turn(*stores([lsn(1, 1)]))
        driver.turn(digest(lsn(1, 1), lsn(1, 9)))
        assert driver.take_one(Digested).ranges[0].status == Status.FAILED


def trim(position: Lsn, log: LogId = SYNC_LOG) -> tuple[PeerId, Trim]:
    return (READER, Trim(request_id=4, log=log, shard=ME, lsn=position))


class TestTrim:
    def test_it_is_durable_before_the_answer_and_never_goes_back(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, esn) for esn in range(1, 5)]))
        driver.turn(release(lsn(1, 4)))
        driver.hold = True
        driver.turn(trim(lsn(1, 2)))
        assert driver.held[0][0].sync
        assert not driver.take(Trimmed)
        driver.let_go()
        driver.turn(trim(lsn(1, 1)))
        assert [answer.status for answer in driver.take(Trimmed)] == [Status.OK] * 2
        driver.power_cut()
        assert driver.log().trim_point == lsn(1, 2)
        assert driver.stored() == [lsn(1, 3), lsn(1, 4)]

    def test_what_is_not_released_here_is_kept_for_recovery(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, esn) for esn in range(1, 5)]))
        driver.turn(release(lsn(1, 2)))
        driver.turn(release(lsn(3, 1)))  # held back: the epochs before are not clean here
        driver.turn(trim(lsn(1, 4)))
        assert driver.take_one(Trimmed).status is Status.OK
        assert driver.stored() == [lsn(1, 3), lsn(1, 4)]

    @pytest.mark.parametrize("beyond", [lsn(1, 3), lsn(1, ESN_MAX), lsn(7, 1), Lsn(LSN_MAX - 1)])
    def test_what_is_not_known_to_be_released_cannot_be_trimmed_yet(self, beyond: Lsn) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, esn) for esn in range(1, 5)]))
        driver.turn(release(lsn(1, 2)))
        driver.turn(trim(beyond))
        assert driver.take_one(Trimmed).status is Status.AGAIN
        driver.turn(
            (PeerId(1), TrimPoints(shard=ME, sender=ShardId(1 << 8), wall=Timestamp(0), logs=[(SYNC_LOG, beyond)]))
        )
        assert driver.log().trim_point == 0
        assert len(driver.stored()) == 4

    def test_a_trim_point_of_another_shard_is_taken_once_it_is_known_to_be_released(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, esn) for esn in range(1, 5)]))
        told = (
            PeerId(1),
            TrimPoints(shard=ME, sender=ShardId(1 << 8), wall=Timestamp(0), logs=[(SYNC_LOG, lsn(1, 3))]),
        )
        driver.turn(told)
        assert driver.log().trim_point == 0
        driver.turn(release(lsn(1, 4)))
        driver.turn(told)
        assert driver.log().trim_point == lsn(1, 3)

    def test_recovery_metadata_of_trimmed_epochs_is_forgotten(self) -> None:
        driver = ShardDriver()
        for epoch in (1, 2, 3):
            driver.turn(*stores([lsn(epoch, 1)]))
            driver.turn(clean(epoch, epoch, lng=1, last=2))
        driver.turn(release(lsn(4, 0)))
        driver.turn(trim(lsn(2, 1)))
        assert list(driver.log().recovered) == [2, 3]
        driver.restart()
        assert list(driver.log().recovered) == [2, 3]

    def test_a_log_that_nobody_knows_is_not_found(self) -> None:
        driver = ShardDriver()
        driver.turn(trim(lsn(1, 2), log=LogId(5000)))
        assert driver.take_one(Trimmed).status is Status.NOTFOUND
        assert driver.machines.shard.logs == {}

    def test_beyond_every_position_is_invalid(self) -> None:
        driver = ShardDriver()
        driver.turn(trim(LSN_MAX))
        assert driver.take_one(Trimmed).status is Status.INVALID_PARAM

    def test_nobody_may_trim_a_metadata_log(self) -> None:
        driver = ShardDriver()
        log = metadata_log_of(SYNC_LOG)
        driver.turn(*stores([lsn(1, 1)], log=log, flags=0))
        driver.turn(trim(lsn(9, 9), log=log))
        assert driver.take_one(Trimmed).status is Status.NOTFOUND
        driver.turn(digest(Lsn(1), LSN_MAX, log=log, generation=0))
        assert len(driver.take_one(Digested).entries) == 1
