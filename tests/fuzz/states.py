"""Fuzz targets for replicated state machines: commands that nobody of this application wrote, and their snapshots.

An input is pieces. In the first of the two targets of a state all of them are bodies of commands to an empty one; in the second the first
piece is a snapshot of the value, and commands follow. A command that is refused must change nothing, whatever is applied must be told in
no more bytes than are remembered, and a value must come back equal from its snapshot.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from client.guards import Position
from client.log_tree import commands as tree
from client.log_tree.state import LOG_TREE
from client.maintenance import commands as maintenance
from client.maintenance.state import MAINTENANCES
from client.replica.applied_state import StateKind, StateMachine
from client.replica.commands import NOTHING, RESULT_BYTES_MAX, CommandRefused, StateVersion
from indexlog.manifest import commands as manifest
from indexlog.manifest.parts import PartKind
from indexlog.manifest.state import MANIFEST
from logdevice_py.core.ids import LogId, NodeId, ShardId
from logdevice_py.core.lsn import LSN, Lsn
from logdevice_py.core.units import Timestamp
from streams import commands as namespace
from streams.cold.copies import ColdCopy
from streams.state import NAMESPACE
from streams.subscriptions import commands as subscriptions
from streams.subscriptions.state import SUBSCRIPTIONS
from streams.upkeep import commands as upkeep
from streams.upkeep.segment_copy import SegmentCopy
from streams.upkeep.state import attempt_token
from tests.fuzz.checking import Target
from tests.fuzz.decoders import same
from tests.fuzz.pieces import cut, piece

_COMMANDS_MAX = 40
_LOG = LogId(1 << 40)


def _apply(value: StateMachine, bodies: Iterable[bytes], first: int) -> None:
    """Command by command, each an entry of its own."""
    for number, body in enumerate(itertools.islice(bodies, _COMMANDS_MAX), first):
        before = value.encode()
        try:
            result = value.apply(body, _version(number), Timestamp(number * 1000))
        except CommandRefused:
            same(value.encode(), before)
        else:
            assert len(result) <= RESULT_BYTES_MAX


def _version(number: int) -> StateVersion:
    return StateVersion(Lsn((1 << 32) + number), 0)


def _targets(name: str, kind: StateKind[Any], commands: Sequence[bytes]) -> tuple[Target, Target]:
    def applied(data: bytes) -> None:
        value = kind.empty()
        _apply(value, cut(data), 1)
        same(kind.decode(value.encode()).encode(), value.encode())

    def restored(data: bytes) -> None:
        pieces = cut(data)
        value = kind.decode(next(pieces, b""))
        same(kind.decode(value.encode()).encode(), value.encode())
        _apply(value, pieces, 1000)
        same(kind.decode(value.encode()).encode(), value.encode())

    def command_seeds() -> list[bytes]:
        everything = list(map(piece, commands))
        return [b"".join(everything[:count]) for count in range(1, len(everything) + 1)]

    def snapshot_seeds() -> list[bytes]:
        value = kind.empty()
        found = []
        for number, body in enumerate(commands, 1):
            _apply(value, [body], number)
            found.append(piece(value.encode()) + b"".join(map(piece, commands[number:])))
        return found

    return (
        Target(f"{name}_commands", applied, command_seeds, ()),
        Target(f"{name}_snapshot", restored, snapshot_seeds, (ValueError,)),
    )


_TREE = [
    tree.encode(command)
    for command in (
        tree.MakeDirectory("/a", {"replicate": "node:2"}),
        tree.MakeLogGroup("/a/b", 3, {"durability": "async", "backlog": 7}),
        tree.MakeLogGroup("/x/y/z", 1, {}, parents=True),
        tree.SetAttributes("/a", {"strict_order": True}, ["replicate"], _version(1)),
        tree.Rename("/a/b", "/x/c", _version(2)),
        tree.Remove("/x/c"),
        tree.Retired(_LOG),
        tree.Remove("/x/y"),
    )
]

_COPY = ColdCopy(
    "00000000-0000-4000-8000-000000000001",
    _LOG,
    attempt_token(1),
    LSN(1),
    LSN((1 << 32) + 8),
    "0" * 64,
    1,
    10,
    1,
    1,
    10,
    (1 << 64) - 1,
)
_NAMESPACE = [
    namespace.encode(command)
    for command in (
        namespace.CreateStream("orders", {"txid": "writer", "cold": "file:///cold"}, {"replicate": "node:2"}),
        namespace.StreamCreated(1, _LOG),
        namespace.AcquireStream(1, "host:1", 1_000_000),
        namespace.RenewLease(1, 1),
        namespace.TruncateStream(1, Position(LSN((1 << 32) + 9), 2)),
        namespace.UntruncateStream(1),
        upkeep.AcquireUpkeep("janitor", 1_000_000),
        upkeep.BeginCopy(1, 1, LSN(1), LSN((1 << 32) + 8)),
        upkeep.CommitCopy(1, 1, 1, SegmentCopy(_COPY, Timestamp(1), None, Timestamp(2), 3, None)),
        upkeep.BeginTrim(1, 1, LSN((1 << 32) + 5), upkeep.TrimCause.EXPIRED, _version(6)),
        upkeep.BeginCopy(1, 1, LSN((1 << 32) + 9), LSN((1 << 32) + 9)),
        upkeep.EndCopy(1, 1, 2),
        upkeep.RemoveCopies(1, 1, LSN((1 << 32) + 8)),
        upkeep.RenewUpkeep(1, "copied nothing"),
        upkeep.ReleaseUpkeep(1),
        namespace.ReleaseStream(1, 1),
        namespace.EndStream(1),
        namespace.StreamEnded(1, LSN((1 << 32) + 9)),
        namespace.RenameStream("orders", "bills"),
        namespace.DeleteStream("bills"),
        namespace.StreamDeleted(1),
    )
]

_NONCE = bytes(subscriptions.NONCE_BYTES)
_SUBSCRIPTIONS = [
    subscriptions.encode(operations)
    for operations in (
        [subscriptions.Commit("billing", "orders", Position(LSN((1 << 32) + 1), 0))],
        [
            subscriptions.AddStreams("billing", [("orders", 5), ("ledger", 6)]),
            subscriptions.Join("billing", "m1", _NONCE, 1_000_000, 500_000),
        ],
        [
            subscriptions.Join("billing", "m2", _NONCE, 1_000_000, 500_000),
            subscriptions.Beat("billing", "m1", _NONCE),
        ],
        [subscriptions.HandOver("billing", "orders", 1, forced=True)],
        [subscriptions.Expel("billing", "m2", _NONCE, 0), subscriptions.Leave("billing", "m1", _NONCE)],
        [subscriptions.RemoveStreams("billing", ["ledger"]), subscriptions.Delete("billing")],
    )
]

_MANIFEST = [
    manifest.encode_manifest_command(command)
    for command in (
        manifest.Initialize("file:///store", [1, 2]),
        manifest.BeginJob(),
        manifest.Deal(1, 1, 1, 9, 0, 0, "1/a.arrow", [manifest.SliceEntry("books", 3, 300, 1_000)]),
        manifest.Deal(1, 2, 1, 4, 0, 1, "1/b.arrow", [manifest.SliceEntry("books", 1, 90, 2_000)]),
        manifest.BeginJob(),
        manifest.Replace(
            2,
            "books",
            [("1/a.arrow", 0), ("1/b.arrow", 0)],
            True,
            [manifest.OutputFile("2/c.parquet", PartKind.SORTED, 3, 200, 1_000)],
        ),
        manifest.ReplaceRuns(
            2,
            [
                manifest.ReplacedRun(
                    "books", [("2/c.parquet", -1)], True, manifest.OutputFile("2/d", PartKind.OPTIMIZED, 2, 9, 1, 0)
                ),
                manifest.ReplacedRun("songs", [("1/a.arrow", 3)], False, None),
            ],
        ),
        manifest.EndJob(1),
        manifest.Forget(3),
        manifest.DropIndex("books", [(1, 20), (2, 20)]),
        manifest.AddGeneration([3]),
        manifest.EndGeneration(0, [30, 31]),
    )
]

_AWAY, _DRAIN = maintenance.MaintenanceKind.AWAY, maintenance.MaintenanceKind.DRAIN
_MAINTENANCES = [
    maintenance.encode(command)
    for command in (
        maintenance.ApplyMaintenance(_AWAY, [NodeId(1)], [ShardId(256)], 100, "ann@host", "new disk"),
        maintenance.ApplyMaintenance(_DRAIN, [], [ShardId(512), ShardId(513)], 0, "bob@host", ""),
        maintenance.GrantMaintenance(1, NOTHING),
        maintenance.GrantMaintenance(2, _version(3)),
        maintenance.WithdrawMaintenance(1, _version(3)),
        maintenance.ShardsDrained(2, _version(4)),
        maintenance.EndMaintenance(1, maintenance.EndCause.EXPIRED),
        maintenance.EndMaintenance(2, maintenance.EndCause.CANCELLED, _version(6)),
        maintenance.ShardsReturned(2, _version(8)),
        maintenance.BeginRestart([NodeId(0), NodeId(2)], "ann@host", "upgrade"),
        maintenance.TakeRestart(3, "bob@host"),
        maintenance.ApplyMaintenance(_AWAY, [NodeId(0)], [ShardId(0)], 0, "bob@host", "", 3),
        maintenance.GrantMaintenance(5, _version(9)),
        maintenance.RestartNode(3, 4, NodeId(0), 17),
        maintenance.NodeRestarted(3, 4, NodeId(0)),
        maintenance.AbandonRestart(3),
    )
]

STATES = (
    *_targets("tree", LOG_TREE, _TREE),
    *_targets("namespace", NAMESPACE, _NAMESPACE),
    *_targets("subscriptions", SUBSCRIPTIONS, _SUBSCRIPTIONS),
    *_targets("manifest", MANIFEST, _MANIFEST),
    *_targets("maintenances", MAINTENANCES, _MAINTENANCES),
)
