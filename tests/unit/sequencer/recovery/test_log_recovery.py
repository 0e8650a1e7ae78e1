"""Recovery of a log: where it begins, how it goes from epoch to epoch, how it ends."""

from __future__ import annotations

import pytest

from epoch_store.interface import LastCleanEpoch, Result
from logdevice_py.config.replication import ReplicationProperty
from logdevice_py.core.ids import Generation, NodeId
from logdevice_py.core.lsn import Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Timestamp
from logdevice_py.metadata.epoch_metadata import EpochInterval, EpochMetaData, TailRecord
from logdevice_py.protocol.messages import EPOCHS_PER_SEALED, Digest, EpochState, Seal, Sealed, SealedLog, Store
from sequencer.recovery.result import RecoveryOutcome
from tests.unit.sequencer.recovery.bench import LOG, Bench, image, shard

TAIL = TailRecord(compose_lsn(1, 4), Timestamp(44))


def test_nothing_is_to_be_done_when_the_epoch_before_is_clean() -> None:
    bench = Bench(next_epoch=3)
    bench.start(last_clean=2, tail=TAIL)
    assert bench.results[0].outcome is RecoveryOutcome.OK
    assert bench.results[0].tail == TAIL
    assert not bench.sent


def test_a_last_clean_epoch_beyond_ours_means_that_another_took_over() -> None:
    bench = Bench(next_epoch=3)
    bench.start(last_clean=3)
    assert bench.results[0].outcome is RecoveryOutcome.PREEMPTED


def test_an_epoch_store_that_is_away_is_asked_again() -> None:
    bench = Bench(next_epoch=3)
    bench.start(last_clean=None)
    bench.store_answers(bench.requests.pop(), Result(Status.AGAIN))
    bench.advance(SECOND)
    bench.store_answers(bench.requests.pop(), Result(Status.OK, LastCleanEpoch(Epoch(2), TAIL)))
    assert bench.results[0].tail == TAIL


def test_epochs_are_recovered_in_order_and_the_tail_is_carried_over_empty_ones() -> None:
    bench = Bench(2, next_epoch=4)
    bench.start(last_clean=1, tail=TAIL)
    for node in (0, 1):
        bench.sealed(node, epochs=(2, 3))
    for epoch, images in ((2, ()), (3, (image(1, epoch=3),))):
        for node in (0, 1):
            bench.digested(node, *images, epoch=epoch)
        assert {store.lsn >> 32 for store in bench.sent if type(store) is Store} == {epoch}
        told = bench.finish_epoch(0, 1)
        assert told.epoch == epoch
        assert told.tail == (TAIL if epoch == 2 else TailRecord(compose_lsn(3, 1), Timestamp(1001), 1))
    assert [recovered.epoch for recovered in bench.results[0].epochs] == [2, 3]


def test_that_nothing_can_be_stored_below_is_told_when_the_last_epoch_is_sealed() -> None:
    bench = Bench(2, next_epoch=4)
    bench.start(last_clean=1)
    for node in (0, 1):
        bench.sealed(node, epochs=(2, 3))
    for node in (0, 1):
        bench.digested(node, epoch=2)
    assert bench.told_sealed == [], "the epochs before the last are not clean yet"
    bench.finish_epoch(0, 1)
    assert bench.told_sealed == [4]
    assert not bench.results


@pytest.mark.parametrize(
    ("last_clean", "asked"),
    [
        (0, {0: [(1, 1)], 1: [(1, 1)], 2: [(4, 1), (7, 5)], 3: [(7, 1)]}),
        (2, {0: [(1, 1)], 1: [(1, 1)], 2: [(4, 1), (7, 5)], 3: [(7, 1)]}),
        (3, {1: [(4, 1)], 2: [(4, 1), (7, 5)], 3: [(7, 1)]}),
        (5, {1: [(4, 1)], 2: [(4, 1), (7, 5)], 3: [(7, 1)]}),
        (6, {2: [(7, 5)], 3: [(7, 1)]}),
    ],
)
def test_the_shards_of_every_epoch_that_is_not_clean_are_sealed_with_their_generations(
    last_clean: int, asked: dict[int, list[tuple[int, int]]]
) -> None:
    nodesets = {1: {0: 1, 1: 1}, 4: {1: 1, 2: 1}, 7: {2: 5, 3: 1}, 13: {4: 1}}
    history = tuple(
        EpochInterval(
            Epoch(since),
            tuple((shard(node), Generation(generation)) for node, generation in nodeset.items()),
            ReplicationProperty.parse("node:2"),
        )
        for since, nodeset in nodesets.items()
    )
    bench = Bench(5, next_epoch=12)
    metadata = EpochMetaData(Epoch(14), history, True, False, NodeId(0))
    bench.recoveries.start(LOG, Epoch(12), metadata, lambda result, now: None, bench.now)
    bench.end_turn()
    bench.store_answers(bench.requests.pop(), Result(Status.OK, LastCleanEpoch(Epoch(last_clean), TAIL)))
    seals = {seal.shard >> 8: seal.logs for seal in bench.take(Seal)}
    assert seals == {node: [(LOG, 11, last_clean, generations)] for node, generations in asked.items()}


