"""What recovery says of the end of a guarded epoch, and when it says that it cannot tell."""

from __future__ import annotations

from google_crc32c import value as crc32c

from logdevice_py.core.entry import Constituent, EntryHeader, encode_body, encode_entry
from logdevice_py.core.extensions import Condition, TailFlags, TailState, encode_extensions
from logdevice_py.core.ids import LogId, ShardId
from logdevice_py.core.lsn import Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import TailRecord
from sequencer.recovery.digest import EpochDigest
from sequencer.recovery.plan import Plan, latest

LOG, EPOCH, SHARD = LogId(1), Epoch(3), ShardId(0)
BEFORE = TailRecord(Lsn(compose_lsn(2, 9)), Timestamp(5), 1, TailState(4, 2), 8)
STATE = TailState(7, 3)


def image(esn: int, state: TailState | None = STATE) -> bytes:
    body = encode_body([Constituent(b"x", 2, 0)])
    extensions = b"" if state is None else encode_extensions(state, Condition(77))
    header = EntryHeader(
        LOG, compose_lsn(EPOCH, esn), Timestamp(esn), 1, (SHARD,), Esn(0), 2, 0, len(body), crc32c(body), extensions
    )
    return encode_entry(header, body)


def tail_of(
    *images: bytes,
    lng: int = 0,
    authoritative: bool = True,
    damaged: tuple[int, ...] = (),
    previous: TailRecord | None = BEFORE,
    guarded: bool = True,
) -> TailRecord | None:
    digest = EpochDigest(LOG, EPOCH)
    for each in images:
        assert digest.add(SHARD, Lsn(int.from_bytes(each[40:48], "big")), each)
    for esn in damaged:
        digest.add(SHARD, Lsn(compose_lsn(EPOCH, esn)), b"")
    plan = Plan(LOG, EPOCH, Epoch(5), Esn(lng), authoritative=authoritative, guarded=guarded)
    plan.decide(
        digest,
        first=True,
        unreadable=[Esn(esn) for esn in damaged],
        sealed_tail=None,
        previous_tail=previous,
    )
    return plan.tail_record


def lost(transaction: int, fence: int) -> TailState:
    return TailState(transaction, fence, int(TailFlags.LOST))


def test_the_last_entry_tells_the_state() -> None:
    last = TailRecord(Lsn(compose_lsn(EPOCH, 2)), Timestamp(2), 2, STATE, 77)
    assert tail_of(image(1, TailState(1)), image(2)) == last
    assert tail_of(image(2), lng=2) == last, "it is read at the LNG"
    assert tail_of() == BEFORE, "an empty epoch changes nothing"
    assert tail_of(previous=None) is None


def test_what_lies_before_the_last_entry_may_be_lost() -> None:
    found = tail_of(image(2), damaged=(1,))
    assert found is not None
    assert found.state == STATE


def test_a_state_that_cannot_be_known_is_not_guessed() -> None:
    for found, state in (
        (tail_of(image(1), damaged=(2,)), lost(7, 3)),
        (tail_of(damaged=(1,)), lost(4, 2)),
        (tail_of(image(1), authoritative=False), lost(7, 3)),
        (tail_of(lng=2), lost(4, 2)),
        (tail_of(image(1, None)), lost(4, 2)),
    ):
        assert found is not None
        assert found.state == state
    nothing = tail_of(damaged=(1,), previous=None)
    assert nothing == TailRecord(Lsn(0), Timestamp(0), state=lost(0, 0))


def test_a_lost_state_stays_lost_over_empty_epochs() -> None:
    before = TailRecord(BEFORE.lsn, BEFORE.timestamp, 1, lost(4, 2))
    assert tail_of(previous=before) == before
    found = tail_of(image(1), previous=before)
    assert found is not None
    assert found.state == STATE, "somebody accepted the loss"


def test_epochs_of_logs_without_guards_say_nothing() -> None:
    found = tail_of(image(1, None), authoritative=False, guarded=False)
    assert found == TailRecord(Lsn(compose_lsn(EPOCH, 1)), Timestamp(1), 2)


def test_of_two_records_the_later_one_counts_and_of_one_entry_the_one_that_says_more() -> None:
    vague = TailRecord(BEFORE.lsn, BEFORE.timestamp)
    later = TailRecord(Lsn(BEFORE.lsn + 1), Timestamp(6))
    for one, other, expected in (
        (BEFORE, vague, BEFORE),
        (vague, BEFORE, BEFORE),
        (BEFORE, later, later),
        (later, BEFORE, later),
        (None, vague, vague),
        (vague, None, vague),
        (None, None, None),
    ):
        assert latest(one, other) is expected
