"""A sequencer node with its real recoveries: what an epoch left behind is recovered, released, and known to redirected appends."""

from __future__ import annotations

from typing import Any

from epoch_store.interface import EpochStoreRequest, GetLastCleanEpoch, LastCleanEpoch, Result, SetLastCleanEpoch
from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import InstanceId, LogId, NodeId, PeerId, ShardId, is_metadata_log
from logdevice_py.core.lsn import Epoch, Lsn, compose_lsn
from logdevice_py.core.machine import Send
from logdevice_py.core.status import Status
from logdevice_py.protocol.messages import (
    Clean,
    Cleaned,
    CleanedLog,
    Digest,
    Digested,
    DigestedRange,
    EpochState,
    LogEntry,
    Mutated,
    Seal,
    Sealed,
    SealedLog,
    SeqStateFlags,
    Store,
)
from tests.unit.sequencer.fakes import LOG, World


class RecoveringWorld(World):
    """Shards that keep what they store and take part in recovery."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.node.context.recoveries = self.node.recoveries
        self.kept: dict[ShardId, dict[int, bytes]] = {}
        self.sealed: dict[ShardId, int] = {}
        self.clean: dict[LogId, LastCleanEpoch] = {}
        self.seal_requests: list[int] = []
        self.tells_tails = True
        """SEALED says what the header of the last entry at or below the LNG says; otherwise as an older version."""
        self.late: list[tuple[int, Any]] | None = None
        """Answers to CLEAN that are on their way; None: they come at once."""

    def _run_effect(self, effect: Any) -> None:
        if isinstance(effect, EpochStoreRequest) and isinstance(
            effect.operation, GetLastCleanEpoch | SetLastCleanEpoch
        ):
            operation = effect.operation
            if isinstance(operation, SetLastCleanEpoch):
                self.clean[operation.log] = LastCleanEpoch(operation.epoch, operation.tail)
            value = self.clean.get(operation.log, LastCleanEpoch())
            self.node.on_epoch_store(effect.token, Result(Status.OK, value), self.now)
            return
        super()._run_effect(effect)
        if isinstance(effect, Send):
            self._recover(effect.to, effect.message)

    def _recover(self, to: int, message: Any) -> None:
        answer: Any = None
        if isinstance(message, Seal):
            self.seal_requests.append(message.request_id)
            self.sealed[message.shard] = message.logs[0].seal_epoch
            answer = self._sealed(message)
        elif isinstance(message, Clean):
            logs = [CleanedLog(each.log, each.epoch, Status.OK, message.seal_epoch, NodeId(0)) for each in message.logs]
            answer = Cleaned(request_id=message.request_id, shard=message.shard, logs=logs)
        if isinstance(answer, Cleaned) and self.late is not None:
            self.late.append((to, answer))
        elif answer is not None:
            self.node.on_message(to, answer, self.now)  # type: ignore[arg-type]

    def _run_digest(self, to: PeerId, digest: Digest) -> None:
        if is_metadata_log(digest.ranges[0].log):
            super()._run_digest(to, digest)
        else:
            self.node.on_message(to, self._digested(digest), self.now)

    def _run_store(self, store: Store) -> None:
        if store.recovery_id == 0:
            super()._run_store(store)
            if not is_metadata_log(store.log) and self.answer(store) is Status.OK:
                self.kept.setdefault(store.shard, {})[store.lsn] = store.image
            return
        self.kept.setdefault(store.shard, {})[store.lsn] = store.image
        answer = Mutated(
            recovery_id=store.recovery_id,
            log=store.log,
            lsn=store.lsn,
            shard=store.shard,
            wave=store.wave,
            status=Status.OK,
            seal_epoch=Epoch(0),
            seal_node=NodeId(-1),
        )
        self.node.on_message(store.shard >> 8, answer, self.now)  # type: ignore[arg-type]

    def _sealed(self, seal: Seal) -> Sealed:
        logs = []
        for asked in seal.logs:
            states = []
            for epoch in range(asked.clean_epoch + 1, asked.seal_epoch + 1):
                images = [image for lsn, image in self.kept.get(seal.shard, {}).items() if lsn >> 32 == epoch]
                headers = sorted((parse_header(image) for image in images), key=lambda header: header.lsn)
                lng = max((header.lng for header in headers), default=0)
                tail = max((header.lsn for header in headers if header.lsn & 0xFFFFFFFF <= lng), default=0)
                greatest = headers[-1].lsn & 0xFFFFFFFF if headers else 0
                stamp = headers[-1].timestamp if headers else 0
                of_tail = next((header for header in headers if header.lsn == tail), None) if self.tells_tails else None
                told = (of_tail.records, of_tail.extensions) if of_tail is not None else (0, b"")
                states.append(EpochState(epoch, Status.OK, lng, greatest, stamp, tail, stamp if tail else 0, *told))  # type: ignore[arg-type]
            logs.append(SealedLog(asked.log, Status.OK, asked.seal_epoch, NodeId(0), Lsn(0), states))
        return Sealed(request_id=seal.request_id, shard=seal.shard, logs=logs)

    def _digested(self, digest: Digest) -> Digested:
        ranges, entries, images = [], [], []
        for log, first, until, _ in digest.ranges:
            for lsn, image in sorted(self.kept.get(digest.shard, {}).items()):
                if first <= lsn <= until:
                    entries.append(LogEntry(log, Lsn(lsn), len(image)))
                    images.append(image)
            ranges.append(DigestedRange(log, Status.OK, until))
        return Digested(
            request_id=digest.request_id,
            shard=digest.shard,
            ranges=ranges,
            entries=entries,
            images=b"".join(images),
        )


class TestHandOff:
    def test_a_new_epoch_is_released_after_the_old_one_was_recovered_and_ends_in_a_bridge(self) -> None:
        world = RecoveringWorld()
        for _ in range(3):
            world.append()
            world.run()
        world.sequencer.activate(world.now)
        world.run(2_000_000)
        assert world.sequencer.last_released == compose_lsn(2, 0)
        assert world.clean[LOG].epoch == 1
        bridges = [lsn for kept in world.kept.values() for lsn, image in kept.items() if parse_header(image).is_bridge]
        assert set(bridges) == {compose_lsn(1, 4)}
        assert set(world.sealed.values()) == {1}

    def test_the_tail_of_the_recovered_epoch_is_known(self) -> None:
        world = RecoveringWorld()
        for _ in range(3):
            world.append()
            world.run()
        request = world.ask_state(int(SeqStateFlags.TAIL), min_epoch=2)
        world.run(2_000_000)
        state = world.state_of(request)
        assert (state.status, state.tail_lsn) == (Status.OK, compose_lsn(1, 3))

    def test_an_append_that_may_have_an_lsn_learns_that_it_has(self) -> None:
        world = RecoveringWorld()
        for _ in range(3):
            world.append()
            world.run()
        world.sequencer.activate(world.now)
        world.run()
        stored = world.append(previous_lsn=compose_lsn(1, 3))
        absent = world.append(previous_lsn=compose_lsn(1, 9))
        world.run(2_000_000)
        assert world.answer_to(stored).lsn == compose_lsn(1, 3)
        assert world.answer_to(absent).lsn >> 32 == 2

    def test_a_reactivation_during_recovery_starts_another_one(self) -> None:
        world = RecoveringWorld()
        world.append()
        world.run()
        world.sequencer.activate(world.now)
        world.node.on_turn_end(world.now)
        world.sequencer.activate(world.now)
        world.run(100_000)
        world.sequencer.activate(world.now)
        world.run(3_000_000)
        assert world.sequencer.is_released
        assert world.clean[LOG].epoch == world.sequencer.epoch - 1

    def test_an_epoch_is_recovered_though_later_ones_come_before_its_recovery_is_done(self) -> None:
        world = RecoveringWorld()
        world.append()
        world.run()
        world.late = []
        world.sequencer.activate(world.now)
        world.run(100_000)
        late, world.late = world.late, []
        assert late
        world.sequencer.activate(world.now)
        world.run(100_000)
        assert world.sequencer.epoch == 3
        for peer, answer in late:
            world.node.on_message(peer, answer, world.now)  # type: ignore[arg-type]
        world.run(1000)
        assert world.clean[LOG].epoch == 1

    def test_what_a_recovery_found_that_ends_while_the_next_epoch_drains_is_not_forgotten(self) -> None:
        world = RecoveringWorld()
        for _ in range(3):
            world.append()
            world.run()
        world.late = []
        world.sequencer.activate(world.now)
        world.run(100_000)
        late, world.late = world.late, None
        assert late
        stored = world.append(previous_lsn=compose_lsn(1, 3))
        absent = world.append(previous_lsn=compose_lsn(1, 9))
        world.answer = lambda store: None
        world.append()
        world.run(1000)
        world.sequencer.activate(world.now)
        world.run(1000)
        assert world.sequencer.epoch == 3
        assert world.sequencer.is_draining
        for peer, answer in late:
            world.node.on_message(peer, answer, world.now)  # type: ignore[arg-type]
        world.run(1000)
        assert world.clean[LOG].epoch == 1
        world.answer = lambda store: Status.OK
        for store in world.held_stores:
            world.kept.setdefault(store.shard, {})[store.lsn] = store.image
        world.reply_to_held()
        world.run(3_000_000)
        assert world.sequencer.is_released
        assert world.answer_to(stored).lsn == compose_lsn(1, 3)
        assert world.answer_to(absent).lsn >> 32 == 3

    def test_an_answer_to_an_earlier_run_of_the_node_is_not_one_to_this(self) -> None:
        requests: list[set[int]] = []
        for instance in (1, 2):
            world = RecoveringWorld(instance=InstanceId(instance))
            world.append()
            world.run()
            world.sequencer.activate(world.now)
            world.run(2_000_000)
            requests.append(set(world.seal_requests))
        assert all(requests)
        # A SEALED that was on its way when the node was killed speaks of an earlier seal epoch.
        assert not requests[0] & requests[1]
