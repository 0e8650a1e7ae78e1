"""Extra copies under answers in any order, refusals, silence, restarts and lost disks: what is acknowledged, settled and released is what a model says."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logdevice_py.config.attributes import Durability
from logdevice_py.core.entry import EntryFlags, parse_header
from logdevice_py.core.ids import NodeId, PeerId, ShardId
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.placement.failure_domains import FailureDomains
from logdevice_py.protocol.messages import AppendedFlags, Release, Store
from sequencer.appender import AppenderState
from sequencer.epoch_sequencer import EpochSequencer
from sequencer.extra_copies import AppenderWithExtras, EpochWithExtras
from tests.unit.sequencer.fakes import LOG, World, make_config

NODES = 6
REFUSALS = [Status.NOSPC, Status.DISABLED, Status.OVERLOADED, Status.FAILED, Status.SHUTDOWN, Status.INTERNAL]
UNKNOWN = {Status.FAILED, Status.SHUTDOWN, Status.INTERNAL}


class ExtraChaos:
    """A log with extra copies, driven at random; keeps what shards were sent and what they said."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        replicate = rng.choice(["node:2", "node:3", "rack:2,node:3", "rack:2"])
        self.synced = rng.random() < 0.5
        self.strict = rng.random() < 0.3
        config = make_config(
            NODES,
            replicate=replicate,
            racks="aabbcc",
            extra_copies=rng.choice([1, 1, 2, 3]),
            durability=Durability.SYNC if self.synced else Durability.ASYNC,
            strict_order=self.strict,
            sticky_block_bytes=2_000,
        )
        self.world = World(config, seed=seed)
        self.world.answer = self.answer
        self.trouble = 0.4
        self.sealed = 0
        self.holders: dict[Lsn, set[ShardId]] = defaultdict(set)
        self.copysets: dict[Lsn, dict[int, tuple[ShardId, ...]]] = defaultdict(dict)
        self.stored: dict[tuple[Lsn, int], set[ShardId]] = defaultdict(set)
        self.lost: set[ShardId] = set()
        self.sufficed: set[Lsn] = set()
        """Entries whose holders sufficed at some moment."""
        self.ordered: set[Lsn] = set()
        self.requests: dict[int, str] = {}
        self.sequences: dict[int, int] = {}
        self.looked_at = 0
        self.released = 0
        self.domains: FailureDomains | None = None

    # What shards do

    def answer(self, store: Store) -> Status | None:
        """Silence at first: the answers are given one by one, in any order."""
        header = parse_header(store.image)
        assert self.suffices(set(header.copyset)), "a wave goes to a copyset that does not satisfy `replicate`"
        self.copysets[store.lsn][store.wave] = header.copyset
        if header.flags & EntryFlags.WRITE_STREAM:
            self.ordered.add(store.lsn)
        return None

    def say(self, store: Store, status: Status) -> None:
        lsn, shard = store.lsn, store.shard
        if status is Status.OK:
            self.holders[lsn].add(shard)
            self.stored[lsn, store.wave].add(shard)
        elif status is Status.REBUILDING:
            self.lost.add(shard)
            for holders in self.holders.values():
                holders.discard(shard)
        elif status is Status.BADPAYLOAD or (status in UNKNOWN and not self.synced):
            self.holders[lsn].discard(shard)
        if self.suffices(self.holders[lsn]):
            self.sufficed.add(lsn)
        self.world.reply(store, status)
        self.look()

    def suffices(self, shards: set[ShardId]) -> bool:
        if self.domains is None:
            current = self.world.sequencer.current
            assert isinstance(current, EpochWithExtras)
            interval = current.interval
            assert interval.labels is not None
            self.domains = FailureDomains(interval.shards, interval.replication, interval.labels)
        return self.domains.can_replicate(shards)

    def answer_some(self) -> None:
        world = self.world
        if not world.held_stores:
            return
        store = world.held_stores.pop(self.rng.randrange(len(world.held_stores)))
        if store.lsn >> 32 <= self.sealed:
            status = Status.PREEMPTED
        elif store.shard in self.lost:
            status = Status.REBUILDING
        elif self.rng.random() >= self.trouble:
            status = Status.OK
        elif parse_header(store.image).is_amend and not self.synced and self.rng.random() < 0.5:
            status = Status.BADPAYLOAD
        elif len(self.lost) < 2 and self.rng.random() < 0.05:
            status = Status.REBUILDING
        elif self.rng.random() < 0.2:
            world.held_stores.insert(0, store)  # not yet
            return
        else:
            status = self.rng.choice(REFUSALS)
        self.say(store, status)

    def restart_node(self) -> None:
        node, world = self.rng.randrange(NODES), self.world
        world.held_stores = [store for store in world.held_stores if store.shard >> 8 != node]
        if not self.synced:
            for holders in self.holders.values():
                for shard in [shard for shard in holders if shard >> 8 == node]:
                    holders.discard(shard)
        world.node.on_peer_down(PeerId(node), world.now)
        self.look()
        world.node.on_peer_up(PeerId(node), world.now)
        self.look()

    # What must hold

    def look(self) -> None:
        """Each answer when it is given."""
        self.world.run()
        for answer in self.world.answered[self.looked_at :]:
            if answer.status is not Status.OK or not answer.copyset:
                continue
            holders = self.holders[answer.lsn]
            # nobody watches the copies of what is settled, or withheld for the sake of strict order, as without extra copies
            unwatched = self.is_settled(answer.lsn) or (self.strict and answer.lsn in self.sufficed)
            assert unwatched or self.suffices(holders), "acknowledged, and the holders do not satisfy `replicate`"
            assert unwatched or set(answer.copyset) == holders
            if answer.lsn in self.ordered:
                before = {Lsn(answer.lsn - back) for back in range(answer.lsn & 0xFFFFFFFF)} - {answer.lsn >> 32 << 32}
                assert before <= self.sufficed, "a frame of a write stream is acknowledged before what it follows"
        self.looked_at = len(self.world.answered)
        for release in self.world.messages(Release)[self.released :]:
            for _, lsn in release.logs:
                for esn in range(1, (lsn & 0xFFFFFFFF) + 1):
                    assert self.is_settled(Lsn(lsn >> 32 << 32 | esn)), "released and not settled"
        self.released = len(self.world.messages(Release))

    def is_settled(self, lsn: Lsn) -> bool:
        return any(self.stored[lsn, wave].issuperset(copyset) for wave, copyset in self.copysets[lsn].items())

    def step(self) -> None:
        world, roll = self.world, self.rng.random()
        if LOG not in world.node.sequencers or roll < 0.15:
            self.requests[world.append()] = "direct"
        elif roll < 0.25:
            epoch = world.sequencer.epoch
            number = self.sequences[epoch] = self.sequences.get(epoch, 0) + 1
            self.requests[world.stream_append(number, epoch=epoch, resume=number == 1)] = "stream"
        elif roll < 0.85:
            self.answer_some()
        elif roll < 0.89:
            self.restart_node()
        elif roll < 0.90 and LOG in world.store.metadata and not self.sealed:
            epoch = world.store.take_over(LOG, NodeId(3))
            self.sealed = world.seal_epoch = epoch - 1
            world.seal_node = 3
            world.cluster.states.pop(NodeId(3), None)
            world.node.on_cluster_state(world.now)
        self.look()
        world.run(self.rng.choice([0, 0, 1_000, 10_000, 30_000]))
        self.look()

    def calm(self) -> None:
        self.trouble = 0.0
        for _ in range(60):
            while self.world.held_stores:
                self.answer_some()
            self.world.run(1_000_000)
            self.look()

    def check(self) -> None:
        world = self.world
        answers = {answer.request_id: answer for answer in world.answered}
        assert len(answers) == len(world.answered), "an append was answered twice"
        assert answers.keys() == self.requests.keys(), "an append was never answered"
        for answer in answers.values():
            if (
                answer.status is not Status.OK
                and answer.flags & AppendedFlags.NOT_REPLICATED
                and answer.lsn & 0xFFFFFFFF
            ):
                assert not self.holders[answer.lsn]
        current = world.sequencer.current
        if not self.sealed and current is not None:
            assert current.lng == current.next_esn - 1, "what is acknowledged settles in the end"


