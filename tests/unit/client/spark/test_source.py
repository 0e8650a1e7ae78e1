"""What the driver is told when a source cannot be used."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

from client.spark.source import LogDeviceSource
from logdevice_py.core.status import LogDeviceError, Status

CLUSTER = """
name = "told"
version = 1
uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
epoch_store = "memory:"
[metadata_log]
replicate = "node:1"
[defaults]
replicate = "node:1"
[nodes.N0]
host = "127.0.0.1"
port = 1
[logs."/team/clicks"]
ids = 7
"""


def refused(options: dict[str, Any]) -> LogDeviceError:
    with pytest.raises(LogDeviceError) as caught:
        LogDeviceSource(options).schema()
    return caught.value


@pytest.mark.parametrize(
    ("logs", "text"),
    [
        ("/team/clcks", "NOTFOUND: there is no log group /team/clcks; did you mean /team/clicks?"),
        ("8", "NOTFOUND: there is no log 8"),
        ("8-9", "NOTFOUND: logs: there are no logs 8-9"),
        ("7,/other/*", "NOTFOUND: logs: no group has a path like /other/*"),
    ],
)
def test_a_log_that_does_not_exist_is_told_when_the_source_is_loaded(logs: str, text: str) -> None:
    error = refused({"cluster": CLUSTER, "logs": logs})
    assert (error.status, str(error)) == (Status.NOTFOUND, text)


def test_a_log_that_exists_needs_no_node() -> None:
    assert LogDeviceSource({"cluster": CLUSTER, "logs": "/team/clicks"}).schema().names[:2] == ["log_id", "log_group"]


def test_errors_are_told_without_the_frames_that_they_passed() -> None:
    frames = traceback.extract_tb(refused({"cluster": CLUSTER, "logs": "8"}).__traceback__)
    assert [Path(frame.filename).name for frame in frames] == ["test_source.py", "plain_errors.py"]
    source = LogDeviceSource({"cluster": CLUSTER, "logs": "7", "requestTimeout": "10ms"})
    with pytest.raises(LogDeviceError) as caught:
        source.reader(source.schema()).partitions()
    assert "log 7 (/team/clicks): " in str(caught.value)
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [Path(frame.filename).name for frame in frames] == ["test_source.py", "plain_errors.py"]
    assert caught.value.__suppress_context__
