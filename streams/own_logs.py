"""The two logs in which a namespace keeps a replicated state of its own: made by one command, so they are there both or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from client.client import Client
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.suggestion import nearest

METADATA_GROUP: Final = ".namespace"
"""The group of the two logs of a namespace's state: commands and snapshots. A directory of the log tree is a namespace if it has one."""
_SUFFIX: Final = f"/{METADATA_GROUP}"
_NAMED_MAX: Final = 5
"""Namespaces that an error names."""


@dataclass(frozen=True, slots=True)
class OwnLogs:
    """A state's logs."""

    commands: LogId
    snapshots: LogId


def namespaces_of(paths: Iterable[str]) -> list[str]:
    """The namespaces among what is in the log tree."""
    return sorted(path.removesuffix(_SUFFIX) for path in paths if path.endswith(_SUFFIX))


async def find_namespace_logs(client: Client, path: str, timeout: float | None) -> OwnLogs:
    """The logs of the namespace at a path of the log tree.

    Raises:
        LogDeviceError: NOTFOUND, which names the namespace that may be meant; as `find_own_logs`.
    """
    logs = await find_own_logs(client, f"{path}{_SUFFIX}", timeout)
    if logs is not None:
        return logs
    tree = client.log_tree  # it is current: it was asked
    groups = [] if tree is None else tree.view.state.groups()
    names = namespaces_of(group.path for group in groups if group.name == METADATA_GROUP and not group.removing)
    close = nearest(path, names)
    if close is not None:
        hint = f"; did you mean {close}?"
    elif names:
        more = ", ..." if len(names) > _NAMED_MAX else ""
        hint = f"; there are {', '.join(names[:_NAMED_MAX])}{more}"
    else:
        hint = ", nor another one: creating a stream makes it"
    raise LogDeviceError(Status.NOTFOUND, f"there is no namespace {path or '/'}{hint}")


async def find_own_logs(client: Client, path: str, timeout: float | None) -> OwnLogs | None:
    """The logs of the group at a path of the log tree; None: nobody made them.

    Raises:
        LogDeviceError: INVALID_PARAM: there is something else; as `Client.get_log_group`.
    """
    try:
        logs = (await client.get_log_group(path, timeout=timeout)).logs
    except LogDeviceError as error:
        if error.status is Status.NOTFOUND:
            return None
        raise
    if len(logs) != 2:
        raise LogDeviceError(Status.INVALID_PARAM, f"{path} holds no state of a namespace: it has {len(logs)} logs")
    return OwnLogs(LogId(logs[0]), LogId(logs[1]))


async def make_own_logs(client: Client, path: str, attributes: Mapping[str, Any], timeout: float | None) -> OwnLogs:
    """The logs of the group at a path of the log tree, which is made if there is none. Any number of processes may, at the same time.

    Raises:
        LogDeviceError: as `find_own_logs` and `Client.make_log_group`.
    """
    found = await find_own_logs(client, path, timeout)
    if found is None:
        try:
            await client.make_log_group(path, 2, attributes, parents=True, timeout=timeout)
        except LogDeviceError as error:
            if error.status is not Status.EXISTS:
                raise
        found = await find_own_logs(client, path, timeout)
    if found is None:
        raise LogDeviceError(Status.NOTFOUND, f"{path} was removed by somebody else as it was made")
    return found
