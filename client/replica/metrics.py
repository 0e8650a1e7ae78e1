"""Counters of a replica."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import counter


@dataclass(slots=True)
class ReplicaMetrics:
    """What a replica met and did since it was made."""

    commands_judged: int = counter(
        "Commands that this replica applied, or refused for the state's reasons.", unit="commands"
    )
    commands_repeated: int = counter("Commands skipped because their request was judged before.", unit="commands")
    commands_too_old: int = counter("Commands refused because their request may have been forgotten.", unit="commands")
    records_of_other_kinds: int = counter(
        "Records skipped that are no commands of the state: damaged, too large, of another kind or format.",
        unit="records",
    )
    commands_appended: int = counter("Commands appended, repetitions included.", unit="records")
    proposals_unknown: int = counter("Proposals of which the outcome did not become known in time.", unit="proposals")
    command_losses: int = counter("Gaps of the commands that are losses.", unit="gaps")
    snapshots_written: int = counter("Snapshots written.", unit="snapshots")
    snapshots_too_large: int = counter("Snapshots not written because the state is too large.", unit="snapshots")
