"""What silence proves: decides about an LSN for which nobody sent an entry. The stream does what is decided.

It is lost when the shards' statements prove that nothing can be had, all of them were asked to send all that they have (not only what
single-copy delivery makes theirs) however far away the next entry may be, and the others had time to speak.

A stream may also begin behind the bridge of an epoch, where nothing ever was. So before the first LSN is called lost, the shards are asked
for what lies before it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from client.read.decoding import verify_image
from client.read.gap_detection import GapDetector, GapVerdict
from client.read.items import DataLoss
from client.read.named_timers import NamedTimers
from client.read.read_set import ReadPosition, ReadRequest, ReadSet
from client.read.sender_state import Sender
from client.read.settings import ReadSettings
from logdevice_py.core.lsn import LSN_INVALID, Lsn, compose_lsn, epoch_of
from logdevice_py.core.marks import hit
from logdevice_py.core.status import CorruptEntryError
from logdevice_py.core.units import Micros


@dataclass(frozen=True, slots=True)
class Lost:
    """Everything up to `last` is lost."""

    last: Lsn
    loss: DataLoss


@dataclass(frozen=True, slots=True)
class LookBack:
    """Nothing is certain before the shards have told what lies from `first` on, before the first LSN of the stream."""

    first: Lsn


class Ask(enum.Enum):
    """Nothing is certain before the shards are asked for more."""

    EVERYTHING = enum.auto()  # all that they have, not only what single-copy delivery makes theirs
    FURTHER = enum.auto()  # the same, however far away the next entry may be


class MissingEntries:
    """Finds out what is lost, and what lies before the first LSN of a stream."""

    def __init__(
        self,
        request: ReadRequest,
        position: ReadPosition,
        read_set: ReadSet,
        timers: NamedTimers,
        settings: ReadSettings,
    ) -> None:
        self._request = request
        self._position = position
        self._read_set = read_set
        self._timers = timers
        self._settings = settings
        self._grace: tuple[Lsn, Micros] | None = None
        self._entry_before = False
        self.begins_behind_bridge = False
        """A bridge lies before the first LSN, in its epoch."""

    def forget(self) -> None:
        """The shards begin anew: what they said does not count any more."""
        self._grace = None

    def note_before(self, sender: Sender, lsn: Lsn, image: bytes) -> None:
        """An entry before the first LSN: after a bridge its epoch holds nothing, after any other entry no bridge lies before it."""
        if epoch_of(lsn) == epoch_of(self._request.first):
            try:
                header = verify_image(self._request.log, lsn, image)
            except CorruptEntryError:
                self.note_unable(sender, lsn, lsn)
                return
            self._entry_before = True
            self.begins_behind_bridge = self.begins_behind_bridge or header.is_bridge

    def note_unable(self, sender: Sender, first: Lsn, last: Lsn) -> None:
        """A shard lost, or cannot read, what it may have had there. Before the first LSN of the stream that may have been the bridge of the epoch: then that it
        has nothing at the first LSN does not count either."""
        if self._position.look_back:
            last = Lsn(max(last, self._position.next))
        sender.note_unable(first, last)

    def judge(
        self,
        lsn: Lsn,
        detector: GapDetector,
        *,
        released: Lsn,
        is_closed: bool,
        rewinds: bool,
        buffered: Lsn | None,
        now: Micros,
    ) -> Lost | LookBack | Ask | None:
        """Up to where everything from `lsn` on is lost, or what has to be known first; None: it is to be waited for what shards say.

        Args:
            lsn: the next LSN to deliver; nobody sent an entry for it.
            detector: of the present interval.
            released: everything up to here is released.
            is_closed: a later interval exists.
            rewinds: the shards are about to be started anew: what they said is no answer to what they will be asked.
            buffered: the first LSN for which an entry is there.
            now: the time.
        """
        read_set, position = self._read_set, self._position
        senders = read_set.senders.values()
        passed = [sender.next_lsn for sender in senders if sender.next_lsn > lsn]
        if not passed:
            return self._lost_nodeset(lsn, position.certain_end if is_closed else released)
        if released < lsn or rewinds:
            return None
        if read_set.single_copy:
            if all(sender.next_lsn > lsn for sender in read_set.owing()):
                hit("read_single_copy_owed")
                return Ask.EVERYTHING
            return None
        verdict = detector.verdict(lsn, senders)
        if verdict is GapVerdict.WAIT:
            return None
        if not position.wide:
            if self._grace_is_over(lsn, self._settings.rewind_interval_us, now):
                # The next entry may lie beyond the window, and what was said so far was said to another question.
                return Ask.FURTHER
            return None
        if verdict is GapVerdict.GRACE and not self._grace_is_over(lsn, self._settings.gap_grace_period_us, now):
            return None
        before = self._further_back()
        if before is not None:
            hit("read_looks_back_for_bridge")
            return LookBack(before)
        last = min(min(passed) - 1, position.certain_end)
        if buffered is not None:
            last = min(last, buffered - 1)
        unable = [first for sender in senders if (first := sender.unable_after(lsn))]
        if unable and min(unable) <= last:
            last = min(unable) - 1
            if self._grace is not None and self._grace[0] == lsn:
                self._grace = Lsn(last + 1), self._grace[1]  # the silent ones have had their time
        return Lost(Lsn(last), DataLoss(detector.authoritative, read_set.unable_to_tell(lsn)))

    def _lost_nodeset(self, lsn: Lsn, last: Lsn) -> Lost | None:
        """No shard of the nodeset has anything left to say: lost is all that it had, or that was once heard of."""
        if last < lsn or not all(sender.lost for sender in self._read_set.senders.values()):
            return None
        hit("read_nodeset_lost")
        return Lost(last, DataLoss(False, self._read_set.unable_to_tell(lsn)))

    def _further_back(self) -> Lsn | None:
        """Nothing was found from the first LSN on: perhaps its epoch had ended before it. From where on that remains to be found out."""
        look_back, first = self._position.look_back, self._request.first
        begin = compose_lsn(epoch_of(first), 1)
        if look_back == LSN_INVALID or self._entry_before or look_back <= begin:
            return None
        return Lsn(max(begin, first - 64 * (first - look_back)))

    def _grace_is_over(self, lsn: Lsn, period: int, now: Micros) -> bool:
        if self._grace is None or self._grace[0] != lsn:
            self._grace = (lsn, Micros(now + period))
            self._timers.set("grace", self._grace[1])
        return now >= self._grace[1]
