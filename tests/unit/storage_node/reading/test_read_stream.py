"""Read streams: order, windows, gaps, single-copy delivery, fairness."""

from __future__ import annotations

import random
import tracemalloc
from collections import Counter

import pytest

from logdevice_py.core.entry import EntryFlags, parse_header
from logdevice_py.core.ids import LogId, PeerId, ShardId, metadata_log_of
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import Records, Started, StartFlags, Stop, Trim
from storage_node.log_store.wanted import pack_order, pack_shards, ships, single_copy, unpack_shards
from storage_node.reading.read_stream import ENTRY_COST
from storage_node.settings import StorageSettings
from tests.unit.storage_node.fakes import (
    ME,
    READER,
    SEQUENCER,
    SHARDS,
    SYNC_LOG,
    ShardDriver,
    clean,
    image,
    lsn,
    recovery_store,
    release,
    start,
    store,
    stores,
    told,
    window,
)

FOREVER = Lsn(2**62)


def filled(count: int = 5, settings: StorageSettings | None = None, payload: bytes = b"payload") -> ShardDriver:
    """A shard with entries e1n1, e1n2, ... all released."""
    driver = ShardDriver(settings)
    driver.turn(*stores([lsn(1, esn) for esn in range(1, count + 1)], payload=payload))
    driver.turn(release(lsn(1, count)))
    driver.sent.clear()
    return driver


@pytest.fixture(params=["from memory", "from disk"])
def recent(request: pytest.FixtureRequest) -> StorageSettings:
    return StorageSettings(recent_entries_bytes_max=1 << 20 if request.param == "from memory" else 0)


