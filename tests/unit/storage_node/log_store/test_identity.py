"""Whose store is it, how did it stop, and is there space?"""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest

from logdevice_py.core.ids import Generation, LogId, NodeId, shard_id
from logdevice_py.core.lsn import Lsn
from logdevice_py.core.units import Timestamp
from storage_node.log_store.contents import decode_losses, encode_durable, encode_losses
from storage_node.log_store.counting import uncount_repeated
from storage_node.log_store.directory import Directory
from storage_node.log_store.identity import (
    LOSS_NOT_ACCEPTED,
    NO_GENERATION,
    AcceptedLoss,
    CorruptMarkerError,
    IdentityVerdict,
    PreviousEnd,
    ShardMarker,
    judge,
    judge_stop,
    why_damaged,
    why_refused,
)
from storage_node.log_store.interface import PER_ENTRY_BYTES, LogMetadataKind, Purpose, WriteBatch
from storage_node.log_store.space import SpaceGuard

CLUSTER = b"c" * 16
SHARD = shard_id(3)  # type: ignore[arg-type]
MARKER = ShardMarker(CLUSTER, SHARD, Generation(2), boot="boot")


class TestJudge:
    @pytest.mark.parametrize(
        ("marker", "empty", "verdict"),
        [
            (MARKER, False, IdentityVerdict.KEEP),
            (None, True, IdentityVerdict.NEW_GENERATION),
            (None, False, IdentityVerdict.QUARANTINE),
            (ShardMarker(b"x" * 16, SHARD, Generation(2)), False, IdentityVerdict.QUARANTINE),
            (ShardMarker(CLUSTER, shard_id(4), Generation(2)), False, IdentityVerdict.QUARANTINE),  # type: ignore[arg-type]
            (ShardMarker(CLUSTER, shard_id(3, 1), Generation(2)), False, IdentityVerdict.QUARANTINE),  # type: ignore[arg-type]
        ],
    )
    def test_only_its_own_store_is_kept(
        self, marker: ShardMarker | None, empty: bool, verdict: IdentityVerdict
    ) -> None:
        assert judge(marker, empty=empty, cluster=CLUSTER, shard=SHARD).verdict is verdict

    def test_a_store_that_only_has_a_name_is_empty_and_the_name_counts_for_the_shard_that_gave_it(self) -> None:
        named = ShardMarker(CLUSTER, SHARD, NO_GENERATION, birth=b"a disk").opened("boot")
        assert ShardMarker.decode(named.encode()) == named
        own = judge(named, empty=False, cluster=CLUSTER, shard=SHARD)
        assert (own.verdict, own.kept, own.birth) == (IdentityVerdict.NEW_GENERATION, None, b"a disk")
        for cluster, shard in ((b"x" * 16, SHARD), (CLUSTER, shard_id(NodeId(4)))):
            others = judge(named, empty=False, cluster=cluster, shard=shard)
            assert (others.verdict, others.birth) == (IdentityVerdict.NEW_GENERATION, b"")
        assert judge_stop(named, boot="another boot", failed=False) is PreviousEnd.CLEAN

    def test_the_reason_names_both_sides(self) -> None:
        other = ShardMarker(b"x" * 16, SHARD, Generation(2))
        reason = judge(other, empty=False, cluster=CLUSTER, shard=SHARD).reason
        assert (b"x" * 16).hex() in reason
        assert CLUSTER.hex() in reason
        assert "N3:S0" in reason


OLDER = ShardMarker(CLUSTER, SHARD, Generation(1))
OF_ANOTHER_CLUSTER = ShardMarker(b"x" * 16, SHARD, Generation(2))


def refusal(
    found: ShardMarker | None,
    registered: int | None,
    accepted: AcceptedLoss = LOSS_NOT_ACCEPTED,
    *,
    empty: bool = False,
) -> str | None:
    judgement = judge(found, empty=empty, cluster=CLUSTER, shard=SHARD)
    generation = None if registered is None else Generation(registered)
    return why_refused(judgement, generation, accepted, cluster="c", shard=SHARD, directory="/data/shard0")


