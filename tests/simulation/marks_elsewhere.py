"""Marks that seeds are not expected to reach, or not in ten of ten thousand, each with the reason and a test that reaches it."""

from __future__ import annotations

from typing import Final

_DISK: Final = "the simulator has disks of its own: this is the shell of RocksDB"
_HUGE: Final = "takes more epochs, nodesets or entries than a run has"
_RULES: Final = "only somebody who breaks the protocol brings this about"
_STORE: Final = "what the epoch store holds is damaged or lost, which no fault does"
_OTHER_CLIENTS: Final = "the client of this repository does not do this; the protocol lets others do it"
_NODESETS: Final = "takes more nodes or scopes than a cluster of the simulator has"
_SHARD = "tests/unit/storage_node"
_ROCKSDB_STORE = "tests/integration/test_rocksdb_store.py"
_PLACEMENT = "tests/unit/logdevice_py/placement"
_RECOVERY = "tests/unit/sequencer/recovery"
_ROCKSDB = "tests/integration/test_rocksdb_store.py::TestService"
_REWRITING = "tests/integration/test_rocksdb_rewriting.py"
_PARTITIONS = "tests/integration/test_rocksdb_partitions.py"
_SELDOM: Final = "comes about in one of a hundred seeds of rebuilding mode, or fewer"
_EVENT_LOG = "tests/unit/logdevice_py/event_log/test_rebuilding_set.py"
_REPLICA = "tests/unit/server/event_log/test_replica.py"
_REPLICAS = "tests/unit/client/replica/test_command_replica.py"
_SHARD_STATUS = "tests/unit/server/event_log/test_shard_status.py::TestParts"
_DIRTY = f"{_SHARD}/repair/test_dirty_ranges.py::TestRepair"
_RARE_DIRTY = "comes together with a power cut that took something in few seeds"
_GIVING = f"{_SHARD}/rebuilding/test_rebuilding.py::TestGiving"
_STRICT: Final = "the workload of the swarm neither ends logs nor orders them strictly; other workloads do"
_ORDER = "tests/unit/sequencer/test_strict_order.py"
_GUARDS: Final = "the workload of the swarm guards no appends; other workloads do"
_GUARDED = "tests/unit/sequencer/test_guarded_appends.py"
_ROLLS: Final = "takes logs that roll, which tests/simulation/segments.py has and no profile of the swarm"
_ROLLING = "tests/unit/sequencer/test_rolling.py"
_EXTENTS: Final = (
    "the swarm stores in memory what RocksDB would; tests/simulation/test_extents.py runs a few seeds on extents"
)
_EXTENT_STORE = f"{_SHARD}/log_store/test_extent_store.py"
_RECYCLING = f"{_EXTENT_STORE}::TestSpace::test_extents_that_nothing_refers_to_are_used_again_or_go"
_EXTENT_CRASHES = f"{_SHARD}/log_store/test_extent_crashes.py"
_TAKING_PART = "tests/history/test_rebuilding_begins_when_all_take_part.py"
_VERSIONS: Final = "no node of the swarm is of an earlier version"
_HEDGING = "tests/unit/client/read/test_hedging.py"
_AUDIT: Final = "nodes of the swarm keep no audit log"
_AUDITED = "tests/unit/server/audit/test_audit_log.py"
_QUOTAS: Final = "the swarm sets no quotas; tests/simulation/test_quotas.py does"
_BROKEN_RULES = "tests/unit/client/read/test_fail_over.py::TestBrokenRules"