def test_an_epoch_that_a_shard_does_not_mention_holds_nothing_there() -> None:
    bench = Bench(2)
    bench.start()
    bench.sealed(0, epochs=())
    bench.sealed(1, epochs=())
    bench.digested(0)
    bench.digested(1)
    assert list(bench.stored()) == [1]


def test_a_seal_answer_that_is_full_does_not_speak_of_later_epochs() -> None:
    bench = Bench(1, "node:1", next_epoch=5002)
    bench.start(last_clean=1)
    seal = bench.take(Seal)[0]
    assert (seal.logs[0].seal_epoch, seal.logs[0].clean_epoch) == (5001, 1)
    recovery = bench.recoveries.recovery(LOG)
    assert recovery is not None
    states = [
        EpochState(Epoch(epoch), Status.OK, Esn(0), Esn(0), Timestamp(0), Lsn(0), Timestamp(0))
        for epoch in range(3, 3 + 4096)
    ]
    row = SealedLog(LOG, Status.OK, Epoch(5001), NodeId(50), Lsn(0), states)
    bench.deliver(Sealed(request_id=seal.request_id, shard=seal.shard, logs=[row]))
    request = recovery._seals[shard(0)]
    assert request.sealed_epoch(Epoch(2)) is not None
    assert request.sealed_epoch(Epoch(4099)) is None


def test_a_shard_whose_answer_ended_before_an_epoch_is_asked_again_from_there() -> None:
    bench = Bench(1, "node:1", next_epoch=4)
    bench.start(last_clean=1)
    bench.sealed(0, epochs=(2,) * EPOCHS_PER_SEALED)
    bench.digested(0, epoch=2)
    bench.finish_epoch(0)
    bench.advance(SECOND)
    assert bench.take(Seal, 0)[-1].logs[0].clean_epoch == 2


def test_epochs_before_the_first_nodeset_hold_nothing() -> None:
    bench = Bench(2, next_epoch=4)
    bench.start(since=3)
    for node in (0, 1):
        bench.sealed(node, epochs=())
    bench.advance(0)
    for node in (0, 1):
        bench.digested(node, epoch=3)
    assert bench.finish_epoch(0, 1).epoch == 3
    assert bench.results


def test_a_cluster_file_without_any_of_the_shards_is_waited_out() -> None:
    bench = Bench(2)
    bench.missing = {shard(0), shard(1)}
    bench.start()
    assert bench.explain() == "NO_SHARDS"
    bench.missing = set()
    bench.recoveries.on_shard_status(bench.now)
    bench.end_turn()
    assert len(bench.take(Seal)) == 2


def test_a_removed_shard_is_not_waited_for() -> None:
    bench = Bench(3)
    bench.missing = {shard(2)}
    bench.start()
    bench.sealed(0)
    bench.sealed(1)
    bench.digested(0)
    bench.digested(1)
    assert bench.stored(), "all that can answer did: there is nothing to wait for"


def test_a_shard_that_a_later_cluster_file_brought_is_not_taken_for_a_removed_one() -> None:
    """Else a node that is behind would store what the epoch holds on fewer shards than asked for, and call it clean."""
    bench = Bench(3, "node:3")
    bench.missing = {shard(2)}
    bench.start(config_version=2)
    bench.sealed(0)
    bench.sealed(1)
    bench.advance(SECOND // 10)
    assert not bench.take(Digest), "two shards alone could not hold an entry of the epoch"
    bench.missing, bench.config_version = set(), 2
    bench.recoveries.on_shard_status(bench.now)
    bench.end_turn()
    bench.sealed(2)
    for node in (0, 1, 2):
        bench.digested(node)
    assert [sorted(nodes) for nodes in bench.stored().values()] == [[0, 1, 2]]


def test_a_removed_shard_is_told_from_a_later_one_when_the_later_cluster_file_comes() -> None:
    bench = Bench(3, "node:3")
    bench.missing = {shard(2)}
    bench.start(config_version=2)
    bench.sealed(0)
    bench.sealed(1)
    bench.config_version = 2
    bench.recoveries.on_shard_status(bench.now)
    bench.end_turn()
    bench.digested(0)
    bench.digested(1)
    assert [sorted(nodes) for nodes in bench.stored().values()] == [[0, 1]]


def test_seals_are_repeated_ever_more_slowly_and_again_when_the_node_returns() -> None:
    bench = Bench(1, "node:1")
    bench.start()
    times = []
    for _ in range(200):
        if bench.take(Seal):
            times.append(bench.now // 100_000)
        bench.advance(100_000)
    assert times == [0, 5, 15, 35, 75, 125, 175]
    bench.peer_down(0)
    assert not bench.take(Seal)
    bench.recoveries.on_peer_up(0, bench.now)  # type: ignore[arg-type]
    bench.end_turn()
    assert bench.take(Seal)


def test_an_aborted_recovery_does_nothing_more() -> None:
    bench = Bench(2)
    bench.start()
    seals = bench.take(Seal)
    bench.recoveries.abort(LOG, bench.now)
    for seal in seals:
        row = SealedLog(LOG, Status.OK, Epoch(1), NodeId(50), Lsn(0), [])
        bench.deliver(Sealed(request_id=seal.request_id, shard=seal.shard, logs=[row]))
    bench.advance(60 * SECOND)
    assert not bench.sent
    assert not bench.results
    assert bench.timers.next_deadline() is None
    assert bench.metrics.log_recoveries_running == 0
