"""What the admin API does to the log tree: as a client of the cluster, whichever node is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from client.client import Client
from client.log_tree.client_log_tree import LogTreeEntry
from logdevice_py.core.status import LogDeviceError, Status

if TYPE_CHECKING:
    from server.node_view import AdminView


def _attributes(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise LogDeviceError(Status.INVALID_PARAM, 'attributes: write a JSON object, like {"replicate": "node:3"}')
    return found


def _told(entry: LogTreeEntry) -> dict[str, Any]:
    return {"path": entry.path, "logid_lo": entry.lo, "logid_hi": entry.hi, "version": str(entry.version)}


async def make_log_group(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    """Action `make_log_group`."""
    own = _attributes(given["attributes"])
    async with Client(host.path) as client:
        return _told(await client.make_log_group(given["path"], given["logs"], own, parents=True))


async def make_directory(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    """Action `make_directory`."""
    own = _attributes(given["attributes"])
    async with Client(host.path) as client:
        version = await client.make_directory(given["path"], own, parents=True)
    return {"path": given["path"], "version": str(version)}


async def set_log_attributes(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    """Action `set_log_attributes`."""
    changes = _attributes(given["attributes"])
    unset = [name for name, value in changes.items() if value is None]
    sets = {name: value for name, value in changes.items() if value is not None}
    async with Client(host.path) as client:
        version = await client.set_attributes(given["path"], sets, unset=unset)
    return {"path": given["path"], "version": str(version)}


async def rename_logs(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    """Action `rename_logs`."""
    async with Client(host.path) as client:
        version = await client.rename(given["path"], given["to"])
    return {"path": given["to"], "version": str(version)}


async def remove_logs(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    """Action `remove_logs`."""
    async with Client(host.path) as client:
        await client.remove(given["path"])
    return {"path": given["path"], "removed": True}
