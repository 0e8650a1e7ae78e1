"""What waits for a node that is dialled, and when it is dialled again."""

from __future__ import annotations

import random

from logdevice_py.core.units import Micros
from logdevice_py.shell.route import PeerRoute


def test_what_waits_is_counted_and_taken_once() -> None:
    route = PeerRoute()
    assert route.wait([b"abc", b"d"]) == 4
    assert route.wait([b"ef"]) == 2
    assert route.waiting_bytes == 6
    assert route.take() == [[b"abc", b"d"], [b"ef"]]
    assert (route.waiting_bytes, route.take()) == (0, [])


def test_pauses_grow_with_each_failure_and_are_short_again_after_a_connection() -> None:
    route, rng = PeerRoute(), random.Random(1)
    assert not route.pausing(Micros(0))
    now = 0
    for least in (100, 200, 400, 400):
        route.failed(Micros(now), rng, pause_min=100, pause_max=400)
        assert route.pausing(Micros(now + least - 1))
        assert not route.pausing(Micros(now + least + least // 4))
        now += 1000
    route.connected()
    assert not route.pausing(Micros(now - 999))
    route.failed(Micros(now), rng, pause_min=100, pause_max=400)
    assert route.pausing(Micros(now + 99))
    assert not route.pausing(Micros(now + 125))
