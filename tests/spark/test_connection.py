"""A process that is forked has connections of its own: Spark forks its workers."""

from __future__ import annotations

import os
import signal

from client.spark.connection import client_for
from tests.spark.conftest import RunningCluster
from tests.spark.test_batch import write


def test_a_forked_process_opens_its_own_connections_and_leaves_those_of_its_parent_alone(
    cluster: RunningCluster,
) -> None:
    write(cluster, 1, [b"something"])
    text = cluster.text
    client = client_for(text)
    assert client_for(text) is client
    tail = client.tail_lsn(1)
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            own = client_for(text)
            answer = f"{own is client} {int(own.tail_lsn(1))}"
            own.close()
            os.write(tell, answer.encode())
        finally:
            os._exit(0)
    os.close(tell)
    with os.fdopen(told) as answers:
        assert answers.read() == f"False {int(tail)}"
    assert os.waitpid(child, 0)[1] == 0
    assert client_for(text) is client
    assert client.tail_lsn(1) == tail
