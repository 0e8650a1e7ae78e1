"""What a drained shard takes, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from logdevice_py.config.cluster import ClusterConfig, NodeConfig
from logdevice_py.config.location import Location
from logdevice_py.core.entry import EntryFlags
from logdevice_py.core.ids import EVENT_LOG_DELTAS, EVENT_LOG_SNAPSHOTS, LogId, NodeId, PeerId, metadata_log_of, node_of
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND
from logdevice_py.event_log.events import (
    DonorFlags,
    RebuildMode,
    ShardAbortRebuild,
    ShardIsRebuilt,
    ShardNeedsRebuild,
    ShardTookRecords,
)
from logdevice_py.event_log.rebuilding_set import RebuildingSet
from logdevice_py.protocol.messages import Mutated, RebuildStored, Stored, StoreFlags
from tests.unit.storage_node.fakes import ME, SHARDS, clean, image, lsn, store
from tests.unit.storage_node.rebuilding.test_rebuilding import FIRST, RebuildingDriver, history, rebuild_store

SEQUENCER = PeerId(1)
EVERYBODY = tuple((each, FIRST) for each in SHARDS)
WITHOUT_ME = history((1, SHARDS), (2, SHARDS[1:]))


class DrainDriver(RebuildingDriver):
    """A shard that is to be emptied. `exclude` does what the node does that hears of it."""

    def begin(self) -> None:
        self.exclude()
        self.apply(ShardNeedsRebuild(ME, FIRST, RebuildMode.RELOCATE, EVERYBODY))

    def exclude(self, *, excluded: bool = True, known: bool = True) -> None:
        self.config = replace(self.config, excluded=frozenset({ME} if excluded else ()), excluded_known=known)
        self.node.on_config(self.config, self.now)
        self.turn()

    def end(self) -> None:
        """Everybody is done."""
        assert self.donor.outcome(self.now) is DonorFlags.NONE
        self.apply(*(ShardIsRebuilt(shard, FIRST, self.set.round) for shard in SHARDS))
        assert self.set.shards[ME].restored == FIRST

    def forget_event_log(self) -> None:
        """Begin as a node that has not read it."""
        self.config = replace(self.config, excluded=frozenset())
        self.power_cut()

    def says(self, position: Lsn, **fields: Any) -> Status:
        """The answer to a STORE of a sequencer."""
        self.turn((SEQUENCER, store(position, **fields)))
        return self.take(Stored)[-1].status

    @property
    def mark(self) -> Lsn:
        return Lsn(self.machines.shard.drain_mark.durable)


def drained() -> DrainDriver:
    driver = DrainDriver()
    driver.begin()
    driver.end()
    return driver


def test_a_drained_shard_takes_nothing_after_a_restart_before_it_has_read_the_event_log() -> None:
    driver = drained()
    driver.forget_event_log()
    assert driver.says(lsn(1, 1)) is Status.DISABLED
    assert driver.stored() == []
    # what it reads first is older than its drain
    driver.set.apply(ShardNeedsRebuild(SHARDS[3], FIRST, RebuildMode.RESTORE, EVERYBODY), Lsn(1))
    older = RebuildingSet()
    older.version = Lsn(driver.mark - 1)
    driver.node.on_rebuilding_set(older, driver.now)
    assert driver.says(lsn(1, 2)) is Status.DISABLED


def test_the_shard_is_not_done_before_it_refuses_durably() -> None:
    driver = DrainDriver()
    driver.hold = True
    driver.begin()
    assert driver.donor.result is None
    driver.let_go()
    assert driver.mark == driver.set.shards[ME].since
    assert driver.donor.result is DonorFlags.NONE


def test_what_it_got_before_it_refused_is_looked_at_before_it_is_done() -> None:
    driver = DrainDriver()
    driver.hold = True
    driver.apply(ShardNeedsRebuild(ME, FIRST, RebuildMode.RELOCATE, EVERYBODY))  # it does not refuse as yet
    driver.turn((SEQUENCER, store(lsn(1, 1), copyset=(ME, SHARDS[1], SHARDS[2]))))
    driver.exclude()
    driver.let_go()
    driver.advance(10 * SECOND)
    assert driver.donor.result is None
    assert driver.donor.logs_left == 1
    driver.turn(clean(1, 5, lng=1))
    driver.tell_history(WITHOUT_ME)
    driver.advance(SECOND)
    assert driver.donor.result is DonorFlags.NONE


def test_so_is_a_later_epoch_of_a_log_that_it_has_looked_through() -> None:
    driver = DrainDriver()
    driver.turn((SEQUENCER, store(lsn(1, 1), copyset=(ME, SHARDS[1], SHARDS[2]))), clean(1, 5, lng=1))
    driver.begin()
    driver.advance(SECOND)
    # a sequencer that has not heard of the drain took the log over; recovery stored what it had begun here
    late = store(lsn(3, 1), copyset=(ME, SHARDS[1], SHARDS[2]), flags=int(StoreFlags.RECOVERY))
    driver.turn((SEQUENCER, replace(late, seal_epoch=Epoch(5))))
    assert driver.take(Mutated)[-1].status is Status.OK
    driver.tell_history(WITHOUT_ME)
    driver.advance(SECOND)
    assert driver.donor.result is None
    driver.turn(clean(3, 5, lng=1))
    driver.tell_history(history((1, SHARDS), (2, SHARDS[1:]), (3, SHARDS), (4, SHARDS[1:])))
    driver.advance(SECOND)
    assert driver.donor.result is DonorFlags.NONE


def test_it_takes_records_when_it_is_used_again() -> None:
    driver = drained()
    driver.exclude(excluded=False)
    driver.apply(ShardAbortRebuild(ME, FIRST, RebuildMode.RELOCATE))
    assert driver.says(lsn(1, 1)) is Status.OK
    driver.forget_event_log()
    assert driver.says(lsn(1, 2)) is Status.OK


@pytest.mark.parametrize("log", [EVENT_LOG_DELTAS, metadata_log_of(EVENT_LOG_SNAPSHOTS)])
def test_it_takes_what_the_event_log_needs_until_it_has_read_that(log: LogId) -> None:
    """That it is used again may stand there."""
    driver = drained()
    driver.forget_event_log()
    driver.exclude(known=False)
    assert driver.says(lsn(1, 1)) is Status.DISABLED
    assert driver.mark
    assert driver.says(lsn(1, 1), log=log) is Status.OK
    assert not driver.mark, "if it is not used again, it is drained once more"
    driver.exclude()
    assert driver.says(lsn(1, 2), log=log) is Status.DISABLED


def test_unless_the_cluster_file_does_not_have_it() -> None:
    driver = drained()
    driver.config = replace(driver.config, nodes=without_me(driver.config))
    driver.exclude(known=False)
    assert driver.says(lsn(1, 1), log=EVENT_LOG_DELTAS) is Status.DISABLED


def test_nor_when_its_region_is_disabled() -> None:
    driver = drained()
    nodes = {node: replace(each, location=Location.parse("eu....r")) for node, each in driver.config.nodes.items()}
    settings = {**driver.config.settings, "placement": {"disabled_regions": "eu"}}
    driver.config = replace(driver.config, nodes=nodes, settings=settings)
    driver.exclude(known=False)
    assert driver.says(lsn(1, 1), log=EVENT_LOG_DELTAS) is Status.DISABLED


def without_me(config: ClusterConfig) -> dict[NodeId, NodeConfig]:
    return {node: each for node, each in config.nodes.items() if node != node_of(ME)}


def test_so_it_does_when_its_drain_left_records_without_a_place() -> None:
    driver = DrainDriver()
    driver.begin()
    assert driver.donor.outcome(driver.now) is DonorFlags.NONE
    flags = dict.fromkeys(SHARDS, DonorFlags.NONE) | {SHARDS[3]: DonorFlags.UNPLACED}
    driver.apply(*(ShardIsRebuilt(shard, FIRST, driver.set.round, flags[shard]) for shard in SHARDS))
    assert not driver.mark
    driver.forget_event_log()
    assert driver.says(lsn(1, 1)) is Status.OK


def test_without_an_event_log_nobody_could_lift_it() -> None:
    driver = drained()
    driver.machines.shard.drain_mark.is_obeyed = False
    driver.exclude(excluded=False)
    assert driver.says(lsn(1, 1)) is Status.OK
    assert not driver.mark, "who keeps an event log later hears of it"


def test_where_too_few_others_live_it_takes_records_and_counts_as_drained_no_more() -> None:
    driver = drained()
    driver.exclude(excluded=False)
    assert driver.says(lsn(1, 1)) is Status.OK
    assert not driver.mark
    driver.power_cut()
    assert driver.stored() == [lsn(1, 1)]
    assert not driver.mark, "the mark went before the record came"


def test_it_is_not_done_again_as_long_as_too_few_live_and_then_looks_through_what_it_got() -> None:
    driver = drained()
    driver.exclude(excluded=False)
    driver.turn((SEQUENCER, store(lsn(1, 1), copyset=(ME, SHARDS[1], SHARDS[2]))), clean(1, 5, lng=1))
    driver.apply(ShardTookRecords(ME, FIRST, driver.set.shards[ME].since))
    driver.advance(SECOND)
    driver.tell_history(WITHOUT_ME)
    driver.advance(SECOND)
    assert driver.donor.result is None
    driver.exclude()
    driver.advance(10 * SECOND)
    assert driver.donor.result is DonorFlags.NONE
    assert driver.mark == driver.set.shards[ME].since


def test_one_that_stays_needed_cannot_be_emptied() -> None:
    driver = DrainDriver()
    driver.apply(ShardNeedsRebuild(ME, FIRST, RebuildMode.RELOCATE, EVERYBODY))
    driver.advance(SECOND)
    assert driver.donor.result is None
    driver.advance(60 * SECOND)
    assert driver.donor.result is DonorFlags.UNPLACED
    assert driver.says(lsn(1, 1)) is Status.OK


def test_a_record_that_comes_between_its_part_and_the_end_of_the_drain_is_looked_at() -> None:
    driver = DrainDriver()
    driver.begin()
    assert driver.donor.outcome(driver.now) is DonorFlags.NONE
    driver.exclude(excluded=False)
    driver.turn((SEQUENCER, store(lsn(1, 1), copyset=(ME, SHARDS[1], SHARDS[2]))), clean(1, 5, lng=1))
    driver.exclude()
    assert driver.donor.outcome(driver.now) is None
    driver.advance(SECOND)
    driver.tell_history(WITHOUT_ME)
    driver.advance(SECOND)
    assert driver.donor.outcome(driver.now) is DonorFlags.NONE


@pytest.mark.parametrize("is_plug", [False, True])
def test_what_recovery_stores_here_is_taken_and_only_a_record_ends_the_drain(is_plug: bool) -> None:
    driver = drained()
    flags = int(EntryFlags.WRITTEN_BY_RECOVERY | (EntryFlags.HOLE if is_plug else 0))
    message = replace(
        store(lsn(1, 1), flags=int(StoreFlags.RECOVERY)), seal_epoch=Epoch(5), image=image(lsn(1, 1), flags=flags)
    )
    driver.turn((SEQUENCER, message))
    assert driver.take_one(Mutated).status is Status.OK
    assert bool(driver.mark) is is_plug


def test_a_donor_that_has_not_heard_of_the_drain_stores_nothing_here() -> None:
    driver = drained()
    driver.turn(clean(1, 5), rebuild_store([image(lsn(1, 3))]))
    assert driver.take_one(RebuildStored).status is Status.DISABLED
    assert driver.stored() == []


def test_a_mark_that_was_taken_back_while_it_was_written_does_not_count() -> None:
    driver = DrainDriver()
    driver.hold = True
    driver.begin()
    mark = driver.machines.shard.drain_mark
    mark.clear()
    mark.note(Lsn(1), lambda now: None)
    for _ in range(2):
        driver.complete()
    assert not mark.durable
    driver.let_go()
    assert mark.durable == 1
