"""A node that stops in order leaves no append of unknown outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from google_crc32c import value as crc32c

from logdevice_py.core.ids import LogId
from logdevice_py.core.status import Status
from logdevice_py.protocol import messages as m
from server.dev.local_cluster import LocalCluster
from tests.integration.hostile import HostilePeer


def append_of(request_id: int, payload: bytes) -> m.Append:
    return m.Append(
        request_id=request_id,
        log=LogId(1),
        flags=0,
        records=1,
        crc=crc32c(payload),
        seen_epoch=0,  # type: ignore[arg-type]
        previous_lsn=0,  # type: ignore[arg-type]
        writer=b"",
        sequence=0,
        stream_epoch=0,  # type: ignore[arg-type]
        payload=payload,
    )


async def answer_to(peer: HostilePeer, kind: type[Any]) -> Any:
    """The next message of a type, looked for without a pause; None when the node closes the connection first."""
    while not peer.closed:
        await peer.read_some(0.001)
        for index, message in enumerate(peer.received):
            if isinstance(message, kind):
                return peer.received.pop(index)
    return None


@asynccontextmanager
async def told_of_the_stop(directory: Path) -> AsyncIterator[HostilePeer]:
    """A client that was told that its node stops. The node has stopped afterwards."""
    async with LocalCluster(nodes=1, directory=directory) as cluster:
        async with cluster.client() as client:
            await client.append(1, b"first")
        host = cluster.hosts.pop(0)
        async with HostilePeer(host, 0) as late:  # type: ignore[arg-type]
            await late.greet()
            stopping = asyncio.create_task(host.close())
            try:
                assert await answer_to(late, m.Shutdown) is not None
                yield late
            finally:
                await stopping


async def check_refusal(late: HostilePeer, number: int) -> None:
    """An append is refused, so that its outcome is known."""
    await late.say(append_of(number, b"late"))
    answer = await answer_to(late, m.Appended)
    assert answer is not None, "the connection was closed on the append"
    assert answer.status is Status.SHUTDOWN


async def test_an_append_of_a_client_that_hears_late_is_refused_and_not_left_unknown(tmp_path: Path) -> None:
    async with told_of_the_stop(tmp_path) as late:
        for number in (1, 2, 3):
            await asyncio.sleep(0.02)  # how long this client needs for everything that it does
            await check_refusal(late, number)


async def test_a_process_that_stalls_while_it_stops_does_not_take_everybody_for_silent(tmp_path: Path) -> None:
    async with told_of_the_stop(tmp_path) as late:
        time.sleep(0.3)  # noqa: ASYNC251 - the loop stalls, as in a process that gets no processor
        await asyncio.sleep(0.02)
        await check_refusal(late, 1)
