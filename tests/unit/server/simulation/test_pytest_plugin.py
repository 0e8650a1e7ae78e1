"""What pytest shows of a simulated test that fails."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Callable

import pytest

from logdevice_py.core.status import LogDeviceError
from server.simulation.cluster import SimCluster, SimulationFailed, simulate

pytest_plugins = "pytester"
_TEST = """
import asyncio
import pytest

async def helper(cluster):
    assert sum(cluster.faults.values()) == -1, "an invariant of mine"

async def orders(cluster):
    await asyncio.sleep(10)
    await helper(cluster)

@pytest.mark.parametrize("seed", [7])
def test_orders(simulate, seed):
    simulate(orders, seed=seed, nodes=3, faults=["crash_process"])

def test_of_another_kind(simulate):
    async def raises_at_once(cluster):
        pytest.fail("this is enough")

    simulate(raises_at_once)

async def pump(cluster, client, ready):
    await ready.wait()

async def stream(cluster):
    async with cluster.client() as client, client.reader(1) as reader:
        async for record in reader:
            yield record

async def hanging(cluster):
    await cluster.power_off(2)
    ready = asyncio.Event()
    async with cluster.client() as client, asyncio.TaskGroup() as group:
        for _ in range(5):
            group.create_task(pump(cluster, client, ready))
        async for record in stream(cluster):
            pass

def test_of_one_that_hangs(simulate):
    simulate(hanging, seed=3, virtual_seconds=30)

def test_without_simulation():
    assert False

@pytest.mark.parametrize("given", [{"nods": 5}, {"faults": ["crash_proces"]}, {"replicate": "nod:2"}])
def test_of_wrong_arguments(simulate, given):
    simulate(orders, **given)
