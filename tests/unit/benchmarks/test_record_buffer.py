from __future__ import annotations

import asyncio

import pytest

from benchmarks.ldbench.engine import EngineError
from benchmarks.ldbench.record_buffer import RecordBuffer

ONE, TWO, THREE = b"one", b"two", b"three"


async def test_a_batch_that_fits_is_handed_over_as_it_came() -> None:
    buffer = RecordBuffer()
    batch = [ONE, TWO]
    buffer.put(batch)
    taken, used = await buffer.take(2)
    assert taken is batch
    assert used == 1


async def test_batches_are_joined_and_cut_and_counted_when_their_last_record_is_taken() -> None:
    buffer = RecordBuffer()
    buffer.put([ONE, TWO])
    buffer.put([THREE])
    assert await buffer.take(1) == ([ONE], 0)
    assert await buffer.take(5) == ([TWO, THREE], 2)


async def test_a_take_waits_for_a_record_and_a_cancelled_one_takes_none() -> None:
    buffer = RecordBuffer()
    waiting = asyncio.create_task(buffer.take(5))
    await asyncio.sleep(0)
    waiting.cancel()
    buffer.put([ONE])
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await buffer.take(5) == ([ONE], 1)


async def test_what_arrived_before_a_failure_is_delivered_before_it() -> None:
    buffer = RecordBuffer()
    buffer.put([ONE])
    buffer.fail("first")
    buffer.fail("second")
    assert await buffer.take(5) == ([ONE], 1)
    with pytest.raises(EngineError, match="first"):
        await buffer.take(5)


async def test_a_failure_wakes_a_take_that_waits() -> None:
    buffer = RecordBuffer()
    waiting = asyncio.create_task(buffer.take(5))
    await asyncio.sleep(0)
    buffer.fail("gone")
    with pytest.raises(EngineError, match="gone"):
        await waiting
