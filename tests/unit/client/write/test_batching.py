"""The open batch of a stream: what fits, when it is full, and the frame that is cut from it."""

from __future__ import annotations

from typing import Any

import pytest

from client.settings import WriterSettings
from client.write.batching import OpenBatch, ends_of
from client.write.frame import ReceiptCollector, Share
from logdevice_py.core.batch import BATCH_OVERHEAD, BYTES_PER_RECORD, decode_batch
from logdevice_py.core.entry import RECORDS_PER_ENTRY_MAX
from logdevice_py.core.record_keys import KEY_OVERHEAD
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import AppendFlags
from tests.unit.client.fakes import FakePromise

MANY = 1 << 20


def batch(trigger: int = 1000, payload_max: int = MANY, **more: Any) -> OpenBatch:
    return OpenBatch(WriterSettings(size_trigger_bytes=trigger, **more), payload_max)


def filled(opened: OpenBatch, *payloads: bytes) -> OpenBatch:
    for payload in payloads:
        opened.add(payload, FakePromise())
    return opened


class TestRoom:
    def test_each_record_takes_its_bytes_and_some(self) -> None:
        opened = filled(batch(), b"abc")
        assert (opened.room, len(opened)) == (1000 - 3 - BYTES_PER_RECORD, 1)
        opened.add(b"d", FakePromise(), b"key")
        assert opened.room == 1000 - 4 - 2 * BYTES_PER_RECORD - 3 - KEY_OVERHEAD

    @pytest.mark.parametrize(("size", "full"), [(999, False), (1000, True), (1001, True)])
    def test_it_is_full_at_its_size(self, size: int, full: bool) -> None:
        assert filled(batch(), bytes(size - BYTES_PER_RECORD)).full is full

    def test_it_is_full_with_as_many_records_as_an_entry_holds(self) -> None:
        opened = batch(MANY, 1 << 25)
        payloads = [b""] * (RECORDS_PER_ENTRY_MAX + 1)
        taken = opened.add_many(payloads, 0, ends_of(payloads), ReceiptCollector(FakePromise(), len(payloads)))
        assert (taken, opened.full) == (RECORDS_PER_ENTRY_MAX, True)
        opened = batch(MANY, 1 << 25)
        opened.add_many(payloads, 2, ends_of(payloads), ReceiptCollector(FakePromise(), len(payloads)))
        assert (len(opened), opened.full) == (RECORDS_PER_ENTRY_MAX - 1, False)

    @pytest.mark.parametrize(("length", "fits"), [(0, True), (1, False)])
    def test_what_the_log_does_not_take_in_one_payload_does_not_fit(self, length: int, fits: bool) -> None:
        limit = 100
        opened = filled(batch(limit, limit), bytes(limit - BATCH_OVERHEAD - 2 * BYTES_PER_RECORD))
        assert opened.fits(length) is fits

    @pytest.mark.parametrize(("size", "fits"), [(60, True), (61, False)])
    def test_an_atomic_batch_fits_up_to_what_the_log_takes(self, size: int, fits: bool) -> None:
        limit = 100 + BATCH_OVERHEAD
        opened = filled(batch(limit, limit), bytes(40 - BYTES_PER_RECORD))
        assert opened.fits_whole(2, size) is fits

    @pytest.mark.parametrize(("count", "fits"), [(RECORDS_PER_ENTRY_MAX - 1, True), (RECORDS_PER_ENTRY_MAX, False)])
    def test_an_atomic_batch_fits_up_to_the_records_of_an_entry(self, count: int, fits: bool) -> None:
        assert filled(batch(), b"a").fits_whole(count, 100) is fits

    def test_a_first_record_always_fits(self) -> None:
        assert batch(100, 100).fits(5000)


class TestMany:
    def take(self, opened: OpenBatch, payloads: list[bytes], start: int = 0, **more: Any) -> int:
        return opened.add_many(
            payloads, start, ends_of(payloads, **more), ReceiptCollector(FakePromise(), 9), more.get("keys")
        )

    def test_as_many_as_fill_it(self) -> None:
        opened = batch(3 * (10 + BYTES_PER_RECORD))
        payloads = [bytes(10)] * 5
        assert self.take(opened, payloads) == 3
        assert (opened.room, opened.full, [span.count for span in opened.spans if isinstance(span, Share)]) == (
            0,
            True,
            [3],
        )
        opened.cut(1, Micros(0))
        assert self.take(opened, payloads, 3) == 2
        assert opened.records == payloads[3:]

    def test_one_that_is_too_large_waits_for_the_next_unless_it_is_the_first(self) -> None:
        opened = batch(200, 250)
        payloads = [bytes(100), bytes(240)]
        assert self.take(opened, payloads) == 1
        assert self.take(opened, payloads, 1) == 0
        opened.cut(1, Micros(0))
        assert self.take(opened, payloads, 1) == 1

    def test_keys_belong_to_the_records_they_came_with(self) -> None:
        opened = filled(batch(), b"before")
        payloads, keys = [b"a", b"b", b"c"], [b"ka", None, b"kc"]
        assert self.take(opened, payloads, 1, keys=keys) == 2
        assert opened.keys == {2: b"kc"}
        assert opened.room == 1000 - 8 - 3 * BYTES_PER_RECORD - 2 - KEY_OVERHEAD


class TestCut:
    def test_one_record_is_its_own_payload(self) -> None:
        frame = filled(batch(), b"alone").cut(7, Micros(5))
        assert (frame.payload, frame.sequence, frame.records, frame.size, frame.cut_at) == (b"alone", 7, 1, 5, 5)
        assert frame.flags == int(AppendFlags.WRITE_STREAM)

    def test_several_are_a_batch_and_it_begins_anew(self) -> None:
        opened = filled(batch(), b"one", b"two")
        opened.synced = True
        frame = opened.cut(1, Micros(0))
        assert (decode_batch(frame.payload, 2), frame.size) == ([b"one", b"two"], 6)
        assert frame.flags == int(AppendFlags.WRITE_STREAM | AppendFlags.BATCH | AppendFlags.SYNC)
        assert (len(opened), opened.room, opened.synced, opened.spans) == (0, 1000, False, [])

    @pytest.mark.parametrize(("payload", "packed"), [(bytes(500), True), (b"x", False)])
    def test_one_record_is_packed_where_that_makes_it_smaller(self, payload: bytes, packed: bool) -> None:
        frame = filled(batch(compression="zstd"), payload).cut(1, Micros(0))
        assert (bool(frame.flags & AppendFlags.BATCH), len(frame.payload) < len(payload)) == (packed, packed)
