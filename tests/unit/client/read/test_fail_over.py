"""When shards are trusted again, and what a stream makes of shards that break the rules."""

from __future__ import annotations

from client.read.settings import ReadSettings
from logdevice_py.core.lsn import LSN_MAX
from logdevice_py.protocol.messages import GapReason
from tests.unit.client.read.fakes import BRIDGE, Harness, lsn, make_image, shard, text

SECOND = 1_000_000


def entry(epoch: int, esn: int, payload: bytes = b"x") -> tuple[int, bytes]:
    return lsn(epoch, esn), make_image(lsn(epoch, esn), [payload])


def until(h: Harness, condition: bool, limit_us: int) -> int:
    """Let time pass until all shards are asked for single-copy delivery without (or with) exceptions; how long that took."""
    begin = h.now
    while (h.is_single_copy(0) and not h.known_down(0)) is not condition:
        assert h.now - begin < limit_us, "in vain"
        h.advance(100_000)
    return h.now - begin


class TestTrust:
    settings = ReadSettings(single_copy_retry_us=10 * SECOND, single_copy_retry_us_max=120 * SECOND)

    def begin(self) -> Harness:
        return Harness(first=lsn(1, 1), settings=self.settings).begin()

    def test_several_rewinds_for_one_missing_entry_do_not_put_it_off(self) -> None:
        h = self.begin()
        for _ in range(3):  # asked for their own entries, for everything, and for everything beyond the window
            h.restarted()
            for node in range(3):
                h.gap(node, h.starts[shard(node)].first, lsn(1, 3))
            h.advance(200_000)
        assert text(h.take()) == ["DATALOSS e1n1-e1n3"]
        h.restarted()
        assert until(h, True, 60 * SECOND) <= 13 * SECOND

    def test_a_shard_that_fails_again_soon_after_is_left_out_for_longer(self) -> None:
        h = self.begin()
        pauses = []
        for esn in (1, 3, 5):
            h.records(0, entry(1, esn + 1))
            h.gap(1, h.starts[shard(1)].first, lsn(1, esn + 1))
            until(h, False, 3 * SECOND)  # node 2 says nothing
            assert h.known_down(0) == [2]
            h.restarted()
            h.records(0, entry(1, esn), entry(1, esn + 1))
            for node in (1, 2):
                h.gap(node, h.starts[shard(node)].first, lsn(1, esn + 1))
            pauses.append(until(h, True, 300 * SECOND))
            h.restarted()
        assert pauses[0] < 13 * SECOND < 20 * SECOND <= pauses[1] < 26 * SECOND < 40 * SECOND <= pauses[2]

    def test_a_shard_that_fails_after_a_long_time_is_left_out_as_the_first_time(self) -> None:
        h = self.begin()
        pauses = []
        for _ in range(2):
            h.down(2)
            until(h, False, 3 * SECOND)
            h.up(2)
            h.restarted()
            pauses.append(until(h, True, 300 * SECOND))
            h.restarted()
            h.advance(121 * SECOND)
        assert max(pauses) < 13 * SECOND


class TestBrokenRules:
    def test_shards_that_claim_that_all_epochs_there_can_be_are_released_and_empty_do_not_keep_the_stream_busy(
        self,
    ) -> None:
        h = Harness(first=lsn(1, 1), until=LSN_MAX, single_copy=False).begin()
        for _ in range(2):
            for node in range(3):
                h.gap(node, h.starts[shard(node)].first, LSN_MAX)
            h.history()
            h.advance(200_000)
            h.restarted()
        for node in range(3):
            h.gap(node, h.starts[shard(node)].first, LSN_MAX)
        first = h.take()
        assert 1000 <= len(first) <= 1010
        second = h.take()
        assert len(second) >= 1000
        assert second[0].lo == first[-1].hi + 1  # type: ignore[union-attr]

    def test_an_entry_behind_a_bridge_is_dropped_with_what_it_holds(self) -> None:
        h = Harness(first=lsn(1, 1), single_copy=False).begin()
        h.records(0, entry(1, 2), entry(1, 4, b"behind the end of its epoch"))
        h.records(1, (lsn(1, 1), make_image(lsn(1, 1), flags=BRIDGE, wave=9)))
        assert text(h.take()) == ["BRIDGE e1n1-e2n0"]
        assert h.metrics.bytes_buffered == 0
        assert h.stream.next_lsn == lsn(2, 1)

    def test_a_gap_that_leaves_lsns_out_says_nothing_about_them(self) -> None:
        h = Harness(first=lsn(1, 1), single_copy=False).begin()
        for node in range(3):
            h.gap(node, lsn(1, 2), lsn(1, 3), GapReason.NO_RECORDS)
        assert h.metrics.protocol_violations == 3
        h.advance(60 * SECOND)
        assert not h.take()
