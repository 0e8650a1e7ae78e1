"""Hedges of a read stream: when the shard that should send is late, others are asked for what it owes.

A *hedge* is a second stream for the range at the head, of 64 entries and 256 KiB at most. Its entries are taken like any others. What shards say
in it besides, that they have nothing or lost it, is no statement that gap detection counts: it only makes the next attempt begin. So what a reader
delivers, and what it calls lost, is the same with hedges and without.

A shard is *behind* while the stream has come to an LSN that is released and that the shard, which may send, has not spoken of. Once it has spoken of
that one, it is behind anew with the next one: a shard that sends a long run of entries by itself is not late. When it is behind for
longer than it usually takes (`ShardDelays.hedge_delay_us`, T), the first attempt asks all others as though it were down; the second one, after 3 T,
takes those as well for down that did not answer; the third one, after 7 T, asks for all copies. Attempts prefer shards that cannot be held up by the same
thing: first of another rack, then of another region.

A shard that hedges overtake again and again is left to the end of the order for a while, which takes a rewind. What hedges and these rewinds bring is
bounded by `HedgeBudget`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Protocol

from client.read.delivery import Delivery
from client.read.hedge_budget import HedgeBudget
from client.read.metrics import ReadMetrics
from client.read.named_timers import NamedTimers
from client.read.nodeset_lookup import NodesetLookup
from client.read.read_set import ReadPosition, ReadRequest, ReadSet
from client.read.reading_order import NO_ORDER, Order, ReadingOrder
from client.read.sender_state import Sender, SenderStatus
from client.read.shard_delays import KnownDelays
from logdevice_py.config.location import Scope
from logdevice_py.core.entry import parse_header
from logdevice_py.core.ids import PeerId, ShardId, format_shard
from logdevice_py.core.lsn import LSN_INVALID, Lsn
from logdevice_py.core.machine import Outbox
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError, Status
from logdevice_py.core.units import Micros
from logdevice_py.protocol.messages import Records, ShardGap, Start, Started, StartFlags, Stop

_ATTEMPTS_MAX: Final = 3
_HEDGE: Final = "hedge"


class HedgeMessages(Protocol):
    """What takes the answers to hedges of one stream."""

    def on_started(self, message: Started, now: Micros) -> None: ...

    def on_records(self, message: Records, now: Micros) -> None: ...

    def on_gap(self, message: ShardGap, now: Micros) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HedgeContext:
    """What hedged streams of a client have in common."""

    delays: KnownDelays
    budget: HedgeBudget
    open: Callable[[HedgeMessages], int]
    """Gives the hedges of a stream an id; from then on they get their messages."""
    close: Callable[[int], None]
    """They get no more."""


@dataclass(slots=True)
class _Asked:
    """A shard that a hedge was sent to."""

    peer: PeerId
    sent_at: Micros
    next: Lsn
    """It has sent, or said that it does not send, everything below."""
    credit: int
    done: bool = False
    """Nothing more comes of it."""


@dataclass(slots=True)
class _Attempt:
    """One question to several shards."""

    number: int
    first: Lsn
    last: Lsn
    version: int
    began_at: Micros
    """When the wait began that the delays of attempts count from."""
    delay_us: int
    """T."""
    late: frozenset[ShardId]
    """The shards in whose place others are asked."""
    asked: dict[ShardId, _Asked] = field(default_factory=dict)
    lost: set[ShardId] = field(default_factory=set)
    """Shards that were overtaken in it."""
    is_paid_back: bool = False
    """It brought what was spent on it in advance."""

    @property
    def next_at(self) -> Micros:
        """When the next one is due."""
        return Micros(self.began_at + ((2 << self.number) - 1) * self.delay_us)

    @property
    def is_answered(self) -> bool:
        """Nothing more comes of it."""
        return all(asked.done for asked in self.asked.values())


class Hedging:
    """The hedges of one stream.

    Args:
        want_rewind: starts all shards anew, because the order has changed.
        mark: called when something may have become deliverable.
    """

    def __init__(
        self,
        request: ReadRequest,
        position: ReadPosition,
        read_set: ReadSet,
        delivery: Delivery,
        lookup: NodesetLookup,
        timers: NamedTimers,
        order: ReadingOrder,
        context: HedgeContext,
        *,
        outbox: Outbox,
        metrics: ReadMetrics,
        want_rewind: Callable[[], None],
        mark: Callable[[], None],
    ) -> None:
        self._request = request
        self._position = position
        self._read_set = read_set
        self._delivery = delivery
        self._lookup = lookup
        self._timers = timers
        self._order = order
        self._context = context
        self._outbox = outbox
        self._metrics = metrics
        self._want_rewind = want_rewind
        self._mark = mark
        self._id: int | None = None
        """Of the second stream; None: none was needed yet."""
        self._version = 0
        self._seen: dict[ShardId, Lsn] = {}
        """Where each shard stood at the last look."""
        self._behind: dict[ShardId, Micros] = {}
        """Shards that are behind, and since when."""
        self._goal: Lsn = LSN_INVALID
        """What shards had to speak of at the last look."""
        self._owed: dict[ShardId, Lsn] = {}
        """Of shards that were overtaken: the first LSN that others sent in their place and they have not passed."""
        self._attempt: _Attempt | None = None
        self._timer_at = 0
        self._refused: Lsn = LSN_INVALID
        """The last LSN for which there was no hedge because they had cost too much."""
        self._left_to_the_end: set[ShardId] = set()
        """Shards that come last in the order of the last START, and may come back."""

    # What the stream asks

    def awaited(self) -> Lsn:
        """The LSN that shards have to account for next: hedges do not make up for a shard that says nothing."""
        return min(self._owed.values(), default=self._position.next)

    def explain(self) -> str:
        """Who is asked in place of whom at this moment, for people; empty: nobody."""
        attempt = self._attempt
        if attempt is None:
            return ""
        asked = ", ".join(format_shard(shard) for shard, each in sorted(attempt.asked.items()) if not each.done)
        late = ", ".join(map(format_shard, sorted(attempt.late)))
        return f"{asked or 'nobody'} in place of {late} (attempt {attempt.number})"

    def note_round_trip(self, sender: Sender, now: Micros) -> None:
        """A shard answered a START of the stream itself."""
        self._context.delays.of(sender.shard).note_round_trip(now - sender.asked_at)

    def earn(self, entries: int, size: int) -> None:
        """Shards sent so much in the stream itself."""
        self._context.budget.earn(entries, size)

    # Looking

    def look(self, now: Micros) -> None:
        """At the end of each turn, when everything is delivered that can be: see who is late."""
        position, read_set = self._position, self._read_set
        head = position.next
        goal = min(head, self._lookup.released, position.certain_end, position.limit)
        waits = read_set.single_copy and goal == head
        self._note_progress(goal, waits=waits, now=now)
        attempt = self._attempt
        if attempt is not None and head > attempt.last:
            self._end_attempt()
            attempt = None
        if not waits or not self._behind:
            return
        if attempt is None:
            self._begin_when_due(head, now)
        elif attempt.is_answered or now >= attempt.next_at:
            self._go_on(attempt, head, now)
        if (attempt := self._attempt) is not None:
            self._look_again(attempt.next_at, now)

    def _note_progress(self, goal: Lsn, *, waits: bool, now: Micros) -> None:
        delays, behind, seen = self._context.delays, self._behind, self._seen
        before, self._goal = self._goal, goal
        for shard, sender in self._read_set.senders.items():
            at = sender.next_lsn
            if not _may_send(sender, goal):
                behind.pop(shard, None)
            else:
                if at > min(before, goal):
                    since = behind.pop(shard, None)
                    if at > seen.get(shard, at) and delays.is_well(shard, now):
                        delays.of(shard).note_answer(0 if since is None else now - since)
                if at <= goal and waits and shard not in behind:
                    behind[shard] = now
            seen[shard] = at
            if at > self._owed.get(shard, at):
                del self._owed[shard]

    def _begin_when_due(self, head: Lsn, now: Micros) -> None:
        """Ask others when all are late that may be the one to send; until then, look again when they will be.

        Whose the entry is, nobody knows who lacks it. Of the shards that are behind, those of the first tiers are the likely ones. While one of them is in
        time it may be its own: hedges in place of one that is slow would be spent on what others send a moment later.
        """
        delays, settings = self._context.delays, self._context.delays.settings
        tiers = dict(self._read_set.order)
        first = min(tiers.get(shard, 0) for shard in self._behind)
        due = {
            shard: since + delays.of(shard).hedge_delay_us(settings)
            for shard, since in self._behind.items()
            if tiers.get(shard, 0) == first
        }
        last = max(due, key=lambda shard: (due[shard], shard))
        if now < due[last]:
            self._look_again(due[last], now)
            return
        delay = delays.of(last).hedge_delay_us(settings)
        self._ask(1, head, Micros(now - delay), delay, now, None)

    def _go_on(self, attempt: _Attempt, head: Lsn, now: Micros) -> None:
        """An attempt brought nothing more: the next one, or the first one for what follows what it brought."""
        if head > attempt.first:
            # who is asked has as long as in any first attempt: the time that the one before took is over
            self._ask(1, head, Micros(now - attempt.delay_us), attempt.delay_us, now, attempt)
        elif attempt.number < _ATTEMPTS_MAX:
            self._ask(attempt.number + 1, head, attempt.began_at, attempt.delay_us, now, attempt)

    def _look_again(self, at: int, now: Micros) -> None:
        """A timer that is due earlier stays: it only looks. It is not moved in each turn."""
        if at > now and (_HEDGE not in self._timers or at < self._timer_at):
            self._timer_at = at
            self._timers.set(_HEDGE, at)

    # Asking

    def _ask(
        self, number: int, head: Lsn, began_at: Micros, delay_us: int, now: Micros, before: _Attempt | None
    ) -> None:
        """Send an attempt, or the last one where nobody is left to be asked in it."""
        budget = self._context.budget
        self._end_attempt()
        if not budget.allows:
            self._refuse(head, delay_us, now)
            return
        credit = min(budget.bytes, self._read_set.room_for_hedges)
        if not credit:
            return  # the application takes nothing, so nobody waits for what is late
        late = self._late(number, before, now)
        senders = self._others(late)
        if not senders and number < _ATTEMPTS_MAX:
            number, late = _ATTEMPTS_MAX, self._late(_ATTEMPTS_MAX, before, now)
            senders = self._others(late)
        if not senders:
            return
        self._version += 1
        last = self._last(head, budget.entries)
        attempt = self._attempt = _Attempt(number, head, last, self._version, began_at, delay_us, late)
        asks_all = number == _ATTEMPTS_MAX
        flags = StartFlags.HEDGE if asks_all else StartFlags.HEDGE | StartFlags.SINGLE_COPY
        asked = {sender.shard for sender in senders}
        others: list[int] = [] if asks_all else [shard for shard in self._read_set.senders if shard not in asked]
        order = NO_ORDER if asks_all else self._order_of(number, late, now)
        if self._id is None:
            self._id = self._context.open(self)
        hit("read_hedge_sent")
        self._metrics.hedges_sent += 1
        budget.spend(1, 0)
        for sender in senders:
            attempt.asked[sender.shard] = _Asked(sender.peer, now, head, credit)
            self._outbox.send(
                sender.peer,
                Start(
                    log=self._request.log,
                    stream=self._id,
                    shard=sender.shard,
                    generation=sender.generation,
                    first=head,
                    until=last,
                    window_high=last,
                    bytes_credit=credit,
                    flags=int(flags),
                    filter_version=self._version,
                    replication=self._read_set.replication,
                    known_down=others,
                    order=order,
                ),
            )

    def _refuse(self, head: Lsn, delay_us: int, now: Micros) -> None:
        """There is no hedge, because earlier ones have cost too much. When one shard alone is late, and much, that counts as when it is overtaken: otherwise a
        slow shard would not be found out as long as there is nothing left to spend."""
        if self._refused != head:
            self._refused = head
            self._metrics.hedges_refused += 1
        late = self._late(1, None, now)
        if len(late) == 1:
            (shard,) = late
            if now >= self._behind[shard] + 3 * delay_us:
                self._note_slow(shard, delay_us, now)
            else:
                self._look_again(self._behind[shard] + 3 * delay_us, now)

    def _others(self, late: frozenset[ShardId]) -> list[Sender]:
        """Those that may be asked in place of some."""
        return [
            sender
            for sender in self._read_set.senders.values()
            if sender.status is SenderStatus.READING and not sender.excused and sender.shard not in late
        ]

    def _late(self, number: int, before: _Attempt | None, now: Micros) -> frozenset[ShardId]:
        """In whose place others are asked: at first of those that took longer than usual, then of all that are behind, and of those that did not answer."""
        delays = self._context.delays
        late = {
            shard
            for shard, since in self._behind.items()
            if number > 1 or now >= since + delays.of(shard).hedge_delay_us(delays.settings)
        }
        if before is not None and 1 < number < _ATTEMPTS_MAX:
            late |= {shard for shard, asked in before.asked.items() if not asked.done}
        return frozenset(late)

    def _last(self, head: Lsn, entries: int) -> Lsn:
        """Where a hedge ends: before what is there already, or may not be there yet."""
        position, buffered = self._position, self._delivery.buffer.first()
        last = min(head + entries - 1, self._lookup.released, position.certain_end, position.limit)
        return Lsn(last if buffered is None else min(last, buffered - 1))

    def _order_of(self, number: int, late: Iterable[ShardId], now: Micros) -> Order:
        if not self._read_set.may_order(now):
            return NO_ORDER
        scope = Scope.RACK if number == 1 else Scope.REGION
        return self._order.apart_from(self._read_set.senders, tuple(late), scope, now)

    def _end_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            for shard, asked in attempt.asked.items():
                if not asked.done:
                    self._stop(shard, asked)

    def _stop(self, shard: ShardId, asked: _Asked) -> None:
        assert self._id is not None
        self._outbox.send(asked.peer, Stop(log=self._request.log, stream=self._id, shard=shard))

    def _dismiss(self, shard: ShardId, asked: _Asked) -> None:
        """Nothing more is wanted of a shard in this attempt: it would keep its stream until the connection ends."""
        asked.done = True
        self._stop(shard, asked)

    # Answers: only entries count

    def _asked(self, message: Started | Records | ShardGap) -> _Asked | None:
        attempt = self._attempt
        asked = None if attempt is None else attempt.asked.get(message.shard)
        if attempt is None or asked is None or asked.done or message.filter_version != attempt.version:
            self._metrics.stale_messages += 1
            return None
        self._mark()
        return asked

    def on_started(self, message: Started, now: Micros) -> None:
        """A shard took a hedge, or refused it."""
        asked = self._asked(message)
        if asked is not None:
            if message.status is Status.OK:
                self._context.delays.of(message.shard).note_round_trip(now - asked.sent_at)
            else:
                asked.done = True

    def on_gap(self, message: ShardGap, now: Micros) -> None:
        """A shard has nothing: the others are asked for it sooner, and that is all."""
        asked = self._asked(message)
        attempt = self._attempt
        if asked is not None and attempt is not None:
            asked.next = Lsn(max(asked.next, message.last + 1))
            asked.done = asked.next > attempt.last

    def on_records(self, message: Records, now: Micros) -> None:
        """A shard sent entries that another one owes."""
        asked = self._asked(message)
        attempt = self._attempt
        images, at, size = message.images, 0, len(message.images)
        if asked is None or attempt is None:
            self._context.budget.spend(len(message.entries), size)  # too late to be of use, and sent all the same
            return
        metrics = self._metrics
        metrics.entries_received += len(message.entries)
        metrics.bytes_received += size
        metrics.hedge_entries += len(message.entries)
        metrics.hedge_bytes += size
        # the first entry was paid for when the hedge was sent
        self._context.budget.spend(len(message.entries) - (not attempt.is_paid_back), size)
        attempt.is_paid_back = True
        for lsn, length in message.entries:
            end = at + length
            if not (asked.next <= lsn <= attempt.last and end <= size and asked.credit > 0):
                hit("read_unasked_hedge")
                metrics.protocol_violations += 1
                self._dismiss(message.shard, asked)
                return
            image = images if length == size else images[at:end]
            at = end
            asked.credit -= length
            asked.next = Lsn(lsn + 1)
            self._take(attempt, message.shard, Lsn(lsn), image, now)
            if self._attempt is not attempt:
                return
        if asked.next > attempt.last:
            asked.done = True
        elif asked.credit <= 0 and not asked.done:
            self._dismiss(message.shard, asked)  # it waits for credit, and gets none: what follows is asked for anew

    def _take(self, attempt: _Attempt, shard: ShardId, lsn: Lsn, image: bytes, now: Micros) -> None:
        sender = self._read_set.senders.get(shard)
        if lsn < self._position.next or sender is None:
            self._metrics.duplicate_copies += 1
            return
        is_new = self._delivery.buffer.get(lsn) is None
        try:
            self._delivery.take_copy(sender, lsn, image)
        except CorruptEntryError:
            hit("read_corrupt_hedge")
            self._metrics.corrupt_copies += 1
            self._dismiss(shard, attempt.asked[shard])  # the next ones are asked at once
            return
        owner = self._read_set.first_to_send(parse_header(image, alone=True).copyset) if is_new else None
        if owner in attempt.late and self._read_set.senders[owner].next_lsn <= lsn:
            self._note_overtaken(attempt, owner, lsn, now)

    def _note_overtaken(self, attempt: _Attempt, owner: ShardId, lsn: Lsn, now: Micros) -> None:
        """Another shard sent an entry before the shard that should have sent it."""
        self._owed.setdefault(owner, lsn)
        if owner in attempt.lost:
            return
        if not attempt.lost:
            hit("read_hedge_won")
            self._metrics.hedges_won += 1
        attempt.lost.add(owner)
        self._note_slow(owner, attempt.delay_us, now)

    def _note_slow(self, shard: ShardId, delay_us: int, now: Micros) -> None:
        delays = self._context.delays
        delays.of(shard).note_lost(now, delay_us)
        if delays.is_slow(shard, self._read_set.senders, now):
            self._leave_to_the_end(shard, now)
        elif not delays.is_well(shard, now) and shard not in self._left_to_the_end:
            self._begin_anew()  # another stream has found that out

    # Slow shards

    def _leave_to_the_end(self, shard: ShardId, now: Micros) -> None:
        """Others send first, unless most of them are slow: then there is nobody to do better."""
        delays, senders = self._context.delays, self._read_set.senders
        slow = sum(not delays.is_well(other, now) for other in senders)
        if not self._read_set.may_order(now) or 2 * (slow + 1) > len(senders):
            return
        if not self._context.budget.allows_rewinds:
            return
        self._metrics.shards_left_to_the_end += 1
        delays.leave_to_the_end(shard, now)
        self._begin_anew()

    def let_back(self, now: Micros) -> None:
        """At the end of each turn: shards that were left to the end long enough come back into their places."""
        delays = self._context.delays
        if not self._left_to_the_end:
            return
        # where everything that is released is delivered, nothing comes again: a reader that reads little would earn a rewind for days
        is_at_tail = self._lookup.released < self._position.next
        if not is_at_tail and not self._context.budget.allows_rewinds:
            return
        if any(delays.is_well(shard, now) for shard in self._left_to_the_end):
            hit("read_shard_let_back")
            self._left_to_the_end.clear()
            self._begin_anew()

    def _begin_anew(self) -> None:
        """The order has changed: what is there and not delivered comes again, which counts as the cost of hedges."""
        self._context.budget.spend(len(self._delivery.buffer), self._delivery.buffer.image_bytes)
        self._want_rewind()

    # The stream begins anew, or ends

    def restarted(self, now: Micros) -> None:
        """All shards were started anew, with the order that holds now."""
        delays = self._context.delays
        self._left_to_the_end = {shard for shard in self._read_set.senders if not delays.is_well(shard, now)}
        if self._left_to_the_end:
            back = min(delays.of(shard).slow_until for shard in self._left_to_the_end)
            self._timers.set("shard let back", max(back, now + 1))

    def forget(self) -> None:
        """All shards are about to be started anew: nothing is owed of what they were asked for, and no hedge is needed."""
        self._end_attempt()
        self._behind.clear()
        self._owed.clear()
        self._seen.clear()

    def close(self) -> None:
        """The stream has ended."""
        self.forget()
        if self._id is not None:
            self._context.close(self._id)
            self._id = None

    def on_peer_down(self, peer: PeerId) -> None:
        """The connection to a node broke: nothing more comes of what it was asked."""
        if self._attempt is not None:
            for asked in self._attempt.asked.values():
                if asked.peer == peer and not asked.done:
                    asked.done = True
                    self._mark()


def _may_send(sender: Sender, lsn: Lsn) -> bool:
    """Whether a shard owes what it has to say of an LSN."""
    return (
        not sender.excused
        and sender.status in (SenderStatus.STARTING, SenderStatus.READING)
        and (sender.next_lsn > lsn or (sender.has_credit and sender.window_high >= lsn))
    )
