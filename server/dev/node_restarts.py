"""``ld-dev-cluster rolling-restart``: nodes are restarted by the supervisor, one after the other, each when it is safe."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from client.cli.program import say
from client.client import Client
from ldquery.ctl.maintenance import abandon_restart, opened, restart_all
from ldquery.maintenance.rolling import Restarting, RestartStopped, RollingRestarter
from logdevice_py.core.ids import NodeId
from server.dev import layout
from server.dev.supervisor import CommandError, ask

_AWAY: Final = 120.0
_PAUSE: Final = 0.5
_PROGRAM: Final = "ld-dev-cluster"


async def restart_in_turn(directory: Path, nodes: Sequence[int], *, abandon: bool) -> int:
    """The command; its exit status.

    Args:
        nodes: in this order; none: all.
        abandon: end the rolling restart under way in place of it.

    Raises:
        LogDeviceError: the cluster does not answer, or keeps no log of maintenances.
    """
    file = layout.cluster_file(directory)
    arguments = argparse.Namespace(
        config=str(file),
        token_file=None,
        timeout=None,
        json=False,
        nodes=[NodeId(node) for node in nodes],
        reason="rolling restart",
    )

    async def restart(node: NodeId) -> None:
        try:
            await asyncio.to_thread(ask, directory, "restart", node=int(node))
        except CommandError as error:
            raise RestartStopped(str(error)) from None

    async with Client(file, name=_PROGRAM) as client, opened(client, arguments) as (log, manager, survey):
        if abandon:
            return await abandon_restart(log, _PROGRAM)
        how = Restarting(restart, _AWAY, lambda text: say(_PROGRAM, text), _PAUSE)
        return await restart_all(client, arguments, RollingRestarter(log, manager, survey, how), _PROGRAM)
