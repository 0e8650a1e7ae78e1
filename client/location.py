"""Where a client stands, so that its readers get the nearest copies."""

from __future__ import annotations

from collections.abc import Iterable

from client.cluster_file import LOCATION_VARIABLE, host_location
from logdevice_py.config.location import NOWHERE, Location
from logdevice_py.core.status import LogDeviceError, Status


def client_location(given: str | Location | None, setting: str, nodes: Iterable[Location] = ()) -> Location | None:
    """Where a client stands; None: nobody says.

    Args:
        given: by whoever made the client: ``region.datacenter.cluster.row.rack``, ``us....`` for a region of which nothing else is known, "" for nowhere in
            particular; None: the variable of the environment says, else the setting.
        setting: what the cluster file says.
        nodes: where those of the cluster stand.

    Raises:
        LogDeviceError: INVALID_PARAM, INVALID_CONFIG: that is no location, or it names no region where all nodes do: nothing would be near.
    """
    named = host_location()
    said, whose, status = setting, "settings.client: location", Status.INVALID_CONFIG
    if given is not None:
        said, whose, status = str(given), "location", Status.INVALID_PARAM
    elif named is not None:
        said, whose = named, LOCATION_VARIABLE
    try:
        place = Location.parse(said)
    except ValueError as error:
        raise LogDeviceError(status, f"{whose}: {error}") from None
    if place == NOWHERE:
        return None
    regions = [node.region for node in nodes]
    if not place.region and regions and all(regions):
        text = f"{said!r} names no region, and all nodes stand in one: write region.datacenter.cluster.row.rack, or {said}.... for a region"
        raise LogDeviceError(status, f"{whose}: {text}")
    return place


def region(name: str) -> Location:
    """A region of which nothing else is known. ValueError when that is no label."""
    return Location.parse(f"{name}....")
