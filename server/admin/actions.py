"""What an operator can have a node do over the admin API. Declared once: requests are checked by it and the description is made of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from client.client import Client
from client.log_tree.commands import LOGS_PER_GROUP_MAX
from client.maintenance.commands import FOR_US_MAX, NUMBER_MAX
from logdevice_py.config.stored import TEXT_MAX
from logdevice_py.core.ids import LOG_ID_MAX, LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND
from logdevice_py.runtime.clock import monotonic_us
from logdevice_py.runtime.http.listener import BODY_MAX
from logdevice_py.runtime.http.openapi import Parameter, invalid, unknown_parameter
from sequencer.node import SequencerNode
from server.admin import log_tree_actions, maintenance_actions
from server.configuration.change import change_configuration

if TYPE_CHECKING:
    from server.node_view import AdminView

_TRY_AGAIN: Final = 0.002
"""Seconds between two looks whether entries are on their way."""
_QUIET_WITHIN: Final = 5.0


@dataclass(frozen=True, slots=True)
class AdminAction:
    """Something that a node does when it is asked to."""

    name: str
    doc: str
    parameters: tuple[Parameter, ...]
    """All are required."""
    run: Callable[[AdminView, Mapping[str, Any]], Awaitable[dict[str, Any]]]
    """Does it; what it returns is the answer. It may raise LogDeviceError."""
    long: frozenset[str] = frozenset()
    """Parameters whose values are too long for logs."""
    body_max: int = BODY_MAX
    """Bytes of a request."""

    def told(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters as logs show them."""
        return {name: f"{len(value)} characters" if name in self.long else value for name, value in given.items()}

    def check(self, given: Any) -> dict[str, Any]:
        """The parameters of a request.

        Raises:
            LogDeviceError: INVALID_PARAM: they are not what is declared; the text says what is wrong.
        """
        if not isinstance(given, dict):
            raise invalid("write a JSON object")
        known = {parameter.name: parameter for parameter in self.parameters}
        for name in given:
            if name not in known:
                raise unknown_parameter(name, known)
        for name, parameter in known.items():
            if name not in given:
                raise invalid(f"{name}: is missing: {parameter.doc}")
            parameter.check(given[name])
        return given


_LOG: Final = Parameter("log_id", "integer", "The data log.", 1, LOG_ID_MAX)


def _sequencer_of(host: AdminView) -> SequencerNode:
    if host.node.sequencer is None:
        raise LogDeviceError(Status.NOTSUPPORTED, f"N{host.node_id} does not have the role sequencer")
    return host.node.sequencer


