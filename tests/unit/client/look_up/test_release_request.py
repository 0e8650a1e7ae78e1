"""How far shards know that a log can be read: whose answers suffice, and which counts."""

from __future__ import annotations

import itertools
import random
from typing import Any

from client.links import Links
from client.look_up.release_request import ReleaseRequest, ReleaseSource
from client.look_up.survey import LogParts, SurveyContext
from client.settings import ClientSettings
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, LogId, NodeId, PeerId, ShardId, shard_id
from logdevice_py.core.lsn import LSN_MAX, Epoch, Lsn, compose_lsn
from logdevice_py.core.machine import Send, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.metadata.epoch_metadata import EpochInterval
from logdevice_py.protocol.messages import EpochsListed, ListEpochs
from logdevice_py.protocol.requests import Requests
from tests.unit.client.fakes import LOG, cluster

SHARDS = [shard_id(NodeId(node)) for node in range(6)]
TWO_COPIES = ReplicationProperty.parse("node:2")


def interval(since: int, nodes: range) -> EpochInterval:
    return EpochInterval(Epoch(since), tuple((SHARDS[node], Generation(1)) for node in nodes), TWO_COPIES)


class ReleasedShards:
    """Shards that were told of releases; those that are not named do not answer."""

    def __init__(self, intervals: list[EpochInterval], **released: Lsn) -> None:
        self.intervals = intervals
        self.released = {SHARDS[int(name[1:])]: lsn for name, lsn in released.items()}
        self.generations: dict[ShardId, int] = {}

    def answer(self, asked: ListEpochs) -> EpochsListed:
        return EpochsListed(
            request_id=asked.request_id,
            shard=asked.shard,
            log=asked.log,
            status=Status.OK,
            covered=asked.last,
            through=self.released[asked.shard],
            trim_point=Lsn(0),
            generation=Generation(self.generations.get(asked.shard, 1)),
            rows=b"",
        )

    def ask(self, source: ReleaseSource, *, nodes: int = 6) -> Lsn | list[ShardId]:
        """The LSN, or who was silent; messages arrive in the order of the shards."""
        timers, links, outcomes = TimerQueue(), Links(), []
        requests = Requests(itertools.count(1), timers)
        for node in range(nodes):
            links.on_peer_up(PeerId(node))
        parts = LogParts(self.intervals, LSN_MAX, cluster(nodes))
        context = SurveyContext(links, timers, random.Random(1), requests, ClientSettings())

        def done(outcome: Any, now: Micros) -> None:
            outcomes.append(outcome)

        request = ReleaseRequest(context, LogId(LOG), parts, source, 2 * SECOND, done)
        now = Micros(0)
        request.start(now)
        while not outcomes and now < 5 * SECOND:
            for effect in links.take():
                if isinstance(effect, Send) and effect.message.shard in self.released:
                    requests.on_answer(effect.to, self.answer(effect.message), now)
            now = Micros(now + 10_000)
            timers.advance(now)
        [outcome] = outcomes
        return outcome  # type: ignore[no-any-return]


def at(epoch: int, esn: int) -> Lsn:
    return compose_lsn(Epoch(epoch), esn)  # type: ignore[arg-type]


def test_a_quorum_tells_the_greatest_that_one_of_it_knows() -> None:
    shards = ReleasedShards([interval(1, range(3))], n0=at(1, 4), n2=at(1, 9))
    assert shards.ask(ReleaseSource.QUORUM) == at(1, 9)


def test_one_of_three_shards_is_no_quorum() -> None:
    shards = ReleasedShards([interval(1, range(3))], n1=at(1, 4))
    assert shards.ask(ReleaseSource.QUORUM) == [SHARDS[0], SHARDS[2]]


def test_any_shard_that_knows_of_something_is_enough_where_any_is_asked() -> None:
    shards = ReleasedShards([interval(1, range(3))], n1=at(1, 4))
    assert shards.ask(ReleaseSource.ANY) == at(1, 4)


def test_that_nobody_knows_of_anything_takes_a_quorum_to_say() -> None:
    nothing = ReleasedShards([interval(1, range(3))], n0=Lsn(0))
    assert nothing.ask(ReleaseSource.ANY) == [SHARDS[1], SHARDS[2]]
    nothing.released[SHARDS[1]] = Lsn(0)
    assert nothing.ask(ReleaseSource.ANY) == 0


def test_nodesets_of_what_is_long_readable_need_not_answer() -> None:
    history = [interval(1, range(3)), interval(5, range(3, 6))]
    of_the_new = ReleasedShards(history, n3=at(6, 2), n4=at(6, 3))
    assert of_the_new.ask(ReleaseSource.QUORUM) == at(6, 3)
    nothing_there_yet = ReleasedShards(history, n0=at(4, 1), n3=at(4, 2), n4=at(4, 2))
    assert nothing_there_yet.ask(ReleaseSource.QUORUM) == [SHARDS[1], SHARDS[2], SHARDS[5]]
    nothing_there_yet.released[SHARDS[2]] = at(4, 7)
    assert nothing_there_yet.ask(ReleaseSource.QUORUM) == at(4, 7)


def test_a_shard_that_began_anew_has_forgotten_what_it_was_told() -> None:
    shards = ReleasedShards([interval(1, range(3))], n0=at(1, 4), n1=Lsn(0))
    shards.generations[SHARDS[1]] = 2
    assert shards.ask(ReleaseSource.QUORUM) == [SHARDS[2]]
    shards.released[SHARDS[2]] = at(1, 6)
    assert shards.ask(ReleaseSource.QUORUM) == at(1, 6)


def test_where_too_many_shards_are_gone_all_others_are_asked() -> None:
    shards = ReleasedShards([interval(1, range(4))], n0=at(1, 4))
    assert shards.ask(ReleaseSource.QUORUM, nodes=2) == [SHARDS[1]], "two of four are not in the cluster file"
    shards.released[SHARDS[1]] = at(1, 5)
    assert shards.ask(ReleaseSource.QUORUM, nodes=2) == at(1, 5)
