"""Whose store is it, how did it stop, and is there space?"""

from __future__ import annotations

import pytest

from logdevice_py.core.ids import Generation, LogId, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import Timestamp
from storage_node.log_store.contents import decode_losses, encode_durable, encode_losses
from storage_node.log_store.directory import Directory
from storage_node.log_store.identity import (
    CorruptMarkerError,
    IdentityVerdict,
    PreviousEnd,
    ShardMarker,
    judge,
    judge_stop,
)
from storage_node.log_store.space import SpaceGuard

CLUSTER = b"c" * 16
SHARD = shard_id(3)  # type: ignore[arg-type]
MARKER = ShardMarker(CLUSTER, SHARD, Generation(2), boot="boot")


class TestJudge:
    @pytest.mark.parametrize(
        ("marker", "empty", "verdict"),
        [
            (MARKER, False, IdentityVerdict.KEEP),
            (None, True, IdentityVerdict.START_AFRESH),
            (None, False, IdentityVerdict.MOVE_ASIDE),
            (ShardMarker(b"x" * 16, SHARD, Generation(2)), False, IdentityVerdict.MOVE_ASIDE),
            (ShardMarker(CLUSTER, shard_id(4), Generation(2)), False, IdentityVerdict.MOVE_ASIDE),  # type: ignore[arg-type]
            (ShardMarker(CLUSTER, shard_id(3, 1), Generation(2)), False, IdentityVerdict.MOVE_ASIDE),  # type: ignore[arg-type]
        ],
    )
    def test_only_its_own_store_is_kept(
        self, marker: ShardMarker | None, empty: bool, verdict: IdentityVerdict
    ) -> None:
        assert judge(marker, empty=empty, cluster=CLUSTER, shard=SHARD).verdict is verdict

    def test_the_reason_names_both_sides(self) -> None:
        foreign = ShardMarker(b"x" * 16, SHARD, Generation(2))
        reason = judge(foreign, empty=False, cluster=CLUSTER, shard=SHARD).reason
        assert (b"x" * 16).hex() in reason
        assert CLUSTER.hex() in reason
        assert "N3:S0" in reason


class TestStop:
    @pytest.mark.parametrize(
        ("marker", "boot", "failed", "stop"),
        [
            (None, "boot", False, PreviousEnd.CLEAN),
            (MARKER.closed(), "other", False, PreviousEnd.CLEAN),
            (MARKER, "boot", False, PreviousEnd.PROCESS_DIED),
            (MARKER, "other", False, PreviousEnd.MACHINE_DIED),
            (MARKER, "", False, PreviousEnd.MACHINE_DIED),
            (MARKER.opened(""), "", False, PreviousEnd.MACHINE_DIED),
            (MARKER, "boot", True, PreviousEnd.MACHINE_DIED),
            (MARKER.closed(), "boot", True, PreviousEnd.MACHINE_DIED),
        ],
    )
    def test_doubt_counts_as_a_machine_that_died(
        self, marker: ShardMarker | None, boot: str, failed: bool, stop: PreviousEnd
    ) -> None:
        assert judge_stop(marker, boot=boot, failed=failed) is stop

    def test_a_loss_of_unknown_begin_starts_at_zero(self) -> None:
        assert decode_losses(None, None, PreviousEnd.MACHINE_DIED, Timestamp(9)) == [(0, 9)]

    def test_a_clock_that_was_set_back_yields_no_inverted_span(self) -> None:
        durable = encode_durable(Timestamp(50))
        assert decode_losses(None, durable, PreviousEnd.MACHINE_DIED, Timestamp(9)) == [(9, 9)]

    def test_many_losses_are_merged_and_none_forgotten(self) -> None:
        losses: list[tuple[Timestamp, Timestamp]] = []
        for time in range(0, 2_000, 10):
            durable = encode_durable(Timestamp(time))
            losses = decode_losses(encode_losses(losses), durable, PreviousEnd.MACHINE_DIED, Timestamp(time + 5))
        assert len(losses) == 64
        assert (losses[0][0], losses[-1]) == (0, (1_990, 1_995))


class TestMarker:
    def test_it_reads_back(self) -> None:
        assert ShardMarker.decode(MARKER.encode()) == MARKER

    @pytest.mark.parametrize("data", [b"", b"\xc1", b"\x01", b"\x97" + b"\x01" * 7, MARKER.encode()[:-3]])
    def test_bytes_that_are_no_marker_are_refused(self, data: bytes) -> None:
        with pytest.raises(CorruptMarkerError):
            ShardMarker.decode(data)


class TestSpaceGuard:
    def test_it_refuses_below_the_limit_and_comes_back_above_a_higher_one(self) -> None:
        guard = SpaceGuard(free_min=1_000, free_min_percent=50, resume_percent=120)
        free = (1_001, 999, 1_001, 1_199, 1_200, 1_001)
        assert [guard.update(value, 10_000) for value in free] == [False, True, True, True, False, False]

    def test_a_small_disk_has_the_smaller_limit(self) -> None:
        guard = SpaceGuard(free_min=1_000, free_min_percent=5, resume_percent=120)
        assert not guard.update(60, 1_000)
        assert guard.update(49, 1_000)


class TestDirectory:
    def test_a_log_is_saved_when_it_comes_and_when_its_begin_moves(self) -> None:
        directory = Directory(save_bytes=1_000)
        directory.note(LogId(1), Lsn(10), 100)
        assert len(directory.pending()) == 1
        directory.saved()
        directory.note(LogId(1), Lsn(11), 100)
        assert not directory.pending()
        directory.note(LogId(1), Lsn(5), 100)
        assert sorted(value is None for value in directory.pending().values()) == [False, True]

    def test_a_log_is_saved_again_after_enough_bytes(self) -> None:
        directory = Directory(save_bytes=1_000)
        saves = 0
        for lsn in range(1, 101):
            directory.note(LogId(1), Lsn(lsn), 100)
            saves += bool(directory.pending())
            directory.saved()
        assert saves == 10

    def test_a_log_without_entries_is_forgotten(self) -> None:
        directory = Directory(save_bytes=1_000)
        directory.note(LogId(1), Lsn(1), 100)
        directory.correct(LogId(1), None)
        assert len(directory) == 0
        assert list(directory.pending().values()) == [None]
