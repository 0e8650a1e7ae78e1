"""Asks the sealed shards of an epoch what they hold of it."""

from __future__ import annotations

from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import ESN_MAX, ESN_MIN, Epoch, Esn, Lsn, compose_lsn
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import DigestRange
from sequencer.recovery.coalescing import AnswerSink
from sequencer.recovery.context import RecoveryContext
from sequencer.recovery.digest import EpochDigest
from sequencer.recovery.recovery_shard import RecoveryShard, RecoveryShardState


class DigestRequests:
    """A shard is asked for one piece after the other, and for each again until it answers."""

    def __init__(self, log: LogId, epoch: Epoch, context: RecoveryContext, sink: AnswerSink) -> None:
        """
        Args:
            sink: gets the answers.
        """
        self.start: Esn = ESN_MIN
        """The first ESN that shards are asked for."""
        self._log = log
        self._epoch = epoch
        self._end = compose_lsn(epoch, ESN_MAX)
        self._context = context
        self._sink = sink

    def ask(self, member: RecoveryShard, now: Micros) -> None:
        """Ask a shard for everything from `start` on."""
        self._ask(member, compose_lsn(self._epoch, self.start), now)

    def take(
        self, member: RecoveryShard, covered: Lsn, images: list[tuple[Lsn, bytes]], digest: EpochDigest, now: Micros
    ) -> bool:
        """Put into the digest what a shard holds up to `covered`. True: it told everything; else it is asked for the next piece."""
        for lsn, image in images:
            if member.digest_next <= lsn <= min(covered, self._end):
                if not digest.add(member.shard, lsn, image):
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
        row = DigestRange(self._log, start, self._end, member.generation)
        self._context.requests.digest(self._sink, member.shard, settings.digest_bytes_max, row)

        def again(now: Micros) -> None:
            hit("recovery_digest_timed_out")
            member.delay = min(2 * member.delay, settings.digest_retry_max_us)
            self._ask(member, member.digest_next, now)

        member.timer = self._context.timers.at(now + member.delay, again)
