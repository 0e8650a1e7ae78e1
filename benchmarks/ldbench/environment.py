"""On what the figures were measured."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from benchmarks.disk_sync import measure_sync

_PACKAGES = ("logdevice-py", "uvloop", "msgpack", "rocksdict", "google-crc32c", "hdrhistogram")
_SYNCS = 500


def cpu_model(cpuinfo: str) -> str:
    """The name of the processor in the text of ``/proc/cpuinfo``; empty when it does not tell."""
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model"):
            return value.strip()
    return ""


def file_system(mounts: str, directory: str) -> str:
    """Type and device of the file system that holds an absolute path, by the text of ``/proc/mounts``."""
    best, found = "", "unknown"
    for line in mounts.splitlines():
        device, point, kind, *_ = line.split()
        inside = directory == point or directory.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, found = point, f"{kind} on {device}"
    return found


def describe_environment(directory: Path) -> dict[str, Any]:
    """The machine, the disk that `directory` is on, and what runs here. Syncs a file some hundred times."""
    cost = measure_sync(directory, count=_SYNCS)
    return {
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(_read("/proc/cpuinfo")) or platform.processor() or "unknown",
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "load": list(os.getloadavg()),
        "python": sys.version.split()[0],
        "file_system": file_system(_read("/proc/mounts"), str(directory.resolve())),
        "fdatasync_us": {"p50": cost.fdatasync_p50, "p99": cost.fdatasync_p99},
        "packages": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    """The revision that is checked out here, marked when files differ from it; empty outside of a repository."""
    here = Path(__file__).parent
    try:
        revision = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=here, capture_output=True, text=True)
        changed = subprocess.run(["git", "status", "--porcelain"], cwd=here, capture_output=True, text=True)
    except OSError:
        return ""
    if revision.returncode != 0:
        return ""
    return revision.stdout.strip() + ("+changes" if changed.stdout.strip() else "")
