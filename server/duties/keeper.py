"""A running node's duties: watches whether they are its own, and runs a process for each that there is work for."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Final

from client.log_tree.settings import LogTreeSettings
from client.maintenance.settings import MaintenanceSettings
from epoch_store.interface import ReadMetadata
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.core.declare import settings_from
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.status import Status
from logdevice_py.placement.sequencer_locator import locate_sequencer
from logdevice_py.programs import own_program
from server.configuration.keeper import ask_epoch_store
from server.duties.duty_watch import JANITORS, MAINTENANCES, Duty, DutyStep, DutyWatch
from server.node_view import AdminView

log = logging.getLogger("logdevice.duties")

LOOK_SECONDS: Final = 2.0
_END_SECONDS: Final = 5.0
_LINE_MAX: Final = 256 << 10
"""Bytes of a line that a process says."""


def wanted_duties(config: ClusterConfig) -> list[Duty]:
    """What nodes see to, as the configuration says."""
    settings: MaintenanceSettings = settings_from(MaintenanceSettings, config.settings.get("maintenance", {}))
    tree: LogTreeSettings = settings_from(LogTreeSettings, config.settings.get("log_tree", {}))
    return [
        *([MAINTENANCES] if config.has_maintenances and settings.by_nodes else []),
        *([JANITORS] if config.has_log_tree and tree.janitors else []),
    ]


class DutyKeeper:
    """Use it as an async context manager, for as long as the node serves."""

    def __init__(self, node: AdminView) -> None:
        self._node = node
        self._watches: dict[str, DutyWatch] = {}
        self._workers: dict[str, asyncio.Task[None]] = {}
        self._looking: asyncio.Task[None] | None = None

    async def __aenter__(self) -> DutyKeeper:
        self._node.duties = self.mine
        self._looking = asyncio.create_task(self._look_now_and_then(), name=f"N{self._node.node_id} duties")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._looking is not None
        for task in (self._looking, *self._workers.values()):
            task.cancel()
        await asyncio.gather(self._looking, *self._workers.values(), return_exceptions=True)

    def mine(self) -> list[str]:
        """The duties of this node, each with what is the matter with it."""
        return [self._told(duty) for duty in wanted_duties(self._node.config) if self._is_mine(duty.log)]

    def _told(self, duty: Duty) -> str:
        watch = self._watches.get(duty.name)
        if watch is None or watch.is_working or not watch.trouble:
            return duty.name
        return f"{duty.name} (failed: {watch.trouble.replace(';', ',')})"  # column `duties` is cut at semicolons

    def _is_mine(self, log: LogId) -> bool:
        node = self._node
        if node.readiness() is not Status.OK or node.node.sequencer is None:
            return False
        return locate_sequencer(log, node.config, node.node.gossip.may_sequence) == node.node_id

    def _end_of(self, log: LogId) -> Lsn:
        sequencer = self._node.node.sequencer
        found = None if sequencer is None else sequencer.sequencers.get(log)
        return LSN_INVALID if found is None else found.last_released

    async def _look_now_and_then(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Begin and end work, as what this node sees to has changed since the last look."""
        wanted = {duty.name: duty for duty in wanted_duties(self._node.config)}
        for duty in wanted.values():
            self._watches.setdefault(duty.name, DutyWatch(duty))
        for name, watch in self._watches.items():
            is_mine = name in wanted and self._is_mine(watch.duty.log)
            step = watch.look(is_mine=is_mine, end=self._end_of(watch.duty.log), now=time.monotonic())
            if step is DutyStep.BEGIN:
                self._workers[name] = asyncio.create_task(self.work(watch), name=f"duty {name}")
            elif step is DutyStep.END and not self._workers[name].cancelling():  # once: it has a while to end
                self._workers[name].cancel()

    async def work(self, watch: DutyWatch) -> None:
        """Do what there is to do, and tell the watch that it has ended."""
        name, trouble = watch.duty.name, "it was ended"
        try:
            trouble = await run_worker(self._node, name) if await self._may_be_wanted(watch.duty.log) else ""
        except OSError as error:
            trouble = f"its process cannot be started: {error}"
        finally:
            watch.ended(trouble, time.monotonic())
        if trouble:
            log.warning("cannot see to %s: %s", name, trouble)

    async def _may_be_wanted(self, log: LogId) -> bool:
        """False: nobody has used the log, so that a process would find nothing. Its start takes a second of a processor."""
        found = await ask_epoch_store(self._node.ask_epoch_store, ReadMetadata(log))
        return found.status is not Status.EMPTY


async def run_worker(node: AdminView, name: str) -> str:
    """Run the process to its end; why it failed, or empty."""
    process = await asyncio.create_subprocess_exec(
        *own_program("server.duties.worker", node.path, int(node.node_id), name),
        stdin=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        limit=_LINE_MAX,
    )
    assert process.stdin is not None
    assert process.stderr is not None
    said = ""
    try:
        while line := await _read_line(process.stderr):
            said = line.decode("utf-8", "replace").strip()
            log.info("%s: %s", name, said)
        return "" if await process.wait() == 0 else said or f"its process ended with {process.returncode}"
    finally:
        if process.returncode is None:
            process.stdin.close()
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_END_SECONDS):
                        await process.wait()
            finally:  # also when whoever waits for its end is cancelled again
                if process.returncode is None:
                    process.kill()


async def _read_line(output: asyncio.StreamReader) -> bytes:
    """The next line of a process; empty when there are no more. One that is too long does not end the process's work."""
    try:
        return await output.readline()
    except ValueError:
        return b"it said a line of more than %d bytes" % _LINE_MAX
