"""Who can do with headers reads no body that lies apart: here no such body can be read, and nobody takes notice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import Generation, PeerId
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Timestamp
from logdevice_py.protocol.messages import (
    Compare,
    Compared,
    Digested,
    Fetch,
    Fetched,
    FindFlags,
    FindKey,
    KeyFound,
    Records,
    Sealed,
    StartFlags,
)
from storage_node.log_store import keys
from storage_node.log_store.wanted import OrderedCopy, SingleCopy, decode_wants, encode_wants, no_body
from storage_node.repair.copies import EntriesDigest
from storage_node.settings import StorageSettings
from tests.unit.storage_node.fakes import (
    ME,
    SEQUENCER,
    SHARDS,
    SYNC_LOG,
    ShardDriver,
    digest,
    image,
    interval,
    lsn,
    release,
    seal,
    start,
    stores,
    told,
)

SETTINGS = StorageSettings(recent_entries_bytes_max=0, scrub_bytes_per_s=0)
LARGE = b"x" * 10_000
CLIENT = PeerId(-5)
MINE, NOT_MINE = (ME, SHARDS[1], SHARDS[2]), (SHARDS[1], ME, SHARDS[2])
SENT_HERE = (3, 6, 9)


def all_entries() -> list[Lsn]:
    return [lsn(1, esn) for esn in range(1, 11)]


def filled(settings: StorageSettings = SETTINGS) -> ShardDriver:
    """A shard with ten large entries, three of which it is to send."""
    made = ShardDriver(settings)
    for esn in range(1, 11):
        made.turn(*stores([lsn(1, esn)], payload=LARGE, copyset=MINE if esn in SENT_HERE else NOT_MINE))
    made.turn(release(lsn(1, 10)))
    made.sent.clear()
    return made


def hide(driver: ShardDriver, *esns: int) -> None:
    """Bodies cannot be read."""
    for esn in esns:
        driver.disk.unreadable.add(keys.body_key(keys.data_key(SYNC_LOG, lsn(1, esn), False, 1)))


@pytest.fixture
def driver() -> ShardDriver:
    made = filled()
    hide(made, *(esn for esn in range(1, 11) if esn not in SENT_HERE))
    return made


def nobody_noticed(driver: ShardDriver) -> bool:
    return not driver.disk.fired["read_error"] and not driver.machines.repairs.damaged


class TestReaders:
    def test_single_copy_delivery_reads_the_bodies_that_it_sends(self, driver: ShardDriver) -> None:
        driver.turn(start(until=lsn(1, 10), single_copy=True))
        messages = driver.take(Records)
        assert [at for message in messages for at, _ in message.entries] == [lsn(1, esn) for esn in SENT_HERE]
        assert all(LARGE in message.images for message in messages)
        assert nobody_noticed(driver)

    def test_it_reads_others_when_their_senders_are_down(self, driver: ShardDriver) -> None:
        driver.turn(start(until=lsn(1, 10), single_copy=True, known_down=[SHARDS[1]]))
        story = told(driver)
        assert [each for each in story if isinstance(each, int)] == [lsn(1, esn) for esn in SENT_HERE]
        assert sum(each[0] == "CHECKSUM_FAIL" for each in story if isinstance(each, tuple)) == 4
        assert not nobody_noticed(driver)

    def test_who_wants_all_copies_gets_all(self) -> None:
        driver = filled()
        driver.turn(start(until=lsn(1, 10)))
        assert told(driver) == all_entries()

    @pytest.mark.parametrize("single_copy", [False, True])
    def test_who_wants_no_payloads_gets_headers(self, single_copy: bool) -> None:
        driver = filled()
        hide(driver, *range(1, 11))
        driver.turn(start(until=lsn(1, 10), flags=StartFlags.NO_PAYLOAD, single_copy=single_copy))
        got = []
        for message in driver.take(Records):
            at = 0
            for position, length in message.entries:
                header = parse_header(message.images[at : at + length])
                assert (header.lsn, header.is_amend) == (position, True)
                assert header.body_length > len(LARGE)
                got.append(position)
                at += length
        assert got == ([lsn(1, esn) for esn in SENT_HERE] if single_copy else all_entries())
        assert nobody_noticed(driver)

    def test_a_body_that_it_was_to_send_and_cannot_read_is_damage(self) -> None:
        driver = filled()
        hide(driver, 6)
        driver.turn(start(until=lsn(1, 10), single_copy=True))
        story = told(driver)
        assert ("CHECKSUM_FAIL", lsn(1, 6), lsn(1, 6)) in story
        assert lsn(1, 9) in story
        assert (lsn(1, 6), lsn(1, 6)) in driver.machines.repairs.damaged[SYNC_LOG].unreadable


class TestOtherShards:
    def test_comparisons_read_headers(self) -> None:
        driver = filled()
        hide(driver, *range(1, 11))
        held = EntriesDigest()
        for esn in range(1, 11):
            held.add(lsn(1, esn), image(lsn(1, esn), payload=LARGE))
        request = Compare(
            request_id=7,
            shard=ME,
            generation=Generation(1),
            holder=SHARDS[1],
            log=SYNC_LOG,
            first=lsn(1, 1),
            last=lsn(1, 10),
            count=held.count,
            digest=held.value,
        )
        driver.turn((SEQUENCER, request))
        answer = driver.take_one(Compared)
        assert (answer.status, answer.equal) == (Status.OK, True)
        assert nobody_noticed(driver)

    def test_a_shard_that_fetches_gets_whole_copies_of_what_it_should_have(self) -> None:
        driver = ShardDriver(SETTINGS)
        driver.turn(*stores([lsn(1, 1)], payload=LARGE, copyset=(ME, SHARDS[1])))
        driver.turn(*stores([lsn(1, 2)], payload=LARGE, copyset=(ME, SHARDS[2])))
        driver.turn(release(lsn(1, 2)))
        hide(driver, 2)
        driver.sent.clear()
        request = Fetch(
            request_id=7,
            shard=ME,
            generation=Generation(1),
            holder=SHARDS[1],
            log=SYNC_LOG,
            first=lsn(1, 1),
            last=lsn(1, 2),
            bytes_max=1 << 20,
        )
        driver.turn((SEQUENCER, request))
        answer = driver.take_one(Fetched)
        assert answer.images == image(lsn(1, 1), payload=LARGE, copyset=(ME, SHARDS[1]))
        assert nobody_noticed(driver)

    def test_the_tail_is_told_from_headers(self) -> None:
        driver = filled()
        hide(driver, *range(1, 11))
        driver.turn(seal(1))
        [(_, status, _, _, _, [facts])] = driver.take_one(Sealed).logs
        assert status == Status.OK
        assert lsn(1, 10) & 0xFFFFFFFF in facts
        assert nobody_noticed(driver)

    def test_digests_are_whole_since_recovery_stores_them_again(self, driver: ShardDriver) -> None:
        driver.turn(digest(lsn(1, 1), lsn(1, 10)))
        answer = driver.take_one(Digested)
        lengths = {at: length for _, at, length in answer.entries}
        assert [at for at, length in lengths.items() if length] == [lsn(1, esn) for esn in SENT_HERE]
        assert len(lengths) == 10, "what cannot be read is told of"

    def test_the_scrubber_reads_every_body(self) -> None:
        driver = filled(replace(SETTINGS, scrub_bytes_per_s=1 << 30, scrub_interval_us=SECOND))
        hide(driver, 5)
        driver.advance(3 * SECOND)
        driver.tell_history([interval()])
        driver.advance(3 * SECOND)
        assert (lsn(1, 5), lsn(1, 5)) in driver.machines.repairs.damaged[SYNC_LOG].unreadable


def test_the_search_of_a_timestamp_reads_headers() -> None:
    driver = filled()
    hide(driver, *range(1, 11))
    request = FindKey(
        request_id=9,
        shard=ME,
        log=SYNC_LOG,
        first=lsn(1, 1),
        last=lsn(1, 10),
        flags=int(FindFlags(0)),
        timestamp=Timestamp(1_007),
        key=b"",
    )
    driver.turn((CLIENT, request))
    answer = driver.take_one(KeyFound)
    assert (answer.status, answer.reached) == (Status.OK, lsn(1, 7))
    assert nobody_noticed(driver)


ORDERED = OrderedCopy(ME, frozenset({5}), 3, ((1, 0), (5, 3)))


def test_what_is_wanted_can_be_told_to_another_process() -> None:
    for wants in (None, no_body, SingleCopy(ME, frozenset(), 3), SingleCopy(ME, frozenset({5, 6}), 0), ORDERED):
        assert decode_wants(encode_wants(wants)) == wants
    assert encode_wants(lambda header: True) == "all"
    with pytest.raises(ValueError, match="invalid literal"):
        decode_wants("rubbish")