async def _start_recovery(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    sequencer, log = _sequencer_of(host), LogId(given["log_id"])
    outcome: list[tuple[Status, int]] = []
    host.driver.event(lambda now: outcome.append(sequencer.start_recovery(log, now)))
    status, redirect = outcome[0]
    if status is not Status.OK:
        where = f": N{redirect} sequences it" if redirect >= 0 else ""
        raise LogDeviceError(status, f"log {log} is not sequenced here{where}")
    return {"log_id": log, "started": True}


async def _deactivate(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    """It waits for a moment without entries on their way, which comes between two turns even under load."""
    sequencer, log = _sequencer_of(host), LogId(given["log_id"])
    deadline = monotonic_us() + int(_QUIET_WITHIN * 1e6)
    while True:
        outcome: list[Status] = []
        host.driver.event(lambda now, outcome=outcome: outcome.append(sequencer.deactivate(log, now)))  # type: ignore[misc]
        status = outcome[0]
        if status is Status.OK:
            return {"log_id": log, "deactivated": True}
        if status is not Status.AGAIN:
            raise LogDeviceError(status, f"log {log} has no sequencer here")
        if monotonic_us() > deadline:
            raise LogDeviceError(Status.AGAIN, f"entries of log {log} were on their way all the time")
        await asyncio.sleep(_TRY_AGAIN)


async def _trim(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    log = LogId(given["log_id"])
    try:
        lsn = LSN.parse(given["lsn"])
    except ValueError as error:
        raise invalid(f"lsn: {error}") from None
    if host.config.log(log) is None:
        raise LogDeviceError(Status.NOTFOUND, f"there is no log {log}")
    async with Client(host.path) as client:
        await client.trim(log, lsn, timeout=_QUIET_WITHIN)
    return {"log_id": log, "trimmed_through": int(lsn)}


async def _set(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    value = host.live_settings.set(given["section"], given["name"], given["value"])
    return {"section": given["section"], "name": given["name"], "value": value}


async def _unset(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    value = host.live_settings.unset(given["section"], given["name"])
    return {"section": given["section"], "name": given["name"], "value": value}


async def _drain(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    return {"drained": await host.drain()}


async def _stop(host: AdminView, given: Mapping[str, Any]) -> dict[str, Any]:
    if not host.stop_wanted.done():
        host.stop_wanted.set_result(None)
    return {"stopping": True}


_SECTION: Final = Parameter("section", "string", "Like settings.sequencer.")
_PATH: Final = Parameter("path", "string", "Of the group or directory, like /team/clicks.")
_ATTRIBUTES: Final = Parameter(
    "attributes", "string", 'What it sets itself, as a JSON object: {"replicate": "node:3"}.'
)
_NAME: Final = Parameter("name", "string", "Of the setting.")
ACTIONS: Final[dict[str, AdminAction]] = {
    action.name: action
    for action in (
        AdminAction(
            "start_recovery",
            "Take a log that is sequenced here to another epoch; its recovery covers all earlier ones.",
            (_LOG,),
            _start_recovery,
        ),
        AdminAction(
            "deactivate_sequencer",
            "Stop sequencing a log here, between two appends; the next request for it activates it again, in another epoch.",
            (_LOG,),
            _deactivate,
        ),
        AdminAction(
            "trim",
            "Delete everything of a log up to an LSN, on all shards.",
            (_LOG, Parameter("lsn", "string", "The last LSN that goes, like e3n17.")),
            _trim,
        ),
        AdminAction(
            "make_log_group",
            "Make a group of logs in the log tree, and the directories above it that are missing.",
            (
                _PATH,
                Parameter("logs", "integer", "How many logs it has.", 1, LOGS_PER_GROUP_MAX),
                _ATTRIBUTES,
            ),
            log_tree_actions.make_log_group,
        ),
        AdminAction(
            "make_directory",
            "Make a directory in the log tree, and those above it that are missing.",
            (_PATH, _ATTRIBUTES),
            log_tree_actions.make_directory,
        ),
        AdminAction(
            "set_log_attributes",
            "Change what a group or directory of the log tree sets itself; null: the directories above hold again.",
            (_PATH, _ATTRIBUTES),
            log_tree_actions.set_log_attributes,
        ),
        AdminAction(
            "rename_logs",
            "Move a group or directory of the log tree, with all that is in it.",
            (_PATH, Parameter("to", "string", "A path that is free.")),
            log_tree_actions.rename_logs,
        ),
        AdminAction(
            "remove_logs",
            "Remove a group of the log tree with all its logs, or a directory that is empty. Answered when no append is acknowledged any more that begins later.",
            (_PATH,),
            log_tree_actions.remove_logs,
        ),
        AdminAction(
            "apply_maintenance",
            "Ask for a maintenance. It waits until a node, or who waits with ldctl, finds it safe.",
            (
                Parameter("who", "string", "Nodes like N3, or shards like N3:S0, with commas between them."),
                Parameter("kind", "string", "may disappear, or drain."),
                Parameter("seconds", "integer", "For how long; 0: as long as it takes.", 0, FOR_US_MAX // SECOND),
                Parameter("reason", "string", "For others to read."),
            ),
            maintenance_actions.apply_maintenance,
        ),
        AdminAction(
            "cancel_maintenance",
            "End a maintenance; drained shards are used again when somebody sees to it.",
            (Parameter("number", "integer", "Its number.", 1, NUMBER_MAX),),
            maintenance_actions.cancel_maintenance,
        ),
        AdminAction(
            "change_configuration",
            "Store another version of the cluster's configuration, which all nodes then use. Refused as a whole with all reasons, or because somebody else changed it since.",
            (
                Parameter("base", "integer", "The version that the text was made from.", 1, 2**63 - 2),
                Parameter("text", "string", "All of it, as of a cluster file, with the version that it was made from."),
                Parameter("who", "string", "Who changes it, for others to read."),
                Parameter("why", "string", "What for, for others to read."),
                Parameter(
                    "accept_data_loss", "string", "Nodes whose data may be lost, like N3,N4; none: those of no node."
                ),
                Parameter("dry_run", "integer", "1: only judge it.", 0, 1),
            ),
            change_configuration,
            frozenset({"text"}),
            2 * TEXT_MAX,
        ),
        AdminAction(
            "set",
            "Change a setting of this node until it is started again.",
            (_SECTION, _NAME, Parameter("value", "string", "As in the cluster file, without quotes: 10s, 64MiB, 12.")),
            _set,
        ),
        AdminAction("unset", "Take a change of a setting back.", (_SECTION, _NAME), _unset),
        AdminAction(
            "drain",
            "Sequence nothing any more until the node is started again: other nodes take its logs over. Answered when no append is on its way.",
            (),
            _drain,
        ),
        AdminAction(
            "stop", "Stop the node in order: it is drained, everything is synced, and its process ends.", (), _stop
        ),
    )
}
