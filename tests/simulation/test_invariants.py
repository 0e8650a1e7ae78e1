"""What the checks of a run call a violation, and what they do not."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast
from unittest.mock import patch

import pytest

from client.look_up.answers import LogHead
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.entry import EntryHeader, encode_entry
from logdevice_py.core.ids import Generation, LogId, NodeId, ShardId, node_of, shard_id
from logdevice_py.core.lsn import EPOCH_INVALID, ESN_MAX, LSN, Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import Digest, Digested, DigestedRange, DigestRange, LogEntry, Stored
from server.simulation.machines import SimMachines
from storage_node.log_store import keys
from storage_node.log_store.interface import LogMetadataKind, WriteBatch, WriteShard
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from storage_node.stored_metadata import encode_epoch
from tests.history.stage import LOG, config_text
from tests.simulation.history import LogHistory, Observation, Violation
from tests.simulation.holding_invariants import HoldingInvariants
from tests.simulation.invariants import EpochModel, Invariants, LogModel
from tests.simulation.time_finder import TimeFinder

if TYPE_CHECKING:
    from tests.simulation.workload import Applications

FIRST, OWN, LEFT, NEW = (shard_id(NodeId(node)) for node in range(4))
SOUND = compose_lsn(Epoch(3), Esn(58))
DAMAGED = compose_lsn(Epoch(3), Esn(59))


def machines() -> SimMachines:
    """Four nodes that are down."""
    return SimMachines(load_cluster(config_text(4, "node:2", "")), 1)


def running_machines() -> SimMachines:
    """Four nodes that serve."""
    cluster = machines()
    for node in cluster.nodes.values():
        node.start()
    cluster.scheduler.run_until(SECOND)
    return cluster


def put_copy(disk: MemoryDisk, *copyset: ShardId, wave: int = 1) -> None:
    """Of the sound record, behind the store's back."""
    header = EntryHeader(LOG, SOUND, Timestamp(1), wave, copyset, Esn(57), 1)
    disk.rows[keys.data_key(LOG, SOUND, False, wave)] = encode_entry(header, b"")


class TestDamagedRanges:
    """OWN drops a range in which one copy is damaged, and with it the sound one beside it."""

    def setup_method(self) -> None:
        self.cluster = machines()
        self.invariants = Invariants(self.cluster, [LOG])
        self.invariants.logs[LOG].acknowledged.add(SOUND)

    def disk(self, shard: ShardId) -> MemoryDisk:
        return self.cluster.nodes[node_of(shard)].disks[shard]

    def hold(self, shard: ShardId, *copyset: ShardId, wave: int = 1) -> None:
        put_copy(self.disk(shard), *copyset, wave=wave)

    def drop(self) -> None:
        batch = WriteBatch()
        batch.restore(LOG, SOUND, DAMAGED)
        self.invariants.watch(self.cluster.nodes[node_of(OWN)], [WriteShard(1, OWN, batch, sync=True)])

    def refused(self) -> None:
        with pytest.raises(Violation, match="drops log 1 e3n58, which it can read"):
            self.drop()

    def test_a_sound_copy_stays(self) -> None:
        self.hold(OWN, LEFT, OWN)
        self.hold(LEFT, LEFT, OWN)
        self.refused()

    @pytest.mark.parametrize("left", [FIRST, LEFT])
    def test_one_that_rebuilding_stored_again_elsewhere_may_go_with_the_damage(self, left: ShardId) -> None:
        """Whichever copy is looked at first: the one of the shard that is being emptied has the copyset of before."""
        self.hold(OWN, left, OWN)
        self.hold(left, left, NEW)
        self.hold(NEW, left, NEW)
        self.drop()

    def test_not_before_the_new_copy_is_there(self) -> None:
        self.hold(OWN, LEFT, OWN)
        self.hold(LEFT, LEFT, NEW)
        self.refused()

    def test_so_may_one_of_an_earlier_wave(self) -> None:
        self.hold(OWN, LEFT, OWN)
        self.hold(LEFT, LEFT, NEW, wave=2)
        self.hold(NEW, LEFT, NEW, wave=2)
        self.drop()

    def test_not_while_a_later_wave_is_incomplete(self) -> None:
        self.hold(OWN, LEFT, OWN)
        self.hold(LEFT, LEFT, OWN)
        self.hold(NEW, FIRST, NEW, wave=2)
        self.refused()

    def test_a_damaged_copy_elsewhere_counts(self) -> None:
        """It is repaired from the others of its copyset."""
        self.hold(OWN, LEFT, OWN)
        self.hold(LEFT, LEFT, NEW)
        self.hold(NEW, LEFT, NEW)
        self.disk(NEW).flip(keys.data_key(LOG, SOUND, False, 1), 0)
        self.drop()


