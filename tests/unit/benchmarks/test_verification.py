"""What a reader may and may not see of what was appended."""

import pytest

from benchmarks.ldbench.payloads import Content, PayloadPool
from benchmarks.ldbench.verification import LogVerifier, WriterLedger, WrongResultError


def ledger(writer: int = 1, *, sent: int = 0) -> WriterLedger:
    made = WriterLedger(PayloadPool(writer, 100, Content.RANDOM, limit=20_000))
    made.take(sent)
    made.on_acknowledged(sent)
    return made


def judge(*ledgers: WriterLedger, ordered: bool = True) -> LogVerifier:
    return LogVerifier(ledgers, ordered=ordered)


def test_everything_in_order_is_right() -> None:
    one = ledger(sent=150)
    verifier = judge(one)
    verifier.feed(one.pool.slice(0, 70))
    assert not verifier.finished()
    verifier.feed(one.pool.slice(70, 80))
    assert verifier.finished()
    assert verifier.finish() == 150


def test_records_beyond_one_turn_of_the_pool_are_told_apart() -> None:
    one = ledger(sent=1_000)
    assert len(one.pool) < 1_000
    verifier = judge(one)
    for at in range(0, 1_000, 30):
        verifier.feed(one.pool.slice(at, min(30, 1_000 - at)))
    assert verifier.finish() == 1_000


def test_a_lost_record_is_found() -> None:
    one = ledger(sent=10)
    verifier = judge(one)
    verifier.feed([*one.pool.slice(0, 4), *one.pool.slice(5, 5)])
    assert not verifier.finished()
    with pytest.raises(WrongResultError, match="1 acknowledged records could not be read, the first is 4"):
        verifier.finish()


def test_a_missing_end_is_found() -> None:
    one = ledger(sent=10)
    verifier = judge(one)
    verifier.feed(one.pool.slice(0, 7))
    with pytest.raises(WrongResultError, match="3 acknowledged records could not be read, the first is 7"):
        verifier.finish()


def test_a_record_that_comes_twice_is_wrong() -> None:
    one = ledger(sent=10)
    verifier = judge(one, ordered=False)
    verifier.feed(one.pool.slice(0, 6))
    with pytest.raises(WrongResultError, match="record 3 of writer 1 is in the log twice"):
        verifier.feed(one.pool.slice(3, 1))


def test_a_changed_record_is_wrong() -> None:
    one = ledger(sent=10)
    first = one.pool.slice(0, 1)[0]
    with pytest.raises(WrongResultError, match="not what was appended"):
        judge(one).feed([first[:-1] + bytes([first[-1] ^ 1])])


def test_a_record_nobody_appended_is_wrong() -> None:
    one = ledger(sent=3)
    with pytest.raises(WrongResultError, match="before it was appended"):
        judge(one).feed(one.pool.slice(0, 4))
    with pytest.raises(WrongResultError, match="unknown writer 9"):
        judge(one).feed(ledger(9).pool.slice(0, 1))
    with pytest.raises(WrongResultError, match="a record of 3 bytes was read"):
        judge(one).feed([b"abc"])


def test_swapped_records_are_wrong_where_order_is_promised_and_counted_where_it_is_not() -> None:
    one = ledger(sent=4)
    a, b, c, d = one.pool.slice(0, 4)
    with pytest.raises(WrongResultError, match="record 1 of writer 1 lies behind record 2"):
        judge(one).feed([a, c, b, d])
    verifier = judge(one, ordered=False)
    verifier.feed([a, c, b, d])
    assert verifier.finish() == 4
    assert verifier.out_of_order == 1


def test_records_that_were_not_acknowledged_may_be_there_or_not_but_once() -> None:
    one = ledger(sent=3)
    first, _ = one.take(4)
    one.on_failed(first, 4)
    verifier = judge(one)
    verifier.feed([*one.pool.slice(0, 3), *one.pool.slice(4, 1)])
    assert verifier.finished()
    assert verifier.finish() == 4
    with pytest.raises(WrongResultError, match="twice"):
        verifier.feed(one.pool.slice(4, 1))


def test_a_late_record_that_was_not_acknowledged_does_not_break_the_order() -> None:
    one = ledger(sent=2)
    first, _ = one.take(1)
    one.on_failed(first, 1)
    one.take(2)
    one.on_acknowledged(2)
    verifier = judge(one)
    verifier.feed([*one.pool.slice(0, 2), *one.pool.slice(3, 2), *one.pool.slice(2, 1)])
    assert verifier.finish() == 5


def test_writers_are_judged_apart() -> None:
    one, two = ledger(1, sent=3), ledger(2, sent=2)
    verifier = judge(one, two)
    mine, yours = one.pool.slice(0, 3), two.pool.slice(0, 2)
    verifier.feed([mine[0], yours[0], yours[1], mine[1]])
    assert verifier.missing == 1
    verifier.feed([mine[2]])
    assert verifier.finish() == 5


def test_a_reader_beside_the_writer_knows_what_it_has_complete() -> None:
    one = ledger(sent=5)
    one.take(5)
    verifier = judge(one)
    verifier.feed(one.pool.slice(0, 5))
    assert verifier.complete_up_to(5)
    assert not verifier.complete_up_to(6)
    assert not verifier.finished()
