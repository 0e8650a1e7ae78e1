"""Judges what was read from a log against what was appended to it: nothing lost, nothing twice, nothing changed, in order."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.ldbench.payloads import PayloadPool, writer_and_number


class WrongResultError(Exception):
    """The system lost, repeated, changed, invented or reordered records: the measurement is void."""


class WriterLedger:
    """What became of the records of one writer, numbered from 0 in the order in which they were handed over."""

    def __init__(self, pool: PayloadPool) -> None:
        self.pool = pool
        self.sent = 0
        self.acknowledged = 0
        """How many, not up to which."""
        self.uncertain: set[int] = set()
        """Numbers of records that were handed over and not acknowledged: they may be in the log."""

    def take(self, count: int) -> tuple[int, list[bytes]]:
        """The number of the first one, and the payloads of the next `count` records, which count as handed over."""
        first = self.sent
        self.sent += count
        return first, self.pool.slice(first, count)

    def on_acknowledged(self, count: int) -> None:
        """So many of those handed over are acknowledged."""
        self.acknowledged += count

    def on_failed(self, first: int, count: int) -> None:
        """[first, first + count) were not acknowledged."""
        self.uncertain.update(range(first, first + count))


class _WriterView:
    """What a reader saw of one writer."""

    __slots__ = ("gaps", "ledger", "next")

    def __init__(self, ledger: WriterLedger) -> None:
        self.ledger = ledger
        self.next = 0
        """One more than the greatest number that was seen."""
        self.gaps: set[int] = set()
        """Numbers below `next` that were not seen."""

    def missing(self) -> int:
        ledger = self.ledger
        unseen = len(self.gaps - ledger.uncertain)
        below = ledger.sent - self.next
        if below:
            below -= sum(1 for number in ledger.uncertain if number >= self.next)
        return unseen + below


class LogVerifier:
    """One reader's judgement of one log. Feed it everything that is read from the log's beginning, in order.

    A reader may be ahead of the acknowledgements: the ledgers' counts are looked at by `finished` and `finish` only.
    """

    def __init__(self, ledgers: Sequence[WriterLedger], *, ordered: bool) -> None:
        """
        Args:
            ledgers: of all writers to the log, with different pools.
            ordered: each writer's records must be in the order in which they were handed over.
        """
        self._views = {ledger.pool.writer: _WriterView(ledger) for ledger in ledgers}
        assert len(self._views) == len(ledgers), "writers need numbers of their own"
        self._ordered = ordered
        self.records = 0
        """Read so far."""
        self.out_of_order = 0

    def feed(self, records: Sequence[bytes]) -> None:
        """Records, in the order of the log.

        Raises:
            WrongResultError: one of them must not be there.
        """
        if len(self._views) == 1:
            # one writer whose records come in order: compared as a whole, which costs nothing beside reading them
            (view,) = self._views.values()
            expected = view.ledger.pool.slice(view.next, len(records))
            if view.next + len(records) <= view.ledger.sent and expected == (
                records if type(records) is list else list(records)
            ):
                view.next += len(records)
                self.records += len(records)
                return
        for record in records:
            self._feed_one(record)

    def _feed_one(self, record: bytes) -> None:
        try:
            writer, number = writer_and_number(record)
        except ValueError as error:
            raise WrongResultError(str(error)) from None
        view = self._views.get(writer)
        if view is None:
            raise WrongResultError(f"a record of the unknown writer {writer} was read")
        pool = view.ledger.pool
        if number >= len(pool) or record != pool.payloads[number]:
            raise WrongResultError(f"a record of writer {writer} is not what was appended: {record[:48]!r}...")
        half = len(pool) // 2
        at = view.next + (number - view.next + half) % len(pool) - half
        if at >= view.ledger.sent:
            raise WrongResultError(f"record {at} of writer {writer} was read before it was appended")
        if at >= view.next:
            view.gaps.update(range(view.next, at))
            view.next = at + 1
        elif at in view.gaps:
            view.gaps.remove(at)
            self.out_of_order += 1
            if self._ordered and at not in view.ledger.uncertain:
                raise WrongResultError(f"record {at} of writer {writer} lies behind record {view.next - 1}")
        else:
            raise WrongResultError(f"record {at} of writer {writer} is in the log twice")
        self.records += 1

    @property
    def missing(self) -> int:
        """Records that were acknowledged or are still on their way, and were not read."""
        return sum(view.missing() for view in self._views.values())

    def complete_up_to(self, records: int) -> bool:
        """With one writer: its first `records` were read, but for those that were not acknowledged."""
        (view,) = self._views.values()
        return view.next >= records and not view.gaps - view.ledger.uncertain

    def finished(self) -> bool:
        """Everything that has to be there was read. Asked after each batch, so the usual cases are answered at once."""
        for view in self._views.values():
            if view.gaps or view.ledger.uncertain:
                return self.missing == 0
            if view.next < view.ledger.sent:
                return False
        return True

    def finish(self) -> int:
        """The judgement at the end; how many records were read.

        Raises:
            WrongResultError: acknowledged records are missing.
        """
        if self.missing:
            first = min(
                min(view.gaps - view.ledger.uncertain, default=view.next)
                for view in self._views.values()
                if view.missing()
            )
            raise WrongResultError(f"{self.missing} acknowledged records could not be read, the first is {first}")
        return self.records
