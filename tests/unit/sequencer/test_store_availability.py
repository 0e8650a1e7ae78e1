"""Which shards new waves avoid, and for how long."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from logdevice_py.core.ids import NodeId, PeerId, ShardId, node_peer, shard_id
from logdevice_py.core.machine import Outbox, Send, TimerQueue
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.membership.cluster_view import ClusterView
from logdevice_py.protocol.messages import CheckSeal, NodeState, SealChecked
from logdevice_py.protocol.requests import Requests
from sequencer.metrics import SequencerMetrics
from sequencer.settings import SequencerSettings
from sequencer.store_availability import Reason, StoreAvailability
from tests.unit.sequencer.fakes import FakeCluster, make_config

A, B, C = (shard_id(NodeId(node)) for node in range(3))
NOW = Micros(5_000_000)
SETTINGS = SequencerSettings(
    overloaded_us=1_000_000,
    no_space_us=2_000_000,
    store_disabled_us=3_000_000,
    unroutable_us=4_000_000,
    graylist_us=6_000_000,
    probe_retry_us=7_000_000,
)
DURATIONS = {
    Reason.OVERLOADED: SETTINGS.overloaded_us,
    Reason.NO_SPACE: SETTINGS.no_space_us,
    Reason.DISABLED: SETTINGS.store_disabled_us,
    Reason.UNROUTABLE: SETTINGS.unroutable_us,
}


class Bench:
    """A StoreAvailability, and what it sends."""

    def __init__(self) -> None:
        self.outbox, self.timers, self.metrics = Outbox(), TimerQueue(), SequencerMetrics()
        self.cluster = FakeCluster(4)
        view: ClusterView = self.cluster
        self.requests = Requests(itertools.count(1), self.timers)
        self.shards = StoreAvailability(
            make_config(), SETTINGS, self.outbox, self.timers, view, self.metrics, self.requests
        )

    def answer(self, request_id: int, shard: ShardId = A) -> bool:
        """Whether the shard's answer is one to an open probe."""
        was_open = request_id in self.requests
        message = SealChecked(request_id=request_id, shard=shard, logs=[])
        self.requests.on_answer(node_peer(shard), message, Micros(0))
        return was_open and request_id not in self.requests

    def at(self, time: int) -> None:
        self.timers.advance(Micros(time))

    def probes(self) -> list[tuple[PeerId, CheckSeal]]:
        return [(each.to, each.message) for each in self.outbox.take() if isinstance(each, Send)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


class TestBlocking:
    @pytest.mark.parametrize("reason", DURATIONS)
    def test_each_reason_has_its_time(self, bench: Bench, reason: Reason) -> None:
        bench.shards.block(A, reason, NOW)
        bench.at(NOW + DURATIONS[reason] - 1)
        assert (bench.shards.reason(A), bench.shards.is_available(A)) == (reason, False)
        assert bench.shards.blocked() == [(A, reason)]
        bench.at(NOW + DURATIONS[reason])
        assert (bench.shards.reason(A), bench.shards.is_available(A)) == (None, True)
        assert bench.probes() == []

    def test_the_latest_reason_counts_with_its_time(self, bench: Bench) -> None:
        bench.shards.block(A, Reason.OVERLOADED, NOW)
        bench.shards.block(A, Reason.NO_SPACE, NOW)
        bench.at(NOW + SETTINGS.no_space_us - 1)
        assert bench.shards.reason(A) is Reason.NO_SPACE

    def test_a_shard_that_says_why_is_not_merely_slow(self, bench: Bench) -> None:
        bench.shards.block(A, Reason.OVERLOADED, NOW)
        bench.shards.block(A, Reason.SLOW, NOW)
        assert bench.shards.reason(A) is Reason.OVERLOADED
        assert bench.metrics.shards_graylisted == 0

    def test_other_settings_count_for_what_comes(self, bench: Bench) -> None:
        bench.shards.use_settings(replace(SETTINGS, overloaded_us=9_000_000))
        bench.shards.block(A, Reason.OVERLOADED, NOW)
        bench.at(NOW + SETTINGS.overloaded_us)
        assert bench.shards.reason(A) is Reason.OVERLOADED

    @pytest.mark.parametrize("status", [Status.PREEMPTED, Status.BADPAYLOAD, Status.REBUILDING])
    def test_a_refusal_that_says_nothing_of_the_shard_blocks_nothing(self, bench: Bench, status: Status) -> None:
        bench.shards.note_status(A, status, NOW)
        assert bench.shards.is_available(A)

    def test_whatever_may_change_an_answer_raises_the_version(self, bench: Bench) -> None:
        shards = bench.shards
        versions = [shards.version]
        changes: tuple[Callable[[], None], ...] = (
            lambda: shards.block(A, Reason.OVERLOADED, NOW),
            lambda: bench.at(NOW + SETTINGS.overloaded_us),
            lambda: shards.on_peer_down(NodeId(1), 1, NOW),
            lambda: shards.on_peer_up(NodeId(1)),
            lambda: shards.on_config(make_config(read_only=[2])),
            shards.on_cluster_state,
        )
        for change in changes:
            change()
            versions.append(shards.version)
        assert versions == sorted(set(versions))


class TestConnections:
    def test_every_shard_of_the_node_is_unroutable_until_it_is_back(self, bench: Bench) -> None:
        bench.shards.on_peer_down(NodeId(1), 2, NOW)
        lost = [shard_id(NodeId(1), index) for index in range(2)]
        assert bench.shards.blocked() == [(shard, Reason.UNROUTABLE) for shard in lost]
        bench.shards.on_peer_up(NodeId(2))
        assert len(bench.shards.blocked()) == 2
        bench.shards.on_peer_up(NodeId(1))
        assert bench.shards.blocked() == []

    @pytest.mark.parametrize("reason", [Reason.SLOW, Reason.UNROUTABLE])
    def test_silence_is_explained_by_a_broken_connection(self, bench: Bench, reason: Reason) -> None:
        bench.shards.block(A, reason, NOW)
        bench.shards.on_peer_down(NodeId(0), 1, NOW)
        assert bench.shards.reason(A) is Reason.UNROUTABLE

    @pytest.mark.parametrize("reason", [Reason.OVERLOADED, Reason.NO_SPACE])
    def test_a_full_or_busy_shard_stays_so_when_its_node_comes_and_goes(self, bench: Bench, reason: Reason) -> None:
        bench.shards.block(A, reason, NOW)
        bench.shards.on_peer_down(NodeId(0), 1, NOW)
        bench.shards.on_peer_up(NodeId(0))
        assert bench.shards.reason(A) is reason

    def test_whether_a_node_lives_and_its_shard_takes_writes_is_looked_at_again_when_told(self, bench: Bench) -> None:
        assert bench.shards.is_available(A)
        bench.cluster.states[NodeId(0)] = NodeState.DEAD
        bench.shards.on_cluster_state()
        assert not bench.shards.is_available(A)
        bench.cluster.states[NodeId(0)] = NodeState.ALIVE
        bench.shards.on_config(make_config(read_only=[1]))
        assert [bench.shards.is_available(shard) for shard in (A, B)] == [True, False]


class TestGraylist:
    def on_probe(self, bench: Bench) -> CheckSeal:
        bench.shards.block(A, Reason.SLOW, NOW)
        bench.at(NOW + SETTINGS.graylist_us - 1)
        assert bench.shards.reason(A) is Reason.SLOW
        bench.at(NOW + SETTINGS.graylist_us)
        [(peer, message)] = bench.probes()
        assert (peer, message.shard, message.logs) == (PeerId(0), A, [])
        return message

    def test_a_slow_shard_is_probed_when_its_time_is_over_and_used_after_an_answer(self, bench: Bench) -> None:
        probe = self.on_probe(bench)
        assert bench.metrics.shards_graylisted == 1
        assert (bench.shards.reason(A), bench.shards.is_available(A)) == (Reason.PROBING, False)
        assert not bench.answer(probe.request_id, B)
        assert not bench.answer(probe.request_id + 1)
        assert bench.shards.reason(A) is Reason.PROBING
        assert bench.answer(probe.request_id)
        assert bench.shards.is_available(A)
        assert not bench.answer(probe.request_id)

    def test_a_probe_is_repeated_and_only_the_last_one_counts(self, bench: Bench) -> None:
        first = self.on_probe(bench)
        again = NOW + SETTINGS.graylist_us + SETTINGS.probe_retry_us
        bench.at(again - 1)
        assert bench.probes() == []
        bench.at(again)
        [(_, second)] = bench.probes()
        assert not bench.answer(first.request_id)
        assert bench.answer(second.request_id)

    def test_an_answer_to_a_probe_says_nothing_of_what_is_known_since(self, bench: Bench) -> None:
        probe = self.on_probe(bench)
        bench.shards.block(A, Reason.NO_SPACE, NOW)
        assert bench.answer(probe.request_id)
        assert bench.shards.reason(A) is Reason.NO_SPACE

    def test_a_shard_that_is_slow_again_while_it_is_probed_is_graylisted_again(self, bench: Bench) -> None:
        self.on_probe(bench)
        bench.shards.block(A, Reason.SLOW, NOW)
        assert bench.shards.reason(A) is Reason.SLOW

    def test_of_a_shard_that_is_slow_again_while_it_is_probed_the_next_probe_decides(self, bench: Bench) -> None:
        first = self.on_probe(bench)
        slow_again = NOW + SETTINGS.graylist_us
        bench.shards.block(A, Reason.SLOW, Micros(slow_again))
        bench.at(slow_again + SETTINGS.graylist_us)
        [(_, second)] = bench.probes()
        bench.answer(first.request_id)
        assert bench.shards.reason(A) is Reason.PROBING
        bench.answer(second.request_id)
        assert bench.shards.is_available(A)

    def test_only_slow_shards_are_forgiven(self, bench: Bench) -> None:
        bench.shards.block(A, Reason.OVERLOADED, NOW)
        assert not bench.shards.forgive_slow([A, B])
        bench.shards.block(B, Reason.SLOW, NOW)
        assert bench.shards.forgive_slow([A, B, C])
        assert bench.shards.blocked() == [(A, Reason.OVERLOADED)]
        assert not bench.shards.forgive_slow([A, B])

    def test_a_probed_shard_is_forgiven_too(self, bench: Bench) -> None:
        self.on_probe(bench)
        assert bench.shards.forgive_slow([A])
        assert bench.shards.is_available(A)


class TestRefusal:
    def test_it_tells_the_most_common_reason(self, bench: Bench) -> None:
        shards = bench.shards
        shards.block(A, Reason.NO_SPACE, NOW)
        shards.block(B, Reason.NO_SPACE, NOW)
        shards.block(C, Reason.UNROUTABLE, NOW)
        assert shards.refusal([A, B, C]) is Status.NOSPC
        assert shards.refusal([C]) is Status.UNROUTABLE

    def test_a_shard_that_takes_no_writes_counts_as_disabled_and_a_dead_node_as_unroutable(self, bench: Bench) -> None:
        bench.shards.on_config(make_config(read_only=[1]))
        bench.cluster.states[NodeId(2)] = NodeState.DEAD
        bench.shards.on_cluster_state()
        assert bench.shards.refusal([A, B]) is Status.DISABLED
        assert bench.shards.refusal([A, C]) is Status.UNROUTABLE
        assert bench.shards.refusal([B, B, B, C, C]) is Status.DISABLED
        assert bench.shards.refusal([B, B, C, C, C]) is Status.UNROUTABLE

    def test_shards_that_are_available_do_not_count(self, bench: Bench) -> None:
        assert bench.shards.refusal([A, B, C]) is Status.UNROUTABLE
        bench.shards.block(A, Reason.SLOW, NOW)
        assert bench.shards.refusal([A, B, C, ShardId(C)]) is Status.OVERLOADED
