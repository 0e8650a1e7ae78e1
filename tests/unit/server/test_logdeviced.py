"""What the program of a node logs."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from logdevice_py.core.ids import NodeId
from logdevice_py.core.units import Micros
from logdevice_py.runtime.diagnostics import LINES_MAX, Diagnostics
from server.log_lines import JSON, TEXT, formatter_of
from server.logdeviced import ZooKeeperLines
from tests.forked import run_program


def line_of(name: str, text: str, *given: object) -> logging.LogRecord:
    return logging.LogRecord(name, logging.WARNING, "", 0, text, given, None)


def test_lines_of_kazoo_say_that_it_is_zookeeper_with_whom_a_connection_failed() -> None:
    lines = ZooKeeperLines()
    record = line_of("kazoo.client", "Connection dropped: %s", "why")
    assert lines.filter(record)
    assert record.getMessage() == "ZooKeeper: Connection dropped: why"
    lines.filter(record)
    assert record.getMessage() == "ZooKeeper: Connection dropped: why"
    own = line_of("logdevice.node", "stopping")
    assert lines.filter(own)
    assert own.getMessage() == "stopping"


def lines_of(caplog: pytest.LogCaptureFixture, lines: str) -> list[str]:
    """What a node would have logged."""
    formatter = formatter_of(lines, NodeId(3))
    return [formatter.format(record) for record in caplog.records]


def objects_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines_of(caplog, JSON)]


def test_a_line_is_one_json_object_whatever_it_says() -> None:
    hostile = 'a "peer"\nN9 CRITICAL \u202e\udc80 {}'
    # not through a logger: workers of pytest cannot tell what was logged when it holds half a surrogate pair
    record = logging.LogRecord("logdevice.transport", logging.WARNING, __file__, 1, "%s went", (hostile,), None)
    line = formatter_of(JSON, NodeId(3)).format(record)
    assert (line.isascii(), "\n" in line) == (True, False)
    found = json.loads(line)
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "WARNING",
        "node": "N3",
        "logger": "logdevice.transport",
        "message": f"{hostile} went",
    }
    assert " N3 WARNING " in formatter_of(TEXT, NodeId(3)).format(record)


def test_an_object_says_what_its_line_is_about_and_what_was_left_out(caplog: pytest.LogCaptureFixture) -> None:
    diagnostics = Diagnostics(logging.getLogger("logdevice.node"))
    for _ in range(LINES_MAX + 2):
        diagnostics.warn("many nodesets", "log 7 has many", Micros(0), log=7)
    diagnostics.flush_all()
    first, *_, last = objects_of(caplog)
    assert (first["kind"], first["log"], first["message"]) == ("many nodesets", 7, "log 7 has many")
    assert (last["kind"], last["message"]) == ("many nodesets", "2 further times: many nodesets")


def test_a_bug_comes_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("no")
    except ValueError:
        logging.getLogger("logdevice").critical("a machine failed", exc_info=sys.exc_info())
    (found,) = objects_of(caplog)
    assert "ValueError: no" in found["exception"]


@pytest.mark.parametrize("lines", [TEXT, JSON])
def test_why_a_node_does_not_start_is_said_as_its_other_lines(lines: str, tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    done = run_program("server.logdeviced", "-c", file, "-n", 0, "--data", tmp_path / "n0", "--log-lines", lines)
    assert done.returncode == 1
    (said,) = done.stderr.decode().splitlines()
    message = json.loads(said)["message"] if lines == JSON else said.removeprefix("logdeviced: ")
    assert str(file) in message


def test_a_line_of_kazoo_is_written_again_after_a_while_alone() -> None:
    now = [100.0]
    lines = ZooKeeperLines(lambda: now[0])

    def written(*texts: str) -> list[bool]:
        now[0] += 1
        return [lines.filter(line_of("kazoo.client", "Connection dropped: %s", text)) for text in texts]

    assert written("refused", "closed") == [True, True]
    assert written("refused", "closed", "unknown") == [False, False, True]
    now[0] += 60
    assert written("refused") == [True]
    assert [lines.filter(line_of("logdevice.node", "stopping")) for _ in range(2)] == [True, True]
