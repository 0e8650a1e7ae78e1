"""Instance ids: a later run of a node has a greater one, whatever the wall clock does."""

from __future__ import annotations

import os
from pathlib import Path

from logdevice_py.core.ids import InstanceId
from logdevice_py.runtime.clock import wall_us

_NAME = "instance"


def next_instance(directory: Path) -> InstanceId:
    """The id of this run: the wall clock, or one more than the last run's if that is greater. Durable before it is returned."""
    path = directory / _NAME
    try:
        last = int(path.read_text())
    except (FileNotFoundError, ValueError):
        last = 0
    instance = max(wall_us(), last + 1)
    temporary = path.with_suffix(".new")
    with open(temporary, "w") as file:
        file.write(str(instance))
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return InstanceId(instance)
