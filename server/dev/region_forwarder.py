"""``python -m server.dev.region_forwarder``: the routes between regions for who may not make network namespaces, a process of its own.

It listens at the address of each node, and forwards connections to where the node's process stands, their bytes as late and as many at a time as the route
between the two regions allows. Who dials is told by his address; who is not known stands in the region of who is on this machine itself. What is cut waits: connections neither break
nor come about, and go on when the cut is over. Windows, lost packets and time-outs of TCP are not played. Commands are those of `region_router`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sys
from typing import Final

from server.dev.region_router import COMMAND_BYTES_MAX, RegionRoute, RegionRoutes

_PIECE: Final = 1 << 16
_PIECES: Final = 64
"""Of a direction of a connection that are on their way at most: as many bytes as TCP has there."""
_LOOK: Final = 0.1
"""Seconds until a route that had no room is looked at again."""
_END: Final = b""


class RegionForwarder:
    """Takes connections for nodes, and obeys."""

    def __init__(self, commands: socket.socket) -> None:
        self._commands = commands
        self._routes = RegionRoutes(RegionRoute(), {})
        self._regions: dict[str, str] = {}
        """By the addresses from which nodes dial."""
        self._here = ""
        """The region of everybody else."""
        self._servers: list[asyncio.Server] = []
        self._ended = asyncio.Event()
        self._changed = asyncio.Event()
        """Set when other routes are cut; there is another one then."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Until no more commands can come."""
        asyncio.get_running_loop().add_reader(self._commands.fileno(), self._take_command)
        await self._ended.wait()

    def _take_command(self) -> None:
        data = self._commands.recv(COMMAND_BYTES_MAX)
        if not data:
            self._ended.set()
            return
        task = asyncio.create_task(self._obey(data))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _obey(self, data: bytes) -> None:
        answer: list[object] = []
        match json.loads(data):
            case {"routes": {"usual": usual, "others": others}}:
                self._routes.usual = RegionRoute(*usual)
                self._routes.others = {(one, two): RegionRoute(*route) for one, two, *route in others}
            case {"here": region}:
                self._here = region
            case {"machine": {"address": address, "stands_at": stands_at, "port": port, "region": region}}:
                self._regions[stands_at] = region
                answer = await self._listen(address, stands_at, port, region)
            case {"cut": pairs}:
                self._routes.cut = {(source, target) for source, target in pairs}
                self._changed.set()
                self._changed = asyncio.Event()
            case {"sent": _}:
                answer = [[*pair, size] for pair, size in sorted(self._routes.sent.items())]
                self._routes.sent.clear()
        self._commands.send(json.dumps(answer).encode())

    async def _until_changed(self) -> None:
        """Until other routes are cut, or for a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LOOK):
                await self._changed.wait()

    async def _listen(self, address: str, stands_at: str, port: int, region: str) -> list[object]:
        """What is wrong, if anything is."""

        async def taken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(OSError):
                await self._forward_connection(reader, writer, (stands_at, port), region)

        try:
            self._servers.append(await asyncio.start_server(taken, address, port))
        except OSError as error:
            return [str(error)]
        return []

    async def _forward_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: tuple[str, int], target: str
    ) -> None:
        source = self._regions.get(writer.get_extra_info("peername")[0], self._here)
        there, back = (source, target), (target, source)
        while {there, back} & self._routes.cut:
            await self._until_changed()
        try:
            far_reader, far_writer = await asyncio.open_connection(*to)
        except OSError:
            writer.transport.abort()  # a refusal comes as a connection that breaks
            return
        await asyncio.gather(
            self._forward(reader, far_writer, there), self._forward(far_reader, writer, back), return_exceptions=True
        )

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: tuple[str, str]) -> None:
        """Bytes of one direction, until one end closes the connection. The other end hears of it as late as of everything."""
        clock = asyncio.get_running_loop().time
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_PIECES)

        async def read() -> None:
            piece = b"begin"
            while piece:
                try:
                    piece = await reader.read(_PIECE)
                except OSError:
                    piece = _END
                while (arrival := self._routes.arrival(*pair, len(piece), clock())) is None:
                    await self._until_changed()
                await on_the_way.put((arrival, piece))

        reading = asyncio.create_task(read())
        try:
            while True:
                arrival, piece = await on_the_way.get()
                await asyncio.sleep(max(0.0, arrival - clock()))
                if piece == _END:
                    break
                writer.write(piece)
                await writer.drain()
        finally:
            reading.cancel()
            writer.close()


def main() -> None:
    """The program."""

    async def run() -> None:
        await RegionForwarder(socket.socket(fileno=sys.stdin.fileno())).run()

    asyncio.run(run())


if __name__ == "__main__":
    main()
