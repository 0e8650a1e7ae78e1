"""Kinds of trouble that a run may be devoted to: what seldom comes together by chance is put together on purpose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from logdevice_py.core.units import MILLISECOND, SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleProfile:
    """What such a run has in particular; the rest is drawn as for every other run."""

    name: str
    faults: tuple[str, ...]
    """Kinds of faults, beside at most two others."""
    settings: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)
    """By section and name: values as they stand in the cluster file, of which one is drawn, or the default is left."""
    attributes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of logs: values as they stand in the file, of which one is drawn."""
    scenario: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `Scenario`."""
    reading: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `ReadSettings`."""
    logs: int = 0
    """How many; 0: as drawn."""
    late_logs: bool = False
    """All logs but the first begin at some time in the run."""
    nodes: int = 0
    """At least so many."""
    disk_bytes: tuple[int, ...] = ()
    """Of the file system of each shard, of which one is drawn; without any it never runs full by itself."""
    strict: bool = False
    """All of `settings` hold, not only most."""
    trims_by_itself: bool = False
    """Shards trim what nobody asked to trim: who has to find all that was written is not part of it."""


# What a setting allows must still suffice when nothing goes wrong: the epoch store answers within some 20 ms, a message comes within 500 ms.
_QUICK_RECOVERY: Mapping[str, tuple[str, ...]] = {
    "phase_timeout_us": ('"500ms"', '"1s"'),
    "phase_timeout_max_us": ('"4s"', '"15s"'),
    "seal_retry_initial_us": ('"30ms"',),
    "digest_retry_initial_us": ('"5ms"', '"100ms"'),
    "mutation_timeout_initial_us": ('"5ms"', '"30ms"'),
    "mutations_in_flight_max": ("1", "4"),
    "clean_retry_initial_us": ('"1ms"', '"30ms"'),
    "digest_bytes_max": ('"1B"', '"2KiB"'),
    "grace_period_us": ('"0us"', '"1s"'),
}

