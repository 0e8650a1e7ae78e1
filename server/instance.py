"""Instance ids: a later run of a node has a greater one, whatever the wall clock does."""

from __future__ import annotations

from pathlib import Path

from logdevice_py.core.ids import InstanceId
from logdevice_py.runtime.clock import wall_us
from logdevice_py.runtime.durable_file import write_durably

_NAME = "instance"


def choose_instance(directory: Path) -> InstanceId:
    """The id of this run: the wall clock, or one more than the last run's if that is greater. Nothing is written."""
    try:
        last = int((directory / _NAME).read_text())
    except (FileNotFoundError, ValueError):
        last = 0
    return InstanceId(max(wall_us(), last + 1))


def keep_instance(directory: Path, instance: InstanceId) -> None:
    """Make the id durable. Nobody but the epoch store may hear of it before."""
    write_durably(directory / _NAME, str(instance), alone=True)
