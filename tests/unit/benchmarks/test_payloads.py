"""Payloads that are recognised."""

import zlib

import pytest

from benchmarks.ldbench.payloads import Content, PayloadPool, writer_and_number


def test_payloads_name_their_writer_and_number_and_have_the_size() -> None:
    pool = PayloadPool(7, 100, Content.RANDOM)
    assert {len(payload) for payload in pool.payloads} == {100}
    assert [writer_and_number(payload) for payload in pool.slice(3, 2)] == [(7, 3), (7, 4)]


def test_the_pool_repeats() -> None:
    pool = PayloadPool(1, 1_000, Content.RANDOM, limit=64_000)
    count = len(pool)
    assert pool.slice(count - 1, 3) == [pool.payloads[-1], pool.payloads[0], pool.payloads[1]]
    assert pool.slice(5, 2 * count + 1) == [*pool.payloads[5:], *pool.payloads, *pool.payloads[:6]]


def test_content_can_be_compressed_or_not() -> None:
    packed = {
        content: len(zlib.compress(PayloadPool(1, 100_000, content, limit=100_000).payloads[0])) for content in Content
    }
    assert packed[Content.RANDOM] > 99_000
    assert packed[Content.COMPRESSIBLE] < 40_000


def test_equal_writers_make_equal_payloads() -> None:
    one, two = (PayloadPool(3, 64, Content.COMPRESSIBLE, limit=10_000) for _ in range(2))
    assert one.payloads == two.payloads


def test_a_payload_has_room_for_its_name() -> None:
    PayloadPool(1, 16, Content.RANDOM, limit=1_000)
    with pytest.raises(ValueError, match="no room"):
        PayloadPool(1, 15, Content.RANDOM)
