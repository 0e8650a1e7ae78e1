"""A record that recovery decided against is on a shard that missed the recovery, and all who knew how the epoch ended lose their disks."""

from __future__ import annotations

from functools import partial

import pytest

from client.read.batch import RecordBatch
from client.read.items import Gap, GapKind, RecordRun
from logdevice_py.core.ids import NodeId, ShardId, node_of, shard_id
from logdevice_py.core.lsn import LSN, Epoch, Esn, compose_lsn
from logdevice_py.core.units import MILLISECOND, SECOND, Timestamp
from server.simulation.machines import SimNode
from storage_node.log_store import keys
from storage_node.log_store.interface import EpochMetadataKind
from tests.history.stage import LOG, Stage
from tests.simulation.history import AttemptFate, LogHistory, Observation, Violation
from tests.simulation.invariants import Invariants


def watched_stage(*, loses: bool) -> tuple[Stage, Invariants]:
    """Three nodes, two copies. `loses`: more may be destroyed than that tolerates."""
    stage = Stage(nodes=3, replicate="node:2")
    invariants = Invariants(stage.cluster, [LOG], loses=loses)
    if loses:
        stage.history.loses = True
        stage.history.forgotten = partial(invariants.is_forgotten, LOG)
    return stage, invariants


def replace_disks(node: SimNode) -> None:
    node.crash(machine=True)
    node.wipe()
    node.start()


def play(*, replaced: int, loses: bool = True) -> Stage:
    """Of the two shards that recover the epoch of a sequencer which is cut off with records of its own, so many get new disks before it is back."""
    stage, _ = watched_stage(loses=loses)
    client = stage.client()
    stage.acknowledged(client)
    sequencer = stage.sequencer
    others = stage.others(sequencer)
    for node in others:
        stage.block(sequencer, node)
        stage.block(node, sequencer)
    alone = []
    for _ in range(12):
        # each becomes an entry of its own, with a copyset of its own
        alone.append(stage.append(client))
        stage.run(MILLISECOND)
    stage.run(SECOND // 2)
    sequencer.crash(machine=False)
    for node in others:
        stage.unblock(sequencer, node)
        stage.unblock(node, sequencer)
    last = stage.acknowledged(stage.client())
    assert last.position is not None
    stage.read(last.position[0])
    assert {attempt.fate for attempt in alone} == {AttemptFate.DOUBTFUL}
    for node in others[:replaced]:
        replace_disks(node)
    stage.run(SECOND)
    stage.finish()
    return stage


def test_what_nobody_knows_of_may_come_back() -> None:
    """The shard cannot tell it from what was acknowledged and is nowhere else any more."""
    assert play(replaced=2).history.came_back


def test_one_who_knows_is_enough() -> None:
    assert not play(replaced=1).history.came_back


def test_where_nothing_may_be_lost_it_is_noticed() -> None:
    with pytest.raises(Violation, match=r"got a record at .*; a reader was told"):
        play(replaced=2, loses=False)


class TestRecordsThatAreBack:
    """A reader gets one that its writer appended again, as it had been told that it is not in the log."""

    OLD, NEW = compose_lsn(Epoch(1), Esn(1)), compose_lsn(Epoch(2), Esn(1))

    def read(self, *, forgotten: bool) -> LogHistory:
        history = LogHistory(LOG, loses=True)
        history.forgotten = lambda lsn: forgotten and lsn == self.OLD
        history.acknowledge(history.attempt(b"record", (0, 0)), self.NEW, 0)
        for first in (self.NEW, self.OLD):
            seen = Observation(f"from {first}", first)
            history.observations.append(seen)
            history.observe(seen, self.batch(first))
        whole = history.observations[-1]
        assert whole.last == self.NEW
        history.check_end(whole)
        return history

    def batch(self, first: int) -> RecordBatch:
        made = RecordBatch(LOG)
        if first == self.OLD:
            made.add_records([b"record"], RecordRun(self.OLD, Timestamp(1), 0, 1))
            made.add_gap(Gap(GapKind.DATALOSS, LSN(self.OLD + 1), LSN(self.NEW - 1)))
        made.add_records([b"record"], RecordRun(self.NEW, Timestamp(2), 0, 1))
        return made

    def test_they_may_be_elsewhere_too(self) -> None:
        assert self.read(forgotten=True).came_back == {self.OLD}

    def test_not_where_somebody_knows(self) -> None:
        with pytest.raises(Violation, match="b'record' is at e2n1"):
            self.read(forgotten=False)


class TestWhoKnows:
    """FIRST and SECOND have CLEAN of an epoch, whose recovery began at an LNG of 57."""

    FIRST, SECOND = (shard_id(NodeId(node)) for node in (1, 2))
    DECIDED = compose_lsn(Epoch(3), Esn(58))

    def setup_method(self) -> None:
        self.stage, self.invariants = watched_stage(loses=True)
        self.stage.run(SECOND)
        self.invariants.logs[LOG].recovered_from[3] = 57
        for shard in (self.FIRST, self.SECOND):
            [disk] = self.node(shard).disks.values()
            disk.rows[keys.epoch_metadata_key(LOG, 3, EpochMetadataKind.RECOVERY)] = b""

    def node(self, shard: ShardId) -> SimNode:
        return self.stage.node(node_of(shard))

    def is_forgotten(self, lsn: int = DECIDED) -> bool:
        return self.invariants.is_forgotten(LOG, lsn)

    def lose(self, shard: ShardId) -> None:
        replace_disks(self.node(shard))
        self.stage.run(SECOND)

    def test_nobody_when_all_have_new_disks(self) -> None:
        self.lose(self.FIRST)
        assert not self.is_forgotten()
        self.lose(self.SECOND)
        assert self.is_forgotten()

    def test_who_is_down_knows(self) -> None:
        self.lose(self.FIRST)
        self.node(self.SECOND).crash(machine=False)
        assert not self.is_forgotten()

    def test_a_backup_of_the_disk_before_does_not(self) -> None:
        backup = self.node(self.FIRST).snapshot()
        self.lose(self.FIRST)
        self.lose(self.SECOND)
        self.node(self.FIRST).crash(machine=True)
        self.node(self.FIRST).restore(backup)
        assert self.is_forgotten()

    def test_up_to_the_lng_nothing_was_decided(self) -> None:
        self.lose(self.FIRST)
        self.lose(self.SECOND)
        assert not self.is_forgotten(self.DECIDED - 1)

    def test_nothing_was_decided_of_an_epoch_of_which_no_recovery_ended(self) -> None:
        assert not self.is_forgotten(compose_lsn(Epoch(2), Esn(58)))
