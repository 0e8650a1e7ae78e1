"""Recovery of one epoch, phase by phase, with every answer scripted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from logdevice_py.config.location import Location
from logdevice_py.core.entry import body_of, parse_header
from logdevice_py.core.ids import NodeId, node_of
from logdevice_py.core.lsn import ESN_MAX, Epoch, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.placement.failure_domains import Authority
from logdevice_py.protocol.messages import Clean, Cleaned, CleanedLog, Digest, Seal, Store
from logdevice_py.tables.waits import WaitCause
from sequencer.recovery.recovery_shard import RecoveryShards
from sequencer.recovery.result import Found, RecoveryOutcome, find
from tests.unit.sequencer.recovery.bench import BRIDGE, ENTRY, HOLE, LOG, STREAM, Bench, image, metadata, shard


def sealed_bench(nodes: int = 3, answering: int | None = None, read_only: Iterable[int] = (), **settings: Any) -> Bench:
    """A recovery of epoch 1 on `nodes` shards with two copies, of which the first `answering` are sealed, and some take no new entries."""
    bench = Bench(nodes, **settings)
    bench.read_only = {shard(node) for node in read_only}
    bench.start()
    for node in range(nodes if answering is None else answering):
        bench.sealed(node)
    return bench


def tell(bench: Bench, held: Mapping[int, bytes] | None = None) -> None:
    """Every shard tells what it holds: nothing, unless said."""
    for node in range(bench.nodes):
        bench.digested(node, *([held[node]] if held and node in held else []))


def test_an_empty_epoch_ends_in_a_bridge_on_a_valid_copyset() -> None:
    bench = sealed_bench()
    for node in range(3):
        bench.digested(node)
    stored = bench.stored()
    assert list(stored) == [1]
    assert set(stored[1].values()) == {BRIDGE}
    assert len(stored[1]) == 2
    bench.answer_stores()
    for node in range(3):
        assert bench.cleaned(node)[:7] == (7, 1, 0, 1, 0, 0, 1)
    assert bench.last_clean_epoch_set().tail is None
    assert bench.results[0].outcome is RecoveryOutcome.OK
    assert bench.results[0].authoritative


def test_a_wiped_shard_and_a_slow_one_are_no_proof_that_nothing_was_acknowledged() -> None:
    bench = Bench(3)
    bench.start()
    bench.sealed(0, status=Status.REBUILDING, generation=2)
    bench.sealed(1)
    bench.advance(20 * SECOND)
    # N0 and N2 may have held an entry that N1 never saw.
    assert not bench.take(Store)
    bench.sealed(2)
    bench.digested(1)
    bench.advance(SECOND)
    assert not bench.take(Store)
    bench.digested(2, image(1, copyset=(0, 2)))
    assert bench.stored() == {1: {1: ENTRY, 2: ENTRY}, 2: {1: BRIDGE, 2: BRIDGE}}


def test_a_shard_that_does_not_tell_its_generation_and_rebuilds_is_left_out() -> None:
    bench = Bench(3)
    bench.start()
    bench.sealed(0, status=Status.REBUILDING, generation=0)
    bench.sealed(1)
    bench.sealed(2)
    assert [digest.shard for digest in bench.take(Digest)] == [shard(1), shard(2)]


def test_an_f_majority_gives_stragglers_the_grace_period() -> None:
    bench = sealed_bench(3, 2)
    bench.digested(0)
    bench.digested(1)
    bench.advance(99 * MILLISECOND)
    assert not bench.take(Store)
    bench.advance(MILLISECOND)
    assert bench.stored() == {1: {0: BRIDGE, 1: BRIDGE}}


@pytest.mark.parametrize(("others_took_ms", "grace_ms"), [(80, 100), (140, 140), (700, 500)])
def test_stragglers_get_as_long_again_as_the_others_took_within_limits(others_took_ms: int, grace_ms: int) -> None:
    bench = sealed_bench(3, 2)
    bench.advance(others_took_ms * MILLISECOND)
    bench.digested(0)
    bench.digested(1)
    bench.advance((grace_ms - 1) * MILLISECOND)
    assert not bench.take(Store)
    bench.advance(MILLISECOND)
    assert bench.stored() == {1: {0: BRIDGE, 1: BRIDGE}}


@pytest.mark.parametrize(
    ("limits", "at_once"),
    [
        ({}, [5]),
        ({"mutations_in_flight_max": 2}, [2, 2, 1]),
        ({"mutation_bytes_in_flight_max": 1}, [1, 1, 1, 1, 1]),
    ],
)
def test_so_many_entries_are_stored_at_the_same_time(limits: dict[str, int], at_once: list[int]) -> None:
    bench = sealed_bench(**limits)
    bench.digested(0, *(image(esn, copyset=(0, 1)) for esn in range(1, 5)))
    bench.digested(1)
    bench.digested(2)
    found = []
    while stored := bench.stored():
        found.append(len(stored))
        bench.answer_stores()
    assert found == at_once
    for node in range(3):
        bench.cleaned(node)
    bench.last_clean_epoch_set()
    assert bench.results[0].outcome is RecoveryOutcome.OK


def test_a_digest_that_is_refused_or_not_answered_is_asked_for_again_after_longer_and_longer() -> None:
    bench = sealed_bench(2)
    bench.digested(1)
    bench.digested(0, status=Status.OVERLOADED)
    for pause in (2, 4, 8, 10, 10):
        bench.advance(pause * SECOND - 1)
        assert not bench.take(Digest)
        bench.advance(1)
        assert len(bench.sent) == 1
        bench.take(Digest, 0)
    assert not bench.stored()


def test_cleans_may_come_one_after_the_other_however_long_that_takes_in_all() -> None:
    bench = sealed_bench()
    for node in range(3):
        bench.digested(node)
    assert bench.stored()
    bench.answer_stores()
    for node in range(3):
        bench.advance(9 * SECOND)
        bench.cleaned(node)
    bench.last_clean_epoch_set()
    assert bench.metrics.epoch_restarts == 0
    assert bench.results[0].outcome is RecoveryOutcome.OK


def test_what_the_silence_of_shards_proves_is_known_from_the_first_moment() -> None:
    bench = Bench(3)
    assert not RecoveryShards(LOG, metadata(3, "node:2", 2).history[0], bench).hopes
    bench.lost = {shard(0): Authority.UNAVAILABLE}
    assert RecoveryShards(LOG, metadata(3, "node:2", 2).history[0], bench).hopes


def test_a_shard_that_is_sealed_late_joins_the_digest() -> None:
    bench = sealed_bench(3, 2)
    bench.digested(0)
    bench.sealed(2)
    bench.digested(1)
    bench.digested(2, image(1, copyset=(1, 2)))
    stored = bench.stored()
    assert stored[1][2] == ENTRY
    bench.answer_stores()
    for node in range(3):
        bench.cleaned(node)


def test_gaps_are_plugged_and_plugs_take_the_timestamp_of_the_entry_before() -> None:
    bench = sealed_bench()
    bench.digested(0, image(2), image(5))
    bench.digested(1, image(2))
    bench.digested(2)
    stored = bench.stored()
    kinds = {esn: set(nodes.values()) for esn, nodes in stored.items()}
    # The second entry is where it should be already.
    assert kinds == {1: {HOLE}, 3: {HOLE}, 4: {HOLE}, 5: {ENTRY}, 6: {BRIDGE}}
    stamps = {store.lsn & 0xFFFFFFFF: parse_header(store.image).timestamp for store in bench.stores}
    assert stamps == {1: 1002, 3: 1002, 4: 1002, 5: 1005, 6: 1005}
    body = {body_of(store.image) for store in bench.stores if store.lsn == compose_lsn(1, 5)}
    assert body == {body_of(image(5))}
    assert bench.metrics.digest_bytes > 0
    bench.answer_stores()
    metrics = bench.metrics
    assert (metrics.entries_mutated, metrics.holes_plugged, metrics.bridges_stored) == (1, 3, 1)
    assert (metrics.entries_under_replicated, metrics.digest_bytes) == (0, 0)
    for node in range(3):
        bench.cleaned(node)
    tail = bench.last_clean_epoch_set().tail
    assert tail is not None
    assert (tail.lsn, tail.timestamp) == (compose_lsn(1, 5), 1005)
    result = bench.results[0]
    assert [find(result.epochs, compose_lsn(1, esn)) for esn in (1, 2, 5, 6, 99)] == [
        Found.HOLE,
        Found.ENTRY,
        Found.ENTRY,
        Found.HOLE,
        Found.HOLE,
    ]
    assert find(result.epochs, compose_lsn(0, 1)) is Found.UNKNOWN


def test_the_digest_starts_behind_the_lng_and_the_tail_is_taken_from_the_seal() -> None:
    bench = Bench(3)
    bench.start()
    bench.sealed(0, lng=3, tail=2)
    bench.sealed(1, lng=9, tail=9)
    assert {digest.ranges[0].first for digest in bench.take(Digest)} == {compose_lsn(1, 10)}
    bench.sealed(2)
    assert bench.take(Digest)[0].ranges[0].first == compose_lsn(1, 10)


def test_the_entry_at_the_lng_is_read_when_nobody_knows_its_timestamp() -> None:
    bench = Bench(2)
    bench.start()
    bench.sealed(0, lng=9, tail=8)
    bench.sealed(1)
    assert {digest.ranges[0].first for digest in bench.sent if type(digest) is Digest} == {compose_lsn(1, 9)}
    bench.digested(0)
    bench.digested(1, image(9))
    tail = bench.finish_epoch(0, 1).tail
    assert tail is not None
    assert (tail.lsn, tail.timestamp) == (compose_lsn(1, 9), 1009)


def test_the_lng_of_a_shard_that_died_still_holds() -> None:
    bench = Bench(3)
    bench.start()
    bench.sealed(0, lng=9, tail=9)
    bench.sealed(1)
    bench.peer_down(0)
    bench.sealed(2)
    bench.digested(1)
    bench.digested(2)
    bench.advance(100 * MILLISECOND)
    assert list(bench.stored()) == [10]


def test_too_much_lost_makes_no_plugs_and_no_bridge() -> None:
    bench = Bench(3)
    bench.start()
    bench.sealed(0, status=Status.REBUILDING, generation=2)
    bench.sealed(1, status=Status.REBUILDING, generation=2)
    bench.sealed(2)
    bench.digested(2, image(3, copyset=(1, 2)), image(5, HOLE, seal=1))
    # There is nobody who could keep a second copy. The hole was there before.
    assert bench.stored() == {3: {2: ENTRY}, 5: {2: HOLE}}
    bench.answer_stores()
    assert bench.cleaned(2)[:7] == (7, 1, 0, 5, compose_lsn(1, 3), 1003, 0)
    bench.last_clean_epoch_set()
    result = bench.results[0]
    assert not result.authoritative
    assert find(result.epochs, compose_lsn(1, 3)) is Found.ENTRY
    assert find(result.epochs, compose_lsn(1, 1)) is Found.UNKNOWN
    assert bench.metrics.entries_under_replicated == 2


def test_shards_that_lost_unsynced_writes_keep_what_they_still_have() -> None:
    bench = Bench(3)
    bench.start()
    for node in range(3):
        bench.sealed(node, status=Status.REBUILDING)
    bench.digested(0, status=Status.REBUILDING)
    bench.digested(1, image(1), image(3), status=Status.REBUILDING)
    bench.advance(SECOND)
    assert not bench.take(Store), "the third shard may still show something"
    bench.digested(2, image(4), status=Status.REBUILDING)
    stored = bench.stored()
    assert list(stored) == [1, 3, 4]
    assert all(len(nodes) == 2 for nodes in stored.values())
    bench.answer_stores()
    for node in range(3):
        assert bench.cleaned(node).authoritative == 0
    bench.last_clean_epoch_set()
    assert not bench.results[0].authoritative


def test_entries_behind_the_bridge_of_an_earlier_recovery_become_bridges() -> None:
    """Each becomes a bridge: whoever begins to read there, because the first one is trimmed away, has to learn that the epoch is over."""
    bench = Bench(3, next_epoch=4)
    bench.start(last_clean=2)
    for node in range(3):
        bench.sealed(node, epochs=(3,))
    bench.digested(0, image(1, epoch=3), image(2, BRIDGE, epoch=3, seal=2), epoch=3)
    bench.digested(1, image(1, epoch=3), image(3, epoch=3), epoch=3)
    bench.digested(2, epoch=3)
    kinds = {esn: set(nodes.values()) for esn, nodes in bench.stored().items()}
    assert kinds == {2: {BRIDGE}, 3: {BRIDGE}}
    assert bench.metrics.late_entries_dropped == 1


def test_entries_that_a_later_recovery_kept_outlive_an_older_bridge() -> None:
    bench = Bench(3, next_epoch=6)
    bench.start(last_clean=4)
    for node in range(3):
        bench.sealed(node, epochs=(5,))
    bench.digested(0, image(2, BRIDGE, epoch=5, seal=3), epoch=5)
    bench.digested(1, image(3, epoch=5, seal=4), epoch=5)
    bench.digested(2, epoch=5)
    kinds = {esn: set(nodes.values()) for esn, nodes in bench.stored().items()}
    assert kinds == {1: {HOLE}, 2: {HOLE}, 3: {ENTRY}, 4: {BRIDGE}}


def test_frames_of_write_streams_behind_a_hole_become_holes() -> None:
    bench = sealed_bench()
    bench.digested(0, image(1, STREAM), image(3, STREAM), image(4, ENTRY))
    bench.digested(1, image(1, STREAM))
    bench.digested(2)
    stored = bench.stored()
    assert {esn: set(nodes.values()) for esn, nodes in stored.items()} == {
        2: {HOLE},
        3: {HOLE},
        4: {ENTRY},
        5: {BRIDGE},
    }
    assert stored[3][0] == HOLE, "the shard that holds the frame must not keep it"


def test_copies_of_highest_rank_win() -> None:
    bench = sealed_bench(3)
    bench.digested(0, image(1, HOLE, seal=1, copyset=(0, 2)))
    bench.digested(1, image(1, wave=9))
    bench.digested(2, image(1, HOLE, seal=1, copyset=(0, 2)))
    stored = bench.stored()
    assert set(stored[1].values()) <= {HOLE, BRIDGE}
    assert set(stored[1]) == {0, 1, 2}


def test_without_every_shard_heard_copies_of_sequencers_are_stored_again() -> None:
    bench = sealed_bench(3, 2)
    bench.digested(0, image(1))
    bench.digested(1, image(1))
    bench.advance(100 * MILLISECOND)
    assert bench.stored() == {1: {0: ENTRY, 1: ENTRY}, 2: {0: BRIDGE, 1: BRIDGE}}


def test_there_is_no_bridge_behind_the_last_esn() -> None:
    bench = Bench(2)
    bench.start()
    bench.sealed(0, lng=ESN_MAX, tail=ESN_MAX)
    bench.sealed(1)
    bench.digested(0)
    bench.digested(1)
    assert bench.stored() == {}
    assert bench.cleaned(0)[3] == ESN_MAX


@pytest.mark.parametrize("chunk", [1, 2])
def test_a_digest_comes_in_pieces(chunk: int) -> None:
    bench = sealed_bench(2)
    images = [image(esn) for esn in range(1, 5)]
    for node in (0, 1):
        for at in range(0, 4, chunk):
            bench.digested(node, *images[at : at + chunk], until=at + chunk)
        bench.digested(node)
    assert list(bench.stored()) == [5]


def test_an_unanswered_digest_is_asked_again_from_where_it_was() -> None:
    bench = sealed_bench(2)
    bench.digested(0)
    bench.digested(1, image(1), until=1)
    bench.take(Digest)
    bench.advance(2 * SECOND)
    assert bench.take(Digest)[0].ranges[0].first == compose_lsn(1, 2)


def test_a_damaged_copy_waits_for_a_shard_that_may_have_a_good_one() -> None:
    bench = sealed_bench()
    bench.digested(0, unreadable=(1,))
    bench.digested(1)
    bench.advance(SECOND)
    assert not bench.take(Store)
    assert bench.waits() is WaitCause.DAMAGED
    bench.digested(2, image(1, copyset=(0, 2)))
    stored = bench.stored()
    assert stored[1][2] == ENTRY
    assert len(stored[1]) == 2


def test_a_copy_that_was_damaged_on_the_way_is_asked_for_again() -> None:
    bench = sealed_bench()
    bench.digested(0, image(1), image(2)[:-1] + b"?", image(3))
    bench.digested(1, image(1), image(3))
    bench.advance(SECOND)
    assert not bench.take(Store), "N0 has not told everything"
    assert bench.waits() is WaitCause.F_MAJORITY
    bench.digested(0, image(2), image(3))
    bench.advance(SECOND)
    assert ENTRY in bench.stored()[2].values()


def test_it_waits_for_a_lost_shard_that_may_come_back_with_a_good_one() -> None:
    bench = Bench(4)
    bench.lost = {shard(3): Authority.UNAVAILABLE}
    bench.start()
    for node in range(3):
        bench.sealed(node)
    bench.digested(0, unreadable=(1,))
    bench.digested(1)
    bench.digested(2)
    bench.advance(20 * SECOND)
    assert not bench.take(Store), "N3 may have the other copy"
    assert bench.waits() is WaitCause.DAMAGED
    bench.sealed(3)
    bench.digested(3, image(1, copyset=(0, 3)))
    bench.advance(SECOND)
    assert ENTRY in bench.stored()[1].values()


def test_a_shard_that_said_something_is_waited_for_no_longer_than_its_connection_lasts() -> None:
    """Two shards cannot store an entry three times: they suffice only as all that there is. That the third one is lost is known before its connection breaks."""
    bench = Bench(nodes=4, replication="node:3")
    bench.lost = {shard(3): Authority.UNAVAILABLE}
    bench.start()
    for node in (0, 1, 2):
        bench.sealed(node)
    bench.digested(0, image(1))
    bench.digested(1)
    bench.lost[shard(2)] = Authority.UNAVAILABLE
    bench.recoveries.on_cluster_state(bench.now)
    assert not bench.stored()
    bench.peer_down(2)
    assert bench.stored()


def test_a_lost_shard_that_refuses_what_it_must_store_is_not_waited_for() -> None:
    """It said what it holds, so that it is lost did not matter until then."""
    bench = Bench(nodes=4, replication="node:3")
    bench.lost = {shard(2): Authority.UNAVAILABLE, shard(3): Authority.UNAVAILABLE}
    bench.start()
    for node in (0, 1, 2):
        bench.sealed(node)
    bench.digested(0, image(1))
    bench.digested(1)
    bench.digested(2)
    assert set(bench.stored()[1]) == {0, 1, 2}
    refused = next(store for store in bench.stores if store.shard == shard(2))
    bench.mutated(refused, Status.FAILED)
    bench.digested(0, image(1))
    bench.digested(1)
    assert set(bench.stored()[1]) == {0, 1}


def test_where_a_shard_stands_may_be_learnt_while_it_is_waited_for() -> None:
    bench = Bench(nodes=4, replication="rack:2")
    racks = {shard(node): Location.parse(rack) for node, rack in enumerate(("r1", "r2", "r3", "r3"))}
    bench.location = lambda shard: None if shard in bench.missing else racks[shard]  # type: ignore[method-assign]
    bench.missing = {shard(3)}
    bench.start(config_version=2)
    bench.sealed(0)
    bench.sealed(1)
    assert not bench.take(Digest), "N2 and N3 may stand in two racks"
    bench.missing, bench.config_version = set(), 2
    bench.recoveries.on_shard_status(bench.now)
    bench.end_turn()
    assert [digest.shard for digest in bench.take(Digest)] == [shard(0), shard(1)]


def test_it_does_not_when_nobody_hopes_for_the_lost_shard() -> None:
    bench = Bench(4)
    bench.lost = {shard(3): Authority.UNDERREPLICATION}
    bench.start()
    for node in range(3):
        bench.sealed(node)
    bench.digested(0, unreadable=(1,))
    bench.digested(1)
    bench.digested(2)
    bench.advance(20 * SECOND)
    assert bench.take(Store)


def test_a_position_whose_only_copies_are_damaged_is_neither_stored_nor_plugged() -> None:
    bench = sealed_bench()
    bench.digested(0, image(1), unreadable=(2,))
    bench.digested(1, image(1), unreadable=(2,))
    bench.digested(2)
    assert list(bench.stored()) == [3]
    bench.answer_stores()
    for node in range(3):
        bench.cleaned(node)
    bench.last_clean_epoch_set()
    assert find(bench.results[0].epochs, compose_lsn(1, 2)) is Found.UNKNOWN
    assert bench.metrics.entries_lost == 1


def test_shards_that_cannot_read_an_entry_each_still_prove_where_the_epoch_ends() -> None:
    bench = sealed_bench()
    bench.digested(0, image(1), unreadable=(2,))
    bench.digested(1, image(2), unreadable=(3,))
    bench.digested(2, image(1), image(2), image(3))
    stored = bench.stored()
    assert {esn: set(kinds.values()) for esn, kinds in stored.items()} == {
        1: {ENTRY},
        2: {ENTRY},
        3: {ENTRY},
        4: {BRIDGE},
    }


def test_a_wave_that_times_out_goes_to_others_but_holders_stay() -> None:
    bench = sealed_bench(4)
    bench.digested(0, image(1, copyset=(0, 3)))
    for node in (1, 2, 3):
        bench.digested(node)
    first = bench.stored()[1]
    (other,) = set(first) - {0}
    wave_one = [store for store in bench.stores if store.lsn == compose_lsn(1, 1)]
    for store in bench.stores:
        if store not in wave_one:
            bench.mutated(store)
    bench.advance(500 * MILLISECOND)
    second = bench.stored()[1]
    assert 0 in second, "the holder must get what was decided"
    wave_two = bench.stores
    assert {store.wave for store in wave_two} == {2}
    for store in [*wave_one, *(store for store in wave_two if store.shard != shard(0))]:
        bench.mutated(store)
    assert "MUTATION" in bench.explain(), "the answer to the first wave does not count any more"
    for store in wave_two:
        bench.mutated(store)
    assert "CLEAN:" in bench.explain()
    copysets = {parse_header(store.image).copyset for store in wave_two}
    assert len(copysets) == 1
    assert other in first


def test_a_shard_without_space_is_replaced_at_once() -> None:
    bench = sealed_bench(4)
    for node in range(4):
        bench.digested(node)
    first = bench.stored()[1]
    bench.mutated(bench.stores[0], Status.NOSPC)
    second = bench.stored()[1]
    assert len(second) == 2
    assert next(iter(first)) not in second
    bench.answer_stores()
    assert "CLEAN:" in bench.explain()


def test_a_holder_without_space_is_left_out_of_the_next_attempt() -> None:
    bench = sealed_bench(3)
    bench.digested(0, image(1, copyset=(0, 2)))
    bench.digested(1)
    bench.digested(2)
    bench.stored()
    bench.answer_stores(Status.NOSPC, nodes=(0,))
    bench.digested(1)
    bench.digested(2)
    bench.advance(100 * MILLISECOND)
    assert bench.stored() == {1: {1: ENTRY, 2: ENTRY}, 2: {1: BRIDGE, 2: BRIDGE}}


def test_a_member_that_dies_restarts_at_once_and_what_was_decided_stays() -> None:
    bench = sealed_bench(3)
    bench.digested(0, image(1, copyset=(0, 2)))
    bench.digested(1)
    bench.digested(2)
    old = bench.stored()
    assert old[1][0] == ENTRY
    stores = bench.stores
    bench.peer_down(0)
    assert bench.metrics.epoch_restarts == 1
    # The entry was seen on the dead shard only, and a STORE of it may be on its way: it must not become a hole.
    bench.digested(1)
    bench.digested(2)
    bench.advance(100 * MILLISECOND)
    assert bench.stored() == {1: {1: ENTRY, 2: ENTRY}, 2: {1: BRIDGE, 2: BRIDGE}}
    answered = {(store.lsn, store.shard) for store in stores}
    for store in [*stores, *(store for store in bench.stores if (store.lsn, store.shard) not in answered)]:
        bench.mutated(store)
    assert "MUTATION" in bench.explain(), "answers to the attempt before do not count"
    bench.answer_stores()
    bench.cleaned(1)
    bench.cleaned(2)
    bench.last_clean_epoch_set()
    assert find(bench.results[0].epochs, compose_lsn(1, 1)) is Found.ENTRY


def test_an_lng_that_is_heard_of_later_hides_nothing_from_the_next_attempt() -> None:
    bench = sealed_bench(3, 2)
    for node in (0, 1):
        bench.digested(node, *(image(esn) for esn in (1, 2, 3)))
    bench.advance(100 * MILLISECOND)
    assert list(bench.stored()) == [1, 2, 3, 4]
    bench.answer_stores()
    bench.sealed(2, lng=3)
    bench.peer_down(0)
    # What was decided of the first three is on N0 and N1 only: the members of this attempt must get it.
    asked = [message for message in bench.sent if isinstance(message, Digest)]
    assert [digest.ranges[0].first for digest in asked] == [compose_lsn(1, 1)] * 2
    bench.digested(1, *(image(esn, seal=1) for esn in (1, 2, 3)), image(4, BRIDGE, seal=1))
    bench.digested(2)
    bench.advance(100 * MILLISECOND)
    both = {1: ENTRY, 2: ENTRY}
    assert bench.stored() == {1: both, 2: both, 3: both, 4: {1: BRIDGE, 2: BRIDGE}}
    bench.answer_stores()
    bench.cleaned(1)
    bench.cleaned(2)
    bench.last_clean_epoch_set()
    assert bench.metrics.entries_lost == 0


def test_an_entry_that_turns_up_after_the_first_attempt_becomes_a_bridge() -> None:
    bench = sealed_bench(3, 2)
    bench.digested(0)
    bench.digested(1)
    bench.advance(100 * MILLISECOND)
    assert bench.stored() == {1: {0: BRIDGE, 1: BRIDGE}}
    bench.sealed(2)
    bench.peer_down(0)
    bench.digested(1)
    bench.digested(2, image(1), image(2), image(4))
    bench.advance(100 * MILLISECOND)
    stored = bench.stored()
    assert stored == {esn: {1: BRIDGE, 2: BRIDGE} for esn in range(1, 5)}


def test_a_member_that_is_known_dead_restarts_without_a_broken_connection() -> None:
    bench = sealed_bench(3)
    for node in range(3):
        bench.digested(node)
    bench.stored()
    bench.dead.add(2)  # type: ignore[arg-type]
    bench.recoveries.on_cluster_state(bench.now)
    bench.end_turn()
    assert bench.metrics.epoch_restarts == 1
    assert [digest.shard for digest in bench.take(Digest)] == [shard(0), shard(1)]
    assert not bench.take(Seal)
    bench.advance(SECOND)
    assert [seal.shard for seal in bench.take(Seal)] == [shard(2)], "it may be alive all the same"


def test_a_phase_without_progress_restarts_from_the_sealed_shards() -> None:
    bench = sealed_bench(3)
    for node in range(3):
        bench.digested(node)
    bench.stored()
    bench.answer_stores()
    bench.cleaned(0)
    bench.cleaned(1)
    bench.advance(9 * SECOND)
    assert "CLEAN:" in bench.explain()
    bench.advance(SECOND)
    assert "DIGEST" in bench.explain()
    # The silent shard does not answer DIGEST either: the others go on without it. What they hold needs no second STORE.
    bridge = image(1, BRIDGE, seal=1)
    bench.digested(0, bridge)
    bench.digested(1, bridge)
    bench.advance(100 * MILLISECOND)
    assert bench.stored() == {}
    bench.cleaned(0)
    bench.cleaned(1)
    bench.last_clean_epoch_set()
    assert bench.results[0].outcome is RecoveryOutcome.OK


def test_each_attempt_has_twice_the_time_of_the_one_that_got_stuck() -> None:
    """Else an epoch of which one entry takes longer to be stored than that is never recovered."""
    bench = sealed_bench(3, phase_timeout_us=SECOND, phase_timeout_max_us=3 * SECOND)
    for allowed in (SECOND, 2 * SECOND, 3 * SECOND, 3 * SECOND):
        for node in range(3):
            bench.digested(node)
        assert bench.stored()
        bench.advance(allowed - 1)
        assert "MUTATION" in bench.explain()
        bench.advance(1)
        assert "DIGEST" in bench.explain()
        bench.stored()


def test_a_shard_that_has_left_the_cluster_keeps_nothing_for_others() -> None:
    """What would be stored there goes with it, and the others, which purge then, had it."""
    bench = sealed_bench(4, replication="node:3")
    bench.missing.add(shard(3))
    bench.read_only.add(shard(3))
    for node in (0, 1, 3):
        bench.digested(node, image(1))
    bench.advance(SECOND)
    assert bench.stored() == {}
    bench.digested(2, image(1))
    assert {node for kinds in bench.stored().values() for node in kinds} == {0, 1, 2}


def test_copies_that_cannot_be_read_and_were_never_acknowledged_are_plugged_also_behind_the_bridge() -> None:
    """A read error may pass: what it hid would come to light in a clean epoch."""
    bench = sealed_bench(2, replication="node:2")
    bench.digested(0, image(1), unreadable=(2, 3))
    bench.digested(1, image(1))
    assert bench.stored() == {
        2: {0: BRIDGE, 1: BRIDGE},
        3: {0: BRIDGE, 1: BRIDGE},
    }
    bench.answer_stores()
    assert bench.cleaned(0)[3] == 3


def test_who_holds_a_copy_that_cannot_be_read_gets_what_was_decided() -> None:
    bench = sealed_bench(4, replication="node:2")
    bench.digested(0, image(1), unreadable=(2,))
    bench.digested(1, image(1), unreadable=())
    bench.digested(2, unreadable=(1,))
    bench.digested(3)
    stored = bench.stored()
    assert stored[2][0] == BRIDGE
    assert set(stored[1]) == {0, 1, 2}


def cleaning(**settings: Any) -> Bench:
    """A recovery that has sent every CLEAN."""
    bench = Bench(2, **settings)
    bench.start()
    for node in (0, 1):
        bench.sealed(node)
    for node in (0, 1):
        bench.digested(node)
    bench.stored()
    bench.answer_stores()
    assert "CLEAN:" in bench.explain()
    return bench


def test_a_recovery_that_begins_anew_calls_nothing_clean_that_is_not_sent_yet() -> None:
    """The shard would be called clean by an attempt that was abandoned, and might not be asked by the next one."""
    bench = cleaning(clean_retry_initial_us=400_000, phase_timeout_us=500_000)
    before = bench.take(Clean)
    assert len(before) == 2
    bench.advance(500_000)  # it is to be repeated, and the phase has taken too long
    assert bench.take(Digest)
    assert not bench.take(Clean)
    late = Cleaned(
        request_id=before[0].request_id,
        shard=before[0].shard,
        logs=[CleanedLog(LOG, Epoch(1), Status.OK, Epoch(0), NodeId(-1))],
    )
    bench.deliver(late)
    assert "CLEAN:" not in bench.explain()


def test_a_shard_that_calls_another_epoch_clean_is_not_believed() -> None:
    bench = cleaning()
    for clean in bench.take(Clean):
        bench.deliver(
            Cleaned(
                request_id=clean.request_id,
                shard=clean.shard,
                logs=[CleanedLog(LOG, Epoch(2), Status.OK, Epoch(0), NodeId(-1))],
            )
        )
    assert "CLEAN:" in bench.explain()


def test_a_dead_shard_that_was_cleaned_does_not_restart_anything() -> None:
    bench = sealed_bench(3)
    for node in range(3):
        bench.digested(node)
    bench.stored()
    bench.answer_stores()
    bench.cleaned(0)
    bench.peer_down(0)
    bench.cleaned(1)
    bench.cleaned(2)
    bench.last_clean_epoch_set()
    assert bench.metrics.epoch_restarts == 0


def test_an_unanswered_clean_is_repeated() -> None:
    bench = sealed_bench(2)
    bench.digested(0)
    bench.digested(1)
    bench.stored()
    bench.answer_stores()
    bench.cleaned(0, Status.AGAIN)
    bench.advance(500 * MILLISECOND)
    bench.cleaned(0)
    bench.cleaned(1)
    bench.last_clean_epoch_set()


def test_a_clean_of_an_attempt_that_was_abandoned_does_not_count() -> None:
    bench = sealed_bench(3)
    for node in (0, 1, 2):
        bench.digested(node)
    bench.stored()
    bench.answer_stores()
    bench.peer_down(1)
    bench.advance(SECOND)
    bench.sealed(1)
    for node in (0, 1):
        bench.digested(node)
    bench.advance(10 * SECOND)
    bench.stored()
    bench.answer_stores()
    bench.cleaned(2)
    assert not bench.requests
    bench.cleaned(0)
    bench.cleaned(1)
    bench.last_clean_epoch_set()


def test_an_entry_whose_copies_all_rot_after_it_was_decided_is_lost_and_no_hole() -> None:
    bench = sealed_bench(2)
    for node in (0, 1):
        bench.digested(node, image(1, wave=1))
    bench.stored()
    bench.answer_stores()
    bench.peer_down(1)
    bench.advance(SECOND)
    bench.sealed(1)
    for node in (0, 1):
        bench.digested(node, unreadable=(1,))
    assert 1 not in bench.stored()
    bench.answer_stores()
    bench.cleaned(0)
    bench.cleaned(1)
    bench.last_clean_epoch_set()


def test_a_later_seal_preempts_in_every_phase() -> None:
    for phase in ("seal", "mutation", "clean"):
        bench = Bench(2)
        bench.start()
        if phase == "seal":
            bench.seal_preempted(0, 8, 3)
        else:
            for node in (0, 1):
                bench.sealed(node)
            for node in (0, 1):
                bench.digested(node)
            bench.stored()
            if phase == "mutation":
                bench.mutated(bench.stores[0], Status.PREEMPTED, 8, 3)
            else:
                bench.answer_stores()
                bench.cleaned(1, Status.PREEMPTED, 8, 3)
        (result,) = bench.results
        assert (result.outcome, result.preempted_by_epoch, result.preempted_by_node) == (
            RecoveryOutcome.PREEMPTED,
            8,
            3,
        )
        bench.advance(60 * SECOND)
        assert not bench.take(Store)
        assert not bench.take(Seal) or phase == "seal"


def test_stale_from_the_epoch_store_is_as_good_as_ok() -> None:
    bench = sealed_bench(2)
    bench.digested(0)
    bench.digested(1)
    bench.stored()
    bench.answer_stores()
    bench.cleaned(0)
    bench.cleaned(1)
    bench.last_clean_epoch_set(Status.STALE)
    assert bench.results[0].outcome is RecoveryOutcome.OK


def test_the_epoch_store_is_asked_until_it_answers() -> None:
    bench = sealed_bench(2)
    bench.digested(0)
    bench.digested(1)
    bench.stored()
    bench.answer_stores()
    bench.cleaned(0)
    bench.cleaned(1)
    bench.last_clean_epoch_set(Status.TIMEDOUT)
    assert not bench.results
    bench.advance(SECOND)
    bench.last_clean_epoch_set(Status.OK)
    assert bench.results


def test_read_only_shards_keep_what_nobody_else_can() -> None:
    bench = sealed_bench(3, read_only=(0, 1))
    tell(bench)
    assert len(bench.stored()[1]) == 2


def test_read_only_shards_are_spared_when_others_suffice() -> None:
    bench = sealed_bench(4, read_only=(0, 1))
    tell(bench)
    assert bench.stored() == {1: {2: BRIDGE, 3: BRIDGE}}


@pytest.mark.parametrize(("read_only", "cleaned"), [((0,), (1, 2, 3, 4)), ((0, 1), (0, 1, 2, 3, 4))])
def test_who_knows_the_end_is_an_f_majority(read_only: tuple[int, ...], cleaned: tuple[int, ...]) -> None:
    """Shards that purge meet one that knows it wherever they can hold a copyset. Copies are stored where they may stay."""
    bench = sealed_bench(5, read_only=read_only)
    tell(bench)
    stored = bench.stored()
    assert not {node for kinds in stored.values() for node in kinds}.intersection(read_only)
    bench.answer_stores()
    assert sorted(node_of(clean.shard) for clean in bench.take(Clean)) == list(cleaned)


def test_a_member_that_does_not_say_that_it_knows_the_end_is_done_without() -> None:
    """It may wait for others itself. Of five shards two take no new entries, so all five are told at first."""
    bench = sealed_bench(5, read_only=(0, 4), phase_timeout_us=SECOND)
    tell(bench)
    bench.stored()
    bench.answer_stores()
    for node in (1, 2, 3, 4):
        bench.cleaned(node)
    bench.take(Clean)
    bench.advance(2 * SECOND)
    assert bench.metrics.epoch_restarts == 1
    tell(bench)
    bench.finish_epoch(1, 2, 3, 4)


def test_one_that_was_slow_once_does_not_keep_one_in_that_always_fails() -> None:
    """The first attempt waits for two; both are left out as far as the others suffice, beginning with who fails again."""
    bench = sealed_bench(5, phase_timeout_us=SECOND, phase_timeout_max_us=SECOND)
    for silent in ((0, 1), (0,)):
        tell(bench)
        bench.stored()
        bench.answer_stores()
        for node in sorted({node_of(clean.shard) for clean in bench.sent if type(clean) is Clean} - set(silent)):
            bench.cleaned(node)
        if bench.requests:
            break
        bench.take(Clean)
        bench.advance(2 * SECOND)
    assert bench.metrics.epoch_restarts == 1
    bench.last_clean_epoch_set()


def test_a_read_only_shard_takes_the_place_of_a_writable_one_that_fails() -> None:
    bench = sealed_bench(5, read_only=(4,), phase_timeout_us=SECOND)
    tell(bench)
    bench.stored()
    bench.answer_stores()
    for node in (1, 2, 3):
        bench.cleaned(node)
    bench.take(Clean)
    bench.advance(2 * SECOND)
    tell(bench)
    bench.finish_epoch(1, 2, 3, 4)


def test_a_member_that_refuses_is_done_without() -> None:
    """Its disk is full, and it takes no new entries."""
    bench = sealed_bench(5, read_only=(0, 4))
    tell(bench, {0: image(1, copyset=(0, 1))})
    assert 0 in bench.stored()[1]
    bench.answer_stores(Status.NOSPC, nodes=(0,))
    bench.advance(SECOND)
    bench.sealed(0)  # before the others have told what they hold
    tell(bench, {0: image(1, copyset=(0, 1))})
    bench.finish_epoch(1, 2, 3, 4)


def test_shards_that_are_known_to_be_lost_when_it_begins_are_not_waited_for() -> None:
    bench = Bench(2)
    bench.lost = {shard(node): Authority.UNDERREPLICATION for node in range(2)}
    bench.start()
    bench.advance(SECOND)
    assert bench.last_clean_epoch_set().tail is None
    assert not bench.results[0].authoritative


def test_an_epoch_of_which_nobody_has_anything_ends_without_authority() -> None:
    bench = Bench(2)
    bench.start()
    bench.sealed(0, status=Status.REBUILDING, generation=2)
    bench.sealed(1, status=Status.REBUILDING, generation=2)
    assert bench.last_clean_epoch_set().tail is None
    assert not bench.results[0].authoritative
