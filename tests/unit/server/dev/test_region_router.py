"""When packets between regions arrive, and how distances are written."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from server.dev.region_network import Distances, PlayedMachine, RegionNetwork
from server.dev.region_router import RegionRoute, RegionRouter, RegionRoutes


def test_within_a_region_nothing_takes_time() -> None:
    assert RegionRoutes(RegionRoute(0.04), {}).arrival("us", "us", 1000, 5.0) == 5.0


def test_a_route_takes_its_own_time() -> None:
    routes = RegionRoutes(RegionRoute(0.04), {("us", "eu"): RegionRoute(0.015)})
    assert routes.arrival("us", "eu", 1000, 5.0) == pytest.approx(5.015)
    assert routes.arrival("eu", "us", 1000, 5.0) == pytest.approx(5.04)


def test_what_is_cut_loses_packets_one_way() -> None:
    routes = RegionRoutes(RegionRoute(0.04), {})
    routes.cut = {("us", "eu")}
    assert routes.arrival("us", "eu", 1000, 5.0) is None
    assert routes.arrival("eu", "us", 1000, 5.0) == pytest.approx(5.04)


def test_packets_wait_for_bandwidth_and_are_lost_when_too_many_wait() -> None:
    routes = RegionRoutes(RegionRoute(0.04, 10_000), {})
    assert [routes.arrival("us", "eu", 1000, 5.0) for _ in range(7)] == [
        *(pytest.approx(5.0 + 0.1 * sent + 0.04) for sent in range(1, 7)),
        None,
    ]
    assert routes.arrival("eu", "us", 1000, 5.0) == pytest.approx(5.14)
    assert routes.arrival("us", "eu", 1000, 5.6) == pytest.approx(5.74)


def test_packets_go_to_the_machine_of_their_address() -> None:
    commands, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    devices = [socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(2)]
    router = threading.Thread(target=RegionRouter(theirs).run)
    router.start()
    try:
        for (_, device), address, region in zip(devices, ("10.0.0.1", "10.0.0.2"), ("us", "eu"), strict=True):
            told = f'{{"machine": {{"address": "{address}", "region": "{region}"}}}}'
            socket.send_fds(commands, [told.encode()], [device.fileno()])
            assert commands.recv(100) == b"[]"
        packet = bytes(16) + socket.inet_aton("10.0.0.2") + b"hello"
        devices[0][0].send(bytes(16) + socket.inet_aton("10.0.0.9") + b"nobody")
        devices[0][0].send(b"short")
        devices[0][0].send(packet)
        assert devices[1][0].recv(100) == packet
        commands.send(b'{"sent": true}')
        assert json.loads(commands.recv(100)) == [["us", "eu", len(packet)]]
        for command in (b'{"cut": [["us", "eu"]]}', b'{"routes": {"usual": [0.001, null], "others": []}}'):
            commands.send(command)
            assert commands.recv(100) == b"[]"
        devices[0][0].send(packet)
        answer = bytes(16) + socket.inet_aton("10.0.0.1") + b"hello"
        devices[1][0].send(answer)
        assert devices[0][0].recv(100) == answer
        commands.send(b'{"sent": true}')
        assert len(json.loads(commands.recv(100))) == 2, (
            "what us sent is lost: what was cut stays so when distances change"
        )
        devices[1][0].setblocking(False)
        with pytest.raises(BlockingIOError):
            devices[1][0].recv(100)
    finally:
        commands.close()
        router.join()
        theirs.close()
        for pair in devices:
            for each in pair:
                each.close()


def test_distances_are_read_back() -> None:
    for text in ("80ms", "80ms,eu-us:30ms", "70ms,ap-eu:140ms,eu-us:30ms"):
        assert str(Distances.parse(text)) == text
    assert Distances.parse("us-eu:30ms", "100MiB").bandwidth_text == "100MiB"
    assert Distances.parse("80ms,us-eu:30ms").regions == {"us", "eu"}


@pytest.mark.parametrize("text", ["80", "us-eu", "us:30ms", "us-us:30ms", "us-eu-ap:30ms"])
def test_distances_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|is no duration"):
        Distances.parse(text)


def test_a_bandwidth_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="more than nothing"):
        Distances.parse("80ms", "0B")


class SlowNetwork(RegionNetwork):
    """Keeps what the process that plays the routes would be told; what the thread "slow" tells it when it is let."""

    def __init__(self) -> None:
        super().__init__(Distances.parse("80ms"))
        self.asked, self.let = threading.Event(), threading.Event()
        self.cuts: list[list[tuple[str, str]]] = []
        self._machines = [PlayedMachine(region, "", region) for region in ("ap", "eu", "us")]

    def _tell(self, command: Mapping[str, Any], *devices: int) -> list[Any]:
        if threading.current_thread().name == "slow":
            self.asked.set()
            self.let.wait()
        self.cuts.append(command["cut"])
        return []


def test_what_two_threads_change_at_once_is_changed_one_after_the_other() -> None:
    """Else a cut outlasts the end of all of them: who ends another one sends it again."""
    network = SlowNetwork()
    network.cut([("us", "eu"), ("us", "ap")])
    repairing = threading.Thread(target=network.repair, args=([("us", "eu")],), name="slow")
    repairing.start()
    network.asked.wait()
    ending = threading.Thread(target=network.reconnect)
    ending.start()
    ending.join(0.1)  # it is over by then, unless it waits for the other one
    network.let.set()
    repairing.join()
    ending.join()
    assert network.cuts[-1] == []
    assert network.cuts[1:] == [[("us", "ap")], []]


def test_a_region_is_not_cut_off_from_itself() -> None:
    network = SlowNetwork()
    with pytest.raises(ValueError, match="from us to us there is no route that could be cut: name two regions"):
        network.cut([("us", "us")])
    assert network.cuts == []
