"""Which intervals of a long history are left out: those of which every shard has said that all of it is trimmed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from logdevice_py.core.ids import Generation, NodeId, ShardId, shard_id
from logdevice_py.core.lsn import ESN_MAX, Epoch, Lsn, compose_lsn
from logdevice_py.core.machine import Send
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND
from logdevice_py.metadata.epoch_metadata import HISTORY_MAX
from logdevice_py.protocol.messages import EpochsListed, ListEpochs
from sequencer.history_trim import first_needed
from sequencer.settings import SequencerSettings
from tests.epoch_stores import interval
from tests.unit.sequencer.fakes import LOG, World

SHARDS = [shard_id(NodeId(node)) for node in range(5)]


def end(epoch: int) -> Lsn:
    return compose_lsn(Epoch(epoch), ESN_MAX)


HISTORY = tuple(
    replace(each, nodeset=tuple((SHARDS[node], Generation(1)) for node in nodes))
    for each, nodes in (
        (interval(0, since=1), (0, 1)),
        (interval(0, since=4), (1, 2)),
        (interval(0, since=6), (0, 3)),
        (interval(0, since=9), (3, 4)),
    )
)
ALL = frozenset(SHARDS)


class TestFirstNeeded:
    def test_each_shard_of_an_interval_must_have_trimmed_all_of_it(self) -> None:
        assert first_needed(HISTORY, ALL, {SHARDS[0]: end(3), SHARDS[1]: end(3)}) == 4
        assert first_needed(HISTORY, ALL, {SHARDS[0]: end(3), SHARDS[1]: Lsn(end(3) - 1)}) == 1
        assert first_needed(HISTORY, ALL, {SHARDS[0]: end(3)}) == 1, "one has not said anything"

    def test_intervals_go_from_the_first_one_on(self) -> None:
        trimmed = dict.fromkeys(SHARDS[:4], end(8))
        assert first_needed(HISTORY, ALL, trimmed) == 9
        assert first_needed(HISTORY, ALL, {**trimmed, SHARDS[2]: end(4)}) == 4
        assert first_needed(HISTORY, ALL, dict.fromkeys(SHARDS, end(99))) == 9, "the last one stays"

    def test_shards_that_left_the_cluster_hold_nothing_up(self) -> None:
        trimmed = {SHARDS[0]: end(3)}
        assert first_needed(HISTORY, ALL - {SHARDS[1]}, trimmed) == 4


class TrimmedWorld(World):
    """A log with many nodesets, whose shards say how far it is trimmed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings=SequencerSettings(history_trim_from=3, **settings))
        self.trimmed: dict[ShardId, Lsn] = {}
        self.asked: list[ShardId] = []

    def _run_effect(self, effect: Any) -> None:
        super()._run_effect(effect)
        if isinstance(effect, Send) and isinstance(effect.message, ListEpochs):
            asked = effect.message
            self.asked.append(asked.shard)
            if asked.shard in self.trimmed:
                answer = EpochsListed(
                    request_id=asked.request_id, shard=asked.shard, log=asked.log, status=Status.OK, covered=asked.last,
                    through=Lsn(0), trim_point=self.trimmed[asked.shard], generation=Generation(1), rows=b"",
                )  # fmt: skip
                self.node.on_message(effect.to, answer, self.now)

    def with_history(self, intervals: int) -> TrimmedWorld:
        """Sequenced after so many nodesets."""
        self.append()
        self.run(SECOND)
        stored = self.store.metadata[LOG]
        history = tuple(replace(stored.current, since=Epoch(since)) for since in range(1, intervals + 1))
        self.store.metadata[LOG] = replace(stored, epoch=Epoch(intervals + 1), history=history)
        self.sequencer.deactivate(self.now)
        return self

    def use(self) -> list[int]:
        """Append, with another nodeset each time; since which epochs intervals are kept."""
        shard = shard_id(NodeId(1))
        self.cluster.generations[shard] = Generation(self.cluster.generations.get(shard, Generation(1)) + 1)
        self.node.on_cluster_state(self.now)
        self.append()
        self.run(10 * SECOND)
        return [each.since for each in self.store.metadata[LOG].history]

    def trim(self, epoch: int, *, but: ShardId | None = None) -> None:
        """All shards but one have trimmed everything to the end of an epoch."""
        shards = self.store.metadata[LOG].current.shards
        self.trimmed = {shard: end(epoch) for shard in shards if shard != but}


@pytest.fixture
def world() -> TrimmedWorld:
    return TrimmedWorld(history_trim_interval_us=1000).with_history(5)


def test_what_is_trimmed_everywhere_goes_with_the_next_change_of_nodeset(world: TrimmedWorld) -> None:
    assert world.use() == [1, 2, 3, 4, 5, 6], "nobody has answered"
    world.trim(3)
    before = world.use()
    assert before[-1] == 7
    assert world.use()[0] == 4
    assert world.store.metadata[LOG].written


def test_one_shard_that_has_not_trimmed_holds_it_up(world: TrimmedWorld) -> None:
    world.use()
    world.trim(3, but=world.store.metadata[LOG].current.shards[0])
    world.use()
    world.use()
    assert world.asked
    assert world.use()[0] == 1
    world.trim(3)
    world.use()
    assert world.use()[0] == 4


def test_short_histories_are_not_asked_about() -> None:
    world = TrimmedWorld()
    world.append()
    world.run(10 * SECOND)
    assert not world.asked
    assert world.use() == [1, 2]
    assert not world.asked


def test_nobody_is_asked_again_at_once() -> None:
    world = TrimmedWorld(history_trim_interval_us=3600 * SECOND).with_history(5)
    world.use()
    asked = len(world.asked)
    assert asked
    world.use()
    assert len(world.asked) == asked


def test_a_full_history_goes_on_once_a_part_of_it_is_trimmed() -> None:
    world = TrimmedWorld(history_trim_interval_us=1000).with_history(HISTORY_MAX)
    kept = world.use()
    assert (kept[0], len(kept)) == (1, HISTORY_MAX)
    assert world.store.metadata[LOG].current.generation(shard_id(NodeId(1))) != 2
    world.trim(HISTORY_MAX // 2)
    world.run(10 * SECOND)
    kept = world.use()
    kept = world.use()
    assert kept[0] == HISTORY_MAX // 2 + 1
    assert world.store.metadata[LOG].current.generation(shard_id(NodeId(1))) != 1
