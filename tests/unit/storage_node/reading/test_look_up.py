"""Look-ups at one shard: what they may ask for, what they tell, and that they give way."""

from __future__ import annotations

from typing import Any

import pytest
from google_crc32c import value as crc32c

from logdevice_py.core.entry import (
    Constituent,
    ConstituentFlags,
    EntryFlags,
    EntryHeader,
    encode_body,
    encode_entry,
)
from logdevice_py.core.ids import LogId, PeerId
from logdevice_py.core.lsn import LSN_MAX, Esn, Lsn
from logdevice_py.core.record_keys import encode_keys
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.messages import DataSize, DataSized, FindFlags, FindKey, KeyFound, Trim, TrimPoints
from storage_node.settings import StorageSettings
from tests.unit.storage_node.fakes import (
    ME,
    SEQUENCER,
    SHARDS,
    SYNC_LOG,
    ShardDriver,
    lsn,
    release,
    store,
)

CLIENT = PeerId(-5)
UNKNOWN = LogId(77)


def keyed(position: Lsn, key: bytes | None, stamp: int) -> bytes:
    payload = b"record" if key is None else encode_keys([key]) + b"record"
    flags = 0 if key is None else int(ConstituentFlags.KEYS)
    body = encode_body([Constituent(payload, 1, crc32c(payload), flags)])
    header = EntryHeader(SYNC_LOG, position, Timestamp(stamp), 1, SHARDS[:3], Esn(0), 1)
    header.flags = 0 if key is None else int(EntryFlags.KEYED)
    header.body_length, header.body_crc = len(body), crc32c(body)
    return encode_entry(header, body)


class Asked(ShardDriver):
    """A shard with entries, and somebody who asks it."""

    def put(self, esn: int, stamp: int, key: bytes | None = None, *, released: bool = True) -> None:
        message = store(lsn(1, esn), log=SYNC_LOG)
        message.image = keyed(lsn(1, esn), key, stamp)
        self.turn((SEQUENCER, message))
        if released:
            self.turn(release(lsn(1, esn), SYNC_LOG))

    def ask(self, message: Any) -> Any:
        self.sent.clear()
        self.turn((CLIENT, message))
        answers = [each for peer, each in self.sent if peer == CLIENT]
        assert len(answers) == 1, self.sent
        return answers[0]

    def find(self, *, log: LogId = SYNC_LOG, first: int = 1, last: int | None = None, **what: Any) -> KeyFound:
        key = what.get("key")
        flags = FindFlags.BY_KEY if key is not None else FindFlags(what.get("flags", 0))
        answer = self.ask(
            FindKey(
                request_id=9,
                shard=ME,
                log=log,
                first=Lsn(first),
                last=Lsn(lsn(1, 1000) if last is None else last),
                flags=int(flags),
                timestamp=Timestamp(what.get("when", 0)),
                key=key or b"",
            )
        )
        assert isinstance(answer, KeyFound)
        assert answer.request_id == 9
        return answer


@pytest.fixture
def driver() -> Asked:
    made = Asked()
    for esn in range(1, 200):
        made.put(esn, 100 * esn, b"%04d" % esn if esn % 5 == 0 else None)
    return made