PROFILES: tuple[TroubleProfile, ...] = (
    TroubleProfile(
        name="records that expire",
        faults=("wall_clock_jump", "wall_clock_years", "clock_drift", "crash_process", "slow_disk"),
        settings={
            "storage": {
                "retention_interval_us": ('"200ms"',),
                "retention_margin_us": ('"2s"',),
                "trim_exchange_interval_us": ('"200ms"', '"1s"'),
            }
        },
        attributes={"backlog_us": ('"2s"', '"5s"')},
        scenario={"fault_interval": 4 * SECOND, "duration": 20 * SECOND, "find_interval": SECOND, "config_interval": 0},
    ),
    TroubleProfile(
        name="disks that run full",
        faults=("crowded_disk", "crowded_disk", "disk_full", "crash_process", "crash_machine", "slow_disk"),
        settings={
            "storage": {
                "retention_interval_us": ('"100ms"', '"500ms"'),
                "space_retention_percent": ("40", "70"),
                "partition_duration_us": ('"500ms"', '"2s"'),
                "trim_exchange_interval_us": ('"200ms"', '"10s"'),
            }
        },
        attributes={"backlog_us": ('"0us"', '"0us"', '"5s"'), "max_writes_in_flight": ("2", "5")},
        scenario={"duration": 20 * SECOND, "find_interval": SECOND},
        disk_bytes=(1 << 20, 4 << 20, 1 << 40),
        strict=True,
        trims_by_itself=True,
    ),
    TroubleProfile(
        name="logs that leave",
        faults=(
            "crash_process",
            "crash_process",
            "crash_machine",
            "clock_drift",
            "wall_clock_jump",
            "pause",
            "partition_node",
        ),
        settings={
            "storage": {
                "removed_logs_interval_us": ('"100ms"', '"500ms"'),
                "removed_logs_grace_us": ('"1s"', '"3s"'),
                "trim_exchange_interval_us": ('"200ms"', '"10s"'),
            }
        },
        scenario={"duration": 20 * SECOND, "removal_interval": 2 * SECOND, "config_interval": 0},
        logs=4,
        strict=True,
        trims_by_itself=True,
    ),
    TroubleProfile(
        name="recovery under fire",
        faults=("strike_in_recovery", "strike_in_recovery", "crash_process", "crash_in_recovery", "half_open"),
        settings={"recovery": _QUICK_RECOVERY, "storage": {"recent_entries_bytes_max": ('"0B"',)}},
        scenario={"fault_interval": 300 * MILLISECOND, "epoch_interval": 500 * MILLISECOND},
    ),
    TroubleProfile(
        name="stray copies",
        faults=("stray_copies", "stray_copies", "mute_storage", "stop_sequencer", "strike_in_recovery"),
        settings={"storage": {"recent_entries_bytes_max": ('"0B"',)}, "recovery": _QUICK_RECOVERY},
        scenario={"fault_interval": 700 * MILLISECOND, "appenders": 2, "tail_interval": 200 * MILLISECOND},
        attributes={"max_writes_in_flight": ("100", "1000")},
    ),
    TroubleProfile(
        name="handovers",
        faults=("recovered_twice", "recovered_twice", "old_sequencer_asked", "old_sequencer_asked"),
        settings={"storage": {"recent_entries_bytes_max": ('"0B"', '"1MiB"')}, "recovery": _QUICK_RECOVERY},
        # one must be over before the next one begins, and nothing else may move the log meanwhile
        scenario={
            "fault_interval": 2 * SECOND,
            "duration": 20 * SECOND,
            "appenders": 2,
            "tail_interval": 100 * MILLISECOND,
            "epoch_interval": 0,
            "config_interval": 0,
            "trim_interval": 0,
        },
        attributes={"max_writes_in_flight": ("100", "1000"), "sticky_copysets": ("false",)},
        nodes=5,
        logs=1,
    ),
    TroubleProfile(
        name="sequencers apart",
        faults=(
            "partition_sequencer",
            "old_sequencer_asked",
            "stop_sequencer",
            "partition_client",
            "epoch_store_conflict",
            "uneven_seals",
        ),
        settings={
            "sequencer": {
                "tail_check_timeout_us": ('"20ms"', '"300ms"'),
                "epoch_draining_timeout_us": ('"10ms"', '"200ms"'),
                "sequencer_state_timeout_us": ('"100ms"',),
            }
        },
        scenario={
            "fault_interval": SECOND,
            "epoch_interval": 500 * MILLISECOND,
            "tail_interval": 100 * MILLISECOND,
            "appenders": 2,
        },
        attributes={
            "sequencer_batching": ("true", "false", "false"),
            "sticky_copysets": ("true", "false"),
            "max_writes_in_flight": ("5", "1000"),
        },
    ),
    TroubleProfile(
        name="rot",
        faults=(
            "rot_before_recovery",
            "rot_before_recovery",
            "rot_before_amend",
            "rot_beside_rebuilding",
            "bit_flip",
            "crash_process",
            "read_error",
        ),
        settings={"storage": {"recent_entries_bytes_max": ('"0B"',)}},
        scenario={"fault_interval": 1500 * MILLISECOND, "tail_interval": 200 * MILLISECOND},
    ),
    TroubleProfile(
        name="narrow limits",
        faults=("epoch_store_conflict", "epoch_store_away", "pause", "kill_client", "crash_process", "slow_disk"),
        settings={
            "sequencer": {
                "append_buffer_frames": ("1", "5"),
                "append_buffer_bytes": ('"60KiB"',),
                "appender_bytes": ('"60KiB"',),
                "activation_wait_us": ('"10ms"', '"100ms"'),
                "epoch_store_timeout_us": ('"50ms"',),
                "sequencer_state_waiters": ("1",),
                "write_streams_per_log": ("1",),
                "write_stream_positions": ("1", "2"),
                "esn_max": ("3", "20"),
            },
            "recovery": {
                "concurrent_log_recoveries": ("1", "2"),
                "turn_us": ('"2s"',),
                "digest_memory_bytes_max": ('"1B"',),
                "mutation_bytes_in_flight_max": ('"1B"',),
            },
            "storage": {
                "streams_per_peer_max": ("1", "2"),
                "digests_waiting_max": ("1",),
                "purges_max": ("1",),
                "read_bytes_per_turn_max": ('"1B"',),
            },
        },
        scenario={
            "tail_interval": 50 * MILLISECOND,
            "stream_writers": 3,
            "readers": 3,
            "appenders": 2,
            "frame_bytes_max": 4096,
        },
        # an entry must fit into what may be in flight
        attributes={"batching_size_bytes": ('"1B"', '"1KiB"'), "sequencer_batching": ("true", "false")},
        logs=4,
    ),
    TroubleProfile(
        name="power cuts",
        faults=(
            "crash_machine",
            "power_cut_before_recovery",
            "power_cut_before_recovery",
            "crash_all",
            "orderly_stop",
            "slow_disk",
            "crash_midway",
            "slow_start",
        ),
        settings={
            "storage": {"last_released_persist_interval_us": ('"1ms"', '"20ms"')},
            "recovery": _QUICK_RECOVERY,
        },
        scenario={"epoch_interval": 500 * MILLISECOND},
        attributes={"durability": ('"sync"', '"async"')},
    ),
    TroubleProfile(
        name="dirty ranges",
        faults=(
            "crash_machine",
            "crash_machine",
            "crash_machine",
            "crash_process",
            "partition_node",
            "slow_disk",
            "pause",
        ),
        settings={
            "storage": {
                "last_released_persist_interval_us": ('"20ms"', '"5s"'),
                "repair_bytes_per_s": ("65536", "1048576"),
            },
        },
        attributes={"durability": ('"async"',)},
    ),
    TroubleProfile(
        name="many epochs",
        faults=("pause", "partition_node", "stray_copies", "hanging_disk", "epoch_store_stale"),
        settings={
            "sequencer": {
                "reactivation_limit": ("2", "1000"),
                "reconfiguration_tick_us": ('"1ms"',),
                "esn_max": ("1", "3"),
            },
            "recovery": {"digest_bytes_max": ('"1B"',)},
        },
        scenario={"epoch_interval": 60 * MILLISECOND, "config_interval": 700 * MILLISECOND},
        attributes={"nodeset_size": ("0", "3")},
    ),
    TroubleProfile(
        name="slow shards",
        faults=("slow_disk", "lagging_link", "slow_link", "slow_drain", "pause", "crash_process"),
        settings={"storage": {"recent_entries_bytes_max": ('"0B"',), "records_message_bytes": ('"100B"',)}},
        attributes={"single_copy_delivery": ("true",)},
        reading={
            "slow_shard_factor": 2,
            "slow_shard_window_us": 100 * MILLISECOND,
            "slow_shard_penalty_us": 300 * MILLISECOND,
            "slow_shard_penalty_us_max": 2 * SECOND,
            "window_lsns": 10,
        },
        scenario={"readers": 3, "tail_interval": 300 * MILLISECOND},
    ),
    TroubleProfile(
        name="bad wires",
        faults=("corrupt_frames", "corrupt_frames", "cut_frames", "half_open", "late_frames"),
        settings={"recovery": _QUICK_RECOVERY},
        scenario={"fault_interval": 300 * MILLISECOND, "epoch_interval": 500 * MILLISECOND},
    ),
    TroubleProfile(
        name="uneven nodes",
        faults=("crash_rack", "partition_halves", "crash_loop", "orderly_stop", "stop_sequencer"),
        attributes={"nodeset_size": ("3",), "sequencer_affinity": ('"rack0"', '"rack2"')},
        scenario={"config_interval": SECOND, "epoch_interval": 500 * MILLISECOND},
    ),
    TroubleProfile(
        name="damage in recovery",
        faults=(
            "damage_in_recovery",
            "damage_in_recovery",
            "crash_process",
            "strike_in_recovery",
            "rot_before_recovery",
            "rot_before_amend",
        ),
        settings={
            "storage": {"recent_entries_bytes_max": ('"0B"',)},
            "recovery": {**_QUICK_RECOVERY, "mutations_in_flight_max": ("1", "2")},
        },
        scenario={
            "fault_interval": 700 * MILLISECOND,
            "epoch_interval": 500 * MILLISECOND,
            "tail_interval": 300 * MILLISECOND,
        },
    ),
    TroubleProfile(
        name="disks behind recovery",
        faults=(
            "overload_in_recovery",
            "overload_in_recovery",
            "overload_in_recovery",
            "slow_disk",
            "strike_in_recovery",
        ),
        settings={
            "recovery": _QUICK_RECOVERY,
            "storage": {"purge_retry_initial_us": ('"5ms"',), "recent_entries_bytes_max": ('"0B"',)},
        },
        scenario={"fault_interval": 700 * MILLISECOND, "epoch_interval": 1500 * MILLISECOND},
        nodes=5,
    ),
    TroubleProfile(
        name="logs that begin late",
        faults=("wipe", "wipe", "crash_all", "epoch_store_away", "epoch_store_away", "damage_in_recovery"),
        scenario={"fault_interval": 700 * MILLISECOND, "epoch_interval": SECOND},
        logs=4,
        late_logs=True,
    ),
    TroubleProfile(
        name="copies that return",
        faults=("stray_copies", "stray_copies", "late_copies", "wipe", "crash_rack"),
        settings={"recovery": _QUICK_RECOVERY, "storage": {"purge_retry_initial_us": ('"5ms"',)}},
        scenario={"fault_interval": 700 * MILLISECOND, "epoch_interval": 500 * MILLISECOND},
        attributes={"max_writes_in_flight": ("100", "1000")},
    ),
    TroubleProfile(
        name="holes",
        faults=("crash_behind_cut", "crash_behind_cut", "late_copies", "late_copies", "partition_sequencer"),
        settings={"recovery": {"grace_period_us": ('"0us"', '"1s"')}},
        scenario={
            "fault_interval": 900 * MILLISECOND,
            "write_interval": 20 * MILLISECOND,
            "stream_writers": 3,
            "appenders": 2,
        },
        attributes={
            "sticky_copysets": ("false",),
            "sequencer_batching": ("true", "false"),
            "max_writes_in_flight": ("1000",),
        },
    ),
)
