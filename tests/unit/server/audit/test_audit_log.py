"""What a node writes into its audit log, when, and how much of it."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from google_crc32c import value as crc32c

from logdevice_py.config.permits import parse_permits
from logdevice_py.config.security import SecuritySettings
from logdevice_py.core.ids import LOG_TREE_DELTAS, Generation, InstanceId, LogId, NodeId, PeerId
from logdevice_py.core.lsn import Epoch, Lsn
from logdevice_py.core.machine import Outbox, Send, TimerQueue
from logdevice_py.core.principal import Principal
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import SECOND, Micros, Timestamp
from logdevice_py.protocol.messages import Append, Release, Trim, Trimmed
from logdevice_py.shell.proof import Principals
from server.audit.audit_log import AuditLog, WriteAuditLine
from server.node import Node
from server.node_settings import NodeSettings
from storage_node.log_store.identity import ShardMarker
from storage_node.log_store.interface import Contents, WriteShard
from storage_node.log_store.memory import MemoryDisk, MemoryLogStore
from storage_node.log_store.settings import LogStoreSettings
from tests.simulation import deliberate_connections  # noqa: F401 (plants)
from tests.simulation.deliberate_fault import FAULTS
from tests.unit.storage_node.fakes import ME, SHARDS, make_config

OPS, MALLORY, NODE = PeerId(-1), PeerId(-2), PeerId(3)
LOG = LogId(7)
SECURITY = {"permissions": True, "tls": "require", "audit_file": "{node}.jsonl", "audit_lines_per_s": 2}


def empty_shard() -> Contents:
    disk = MemoryDisk()
    store = MemoryLogStore(disk, LogStoreSettings())
    store.adopt(ShardMarker(b"u" * 16, ME, Generation(1)), boot=disk.boot, now=Timestamp(0))
    return store.load()


class AuditedNode:
    """A node with one shard, a principal `ops` who may trim, and one `mallory` who may do nothing."""

    def __init__(self, **security: Any) -> None:
        self.outbox, self.timers, self.now = Outbox(), TimerQueue(), Micros(SECOND)
        principals = Principals()
        principals.add(OPS, Principal("ops"))
        principals.add(MALLORY, Principal('mallory"\n'))
        principals.origin = lambda peer: f"10.0.0.{-peer}:4000"
        config = make_config()
        defaults = {**config.logs.defaults, "permit": parse_permits("trim:ops, admin:root")}
        logs = type(config.logs).build(defaults=defaults, groups=[("/sync", 1, 100, {})])
        config = replace(config, logs=logs, settings={"security": {**SECURITY, **security}})
        settings = NodeSettings.of(config.settings)
        shard = empty_shard()
        self.node = Node(
            NodeId(0),
            InstanceId(1),
            config,
            settings,
            [shard],
            outbox=self.outbox,
            timers=self.timers,
            rng=random.Random(1),
            wall=lambda: Timestamp(1_700_000_000_000_000),
            principals=principals,
        )
        assert self.node.audit is not None
        self.audit: AuditLog = self.node.audit
        self.effects: list[Any] = []

    def send(self, peer: PeerId, message: Any) -> None:
        self.node.on_message(peer, message, self.now)
        self.turn()

    def turn(self) -> None:
        self.node.on_turn_end(self.now)
        self.effects += self.outbox.take()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(each.line) for each in self.effects if isinstance(each, WriteAuditLine)]

    def tokens(self) -> list[int]:
        return [each.token for each in self.effects if isinstance(each, WriteAuditLine) and each.token]

    def trimmed(self) -> list[Trimmed]:
        return [each.message for each in self.effects if isinstance(each, Send) and isinstance(each.message, Trimmed)]

    def writes(self) -> int:
        return sum(isinstance(each, WriteShard) for each in self.effects)

    def trim(self, peer: PeerId = OPS) -> None:
        self.send(peer, Trim(request_id=9, log=LOG, lsn=Lsn(1 << 32), shard=ME))


def released(node: AuditedNode) -> AuditedNode:
    """Its shard knows that the log may be read as far as it will be trimmed."""
    node.send(PeerId(int(SHARDS[1]) >> 8), Release(shard=ME, logs=[(LOG, Lsn((1 << 32) + 5))]))
    node.node.storage.shards[ME].shard.log(LOG).last_released = Lsn((1 << 32) + 5)  # type: ignore[union-attr]
    node.effects.clear()
    return node


def waits_for_its_line() -> None:
    node = released(AuditedNode())
    node.trim()
    (line,) = node.lines()
    assert line == {
        "time": "2023-11-14T22:13:20.000000Z",
        "node": "N0",
        "who": "ops",
        "from": "10.0.0.1:4000",
        "what": "TRIM",
        "log": 7,
        "log_name": "/sync/7",
        "through": "e1n0",
        "shard": 0,
        "outcome": "ALLOWED",
    }
    assert node.writes() == 0
    assert node.node.storage.shards[ME].shard.log(LOG).trim_point == 0  # type: ignore[union-attr]
    node.audit.on_written(node.tokens(), True, node.now)
    node.turn()
    assert node.writes() == 1
    assert node.node.storage.shards[ME].shard.log(LOG).trim_point == 1 << 32  # type: ignore[union-attr]


class TestTrims:
    def test_a_trim_is_done_when_its_line_is_on_disk(self) -> None:
        waits_for_its_line()

    def test_a_trim_that_does_not_wait_is_noticed(self) -> None:
        with FAULTS["trims_before_their_lines"].planted(), pytest.raises(AssertionError):
            waits_for_its_line()

    def test_a_trim_that_cannot_be_written_down_is_not_done(self) -> None:
        node = released(AuditedNode())
        node.trim()
        node.audit.on_written(node.tokens(), False, node.now)
        node.turn()
        (answer,) = node.trimmed()
        assert answer.status is Status.AGAIN
        assert node.writes() == 0

    def test_too_many_that_wait_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("server.audit.audit_log._WAITING_MAX", 2)
        node = released(AuditedNode())
        for _ in range(3):
            node.trim()
        assert len(node.lines()) == 2
        assert [answer.status for answer in node.trimmed()] == [Status.AGAIN]

    def test_those_of_nodes_are_done_without_a_line(self) -> None:
        node = released(AuditedNode())
        node.trim(NODE)
        assert node.lines() == []
        assert node.writes() == 1


def append(log: int = LOG) -> Append:
    return Append(
        request_id=5,
        log=LogId(log),
        flags=0,
        records=1,
        crc=crc32c(b"x"),
        seen_epoch=Epoch(0),
        previous_lsn=Lsn(0),
        writer=b"",
        sequence=0,
        stream_epoch=Epoch(0),
        payload=b"x",
    )


class TestRefusals:
    def test_who_wanted_what_from_where(self) -> None:
        node = AuditedNode()
        node.send(MALLORY, append())
        node.trim(MALLORY)
        node.send(MALLORY, Release(shard=ME, logs=[(LOG, Lsn(5))]))
        assert [(line["who"], line["from"], line["what"], line["outcome"]) for line in node.lines()] == [
            ('mallory"\n', "10.0.0.2:4000", what, "ACCESS") for what in ("APPEND", "TRIM", "RELEASE")
        ]
        assert "\n" not in "".join(each.line for each in node.effects if isinstance(each, WriteAuditLine))

    def test_a_flood_is_counted_and_others_are_still_written(self) -> None:
        node = AuditedNode()
        for _ in range(1000):
            node.send(MALLORY, append())
        assert len(node.lines()) == 10
        node.send(OPS, append())
        assert node.lines()[-1]["who"] == "ops"
        node.effects.clear()
        node.now = Micros(node.now + 10 * SECOND)
        node.timers.advance(node.now)
        node.turn()
        (line,) = node.lines()
        assert (line["what"], line["count"]) == ("left out", 990)
        assert node.audit.metrics.left_out == 990
        node.send(MALLORY, append())
        assert node.lines()[-1]["what"] == "APPEND"

    def test_whose_refusals_are_forgotten_is_told_of_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("server.audit.audit_log._PRINCIPALS_MAX", 1)
        node = AuditedNode()
        for _ in range(15):
            node.send(MALLORY, append())
        node.send(OPS, append())
        assert [line["count"] for line in node.lines() if line["what"] == "left out"] == [5]

    def test_without_permissions_there_is_nothing_to_refuse_but_what_nodes_send(self) -> None:
        node = AuditedNode(permissions=False)
        node.send(MALLORY, append())
        node.send(MALLORY, Release(shard=ME, logs=[(LOG, Lsn(5))]))
        assert [line["what"] for line in node.lines()] == ["RELEASE"]


class TestInternalLogs:
    def test_what_clients_append_there_is_written(self) -> None:
        node = AuditedNode(permissions=False)
        node.send(OPS, append(LOG_TREE_DELTAS))
        (line,) = node.lines()
        assert (line["what"], line["log"], line["log_name"], line["outcome"]) == (
            "APPEND",
            LOG_TREE_DELTAS,
            "internal",
            "ALLOWED",
        )
        assert node.tokens() == []


class TestAdministration:
    def test_it_waits_for_its_line(self) -> None:
        node, told = AuditedNode(), list[bool]()
        node.audit.administered("ops", "10.9.9.9", "set", {"name": "x"}, "ALLOWED", lambda ok, now: told.append(ok))
        node.turn()
        (line,) = node.lines()
        assert (line["who"], line["from"], line["what"], line["parameters"]) == (
            "ops",
            "10.9.9.9",
            "set",
            {"name": "x"},
        )
        assert told == []
        node.audit.on_written(node.tokens(), True, node.now)
        assert told == [True]

    def test_strangers_at_the_admin_api_are_bounded_too(self) -> None:
        node = AuditedNode()
        for _ in range(50):
            node.audit.request_refused("", "10.9.9.9", "/v1/actions/stop", node.now)
        node.turn()
        assert len(node.lines()) == 10


def test_off_it_has_no_part_in_anything() -> None:
    bench = AuditedNode()
    node = Node(
        NodeId(0),
        InstanceId(1),
        replace(bench.node.config, settings={}),
        NodeSettings.of({}),
        [empty_shard()],
        outbox=Outbox(),
        timers=TimerQueue(),
        rng=random.Random(1),
        wall=lambda: Timestamp(0),
    )
    assert node.audit is None
    assert "on_trim" in repr(bench.node._routes[Trim])
    assert "_audited" not in repr(node._routes[Trim])


def test_each_node_needs_a_file_of_its_own() -> None:
    assert SecuritySettings().audit_file == ""
    with pytest.raises(LogDeviceError, match="each node has a file of its own"):
        NodeSettings.of({"security": {"audit_file": "audit.jsonl"}})
