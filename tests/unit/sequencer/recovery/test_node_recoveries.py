"""Many recoveries at one node: limits, merged requests, and answers that nobody waits for."""

from __future__ import annotations

from epoch_store.interface import LastCleanEpoch, Result
from logdevice_py.core.ids import Generation, LogId, NodeId, node_peer
from logdevice_py.core.lsn import Epoch, Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.protocol.messages import (
    LOGS_PER_FRAME,
    Clean,
    Digest,
    Digested,
    DigestedRange,
    LogEntry,
    Mutated,
    Seal,
    Sealed,
    SealedLog,
)
from sequencer.recovery.result import Found, RecoveryOutcome, find
from tests.unit.sequencer.recovery.bench import LOG, Bench, image, parse_lsn, shard


def start_many(bench: Bench, logs: range) -> None:
    """Recoveries of many logs, begun in one turn."""
    for log in logs:
        bench.start(log=LogId(log), last_clean=None)
    for request in list(bench.requests):
        bench.requests.remove(request)
        # The answers come in one turn.
        bench.recoveries.on_epoch_store(request.token, Result(Status.OK, LastCleanEpoch()), bench.now)
    bench.end_turn()


def seal_row(log: LogId) -> SealedLog:
    return SealedLog(log, Status.OK, Epoch(1), NodeId(50), Lsn(0), [])


def test_requests_of_many_logs_to_one_shard_share_frames() -> None:
    bench = Bench(1, "node:1", concurrent_log_recoveries=1000)
    start_many(bench, range(1, LOGS_PER_FRAME + 101))
    seals = bench.take(Seal)
    assert [len(seal.logs) for seal in seals] == [LOGS_PER_FRAME, 100]
    for seal in seals:
        rows = [seal_row(row.log) for row in seal.logs]
        bench.deliver(Sealed(request_id=seal.request_id, shard=seal.shard, logs=rows, generation=Generation(1)))
    digests = bench.take(Digest)
    assert [len(digest.ranges) for digest in digests] == [LOGS_PER_FRAME, 100]


def test_the_answer_of_one_frame_is_split_among_the_logs() -> None:
    bench = Bench(1, "node:1")
    start_many(bench, range(1, 4))
    (seal,) = bench.take(Seal)
    # A node may answer one request by several frames.
    for row in seal.logs:
        bench.asked.on_answer(
            node_peer(seal.shard),
            Sealed(request_id=seal.request_id, shard=seal.shard, logs=[seal_row(row.log)]),
            bench.now,
        )
    assert len(bench.asked) == 0, "every row of the request was answered"
    bench.end_turn()
    (digest,) = bench.take(Digest)
    images = {
        1: [image(1, log=1, copyset=(0,))],
        2: [],
        3: [image(1, log=3, copyset=(0,)), image(2, log=3, copyset=(0,))],
    }
    bench.deliver(
        Digested(
            request_id=digest.request_id,
            shard=digest.shard,
            ranges=[DigestedRange(each.log, Status.OK, each.last) for each in digest.ranges],
            entries=[LogEntry(LogId(log), parse_lsn(one), len(one)) for log, ones in images.items() for one in ones],
            images=b"".join(one for ones in images.values() for one in ones),
        )
    )
    bench.stored()
    assert sorted((store.log, store.lsn & 0xFFFFFFFF) for store in bench.stores) == [(1, 2), (2, 1), (3, 3)]


def test_only_so_many_run_at_the_same_time_and_the_rest_follow_in_order() -> None:
    bench = Bench(1, "node:1", concurrent_log_recoveries=2)
    start_many(bench, range(1, 5))
    assert [row.log for row in bench.take(Seal)[0].logs] == [1, 2]
    assert bench.metrics.log_recoveries_queued == 2
    bench.recoveries.abort(LogId(3), bench.now)
    bench.recoveries.abort(LogId(1), bench.now)
    assert bench.recoveries.logs() == [2, 4]


