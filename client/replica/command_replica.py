"""A replica of a state machine, and the proposals of those who want to change it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from client.promise import Promise, break_, keep
from client.read.items import CorruptRecord, Gap, Record
from client.read.settings import ReadSettings
from client.receipt import Receipt
from client.replica.applied_state import AppliedState, CommandFate, StateKind, StateMachine
from client.replica.chunked_snapshots import CHUNK_OVERHEAD, SNAPSHOT_BYTES_MAX, ChunkedSnapshots, cut_snapshot
from client.replica.commands import (
    COMMAND_BYTES_MAX,
    REQUEST_BYTES,
    RequestId,
    StateVersion,
    encode_command,
)
from client.replica.log_replica import LogReplica, ReplicaStage
from client.replica.metrics import ReplicaMetrics
from client.session import ClientSession
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_INVALID, Lsn, format_lsn
from logdevice_py.core.machine import Rng
from logdevice_py.core.marks import hit
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import MILLISECOND, SECOND, Micros

PROPOSALS_MAX: Final = 1024
"""Of one replica at a time. Together with those of others they should stay below what the state remembers."""
CHUNK_BYTES: Final = 256 << 10
_RECORD_COST: Final = 100
_AGAIN_US: Final = 200 * MILLISECOND
_TRY_US: Final = SECOND
"""How long the first copy of a command may take, each further one twice as long: it may lie at a node that is paused. Another copy does no harm."""

T = TypeVar("T", bound=StateMachine)


class CommandRules(Generic[T]):
    """What is particular to state machines of applications."""

    skips_losses = False

    def __init__(
        self,
        kind: StateKind[T],
        commands: LogId,
        snapshots: LogId,
        metrics: ReplicaMetrics,
        rng: Rng,
        record_bytes_max: Callable[[], int],
        on_taken: Callable[[CommandFate, RequestId], None],
    ) -> None:
        """
        Args:
            record_bytes_max: that the log of snapshots takes.
            on_taken: called with each command that is taken, and what becomes of it.
        """
        self.commands = commands
        self.snapshots = snapshots
        self._kind = kind
        self._metrics = metrics
        self._rng = rng
        self._record_bytes_max = record_bytes_max
        self._on_taken = on_taken

    def apply(self, state: AppliedState[T], item: Record | CorruptRecord) -> bool:
        """Take the next record."""
        fate, request = state.take(item)
        metrics = self._metrics
        if fate is CommandFate.OTHER_KIND:
            hit("replica_skips_what_is_no_command")
            metrics.records_of_other_kinds += 1
        elif fate is CommandFate.JUDGED:
            metrics.commands_judged += 1
        elif fate is CommandFate.REPEATED:
            metrics.commands_repeated += 1
        elif fate is CommandFate.TOO_OLD:
            metrics.commands_too_old += 1
        if request is not None:
            self._on_taken(fate, request)
        return fate is not CommandFate.KNOWN

    def on_loss(self, gap: Gap) -> None:
        """Nothing is applied behind it, unless a snapshot tells what they did."""
        hit("replica_stops_at_a_loss")
        self._metrics.command_losses += 1

    def read_snapshots(self, needed: Lsn) -> ChunkedSnapshots[T]:
        """Begin to look through snapshots."""
        return ChunkedSnapshots(self._kind, needed)

    def snapshot(self, state: AppliedState[T]) -> list[bytes]:
        """Chunks and a commit record."""
        data = state.encode()
        if len(data) > SNAPSHOT_BYTES_MAX:
            hit("replica_state_is_too_large")
            self._metrics.snapshots_too_large += 1
            return []
        size = max(min(CHUNK_BYTES, self._record_bytes_max()), 2 * CHUNK_OVERHEAD)
        return cut_snapshot(data, _unique(self._rng), size)

    def on_snapshot_written(self, version: Lsn) -> Lsn:
        """Nothing goes before it was read back."""
        self._metrics.snapshots_written += 1
        return LSN_INVALID

    def cost(self, state: AppliedState[T]) -> int:
        """Commands cost what they change."""
        return _RECORD_COST

    def pause_us(self, state: AppliedState[T]) -> int:
        """Whoever is told of a change looks at what he needs."""
        return 0


@dataclass(slots=True, eq=False)
class _Proposal:
    """A request of this replica."""

    given: RequestId | None
    """By the caller; None: the proposal gets one when the replica is caught up, and another one when the state has moved on too far."""
    body: bytes
    promise: Promise
    deadline: Micros
    request: RequestId | None = None
    record: bytes = b""
    tries: int = 0
    may_be_there: bool = False
    """A copy may be in the log."""


class CommandReplica(LogReplica[AppliedState[T]]):
    """One replica of a state machine.

    What a proposal came to is told when this replica applies it, so its writer reads what it wrote.
    """

    def __init__(
        self,
        session: ClientSession,
        kind: StateKind[T],
        commands: LogId,
        snapshots: LogId,
        on_change: Callable[[Micros], None],
        *,
        snapshot_every: int,
        read_settings: ReadSettings | None = None,
    ) -> None:
        """
        Args:
            session: of a client; its shell runs its timers.
            on_change: as `LogReplica` calls it.
            snapshot_every: commands; 0: others write the snapshots.
        """
        self.metrics = ReplicaMetrics()
        self._snapshot_every = snapshot_every
        self._kind = kind
        self._now = Micros(0)
        """Of the turn that is handled."""
        self._waiting: list[_Proposal] = []
        """Until the replica is caught up."""
        self._proposals: dict[bytes, _Proposal] = {}
        """That have an id, in the order in which they got it."""
        self._command_rules = CommandRules(
            kind, commands, snapshots, self.metrics, session.rng, self._record_bytes_max, self._on_taken
        )
        super().__init__(session, self._command_rules, AppliedState(kind), on_change, read_settings=read_settings)

    @property
    def version(self) -> StateVersion:
        """Of the state."""
        return self.state.position

    def waiting_for(self) -> str:
        """What holds the replica up at this moment, for people."""
        if self.stage is ReplicaStage.CLOSED:
            return "nothing: it is closed"
        if self.loss is not None:
            return self._loss_text()
        if not self.caught_up:
            stream = self._stream
            return f"what {self._kind.name} came to: {'snapshots' if stream is None else stream.waiting_for()}"
        return "commands"

    def _loss_text(self) -> str:
        loss = self.loss
        assert loss is not None
        return (
            f"commands {format_lsn(Lsn(loss.lo))} to {format_lsn(Lsn(loss.hi))} of log {self._command_rules.commands}, which are lost: {loss.loss}. "
            f"{self._kind.name} stays at version {self.version}. Bring back the shards that hold copies; the replica looks again every 30 s"
        )

    def _record_bytes_max(self) -> int:
        attributes = self.session.config.log(self._command_rules.snapshots)
        return CHUNK_BYTES if attributes is None else attributes.max_payload_bytes

    def handle_turn(self, now: Micros) -> bool:
        """As of any replica; then tell what proposals came to, and begin those that waited."""
        if self.stage is ReplicaStage.CLOSED:
            return False
        self._now = now
        state, loss = self.state, self.loss
        again = super().handle_turn(now)
        if self.state is not state:
            self._look_for_outcomes()
        if self.loss is not None and loss is None:
            self._fail_all(Status.DATALOSS, self._loss_text())
        if self.caught_up and self.loss is None and self._waiting:
            waiting, self._waiting = self._waiting, []
            for proposal in waiting:
                self._begin(proposal, now)
        return again

    # Proposals

    def new_request(self) -> RequestId:
        """An id for a proposal that may have to be made again.

        Raises:
            LogDeviceError: AGAIN: the replica is not caught up.
        """
        if not self.caught_up:
            raise LogDeviceError(Status.AGAIN, f"the replica is not caught up; it waits for {self.waiting_for()}")
        return RequestId(_unique(self.session.rng), self.version)

    def propose(
        self, body: bytes, promise: Promise, now: Micros, timeout_us: int, request: RequestId | None = None
    ) -> None:
        """Append a command, and again if need be; the promise gets its `CommandOutcome`.

        Args:
            request: of an earlier proposal of the same command, whatever came of that.

        The promise is broken with TIMEDOUT, DATALOSS or SHUTDOWN, with `maybe_applied` where a copy may be in the log: it may be applied later.
        Proposing with the same request tells the outcome of the first copy, as long as that is remembered.

        Raises:
            LogDeviceError: TOOBIG, NOTFOUND, AGAIN, NOBUFS, SHUTDOWN, DATALOSS, INVALID_PARAM; nothing was appended.
        """
        attributes = self.session.config.log(self._command_rules.commands)
        if self.stage is ReplicaStage.CLOSED:
            raise LogDeviceError(Status.SHUTDOWN, "the replica is closed", retriable=False)
        if attributes is None:
            raise self.session.config.unknown(self._command_rules.commands)
        if self.loss is not None:
            raise LogDeviceError(Status.DATALOSS, self._loss_text())
        if len(body) > COMMAND_BYTES_MAX:
            raise LogDeviceError(Status.TOOBIG, f"a command of {len(body)} bytes; {COMMAND_BYTES_MAX} are allowed")
        if len(self._waiting) + len(self._proposals) >= PROPOSALS_MAX:
            raise LogDeviceError(Status.NOBUFS, f"{PROPOSALS_MAX} proposals are under way")
        if request is not None and (len(request.unique) != REQUEST_BYTES or request.unique in self._proposals):
            raise LogDeviceError(Status.INVALID_PARAM, "this is no request id, or one that is under way")
        deadline = Micros(now + timeout_us)
        proposal = _Proposal(request, body, promise, deadline)
        self.session.timers.at(deadline, lambda at: self._expire(proposal))
        if self.caught_up:
            self._begin(proposal, now)
        else:
            self._waiting.append(proposal)

    def _begin(self, proposal: _Proposal, now: Micros) -> None:
        """Append for the first time, unless it is known what the request came to."""
        request = proposal.request = proposal.given or self.new_request()
        proposal.may_be_there = proposal.given is not None
        self._proposals[request.unique] = proposal
        self._settle(proposal, request)
        if self._is_open(proposal):
            proposal.record = encode_command(self._kind.name, request, proposal.body)
            self._append_command(proposal, now)

    def _append_command(self, proposal: _Proposal, now: Micros) -> None:
        if not self._is_open(proposal):
            return
        self.metrics.commands_appended += 1
        left = min(max(proposal.deadline - now, 1), _TRY_US << min(proposal.tries, 10))
        proposal.tries += 1
        log = self._command_rules.commands
        taken = self.append(
            log, proposal.record, lambda outcome, at: self._on_appended(proposal, outcome, at), now, timeout_us=left
        )
        if not taken:
            self._end(proposal)
            error = LogDeviceError(Status.TOOBIG, f"log {log} does not take {len(proposal.record)} bytes")
            break_(proposal.promise, error)

    def _on_appended(self, proposal: _Proposal, outcome: Receipt | BaseException, now: Micros) -> None:
        """Another copy of what failed does no harm. What is in the log is applied soon."""
        if not isinstance(outcome, LogDeviceError):
            proposal.may_be_there = True
            return
        proposal.may_be_there = proposal.may_be_there or outcome.maybe_applied
        if outcome.retriable or outcome.maybe_applied:
            hit("replica_command_is_appended_again")
            self.session.timers.at(Micros(now + _AGAIN_US), lambda at: self._append_command(proposal, at))
        elif self._is_open(proposal):
            self._fail(proposal, outcome.status, outcome.detail)

    def _is_open(self, proposal: _Proposal) -> bool:
        return proposal.request is not None and self._proposals.get(proposal.request.unique) is proposal

    def _on_taken(self, fate: CommandFate, request: RequestId) -> None:
        """A command was read: perhaps one of this replica."""
        proposal = self._proposals.get(request.unique)
        if proposal is None:
            return
        if fate is CommandFate.TOO_OLD:
            self._on_too_old(proposal)
            return
        self._settle(proposal, request)
        if fate is CommandFate.JUDGED and self._snapshot_every and self.state.commands % self._snapshot_every == 0:
            self.write_snapshot(self._now)

    def _on_too_old(self, proposal: _Proposal) -> None:
        """No copy was judged before, as that would have ended the proposal, and none will be."""
        self._end(proposal)
        if proposal.given is None:
            self._waiting.append(proposal)
            self.wake()
        else:
            text = "the command came so late that the state refuses it unread: propose it as a new request"
            break_(proposal.promise, LogDeviceError(Status.STALE, text, retriable=False))

    def _look_for_outcomes(self) -> None:
        """A snapshot was taken over, with commands of this replica perhaps."""
        for proposal in list(self._proposals.values()):
            assert proposal.request is not None
            self._settle(proposal, proposal.request)

    def _settle(self, proposal: _Proposal, request: RequestId) -> None:
        """End a proposal of which the state tells the outcome, or will never tell it."""
        outcome = self.state.outcome(request)
        if outcome is not None:
            self._end(proposal)
            keep(proposal.promise, outcome)
        elif self.state.is_forgotten(request):
            hit("replica_proposal_is_forgotten")
            self._fail(
                proposal,
                Status.STALE,
                "the state does not remember any more what came of this request: look whether it shows it",
            )

    def _expire(self, proposal: _Proposal) -> None:
        if self._is_open(proposal) or proposal in self._waiting:
            self._fail(proposal, Status.TIMEDOUT, f"no outcome in time; the replica waits for {self.waiting_for()}")

    def _fail(self, proposal: _Proposal, status: Status, text: str) -> None:
        self._end(proposal)
        if proposal.may_be_there:
            self.metrics.proposals_unknown += 1
        break_(proposal.promise, LogDeviceError(status, text, maybe_applied=proposal.may_be_there))

    def _fail_all(self, status: Status, text: str) -> None:
        for proposal in [*self._proposals.values(), *self._waiting]:
            self._fail(proposal, status, text)

    def _end(self, proposal: _Proposal) -> None:
        if proposal in self._waiting:
            self._waiting.remove(proposal)
        if self._is_open(proposal):
            assert proposal.request is not None
            del self._proposals[proposal.request.unique]

    def stop(self) -> None:
        """Do nothing any more; what is under way fails."""
        self._fail_all(Status.SHUTDOWN, "the replica was closed")
        super().stop()


def _unique(rng: Rng) -> bytes:
    return rng.getrandbits(8 * REQUEST_BYTES).to_bytes(REQUEST_BYTES, "big")
