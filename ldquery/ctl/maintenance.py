"""Verbs about maintenances: taking nodes and shards away when it is safe, and restarting a cluster node by node."""

from __future__ import annotations

import argparse
import asyncio
import getpass
import os
import shlex
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from client.cli.options import Words, complete_words
from client.cli.program import EXIT_FAILED, EXIT_OK, EXIT_UNHEALTHY, parse_timeout, say
from ldquery.ctl.verb import PROGRAM, Verb, access_of, iso_time, parse_node, show, show_rows
from logdevice_py.core.ids import NodeId, ShardId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, format_duration

if TYPE_CHECKING:
    from client.client import Client
    from client.maintenance.state import Maintenance
    from ldquery.ctl.impact import Survey
    from ldquery.maintenance.cluster import ClusterSurvey
    from ldquery.maintenance.manager import MaintenanceLog, MaintenanceManager
    from ldquery.maintenance.rolling import RollingRestarter

_SECONDS: Final = 10.0
_COMMAND_AWAY: Final = 600.0
_DUTY: Final = "maintenances"
_SHOWN: Final = ("number", "who", "kind", "phase", "since time", "for", "by", "reason", "waits for")


def whoami() -> str:
    """Who asks, for others to see."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return f"{user}@{socket.gethostname()}"[:100]


@asynccontextmanager
async def opened(
    client: Client, arguments: argparse.Namespace
) -> AsyncIterator[tuple[MaintenanceLog, MaintenanceManager, ClusterSurvey]]:
    """The log of maintenances, read to its end, and a manager."""
    from client.node_tables import NodeAsker
    from ldquery.maintenance.cluster import ClusterDrains, ClusterSurvey
    from ldquery.maintenance.manager import MaintenanceLog, MaintenanceManager
    from logdevice_py.runtime.clock import wall_us

    seconds = arguments.timeout or _SECONDS
    asker = NodeAsker(client.config, access_of(arguments))
    try:
        async with MaintenanceLog(client, timeout=max(seconds, 3.0)) as log:
            await log.current()
            survey = ClusterSurvey(client, asker, seconds)
            yield log, MaintenanceManager(log, survey, ClusterDrains(client), wall_us), survey
    finally:
        await asker.close()


def maintenance_row(each: Maintenance, reasons: list[str] | None = None) -> dict[str, Any]:
    """What is told of a maintenance."""
    from ldquery.maintenance.manager import kind_named

    return {
        "number": each.number,
        "who": each.names,
        "kind": kind_named(each.wanted.kind),
        "phase": each.phase.name.lower()
        if each.cause is None
        else f"{each.phase.name.lower()}: {each.cause.name.lower()}",
        "since time": each.since,
        "for": format_duration(each.wanted.for_us) if each.wanted.for_us else None,
        "expires time": each.expires,
        "by": each.wanted.by,
        "reason": each.wanted.reason or None,
        "restart": each.wanted.restart or None,
        "waits for": "; ".join(reasons) if reasons else None,
    }


def sentence(each: Maintenance) -> str:
    """What is so, for people."""
    until = f" until {iso_time(each.expires)[:16]}Z" if each.expires is not None else ""
    text = {
        "WAITING": "waits until it is safe",
        "GRANTED": f"may disappear{until}",
        "DRAINING": "is being drained",
        "DRAINED": f"is drained and may disappear{until}",
        "ENDING": "is to be used again",
        "OVER": "is over",
    }[each.phase.name]
    return f"maintenance {each.number}: {each.names} {text} ({each.wanted.by}{': ' * bool(each.wanted.reason)}{each.wanted.reason})"


# apply


def _apply_options(options: argparse.ArgumentParser) -> None:
    action = options.add_argument("names", metavar="WHO", nargs="+", help="nodes like N3, or shards like N3:S0")
    complete_words(action, Words.NODES)
    kind = options.add_mutually_exclusive_group(required=True)
    kind.add_argument("--may-disappear", action="store_true", help="they go for a while, with what they hold")
    kind.add_argument("--drain", action="store_true", help="they are emptied first, and may go for good")
    options.add_argument(
        "--for",
        dest="for_",
        metavar="T",
        type=parse_timeout,
        help="for how long, like 2h: it waits so long at most, and ends so long after it was granted, when they are back (needed with --may-disappear)",
    )
    options.add_argument("--reason", default="", metavar="TEXT", help="for others to read")
    options.add_argument(
        "--no-wait", action="store_true", help="only ask for it; a node sees to it, or who waits or manages"
    )
    _within_option(options)


def _within_option(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--within",
        metavar="T",
        type=parse_timeout,
        help="take it back, with exit status 5, when it was not granted within this time",
    )


async def _apply(client: Client, arguments: argparse.Namespace) -> int:
    from client.maintenance.commands import ApplyMaintenance, MaintenanceKind
    from ldquery.ctl.impact import going_shards

    if arguments.may_disappear and arguments.for_ is None:
        raise LogDeviceError(Status.INVALID_PARAM, "--may-disappear: say for how long: --for 2h")
    nodes: list[NodeId] = []
    shards: dict[ShardId, None] = {}
    for name, members in going_shards(client.config, arguments.names):
        if ":" not in name:
            nodes.append(NodeId(int(name[1:])))
        shards.update(dict.fromkeys(sorted(members)))
    wanted = ApplyMaintenance(
        MaintenanceKind.DRAIN if arguments.drain else MaintenanceKind.AWAY,
        list(dict.fromkeys(nodes)),
        list(shards),
        round((arguments.for_ or 0) * SECOND),
        whoami(),
        arguments.reason,
    )
    async with opened(client, arguments) as (log, manager, _):
        number = await log.propose(wanted)
        if arguments.no_wait:
            show(arguments, maintenance_row(log.state.live[number]), plain=sentence(log.state.live[number]))
            return EXIT_OK
        return await _wait_for(arguments, log, manager, number)


async def _wait_for(
    arguments: argparse.Namespace, log: MaintenanceLog, manager: MaintenanceManager, number: int
) -> int:
    from client.maintenance.commands import EndCause, EndMaintenance
    from ldquery.maintenance.rolling import PAUSE, Pace, until_granted

    say(
        PROGRAM,
        f"maintenance {number} is asked for, also when this program ends: see ldctl maintenance wait {number}, or cancel {number}",
    )
    ends = None if arguments.within is None else asyncio.get_running_loop().time() + arguments.within
    each = await until_granted(log, manager, number, Pace(lambda text: say(PROGRAM, text), PAUSE), ends=ends)
    if each is None:
        await log.overtaken(EndMaintenance(number, EndCause.CANCELLED))
        say(PROGRAM, f"maintenance {number} was not granted in time and is cancelled", alarm=True)
        return EXIT_UNHEALTHY
    show(arguments, maintenance_row(each), plain=sentence(each))
    return EXIT_OK


def _number(options: argparse.ArgumentParser) -> None:
    options.add_argument("number", metavar="NUMBER", type=int, help="of the maintenance: ldctl maintenance list")


def _wait_options(options: argparse.ArgumentParser) -> None:
    _number(options)
    _within_option(options)


async def _wait(client: Client, arguments: argparse.Namespace) -> int:
    async with opened(client, arguments) as (log, manager, _):
        return await _wait_for(arguments, log, manager, arguments.number)


# list


def _list_options(options: argparse.ArgumentParser) -> None:
    options.add_argument("--all", action="store_true", help="also the last ones that are over")


async def _list(client: Client, arguments: argparse.Namespace) -> int:
    async with opened(client, arguments) as (log, manager, survey):
        state = log.state
        reasons = await manager.reasons()
        listed = [*(state.ended if arguments.all else ()), *state.live.values()]
        rows = [maintenance_row(each, reasons.get(each.number)) for each in listed]
        if rows:
            show_rows(arguments, rows, _SHOWN)
        else:
            say(PROGRAM, "there are no maintenances")
        restart = state.restart
        if restart is not None:
            left = ", ".join(f"N{node}" for node in restart.left)
            say(PROGRAM, f"rolling restart {restart.number} of {restart.by} is under way; left: {left}")
        if state.live:
            say(PROGRAM, who_sees_to_them(await survey()))
    return EXIT_OK


def who_sees_to_them(found: Survey) -> str:
    """Which nodes see to maintenances, for people."""
    from ldquery.maintenance.duties import sees_to

    told = sees_to(_DUTY, found.nodes.values())
    if not told:
        return "no node sees to maintenances (by_nodes of [settings.maintenance]): ldctl maintenance wait NUMBER, or manage, does"
    return f"{', '.join(told)} sees to them"


# cancel


def _cancel_options(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "numbers", metavar="NUMBER", nargs="+", type=int, help="of maintenances: ldctl maintenance list"
    )


async def _cancel(client: Client, arguments: argparse.Namespace) -> int:
    from client.maintenance.commands import EndCause, EndMaintenance
    from client.maintenance.state import MaintenancePhase

    status = EXIT_OK
    async with opened(client, arguments) as (log, manager, _):
        for number in arguments.numbers:
            before = log.state.live.get(number)
            if before is None:
                say(PROGRAM, f"there is no maintenance {number}, or it is over", alarm=True)
                status = EXIT_FAILED
                continue
            if before.phase is not MaintenancePhase.ENDING:
                await log.overtaken(EndMaintenance(number, EndCause.CANCELLED))
            reasons: list[str] = []
            while number in log.state.live and not reasons:
                reasons = (await manager.look()).reasons.get(number, [])
            if reasons:
                say(PROGRAM, f"maintenance {number} is not over yet: {'; '.join(reasons)}", alarm=True)
                status = EXIT_UNHEALTHY
                continue
            show(
                arguments,
                {"number": number, "who": before.names, "cancelled": True},
                plain=f"maintenance {number} of {before.names} is over",
            )
    return status


# manage


def _manage_options(options: argparse.ArgumentParser) -> None:
    options.add_argument(
        "--every", metavar="T", type=parse_timeout, default=10.0, help="between two looks (default 10s)"
    )


async def _manage(client: Client, arguments: argparse.Namespace) -> int:
    from ldquery.maintenance.rolling import Pace

    pace = Pace(lambda text: say(PROGRAM, text), arguments.every)
    async with opened(client, arguments) as (log, manager, _):
        while True:
            pace.look()
            try:
                done = await manager.look()
                waiting = [
                    f"{number} ({log.state.live[number].names}): {'; '.join(reasons)}"
                    for number, reasons in done.reasons.items()
                    if reasons and number in log.state.live
                ]
            except LogDeviceError as error:
                if not error.retriable:
                    raise
                waiting = [str(error)]
            await pace.wait("maintenances that wait", waiting or ["none"])


# rolling-restart


def _restart_options(options: argparse.ArgumentParser) -> None:
    action = options.add_argument(
        "nodes", metavar="NODE", nargs="*", type=parse_node, help="like N3, in this order (default: all nodes)"
    )
    complete_words(action, Words.NODES)
    options.add_argument(
        "--command",
        metavar="CMD",
        help="restarts a node, by the shell: {node} is N3, {number} is 3, {host} the host of the cluster file; like 'ssh {host} systemctl restart logdeviced@{number}'",
    )
    options.add_argument(
        "--away",
        metavar="T",
        type=parse_timeout,
        default=_COMMAND_AWAY,
        help="how long a node may take to be back and well (default 10min)",
    )
    options.add_argument("--reason", default="rolling restart", metavar="TEXT", help="for others to read")
    options.add_argument(
        "--abandon", action="store_true", help="end the rolling restart under way; nodes stay as they are"
    )


async def _rolling_restart(client: Client, arguments: argparse.Namespace) -> int:
    from ldquery.maintenance.rolling import Restarting, RollingRestarter

    unknown = [f"N{node}" for node in arguments.nodes if node not in client.config.nodes]
    if unknown:
        raise LogDeviceError(Status.NOTINCONFIG, f"the cluster file has no {', '.join(unknown)}")
    if not arguments.abandon and not arguments.command:
        text = "say how a node is restarted: --command 'ssh {host} systemctl restart logdeviced'"
        raise LogDeviceError(Status.INVALID_PARAM, text)
    async with opened(client, arguments) as (log, manager, survey):
        if arguments.abandon:
            return await abandon_restart(log, PROGRAM)
        how = Restarting(ShellCommand(client, arguments.command), arguments.away, lambda text: say(PROGRAM, text))
        return await restart_all(client, arguments, RollingRestarter(log, manager, survey, how), PROGRAM)


async def abandon_restart(log: MaintenanceLog, program: str) -> int:
    """End the rolling restart that is under way; the exit status of a program that does."""
    from ldquery.maintenance.rolling import abandon

    ended = await abandon(log)
    say(program, "there is no rolling restart" if ended is None else f"rolling restart {ended.number} is abandoned")
    return EXIT_OK


async def restart_all(client: Client, arguments: argparse.Namespace, restarter: RollingRestarter, program: str) -> int:
    """Restart nodes, or all; the exit status of a program that does."""
    from ldquery.maintenance.rolling import RestartStopped
    from ldquery.maintenance.safety import restartable

    began = time.monotonic()
    try:
        count = await restarter.run(arguments.nodes or restartable(client.config), whoami(), arguments.reason)
    except RestartStopped as error:
        say(program, f"stopped: {error}. Run it again to go on, or with --abandon", alarm=True)
        return EXIT_FAILED
    took = round(time.monotonic() - began, 1)
    text = f"{count} nodes were restarted, one after the other, in {took} s"
    show(arguments, {"restarted": count, "seconds": took}, plain=text)
    return EXIT_OK


class ShellCommand:
    """Restarts a node by a command of the operator's shell."""

    def __init__(self, client: Client, command: str) -> None:
        self._client = client
        self._command = command

    async def __call__(self, node: NodeId) -> None:
        from ldquery.maintenance.rolling import RestartStopped

        host = self._client.config.nodes[node].host
        command = self._command
        # whoever may change the configuration is not therefore to run commands as the operator
        for name, value in (("{node}", f"N{node}"), ("{number}", str(node)), ("{host}", shlex.quote(host))):
            command = command.replace(name, value)
        process = await asyncio.create_subprocess_shell(command, stdin=asyncio.subprocess.DEVNULL)
        status = await process.wait()
        if status:
            raise RestartStopped(f"{command!r} ended with status {status}")