MARKS_ELSEWHERE: Final[dict[str, tuple[str, str]]] = {
    "copy_taken_back": (
        "takes a log with extra copies that does not sync, as one seed in fifty has",
        "tests/unit/sequencer/test_extra_copies.py::TestTakenBack::test_what_was_not_synced_when_the_connection_broke",
    ),
    "read_order_not_known": (
        _VERSIONS,
        "tests/unit/client/read/test_reading_near.py::TestConversation::test_a_shard_that_does_not_know_what_an_order_is_ends_it_for_a_while",
    ),
    "losses_await_all_nodes": (
        _VERSIONS,
        f"{_TAKING_PART}::test_nobody_is_lost_while_a_living_node_takes_no_part",
    ),
    "lost_shard_of_an_absentee_is_back": (
        _VERSIONS,
        f"{_TAKING_PART}::test_a_rebuilt_node_that_goes_back_to_the_version_before_counts_as_it_is",
    ),
    "region_is_not_rebuilt": (
        "one in a hundred seeds has regions and loses a node for good",
        "tests/unit/server/event_log/test_event_writer.py::TestRegions::test_one_that_is_gone_as_a_whole_is_left_to_a_person",
    ),
    "read_unasked_hedge": (
        _RULES,
        f"{_HEDGING}::TestAnswers::test_a_shard_that_sends_what_nobody_asked_for_is_not_listened_to",
    ),
    "read_corrupt_hedge": (
        "damage is rarely in the entries that a hedge asks for",
        f"{_HEDGING}::TestWhen::test_when_nobody_has_it_the_next_attempt_begins_at_once",
    ),
    "audit_log_behind": (_AUDIT, f"{_AUDITED}::TestTrims::test_too_many_that_wait_are_refused"),
    "audit_lines_left_out": (
        _AUDIT,
        f"{_AUDITED}::TestRefusals::test_a_flood_is_counted_and_others_are_still_written",
    ),
    "digest_over_quota": (
        _OTHER_CLIENTS,
        f"{_SHARD}/reading/test_read_quotas.py::test_digests_of_a_client_are_read_from_its_quota",
    ),
    "append_throttled": (
        _QUOTAS,
        "tests/unit/sequencer/test_quotas.py::TestRefusals::test_what_is_over_the_quota_is_refused_and_not_applied_and_told_when",
    ),
    "client_append_throttled": (
        _QUOTAS,
        "tests/unit/client/test_quotas.py::TestDirectAppends::test_it_is_tried_again_when_the_sequencer_says",
    ),
    "stream_throttled": (
        _QUOTAS,
        "tests/unit/client/test_quotas.py::TestWriteStreams::test_it_waits_as_long_as_it_is_told_then_goes_on_in_order",
    ),
    "read_stream_throttled": (
        _QUOTAS,
        f"{_SHARD}/reading/test_read_quotas.py::test_a_stream_that_waits_says_so_and_can_be_closed",
    ),
    "seq_states_go_on_next_turn": (
        _OTHER_CLIENTS,
        "tests/unit/sequencer/test_seq_state.py::TestManyRequests::test_a_new_epoch_answers_some_in_each_turn",
    ),
    "reader_asks_for_a_later_epoch": (
        "permissions are off in the swarm",
        "tests/unit/sequencer/test_seq_state.py::TestThoseWhoOnlyRead::test_an_epoch_that_was_never_given_costs_none",
    ),
    "reader_sent_to_who_has_the_log": (
        "permissions are off in the swarm",
        "tests/unit/sequencer/test_seq_state.py::TestThoseWhoOnlyRead::test_they_take_no_log_from_the_node_that_has_it",
    ),
    "write_stream_of_another_principal": (
        "permissions are off in the swarm",
        "tests/simulation/test_permissions.py::test_a_write_stream_belongs_to_its_principal",
    ),
    "subscription_of_a_deleted_stream_goes": (
        "the workload of the swarm has no namespaces",
        "tests/integration/test_stream_subscriptions.py::test_positions_follow_a_stream_that_is_renamed_and_go_with_it",
    ),
    "fence_raised": (_GUARDS, f"{_GUARDED}::TestGuards::test_a_fence_refuses_lower_and_missing_tokens"),
    "log_ended": (_GUARDS, f"{_GUARDED}::TestGuards::test_nothing_follows_the_end"),
    "conditional_append_repeated": (
        _GUARDS,
        f"{_GUARDED}::TestRepetition::test_a_repeated_append_is_answered_as_the_first_try",
    ),
    "read_end_of_log": (
        _STRICT,
        "tests/unit/client/read/test_read_stream.py::TestDelivery::test_who_follows_a_log_comes_to_its_end",
    ),
    "withheld_answer_given": (_STRICT, f"{_ORDER}::TestAnswers::test_the_end_of_recovery_says_as_much"),
    "too_many_answers_withheld": (_STRICT, f"{_ORDER}::TestAnswers::test_memory_is_bounded"),
    "log_is_strictly_ordered": (_STRICT, f"{_ORDER}::TestPromise::test_the_attribute_makes_an_epoch_that_keeps_it"),
    "log_store_failed": (_DISK, f"{_ROCKSDB}::test_a_failed_sync_is_final"),
    "log_store_drop_finished": (_DISK, f"{_PARTITIONS}::TestCrash::test_between_the_row_that_drops_and_the_drop"),
    "log_store_begin_undone": (_DISK, f"{_PARTITIONS}::TestCrash::test_between_the_family_and_its_row"),
    "log_store_chore_failed": (
        _DISK,
        f"{_PARTITIONS}::TestSpace::test_chores_that_come_too_late_leave_everything_as_it_is",
    ),
    "flush_repeated": (
        _DISK,
        "tests/integration/test_rocksdb_flushing.py::test_a_file_that_is_damaged_as_it_is_written_is_written_again",
    ),
    "log_store_partition_rewritten": (
        _DISK,
        f"{_PARTITIONS}::TestSpace::test_a_partition_that_one_log_needs_is_rewritten_without_the_others",
    ),
    "log_store_files_damaged": (_DISK, f"{_REWRITING}::test_a_damaged_file_is_replaced_when_what_it_lost_is_restored"),
    "log_store_damage_rewritten": (
        _DISK,
        f"{_REWRITING}::test_a_damaged_file_is_replaced_when_what_it_lost_is_restored",
    ),
    "log_store_body_damaged": (
        _DISK,
        "tests/integration/test_rocksdb_large_entries.py::TestDamagedFiles::test_a_damaged_body_is_told_for_itself_and_restored",
    ),
    "log_store_rewriting_waits": (
        _DISK,
        f"{_REWRITING}::test_a_damaged_file_stays_as_long_as_something_of_it_is_not_restored",
    ),
    "extents_checkpoint": (_EXTENTS, _RECYCLING),
    "extents_indexed": (_EXTENTS, _RECYCLING),
    "extents_retired": (_EXTENTS, _RECYCLING),
    "extents_prepared_late": (_EXTENTS, _RECYCLING),
    "extents_no_room": (_EXTENTS, f"{_EXTENT_STORE}::TestSpace::test_the_last_extent_is_kept_for_what_must_be_written"),
    "extents_chore_without_space": (
        _EXTENTS,
        f"{_EXTENT_STORE}::TestSpace::test_no_chore_fails_the_store_for_lack_of_space",
    ),
    "extents_overloaded": (
        _EXTENTS,
        f"{_EXTENT_STORE}::TestFailing::test_writes_are_refused_while_too_much_waits_for_a_sync",
    ),
    "extents_index_made_anew": (
        _EXTENTS,
        f"{_EXTENT_STORE}::TestDamage::test_an_index_that_rots_is_made_anew_from_the_blocks",
    ),
    "extents_index_damaged": (
        _EXTENTS,
        f"{_EXTENT_STORE}::TestDamage::test_one_that_is_lost_while_the_store_is_closed_is_made_anew",
    ),
    "extents_torn_end": (_EXTENTS, _EXTENT_CRASHES),
    "extents_torn_bodies": (_EXTENTS, _EXTENT_CRASHES),
    "extents_torn_head_wiped": (
        _EXTENTS,
        f"{_EXTENT_STORE}::TestTornBlocks::test_it_may_be_all_that_calls_the_block_before_it_synced",
    ),
    "log_store_torn_log": (_DISK, f"{_REWRITING}::TestWriteAheadLog::test_a_power_cut_may_have_torn_it"),
    "log_store_current_repaired": (_DISK, "tests/integration/test_damaged_files.py::test_current_is_written_again"),
    "dirty_range_has_an_end": (
        _RARE_DIRTY,
        f"{_SHARD}/repair/test_dirty_ranges.py::TestEndOfTheRange::test_the_sequencer_of_the_open_epoch_tells_it",
    ),
    "repair_beside_rebuilt_shard": (
        _RARE_DIRTY,
        f"{_DIRTY}::test_a_shard_whose_copies_were_all_re_replicated_is_not_waited_for",
    ),
    "repair_met_damage": (_RARE_DIRTY, f"{_DIRTY}::test_a_copy_that_cannot_be_read_is_left_to_repair"),
    "repair_not_authoritative": (
        _RARE_DIRTY,
        f"{_DIRTY}::test_what_several_lost_at_once_is_reported_as_lost_when_all_have_answered",
    ),
    "repair_of_what_was_not_given_here": (
        _RARE_DIRTY,
        f"{_DIRTY}::test_where_the_shard_was_given_nothing_there_is_nothing_to_lose",
    ),
    "repair_without_history": (_RARE_DIRTY, f"{_DIRTY}::test_without_the_whole_history_nothing_is_decided"),
    "repair_write_refused": (_RARE_DIRTY, f"{_DIRTY}::test_what_has_no_room_is_tried_again"),
    "event_log_stored_before_it_is_read": (
        _SELDOM,
        f"{_SHARD}/writing/test_drain_mark.py::test_it_takes_what_the_event_log_needs_until_it_has_read_that",
    ),
    "rebuilding_dirty_range": (
        _SELDOM,
        f"{_GIVING}::test_a_donor_that_may_have_lost_entries_in_a_crash_says_so",
    ),
    "donor_awaits_space": (
        "takes so many full disks that a nodeset has no place left",
        f"{_GIVING}::test_when_all_shards_are_full_the_donor_comes_back_until_they_have_space",
    ),
    "donor_lost_what_it_was_to_give": (
        _SELDOM,
        f"{_EVENT_LOG}::test_a_donor_that_lost_what_it_was_to_give_does_not_end_the_round",
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
    "history_is_trimmed": (
        _HUGE,
        "tests/unit/sequencer/test_history_trim.py"
        "::test_what_is_trimmed_everywhere_goes_with_the_next_change_of_nodeset",
    ),
    "trimmed_history_left_out": (
        _HUGE,
        "tests/unit/epoch_store/test_updaters.py::TestToNextEpoch"
        "::test_what_is_trimmed_is_left_out_when_an_interval_is_added_and_only_then",
    ),
    "read_before_history": (
        _HUGE,
        "tests/unit/client/read/test_read_stream.py::TestDelivery"
        "::test_what_lies_before_a_history_that_begins_later_is_trimmed",
    ),
    "purge_of_epoch_before_history": (
        _HUGE,
        "tests/unit/storage_node/epochs/test_purge.py::TestPurge"
        "::test_an_epoch_before_the_history_is_trimmed_and_holds_nothing_up",
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
        f"{_SHARD}/epochs/test_seal.py::test_of_too_many_epochs_the_earliest_are_told_and_count",
    ),
    "sealed_split": (_HUGE, f"{_SHARD}/epochs/test_seal.py::test_an_answer_that_no_frame_could_hold_is_split_by_logs"),
    "answer_of_another": (
        _RULES,
        "tests/unit/logdevice_py/protocol/test_requests.py"
        "::TestHostileAnswers::test_what_was_not_asked_or_not_of_them_changes_nothing",
    ),
    "recovery_answer_of_other_peer": (
        _RULES,
        f"{_RECOVERY}/test_node_recoveries.py::test_nobody_says_for_the_shard_of_another_node_that_it_stored_an_entry",
    ),
    "read_gap_leaves_lsns_out": (
        "what a shard sends first must be lost because its node was refused by the reader's a moment ago, and begin with records: in one of a thousand seeds",
        f"{_BROKEN_RULES}::test_a_gap_that_leaves_lsns_out_says_nothing_about_them",
    ),
    "stream_overtaken": (
        _RULES,
        "tests/unit/client/write/test_outcomes.py::TestAborting"
        "::test_a_frame_whose_position_is_known_has_its_receipt_although_the_log_was_removed",
    ),
    "store_image_contradicts_message": (
        _RULES,
        f"{_SHARD}/writing/test_store.py::TestRefusals::test_an_image_of_another_entry_is_refused",
    ),
    "recovery_epoch_without_metadata": (
        "a log's first nodeset holds from its first epoch on",
        f"{_RECOVERY}/test_log_recovery.py::test_epochs_before_the_first_nodeset_hold_nothing",
    ),
    "log_store_corrupt_marker": (
        _DISK,
        f"{_ROCKSDB_STORE}::TestIdentity::test_data_beside_a_marker_that_cannot_be_read_is_quarantined",
    ),
    "log_store_write_delayed": (
        _DISK,
        f"{_ROCKSDB_STORE}::test_writes_are_refused_while_rocksdb_does_not_keep_up_with_its_files",
    ),
    "log_store_write_stalled": (
        _DISK,
        f"{_ROCKSDB_STORE}::test_writes_are_refused_while_rocksdb_does_not_keep_up_with_its_files",
    ),
    "log_store_warmer_failed": (
        _DISK,
        f"{_ROCKSDB}::test_a_process_for_warming_that_cannot_work_is_started_a_few_times",
    ),
    "log_store_read_bodiless": (
        "shards store an AMEND only together with its body; the store does not rely on it",
        "tests/conformance/test_log_store.py",
    ),
    "amend_of_another_body": (
        _RULES,
        f"{_SHARD}/writing/test_store.py::TestSeals::test_an_amend_does_not_take_the_body_of_something_else",
    ),
    "client_too_many_redirects": (
        "nodes that send a request around are told within a few hops to serve it",
        "tests/unit/client/append/test_append_request.py::TestRedirects"
        "::test_nodes_that_send_an_append_around_for_ever_are_left_alone_for_a_while",
    ),
    "placement_policy_refused": (
        "no profile of the swarm has a policy of somebody else's",
        f"{_PLACEMENT}/test_cluster_placement.py::test_a_nodeset_that_would_not_do_is_refused_and_weighted_chooses",
    ),
    "copyset_chosen_domain_by_domain": (
        _NODESETS,
        f"{_PLACEMENT}/test_copyset.py::test_a_property_that_throws_hardly_ever_meet_is_met_all_the_same",
    ),
    "nodeset_completed_domain_by_domain": (
        _NODESETS,
        f"{_PLACEMENT}/test_nodeset.py"
        "::test_a_rack_that_only_its_read_only_shard_stood_for_gets_a_writable_one_where_the_property_needs_it",
    ),
    "epoch_store_behind_sequencer": (
        _STORE,
        "tests/unit/sequencer/test_seq_state.py::TestTail::test_and_when_it_answers_with_less_than_we_know",
    ),
    "recovery_seal_answer_too_short": (
        _HUGE,
        f"{_RECOVERY}/test_log_recovery.py::test_a_shard_whose_answer_ended_before_an_epoch_is_asked_again_from_there",
    ),
    "split_append_stored_in_part": (
        "takes a client that has not heard that the log gives each record its LSN, and a seal between the records of one frame",
        "tests/unit/sequencer/test_append_path.py::TestWithoutBatching"
        "::test_a_batch_of_which_the_last_record_is_stored_after_one_failed_may_be_applied",
    ),
    "split_append_not_told_whole": (
        _HUGE,
        "tests/unit/sequencer/test_append_path.py::TestWithoutBatching"
        "::test_an_answer_about_thousands_of_entries_fits_a_frame_and_counts_all",
    ),
    "recovery_cleaned_unasked": (
        _RULES,
        f"{_RECOVERY}/test_epoch_recovery.py::test_a_shard_that_calls_another_epoch_clean_is_not_believed",
    ),
    "read_history_in_part": (
        "takes damage to all copies of a log's latest metadata record and to none of an earlier one",
        "tests/unit/client/read/test_read_stream.py::TestNodesets"
        "::test_epochs_of_which_the_nodesets_cannot_be_read_are_waited_for",
    ),
    "purge_without_metadata": (
        "a metadata entry is stored in full before anything of its epoch is released, and damaged copies of it count as missing answers",
        f"{_SHARD}/epochs/test_purge.py::TestPurge::test_a_history_without_the_epoch_is_read_again",
    ),
    "stale_after_activation": (
        "an answer of the epoch store would have to be overtaken by the activation of another node and by a client that met it",
        "tests/unit/sequencer/test_append_path.py::TestStaleSequencer"
        "::test_an_epoch_that_was_never_given_is_refused_after_one_activation",
    ),
    "metadata_log_not_authoritative": (
        "shards would have to lose their data before a log gets its first epoch, and once more, or the epoch store to fail, while it gets it",
        "tests/unit/sequencer/test_activation.py::TestFirstActivation"
        "::test_a_metadata_log_that_shards_have_lost_is_not_read_when_nobody_wants_the_log_any_more",
    ),
    "recovery_entry_gone": (
        "all copies of an entry above the LNG would have to rot between two attempts of one recovery",
        f"{_RECOVERY}/test_epoch_recovery.py"
        "::test_an_entry_whose_copies_all_rot_after_it_was_decided_is_lost_and_no_hole",
    ),
    "recovery_no_shards": (
        "takes a cluster file without any shard of a nodeset: nothing is left to check",
        f"{_RECOVERY}/test_log_recovery.py::test_a_cluster_file_without_any_of_the_shards_is_waited_out",
    ),
    "release_hint_beyond_clean_epochs": (
        "a disk keeps a release pointer and loses the CLEAN that was synced before it: disks of the simulator lose what came last",
        f"{_SHARD}/epochs/test_purge.py::TestRelease::test_a_hint_beyond_the_clean_epochs_only_fences",
    ),
    "write_stream_frame_repeated": (
        _OTHER_CLIENTS,
        "tests/unit/sequencer/test_append_path.py::TestWriteStreams"
        "::test_a_repeated_number_gets_its_first_position_and_is_stored_once",
    ),
    "epoch_store_is_behind_shard": (
        _STORE,
        "tests/unit/epoch_store/test_lagging_server.py"
        "::test_a_shard_is_not_refused_because_a_server_has_not_heard_of_its_registration",
    ),
    "fetched_copy_is_damaged": (
        "shards check what they read before they send it, and frames have checksums: only a shard's memory could damage it",
        f"{_SHARD}/repair/test_repair.py::TestDamagedCopies::test_a_damaged_answer_is_not_stored",
    ),
    "rebuild_store_is_damaged": (
        "as for copies that are fetched",
        f"{_SHARD}/rebuilding/test_rebuilding.py::TestTakingCopies::test_a_copy_that_is_damaged_or_not_for_this_shard_is_refused",
    ),
    "log_store_restored_is_damaged": (
        _DISK,
        f"{_REWRITING}::test_what_was_restored_and_is_damaged_again_is_restored_once_more",
    ),
    "look_up_non_authoritative": (
        "too many shards would have to lose the same part of a log, and a look-up to come before anybody says that it is lost",
        "tests/unit/client/look_up/test_find_request.py"
        "::test_when_too_many_lost_their_data_everybody_who_is_left_is_heard",
    ),
    "epoch_ends_go_on": (_HUGE, f"{_SHARD}/epochs/test_epoch_ends.py::TestReaders::test_very_many_are_told_bit_by_bit"),
    "retention_stops_before_bridge": (
        "takes a log at whose tail nothing is appended for longer than it keeps its records, or that lost what it knew of an epoch's end",
        f"{_SHARD}/retention/test_retention.py::TestBridges::test_a_bridge_that_is_the_tail_stays",
    ),
    "rebuilding_once_more": (
        "takes an operator who asks again when records have no place",
        f"{_EVENT_LOG}::test_what_was_left_undone_is_tried_once_more_when_somebody_asks",
    ),
    "donor_takes_copies_of_an_earlier_round": (
        _SELDOM,
        f"{_GIVING}::test_a_copy_of_a_donor_that_has_not_heard_of_a_drain_is_given_too",
    ),
    "seal_goes_on_later": (
        _HUGE,
        f"{_SHARD}/epochs/test_seal.py::TestMuchAtOnce::test_is_answered_over_several_turns_and_in_turns",
    ),
    "seals_queued_too_many": (
        _RULES,
        f"{_SHARD}/epochs/test_seal.py::TestMuchAtOnce::test_is_refused_when_too_much_is_queued",
    ),
    "replica_may_not_read": (
        "the swarm has no permissions",
        f"{_REPLICAS}::TestPermission::test_who_may_not_read_is_told_once_and_goes_on_when_it_may",
    ),
    "drained_shard_is_lost": (_SELDOM, f"{_EVENT_LOG}::test_a_shard_that_dies_while_it_is_drained_is_lost"),
    "drained_shard_takes_records": (
        "takes ten seconds in which too few live",
        "tests/unit/server/event_log/test_exclusion.py::test_so_does_a_drained_one",
    ),
    "drained_shard_is_needed": (
        "takes ten seconds in which too few live",
        "tests/unit/server/event_log/test_event_writer.py::test_a_drained_shard_without_which_too_few_live_is_drained_once_more",
    ),
    "drained_shard_is_back": (
        _SELDOM,
        f"{_EVENT_LOG}::test_a_shard_that_was_lost_while_it_was_drained_and_is_back_is_drained_further",
    ),
    "earlier_generations_stay_rebuilt": (
        _SELDOM,
        f"{_EVENT_LOG}::test_what_an_earlier_generation_held_stays_rebuilt_when_the_later_one_is_used_again",
    ),
    "called_off_already": (
        _SELDOM,
        f"{_EVENT_LOG}::test_who_says_twice_that_it_is_back_does_not_end_its_draining",
    ),
    "donor_was_removed": (
        "no node is taken out of the cluster file in rebuilding mode",
        "tests/unit/server/event_log/test_event_writer.py::test_nobody_waits_for_donors_that_left_the_cluster_file",
    ),
    "event_log_lost_events": (
        "nothing is lost in rebuilding mode",
        f"{_REPLICA}::test_what_is_no_event_and_what_is_lost_leaves_the_state_as_it_is",
    ),
    "event_log_record_is_no_event": (
        _RULES,
        f"{_REPLICA}::test_what_is_no_event_and_what_is_lost_leaves_the_state_as_it_is",
    ),
    "event_log_snapshot_is_none": (
        _RULES,
        f"{_REPLICA}::test_a_snapshot_that_was_late_does_not_count_when_it_says_less_than_is_trimmed",
    ),
    "event_log_snapshot_of_the_future": (
        _RULES,
        f"{_REPLICA}::test_a_snapshot_that_goes_further_than_the_log_counts_for_nothing",
    ),
    "replica_record_is_refused": (
        "takes a cluster of thousands of shards",
        f"{_REPLICA}::test_what_the_log_does_not_take_stops_nobody",
    ),
    **{
        mark: ("the swarm keeps no state machines of applications", f"{_REPLICAS}::{test}")
        for mark, test in {
            "replica_command_is_repeated": "TestProposals::test_what_fails_is_appended_again_and_applied_once",
            "replica_command_is_appended_again": "TestProposals::test_what_fails_is_appended_again_and_applied_once",
            "replica_command_is_too_old": "TestRequests::test_a_copy_that_comes_after_it_was_forgotten_is_refused",
            "replica_proposal_is_forgotten": "TestRequests::test_a_request_of_an_application_is_not",
            "replica_snapshot_record_is_skipped": "TestSnapshots::test_a_chunk_that_is_lost_leaves_the_other_snapshot",
            "replica_chunk_is_missing": "TestSnapshots::test_a_chunk_that_is_lost_leaves_the_other_snapshot",
            "replica_snapshot_is_never_committed": "TestSnapshots::test_of_snapshots_without_end_only_a_few_are_put_together",
            "replica_snapshot_of_the_future": "TestSnapshots::test_a_snapshot_that_goes_further_than_the_log_counts_for_nothing",
            "replica_state_is_too_large": "TestSnapshots::test_a_state_that_is_too_large_has_none",
            "replica_skips_what_is_no_command": "TestRequests::test_a_base_that_lies_ahead_is_none",
            "replica_stops_at_a_loss": "TestLosses::test_nothing_is_applied_behind_one",
        }.items()
    },
    "event_log_entry_makes_room": (
        _RULES,
        f"{_EVENT_LOG}::TestWhatAnybodyMaySay::test_invented_shards_are_bounded_and_make_room_for_those_of_the_cluster",
    ),
    "event_log_invention_forgotten": (
        _RULES,
        f"{_EVENT_LOG}::TestWhatAnybodyMaySay::test_inventions_are_forgotten_and_those_that_are_left_look_again",
    ),
    "invented_shards_are_refuted": (
        _RULES,
        "tests/unit/server/event_log/test_event_writer.py::TestInventedShards",
    ),
    "event_names_too_many_candidates": (
        _RULES,
        f"{_EVENT_LOG}::TestWhatAnybodyMaySay"
        "::test_an_event_that_names_more_than_fit_beside_those_who_have_to_give_is_refused",
    ),
    "event_of_unknown_shard": (
        _RULES,
        f"{_EVENT_LOG}::TestWhatAnybodyMaySay::test_an_event_of_a_shard_that_it_does_not_name_among_all_is_refused",
    ),
    "shard_status_begun_anew": (
        "takes thousands of lost shards",
        f"{_SHARD_STATUS}::test_one_that_was_lost_is_not_made_up_for_by_those_of_another_version_or_node",
    ),
    "recovery_learns_where_shards_stand": (
        "takes a sequencer that recovers by an older cluster file than the one that brought a shard of the nodeset",
        f"{_RECOVERY}/test_epoch_recovery.py::test_where_a_shard_stands_may_be_learnt_while_it_is_waited_for",
    ),
    "recovery_without_failing_member": (
        "takes a shard that tells what it holds and does nothing else for as long as an attempt lasts",
        f"{_RECOVERY}/test_epoch_recovery.py::test_a_member_that_does_not_say_that_it_knows_the_end_is_done_without",
    ),
    "purge_beside_rebuilding": (
        "takes a shard that is rebuilt, one that left the cluster, and one that missed the recovery of an epoch of both",
        f"{_SHARD}/epochs/test_purge.py::TestPurge::test_a_shard_whose_rebuilding_waits_for_the_purge_is_not_waited_for",
    ),
    "clean_of_epoch_recovered_twice": (
        "takes a sequencer that dies while it says how an epoch ended",
        f"{_SHARD}/epochs/test_purge.py::TestClean::test_a_later_recovery_of_a_clean_epoch_takes_the_place_of_the_first",
    ),
    "purge_without_lost_shard": (
        "takes the loss of all shards that know how an epoch ended, and one that missed it",
        f"{_SHARD}/epochs/test_purge.py::TestPurge::test_who_is_unrecoverable_is_not_waited_for",
    ),
    "rebuilding_history_incomplete": (
        "takes damage to all copies of a log's metadata record",
        f"{_GIVING}::test_a_log_whose_history_cannot_be_read_to_its_end_is_done_as_far_as_it_is_known_and_that_is_said",
    ),
    "donor_awaits_log_tree": (
        "takes a log tree, which clusters of seeds do not have",
        f"{_GIVING}::test_a_round_begins_when_the_log_tree_is_read_and_is_uncertain_when_that_takes_too_long",
    ),
    "donor_meets_returned_log": (
        "takes a log that leaves the cluster file while a shard is rebuilt, and comes back before that ends",
        f"{_GIVING}::test_a_log_that_comes_back_to_the_cluster_file_while_others_are_looked_through_is_looked_through_again",
    ),
    "rebuilding_log_not_in_config": (
        "takes a log that leaves the cluster file while a shard is rebuilt",
        f"{_GIVING}::test_a_log_that_is_not_in_the_cluster_file_is_looked_through_as_far_as_it_is_final",
    ),
    "nodesets_are_others_than_those_to_widen": (
        "takes a history that another sequencer changed, of which this one would have heard with the epoch",
        "tests/unit/epoch_store/test_updaters.py::TestWidening::test_it_stays_where_it_is_not_what_it_was",
    ),
    "nodesets_stay_narrow": (
        _HUGE,
        "tests/unit/sequencer/test_seq_state.py::TestWiderNodesets::test_a_history_that_has_no_room_for_more_costs_no_epoch",
    ),
    "rebuilding_asks_again_for_wider_nodesets": (
        _SELDOM,
        f"{_GIVING}::test_wider_nodesets_are_asked_for_again_as_long_as_the_sequencer_does_not_answer",
    ),
    "rebuilding_escapes_after_tries": (
        _SELDOM,
        f"{_GIVING}::test_where_a_shard_is_dead_wider_nodesets_are_asked_for_when_it_does_not_come_back",
    ),
    "look_up_again_by_later_nodesets": (
        _SELDOM,
        "tests/unit/client/look_up/test_later_nodesets.py::test_otherwise_nodesets_are_read_that_are_later_than_each_loss",
    ),
    "rebuilding_nodeset_too_small": (
        _SELDOM,
        f"{_GIVING}::test_a_nodeset_that_cannot_do_without_the_shard_is_said_to_be_short_of_places",
    ),
    "too_many_metadata_fetches": (
        "takes more shards that lost their disks at once than there are",
        f"{_SHARD}/repair/test_metadata_resync.py::TestAnswering::test_no_more_is_worked_on_than_a_few_at_a_time",
    ),
    "epoch_rolls_by_age": (_ROLLS, f"{_ROLLING}::TestByAge::test_an_epoch_ends_within_a_tenth_before_its_age"),
    "epoch_rolls_by_size": (
        _ROLLS,
        f"{_ROLLING}::TestBySize::test_an_epoch_ends_when_it_has_taken_so_many_bytes",
    ),
    "roll_is_late": (
        _ROLLS,
        f"{_ROLLING}::TestLimit::test_a_log_whose_turn_comes_when_it_gets_an_epoch_anyway_lets_others_go_first",
    ),
    "roll_turn_is_over": (_ROLLS, f"{_ROLLING}::TestLimit::test_a_roll_that_takes_too_long_holds_up_nobody"),
    "recovery_counts_lost": (
        _ROLLS,
        "tests/unit/sequencer/test_epoch_summaries.py::test_counts_that_cannot_be_known_are_not_guessed",
    ),
    "recovery_metadata_cut_short": (
        _HUGE,
        f"{_SHARD}/epochs/test_purge.py::TestEpochRecoveryMetadata::test_more_than_a_frame_holds_is_asked_for_again",
    ),
    "epoch_rows_unreadable": (
        _RULES,
        "tests/unit/client/look_up/test_epochs_request.py::test_rows_that_cannot_be_read_are_passed_over",
    ),
    "repair_waits_for_donors": (
        _SELDOM,
        f"{_SHARD}/rebuilding/test_rebuilding.py::TestTakingCopies"
        "::test_a_range_in_which_a_donor_stored_a_copy_is_replaced_when_others_know_of_that",
    ),
}
"""By mark: why no seed reaches it, and the test that does."""
