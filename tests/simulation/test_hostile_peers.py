"""Peers that send what they made up: what they know, whom they reach, and that their attacks are part of the swarm."""

from __future__ import annotations

import random
from collections.abc import Iterable
from functools import partial
from typing import Any

import pytest

from client.settings import WriterSettings
from logdevice_py.core.ids import LogId, node_of
from logdevice_py.core.lsn import LSN_MAX
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.protocol.messages import Trim, Trimmed, TrimPoints
from server.simulation.faults.attacks import ATTACKS, Attack, Outsider, Sent
from server.simulation.faults.nemesis import CATALOG, Nemesis
from server.simulation.machines import SimMachines, SimPromise
from tests.simulation.scenario import draw

SEEDS = range(60)


def attacked(
    monkeypatch: pytest.MonkeyPatch, kind: str, attack: Attack
) -> tuple[SimMachines, list[tuple[str, int, Any]]]:
    """A cluster with some records, and one attack a second; what nodes got from peers beyond it."""
    for name in list(ATTACKS):
        monkeypatch.delitem(ATTACKS, name)
    monkeypatch.setitem(ATTACKS, attack.name, attack)
    scenario = draw(3)
    scenario.faults, scenario.duration, scenario.fault_interval = [kind], 12 * SECOND, SECOND
    cluster = SimMachines(scenario.config, scenario.seed)
    got: list[tuple[str, int, Any]] = []
    show = cluster.trace.received

    def received(self: Any, at: int, who: str, peer: int, message: Any) -> None:
        if type(message) in (Trim, TrimPoints):
            got.append((who, peer, message))
        show(at, who, peer, message)

    monkeypatch.setattr(type(cluster.trace), "received", received)
    for node in cluster.nodes.values():
        node.start()
    client = cluster.client()
    streams = client.writer(WriterSettings(compression="none"))

    def append(number: int, now: Micros) -> None:
        streams.append(scenario.logs[0], b"record %d" % number, SimPromise(lambda done: None), now)

    cluster.scheduler.run_until(4 * SECOND)
    for number in range(20):
        client.event(partial(append, number))
        cluster.scheduler.run_until(cluster.scheduler.now + SECOND // 10)
    Nemesis(scenario.fault_schedule, cluster, lambda: None, random.Random(2)).start()
    cluster.scheduler.run_until(scenario.duration)
    return cluster, got


def test_it_knows_the_end_of_logs_the_entries_it_read_and_the_answers_it_got(monkeypatch: pytest.MonkeyPatch) -> None:
    knew: list[Outsider] = []

    def look(it: Outsider) -> Iterable[Sent]:
        knew.append(it)
        shard = it.shard()
        yield node_of(shard), Trim(request_id=7, log=LogId(9_999), shard=shard, lsn=LSN_MAX)

    cluster, got = attacked(monkeypatch, "hostile_client", Attack("look", "", look, as_node=False))
    log = draw(3).logs[0]
    trims = [peer for _, peer, message in got if type(message) is Trim]
    assert trims
    assert all(peer < 0 for peer in trims)
    assert any(it.released.get(log) for it in knew)
    assert any(b"record" in image for it in knew for _, image in it.entries(log))
    assert any(type(message) is Trimmed and message.request_id == 7 for it in knew for message in it.heard)
    assert cluster.fault_effects["attack look"] == cluster.fault_effects["hostile_client"] >= len(trims)


def test_it_may_say_that_it_is_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    def lie(it: Outsider) -> Iterable[Sent]:
        for shard in it.config.storage_shards():
            yield node_of(shard), TrimPoints(shard=shard, sender=shard, wall=0, logs=[(9_999, 1)])  # type: ignore[arg-type]

    _, got = attacked(monkeypatch, "hostile_node", Attack("lie", "", lie, as_node=True))
    lies = [(who, peer) for who, peer, message in got if type(message) is TrimPoints and (9_999, 1) in message.logs]
    assert any(peer >= 0 for _, peer in lies)


def test_which_runs_have_them_is_drawn_apart_from_all_else() -> None:
    kinds = {kind.name for kind in CATALOG.values() if kind.hostile}
    assert kinds == {"hostile_client", "hostile_node"}
    drawn = [draw(seed).faults for seed in SEEDS]
    assert 3 <= sum(kinds <= set(faults) for faults in drawn) <= len(SEEDS) // 3
    assert all(kinds.isdisjoint(faults) or faults[-2:] == sorted(kinds) for faults in drawn)