_LOG: Final = "Needs enabled = true in [settings.maintenance] of the cluster file."
VERBS: tuple[Verb, ...] = (
    Verb(
        "maintenance apply",
        "take nodes or shards away when it is safe",
        "Asks for a maintenance, waits until it is safe beside everything that others may take away, and says so (exit status 0): then they may be stopped. "
        "With --drain they are emptied first. It says what it waits for. Interrupted, the request stays, and a node sees to it (maintenance list says which); maintenance wait tells when it is granted. "
        f"End it with maintenance cancel when they are back. {_LOG}",
        _apply_options,
        _apply,
    ),
    Verb(
        "maintenance wait",
        "wait until a maintenance is granted",
        "As apply does: exit status 0 says that it may begin at this moment.",
        _wait_options,
        _wait,
    ),
    Verb(
        "maintenance list",
        "show maintenances, and what they wait for",
        f"Prints the maintenances that wait, are granted or end, with the reasons why they have to wait. It changes nothing. {_LOG}",
        _list_options,
        _list,
    ),
    Verb(
        "maintenance cancel",
        "end maintenances",
        "Ends maintenances, whether they were granted or not. Drained shards are used again.",
        _cancel_options,
        _cancel,
    ),
    Verb(
        "maintenance manage",
        "see to all maintenances until interrupted",
        "Grants what is safe, has shards drained and used again, and ends what is over. Any number of these may run; apply and wait do the same while they wait.",
        _manage_options,
        _manage,
    ),
    Verb(
        "rolling-restart",
        "restart nodes one after the other, each when it is safe",
        "Restarts each node by a command, when it is safe and all others are well, and waits until it is back and well before the next one. It says what it waits for, and stops "
        "when the command fails, a node is not back in time, or comes back without its data. Interrupted or killed, it goes on where it was when it is run again. "
        f"{_LOG}",
        _restart_options,
        _rolling_restart,
    ),
)
