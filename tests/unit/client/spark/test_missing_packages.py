"""What a worker's Python lacks is told by name."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from client.spark.options import SourceOptions
from client.spark.ranges import Cut
from client.spark.reader import LogDeviceReader, LogPartition
from client.spark.schema import source_schema
from client.spark.sink_options import SinkOptions
from client.spark.writer import LogDeviceWriter
from logdevice_py.core.ids import LogId
from logdevice_py.core.units import Micros

OPTIONS = SinkOptions(
    cluster="",
    log=1,
    compression=None,
    job="job",
    exact=True,
    since=None,
    read_timeout_us=Micros(1_000_000),
    request_timeout_us=Micros(10_000_000),
)
_TASK = """
import pickle, sys
for name in ("msgpack", "lz4"):
    sys.modules[name] = None
work, argument = pickle.loads(sys.stdin.buffer.read())
try:
    work(argument)
except ImportError as error:
    print(error)
"""


def outcome(work: object, argument: object) -> str:
    """What a worker without msgpack and lz4 says to a task of Spark's."""
    done = subprocess.run(
        [sys.executable, "-c", _TASK],
        input=pickle.dumps((work, argument)),
        capture_output=True,
        check=False,
        cwd=Path(__file__).parents[4],
    )
    return done.stdout.decode() + done.stderr.decode()


@pytest.mark.parametrize("kind", ["reading", "writing"])
def test_a_missing_package_is_named(kind: str) -> None:
    if kind == "reading":
        options = SourceOptions.of({"cluster": "cluster.toml", "logs": "7"})
        reader = LogDeviceReader(options, source_schema(options))
        said = outcome(reader.read, LogPartition(Cut(LogId(7), "/group", 1, 2), ""))
    else:
        said = outcome(LogDeviceWriter(OPTIONS).write, ())
    assert "needs msgpack, lz4 in " + sys.executable in said
    assert "Traceback" not in said
