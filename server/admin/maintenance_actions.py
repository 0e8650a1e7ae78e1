"""What the admin API does about maintenances: as a client of the cluster, whichever node is asked. It asks for them; whoever waits sees to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from client.client import Client
from client.maintenance.commands import ApplyMaintenance, EndCause, EndMaintenance, MaintenanceKind
from logdevice_py.core.ids import NodeId, ShardId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND

if TYPE_CHECKING:
    from server.node_view import AdminView

KINDS = {"may disappear": MaintenanceKind.AWAY, "drain": MaintenanceKind.DRAIN}


async def apply_maintenance(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    """Action `apply_maintenance`."""
    from ldquery.ctl.impact import going_shards
    from ldquery.maintenance.manager import MaintenanceLog

    kind = KINDS.get(given["kind"])
    if kind is None:
        raise LogDeviceError(Status.INVALID_PARAM, f"kind: write {' or '.join(KINDS)}")
    names = [name.strip() for name in given["who"].split(",") if name.strip()]
    nodes = dict.fromkeys(NodeId(int(name[1:])) for name in names if ":" not in name and name[1:].isdecimal())
    shards: dict[ShardId, None] = {}
    for _, members in going_shards(host.config, names):
        shards.update(dict.fromkeys(sorted(members)))
    if not names or (kind is MaintenanceKind.AWAY and not given["seconds"]):
        raise LogDeviceError(
            Status.INVALID_PARAM, "who: is missing" if not names else "seconds: for how long is it away?"
        )
    wanted = ApplyMaintenance(
        kind, list(nodes), list(shards), given["seconds"] * SECOND, f"admin API of N{host.node_id}", given["reason"]
    )
    async with Client(host.path) as client, MaintenanceLog(client) as log:
        return {"number": await log.propose(wanted), "phase": "waiting"}


async def cancel_maintenance(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    """Action `cancel_maintenance`."""
    from ldquery.maintenance.manager import MaintenanceLog

    number = given["number"]
    async with Client(host.path) as client, MaintenanceLog(client) as log:
        await log.propose(EndMaintenance(number, EndCause.CANCELLED))
        left = log.state.live.get(number)
    return {"number": number, "phase": "over" if left is None else left.phase.name.lower()}
