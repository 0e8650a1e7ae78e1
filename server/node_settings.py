"""The settings of every part of a node, from the sections of the cluster file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from client.log_tree.settings import LogTreeSettings
from client.maintenance.settings import MaintenanceSettings
from logdevice_py.config.security import SecuritySettings, parse_security
from logdevice_py.core.declare import settings_from
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.event_log.settings import RebuildingSettings
from logdevice_py.membership.settings import MembershipSettings
from logdevice_py.placement.settings import PlacementSettings
from logdevice_py.shell.settings import RuntimeSettings
from sequencer.recovery.settings import RecoverySettings
from sequencer.settings import SequencerSettings
from storage_node.log_store.settings import LogStoreSettings
from storage_node.settings import StorageSettings


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node is started with."""

    membership: MembershipSettings
    sequencer: SequencerSettings
    recovery: RecoverySettings
    storage: StorageSettings
    log_store: LogStoreSettings
    rebuilding: RebuildingSettings
    log_tree: LogTreeSettings
    maintenance: MaintenanceSettings
    placement: PlacementSettings
    runtime: RuntimeSettings
    security: SecuritySettings

    @classmethod
    def of(cls, sections: Mapping[str, Mapping[str, Any]]) -> NodeSettings:
        """Read the settings.

        Args:
            sections: by name, as in the cluster file. ``storage`` is shared by the machines of shards and by their stores.

        Raises:
            LogDeviceError: INVALID_CONFIG: there is no such setting, or a value is wrong.
        """
        storage = sections.get("storage", {})
        names = LogStoreSettings.__dataclass_fields__.keys()

        def parse(section: str, kind: type[Any], raw: Mapping[str, Any] | None = None) -> Any:
            try:
                return settings_from(kind, sections.get(section, {}) if raw is None else raw)
            except ValueError as error:
                raise LogDeviceError(Status.INVALID_CONFIG, f"[settings.{section}] {error}") from None

        return cls(
            membership=parse("membership", MembershipSettings),
            sequencer=parse("sequencer", SequencerSettings),
            recovery=parse("recovery", RecoverySettings),
            storage=parse("storage", StorageSettings, {k: v for k, v in storage.items() if k not in names}),
            log_store=parse("storage", LogStoreSettings, {k: v for k, v in storage.items() if k in names}),
            rebuilding=parse("rebuilding", RebuildingSettings),
            log_tree=parse("log_tree", LogTreeSettings),
            maintenance=parse("maintenance", MaintenanceSettings),
            placement=parse("placement", PlacementSettings),
            runtime=parse("runtime", RuntimeSettings),
            security=parse_security(sections),
        )
