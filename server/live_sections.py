"""Which settings can be changed while a node runs. Declarations alone: a shell that completes their names does not wait for a node's code."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Final

from logdevice_py.config.admin import AdminSettings
from logdevice_py.membership.settings import MembershipSettings
from logdevice_py.shell.settings import RuntimeSettings
from sequencer.recovery.settings import RecoverySettings
from sequencer.settings import SequencerSettings
from storage_node.settings import StorageSettings


@dataclass(frozen=True, slots=True)
class LiveSection:
    """A section of which settings can be changed."""

    cls: type[Any]
    fixed: frozenset[str] = frozenset()
    """Those that cannot."""

    @property
    def names(self) -> frozenset[str]:
        """All that the declaration has; the section of the file may have others beside them."""
        return frozenset(field.name for field in dataclasses.fields(self.cls))


LIVE: Final[dict[str, LiveSection]] = {
    "settings.sequencer": LiveSection(
        SequencerSettings, frozenset({"esn_max"})
    ),  # epochs must end where they were to end
    "settings.recovery": LiveSection(RecoverySettings),
    "settings.storage": LiveSection(
        StorageSettings,
        # taken when a shard is opened; or what is lowered by mistake deletes records
        frozenset({"recent_entries_bytes_max", "reads_in_flight_max", "retention_margin_us", "removed_logs_grace_us"}),
    ),
    "settings.membership": LiveSection(MembershipSettings),
    "settings.runtime": LiveSection(
        RuntimeSettings,
        # connections take the others when they are made
        frozenset(field.name for field in dataclasses.fields(RuntimeSettings)) - {"trace_instants"},
    ),
    "settings.admin": LiveSection(
        AdminSettings, frozenset({"expose", "open_reads", "readers", "token_file"})
    ),  # no request makes itself more room
}


def is_live(section: str, name: str) -> bool:
    """Whether a setting can be changed while the node runs."""
    found = LIVE.get(section)
    return found is not None and name in found.names and name not in found.fixed
