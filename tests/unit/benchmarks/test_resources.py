"""What the kernel says of processes."""

import asyncio
import os

import pytest

from benchmarks.ldbench import resources
from benchmarks.ldbench.engine import ServerProcess
from benchmarks.ldbench.environment import cpu_model, file_system
from benchmarks.ldbench.resources import (
    ProcessCost,
    ResourceMeter,
    children_of,
    cost_of,
    parse_io,
    parse_stat,
    parse_status,
)
from benchmarks.ldbench.sampling import self_time

TICKS = os.sysconf("SC_CLK_TCK")


def test_cpu_seconds_are_found_behind_a_name_with_blanks_and_parentheses() -> None:
    text = "42 (a (b) c) S 1 42 42 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 1 0 100 1000 10"
    assert parse_stat(text) == 300 / TICKS


def test_memory_is_in_bytes() -> None:
    assert parse_status("Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t   200 kB\nVmRSS:\t   100 kB\n") == (204_800, 102_400)
    assert parse_status("Name:\tzombie\nState:\tZ (zombie)\n") == (0, 0)


def test_bytes_that_were_cancelled_are_not_counted_as_written() -> None:
    text = "rchar: 5\nwchar: 900\nread_bytes: 70\nwrite_bytes: 800\ncancelled_write_bytes: 300\n"
    assert parse_io(text) == (500, 70)


def test_the_cost_of_this_process_is_known_and_that_of_none_is_not() -> None:
    cost = cost_of(os.getpid())
    assert cost is not None
    assert cost.peak_bytes >= cost.resident_bytes > 1_000_000
    assert cost_of(2**22 + 1) is None


async def test_a_server_that_was_started_again_does_not_hold_the_memory_of_both_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peaks = {1: 100, 2: 300, 3: 40}
    monkeypatch.setattr(resources, "cost_of", lambda pid: ProcessCost(1.0, peaks.get(pid, 7), 0, 10, 0))
    monkeypatch.setattr(resources, "children_of", lambda pid: [])
    running = [ServerProcess("N0", "node", 1), ServerProcess("N1", "node", 3)]
    meter = ResourceMeter(lambda: running)
    meter.start()
    running[0] = ServerProcess("N0", "node", 2)
    cost = (await meter.stop())["node"]
    assert (cost.processes, cost.peak_bytes) == (3, 340)
    assert (cost.cpu_seconds, cost.written_bytes) == (1.0, 10), "what starts meanwhile counts as a whole"


async def test_what_a_server_has_others_do_for_it_is_its_own_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    helper = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        assert helper.pid in children_of(os.getpid())
        costs = {helper.pid: ProcessCost(2.0, 30), os.getpid(): ProcessCost(1.0, 100)}
        monkeypatch.setattr(resources, "cost_of", lambda pid: costs.get(pid, ProcessCost()))
        meter = ResourceMeter(lambda: [ServerProcess("N0", "node", os.getpid())])
        monkeypatch.setattr(resources, "CLIENT", "node")
        meter.start()
        costs[helper.pid] = ProcessCost(5.0, 30)
        cost = (await meter.stop())["node"]
        assert (cost.cpu_seconds, cost.peak_bytes) == (3.0, 130)
    finally:
        helper.kill()
        await helper.wait()


def test_who_has_ended_has_no_helpers() -> None:
    assert children_of(2**22 + 1) == []


def test_the_processor_has_a_name() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: A CPU @ 2GHz\n") == "A CPU @ 2GHz"
    assert cpu_model("processor\t: 0\n") == ""


def test_a_directory_lies_on_the_innermost_mount() -> None:
    mounts = (
        "overlay / overlay rw 0 0\n/dev/a /data ext4 rw 0 0\n/dev/b /data/fast xfs rw 0 0\n/dev/c /dat btrfs rw 0 0\n"
    )
    assert file_system(mounts, "/data/fast/x") == "xfs on /dev/b"
    assert file_system(mounts, "/database") == "overlay on overlay"


def test_self_time_counts_the_innermost_frame() -> None:
    text = "a.py:main;b.py:f 3\na.py:main;b.py:g 1\na.py:main 4\n"
    assert self_time(text, by_file=True) == [("b.py", 0.5), ("a.py", 0.5)]
    assert self_time(text, by_file=False)[:2] == [("a.py:main", 0.5), ("b.py:f", 0.375)]
    assert self_time("", by_file=True) == []
