from __future__ import annotations

import random

import pytest

from client.read.items import Gap, GapKind
from client.read.proof import Comparison, Proof, ProofBuilder, entry_mix
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from tests.unit.client.read.fakes import LOG

Event = tuple[int, int] | Gap


def events_of(seed: int) -> list[Event]:
    """Entries (lsn, crc) and gaps without a hole between them, from LSN 1 on."""
    rng = random.Random(seed)
    at, events = 1, list[Event]()
    for _ in range(30):
        if rng.random() < 0.5:
            events.append((at, rng.getrandbits(32)))
            at += 1
        else:
            last = at + rng.randrange(5)
            events.append(Gap(rng.choice([GapKind.HOLE, GapKind.BRIDGE]), LSN(at), LSN(last)))
            at = last + 1
    return events


def proof_of(first: int, events: list[Event], log: LogId = LOG) -> Proof:
    builder = ProofBuilder(log, first)
    for event in events:
        if isinstance(event, Gap):
            builder.add_gap(event)
        else:
            builder.add_entry(event[0], 2, 10, event[1])
    return builder.build()


@pytest.mark.parametrize("seed", range(20))
def test_proofs_of_touching_ranges_add_up_wherever_they_are_cut(seed: int) -> None:
    events = events_of(seed)
    whole = proof_of(1, events)
    for cut in range(len(events) + 1):
        left = proof_of(1, events[:cut])
        right = proof_of(left.last + 1, events[cut:])
        assert left + right == whole
        assert (left + right).compare(whole) is Comparison.EQUAL


def test_ranges_that_do_not_touch_do_not_add_up() -> None:
    with pytest.raises(ValueError, match="touch"):
        proof_of(1, [(1, 5)]) + proof_of(3, [(3, 5)])


def test_another_body_or_place_is_different() -> None:
    one = proof_of(1, [(1, 5), (2, 6)])
    assert one.compare(proof_of(1, [(1, 6), (2, 5)])) is Comparison.DIFFERENT
    assert one.compare(proof_of(1, [(1, 5), Gap(GapKind.DATALOSS, LSN(2), LSN(2))])) is Comparison.DIFFERENT


def test_another_range_or_log_or_trim_point_is_incomparable() -> None:
    one = proof_of(1, [(1, 5), (2, 6)])
    assert one.compare(proof_of(1, [(1, 5)])) is Comparison.INCOMPARABLE
    assert one.compare(proof_of(1, [(1, 5), (2, 6)], LogId(8))) is Comparison.INCOMPARABLE
    assert one.compare(proof_of(1, [Gap(GapKind.TRIM, LSN(1), LSN(1)), (2, 6)])) is Comparison.INCOMPARABLE


def test_gaps_are_maximal_runs() -> None:
    gaps: list[Event] = [Gap(GapKind.HOLE, LSN(n), LSN(n)) for n in range(1, 5)]
    assert proof_of(1, gaps).gaps == (Gap(GapKind.HOLE, LSN(1), LSN(4)),)


def test_json_holds_no_number_that_does_not_fit_a_double() -> None:
    shown = proof_of(1, [(1, 5), Gap(GapKind.DATALOSS, LSN(2), LSN(3))]).as_json()
    assert shown["last"] == "e0n3"
    assert shown["gaps"] == [{"kind": "dataloss", "lo": "e0n2", "hi": "e0n3"}]
    assert len(shown["checksum"]) == 16


def test_the_mix_spreads_neighbours() -> None:
    mixes = {entry_mix(7, lsn, crc) >> 48 for lsn in range(100) for crc in range(10)}
    assert len(mixes) > 950


def test_it_counts_entries_records_and_bytes() -> None:
    proof = proof_of(1, [(1, 5), Gap(GapKind.HOLE, LSN(2), LSN(3)), (4, 6)])
    assert (proof.first, proof.last, proof.entries, proof.records, proof.bytes) == (1, 4, 2, 4, 20)
