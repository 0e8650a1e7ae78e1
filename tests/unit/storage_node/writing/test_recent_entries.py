"""Recent entries agree with the disk, whatever was stored, amended, forgotten, trimmed or purged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logdevice_py.core.entry import EntryFlags
from logdevice_py.core.lsn import Lsn
from logdevice_py.protocol.messages import Digested, Trim
from storage_node.log_store.interface import ReadShard
from storage_node.metrics import StorageMetrics
from storage_node.settings import StorageSettings
from storage_node.writing.recent_entries import ENTRY_OVERHEAD, RecentEntries, RecentLogEntries, merge_copies
from tests.unit.storage_node.fakes import (
    ME,
    PLENTY,
    READER,
    SEQUENCER,
    SYNC_LOG,
    ShardDriver,
    digest,
    image,
    lsn,
    recovery_store,
    release,
    store,
    stores,
)


class TestLimit:
    def test_the_entry_that_came_first_goes_first_and_takes_lower_ones_along(self) -> None:
        recent = RecentEntries(3 * (len(image(lsn(1, 1))) + ENTRY_OVERHEAD), StorageMetrics())
        log = RecentLogEntries(Lsn(1))
        for esn in (3, 1, 4, 5):
            recent.add(log, lsn(1, esn), image(lsn(1, esn)))
        assert log.complete_from == lsn(1, 4)
        assert [at for at, _ in log.between(lsn(1, 4), lsn(1, 9))] == [lsn(1, 4), lsn(1, 5)]

    def test_what_is_below_the_complete_part_is_not_taken_in(self) -> None:
        recent = RecentEntries(1 << 20, StorageMetrics())
        log = RecentLogEntries(lsn(1, 5))
        recent.add(log, lsn(1, 4), image(lsn(1, 4)))
        assert recent.size == 0

    def test_an_amend_without_its_body_ends_the_complete_part(self) -> None:
        recent = RecentEntries(1 << 20, StorageMetrics())
        log = RecentLogEntries(Lsn(1))
        recent.add(log, lsn(1, 1), image(lsn(1, 1)))
        recent.add(log, lsn(1, 2), image(lsn(1, 2), flags=EntryFlags.AMEND))
        assert log.complete_from == lsn(1, 3)
        assert recent.size == 0

    def test_a_long_tail_costs_no_more_memory_than_its_limit(self) -> None:
        metrics = StorageMetrics()
        recent = RecentEntries(100 * (len(image(lsn(1, 1))) + ENTRY_OVERHEAD), metrics)
        log = RecentLogEntries(Lsn(1))
        for esn in range(1, 2_000):
            recent.add(log, lsn(1, esn), image(lsn(1, esn)))
        assert len(log.images) == 100
        assert len(log.lsns) < 300
        assert recent.size == metrics.recent_entries_bytes == 100 * (len(image(lsn(1, 1))) + ENTRY_OVERHEAD)

    def test_last_of_a_range(self) -> None:
        log = RecentLogEntries(Lsn(1))
        for esn in (1, 3):
            log.insert(lsn(1, esn), image(lsn(1, esn)))
        assert log.last_in(lsn(1, 1), lsn(1, 2)) == image(lsn(1, 1))
        assert log.last_in(lsn(1, 2), lsn(1, 2)) is None
        assert log.last_in(lsn(1, 2), lsn(1, 9)) == image(lsn(1, 3))


class TestPrecedence:
    def test_a_lower_rank_changes_nothing(self) -> None:
        held = image(lsn(1, 1), wave=2)
        assert merge_copies(held, image(lsn(1, 1), wave=1)) is held
        by_recovery = image(lsn(1, 1), wave=1, flags=EntryFlags.WRITTEN_BY_RECOVERY)
        assert merge_copies(by_recovery, image(lsn(1, 1), wave=9)) is by_recovery

    def test_recovery_beats_any_wave(self) -> None:
        hole = image(lsn(1, 1), wave=1, flags=EntryFlags.WRITTEN_BY_RECOVERY | EntryFlags.HOLE)
        assert merge_copies(image(lsn(1, 1), wave=9), hole) is hole


_ESNS = st.integers(1, 12)
_ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("store"), _ESNS, st.integers(1, 3)),
        st.tuples(st.just("recover"), _ESNS, st.integers(1, 2)),
        st.tuples(st.just("amend"), _ESNS, st.integers(1, 2)),
        st.tuples(st.just("release"), _ESNS, st.just(0)),
        st.tuples(st.just("trim"), _ESNS, st.just(0)),
        st.tuples(st.just("overload"), _ESNS, st.just(0)),
        st.tuples(st.just("restart"), _ESNS, st.just(0)),
    ),
    max_size=30,
)


@given(_ACTIONS, st.sampled_from([0, 700, 1500, 1 << 20]))
def test_a_digest_shows_what_the_disk_holds(actions: list[tuple[str, int, int]], bytes_max: int) -> None:
    driver = ShardDriver(StorageSettings(recent_entries_bytes_max=bytes_max))
    stored: set[int] = set()
    for action, esn, rank in actions:
        position = lsn(1, esn)
        if action == "store":
            driver.turn((SEQUENCER, store(position, wave=rank)))
            stored.add(esn)
        elif action == "recover":
            driver.turn((SEQUENCER, recovery_store(position, rank)))
            stored.add(esn)
        elif action == "amend":
            # Recovery amends only what a shard has shown it.
            if position in driver.stored():
                driver.turn((SEQUENCER, recovery_store(position, rank, flags=EntryFlags.AMEND)))
        elif action == "release":
            driver.turn(release(position))
        elif action == "trim":
            driver.turn((READER, Trim(request_id=1, log=SYNC_LOG, shard=ME, lsn=position)))
        elif action == "overload":
            driver.disk.overloaded = True
            driver.turn(*stores([position], wave=4))
            driver.disk.overloaded = False
        else:
            driver.restart()
        driver.sent.clear()
        driver.turn(digest(lsn(1, 1), lsn(1, 99)))
        answer = driver.take_one(Digested)
        on_disk = driver.store.read(ReadShard(0, ME, SYNC_LOG, lsn(1, 1), lsn(1, 99), PLENTY))
        assert answer.images == b"".join(held for _, held in on_disk.entries), (action, esn)
