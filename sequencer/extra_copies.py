"""Extra copies: entries that are acknowledged before all of a wave have them.

A wave of such an epoch goes to as many shards as `replicate` asks for, and some more. Rules, which tests cite:

1. *Holders* of an entry are the shards that answered OK to any of its waves, less those that took it back since: REBUILDING (the shard lost its data),
   BADPAYLOAD (an AMEND found no body), and whatever was not synced when the connection broke or the write failed.
2. An entry is *acked* when its holders satisfy `replicate` under the labels of the epoch. Clients are answered then; frames of write streams and conditional
   appends when everything before them in the epoch is acked, too.
3. It is *settled* when every shard of its latest wave has stored that wave, as entries without extra copies are replicated. Reaping, LNG, releases and answers about the
   tail follow what is settled: so a released entry is on all the shards that its header names.
4. What is acked waits for the rest of the wave as long as these usually take. Then a wave goes to the holders alone, without the body for those that have it, and to others
   only if holders are lacking.
5. An entry that is aborted or preempted after its clients were answered ends in silence. Recovery finds it: its holders meet every f-majority.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Final, cast

from logdevice_py.core import marks
from logdevice_py.core.entry import EntryFlags
from logdevice_py.core.ids import NodeId, ShardId, node_of
from logdevice_py.core.lsn import ESN_INVALID, Esn
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Stored
from sequencer.appender import RUNNING, UNKNOWN_OUTCOME, Appender, AppenderState
from sequencer.epoch_sequencer import EpochSequencer
from sequencer.frames import NO_NODE

_OK: Final = Status.OK
_STORING: Final = AppenderState.STORING
_ORDERED: Final = int(EntryFlags.WRITE_STREAM | EntryFlags.CONDITIONAL)


class AppenderWithExtras(Appender):
    """One entry on its way to more shards than have to have it."""

    __slots__ = ("_asked", "_holders", "_synced", "is_acked", "is_told")

    owner: EpochWithExtras

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.is_acked = False
        """Its holders satisfied the replication property when they last changed, or when everything up to it was acked."""
        self.is_told = False
        """Its clients were answered, or their answers are withheld."""
        self._holders: set[ShardId] = set()
        self._asked: set[ShardId] = set()
        """Shards that were sent a wave over the connection that there is."""
        self._synced = True
        """All waves asked their shards to answer after a sync."""

    @property
    def holders(self) -> list[ShardId]:
        """Those of the latest wave first, in its order."""
        rest = self._holders.difference(self.copyset)
        return [*(shard for shard in self.copyset if shard in self._holders), *sorted(rest)]

    def on_stored(self, message: Stored, now: Micros) -> None:
        """A shard answered a STORE of this entry."""
        shard, status = message.shard, message.status
        if status is _OK:
            self.context.store_timeouts.answered(shard)
        if self.state not in RUNNING:
            super().on_stored(message, now)
            return
        if status is _OK:
            if shard in self._asked:
                self._holders.add(shard)
        elif status is Status.REBUILDING:
            self.owner.on_shard_lost(shard)
        elif status in UNKNOWN_OUTCOME and not self._synced:
            self.take_back(shard)
        super().on_stored(message, now)
        self._judge(now)

    def on_timeout(self, now: Micros) -> None:
        """The wave took too long. Of one that is acked: too long to wait for the rest. The late shards are avoided only if they answer nothing at all."""
        if self.state is not _STORING or not self.is_acked or self.preempted_by != NO_NODE:
            super().on_timeout(now)
            return
        timeouts = self.context.store_timeouts
        for shard in self.unanswered:
            timeouts.note(shard, now - self._sent_at, now)
            if timeouts.is_silent(shard, Micros(self._sent_at), now):
                self.context.graylist(shard, now)
        self._next_wave(now)

    def on_peer_down(self, node: NodeId, now: Micros) -> None:
        """STOREs to a node, or their answers, may have been lost; and what the node had not synced."""
        if self.state not in RUNNING:
            return
        self._asked = {shard for shard in self._asked if node_of(shard) != node}
        if not self._synced:
            for shard in [shard for shard in self._holders if node_of(shard) == node]:
                self.take_back(shard)
        super().on_peer_down(node, now)
        self._judge(now)

    def take_back(self, shard: ShardId) -> None:
        """The shard does not have the entry any more, or perhaps not. As without extra copies, nobody watches what is settled."""
        if shard not in self._holders or self.state not in RUNNING:
            return
        marks.hit("copy_taken_back")
        self._holders.remove(shard)
        super()._lacks_body(shard)
        if self.state is _STORING and shard in self.copyset:
            self._missing |= 1 << self.copyset.index(shard)
        if self.is_acked and not self.is_told and not self.owner.is_passed(self):
            self.is_acked = self.owner.can_replicate(self._holders)

    def _lacks_body(self, shard: ShardId) -> None:
        super()._lacks_body(shard)
        self.take_back(shard)

    def _judge(self, now: Micros) -> None:
        """See what follows from the answers that there are."""
        if self.state not in RUNNING:
            return
        if not self.is_acked and self.owner.can_replicate(self._holders):
            self.is_acked = True
            self.owner.on_acked(self, now)
            if self.state is not _STORING:
                self._next_wave(now)
            elif self._expected:
                self._await_the_rest(now)
        if self.state is _STORING and not self._expected:
            self._recipient_failed(now)

    def _await_the_rest(self, now: Micros) -> None:
        context = self.context
        wait = max(context.settings.settle_min_us, context.store_timeouts.usual(self.unanswered))
        if now + wait < self.deadline:
            self._arm(now + wait)

    def _recipient_failed(self, now: Micros) -> None:
        if self.state not in RUNNING or self.preempted_by != NO_NODE:
            super()._recipient_failed(now)
        elif self.is_acked:
            if not self._expected and self.wave <= self.context.settings.immediate_waves + 1:
                self._next_wave(now)
        elif not self.owner.can_replicate(self._holders.union(self.unanswered)):
            super()._recipient_failed(now)

    def _choose(self, now: Micros) -> tuple[ShardId, ...] | None:
        if not self.is_acked:
            return super()._choose(now)
        marks.hit("holders_become_the_copyset")
        return self.owner.pick_for_holders(self.holders, now)

    def _send(self, copyset: tuple[ShardId, ...], body: bytes, length: int, crc: int, now: Micros) -> None:
        super()._send(copyset, body, length, crc, now)
        self.synced = self._synced = self._synced and self.synced
        self._asked.update(copyset)


class EpochWithExtras(EpochSequencer):
    """An epoch whose waves go to more shards than have to have an entry."""

    _appender_type: ClassVar[type[Appender]] = AppenderWithExtras

    __slots__ = ("_domains", "acked_through")

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.acked_through = ESN_INVALID
        """Up to here all entries are acked."""
        self._domains = self.interval.domains(self.context.config.location)

    def can_replicate(self, shards: Iterable[ShardId]) -> bool:
        """Whether shards satisfy the replication property, by the labels of the epoch."""
        return self._domains.can_replicate(set(shards))

    def is_passed(self, appender: Appender) -> bool:
        """Whether entries behind it count it as acked."""
        return appender.lsn & 0xFFFFFFFF <= self.acked_through

    def pick_for_holders(self, holders: list[ShardId], now: Micros) -> tuple[ShardId, ...] | None:
        """The copyset that an acked entry is to have: its holders, as far as they are available, and others only if these do not suffice."""
        selector, availability = self._copyset_source(), self.context.availability

        def is_available(shard: ShardId) -> bool:
            return shard not in self.lost and availability.is_available(shard)

        copyset = selector.replace([shard for shard in holders if is_available(shard)], is_available)
        if copyset is None and availability.forgive_slow(selector.nodeset):
            copyset = selector.replace([shard for shard in holders if is_available(shard)], is_available)
        return copyset

    def on_acked(self, appender: AppenderWithExtras, now: Micros) -> None:
        """The holders of an entry satisfy the replication property."""
        if appender.lsn & 7 == 1:
            self.context.metrics.append_latency.note(appender.age(now))
        if not appender.flags & _ORDERED:
            self._acknowledge(appender)
        window = self._window
        assert window is not None
        esn = appender.lsn & 0xFFFFFFFF
        if esn != self.acked_through + 1:
            return
        next_one: Appender | None = appender
        while next_one is not None and cast("AppenderWithExtras", next_one).is_acked:
            self.acked_through = Esn(esn)
            if next_one.flags & _ORDERED:
                self._acknowledge(next_one)
            esn += 1
            next_one = window.appenders.get(esn)

    def on_replicated(self, appender: Appender, now: Micros) -> None:
        """An entry is settled: reap what can be reaped."""
        assert isinstance(appender, AppenderWithExtras)
        self.context.metrics.entries_replicated += 1
        if not appender.is_acked:
            appender.is_acked = True
            self.on_acked(appender, now)
        if appender.lsn & 0xFFFFFFFF == self._window.tail:  # type: ignore[union-attr]
            self._reap(now)

    def on_shard_lost(self, shard: ShardId) -> None:
        """A shard has lost what it had of this epoch."""
        super().on_shard_lost(shard)
        for appender in self.entries():
            cast("AppenderWithExtras", appender).take_back(shard)

    def acknowledge_withheld(self, appender: Appender) -> None:
        """The epochs before are sealed: tell that an entry is stored."""
        cast("AppenderWithExtras", appender).is_told = False
        super().acknowledge_withheld(appender)

    def refuse_withheld(self, appender: Appender, successor: NodeId) -> None:
        """The log is sequenced elsewhere, whose recovery finds the entry."""
        cast("AppenderWithExtras", appender).is_told = False
        super().refuse_withheld(appender, successor)

    def check(self) -> None:
        """Invariants; the simulator calls it."""
        super().check()
        assert self.lng <= self.acked_through, (self.lng, self.acked_through)

    def _acknowledge(self, appender: Appender) -> None:
        assert isinstance(appender, AppenderWithExtras)
        if not appender.is_told:
            appender.is_told = True
            super()._acknowledge(appender)

    def _tell(self, appender: Appender, holders: list[ShardId]) -> None:
        super()._tell(appender, cast("AppenderWithExtras", appender).holders)

    def _refuse(self, appender: Appender) -> None:
        assert isinstance(appender, AppenderWithExtras)
        if appender.is_told:
            marks.hit("acked_entry_ends_in_silence")
            return
        appender.is_told = True
        super()._refuse(appender)
