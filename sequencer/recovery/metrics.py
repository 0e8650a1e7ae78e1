"""Metrics of epoch recovery."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import counter, gauge


@dataclass(slots=True)
class RecoveryMetrics:
    """What the recoveries of one node did."""

    log_recoveries_started: int = counter("Recoveries of logs that began.", unit="recoveries")
    log_recoveries_completed: int = counter("Recoveries of logs that completed.", unit="recoveries")
    log_recoveries_preempted: int = counter("Recoveries of logs that a newer sequencer preempted.", unit="recoveries")
    log_recoveries_running: int = gauge("Recoveries of logs in progress.", unit="recoveries")
    log_recoveries_queued: int = gauge("Recoveries of logs that are queued.", unit="recoveries")
    epochs_recovered: int = counter("Epochs recovered.", unit="epochs")
    epochs_recovered_non_authoritatively: int = counter(
        "Epochs recovered although too many shards had lost their data.", unit="epochs"
    )
    epoch_restarts: int = counter("Recoveries of epochs that restarted in the middle.", unit="restarts")
    entries_digested: int = counter("Images received in digests.", unit="images")
    entries_mutated: int = counter("Entries stored again by recovery.", unit="entries")
    holes_plugged: int = counter("Hole plugs stored.", unit="entries")
    bridges_stored: int = counter("Bridge entries stored.", unit="entries")
    late_entries_dropped: int = counter(
        "Entries turned into holes: behind a bridge, or of a broken stream.", unit="entries"
    )
    entries_lost: int = counter("Positions that could not be recovered: neither stored nor plugged.", unit="entries")
    mutation_waves_failed: int = counter("Waves of mutations that did not succeed.", unit="waves")
    entries_under_replicated: int = counter("Entries stored on fewer shards than asked for.", unit="entries")
    digest_bytes: int = gauge("Bytes of images held by recoveries.", unit="bytes")
