"""Maintenances as a replicated state: what operators want to take away, what they may take away, and a rolling restart that goes on.

Rules that `docs/decisions/0023-maintenance.md` gives reasons for:

1. One basis, one grant: a grant names the basis as of which it was judged, and is refused when something was granted, withdrawn, drained or ended since.
2. One at a time: a node or a shard is in one maintenance at most.
3. Returned first: what was drained stays drained in the eyes of others until somebody says that its shards are used again.
4. In time: nothing expires before its time, as the sequencer's clock tells it.
5. Fenced: a rolling restart obeys the process that took it last.
6. In order: the node that is started again has a granted maintenance of this restart, and the next one waits until it is back.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import msgpack

from client.maintenance.commands import (
    INSTANCE_MAX,
    NUMBER_MAX,
    AbandonRestart,
    ApplyMaintenance,
    BeginRestart,
    EndCause,
    EndMaintenance,
    GrantMaintenance,
    MaintenanceCommand,
    MaintenanceKind,
    NodeRestarted,
    RestartNode,
    ShardsDrained,
    ShardsReturned,
    TakeRestart,
    WithdrawMaintenance,
    decode,
    encode,
    maintenance_number,
    node_field,
    nodes_field,
    text_field,
)
from client.replica.applied_state import StateKind
from client.replica.commands import (
    NOTHING,
    StateVersion,
    decode_snapshot,
    number_field,
    refuse,
    version_field,
)
from logdevice_py.core.ids import NodeId, ShardId, format_shard, node_of
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp

KIND_NAME: Final = "maintenances"
LIVE_MAX: Final = 1000
ENDED_KEPT: Final = 100
"""The last ones that are over, for whoever asks what happened."""
_FORMAT: Final = 1
_INT64: Final = 1 << 63


class MaintenancePhase(enum.IntEnum):
    """How far a maintenance is. Numbers stand in snapshots."""

    WAITING = 1  # it is not safe yet, or nobody has looked
    GRANTED = 2  # its shards may disappear
    DRAINING = 3  # its shards are being emptied
    DRAINED = 4  # its shards are empty, and may disappear
    ENDING = 5  # its shards are to be used again
    OVER = 6


GOING: Final = frozenset({MaintenancePhase.GRANTED, MaintenancePhase.DRAINED})
"""Shards of these may be away at any moment."""
EMPTIED: Final = frozenset({MaintenancePhase.DRAINING, MaintenancePhase.DRAINED, MaintenancePhase.ENDING})
"""Shards of these take no records, or may not."""


@dataclass(frozen=True, slots=True)
class Maintenance:
    """One maintenance. Never changes: commands make another one."""

    number: int
    wanted: ApplyMaintenance
    applied: Timestamp
    """When it was asked for, by the clock of whoever sequenced that."""
    phase: MaintenancePhase
    since: Timestamp
    """Of the phase."""
    version: StateVersion
    """Of its last change."""
    cause: EndCause | None = None
    """Why it is over, or ends."""

    @property
    def expires(self) -> Timestamp | None:
        """When its time is over; None: never. What waits may wait so long, what is granted may last so long."""
        if not self.wanted.for_us or self.phase is MaintenancePhase.OVER:
            return None
        return Timestamp(self.since + self.wanted.for_us)

    @property
    def names(self) -> str:
        """What it concerns, for people: N3, or N3:S0."""
        whole = set(self.wanted.nodes)
        nodes = [f"N{node}" for node in self.wanted.nodes]
        return ", ".join(nodes + [format_shard(each) for each in self.wanted.shards if node_of(each) not in whole])


@dataclass(frozen=True, slots=True)
class RollingRestart:
    """Nodes that are started again, one after the other."""

    number: int
    left: tuple[NodeId, ...]
    """In this order; the first one may be under way."""
    done: tuple[NodeId, ...]
    by: str
    reason: str
    began: Timestamp
    token: int
    """Of the process that took it last."""
    instance: int | None = None
    """The run of the first one that was to end; None: it was not told to."""


class MaintenancesState:
    """What the commands to the maintenances amount to."""

    def __init__(self) -> None:
        self.live: dict[int, Maintenance] = {}
        """By number, ascending."""
        self.ended: list[Maintenance] = []
        """The last ones that are over."""
        self.restart: RollingRestart | None = None
        """The rolling restart under way."""
        self.basis = NOTHING
        """Of the last command by which other shards than before may be away or empty."""
        self._next = 1
        """Number of the next maintenance or restart, and token of the next process."""

    def going(self) -> frozenset[ShardId]:
        """Shards that may be away at any moment."""
        return self._shards(GOING)

    def emptied(self) -> frozenset[ShardId]:
        """Shards that take no records, or may not."""
        return self._shards(EMPTIED)

    def going_nodes(self) -> frozenset[NodeId]:
        """Nodes that may be away as a whole at any moment."""
        return frozenset(node for each in self.live.values() if each.phase in GOING for node in each.wanted.nodes)

    def _shards(self, phases: frozenset[MaintenancePhase]) -> frozenset[ShardId]:
        return frozenset(shard for each in self.live.values() if each.phase in phases for shard in each.wanted.shards)

    # Commands

    def apply(self, command: bytes, at: StateVersion, time: Timestamp) -> bytes:
        """As `StateMachine.apply`. The result is a number where a command makes one."""
        wanted = decode(command)
        match wanted:
            case ApplyMaintenance():
                return self._apply(wanted, at, time)
            case BeginRestart():
                return self._begin_restart(wanted, time)
            case TakeRestart():
                return self._take_restart(wanted)
            case RestartNode():
                self._restart_node(wanted)
            case NodeRestarted():
                self._node_restarted(wanted, at, time)
            case AbandonRestart():
                self._restart_of(wanted.number)
                self.restart = None
            case _:
                self._change(wanted, at, time)
        return b""

    def _apply(self, wanted: ApplyMaintenance, at: StateVersion, time: Timestamp) -> bytes:
        for each in self.live.values():
            if set(each.wanted.nodes).intersection(wanted.nodes) or set(each.wanted.shards).intersection(wanted.shards):
                text = f"{each.names} is in maintenance {each.number} of {each.wanted.by} already"
                raise refuse(Status.EXISTS, text)
        if wanted.kind is MaintenanceKind.DRAIN and not wanted.shards:
            raise refuse(Status.INVALID_PARAM, "nodes without shards have nothing to drain")
        if wanted.restart and (self.restart is None or self.restart.number != wanted.restart):
            raise refuse(Status.NOTFOUND, f"rolling restart {wanted.restart} is over")
        if len(self.live) >= LIVE_MAX:
            raise refuse(Status.NOSPC, f"there are {LIVE_MAX} maintenances already")
        number = self._take_number()
        self.live[number] = Maintenance(number, wanted, time, MaintenancePhase.WAITING, time, at)
        return _packed(number)

    def _change(self, wanted: MaintenanceCommand, at: StateVersion, time: Timestamp) -> None:
        assert isinstance(
            wanted, GrantMaintenance | WithdrawMaintenance | ShardsDrained | EndMaintenance | ShardsReturned
        )
        found = self.live.get(wanted.number)
        if found is None:
            raise refuse(Status.NOTFOUND, f"there is no maintenance {wanted.number}, or it is over")
        phases = MaintenancePhase
        match wanted:
            case GrantMaintenance():
                self._check_phase(found, phases.WAITING)
                if wanted.basis != self.basis:
                    raise refuse(Status.CONFLICT, "something was granted or ended since it was judged")
                drain = found.wanted.kind is MaintenanceKind.DRAIN
                self._enter(found, phases.DRAINING if drain else phases.GRANTED, at, time)
            case WithdrawMaintenance():
                self._check_phase(found, phases.GRANTED, phases.DRAINING)
                _check_version(found, wanted.expect)
                self._enter(found, phases.WAITING, at, time)
            case ShardsDrained():
                self._check_phase(found, phases.DRAINING)
                _check_version(found, wanted.expect)
                # the time that it may last goes on
                self._enter(found, phases.DRAINED, at, found.since if found.wanted.for_us else time)
            case EndMaintenance():
                self._end(found, wanted, at, time)
            case ShardsReturned():
                self._check_phase(found, phases.ENDING)
                _check_version(found, wanted.expect)
                self._enter(found, phases.OVER, at, time)

    def _end(self, found: Maintenance, wanted: EndMaintenance, at: StateVersion, time: Timestamp) -> None:
        if wanted.expect is not None:
            _check_version(found, wanted.expect)
        if found.phase is MaintenancePhase.ENDING and wanted.cause is not EndCause.LEFT:
            raise refuse(Status.CONFLICT, f"maintenance {found.number} ends already: its shards are to be used again")
        if wanted.cause is EndCause.EXPIRED and (found.expires is None or time < found.expires):
            raise refuse(Status.CONFLICT, f"maintenance {found.number} has time left")
        found = replace(found, cause=wanted.cause)
        drained = found.phase in (MaintenancePhase.DRAINING, MaintenancePhase.DRAINED)
        used_again = drained and wanted.cause is not EndCause.LEFT
        self._enter(found, MaintenancePhase.ENDING if used_again else MaintenancePhase.OVER, at, time)

    @staticmethod
    def _check_phase(found: Maintenance, *phases: MaintenancePhase) -> None:
        if found.phase not in phases:
            raise refuse(Status.CONFLICT, f"maintenance {found.number} is {found.phase.name.lower()}")

    def _enter(self, found: Maintenance, phase: MaintenancePhase, at: StateVersion, time: Timestamp) -> None:
        never_granted = found.phase is MaintenancePhase.WAITING and phase is MaintenancePhase.OVER
        if not never_granted:
            self.basis = at
        changed = replace(found, phase=phase, since=time, version=at)
        if phase is MaintenancePhase.OVER:
            del self.live[found.number]
            self.ended = [*self.ended[1 - ENDED_KEPT :], changed]
        else:
            self.live[found.number] = changed

    def _take_number(self) -> int:
        if self._next > NUMBER_MAX:
            raise refuse(Status.NOSPC, "the numbers of maintenances are used up")
        self._next += 1
        return self._next - 1

    # Rolling restarts

    def _begin_restart(self, wanted: BeginRestart, time: Timestamp) -> bytes:
        if self.restart is not None:
            text = (
                f"rolling restart {self.restart.number} of {self.restart.by} is under way: go on with it, or abandon it"
            )
            raise refuse(Status.EXISTS, text)
        number = self._take_number()
        self.restart = RollingRestart(number, tuple(wanted.nodes), (), wanted.by, wanted.reason, time, 0)
        return _packed(number)

    def _take_restart(self, wanted: TakeRestart) -> bytes:
        restart = self._restart_of(wanted.number)
        token = self._take_number()
        self.restart = replace(restart, by=wanted.by, token=token)
        return _packed(token)

    def _restart_node(self, wanted: RestartNode) -> None:
        restart = self._restart_of(wanted.number)
        _check_token(restart, wanted.token)
        if restart.left[0] != wanted.node:
            raise refuse(Status.CONFLICT, f"N{wanted.node} is not the next one")
        if not any(each.phase is MaintenancePhase.GRANTED for each in self._of_restart(restart)):
            raise refuse(Status.CONFLICT, f"N{wanted.node} may not disappear yet")
        if restart.instance is None:  # of several tries, what the first one wanted to end counts
            self.restart = replace(restart, instance=wanted.instance)

    def _node_restarted(self, wanted: NodeRestarted, at: StateVersion, time: Timestamp) -> None:
        restart = self._restart_of(wanted.number)
        _check_token(restart, wanted.token)
        if restart.left[0] != wanted.node:
            raise refuse(Status.CONFLICT, f"N{wanted.node} is not the node that is started again")
        for each in list(self._of_restart(restart)):
            self._enter(replace(each, cause=EndCause.DONE), MaintenancePhase.OVER, at, time)
        done = replace(restart, left=restart.left[1:], done=(*restart.done, wanted.node), instance=None)
        self.restart = done if done.left else None

    def _restart_of(self, number: int) -> RollingRestart:
        if self.restart is None or self.restart.number != number:
            raise refuse(Status.NOTFOUND, f"there is no rolling restart {number}, or it is over")
        return self.restart

    def _of_restart(self, restart: RollingRestart) -> Iterator[Maintenance]:
        """The maintenance of the node that is next."""
        return (
            each
            for each in self.live.values()
            if each.wanted.restart == restart.number
            and each.wanted.kind is MaintenanceKind.AWAY
            and tuple(each.wanted.nodes) == restart.left[:1]
        )

    # Snapshots

    def encode(self) -> bytes:
        """Equal states have equal bytes."""
        restart = self.restart
        packed: bytes = msgpack.packb(
            [
                _FORMAT,
                self._next,
                *self.basis,
                [_row(each) for each in self.live.values()],
                [_row(each) for each in self.ended],
                None if restart is None else _restart_row(restart),
            ]
        )
        return packed

    @classmethod
    def decode(cls, data: bytes) -> MaintenancesState:
        """From `encode`; ValueError for anything else."""
        return decode_snapshot(data, "state of maintenances", cls._decoded)

    @classmethod
    def _decoded(cls, raw: Any) -> MaintenancesState:
        if type(raw) is not list or len(raw) != 7 or raw[0] != _FORMAT:
            raise ValueError(f"maintenances of format {_FORMAT} expected")
        _, next_, lsn, offset, live, ended, restart = raw
        if type(live) is not list or type(ended) is not list or len(live) > LIVE_MAX or len(ended) > ENDED_KEPT:
            raise ValueError("arrays of maintenances expected")
        made = cls()
        made._next = number_field(next_, 1, NUMBER_MAX + 1)
        made.basis = version_field(lsn, offset)
        for each in (_maintenance(row) for row in live):
            if not max(made.live, default=0) < each.number < made._next or each.phase is MaintenancePhase.OVER:
                raise ValueError("maintenances in order of their numbers expected")
            made.live[each.number] = each
        made.ended = [_maintenance(row) for row in ended]
        if any(each.phase is not MaintenancePhase.OVER for each in made.ended):
            raise ValueError("maintenances that are over expected")
        made.restart = None if restart is None else _restart(restart)
        return made


def _check_version(found: Maintenance, expect: StateVersion) -> None:
    if found.version != expect:
        raise refuse(Status.VERSION_MISMATCH, f"maintenance {found.number} has version {found.version}")


def _check_token(restart: RollingRestart, token: int) -> None:
    if restart.token != token:
        raise refuse(Status.FENCED, f"{restart.by} goes on with rolling restart {restart.number}")


def _packed(number: int) -> bytes:
    packed: bytes = msgpack.packb(number)
    return packed


def _row(each: Maintenance) -> list[Any]:
    cause = None if each.cause is None else int(each.cause)
    return [each.number, encode(each.wanted), each.applied, int(each.phase), each.since, *each.version, cause]


def _maintenance(row: Any) -> Maintenance:
    if type(row) is not list:
        raise ValueError("a maintenance expected")
    number, wanted, applied, phase, since, lsn, offset, cause = row
    command = decode(wanted) if type(wanted) is bytes else None
    if not isinstance(command, ApplyMaintenance) or encode(command) != wanted:
        raise ValueError("what was asked for expected")
    return Maintenance(
        maintenance_number(number),
        command,
        _time(applied),
        MaintenancePhase(number_field(phase, 1, 255)),
        _time(since),
        version_field(lsn, offset),
        None if cause is None else EndCause(number_field(cause, 1, 255)),
    )


def _restart_row(restart: RollingRestart) -> list[Any]:
    each = restart
    return [each.number, list(each.left), list(each.done), each.by, each.reason, each.began, each.token, each.instance]


def _restart(row: Any) -> RollingRestart:
    number, left, done, by, reason, began, token, instance = row
    if not left or type(done) is not list:
        raise ValueError("nodes that are left expected")
    return RollingRestart(
        maintenance_number(number),
        nodes_field(left),
        tuple(node_field(each) for each in done),
        text_field(by),
        text_field(reason),
        _time(began),
        number_field(token, 0, NUMBER_MAX),
        None if instance is None else number_field(instance, 0, INSTANCE_MAX),
    )


def _time(value: Any) -> Timestamp:
    return Timestamp(number_field(value, -_INT64, _INT64 - 1))


MAINTENANCES: Final = StateKind(KIND_NAME, MaintenancesState, MaintenancesState.decode)
