"""Where a client stands, so that its readers get the nearest copies."""

from __future__ import annotations

from client.cluster_file import LOCATION_VARIABLE, host_location
from logdevice_py.config.location import NOWHERE, Location
from logdevice_py.core.status import LogDeviceError, Status


def client_location(given: str | Location | None, setting: str) -> Location | None:
    """Where a client stands; None: nobody says.

    Args:
        given: by whoever made the client: ``region.datacenter.cluster.row.rack``, ``us....`` for a region of which nothing else is known, "" for nowhere in
            particular; None: the variable of the environment says, else the setting.
        setting: what the cluster file says.

    Raises:
        LogDeviceError: INVALID_PARAM, INVALID_CONFIG: that is no location.
    """
    if isinstance(given, Location):
        place = given
    else:
        named = host_location()
        text, whose = setting, "settings.client: location"
        if given is not None:
            text, whose = given, "location"
        elif named is not None:
            text, whose = named, LOCATION_VARIABLE
        try:
            place = Location.parse(text)
        except ValueError as error:
            status = Status.INVALID_PARAM if whose == "location" else Status.INVALID_CONFIG
            raise LogDeviceError(status, f"{whose}: {error}") from None
    return None if place == NOWHERE else place


def region(name: str) -> Location:
    """A region of which nothing else is known. ValueError when that is no label."""
    return Location.parse(f"{name}....")
