"""Learns what the sealed shards of an epoch hold of it, until it can be decided what it holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from logdevice_py.core.ids import ShardId
from logdevice_py.core.lsn import ESN_MAX, ESN_MIN, Esn, Lsn, compose_lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros
from logdevice_py.placement.failure_domains import FMajority
from logdevice_py.protocol.messages import DigestRange
from sequencer.recovery.coalescing import AnswerSink
from sequencer.recovery.context import RecoveryContext
from sequencer.recovery.digest import EpochDigest
from sequencer.recovery.findings import EpochFindings
from sequencer.recovery.grace import Grace
from sequencer.recovery.recovery_shard import RecoveryShard, RecoveryShards, RecoveryShardState


@dataclass(frozen=True, slots=True)
class DigestResult:
    """Enough to decide by."""

    shards: list[ShardId]
    """Those that told everything."""
    proven: FMajority
    unreadable: set[Esn]
    """ESNs of which so many copies are damaged that the rest does not prove what they hold."""


class DigestPhase:
    """The digest of one attempt. A shard is asked for one piece after the other, and for each again until it answers."""

    def __init__(
        self,
        findings: EpochFindings,
        shards: RecoveryShards,
        context: RecoveryContext,
        sink: AnswerSink,
        on_grace_over: Callable[[Micros], None],
    ) -> None:
        """
        Args:
            sink: gets the answers.
            on_grace_over: called when `result` may have come to wait for nobody any more.
        """
        self.digest = EpochDigest(findings.log, findings.epoch)
        self._findings = findings
        self._shards = shards
        self._context = context
        self._sink = sink
        self._grace = Grace(context, on_grace_over)
        self._first = compose_lsn(findings.epoch, ESN_MIN)
        self._end = compose_lsn(findings.epoch, ESN_MAX)

    def start(self, now: Micros) -> None:
        """Ask the shards that are sealed."""
        self._first = compose_lsn(self._findings.epoch, self._findings.digest_from)
        self._grace.start(now)
        for member in self._shards.members.values():
            if member.state is RecoveryShardState.SEALED:
                self.ask(member, now)

    def cancel(self) -> None:
        """Wait for nobody any more."""
        self._grace.cancel()

    def ask(self, member: RecoveryShard, now: Micros) -> None:
        """Ask a sealed shard for everything."""
        self._ask(member, self._first, now)

    def take(self, member: RecoveryShard, covered: Lsn, images: list[tuple[Lsn, bytes]], now: Micros) -> bool:
        """Put into the digest what a shard holds up to `covered`. True: it told everything; else it is asked for the next piece."""
        for lsn, image in images:
            if member.digest_next <= lsn <= min(covered, self._end):
                if not self.digest.add(member.shard, lsn, image):
                    hit("recovery_digest_damaged_on_the_way")
                    covered = Lsn(lsn - 1)
                    break
                self._context.metrics.entries_digested += 1
        if covered < self._end:
            if covered < member.digest_next:
                hit("recovery_digest_no_progress")
            self._ask(member, max(Lsn(covered + 1), member.digest_next), now)
            return False
        member.cancel_timer()
        member.state = RecoveryShardState.DIGESTED
        return True

    def _ask(self, member: RecoveryShard, start: Lsn, now: Micros) -> None:
        member.state = RecoveryShardState.DIGESTING
        member.digest_next = start
        member.cancel_timer()
        settings = self._context.settings
        member.delay = max(member.delay, settings.digest_retry_initial_us)
        row = DigestRange(self._findings.log, start, self._end, member.generation)
        self._context.requests.digest(self._sink, member.shard, settings.digest_bytes_max, row)

        def again(now: Micros) -> None:
            hit("recovery_digest_timed_out")
            member.delay = min(2 * member.delay, settings.digest_retry_max_us)
            self._ask(member, member.digest_next, now)

        member.timer = self._context.timers.at(now + member.delay, again)

    def result(self, now: Micros) -> DigestResult | None:
        """What it came to; None while more must, or had better, be heard."""
        proven = self._shards.enough(RecoveryShardState.DIGESTED)
        if proven is FMajority.NONE:
            return None
        digested = self._shards.at_least(RecoveryShardState.DIGESTED)
        unreadable = self._unreadable(digested)
        if unreadable and self._may_be_read_elsewhere(proven):
            hit("recovery_damage_waits")
            return None
        if self._stragglers(proven) and not self._grace.is_over(proven, now):
            return None
        return DigestResult(digested, proven, unreadable)

    def _unreadable(self, digested: list[ShardId]) -> set[Esn]:
        """As in `DigestResult`."""
        return {
            esn
            for esn, damaged in self.digest.damaged_shards(self._findings.agreed_lng).items()
            if not self._shards.domains.f_majority([s for s in digested if s not in damaged]).is_authoritative
        }

    def _may_be_read_elsewhere(self, proven: FMajority) -> bool:
        return proven is FMajority.INCOMPLETE or self._shards.hopes

    def _stragglers(self, proven: FMajority) -> bool:
        """Whether waiting may bring more: shards not heard, or shards that lack entries but may still show some."""
        if proven is FMajority.INCOMPLETE:
            return True
        return any(
            member.state in (RecoveryShardState.SEALED, RecoveryShardState.DIGESTING)
            for member in self._shards.members.values()
        )

    @property
    def in_grace(self) -> bool:
        """Shards are waited for that it could do without."""
        return self._grace.runs

    @property
    def waits_for_good_copy(self) -> bool:
        """Shards told enough, but of an entry nothing that can be read; to look at."""
        proven = self._shards.enough(RecoveryShardState.DIGESTED)
        unreadable = self._unreadable(self._shards.at_least(RecoveryShardState.DIGESTED))
        return proven is not FMajority.NONE and bool(unreadable) and self._may_be_read_elsewhere(proven)