"""


def outcome_of(pytester: pytest.Pytester, *options: str) -> str:
    pytester.makepyfile(test_shop=_TEST)
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)
    return result.stdout.str()


def test_a_failure_shows_the_frames_of_the_user_the_faults_and_the_way_back(pytester: pytest.Pytester) -> None:
    text = outcome_of(pytester, "-k", "test_orders")
    assert "an invariant of mine" in text
    shown = set(re.findall(r"^(\S+\.py):\d+:", text, re.MULTILINE))
    assert shown == {"test_shop.py"}, "frames of the simulator or of asyncio are in the way"
    assert "await helper(cluster)" in text
    assert "test_orders(simulate, seed):" in text
    assert "orders failed with seed 7 after 10." in text
    assert re.search(r"faults before it.*:\nE +\d+\.\d{6} s  crash_process", text)
    assert "simulate(orders, seed=7, nodes=3, faults=['crash_process'], echo=print)" in text
    assert "the same run again: pytest 'test_shop.py::test_orders[7]' --simulation-events" in text


def test_the_command_that_is_told_gives_the_same_failure_with_its_events(pytester: pytest.Pytester) -> None:
    text = outcome_of(pytester, "test_shop.py::test_orders[7]", "--simulation-events")
    assert "orders failed with seed 7 after 10." in text
    assert re.search(r"^ +\d+\.\d{6} fault +crash_process", text, re.MULTILINE)


def test_a_test_that_ends_itself_shows_the_same(pytester: pytest.Pytester) -> None:
    text = outcome_of(pytester, "-k", "test_of_another_kind")
    assert set(re.findall(r"^(\S+\.py):\d+:", text, re.MULTILINE)) == {"test_shop.py"}
    assert "this is enough" in text
    assert "raises_at_once failed with seed 0" in text
    assert "faults before it: none" in text


def test_one_that_hangs_shows_where_its_tasks_stand_and_the_cluster_before_it_was_taken_down(
    pytester: pytest.Pytester,
) -> None:
    text = outcome_of(pytester, "-k", "test_of_one_that_hangs")
    assert "hanging failed with seed 3 after 30." in text
    noted = [line.removeprefix("E").strip() for line in text.splitlines() if line.startswith("E ")]
    begin, end = (
        noted.index("where its tasks stood:"),
        next(i for i, line in enumerate(noted) if "cluster then" in line),
    )
    stood = [line for line in noted[begin + 1 : end] if not line.startswith("File")]
    assert [re.sub(r"\d+", "N", line) for line in stood if line.startswith("Task")] == [
        "Task-N:",
        "Task-N, Task-N, Task-N and N more:",
    ]
    assert "async for record in stream(cluster):" in stood
    assert "async for record in reader:" in stood
    assert re.search(r"waits in Reader\.__anext__, for .+ the metadata log", " ".join(stood))
    assert "await ready.wait()" in stood
    assert "waits in Event.wait" in stood
    files = {line.split('"')[1].rsplit("/")[-1] for line in noted[begin:end] if line.startswith("File")}
    assert files == {"test_shop.py"}
    assert "the same run, showing every event: simulate(hanging, seed=3, virtual_seconds=30, echo=print)" in noted
    assert "the cluster then: N0 running, N1 running, N2 down; 0 faults so far" in noted
    assert "N0 down" not in text, "that is what tearing it down made of it"
    assert set(re.findall(r"^(\S+\.py):\d+:", text, re.MULTILINE)) == {"test_shop.py"}


def test_wrong_arguments_are_told_and_nothing_else(pytester: pytest.Pytester) -> None:
    text = outcome_of(pytester, "-k", "test_of_wrong_arguments")
    assert set(re.findall(r"^(\S+\.py):\d+:", text, re.MULTILINE)) == {"test_shop.py"}
    assert "TypeError: simulate has no argument 'nods'; did you mean nodes?" in text
    assert "there is no kind of fault 'crash_proces' for applications; did you mean crash_process?\n" in text
    assert "the same run again" not in text


def test_other_tests_are_left_alone(pytester: pytest.Pytester) -> None:
    assert "the same run again" not in outcome_of(pytester, "-k", "test_without_simulation")


def on_a_socket(use: Callable[[socket.socket], object], kind: int = socket.SOCK_STREAM) -> Callable[[], object]:
    def reach() -> None:
        with socket.socket(type=kind) as own:
            use(own)

    return reach


@pytest.mark.parametrize(
    "reach",
    [
        lambda: socket.create_connection(("127.0.0.1", 9)),
        lambda: socket.gethostbyname("localhost"),
        on_a_socket(lambda own: own.connect(("127.0.0.1", 9))),
        on_a_socket(lambda own: own.connect_ex(("127.0.0.1", 9))),
        on_a_socket(lambda own: own.bind(("127.0.0.1", 0))),
        on_a_socket(lambda own: own.sendto(b"x", ("127.0.0.1", 9)), socket.SOCK_DGRAM),
    ],
)
def test_blocking_sockets_are_refused_to_applications(reach: Callable[[], object]) -> None:
    async def application(cluster: SimCluster) -> None:
        reach()

    async def in_a_thread(cluster: SimCluster) -> None:
        await asyncio.to_thread(reach)

    for each in (application, in_a_thread):
        with pytest.raises(SimulationFailed, match=r"blocking sockets \(socket\.\w+\) are not simulated: "):
            simulate(each)


def test_sockets_of_others_work_beside_a_simulation() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        async def application(cluster: SimCluster) -> None:
            thread = threading.Thread(target=lambda: socket.create_connection(server.getsockname()).close())
            thread.start()
            thread.join()

        simulate(application)
        server.accept()[0].close()


def test_a_program_sees_the_application_first_in_the_traceback() -> None:
    async def application(cluster: SimCluster) -> None:
        async with cluster.client() as client:
            await client.append(99, b"there is no such log")

    with pytest.raises(SimulationFailed) as failed:
        simulate(application, seed=7)
    cause = failed.value.__cause__
    assert isinstance(cause, LogDeviceError)
    assert cause.__traceback__ is not None
    assert cause.__traceback__.tb_frame.f_code is application.__code__


def test_a_cluster_knows_its_faults_and_when_they_began() -> None:
    async def application(cluster: SimCluster) -> tuple[tuple[float, str], ...]:
        await asyncio.sleep(10)
        assert sum(cluster.faults.values()) == len(cluster.past_faults)
        return cluster.past_faults

    faults = simulate(application, faults=["pause"])
    assert {kind for _, kind in faults} == {"pause"}
    assert [at for at, _ in faults] == sorted(at for at, _ in faults)
