"""The process beside a node that does one of its duties: arguments are the cluster file, the node, and the duty.

It ends with status 0 when nothing is left to do, and when its standard input ends, as it does with its node. What it says on standard error is logged by the node.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Final

from client.admin_access import AdminAccess
from client.client import Client
from client.identity import ClientIdentity
from client.node_tables import NodeAsker
from ldquery.maintenance.cluster import ClusterDrains, ClusterSurvey
from ldquery.maintenance.manager import MaintenanceLog, MaintenanceManager, is_used
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.security import TLS_OFF, parse_security
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.clock import wall_us
from logdevice_py.runtime.tls import TlsFiles
from server.duties.duty_watch import JANITORS, MAINTENANCES
from server.duties.janitor_duty import see_to_namespaces
from server.duties.maintenance_duty import see_to_maintenances

_SECONDS: Final = 10.0
"""For each round of questions."""
_NICE: Final = 5


def _access(config: ClusterConfig, path: Path, node: NodeId) -> AdminAccess:
    """The nodes' admin API takes the token, and where there is TLS the certificate of this node."""
    access = AdminAccess.of_program(path)
    settings = parse_security(config.settings)
    if settings.tls == TLS_OFF:
        return access
    files = TlsFiles.of_node(settings, path.parent, node)
    return AdminAccess(access.token, path, ClientIdentity(certificate=files.certificate, key=files.key))


async def _maintenances(path: Path, node: NodeId) -> None:
    async with Client(path, name=f"N{node}, maintenances") as client:
        await client.newest_config()
        if not client.config.has_maintenances or not await is_used(client, _SECONDS):
            return
        asker = NodeAsker(client.config, _access(client.config, path, node))
        try:
            async with MaintenanceLog(client, timeout=_SECONDS) as log:
                drains, survey = ClusterDrains(client), ClusterSurvey(client, asker, _SECONDS)
                manager = MaintenanceManager(log, survey, drains, wall_us)
                await see_to_maintenances(log, manager, say=_say)
        finally:
            await asker.close()


async def _janitors(path: Path, node: NodeId) -> None:
    async with Client(path, name=f"N{node}, janitors") as client:
        await client.newest_config()
        await see_to_namespaces(client, f"N{node}", say=_say)


_WORK: Final = {MAINTENANCES.name: _maintenances, JANITORS.name: _janitors}
_said = ""


def _say(text: str) -> None:
    """What was said last is not repeated."""
    global _said
    if text != _said:
        _said = text
        print(text, file=sys.stderr, flush=True)


async def _until_input_ends() -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    while await reader.read(1024):
        pass


async def run(path: Path, node: NodeId, duty: str) -> int:
    """The program; its exit status."""
    working = asyncio.create_task(_WORK[duty](path, node))
    ending = asyncio.create_task(_until_input_ends())
    await asyncio.wait({working, ending}, return_when=asyncio.FIRST_COMPLETED)
    for task in (working, ending):
        task.cancel()
    outcome, _ = await asyncio.gather(working, ending, return_exceptions=True)
    if isinstance(outcome, LogDeviceError):
        helps = ""
        if outcome.status is Status.ACCESS:
            helps = f" (this is done as the principal of {path.with_suffix('.pem')}: it has to be there, and an administrator's)"
        _say(f"{outcome}{helps}")
        return 1
    if isinstance(outcome, Exception):
        raise outcome
    return 0


def main() -> int:
    """Entry point; the exit status."""
    file, node, duty = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # at a terminal the whole group gets it: the node says when to end
    os.nice(_NICE)  # the node comes first
    try:
        return asyncio.run(run(Path(file), NodeId(int(node)), duty))
    except LogDeviceError as error:
        print(error, file=sys.stderr)
        return 1
