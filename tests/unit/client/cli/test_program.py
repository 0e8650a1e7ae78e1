"""What the programs say while they wait, and when they time out."""

from __future__ import annotations

import argparse
import asyncio
import io
from typing import Any

import pytest

from client.cli.program import Attendant, OutputError, exit_status, parse_timeout, put, run_program, say
from client.connectivity import Connectivity
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.status import LogDeviceError, Status
from tests.unit.client.fakes import LOG, cluster

SILENT = LogDeviceError(Status.CONNFAILED, "nobody listens there")
OTHER = LogDeviceError(Status.INVALID_CLUSTER, "this is a node of cluster b")


class WaitingBench:
    """An attendant with a clock of its own."""

    def __init__(self, *, timeout: float | None = None, log: LogId = LOG) -> None:
        self.config = cluster()
        self.trouble = SILENT
        self.connected: tuple[NodeId, ...] = ()
        self.now = 100.0
        self.said: list[str] = []
        client: Any = self
        self.attendant = Attendant(
            "ldcat",
            client,
            log,
            timeout=timeout,
            say=lambda program, text: self.said.append(text),
            clock=lambda: self.now,
        )
        self.done = 0
        self.attendant.progress = lambda: self.done
        self.attendant.waits_for = lambda: "records"
        self.attendant.look()

    def connectivity(self) -> Connectivity:
        nodes = tuple(self.config.nodes)
        return Connectivity(
            "c.toml", nodes, self.connected, {} if self.connected else dict.fromkeys(nodes, self.trouble)
        )

    def pass_time(self, seconds: float) -> list[str]:
        """What it said meanwhile."""
        self.said.clear()
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            self.attendant.look()
        return self.said


def test_it_says_what_it_waits_for_once_and_then_rarely() -> None:
    waiting = WaitingBench()
    assert waiting.pass_time(1.5) == []
    (note,) = waiting.pass_time(7)
    assert note.startswith("waiting for the cluster: no node of c.toml answers (3 of 3 addresses tried")
    assert len(waiting.pass_time(600)) == 11


def test_while_something_moves_it_is_silent() -> None:
    waiting = WaitingBench()
    for _ in range(10):
        waiting.done += 1
        assert waiting.pass_time(1.5) == []


def test_after_a_note_it_says_that_it_goes_on() -> None:
    waiting = WaitingBench()
    waiting.pass_time(3)
    waiting.done += 1
    assert waiting.pass_time(1) == ["goes on"]


def test_nothing_to_wait_for_takes_its_time() -> None:
    waiting = WaitingBench(timeout=1)
    waiting.attendant.waits_for = lambda: None
    assert waiting.pass_time(100) == []


def test_with_a_connection_it_names_what_it_waits_for() -> None:
    waiting = WaitingBench()
    waiting.connected = (NodeId(2),)
    assert waiting.pass_time(3) == ["waiting for records; connected to N2 of 3 nodes"]


def test_it_times_out_when_nothing_moves_for_the_timeout() -> None:
    waiting = WaitingBench(timeout=5)
    waiting.pass_time(4)
    waiting.done += 1
    waiting.pass_time(4.5)
    with pytest.raises(LogDeviceError, match="timed out after 5s of waiting for the cluster") as caught:
        waiting.pass_time(1)
    assert exit_status(caught.value) == 4


def test_another_cluster_ends_it_at_once() -> None:
    waiting = WaitingBench()
    waiting.trouble = OTHER
    with pytest.raises(LogDeviceError, match=r"c\.toml is not the file of the cluster") as caught:
        waiting.pass_time(0.1)
    assert exit_status(caught.value) == 2


def test_a_log_that_is_removed_ends_it_at_once() -> None:
    with pytest.raises(LogDeviceError, match=r"log 101 was removed from c\.toml") as caught:
        WaitingBench(log=LogId(101))
    assert caught.value.status is Status.NOTFOUND


async def test_the_end_of_the_attendant_ends_the_work() -> None:
    waiting = WaitingBench()
    waiting.trouble = OTHER
    ended: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("work")

    with pytest.raises(LogDeviceError):
        await waiting.attendant.attend(work())
    assert ended == ["work"]


class FullDevice(io.BytesIO):
    def write(self, data: Any, /) -> int:
        raise OSError(28, "No space left on device")


def test_output_that_cannot_be_written_is_an_error_of_its_own() -> None:
    with pytest.raises(OutputError, match="No space left"):
        put(FullDevice(), b"x")


def test_a_note_is_safe_on_a_terminal_and_never_fails() -> None:
    err = io.StringIO()
    say("ldcat", "a\x1b[2Jb\nc", to=err)
    assert err.getvalue() == "ldcat: a\\x1b[2Jb\\x0ac\n"
    broken = io.TextIOWrapper(FullDevice(), write_through=True)
    say("ldcat", "nobody hears it", to=broken)


@pytest.mark.parametrize(("text", "seconds"), [("10", 10), ("0.5", 0.5), ("2min", 120), ("10ms", 0.01)])
def test_timeouts_are_seconds_or_durations(text: str, seconds: float) -> None:
    assert parse_timeout(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1", "nan", "soon", "1.2.3", "1e9", "9999999999999"])
def test_other_timeouts_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        parse_timeout(text)


@pytest.mark.parametrize(
    ("status", "exit_"),
    [
        (Status.NOTFOUND, 2),
        (Status.INVALID_CONFIG, 2),
        (Status.INVALID_CLUSTER, 2),
        (Status.NOSEQUENCER, 4),
        (Status.TIMEDOUT, 4),
        (Status.TOOBIG, 1),
        (Status.INTERNAL, 1),
    ],
)
def test_a_program_ends_with_the_exit_status_of_its_error(
    status: Status, exit_: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> int:
        raise LogDeviceError(status, "why")

    assert run_program("ldcat", work) == exit_
    assert capsys.readouterr().err == f"ldcat: {status.name}: why\n"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_an_alarm_is_red_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal, file = _Terminal(), io.StringIO()
    for each in (terminal, file):
        say("ldctl", "trouble", alarm=True, to=each)
    assert terminal.getvalue() == "ldctl: \x1b[31mtrouble\x1b[0m\n"
    assert file.getvalue() == "ldctl: trouble\n"