class TestRefusal:
    def test_a_shard_starts_on_its_own_store_and_a_shard_that_is_new_on_an_empty_one(self) -> None:
        assert refusal(MARKER, 2) is None
        assert refusal(None, None, empty=True) is None

    @pytest.mark.parametrize(
        ("found", "empty", "says"),
        [
            (None, True, "an empty store"),
            (OLDER, False, "generation 1"),
            (OF_ANOTHER_CLUSTER, False, "belongs to cluster"),
        ],
    )
    def test_what_is_not_the_shards_own_is_refused_until_the_loss_of_its_generation_is_accepted(
        self, found: ShardMarker | None, empty: bool, says: str
    ) -> None:
        text = refusal(found, 2, empty=empty)
        assert text is not None
        for part in ("N3:S0", "generation 2", "/data/shard0", says, "--accept-data-loss N3:S0=2"):
            assert part in text
        assert refusal(found, 2, AcceptedLoss.parse(["N4:S0=2"]), empty=empty) == text
        wrong = refusal(found, 2, AcceptedLoss.parse(["N3:S0=1", "N3:S0=3", "N4:S0=2"]), empty=empty)
        assert wrong == text + "\n  --accept-data-loss N3:S0=1, N3:S0=3 accepts nothing: the generation is 2."
        assert refusal(found, 2, AcceptedLoss.parse(["N3:S0=2"]), empty=empty) is None
        assert refusal(found, 2, AcceptedLoss.parse(["all"]), empty=empty) is None

    def test_an_older_state_of_its_own_store_is_refused(self) -> None:
        judgement = judge(replace(MARKER, incarnation=4), empty=False, cluster=CLUSTER, shard=SHARD)

        def refusal(incarnation: int, accepted: AcceptedLoss = LOSS_NOT_ACCEPTED) -> str | None:
            return why_refused(
                judgement, Generation(2), accepted, cluster="c", shard=SHARD, directory="/d", incarnation=incarnation
            )

        assert refusal(4) is None
        text = refusal(5)
        assert text is not None
        for part in ("older state", "state 4", "state 5", "backup", "--accept-data-loss N3:S0=2"):
            assert part in text
        assert refusal(5, AcceptedLoss.parse(["N3:S0=2"])) is None

    def test_an_incarnation_grows_within_a_generation(self) -> None:
        first = MARKER.opened("boot")
        assert (first.incarnation, first.closed().incarnation, first.later().incarnation) == (1, 2, 2)
        assert MARKER.opened("boot", first.closed()).incarnation == 3
        assert ShardMarker(CLUSTER, SHARD, Generation(3)).opened("boot", first).incarnation == 1
        assert ShardMarker.decode(first.encode()) == first
        without = msgpack.packb(msgpack.unpackb(first.encode())[:7])
        older = ShardMarker.decode(without)
        assert (older.incarnation, older.birth) == (0, b""), "of a version that kept none"

    def test_a_new_shard_does_not_push_anothers_data_aside(self) -> None:
        text = refusal(OF_ANOTHER_CLUSTER, None, AcceptedLoss.parse(["N3:S0=1"]))
        assert text is not None
        assert "is new" in text
        assert "--accept-data-loss" not in text

    def test_a_store_that_is_newer_than_the_epoch_store_is_the_epoch_stores_to_judge(self) -> None:
        assert refusal(MARKER, 1) is None
        assert refusal(MARKER, None) is None

    def test_a_store_that_is_damaged_names_the_ways_out(self) -> None:
        def told(registered: int | None, *accepted: str) -> str:
            generation = None if registered is None else Generation(registered)
            consent = AcceptedLoss.parse(accepted)
            return why_damaged("it is torn.", generation, consent, cluster="c", shard=SHARD, directory="/d")

        text = told(2)
        assert text.startswith('N3:S0 of cluster "c" cannot use its store: it is torn.\n')
        for part in (
            "a copy of the files",
            "--accept-data-loss N3:S0=2",
            "as generation 3",
            "quarantined, not deleted",
        ):
            assert part in text
        assert told(2, "N4:S0=1") == text
        assert told(2, "N3:S0=1") == text + "\n  --accept-data-loss N3:S0=1 accepts nothing: the generation is 2."
        assert "all does not cover a store" in told(2, "all")
        assert "--accept-data-loss" not in told(None, "N3:S0=1")
        assert "move what is in /d elsewhere" in told(None)

    @pytest.mark.parametrize("text", ["", "N3", "N3:S0", "N3:S0=", "N3:S0=0", "N3:S256=1", "3=1", "N3:S0=x", "ALL"])
    def test_a_consent_names_a_generation_or_everything(self, text: str) -> None:
        with pytest.raises(ValueError, match="like N2:S0=1, or all"):
            AcceptedLoss.parse([text])


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
    def test_room_for_others_copies_is_what_is_left_above_their_limit(self) -> None:
        guard = SpaceGuard(free_min=1_000, free_min_percent=50, resume_percent=120, rebuilding_percent=200)
        guard.update(5_000, 10_000)
        assert guard.spare == 3_000
        guard.update(1_500, 10_000)
        assert guard.spare == 0

    def test_it_refuses_below_the_limit_and_comes_back_above_a_higher_one(self) -> None:
        guard = SpaceGuard(free_min=1_000, free_min_percent=50, resume_percent=120)
        free = (1_001, 999, 1_001, 1_199, 1_200, 1_001)
        assert [guard.update(value, 10_000) for value in free] == [False, True, True, True, False, False]

    def test_room_is_kept_for_what_is_not_in_files_yet(self) -> None:
        guard = SpaceGuard(free_min=1_000, free_min_percent=5, resume_percent=120, unflushed_max=600)
        assert not guard.update(1_200, 100_000)
        assert guard.soon == 0
        assert guard.update(1_199, 100_000)
        assert not SpaceGuard(free_min=1_000, free_min_percent=5, resume_percent=120, unflushed_max=600).update(
            150, 1_000
        )
        assert SpaceGuard(free_min=1_000, free_min_percent=5, resume_percent=120, unflushed_max=600).update(149, 1_000)
        assert not SpaceGuard(free_min=0, free_min_percent=5, resume_percent=120, unflushed_max=600).update(0, 1_000)

    def test_it_is_measured_again_before_it_can_be_full(self) -> None:
        guard = SpaceGuard(free_min=1_000, free_min_percent=5, resume_percent=120)
        guard.update(1_400, 100_000)
        assert guard.soon == 100

    def test_what_is_essential_may_use_half_of_what_is_kept_free(self) -> None:
        guard = SpaceGuard(free_min=1_000, free_min_percent=50, resume_percent=120)
        ordinary, essential, seal = WriteBatch(), WriteBatch(), WriteBatch()
        for batch in (ordinary, essential):
            batch.put_entry(LogId(1), Lsn(1), by_recovery=False, wave=1, image=b"image")
        essential.purpose = Purpose.ESSENTIAL
        seal.put_log_metadata(LogId(1), LogMetadataKind.SEAL, b"seal")
        refused = []
        for free in (1_000, 999, 500, 499, 500, 1_200):
            guard.update(free, 10_000)
            refused.append((guard.refuses(ordinary), guard.refuses(essential), guard.refuses(seal)))
        yes, no = True, False
        assert refused == [(no, no, no), (yes, no, no), (yes, no, no), (yes, yes, no), (yes, no, no), (no, no, no)]

    def test_what_rebuilding_brings_is_refused_earlier_and_taken_again_later(self) -> None:
        guard = SpaceGuard(free_min=1_000, free_min_percent=50, resume_percent=120, rebuilding_percent=200)
        appended, brought, seal = WriteBatch(), WriteBatch(), WriteBatch()
        for batch in (appended, brought):
            batch.put_entry(LogId(1), Lsn(1), by_recovery=False, wave=1, image=b"image")
        brought.purpose = seal.purpose = Purpose.REBUILDING
        seal.put_log_metadata(LogId(1), LogMetadataKind.SEAL, b"seal")
        refused = {}
        for free in (2_000, 1_999, 1_000, 2_399, 2_400, 999, 1_199, 1_200, 2_401):
            guard.update(free, 10_000)
            refused[free] = (guard.refuses(appended), guard.refuses(brought))
            assert not guard.refuses(seal)
        yes, no = True, False
        assert refused == {
            2_000: (no, no),
            1_999: (no, yes),
            1_000: (no, yes),
            2_399: (no, yes),
            2_400: (no, no),
            999: (yes, yes),
            1_199: (yes, yes),
            1_200: (no, yes),
            2_401: (no, no),
        }

    def test_as_long_as_appends_are_refused_so_is_what_rebuilding_brings(self) -> None:
        guard = SpaceGuard(free_min=1_000, free_min_percent=50, resume_percent=300, rebuilding_percent=110)
        for free in (999, 2_999):
            assert guard.update(free, 10_000)
            assert guard.scarce
        assert not guard.update(3_000, 10_000)
        assert guard.scarce
        guard.update(3_300, 10_000)
        assert not guard.scarce

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

    def test_a_group_that_was_refused_counts_nothing(self) -> None:
        directory = Directory(save_bytes=1_000)
        log = LogId(1)

        def noted(*lsns: int) -> WriteBatch:
            batch = WriteBatch()
            for lsn in lsns:
                batch.put_entry(log, Lsn(lsn), by_recovery=False, wave=1, image=b"x" * 100)
                directory.note(log, Lsn(lsn), 100 + PER_ENTRY_BYTES)
            uncount_repeated(directory, [batch], lambda _, __, lsn: 100 + PER_ENTRY_BYTES if lsn == 10 else 0)
            return batch

        def size() -> int:
            row = directory.find(log)
            return 0 if row is None else row.size

        noted(10)
        directory.saved()
        before = size()
        refused = noted(11, 10, 10)
        assert size() == 2 * before
        directory.refused((log, len(image) + PER_ENTRY_BYTES) for _, _, _, _, image in refused.entries)
        assert size() == before
        noted(11)
        assert size() == 2 * before

    def test_a_log_without_entries_is_forgotten(self) -> None:
        directory = Directory(save_bytes=1_000)
        directory.note(LogId(1), Lsn(1), 100)
        directory.correct(LogId(1), None)
        assert len(directory) == 0
        assert list(directory.pending().values()) == [None]