class TestFinding:
    def test_the_first_record_that_is_not_older(self, driver: Asked) -> None:
        for esn in (1, 2, 77, 150, 199):
            found = driver.find(when=100 * esn)
            assert (found.status, found.reached, found.before) == (
                Status.OK,
                lsn(1, esn),
                lsn(1, esn) - 1 if esn > 1 else 0,
            )
            assert found.timestamp == 100 * esn
        beyond = driver.find(when=10**9)
        assert (beyond.before, beyond.reached, beyond.timestamp) == (lsn(1, 199), lsn(1, 1001), -1)

    def test_the_first_record_whose_key_is_not_below(self, driver: Asked) -> None:
        assert driver.find(key=b"0050").reached == lsn(1, 50)
        assert driver.find(key=b"0051").reached == lsn(1, 55)
        assert driver.find(key=b"0051").before == lsn(1, 50)
        assert driver.find(key=b"").reached == lsn(1, 5)
        assert driver.find(key=b"9").reached == lsn(1, 1001)

    def test_what_is_not_released_is_not_told(self, driver: Asked) -> None:
        driver.put(200, 20_000, released=False)
        found = driver.find(when=20_000)
        assert (found.reached, found.through) == (lsn(1, 1001), lsn(1, 199))

    def test_what_is_released_while_the_search_runs_is_not_spoken_for(self, driver: Asked) -> None:
        """Simulator seed 96000017 in rebuilding mode: a shard said that nothing up to e2n19 is as new, of which it had read none."""
        driver.put(300, 30_000, released=False)
        question = FindKey(
            request_id=9,
            shard=ME,
            log=SYNC_LOG,
            first=Lsn(1),
            last=lsn(1, 1000),
            flags=0,
            timestamp=Timestamp(30_000),
            key=b"",
        )
        driver.sent.clear()
        driver.turn((CLIENT, question), release(lsn(1, 300), SYNC_LOG))
        (found,) = [each for peer, each in driver.sent if peer == CLIENT]
        assert (found.reached, found.through) == (lsn(1, 1001), lsn(1, 199))
        again = driver.find(when=30_000)
        assert (again.reached, again.through) == (lsn(1, 300), lsn(1, 300))

    def test_what_is_trimmed_is_not_told(self, driver: Asked) -> None:
        driver.turn((CLIENT, Trim(request_id=1, log=SYNC_LOG, shard=ME, lsn=lsn(1, 10))))
        found = driver.find(when=0)
        assert (found.before, found.reached, found.trim_point) == (lsn(1, 10), lsn(1, 11), lsn(1, 10))
        assert driver.find(when=0, last=lsn(1, 10)).reached == lsn(1, 11)

    def test_damage_in_the_way_is_an_error_and_not_a_wrong_place(self, driver: Asked) -> None:
        for key in list(driver.disk.rows)[:]:
            if key[:1] == b"d":
                driver.disk.unreadable.add(key)
        assert driver.find(when=5000).status is Status.AGAIN
        assert driver.find(key=b"0050").status is Status.AGAIN
        assert driver.machines.repairs.damaged[SYNC_LOG].unreadable, "nobody fetches what cannot be read here"

    def test_an_approximate_answer_reads_nothing(self, driver: Asked) -> None:
        before = driver.reads
        found = driver.find(when=5000, flags=FindFlags.APPROXIMATE)
        assert found.reached <= lsn(1, 50)
        assert driver.reads == before


