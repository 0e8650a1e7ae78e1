"""A replica on asyncio, before it follows anything."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from client.replica.replica import Replica
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError, Status
from tests.unit.client.replica.registers import REGISTERS


async def test_what_is_closed_while_its_logs_are_looked_up_follows_nothing() -> None:
    looked_up = asyncio.Event()

    async def known_log(log: int) -> LogId:
        await looked_up.wait()
        return LogId(log)

    client: Any = SimpleNamespace(
        future=asyncio.get_running_loop().create_future, known_log=known_log, wake=lambda: None, session=None
    )
    replica = Replica(client, REGISTERS, 1, 2)
    entering = asyncio.ensure_future(replica.__aenter__())
    await asyncio.sleep(0)
    await replica.close()
    looked_up.set()
    with pytest.raises(LogDeviceError, match="the replica was closed") as raised:
        await entering
    assert raised.value.status is Status.SHUTDOWN
    assert repr(replica) == "<Replica of 1: not entered>"
