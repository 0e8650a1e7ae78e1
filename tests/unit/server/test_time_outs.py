"""Time-out errors of a client, in a simulated cluster: what they say was waited for is the fault that was made, for many kinds of faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from client.settings import WriterSettings
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros
from server.simulation.machines import SimPromise
from tests.unit.server.test_waits import LOG, SEQUENCING, STORING, Cluster

TIME = 3 * SECOND // 2


def outcome(cluster: Cluster, begin: Callable[[SimPromise, Micros], object]) -> LogDeviceError:
    """What becomes of a request that cannot be served in time."""
    done: list[SimPromise] = []
    cluster.client.event(lambda now: begin(SimPromise(done.append), now))
    cluster.until(lambda: done, step=50 * MILLISECOND)
    assert isinstance(done[0].error, LogDeviceError), done[0].result
    return done[0].error


def append(cluster: Cluster, log: LogId = LOG) -> LogDeviceError:
    return outcome(cluster, lambda promise, now: cluster.client.session.append(log, b"x", promise, TIME))


def tail(cluster: Cluster) -> LogDeviceError:
    return outcome(cluster, lambda promise, now: cluster.client.session.sequencers.tail_lsn(LOG, promise, now, TIME))


def a_paused_storage_node() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster().ready()
    home = cluster.home()
    cluster[1].pause()
    return append(cluster), [f"N{home} to answer", f"N{home} said: APPEND waits for STORES_AGAIN of N1:S0 for "]


def storage_nodes_that_were_killed() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster(copies=2).ready()
    home = cluster.home()
    for node in (1, 2):
        cluster[node].pause()
    cluster.append(wait=SECOND // 2)
    for node in (1, 2):
        cluster[node].crash(machine=False)
    cluster.pass_time(SECOND)
    return append(cluster), [f"N{home} said: APPEND waits for NODE_DEAD of N1:S0, N2:S0"]


def a_full_disk() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster().ready()
    for disk in cluster[2].disks.values():
        disk.free = 0
    return append(cluster), ["APPEND waits for NO_SPACE of N2:S0"]


def a_disk_that_failed() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster().ready()
    for disk in cluster[1].disks.values():
        disk.fail_write = True
    return append(cluster), ["APPEND waits for DISABLED of N1:S0"]


def an_epoch_store_that_is_away() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster()
    cluster.machines.weather.refuse = 1.0
    return append(cluster), ["APPEND waits for EPOCH", "ACTIVATION waits for EPOCH_STORE"]


def no_f_majority_for_recovery() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster(copies=2).ready()
    for node in (0, 2):
        cluster[node].pause()
    cluster[cluster.home()].crash(machine=False)
    cluster.until_with_appends(lambda: cluster.find("RECOVERY", "F_MAJORITY"))
    return tail(cluster), ["RECOVERY waits for F_MAJORITY of N0:S0, N2:S0", "RELEASE waits for RECOVERY"]


def a_window_that_is_full() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster(window=2).ready()
    cluster[0].pause()
    for _ in range(2):
        cluster.append(wait=10 * MILLISECOND)
    return append(cluster), [
        "SEQNOBUFS from N",
        "APPEND waits for WINDOW_FULL",
        "APPEND waits for STORES_AGAIN of N0:S0",
    ]


def a_paused_sequencer() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster().ready()
    home = cluster.home()
    cluster[home].pause()
    return append(cluster), [f"N{home} to answer, asked 1.5 s ago", "the log is in epoch "]


def no_node_that_sequences() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster().ready()
    for node in SEQUENCING:
        cluster[node].crash(machine=False)
    cluster.pass_time(SECOND)
    return append(cluster), ["no node sequences the log at present"]


def a_metadata_log_that_cannot_be_written() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster(copies=2, metadata=3)
    cluster[2].pause()
    return tail(cluster), ["METADATA waits for STORES_AGAIN of N2:S0", "RELEASE waits for METADATA"]


def nodes_of_which_nothing_was_heard() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster(started=(0, *SEQUENCING))
    return append(cluster), ["ACTIVATION waits for NO_NODESET of N1:S0, N2:S0"]


def keepers_of_a_metadata_log_that_are_silent() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster(copies=2)
    for node in (0, 1):
        cluster[node].pause()
    return append(cluster), ["ACTIVATION waits for METADATA_LOG of N0:S0, N1:S0"]


def a_client_that_is_cut_off() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster().ready()
    for node in (*STORING, *SEQUENCING):
        cluster[node].crash(machine=False)
    append(cluster)
    return append(cluster), ["CONNFAILED from N"]


def a_full_disk_under_a_buffered_writer() -> tuple[LogDeviceError, list[str]]:
    cluster = Cluster().ready()
    for disk in cluster[2].disks.values():
        disk.free = 0
    session = cluster.client.session
    finder: Any = None  # nothing comes into doubt
    writer = session.writer(WriterSettings(timeout_us=TIME), finder)
    error = outcome(cluster, lambda promise, now: writer.append(LOG, b"x", promise, now))
    return error, ["APPEND waits for NO_SPACE of N2:S0"]


FAULTS = (
    a_full_disk_under_a_buffered_writer,
    a_paused_storage_node,
    storage_nodes_that_were_killed,
    a_full_disk,
    a_disk_that_failed,
    an_epoch_store_that_is_away,
    no_f_majority_for_recovery,
    a_window_that_is_full,
    a_paused_sequencer,
    no_node_that_sequences,
    a_metadata_log_that_cannot_be_written,
    nodes_of_which_nothing_was_heard,
    keepers_of_a_metadata_log_that_are_silent,
    a_client_that_is_cut_off,
)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_error_says_what_the_fault_is(fault: Callable[[], tuple[LogDeviceError, list[str]]]) -> None:
    error, words = fault()
    assert error.status is not Status.OK
    assert [each for each in words if each not in error.detail] == [], error.detail
