"""The ends of epochs that a shard knows without having the bridge."""

from __future__ import annotations

import pytest

from logdevice_py.core.entry import EntryFlags, parse_header
from logdevice_py.core.lsn import ESN_MAX, Epoch, Esn, Lsn
from logdevice_py.core.units import Timestamp
from logdevice_py.protocol.messages import Digested, Records
from storage_node.epochs.epoch_ends import END_COST, ENDS_MAX, known_ends, with_ends
from storage_node.log_state import LogState
from storage_node.reading.read_stream import ENTRY_COST
from storage_node.settings import StorageSettings
from storage_node.stored_metadata import RecoveredEpoch
from tests.unit.storage_node.fakes import (
    ME,
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
    start,
    stores,
    told,
)


@pytest.fixture(params=["from memory", "from disk"])
def recent(request: pytest.FixtureRequest) -> StorageSettings:
    return StorageSettings(recent_entries_bytes_max=1 << 20 if request.param == "from memory" else 0)


def ended(driver: ShardDriver, *, last: int = 3, authoritative: bool = True) -> None:
    """Epoch 1 holds e1n1 and e1n2, and epoch 2 is released."""
    driver.turn(*stores([lsn(1, 1), lsn(1, 2)]))
    driver.turn(clean(1, 1, lng=2, last=last, authoritative=authoritative))
    driver.turn(*stores([lsn(2, 1)]))
    driver.turn(release(lsn(2, 1)))
    driver.sent.clear()


def state_of(**rows: RecoveredEpoch) -> LogState:
    state = LogState(SYNC_LOG)
    for name, row in rows.items():
        state.note_recovered(Epoch(int(name[1:])), row.encode())
    return state


def row(epoch: int, tail: int, last: int, *, authoritative: bool = True) -> RecoveredEpoch:
    return RecoveredEpoch(Epoch(epoch), Esn(tail), Esn(last), lsn(epoch, tail), Timestamp(9), authoritative)


class TestReaders:
    def test_who_asks_for_everything_gets_a_bridge_that_is_not_stored(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        ended(driver)
        assert lsn(1, 3) not in driver.stored()
        driver.turn(start())
        [message] = [each for _, each in driver.sent if isinstance(each, Records)]
        at = sum(length for _, length in message.entries[:2])
        bridge = parse_header(message.images[at : at + message.entries[2][1]])
        assert (bridge.lsn, bridge.is_bridge, bridge.rank, bridge.timestamp) == (lsn(1, 3), True, (1, 1), 77)
        assert told(driver) == [lsn(1, 1), lsn(1, 2), lsn(1, 3), lsn(2, 1)]

    def test_it_is_known_after_a_restart(self) -> None:
        driver = ShardDriver()
        ended(driver)
        driver.power_cut()
        driver.turn(release(lsn(2, 1)))
        driver.turn(start())
        assert told(driver) == [lsn(1, 1), lsn(1, 2), lsn(1, 3), lsn(2, 1)]

    def test_single_copy_delivery_does_without(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        ended(driver)
        driver.turn(start(single_copy=True))
        assert lsn(1, 3) not in told(driver)

    def test_nothing_is_said_of_an_epoch_that_may_have_lost_records(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        ended(driver, authoritative=False)
        driver.turn(start())
        assert told(driver) == [lsn(1, 1), lsn(1, 2), lsn(2, 1)]

    def test_nothing_is_said_before_it_is_released(self) -> None:
        driver = ShardDriver()
        driver.turn(*stores([lsn(1, 1)]), release(lsn(1, 1)))
        driver.turn(clean(1, 1, lng=1, last=2))
        driver.sent.clear()
        driver.turn(start())
        assert told(driver) == [lsn(1, 1)]

    def test_what_is_stored_there_counts(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        driver.turn((SEQUENCER, recovery_store(lsn(1, 3), 1, flags=EntryFlags.HOLE)))
        ended(driver)
        driver.turn(start())
        [message] = [each for _, each in driver.sent if isinstance(each, Records)]
        at = sum(length for _, length in message.entries[:2])
        assert not parse_header(message.images[at : at + message.entries[2][1]]).is_bridge
        assert told(driver) == [lsn(1, 1), lsn(1, 2), lsn(1, 3), lsn(2, 1)]

    def test_very_many_are_told_bit_by_bit(self) -> None:
        driver = ShardDriver()
        count = 2 * ENDS_MAX + 1
        for epoch in range(1, count + 1):
            driver.turn(clean(epoch, epoch, last=1))
        driver.turn(release(lsn(count + 1, 0)))
        driver.sent.clear()
        driver.turn(start())
        in_a_turn = (4 << 20) // (ENTRY_COST + END_COST)
        ends = [each for each in told(driver) if not isinstance(each, tuple)]
        assert len(ends) < in_a_turn + ENDS_MAX
        driver.advance(0)
        ends += [each for each in told(driver) if not isinstance(each, tuple)]
        assert ends == [lsn(epoch, 1) for epoch in range(1, count + 1)]


class TestRecoveries:
    def test_a_digest_shows_it(self, recent: StorageSettings) -> None:
        driver = ShardDriver(recent)
        ended(driver)
        driver.turn(digest(lsn(1, 1), lsn(1, ESN_MAX)))
        shown = headers(driver.take_one(Digested))
        assert [(each.lsn, each.is_bridge) for each in shown] == [
            (lsn(1, 1), False),
            (lsn(1, 2), False),
            (lsn(1, 3), True),
        ]
        assert shown[-1].rank == (1, 1)

    def test_of_one_epoch_only(self) -> None:
        driver = ShardDriver()
        for epoch in range(1, 4):
            driver.turn(clean(epoch, epoch, last=1))
        driver.sent.clear()
        driver.turn(digest(lsn(2, 1), lsn(9, 1)))
        assert [each.lsn for each in headers(driver.take_one(Digested))] == [lsn(2, 1)]


class TestKnownEnds:
    def test_they_lie_in_the_range(self) -> None:
        state = state_of(e1=row(1, 4, 5), e2=row(2, 0, 1), e3=row(3, 1, 7))
        ends, until = known_ends(state, ME, lsn(1, 5), lsn(3, 6))
        assert ([position for position, _ in ends], until) == ([lsn(1, 5), lsn(2, 1)], lsn(3, 6))
        assert known_ends(state, ME, lsn(1, 6), lsn(2, 0)) == ([], lsn(2, 0))

    @pytest.mark.parametrize(("tail", "last"), [(ESN_MAX, ESN_MAX), (5, ESN_MAX), (5, 5)])
    def test_no_bridge_is_made_up_where_recovery_left_none(self, tail: int, last: int) -> None:
        assert known_ends(state_of(e1=row(1, tail, last)), ME, lsn(1, 1), lsn(2, 0)) == ([], lsn(2, 0))

    def test_what_cannot_be_read_may_be_something_else(self) -> None:
        ends, _ = known_ends(state_of(e1=row(1, 2, 3), e2=row(2, 0, 1)), ME, lsn(1, 1), lsn(2, 9))
        entry = (lsn(1, 1), image(lsn(1, 1)))
        shown = with_ends([entry], ends, [(lsn(1, 2), lsn(1, 4))])
        assert [position for position, _ in shown] == [lsn(1, 1), lsn(2, 1)]

    def test_without_any_there_are_the_entries_alone(self) -> None:
        entries: list[tuple[Lsn, bytes]] = [(lsn(1, 1), b"")]
        assert with_ends(entries, []) is entries