def test_none_is_started_while_those_in_progress_hold_too_much() -> None:
    bench = Bench(1, "node:1", digest_memory_bytes_max=1)
    bench.start()
    bench.sealed(0)
    bench.digested(0, image(1, copyset=(0,)), until=1)
    assert bench.metrics.digest_bytes > 1
    bench.start(log=LogId(9), last_clean=None)
    assert bench.metrics.log_recoveries_queued == 1
    bench.digested(0)
    bench.finish_epoch(0)
    assert bench.metrics.digest_bytes == 0
    assert bench.recoveries.logs() == [9]
    assert bench.metrics.log_recoveries_queued == 0


def test_an_answer_counts_only_for_the_latest_request() -> None:
    bench = Bench(1, "node:1")
    bench.start()
    (first,) = bench.take(Seal)
    bench.advance(SECOND)
    (second,) = bench.take(Seal)
    bench.deliver(Sealed(request_id=first.request_id, shard=first.shard, logs=[seal_row(LOG)]))
    assert not bench.take(Digest)
    bench.deliver(Sealed(request_id=second.request_id, shard=second.shard, logs=[seal_row(LOG)]))
    assert bench.take(Digest)


def test_an_answer_from_before_the_connection_broke_does_not_count() -> None:
    bench = Bench(1, "node:1")
    bench.start()
    (seal,) = bench.take(Seal)
    bench.peer_down(0)
    bench.deliver(Sealed(request_id=seal.request_id, shard=seal.shard, logs=[seal_row(LOG)]))
    assert not bench.take(Digest)


def test_nobody_answers_for_the_shard_of_another_node() -> None:
    bench = Bench(2, "node:1")
    bench.start()
    seal = bench.take(Seal, 0)[0]
    bench.deliver(Sealed(request_id=seal.request_id, shard=seal.shard, logs=[seal_row(LOG)]), peer=1)
    bench.deliver(Sealed(request_id=seal.request_id, shard=seal.shard, logs=[seal_row(LOG)]), peer=-4)
    assert not bench.take(Digest)


def test_nobody_says_for_the_shard_of_another_node_that_it_stored_an_entry() -> None:
    bench = Bench(1, "node:1")
    bench.start()
    bench.sealed(0)
    bench.digested(0)
    assert bench.stored()
    (store,) = bench.stores
    for peer in (1, -4):
        bench.mutated(store, peer=peer)
    assert not bench.take(Clean)
    bench.mutated(store)
    assert bench.take(Clean)


def test_answers_about_unknown_logs_are_ignored() -> None:
    bench = Bench(1, "node:1")
    bench.start()
    bench.deliver(
        Mutated(
            recovery_id=1,
            log=LogId(99),
            lsn=Lsn(5),
            shard=shard(0),
            wave=1,
            status=Status.OK,
            seal_epoch=Epoch(0),
            seal_node=NodeId(-1),
        )
    )
    assert not bench.recoveries.on_epoch_store(12345, None, bench.now)  # type: ignore[arg-type]


def test_a_new_activation_replaces_a_recovery_that_has_not_begun_to_recover() -> None:
    bench = Bench(1, "node:1")
    bench.start(last_clean=None)
    bench.next_epoch = 3
    bench.start()
    seals = [row for seal in bench.take(Seal) for row in seal.logs]
    assert [row.seal_epoch for row in seals] == [2]
    assert bench.recoveries.logs() == [LOG]


