"""Settings of maintenances."""

from __future__ import annotations

from dataclasses import dataclass

from logdevice_py.core.declare import setting


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceSettings:
    """Section ``[settings.maintenance]`` of the cluster file."""

    enabled: bool = setting(
        False,
        unit="flag",
        doc="Keep a log of maintenances (`ldctl maintenance`, `ldctl rolling-restart`). The same in all nodes' and clients' files.",
    )
    by_nodes: bool = setting(
        True,
        unit="flag",
        doc="A node sees to maintenances: grants what is safe, drains, and ends what is over. False: only who waits with `ldctl` does.",
    )
    away_percent_max: int = setting(
        34,
        unit="percent",
        lo=0,
        hi=100,
        doc="No maintenance begins with which more than this share of the storage capacity, or of the sequencers' weights, would be away. One node "
        "may always be.",
    )