class TestDigests:
    """OWN answered OK for the sound record, and shows what it holds."""

    def setup_method(self) -> None:
        self.cluster = running_machines()
        self.node = self.cluster.nodes[node_of(OWN)]
        self.disk = self.node.disks[OWN]
        self.model = LogModel(LOG)
        self.model.acknowledged.add(SOUND)
        self.holding = HoldingInvariants({LOG: self.model}, {OWN: 1})
        self.answer(SOUND)

    def answer(self, lsn: int) -> None:
        self.holding.on_stored(
            self.node,
            Stored(
                log=LOG,
                lsn=Lsn(lsn),
                shard=OWN,
                wave=1,
                status=Status.OK,
                flags=0,
                seal_epoch=EPOCH_INVALID,
                seal_node=NodeId(-1),
            ),
        )

    def show(self, *lsns: int, status: Status = Status.OK, first: int = 0, generation: int = 1) -> None:
        until = compose_lsn(Epoch(3), ESN_MAX)
        asked = DigestRange(LOG, Lsn(first), until, Generation(generation))
        self.holding.on_digest(Digest(request_id=1, shard=OWN, bytes_max=1, ranges=[asked]))
        entries = [LogEntry(LOG, Lsn(lsn), 0) for lsn in lsns]
        ranges = [DigestedRange(LOG, status, until)]
        self.holding.on_digested(
            self.node, Digested(request_id=1, shard=OWN, ranges=ranges, entries=entries, images=b"")
        )

    def test_a_shard_that_is_authoritative_shows_what_it_answered_for(self) -> None:
        self.show(SOUND)
        with pytest.raises(Violation, match="without e3n58, for which it answered"):
            self.show()

    def test_it_need_not_when_it_says_that_it_lacks_something(self) -> None:
        self.show(status=Status.REBUILDING)

    def test_nor_what_it_was_not_asked_for(self) -> None:
        self.show(first=SOUND + 1)

    def test_nor_what_was_trimmed(self) -> None:
        self.model.trim_asked = SOUND
        self.show()

    def test_nor_what_a_recovery_has_decided(self) -> None:
        self.model.clean = 3
        self.show()

    def test_nor_what_it_has_purged_itself_since_it_was_asked(self) -> None:
        for epoch, purged in ((2, False), (3, True)):
            batch = WriteBatch()
            batch.put_log_metadata(LOG, LogMetadataKind.LAST_CLEAN, encode_epoch(Epoch(epoch)))
            MemoryLogStore(self.disk).write([batch])
            if purged:
                self.show()
            else:
                with pytest.raises(Violation, match="without e3n58, for which it answered"):
                    self.show()

    def test_nor_what_a_fault_took(self) -> None:
        self.disk.destroyed.add((LOG, SOUND))
        self.show()

    def test_nor_what_another_generation_answered_for(self) -> None:
        self.show(generation=2)

    def test_what_is_not_synced_is_not_answered_for(self) -> None:
        batch = WriteBatch()
        header = EntryHeader(LOG, DAMAGED, Timestamp(1), 1, (OWN, NEW), Esn(57), 1)
        batch.put_entry(LOG, DAMAGED, by_recovery=False, wave=1, image=encode_entry(header, b""))
        MemoryLogStore(self.disk).write([batch])
        with pytest.raises(Violation, match="answers for e3n59 of log 1, which it has not synced"):
            self.answer(DAMAGED)


