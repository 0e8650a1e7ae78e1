"""What the program of a node logs."""

from __future__ import annotations

import logging

from server.logdeviced import name_zookeeper


def test_lines_of_kazoo_say_that_it_is_zookeeper_with_whom_a_connection_failed() -> None:
    record = logging.LogRecord("kazoo.client", logging.WARNING, "", 0, "Connection dropped: %s", ("why",), None)
    assert name_zookeeper(record)
    assert name_zookeeper(record)
    assert record.getMessage() == "ZooKeeper: Connection dropped: why"
    own = logging.LogRecord("logdevice.node", logging.WARNING, "", 0, "stopping", (), None)
    assert name_zookeeper(own)
    assert own.getMessage() == "stopping"