class TestDelivery:
    def test_everything_released_is_sent_in_order(self, recent: StorageSettings) -> None:
        driver = filled(3, recent)
        driver.turn(start())
        started = driver.take_one(Started)
        assert (started.status, started.last_released) == (Status.OK, lsn(1, 3))
        assert told(driver) == [lsn(1, 1), lsn(1, 2), lsn(1, 3)]
        assert (driver.reads > 0) == (recent.recent_entries_bytes_max == 0)

    def test_records_speak_for_what_lies_before_them_and_gaps_for_what_lies_behind(
        self, recent: StorageSettings
    ) -> None:
        driver = ShardDriver(recent)
        driver.turn(*stores([lsn(1, 2), lsn(1, 4)]))
        driver.turn(release(lsn(1, 6)), start())
        assert told(driver) == [lsn(1, 2), lsn(1, 4), ("NO_RECORDS", lsn(1, 5), lsn(1, 6))]

    def test_nothing_beyond_the_release_pointer_is_spoken_of(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        driver.turn(*stores([lsn(1, esn) for esn in range(1, 9)]), start())
        assert told(driver) == []
        driver.turn(release(lsn(1, 2)))
        assert told(driver) == [lsn(1, 1), lsn(1, 2)]
        driver.turn(release(lsn(1, 2)), release(lsn(1, 1)))
        assert told(driver) == []
        driver.turn(release(lsn(1, 5)))
        assert told(driver) == [lsn(1, 3), lsn(1, 4), lsn(1, 5)]

    def test_tailing_reads_need_no_disk(self) -> None:
        driver = ShardDriver()
        driver.turn(start())
        for esn in range(1, 20):
            driver.turn(*stores([lsn(1, esn)]))
            driver.turn(release(lsn(1, esn)))
        assert [item for item in told(driver) if isinstance(item, int)] == [lsn(1, esn) for esn in range(1, 20)]
        assert driver.reads == 0

    def test_a_stream_ends_at_until(self, recent: StorageSettings) -> None:
        driver = filled(5, recent)
        driver.turn(start(lsn(1, 2), lsn(1, 3)))
        assert told(driver) == [lsn(1, 2), lsn(1, 3)]
        assert driver.node.metrics.read_streams == 0

    def test_small_entries_are_joined_and_large_ones_travel_alone(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        driver.turn(*stores([lsn(1, 1), lsn(1, 2)]), *stores([lsn(1, 3)], payload=b"x" * 100_000), *stores([lsn(1, 4)]))
        driver.turn(release(lsn(1, 4)), start())
        assert [[at for at, _ in message.entries] for message in driver.take(Records)] == [
            [lsn(1, 1), lsn(1, 2)],
            [lsn(1, 3)],
            [lsn(1, 4)],
        ]

    def test_epochs_follow_each_other(self, recent: StorageSettings) -> None:
        driver = filled(2, recent)
        bridge = EntryFlags.HOLE | EntryFlags.BRIDGE
        driver.turn((SEQUENCER, recovery_store(lsn(1, 3), 1, flags=bridge)), *stores([lsn(2, 1)]))
        driver.turn(clean(1, 1, lng=2, last=3))
        driver.turn(release(lsn(2, 1)), start())
        assert told(driver) == [lsn(1, 1), lsn(1, 2), lsn(1, 3), lsn(2, 1)]

    def test_without_payload_only_headers_are_sent(self, recent: StorageSettings) -> None:
        driver = filled(1, recent)
        driver.turn(start(flags=StartFlags.NO_PAYLOAD))
        header = parse_header(driver.take_one(Records).images)
        assert header.is_amend
        assert header.body_length > 0

    def test_damage_is_told_and_does_not_stop_the_stream(self) -> None:
        driver = filled(3, StorageSettings(recent_entries_bytes_max=0))
        driver.disk.corrupt(SYNC_LOG, lsn(1, 2))
        driver.turn(start())
        story = told(driver)
        assert story[0] == lsn(1, 1)
        assert ("CHECKSUM_FAIL", lsn(1, 2), lsn(1, 2)) in story
        assert story[-1] == lsn(1, 3)

    def test_a_stream_reads_from_disk_what_memory_has_forgotten_and_goes_on_from_memory(self) -> None:
        driver = ShardDriver(StorageSettings(recent_entries_bytes_max=2_000))
        driver.turn(*stores([lsn(1, esn) for esn in range(1, 21)]))
        driver.turn(release(lsn(1, 20)), start())
        assert told(driver) == [lsn(1, esn) for esn in range(1, 21)]
        reads = driver.reads
        assert reads
        driver.turn(*stores([lsn(1, 21)]))
        driver.turn(release(lsn(1, 21)))
        assert told(driver) == [lsn(1, 21)]
        assert driver.reads == reads


class TestFlowControl:
    def test_the_window_holds_the_stream_back(self, recent: StorageSettings) -> None:
        driver = filled(6, recent)
        driver.turn(start(window_high=lsn(1, 2)))
        assert told(driver) == [lsn(1, 1), lsn(1, 2)]
        driver.turn(window(lsn(1, 4)))
        assert told(driver) == [lsn(1, 3), lsn(1, 4)]
        driver.turn(window(lsn(1, 3)))
        assert told(driver) == []

    def test_bytes_are_sent_up_to_the_credit_and_one_entry_over(self, recent: StorageSettings) -> None:
        driver = filled(6, recent)
        size = len(image(lsn(1, 1)))
        driver.turn(start(credit=2 * size + 1))
        assert told(driver) == [lsn(1, 1), lsn(1, 2), lsn(1, 3)]
        driver.turn(window(FOREVER, 4 * size))
        assert told(driver) == [lsn(1, 4)]
        driver.turn(window(FOREVER, 4 * size))
        assert told(driver) == []

    def test_without_credit_nothing_is_sent(self, recent: StorageSettings) -> None:
        driver = filled(1, recent)
        driver.turn(start(credit=0))
        assert told(driver) == []

    def test_a_window_of_another_filter_version_is_ignored(self) -> None:
        driver = filled(3)
        driver.turn(start(window_high=lsn(1, 1), version=2))
        driver.turn(window(FOREVER, version=1))
        assert told(driver) == [lsn(1, 1)]

    def test_a_stalled_stream_holds_up_no_other(self, recent: StorageSettings) -> None:
        driver = filled(4, recent)
        driver.turn(start(stream=1, credit=0), start(stream=2, window_high=Lsn(1)), start(stream=3))
        assert told(driver, stream=3) == [lsn(1, esn) for esn in range(1, 5)]

    def test_streams_take_turns(self) -> None:
        size = len(image(lsn(1, 1)))
        driver = filled(4, StorageSettings(read_bytes_max=2 * size))
        driver.turn(start(stream=1), start(stream=2))
        assert [(m.stream, len(m.entries)) for m in driver.take(Records)] == [(1, 2), (2, 2), (1, 2), (2, 2)]

    def test_a_turn_ends_and_the_line_is_served_on_in_the_next(self) -> None:
        size = len(image(lsn(1, 1)))
        turn = 2 * (size + ENTRY_COST)
        driver = filled(4, StorageSettings(read_bytes_max=size, read_bytes_per_turn_max=turn))
        driver.turn(start())
        assert told(driver) == [lsn(1, 1), lsn(1, 2)]
        driver.advance(0)
        assert told(driver) == [lsn(1, 3), lsn(1, 4)]

    def test_entries_that_others_ship_count_as_well(self) -> None:
        """They are small and many, and each is looked at."""
        size = len(image(lsn(1, 1)))
        turn = 10 * (size + ENTRY_COST)
        driver = filled(30, StorageSettings(read_bytes_max=10 * size, read_bytes_per_turn_max=turn))
        driver.turn(start(single_copy=True, order=[(A, 4), (B, 0), (C, 5)]))
        assert told(driver) == [("NO_RECORDS", Lsn(1), lsn(1, 10))]
        driver.advance(0)
        assert told(driver)[-1][2] == lsn(1, 30)

    def test_reads_are_bounded_and_one_per_stream(self) -> None:
        driver = filled(4, StorageSettings(recent_entries_bytes_max=0, catchup_reads_in_flight_max=2))
        driver.hold = True
        driver.turn(*[start(stream=stream) for stream in range(5)])
        assert len(driver.held) == 2
        driver.turn(*[start(stream=stream) for stream in range(5)])
        assert len(driver.held) == 2
        driver.let_go()
        for stream in range(5):
            assert told(driver, stream=stream) == [lsn(1, esn) for esn in range(1, 5)]

    def test_thousands_of_streams_take_turns_at_a_few_reads(self) -> None:
        size, streams = len(image(lsn(1, 1))), 2_000
        settings = StorageSettings(
            recent_entries_bytes_max=0,
            catchup_reads_in_flight_max=4,
            read_bytes_max=2 * size,
            read_bytes_per_turn_max=8 * size,
        )
        driver = filled(6, settings)
        driver.hold = True
        tracemalloc.start()
        driver.turn(*[start(stream=stream, peer=PeerId(-1 - stream % 100)) for stream in range(streams)])
        driver.sent.clear()
        assert tracemalloc.get_traced_memory()[0] < streams * 4096
        tracemalloc.stop()
        pieces: Counter[int] = Counter()
        while any(pieces[stream] < 3 for stream in range(streams)):
            assert 0 < len(driver.held) <= 4
            driver.complete()
            sent = driver.take(Records)
            assert sum(len(message.images) for message in sent) <= 8 * size
            pieces.update(message.stream for message in sent)
            assert len(pieces) == streams or max(pieces.values(), default=1) == 1, (
                "nobody gets more before all have something"
            )
        assert set(pieces.values()) == {3}

    def test_a_congested_connection_pauses_its_streams_only(self) -> None:
        driver = filled(2)
        other = PeerId(-2)
        driver.node.on_peer_congested(READER, driver.now)
        driver.turn(start(), start(peer=other))
        assert told(driver) == []
        assert told(driver, peer=other) == [lsn(1, 1), lsn(1, 2)]
        driver.node.on_peer_drained(READER, driver.now)
        driver.turn()
        assert told(driver) == [lsn(1, 1), lsn(1, 2)]


class TestLife:
    def test_a_rewind_begins_again_under_its_version(self, recent: StorageSettings) -> None:
        driver = filled(3, recent)
        driver.turn(start())
        told(driver)
        driver.turn(start(lsn(1, 2), version=2))
        assert driver.take(Started)[-1].filter_version == 2
        assert {m.filter_version for m in driver.take(Records)} == {2}

    def test_a_rewind_while_reading_drops_what_was_read(self) -> None:
        driver = filled(3, StorageSettings(recent_entries_bytes_max=0))
        driver.hold = True
        driver.turn(start())
        driver.turn(start(lsn(1, 3), version=2))
        driver.let_go()
        assert told(driver) == [lsn(1, 3)]

    def test_a_rewind_in_line_for_the_disk_to_where_nothing_is_released_is_told_what_is_trimmed(self) -> None:
        driver = filled(4, StorageSettings(recent_entries_bytes_max=0, catchup_reads_in_flight_max=1))
        driver.hold = True
        driver.turn(start(stream=0), start())
        trim = Trim(request_id=1, log=SYNC_LOG, shard=ME, lsn=lsn(1, 8))
        driver.turn(release(lsn(3, 1)))  # held back: the epochs before are not clean here
        driver.turn(start(lsn(1, 6), version=2), (READER, trim))
        driver.let_go()
        assert told(driver) == [("TRIM", lsn(1, 6), lsn(1, 8))]

    def test_an_older_version_is_ignored_and_the_same_is_only_confirmed(self) -> None:
        driver = filled(2)
        driver.turn(start(version=3))
        told(driver)
        driver.take(Started)
        driver.turn(start(version=2))
        assert driver.take(Started) == []
        driver.turn(start(version=3))
        assert driver.take_one(Started).filter_version == 3
        assert told(driver) == []

    def test_stop_and_a_lost_connection_close_streams_also_while_reading(self) -> None:
        driver = filled(2, StorageSettings(recent_entries_bytes_max=0))
        driver.hold = True
        driver.turn(start(stream=1), start(stream=2))
        driver.turn((READER, Stop(log=SYNC_LOG, stream=1, shard=ME)))
        driver.node.on_peer_down(READER, driver.now)
        driver.let_go()
        assert told(driver) == []
        assert driver.node.metrics.read_streams == 0
        assert driver.log().streams is None

    def test_streams_of_a_connection_are_bounded(self) -> None:
        driver = filled(1, StorageSettings(streams_per_peer_max=2))
        driver.turn(*[start(stream=stream) for stream in range(3)])
        assert [m.status for m in driver.take(Started)] == [Status.OK, Status.OK, Status.AGAIN]
        driver.turn(start(stream=1, version=2))
        assert driver.take_one(Started).status is Status.OK

    def test_another_generation_is_rebuilding(self) -> None:
        driver = ShardDriver(generation=3)
        driver.turn(start(generation=2))
        assert driver.take_one(Started).status is Status.REBUILDING
        assert driver.node.metrics.read_streams == 0

    @pytest.mark.parametrize("log", [LogId(5000), metadata_log_of(SYNC_LOG)])
    def test_logs_without_readers_are_not_found_and_leave_no_trace(self, log: LogId) -> None:
        driver = ShardDriver()
        driver.turn(start(log=log))
        assert driver.take_one(Started).status is Status.NOTFOUND
        assert driver.machines.shard.logs == {}

    def test_a_failed_disk_ends_all_streams(self) -> None:
        driver = filled(2, StorageSettings(recent_entries_bytes_max=0))
        driver.turn(start(credit=0))
        driver.take(Started)
        driver.disk.fail_write = True
        driver.turn(*stores([lsn(1, 3)]))
        assert driver.take_one(Started).status is Status.FAILED
        driver.turn(start())
        assert driver.take_one(Started).status is Status.FAILED


class TestTrim:
    def test_a_reader_below_the_trim_point_is_told_so(self, recent: StorageSettings) -> None:
        driver = filled(5, recent)
        driver.turn((READER, Trim(request_id=1, log=SYNC_LOG, shard=ME, lsn=lsn(1, 3))))
        driver.turn(start())
        assert told(driver) == [("TRIM", 1, lsn(1, 3)), lsn(1, 4), lsn(1, 5)]

    def test_a_trim_while_reading_overtakes_the_entries(self) -> None:
        driver = filled(5, StorageSettings(recent_entries_bytes_max=0))
        driver.hold = True
        driver.turn(start())
        driver.turn((READER, Trim(request_id=1, log=SYNC_LOG, shard=ME, lsn=lsn(1, 3))))
        driver.let_go()
        assert told(driver) == [("TRIM", 1, lsn(1, 3)), lsn(1, 4), lsn(1, 5)]


A, B, C, D, E = SHARDS


class TestSingleCopyDelivery:
    @pytest.mark.parametrize(
        ("copyset", "shard", "down", "ships_it"),
        [
            ((A, B, C), A, (), True),
            ((A, B, C), B, (), False),
            ((A, B, C), B, (A,), True),
            ((A, B, C), C, (A,), False),
            ((A, B, C), A, (A,), True),  # it is back, and notices only by shipping
            ((A, B, C), B, (B,), False),
            ((A, B, C, D), D, (), True),  # larger than the replication: its end ships too
            ((A, B, C, D), C, (), False),
            ((A, B, C, D), C, (D,), True),
            ((A, B, C, D), D, (D,), True),
            ((A, B, C), E, (A, B, C), False),
        ],
    )
    def test_who_ships(
        self, copyset: tuple[ShardId, ...], shard: ShardId, down: tuple[ShardId, ...], ships_it: bool
    ) -> None:
        assert ships(copyset, shard, frozenset(down), 3) is ships_it

    @pytest.mark.parametrize(
        ("copyset", "shard", "down", "order", "ships_it"),
        [
            ((A, B, C), B, (), {A: 1, B: 0, C: 1}, True),
            ((A, B, C), A, (), {A: 1, B: 0, C: 1}, False),
            ((A, B, C), A, (), {A: 0, B: 0, C: 0}, True),  # of one tier: by the places in the header
            ((C, B, A), A, (), {A: 0, B: 1, C: 0}, False),
            ((C, B, A), A, (C,), {A: 0, B: 1, C: 0}, True),  # then those that are down are left out
            ((C, B, A), B, (C, A), {A: 0, B: 1, C: 0}, True),
            ((C, B, A), C, (C,), {A: 0, B: 1, C: 0}, True),  # it is back, and notices only by shipping
            ((A, B, C), A, (), {B: 200, C: 200}, False),  # shards that are not named come last
            ((A, B, C), A, (), {E: 0}, True),
            (
                (A, B, C, D),
                A,
                (),
                {A: 1, B: 0, C: 0, D: 0},
                True,
            ),  # larger than the replication: the last one ships too
            ((A, B, C, D), D, (), {A: 1, B: 0, C: 0, D: 0}, False),
        ],
    )
    def test_who_ships_to_a_reader_that_says_whom_it_wants_to(
        self,
        copyset: tuple[ShardId, ...],
        shard: ShardId,
        down: tuple[ShardId, ...],
        order: dict[ShardId, int],
        ships_it: bool,
    ) -> None:
        wants = single_copy(shard, pack_shards(down), 3, pack_order(tuple(order.items())))
        stored = image(lsn(1, 1), copyset=copyset)
        assert wants(stored) is ships_it
        assert wants(stored) is ships_it  # what is remembered is the same

    def test_one_shard_ships_whatever_the_order_and_all_say_the_same(self) -> None:
        rng = random.Random(1)
        for _ in range(300):
            copyset = tuple(rng.sample(SHARDS, 3))
            down = pack_shards([shard for shard in SHARDS if rng.random() < 0.3 and shard not in copyset[:1]])
            order = pack_order(tuple((shard, rng.randrange(3)) for shard in SHARDS if rng.random() < 0.8))
            stored = image(lsn(1, 1), copyset=copyset)
            ships_it = [shard for shard in copyset if single_copy(shard, down, 3, order)(stored)]
            assert len([shard for shard in ships_it if shard not in unpack_shards(down)]) == 1, (copyset, ships_it)

    def test_with_extra_copies_one_ships_as_well_also_where_some_are_missing(self) -> None:
        rng = random.Random(2)
        for _ in range(300):
            copyset = tuple(rng.sample(SHARDS, rng.randrange(2, 5)))
            down = frozenset(shard for shard in SHARDS if rng.random() < 0.3 and shard not in copyset[:1])
            ships_it = [shard for shard in copyset if ships(copyset, shard, down, 4) and shard not in down]
            assert len(ships_it) == 1, (copyset, down)

    def test_an_order_is_obeyed_and_confirmed(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        for esn, copyset in enumerate([(A, B, C), (B, A, C)], 1):
            driver.turn((SEQUENCER, store(lsn(1, esn), copyset=copyset)))
        driver.turn(release(lsn(1, 2)), start(lsn(1, 1), single_copy=True, order=[(A, 4), (B, 0), (C, 5)]))
        assert driver.take_one(Started).ordered
        assert told(driver) == [("NO_RECORDS", lsn(1, 1), lsn(1, 2))]
        driver.turn(start(lsn(1, 1), single_copy=True, order=[(A, 0), (B, 4), (C, 5)], version=2))
        assert told(driver) == [lsn(1, 1), lsn(1, 2)]
        driver.sent.clear()
        driver.turn(start(lsn(1, 1), single_copy=True, version=3))
        assert not driver.take_one(Started).ordered
        assert told(driver) == [lsn(1, 1), ("NO_RECORDS", lsn(1, 2), lsn(1, 2))]

    def test_what_others_ship_is_passed_over_with_a_gap(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        mine, other = (A, B, C), (B, A, C)
        for esn, copyset in enumerate([mine, other, mine, other, other], 1):
            driver.turn((SEQUENCER, store(lsn(1, esn), copyset=copyset)))
        driver.turn(release(lsn(1, 5)), start(lsn(1, 1), single_copy=True))
        assert told(driver) == [lsn(1, 1), lsn(1, 3), ("NO_RECORDS", lsn(1, 4), lsn(1, 5))]
        driver.turn(start(lsn(1, 1), single_copy=True, known_down=[B], version=2))
        assert told(driver) == [lsn(1, esn) for esn in range(1, 6)]

    def test_every_holder_of_a_hole_ships_it(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        driver.turn((SEQUENCER, recovery_store(lsn(1, 1), 1, flags=EntryFlags.HOLE, copyset=(B, A, C))))
        driver.turn(release(lsn(1, 1)), start(lsn(1, 1), single_copy=True))
        assert told(driver) == [lsn(1, 1)]
