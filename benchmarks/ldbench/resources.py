"""What processes cost, from ``/proc``: CPU seconds, peak memory, bytes written."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from benchmarks.ldbench.engine import ServerProcess

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_KB: Final = 1024
SAMPLE_SECONDS: Final = 0.25
"""A process that is killed is missing what it did since the sample before."""
CLIENT: Final = "client"


@dataclass(slots=True)
class ProcessCost:
    """Of one process since it started."""

    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    """Greatest resident memory."""
    resident_bytes: int = 0
    written_bytes: int = 0
    """Given to the disks, or to be given later."""
    read_bytes: int = 0
    """Fetched from the disks."""


@dataclass(slots=True)
class RoleCost:
    """Of all processes of one role, in the time that was measured."""

    processes: int = 0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    """Of its servers together; of a server that was started again, the greatest of its processes."""
    server_peak_bytes: int = 0
    """Of the server that had most."""
    written_bytes: int = 0
    read_bytes: int = 0


def parse_stat(text: str) -> float:
    """CPU seconds, user and system, of ``/proc/PID/stat``; the name of the program may hold blanks and parentheses."""
    values = text.rpartition(")")[2].split()
    return (int(values[11]) + int(values[12])) / _TICKS


def parse_status(text: str) -> tuple[int, int]:
    """Peak and present resident bytes of ``/proc/PID/status``; 0 for a process that has ended."""
    found = {"VmHWM": 0, "VmRSS": 0}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name in found:
            found[name] = int(value.split()[0]) * _KB
    return found["VmHWM"], found["VmRSS"]


def parse_io(text: str) -> tuple[int, int]:
    """Bytes written, without those of files that were deleted before they reached a disk, and read, of ``/proc/PID/io``."""
    found = dict(line.split(": ") for line in text.splitlines())
    return int(found["write_bytes"]) - int(found.get("cancelled_write_bytes", 0)), int(found["read_bytes"])


def cost_of(pid: int) -> ProcessCost | None:
    """Of a process at this moment; None when it is gone or belongs to another user."""
    directory = Path(f"/proc/{pid}")
    try:
        cpu = parse_stat((directory / "stat").read_text())
        peak, resident = parse_status((directory / "status").read_text())
        written, read = parse_io((directory / "io").read_text())
    except (OSError, KeyError):
        return None
    return ProcessCost(cpu, peak, resident, written, read)


def children_of(pid: int) -> list[int]:
    """Processes that a process has started and that have not ended; none where the kernel does not tell."""
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        try:
            found += map(int, (thread / "children").read_text().split())
        except OSError:  # it has ended meanwhile
            continue
    return found


def reset_peak(pid: int) -> None:
    """Have the kernel begin anew with the greatest resident memory of a process; in vain where that is not allowed."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        return


@dataclass(slots=True)
class _Watched:
    name: str
    role: str
    before: ProcessCost
    last: ProcessCost = field(default_factory=ProcessCost)


class ResourceMeter:
    """Costs of the servers and of the client process between `start` and `stop`."""

    def __init__(self, processes: Callable[[], Sequence[ServerProcess]]) -> None:
        self._processes = processes
        self._watched: dict[int, _Watched] = {}
        self._sampler: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; on the event loop."""
        self._watched = {}
        for pid in self._pids():
            reset_peak(pid)
        self._sample(begins=True)
        self._sampler = asyncio.get_running_loop().create_task(self._watch(), name="resource meter")

    async def stop(self) -> dict[str, RoleCost]:
        """Costs by role, the client's under `CLIENT`."""
        if self._sampler is not None:
            self._sampler.cancel()
            await asyncio.gather(self._sampler, return_exceptions=True)
            self._sampler = None
        self._sample()
        roles: dict[str, RoleCost] = {}
        peaks: dict[tuple[str, str], int] = {}
        for watched in self._watched.values():
            role = roles.setdefault(watched.role, RoleCost())
            role.processes += 1
            role.cpu_seconds += watched.last.cpu_seconds - watched.before.cpu_seconds
            role.written_bytes += max(0, watched.last.written_bytes - watched.before.written_bytes)
            role.read_bytes += watched.last.read_bytes - watched.before.read_bytes
            # a server that was killed and its next process do not hold memory at the same time
            server = watched.role, watched.name
            peaks[server] = max(peaks.get(server, 0), watched.last.peak_bytes)
        for (name, _), peak in peaks.items():
            roles[name].peak_bytes += peak
            roles[name].server_peak_bytes = max(roles[name].server_peak_bytes, peak)
        return roles

    def _pids(self) -> dict[int, tuple[str, str]]:
        """Names and roles. What a server has started to help it is a part of its role, under a name of its own: both hold memory at the same time."""
        found = {}
        for process in self._processes():
            found[process.pid] = process.name, process.role
            for child in children_of(process.pid):
                found[child] = f"{process.name}'s {child}", process.role
        found[os.getpid()] = CLIENT, CLIENT
        return found

    def _sample(self, *, begins: bool = False) -> None:
        for pid, (name, role) in self._pids().items():
            cost = cost_of(pid)
            if cost is None:
                continue
            watched = self._watched.get(pid)
            if watched is None:
                # what starts meanwhile counts as a whole
                watched = self._watched[pid] = _Watched(name, role, replace(cost) if begins else ProcessCost())
            watched.last = cost

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            self._sample()