def test_activations_that_come_faster_than_recovery_do_not_keep_a_log_from_being_recovered() -> None:
    """A log whose epochs are short, each cut off by the next one, has its earlier epochs recovered all the same."""
    bench = Bench(1, "node:1")
    bench.start()
    bench.sealed(0)
    for epoch in (3, 4, 5):
        bench.next_epoch = epoch
        bench.start(last_clean=None)
    bench.next_epoch = 2
    bench.digested(0, image(1, copyset=(0,)))
    done = bench.finish_epoch(0)
    assert done.epoch == 1
    # The one of the latest activation follows; those between them are not needed.
    (request,) = bench.requests
    bench.store_answers(request, Result(Status.OK, LastCleanEpoch(Epoch(1), done.tail)))
    seals = [row for seal in bench.take(Seal) for row in seal.logs]
    assert [row.seal_epoch for row in seals] == [4]
    assert [(result.next_epoch, result.outcome) for result in bench.results] == [(2, RecoveryOutcome.OK)]


def followed() -> Bench:
    """A recovery for epoch 2 that has digested all, and is followed by one for epoch 3."""
    bench = Bench(1, "node:1")
    bench.start()
    bench.sealed(0)
    bench.next_epoch = 3
    bench.start(last_clean=None)
    bench.next_epoch = 2
    bench.digested(0, image(1, copyset=(0,)))
    return bench


def test_a_recovery_that_follows_another_one_knows_what_that_one_found() -> None:
    bench = followed()
    bench.finish_epoch(0)
    (request,) = bench.requests
    bench.store_answers(request, Result(Status.OK, LastCleanEpoch(Epoch(2), None)))
    result = bench.results[-1]
    assert result.next_epoch == 3
    assert find(result.epochs, compose_lsn(1, 1)) is Found.ENTRY
    assert find(result.epochs, compose_lsn(1, 3)) is Found.HOLE


def test_what_is_found_is_handed_on_over_several_recoveries() -> None:
    bench = followed()
    done = bench.finish_epoch(0)
    bench.next_epoch = 3
    bench.store_answers(bench.requests.pop(), Result(Status.OK, LastCleanEpoch(Epoch(1), done.tail)))
    bench.sealed(0, epochs=(2,))
    bench.next_epoch = 4
    bench.start(last_clean=None)
    bench.next_epoch = 3
    bench.digested(0, epoch=2)
    done = bench.finish_epoch(0)
    assert done.epoch == 2
    bench.store_answers(bench.requests.pop(), Result(Status.OK, LastCleanEpoch(Epoch(3), done.tail)))
    result = bench.results[-1]
    assert result.next_epoch == 4
    assert find(result.epochs, compose_lsn(1, 1)) is Found.ENTRY
    assert find(result.epochs, compose_lsn(2, 1)) is Found.HOLE


def test_a_recovery_follows_one_that_a_sequencer_between_the_two_has_preempted() -> None:
    bench = Bench(1, "node:1")
    bench.start()
    bench.next_epoch = 9
    bench.start(last_clean=None)
    bench.seal_preempted(0, epoch=5, by=7)
    assert [(result.next_epoch, result.outcome) for result in bench.results] == [(2, RecoveryOutcome.PREEMPTED)]
    (request,) = bench.requests
    bench.store_answers(request, Result(Status.OK, LastCleanEpoch(Epoch(0), None)))
    assert [row.seal_epoch for seal in bench.take(Seal) for row in seal.logs] == [8]


def test_an_abort_stops_the_recovery_that_follows_too() -> None:
    bench = Bench(1, "node:1")
    bench.start()
    bench.next_epoch = 3
    bench.start(last_clean=None)
    bench.recoveries.abort(LOG, bench.now)
    assert bench.recoveries.logs() == []
    assert not bench.requests


def wait(bench: Bench, seconds: int) -> None:
    """Timers fire on the way."""
    for _ in range(seconds):
        bench.advance(SECOND)


