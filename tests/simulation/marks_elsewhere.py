"""Marks that seeds are not expected to reach, each with the reason and a test that reaches it."""

from __future__ import annotations

from typing import Final

_DISK: Final = "the simulator has disks of its own: this is the shell of RocksDB"
_HUGE: Final = "takes more epochs, nodesets or entries than a run has"
_RULES: Final = "only somebody who breaks the protocol brings this about"
_STORE: Final = "what the epoch store holds is damaged or lost, which no fault does"
_SHARD = "tests/unit/storage_node"
_RECOVERY = "tests/unit/sequencer/recovery"
_ROCKSDB = "tests/integration/test_rocksdb_store.py::TestService"
_PARTITIONS = "tests/integration/test_rocksdb_partitions.py"
_BROKEN_RULES = "tests/unit/client/read/test_fail_over.py::TestBrokenRules"

MARKS_ELSEWHERE: Final[dict[str, tuple[str, str]]] = {
    "log_store_failed": (_DISK, f"{_ROCKSDB}::test_a_failed_sync_is_final"),
    "log_store_drop_finished": (_DISK, f"{_PARTITIONS}::TestCrash::test_between_the_row_that_drops_and_the_drop"),
    "log_store_begin_undone": (_DISK, f"{_PARTITIONS}::TestCrash::test_between_the_family_and_its_row"),
    "log_store_partition_rewritten": (
        _DISK,
        f"{_PARTITIONS}::TestSpace::test_a_partition_that_one_log_needs_is_rewritten_without_the_others",
    ),
    "retention_trimmed": (
        "retention by time takes longer than a run",
        f"{_SHARD}/test_retention.py::TestAge::test_each_log_is_kept_for_its_own_time",
    ),
    "log_store_no_space": (_DISK, f"{_ROCKSDB}::test_entries_are_refused_without_space_and_markers_are_not"),
    "log_store_space_again": (
        _DISK,
        f"{_SHARD}/log_store/test_identity.py::TestSpaceGuard::test_it_refuses_below_the_limit_and_comes_back_above_a_higher_one",
    ),
    "epoch_store_cell_is_corrupt": (
        _STORE,
        "tests/unit/epoch_store/test_cells.py::test_a_damaged_cell_fails_and_is_never_overwritten",
    ),
    "epoch_store_wiped": (
        _STORE,
        "tests/unit/sequencer/test_activation.py::TestFirstActivation"
        "::test_a_log_whose_metadata_log_is_not_empty_is_not_provisioned",
    ),
    "metadata_history_is_full": (
        _HUGE,
        "tests/unit/epoch_store/test_updaters.py::TestToNextEpoch"
        "::test_a_full_history_keeps_its_interval_and_still_gives_epochs",
    ),
    "nodeset_history_is_full": (
        _HUGE,
        "tests/unit/sequencer/test_activation.py::TestNodesetChanges"
        "::test_a_history_that_is_full_is_no_reason_for_one_epoch_after_the_other",
    ),
    "recovery_no_room_for_bridge": (
        _HUGE,
        f"{_RECOVERY}/test_epoch_recovery.py::test_there_is_no_bridge_behind_the_last_esn",
    ),
    "seal_of_too_many_epochs": (
        _HUGE,
        f"{_SHARD}/test_seal.py::test_of_too_many_epochs_the_earliest_are_told_and_count",
    ),
    "sealed_split": (_HUGE, f"{_SHARD}/test_seal.py::test_an_answer_that_no_frame_could_hold_is_split_by_logs"),
    "recovery_answer_of_other_peer": (
        _RULES,
        f"{_RECOVERY}/test_node_recoveries.py::test_nobody_answers_for_the_shard_of_another_node",
    ),
    "read_gap_leaves_lsns_out": (
        _RULES,
        f"{_BROKEN_RULES}::test_a_gap_that_leaves_lsns_out_says_nothing_about_them",
    ),
    "read_unasked_records": (
        _RULES,
        "tests/unit/client/read/test_read_stream.py::TestFlowControl"
        "::test_a_shard_that_sends_beyond_its_credit_is_not_listened_to",
    ),
    "stream_overtaken": (
        _RULES,
        "tests/unit/client/write/test_outcomes.py::TestGivingUp"
        "::test_a_frame_whose_position_is_known_has_its_receipt_although_the_log_was_removed",
    ),
    "store_image_contradicts_message": (
        _RULES,
        f"{_SHARD}/test_store.py::TestRefusals::test_an_image_of_another_entry_is_refused",
    ),
    "recovery_epoch_without_metadata": (
        "a log's first nodeset holds from its first epoch on",
        f"{_RECOVERY}/test_log_recovery.py::test_epochs_before_the_first_nodeset_hold_nothing",
    ),
}
"""By mark: why no seed reaches it, and the test that does."""