def run(seed: int) -> None:
    chaos = ExtraChaos(seed)
    for _ in range(60):
        chaos.step()
    chaos.calm()
    chaos.check()


def run_many(seeds: Iterable[int]) -> None:
    for seed in seeds:
        run(seed)


@given(st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_acknowledged_is_what_holders_that_suffice_have(seed: int) -> None:
    run(seed)


def test_the_runs_meet_what_they_are_made_for() -> None:
    """In some of them entries are acknowledged that are not settled then, frames wait, copies are taken back, and epochs end in silence."""
    early = waited = 0
    for seed in range(20):
        chaos = ExtraChaos(seed)
        for _ in range(60):
            chaos.step()
            current = chaos.world.node.sequencers[LOG].current if LOG in chaos.world.node.sequencers else None
            if isinstance(current, EpochWithExtras):
                early += current.acked_through > current.lng
                base = Epoch(current.epoch) << 32
                waited += any(
                    lsn - base > current.acked_through for lsn in chaos.ordered & chaos.sufficed if lsn > base
                )
    assert early > 50
    assert waited > 5


# Rules that are left out: one of a few runs tells


def counted_only(original: Any) -> Any:
    """So many copies are enough, wherever they are."""
    return lambda self, shards: len(set(shards)) >= self.interval.replication.copies


def one_copy_early(original: Any) -> Any:
    """One copy less than `replicate` asks for is enough."""
    return lambda self, shards: len(set(shards)) >= max(1, self.interval.replication.copies - 1)


def never_taken_back(original: Any) -> Any:
    """Once a holder, always one."""
    return lambda self, shard: None


def frames_as_they_come(original: Any) -> Any:
    """Frames of write streams are acknowledged when they are acked, whatever is before them."""

    def on_acked(self: EpochWithExtras, appender: AppenderWithExtras, now: Micros) -> None:
        self._acknowledge(appender)
        original(self, appender, now)

    return on_acked


def acked_is_settled(original: Any) -> Any:
    """What is acked is reaped and released."""

    def judge(self: AppenderWithExtras, now: Micros) -> None:
        if self.running and not self.is_acked and self.owner.can_replicate(self._holders):
            self.state = AppenderState.REPLICATED
            self.owner.on_replicated(self, now)
            return
        original(self, now)

    return judge


def no_silence(original: Any) -> Any:
    """Clients are told of the end of an entry that was acknowledged."""

    def refuse(self: EpochWithExtras, appender: AppenderWithExtras) -> None:
        appender.is_told = False
        original(self, appender)

    return refuse


def receipt_of_all(original: Any) -> Any:
    """The receipt lists the copyset."""
    return lambda self, appender, holders: EpochSequencer._tell(self, appender, holders)


def settled_on_one(original: Any) -> Any:
    """The last wave goes to one of the holders."""
    return lambda self, holders, now: tuple(holders[:1]) or None


def never_settled(original: Any) -> Any:
    """Holders are never made the whole copyset."""
    return lambda self, holders, now: None


LEFT_OUT: list[tuple[type, str, Any]] = [
    (EpochWithExtras, "can_replicate", counted_only),
    (EpochWithExtras, "can_replicate", one_copy_early),
    (AppenderWithExtras, "take_back", never_taken_back),
    (EpochWithExtras, "on_acked", frames_as_they_come),
    (AppenderWithExtras, "_judge", acked_is_settled),
    (EpochWithExtras, "_refuse", no_silence),
    (EpochWithExtras, "_tell", receipt_of_all),
    (EpochWithExtras, "pick_for_holders", settled_on_one),
    (EpochWithExtras, "pick_for_holders", never_settled),
]


@pytest.mark.parametrize(("where", "name", "change"), LEFT_OUT, ids=[change.__name__ for _, _, change in LEFT_OUT])
def test_a_rule_that_is_left_out_shows(where: type, name: str, change: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, name, change(vars(where)[name]))
    with pytest.raises(AssertionError):
        run_many(range(60))
