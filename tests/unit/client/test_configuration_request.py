"""Who wants the configuration of the cluster waits for one node, not for those that are down or silent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from client.configuration_request import ASKED_AT_ONCE, HEDGE_US
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.packed import pack_configuration
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND
from logdevice_py.protocol.messages import ConfigurationText, GetConfiguration
from tests.unit.client.fakes import Bench, cluster

NODES = 9


class Outcome:
    """A promise."""

    def __init__(self) -> None:
        self.result: Any = None
        self.error: BaseException | None = None

    def done(self) -> bool:
        return self.result is not None or self.error is not None

    def set_result(self, result: Any, /) -> None:
        assert not self.done()
        self.result = result

    def set_exception(self, exception: BaseException, /) -> None:
        assert not self.done()
        self.error = exception

    def exception(self) -> BaseException | None:
        return self.error

    @property
    def status(self) -> Status:
        assert isinstance(self.error, LogDeviceError)
        return self.error.status


class Searching:
    """A client of nine nodes that searches for the newest configuration."""

    def __init__(self, *, connect: bool = False, connected: int = 0) -> None:
        self.bench = Bench(NODES, connect=True)
        for node in range(connected):
            self.bench.session.links.connect(NodeId(node))
        self.bench.turn()
        self.bench.connect = connect
        self.bench.dialled.clear()
        self.outcome = Outcome()
        now = self.bench.now
        nodes = [NodeId(node) for node in range(NODES)]
        self.bench.session.configurations.search(nodes, self.outcome, now, now + SECOND)
        self.bench.turn()

    def asked(self) -> list[tuple[NodeId, GetConfiguration]]:
        return self.bench.taken(GetConfiguration)

    def answer(self, node: NodeId, request: GetConfiguration, version: int = 7) -> None:
        config: ClusterConfig = replace(cluster(NODES), version=version)
        text = pack_configuration(config)
        self.bench.answer(node, ConfigurationText(request_id=request.request_id, version=7, text=text))


def test_a_few_nodes_are_dialled_and_the_first_answer_is_enough() -> None:
    searching = Searching(connect=True)
    asked = searching.asked()
    assert len(asked) == len(searching.bench.dialled) == ASKED_AT_ONCE
    searching.answer(*asked[1])
    assert searching.outcome.result.version == 7
    searching.answer(*asked[0])
    searching.bench.pass_time(2 * SECOND)
    assert len(searching.bench.dialled) == ASKED_AT_ONCE
    assert searching.asked() == []


def test_those_that_are_connected_are_asked_first() -> None:
    searching = Searching(connected=3)
    assert {node for node, _ in searching.asked()} == {0, 1, 2}
    assert searching.bench.dialled == []


def test_others_are_tried_at_once_when_none_of_them_can_be_reached_and_soon_when_they_are_silent() -> None:
    searching = Searching()
    bench = searching.bench
    for node in list(bench.dialled):
        bench.down(node, refused=True)
    assert len(bench.dialled) == 2 * ASKED_AT_ONCE, "at once"
    bench.connect = True
    bench.pass_time(HEDGE_US)
    asked = searching.asked()
    assert len(asked) == NODES - 2 * ASKED_AT_ONCE
    searching.answer(*asked[0])
    assert searching.outcome.result.version == 7


def test_a_node_that_is_connected_and_does_not_answer_is_not_waited_for() -> None:
    """A paused process, or a release that does not know the question."""
    searching = Searching(connected=1)
    ((silent, _),) = searching.asked()
    assert silent == 0
    searching.bench.connect = True
    searching.bench.pass_time(HEDGE_US)
    asked = searching.asked()
    searching.answer(*asked[0])
    assert searching.outcome.result.version == 7


def test_an_answer_that_cannot_be_read_is_none() -> None:
    searching = Searching(connect=True)
    asked = searching.asked()
    for node, request in asked:
        searching.bench.answer(node, ConfigurationText(request_id=request.request_id, version=7, text=b"damaged"))
    assert not searching.outcome.done()
    searching.answer(*searching.asked()[0])
    assert searching.outcome.result.version == 7


def test_it_ends_when_nobody_can_be_reached_and_at_the_deadline() -> None:
    searching = Searching()
    for _ in range(3):
        for node in list(searching.bench.dialled):
            searching.bench.down(node, refused=True)
    assert searching.outcome.status is Status.CONNFAILED
    searching = Searching()
    searching.bench.pass_time(SECOND)
    assert searching.outcome.status is Status.TIMEDOUT
    assert sorted(searching.bench.dialled) == list(range(NODES))