class TestEmptyLogs:
    """A client is told that a log is empty of which a record was acknowledged."""

    def setup_method(self) -> None:
        self.cluster = running_machines()
        self.model = LogModel(LOG)
        interval = EpochInterval(
            Epoch(3), tuple((shard, Generation(1)) for shard in (FIRST, OWN)), ReplicationProperty.parse("node:2")
        )
        domains = interval.domains(self.cluster.config.location)
        self.model.epochs[3] = EpochModel((0, 1), interval, domains)
        self.model.acknowledged.add(SOUND)

    def hold(self, shard: ShardId) -> None:
        put_copy(self.cluster.nodes[node_of(shard)].disks[shard], FIRST, OWN)

    def lose(self, shard: ShardId) -> None:
        self.cluster.nodes[node_of(shard)].disks[shard].rows.clear()

    def look(self, *, loses: bool, trimmed: int = 0, meanwhile: Callable[[], None] = lambda: None) -> None:
        history = LogHistory(LOG, loses=loses)
        history.acknowledged_max, history.trim_asked = (SOUND, 0), trimmed

        async def head(log: LogId) -> LogHead:
            meanwhile()
            return LogHead(LSN(trimmed), None, None)

        finder = object.__new__(TimeFinder)
        finder.name = "f1"
        finder.rng = random.Random(1)  # with which it asks for the head
        finder.client = SimpleNamespace(client=SimpleNamespace(head=head))
        finder.run = cast(
            "Applications",
            SimpleNamespace(
                cluster=self.cluster,
                histories={LOG: history},
                invariants=SimpleNamespace(logs={LOG: self.model}),
            ),
        )
        with patch.object(finder, "pick_log", lambda: LOG):
            asyncio.run(finder.look())

    def refused(self, *, loses: bool) -> None:
        with pytest.raises(Violation, match="was told that the log is empty"):
            self.look(loses=loses)

    def test_not_while_a_shard_has_the_record(self) -> None:
        self.hold(FIRST)
        self.refused(loses=False)
        self.refused(loses=True)

    def test_so_it_may_be_when_more_is_destroyed_than_tolerated_and_nothing_is_left(self) -> None:
        self.look(loses=True)
        self.refused(loses=False)

    def test_what_has_no_copy_on_a_shard_of_its_epoch_cannot_be_read(self) -> None:
        self.hold(NEW)
        self.look(loses=True)

    def test_what_is_destroyed_while_it_is_asked_for_may_be_missed(self) -> None:
        self.hold(FIRST)
        self.look(loses=True, meanwhile=lambda: self.lose(FIRST))

    def test_so_may_what_was_trimmed(self) -> None:
        self.hold(FIRST)
        self.look(loses=True, trimmed=SOUND)
        self.look(loses=False, trimmed=SOUND)


class TestOvertakenFrames:
    """A client does not send a frame again that one of its later frames was stored without, and fails its records."""

    def setup_method(self) -> None:
        self.whole = Observation("whole", 1, records=[(1, 0, b"w1-2-")], last=1)

    def history(self, *, loses: bool = False) -> LogHistory:
        history = LogHistory(LOG, loses=loses)
        overtaken, later = (
            history.attempt(payload, (0, 0), "w1 0", n) for n, payload in ((1, b"w1-1-"), (2, b"w1-2-"))
        )
        history.acknowledge(later, 1, 0)
        history.note_failure(overtaken, maybe_applied=False)
        history.overtaken.append(overtaken)
        return history

    def test_sequencers_and_recovery_let_none_be_overtaken(self) -> None:
        with pytest.raises(Violation, match="a later frame of the write stream is stored without b'w1-1-'"):
            self.history().check_end(self.whole)

    def test_where_more_is_destroyed_than_tolerated_they_may(self) -> None:
        self.history(loses=True).check_end(self.whole)

    def test_so_they_may_where_records_came_back_that_recovery_had_decided_against(self) -> None:
        history = self.history()
        history.came_back.add(1)
        history.check_end(self.whole)