class TestRefusals:
    def test_a_range_that_is_none_is_refused(self, driver: Asked) -> None:
        assert driver.find(first=5, last=4).status is Status.INVALID_PARAM
        assert driver.find(last=LSN_MAX).status is Status.INVALID_PARAM, "the one behind it is no LSN"
        assert driver.find(first=LSN_MAX, last=LSN_MAX).status is Status.INVALID_PARAM

    def test_a_log_that_the_shard_never_met_is_answered_without_a_claim(self, driver: Asked) -> None:
        found = driver.find(log=UNKNOWN)
        assert (found.status, found.through) == (Status.OK, 0)
        size = driver.ask(DataSize(request_id=1, shard=ME, log=UNKNOWN, first=Timestamp(0), last=Timestamp(1)))
        assert (size.status, size.size) == (Status.OK, 0)

    def test_too_many_at_a_time_are_told_to_come_again(self) -> None:
        driver = Asked(StorageSettings(look_ups_max=4))
        driver.put(1, 100)
        driver.hold = True
        driver.sent.clear()
        self.ask_sizes(driver, CLIENT, 3)
        assert [each.status for each in driver.take(DataSized)] == [Status.OVERLOADED]
        driver.let_go()
        assert [each.status for each in driver.take(DataSized)] == [Status.OK, Status.OK]
        assert driver.machines.look_up.running == 0
        assert not driver.machines.look_up._of

    def ask_sizes(self, driver: Asked, peer: PeerId, count: int) -> None:
        for number in range(count):
            driver.turn(
                (
                    peer,
                    DataSize(request_id=number, shard=ME, log=SYNC_LOG, first=Timestamp(0), last=Timestamp(1 << 60)),
                )
            )

    @pytest.mark.parametrize("floods", [1, 20])
    def test_whoever_asks_without_end_leaves_places_to_others(self, floods: int) -> None:
        driver = Asked(StorageSettings(look_ups_max=100))
        driver.put(1, 100)
        driver.hold = True
        for flood in range(floods):
            self.ask_sizes(driver, PeerId(-100 - flood), 300)
        running = driver.machines.look_up.running
        assert running == (50 if floods == 1 else 100 + floods - 7)
        driver.sent.clear()
        self.ask_sizes(driver, CLIENT, 1)
        assert driver.take(DataSized) == []
        assert driver.machines.look_up.running == running + 1
        driver.let_go()
        answers = [message for peer, message in driver.sent if peer == CLIENT]
        assert [answer.status for answer in answers] == [Status.OK]

    def test_nothing_is_kept_for_one_who_is_gone(self, driver: Asked) -> None:
        driver.hold = True
        driver.sent.clear()
        driver.turn(
            (CLIENT, DataSize(request_id=1, shard=ME, log=SYNC_LOG, first=Timestamp(0), last=Timestamp(1 << 60)))
        )
        assert driver.machines.look_up.running == 1
        driver.node.on_peer_down(CLIENT, driver.now)
        assert driver.machines.look_up.running == 0
        driver.let_go()
        assert not driver.take(DataSized)


class TestSizes:
    def test_a_part_of_the_time_is_a_part_of_the_bytes(self, driver: Asked) -> None:
        def size(first: int, last: int) -> int:
            answer = driver.ask(
                DataSize(request_id=1, shard=ME, log=SYNC_LOG, first=Timestamp(first), last=Timestamp(last))
            )
            return int(answer.size)

        whole = size(-(1 << 63), (1 << 63) - 1)
        assert whole > 199 * 100
        assert size(10**12, 10**13) == 0
        assert 0 < size(0, 5000) < whole


class TestTrimExchange:
    def test_what_moved_is_told_to_every_other_shard(self, driver: Asked) -> None:
        driver.advance(30_000_000)
        driver.sent.clear()
        driver.turn((CLIENT, Trim(request_id=1, log=SYNC_LOG, shard=ME, lsn=lsn(1, 10))))
        driver.advance(30_000_000)
        told = {each.shard for each in driver.take(TrimPoints) if (SYNC_LOG, lsn(1, 10)) in each.logs}
        assert told == {shard for shard in driver.config.storage_shards() if shard != ME}

    def test_a_greater_trim_point_is_taken_over_and_a_smaller_one_answered(self, driver: Asked) -> None:
        def told(point: int) -> TrimPoints:
            return TrimPoints(shard=ME, sender=SHARDS[1], wall=Timestamp(0), logs=[(int(SYNC_LOG), point), (99, 5)])

        driver.turn((PeerId(1), told(lsn(1, 20))))
        assert driver.log().trim_point == lsn(1, 20)
        assert LogId(99) not in driver.machines.shard.logs, "what the shard does not know is not its business"
        driver.power_cut()
        assert driver.log().trim_point == lsn(1, 20)
        driver.turn((PeerId(1), told(lsn(1, 7))))
        (answer,) = driver.take(TrimPoints, PeerId(1))
        assert (int(SYNC_LOG), int(lsn(1, 20))) in answer.logs
        assert driver.log().trim_point == lsn(1, 20)

    def test_a_trim_point_beyond_all_is_not_taken_over(self, driver: Asked) -> None:
        message = TrimPoints(shard=ME, sender=SHARDS[1], wall=Timestamp(0), logs=[(int(SYNC_LOG), int(LSN_MAX))])
        driver.turn((PeerId(1), message))
        assert driver.log().trim_point == 0