def test_a_recovery_that_waits_for_shards_that_are_away_lets_others_take_their_turn() -> None:
    bench = Bench(1, "node:1", concurrent_log_recoveries=1)
    bench.start()
    bench.start(log=LogId(9), last_clean=None)
    wait(bench, 9)
    assert bench.recoveries.running() == [LOG]
    wait(bench, 1)
    assert bench.recoveries.running() == [9]
    bench.take(Seal)
    wait(bench, 60)
    assert not bench.take(Seal), "who rests asks nobody"
    bench.recoveries.abort(LogId(9), bench.now)
    bench.end_turn()
    assert bench.recoveries.running() == [LOG]
    bench.start(log=LogId(11), last_clean=None)
    wait(bench, 10)
    assert bench.recoveries.running() == [11], "it lets others take their turn again"
    bench.recoveries.abort(LogId(11), bench.now)
    bench.end_turn()
    assert bench.recoveries.running() == [LOG]
    bench.sealed(0)
    bench.digested(0)
    bench.finish_epoch(0)
    assert bench.results[-1].outcome is RecoveryOutcome.OK


def test_a_recovery_that_can_only_wait_holds_no_memory_that_others_want() -> None:
    bench = Bench(3, "node:2", digest_memory_bytes_max=1)
    bench.start()
    bench.sealed(0)
    bench.sealed(1)
    bench.digested(0, image(1))
    assert bench.metrics.digest_bytes > 1
    bench.start(log=LogId(9), last_clean=None)
    assert bench.recoveries.running() == [LOG]
    wait(bench, 15)
    assert bench.metrics.digest_bytes == 0
    assert bench.recoveries.running() == [9, LOG]
    bench.take(Digest)
    bench.sealed(0)
    bench.sealed(1)
    bench.digested(0, image(1))
    bench.digested(1, image(1))
    wait(bench, 1)
    bench.finish_epoch(0, 1)
    assert bench.results[-1].outcome is RecoveryOutcome.OK


def test_a_recovery_that_hears_from_shards_keeps_its_turn() -> None:
    bench = Bench(2, "node:1", concurrent_log_recoveries=1)
    bench.start()
    bench.start(log=LogId(9), last_clean=None)
    wait(bench, 9)
    bench.sealed(0)
    wait(bench, 9)
    assert bench.recoveries.running() == [LOG]
    wait(bench, 6)
    assert bench.recoveries.running() == [9]


def test_what_shards_told_a_recovery_before_it_rested_does_not_count_any_more() -> None:
    bench = Bench(2, "node:2", concurrent_log_recoveries=1)
    bench.start()
    bench.sealed(0)
    late = bench.take(Seal, 1)[-1]
    bench.start(log=LogId(9), last_clean=None)
    wait(bench, 15)
    bench.recoveries.abort(LogId(9), bench.now)
    bench.end_turn()
    bench.deliver(Sealed(request_id=late.request_id, shard=late.shard, logs=[seal_row(LOG)]))
    assert not bench.take(Digest)
    bench.sealed(0)
    bench.sealed(1)
    assert len(bench.take(Digest)) == 2


def test_shards_that_are_lost_while_a_recovery_rests_are_not_waited_for_when_it_goes_on() -> None:
    bench = Bench(2, "node:2", concurrent_log_recoveries=1)
    bench.start()
    bench.start(log=LogId(9), last_clean=None)
    wait(bench, 10)
    assert bench.recoveries.running() == [9]
    bench.lost = {shard(node): Authority.UNDERREPLICATION for node in range(2)}
    bench.recoveries.abort(LogId(9), bench.now)
    bench.end_turn()
    wait(bench, 1)
    assert bench.last_clean_epoch_set().tail is None
    assert not bench.results[-1].authoritative


def test_a_recovery_that_rests_is_followed_by_that_of_a_later_activation_and_can_be_abandoned() -> None:
    bench = Bench(1, "node:1", concurrent_log_recoveries=1)
    bench.start()
    bench.start(log=LogId(9), last_clean=None)
    wait(bench, 10)
    assert bench.recoveries.logs() == [9, LOG]
    bench.next_epoch = 3
    bench.start(last_clean=None)
    assert bench.recoveries.logs() == [9, LOG]
    assert bench.metrics.log_recoveries_queued == 1
    bench.recoveries.abort(LOG, bench.now)
    assert bench.recoveries.logs() == [9]
