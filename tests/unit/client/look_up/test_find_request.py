"""Where a log reaches a time: from what shards answer, whatever clocks, trimming and failures did to them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any

import pytest

from client.links import Links
from client.look_up.find_request import FindRequest, FindTarget, FoundPlace
from client.look_up.survey import LogParts, SurveyContext
from client.settings import ClientSettings
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, shard_id
from logdevice_py.core.lsn import Epoch, Lsn, compose_lsn
from logdevice_py.core.machine import Send, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import FindKey, KeyFound
from logdevice_py.protocol.requests import Requests
from tests.unit.client.fakes import LOG, cluster

SHARDS = [shard_id(NodeId(node)) for node in range(5)]
SECOND = 1_000_000


def lsn(esn: int, epoch: int = 1) -> Lsn:
    return compose_lsn(Epoch(epoch), esn)


class FakeShard:
    """Answers as a shard does."""

    def __init__(self, shard: ShardId) -> None:
        self.shard = shard
        self.entries: dict[int, int] = {}
        """Timestamp by LSN."""
        self.through = 1 << 62
        self.trim_point = 0
        self.generation = 1
        self.lossy = (0, 0)
        self.status = Status.OK
        self.silent = False
        self.asked = 0

    def answer(self, asked: FindKey) -> KeyFound:
        low, high = max(asked.first, self.trim_point + 1), min(asked.last, self.through)
        held = [(at, stamp) for at, stamp in sorted(self.entries.items()) if low <= at <= high]
        reached = next(((at, stamp) for at, stamp in held if stamp >= asked.timestamp), None)
        before = [at for at, _ in held if reached is None or at < reached[0]]
        return KeyFound(
            request_id=asked.request_id,
            shard=asked.shard,
            log=asked.log,
            status=self.status,
            before=Lsn(max([low - 1, *before])),
            reached=Lsn(asked.last + 1 if reached is None else reached[0]),
            timestamp=Timestamp(-1 if reached is None else reached[1]),
            through=Lsn(self.through),
            trim_point=Lsn(self.trim_point),
            generation=Generation(self.generation),
            lossy_first=Epoch(self.lossy[0]),
            lossy_last=Epoch(self.lossy[1]),
        )


class Asking:
    """One look-up, with the shards that it asks."""

    def __init__(self, intervals: list[EpochInterval], last: Lsn, *, nodes: int = 5) -> None:
        self.shards = {shard: FakeShard(shard) for shard in SHARDS}
        self.timers = TimerQueue()
        self.links = Links()
        self.now = Micros(0)
        self.last = last
        self.parts = LogParts(intervals, last, cluster(nodes))
        self.outcome: FoundPlace | list[ShardId] | None = None
        self.why = ""
        for node in range(5):
            self.links.on_peer_up(PeerId(node))

    def find(self, when: int, *, approximate: bool = False, timeout: int = 5 * SECOND) -> Any:
        requests = Requests(itertools.count(1), self.timers)
        context = SurveyContext(self.links, self.timers, random.Random(1), requests, ClientSettings())
        target = FindTarget(Timestamp(when), approximate=approximate)
        request = FindRequest(context, LogId(LOG), self.parts, target, self.last, self.now + timeout, self._done)
        request.start(self.now)
        end = self.now + 2 * timeout
        while self.outcome is None and self.now < end:
            for effect in self.links.take():
                if isinstance(effect, Send):
                    shard = self.shards[effect.message.shard]
                    shard.asked += 1
                    if not shard.silent:
                        requests.on_answer(effect.to, shard.answer(effect.message), self.now)
            self.now = Micros(self.now + 10_000)
            self.timers.advance(self.now)
        assert self.outcome is not None, "it always ends"
        assert len(requests) == 0
        self.why = request.explain(self.now)
        outcome, self.outcome = self.outcome, None
        return outcome

    def _done(self, outcome: FoundPlace | list[ShardId], now: Micros) -> None:
        assert self.outcome is None, "told once"
        self.outcome = outcome


def interval(since: int, shards: list[ShardId], copies: int = 2) -> EpochInterval:
    return EpochInterval(
        Epoch(since), tuple((shard, Generation(1)) for shard in shards), ReplicationProperty.parse(f"node:{copies}")
    )


def spread(
    asking: Asking, entries: Mapping[Lsn, int], rng: random.Random, shards: list[ShardId], copies: int = 2
) -> None:
    for at, stamp in entries.items():
        for shard in rng.sample(shards, copies):
            asking.shards[shard].entries[at] = stamp


@pytest.mark.parametrize("clocks_agree", [True, False])
@pytest.mark.parametrize("seed", range(40))
def test_what_is_found_is_not_older_and_what_lies_right_before_it_is(seed: int, clocks_agree: bool) -> None:
    rng = random.Random(seed)
    last = lsn(60, 3)
    asking = Asking([interval(1, SHARDS[:3]), interval(3, SHARDS[1:])], last)
    entries, clock = {}, 1000
    for epoch in (1, 2, 3):
        if not clocks_agree:
            clock += rng.randrange(-200, 200)
        for esn in sorted(rng.sample(range(1, 50), rng.randrange(20))):
            clock += rng.choice([0, 1, 10])
            entries[lsn(esn, epoch)] = clock
    spread(asking, {at: stamp for at, stamp in entries.items() if at >> 32 < 3}, rng, SHARDS[:3])
    spread(asking, {at: stamp for at, stamp in entries.items() if at >> 32 == 3}, rng, SHARDS[1:])
    for shard in asking.shards.values():
        if rng.random() < 0.3:
            shard.trim_point = rng.choice(list(entries) or [Lsn(0)])
    silent = rng.choice([None, *SHARDS])
    if silent is not None:
        asking.shards[silent].silent = True
    times = rng.sample(range(700, 1800), 5) + list(entries.values())[:5]
    assert len(times) >= 5
    for when in times:
        found = asking.find(when)
        assert isinstance(found, FoundPlace)
        readable = [at for at in sorted(entries) if at > found.trim_point]
        stamp = entries.get(found.lsn)
        assert (found.lsn > last) == (stamp is None)
        assert stamp is None or found.timestamp == stamp >= when
        earlier = [at for at in readable if at < found.lsn]
        assert not earlier or entries[earlier[-1]] < when
        if clocks_agree:
            assert all(entries[at] < when for at in earlier)


def test_an_approximate_answer_is_never_too_late() -> None:
    asking = Asking([interval(1, SHARDS[:3])], lsn(60))
    entries = {lsn(esn): 100 * esn for esn in range(1, 50)}
    spread(asking, entries, random.Random(3), SHARDS[:3])
    for when in (0, 50, 1000, 1001, 4899, 4901, 10_000):
        assert asking.find(when, approximate=True).lsn <= asking.find(when).lsn


def test_a_shard_that_does_not_know_enough_yet_is_asked_again() -> None:
    asking = Asking([interval(1, SHARDS[:3])], lsn(60))
    asking.shards[SHARDS[0]].entries[lsn(5)] = 7
    asking.shards[SHARDS[1]].entries[lsn(5)] = 7
    for shard in SHARDS[:3]:
        asking.shards[shard].through = int(lsn(4))

    def release(now: Micros) -> None:
        for shard in SHARDS[:3]:
            asking.shards[shard].through = int(lsn(60))

    asking.timers.at(100_000, release)
    assert asking.find(0).lsn == lsn(5)
    assert asking.now < SECOND


def test_who_is_silent_who_refuses_and_who_knows_too_little_are_told_apart() -> None:
    asking = Asking([interval(1, SHARDS[:3])], lsn(9))
    asking.shards[SHARDS[1]].silent = True
    asking.shards[SHARDS[2]].status = Status.REBUILDING
    assert isinstance(asking.find(1000), list)
    assert "waited for N1:S0, N2:S0 to answer; REBUILDING from N2:S0" in asking.why
    asking = Asking([interval(1, SHARDS[:3])], lsn(9))
    for shard in SHARDS:
        asking.shards[shard].through = lsn(5)
    assert isinstance(asking.find(1000), list)
    assert asking.why.endswith("waited for shards that answered to know enough")


def test_no_answer_is_given_while_a_record_may_hide_on_a_shard_that_is_silent() -> None:
    asking = Asking([interval(1, SHARDS[:3])], lsn(60))
    asking.shards[SHARDS[0]].entries[lsn(9)] = 5
    asking.shards[SHARDS[1]].silent = asking.shards[SHARDS[2]].silent = True
    assert asking.find(0) == SHARDS[1:3]


def test_a_shard_that_lost_its_data_does_not_count() -> None:
    asking = Asking([interval(1, SHARDS[:3])], lsn(60))
    asking.shards[SHARDS[0]].generation = 2
    asking.shards[SHARDS[2]].entries[lsn(5)] = 7
    asking.shards[SHARDS[1]].silent = True
    assert asking.find(0) == [SHARDS[1]]
    asking.shards[SHARDS[1]].silent = False
    assert asking.find(0).lsn == lsn(5)


def test_when_too_many_lost_their_data_everybody_who_is_left_is_heard() -> None:
    asking = Asking([interval(1, SHARDS[:3])], lsn(60))
    for shard in SHARDS[:2]:
        asking.shards[shard].lossy = (1, 2)
    asking.shards[SHARDS[2]].entries[lsn(5)] = 7
    assert asking.find(0).lsn == lsn(5)


def test_what_is_found_without_too_many_says_who_they_are() -> None:
    """By nodesets that were read since they lost it, others may be found that have it."""
    asking = Asking([interval(1, SHARDS[:3])], lsn(60))
    asking.shards[SHARDS[0]].generation = 2
    asking.find(0)
    assert not asking.parts.lost, "the others meet every copyset"
    asking.shards[SHARDS[1]].generation = 2
    asking.find(0)
    assert asking.parts.lost == {SHARDS[0], SHARDS[1]}


def test_who_lost_something_is_heard_when_it_knows_what_it_still_has() -> None:
    asking = Asking([interval(1, SHARDS[:3])], lsn(60))
    for shard in SHARDS[:2]:
        asking.shards[shard].lossy = (1, 2)
        asking.shards[shard].entries[lsn(5)] = 7
        asking.shards[shard].through = int(lsn(4))

    def release(now: Micros) -> None:
        for shard in SHARDS[:2]:
            asking.shards[shard].through = int(lsn(60))

    asking.timers.at(100_000, release)
    assert asking.find(0).lsn == lsn(5)


def test_who_lost_its_disk_need_not_know_how_far_the_log_goes() -> None:
    asking = Asking([interval(1, SHARDS[:3])], lsn(60))
    for shard in SHARDS[:2]:
        asking.shards[shard].generation = 2
        asking.shards[shard].through = 0
    asking.shards[SHARDS[2]].entries[lsn(5)] = 7
    assert asking.find(0).lsn == lsn(5)


def test_shards_that_left_the_cluster_are_not_asked_and_count_as_lost() -> None:
    asking = Asking([interval(1, SHARDS[:3]), interval(2, SHARDS[1:4])], lsn(60, 2), nodes=4)
    asking.parts = LogParts([interval(1, SHARDS[2:5])], lsn(60), cluster(4))
    asking.last = lsn(60)
    asking.shards[SHARDS[2]].entries[lsn(5)] = 7
    assert asking.find(0).lsn == lsn(5)
    assert asking.shards[SHARDS[4]].asked == 0


def test_a_failed_shard_is_not_asked_again_and_the_others_suffice() -> None:
    asking = Asking([interval(1, SHARDS[:3])], lsn(60))
    asking.shards[SHARDS[0]].status = Status.FAILED
    for shard in SHARDS[1:3]:
        asking.shards[shard].entries[lsn(5)] = 7
    assert asking.find(0).lsn == lsn(5)
    for shard in SHARDS[:3]:
        asking.shards[shard].status = Status.NOTSTORAGE
    assert asking.find(0) == SHARDS[:3]
