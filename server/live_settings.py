"""Settings that an operator changes while a node runs. They hold until it is started again; the cluster file stays as it is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from logdevice_py.config.cluster import SETTINGS_SECTIONS
from logdevice_py.core.declare import render_value, settings_from, written_value
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.suggestion import suggestion
from logdevice_py.runtime.driver import Driver
from server.live_sections import LIVE
from server.node import Node


class LiveSettings:
    """The changes of one node."""

    def __init__(self, file: Mapping[str, Mapping[str, Any]], users: Mapping[str, Callable[[Any], None]]) -> None:
        """
        Args:
            file: the settings of the cluster file with which the node was started, by section.
            users: for each section that this node uses, who takes other settings.
        """
        self._file = file
        self._users = users
        self._changes: dict[str, dict[str, Any]] = {}

    def raw(self, section: str) -> dict[str, Any]:
        """A section as the node uses it, as in the cluster file."""
        return {**self._file.get(section.removeprefix("settings."), {}), **self._changes.get(section, {})}

    def is_changed(self, section: str, name: str) -> bool:
        """Whether an operator changed a setting."""
        return name in self._changes.get(section, {})

    def set(self, section: str, name: str, text: str) -> str:
        """Change a setting; returns its value as it is used.

        Raises:
            LogDeviceError: INVALID_PARAM: there is no such setting that may be changed, or the value is wrong.
        """
        field = self._field(section, name)
        name = field.name
        changes = {**self._changes.get(section, {}), name: written_value(field, text)}
        return self._use(section, name, changes)

    def unset(self, section: str, name: str) -> str:
        """Take a change back; returns the value that is used from here on.

        Raises:
            LogDeviceError: INVALID_PARAM: there is no such setting that may be changed.
        """
        name = self._field(section, name).name
        changes = {other: value for other, value in self._changes.get(section, {}).items() if other != name}
        return self._use(section, name, changes)

    def _field(self, section: str, name: str) -> dataclasses.Field[Any]:
        live = LIVE.get(section)
        if live is None or section not in self._users:
            can = ", ".join(each for each in LIVE if each in self._users)
            if section.removeprefix("settings.") not in SETTINGS_SECTIONS:
                raise LogDeviceError(
                    Status.INVALID_PARAM,
                    f"there is no section {section[:50]}; those with settings that can be changed while the node runs: {can}",
                )
            raise LogDeviceError(
                Status.INVALID_PARAM, f"{section[:50]}: cannot be changed while the node runs; these can: {can}"
            )
        fields = {field.name: field for field in dataclasses.fields(live.cls)}
        if name not in fields:
            name = f"{name}_us"  # a duration's unit stands with its value, so people need not type it in the name
        if name not in fields:
            name, known = (
                name.removesuffix("_us"),
                [each.removesuffix("_us") for each in fields if each not in live.fixed],
            )
            raise LogDeviceError(
                Status.INVALID_PARAM,
                f"{name[:50]}: no setting of {section} that can be changed while the node runs{suggestion(name, known)}",
            )
        if name in live.fixed:
            raise LogDeviceError(Status.INVALID_PARAM, f"{name}: cannot be changed while the node runs")
        return fields[name]

    def _use(self, section: str, name: str, changes: dict[str, Any]) -> str:
        names = LIVE[section].names
        file = self._file.get(section.removeprefix("settings."), {})
        raw = {**{key: value for key, value in file.items() if key in names}, **changes}
        try:
            settings = settings_from(LIVE[section].cls, raw)
        except ValueError as error:
            raise LogDeviceError(Status.INVALID_PARAM, str(error)) from None
        self._changes[section] = changes
        self._users[section](settings)
        return render_value(self._field(section, name).metadata["unit"], getattr(settings, name))


def live_settings_of(
    node: Node,
    driver: Driver,
    file: Mapping[str, Mapping[str, Any]],
    runtime: Callable[[Any], None],
    admin: Callable[[Any], None] | None,
) -> LiveSettings:
    """Those of a node that runs.

    Args:
        file: the settings with which it was started, by section.
        runtime: takes other settings of connections.
        admin: takes other settings of the admin API; None: there is none.
    """
    users: dict[str, Callable[[Any], None]] = {
        "settings.membership": node.gossip.use_settings,
        "settings.runtime": runtime,
    }
    sequencer, storage = node.sequencer, node.storage
    if storage is not None:
        users["settings.storage"] = storage.use_settings
    if sequencer is not None:
        recoveries = sequencer.recoveries
        users["settings.sequencer"] = sequencer.context.use_settings
        users["settings.recovery"] = lambda settings: driver.event(partial(recoveries.use_settings, settings))
    if admin is not None:
        users["settings.admin"] = admin
    return LiveSettings(file, users)
