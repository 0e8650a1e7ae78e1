"""What recovery has found of an epoch for good."""

from __future__ import annotations

from collections.abc import Collection

from logdevice_py.core.epoch_summary import EpochCounts, EpochSummary
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import ESN_MAX, ESN_MIN, Epoch, Esn, compose_lsn, esn_of
from logdevice_py.core.marks import hit
from logdevice_py.core.units import Timestamp
from logdevice_py.metadata.epoch_metadata import TailRecord
from sequencer.recovery.digest import EpochDigest
from sequencer.recovery.metrics import RecoveryMetrics
from sequencer.recovery.plan import Plan, latest
from sequencer.recovery.recovery_shard import SealedEpoch
from sequencer.recovery.summary import counts_of, summarize


class EpochFindings:
    """What shards told of an epoch and what was decided about it. All of it holds for ever, even if the shard that told it is lost: it outlives
    every attempt."""

    __slots__ = (
        "_counts",
        "_guarded",
        "_metrics",
        "_previous_tail",
        "_sealed_tail",
        "epoch",
        "lng",
        "log",
        "plan",
        "seal_epoch",
    )

    def __init__(
        self,
        log: LogId,
        epoch: Epoch,
        seal_epoch: Epoch,
        previous_tail: TailRecord | None,
        metrics: RecoveryMetrics,
        *,
        guarded: bool = False,
    ) -> None:
        """
        Args:
            seal_epoch: of the recovery.
            previous_tail: the last entry of earlier epochs.
            guarded: entries of the epoch carry a tail state.
        """
        self.log = log
        self.epoch = epoch
        self.seal_epoch = seal_epoch
        self.lng = Esn(0)
        """The greatest that a shard told."""
        self.plan: Plan | None = None
        """None until an attempt came as far as to decide."""
        self._metrics = metrics
        self._guarded = guarded
        self._previous_tail = previous_tail
        self._sealed_tail: TailRecord | None = None
        self._counts: tuple[Esn, EpochCounts] | None = None
        """Those of the last entry up to an LNG that a shard told of."""

    def learn(self, sealed: SealedEpoch) -> None:
        """What a shard told when it was sealed."""
        if self.plan is not None and sealed.lng > self.plan.lng:
            hit("recovery_lng_after_decision")
        self.lng = max(self.lng, sealed.lng)
        if sealed.tail_lsn >> 32 == self.epoch:
            self._sealed_tail = latest(self._sealed_tail, sealed.tail())
            counts = counts_of(sealed.tail_extensions)
            if counts is not None and (self._counts is None or self._counts[0] < esn_of(sealed.tail_lsn)):
                self._counts = esn_of(sealed.tail_lsn), counts

    @property
    def agreed_lng(self) -> Esn:
        """What an attempt decided above its LNG is on its mutation set only, even if a shard tells of a higher LNG later."""
        return self.lng if self.plan is None else self.plan.lng

    @property
    def digest_from(self) -> Esn:
        """The first ESN that shards are asked for. The entry at the LNG is read once more when nobody knows its timestamp, or the tail
        state behind it."""
        lng, tail = self.agreed_lng, self._sealed_tail
        known = self.plan is not None or (
            tail is not None
            and tail.lsn == compose_lsn(self.epoch, lng)
            and (tail.state is not None or not self._guarded)
        )
        return ESN_MIN if lng == 0 else Esn(lng + 1 if known and lng < ESN_MAX else lng)

    @property
    def tail_below(self) -> TailRecord | None:
        """The last entry that is known up to the LNG, or of earlier epochs."""
        return latest(self._sealed_tail, self._previous_tail)

    def decide(self, digest: EpochDigest, unreadable: Collection[Esn], wall: Timestamp, *, authoritative: bool) -> Plan:
        """Decide what an attempt's digest shows and is not decided yet. Whether the epoch is authoritative, the first attempt says."""
        first = self.plan is None
        if self.plan is None:
            self.plan = Plan(
                self.log, self.epoch, self.seal_epoch, self.lng, authoritative=authoritative, guarded=self._guarded
            )
        plan = self.plan
        late = plan.late
        plan.decide(
            digest,
            first=first,
            unreadable=unreadable,
            sealed_tail=self._sealed_tail,
            previous_tail=self._previous_tail,
        )
        self._metrics.late_entries_dropped += plan.late - late
        if first and plan.authoritative:
            plan.summary = self._summary(plan, digest, wall)
        return plan

    def _summary(self, plan: Plan, digest: EpochDigest, wall: Timestamp) -> EpochSummary | None:
        """What the epoch holds, if its entries are counted. Decided once: all that this recovery stores says the same."""
        lng, at_lng = plan.lng, None
        if lng and self._counts is not None and self._counts[0] == lng:
            at_lng = self._counts[1]
        elif lng and (entry := digest.entries.get(lng)) is not None and entry.header is not None:
            at_lng = counts_of(entry.header.extensions)
        return summarize(plan, at_lng, wall)

    @property
    def decided(self) -> Plan:
        """The plan, once an attempt has come that far."""
        assert self.plan is not None, self.epoch
        return self.plan
