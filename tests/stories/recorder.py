"""Records what happens in a simulated cluster, and writes it down a line an event."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from epoch_store.interface import (
    GetLastCleanEpoch,
    LastCleanEpoch,
    Operation,
    ReadMetadata,
    Result,
    SetLastCleanEpoch,
    UpdateMetadata,
)
from logdevice_py.core.ids import LogId, ShardId, format_shard, node_of
from logdevice_py.core.status import Status
from logdevice_py.core.units import MILLISECOND
from logdevice_py.metadata.epoch_metadata import EpochMetaData
from logdevice_py.simulation.trace import Trace
from storage_node.log_store.interface import Completion, WriteShard, Written
from tests.stories.words import describe, is_answer, log_said, lsn_said, metadata_said, name_of, write_said

USUAL: Final = frozenset(
    {"HELLO", "ACK", "GOSSIP", "CLUSTER_STATE", "SHARD_STATUS", "TRIM_POINTS", "CHECK_SEAL", "SEAL_CHECKED", "WINDOW"}
)
"""Messages that most stories leave out."""
_LATE: Final = 10 * MILLISECOND
"""A message that takes longer than this is worth a word."""
_NOTES: Final = {
    "start": "its process starts",
    "serves": "serves",
    "process dies": "its process is killed",
    "machine dies": "its machine loses power",
    "paused": "its process stops, as by SIGSTOP",
    "resumed": "its process goes on",
    "wiped": "gets an empty disk",
}
"""What the simulator notes, and how a story says it."""
_PASSED_OVER: Final = frozenset({"connected", "epoch store", "refused", "no connection", "lost"})
"""What it notes besides, and no story says."""
_WIDTH_MAX: Final = 30
"""Of the left column; what is longer moves the text of its line."""


@dataclass(slots=True)
class StoryEvent:
    """One event of a story."""

    at: int
    sources: list[str]
    """Who did it."""
    targets: list[str]
    """For whom a message is; empty: it is none."""
    text: str
    message: Any = None
    arrival: int | None = None
    """When the receiver took it; None: never."""
    disk: bool = False
    """It is what a shard does on its disk."""

    @property
    def who(self) -> str:
        """The left column."""
        left = " ".join(sorted(self.sources))
        return f"{left} -> {' '.join(sorted(self.targets))}" if self.targets else left


@dataclass(slots=True)
class Focus:
    """What a story shows."""

    leaves_out: frozenset[str] = frozenset()
    """Further messages that it does not show."""
    shows: frozenset[str] = frozenset()
    """Messages that it shows, though most stories do not."""
    disks: bool = False
    """It shows what shards write."""
    where: Callable[[StoryEvent], bool] = field(default=lambda event: True)
    """What else must be so of an event that it shows."""

    def takes(self, event: StoryEvent) -> bool:
        """Whether the story shows an event."""
        if event.message is not None:
            name = name_of(event.message)
            if name in self.leaves_out or (name in USUAL and name not in self.shows):
                return False
        if event.disk and not self.disks:
            return False
        return self.where(event)


class Recorder(Trace):
    """The trace of a story: keeps what happens from `begin` to `end`."""

    __slots__ = ("_began", "_ended", "_known", "_open", "_peer_name", "_writes", "events")

    def __init__(self) -> None:
        super().__init__(keep=1)
        self.on_sent = self._sent
        self.events: list[StoryEvent] = []
        self._began: int | None = None
        self._ended = False
        self._open: dict[tuple[str, str], list[StoryEvent]] = {}
        """Messages that are under way, by sender and receiver."""
        self._writes: dict[tuple[int, ShardId], str] = {}
        """Of which the sync is to come."""
        self._known: dict[LogId, EpochMetaData] = {}
        """What the epoch store answered last."""
        self._peer_name: Callable[[str, int], str] = lambda who, peer: f"N{peer}"

    def begin(self, at: int, peer_name: Callable[[str, int], str]) -> None:
        """Keep what happens from here on.

        Args:
            peer_name: how somebody is called whom a process knows by a peer id.
        """
        self._began, self._peer_name = at, peer_name
        self.events.clear()
        self._open.clear()

    def end(self) -> None:
        """Keep nothing more; when messages under way arrive is still noted."""
        self._ended = True

    def say(self, at: int, who: str, text: str, *, disk: bool = False) -> None:
        """Somebody does something that is no message."""
        if self._began is not None and not self._ended:
            self.events.append(StoryEvent(at, [who], [], text, disk=disk))

    def note(self, at: int, who: str, what: str, detail: Any = "", data: bytes = b"") -> None:
        super().note(at, who, what, detail, data)
        if what in _NOTES:
            self.say(at, who, _NOTES[what])
        elif what not in _PASSED_OVER:
            self.say(at, who, f"{what}: {detail}")

    def _sent(self, at: int, who: str, to: int, message: Any) -> None:
        if self._began is None or self._ended:
            return
        peer = self._peer_name(who, to)
        source, target = _ends(message, who, peer)
        event = StoryEvent(at, [source], [target], describe(message), message)
        if peer == who:
            event.arrival = at
        else:
            self._open.setdefault((who, peer), []).append(event)
        self.events.append(event)

    def introduced(self, at: int, who: str, other: str, message: Any, came: bool) -> None:
        """See `Trace.on_introduction`.

        Args:
            other: who is at the other end.
        """
        if came:
            self._arrived(at, self._open.get((other, who), []), message)
        elif self._began is not None and not self._ended:
            event = StoryEvent(at, [who], [other], describe(message), message)
            self._open.setdefault((who, other), []).append(event)
            self.events.append(event)

    def received(self, at: int, who: str, peer: int, message: Any) -> None:
        super().received(at, who, peer, message)
        self._arrived(at, self._open.get((self._peer_name(who, peer), who), []), message)

    def _arrived(self, at: int, under_way: list[StoryEvent], message: Any) -> None:
        for index, event in enumerate(under_way):
            if event.message == message:
                event.arrival = at
                del under_way[index]
                return

    # Disks

    def effects(self, at: int, effects: Sequence[Any]) -> None:
        """See `SimMachines.watch`: what shards write."""
        for effect in effects:
            if isinstance(effect, WriteShard):
                text = write_said(effect.batch, sync=effect.sync)
                if text:
                    if effect.sync:
                        self._writes[effect.token, effect.shard] = text
                    self.say(at, format_shard(effect.shard), f"disk     {text}", disk=True)

    def done(self, at: int, done: Sequence[Completion]) -> None:
        """See `SimMachines.watch_done`: what is written, and synced where that was asked for."""
        for each in done:
            if isinstance(each, Written) and self._writes.pop((each.token, each.shard), ""):
                outcome = "synced" if each.status is Status.OK else each.status.name
                self.say(at, format_shard(each.shard), f"disk     {outcome}", disk=True)

    # The epoch store

    def asked_epoch_store(self, at: int, who: str, operations: Sequence[Operation], results: Sequence[Result]) -> None:
        """See `SimMachines.watch_epoch_store`."""
        for operation, result in zip(operations, results, strict=True):
            text = self._said(operation, result)
            if text:
                self.say(at, f"{who} <- epoch store", text)

    def _said(self, operation: Operation, result: Result) -> str:
        status = "" if result.status is Status.OK else f" {result.status.name}"
        value = result.value
        if isinstance(operation, UpdateMetadata | ReadMetadata) and isinstance(value, EpochMetaData):
            before = self._known.get(operation.log)
            self._known[operation.log] = value
            if isinstance(operation, ReadMetadata):
                return f"{log_said(operation.log)}{status}: the latest epoch is {value.given_epoch}, N{value.writer}'s"
            said = []
            if before is None or before.epoch != value.epoch:
                said.append(f"epoch {value.given_epoch} is N{value.writer}'s")
            if before is None or before.history != value.history:
                said.append(metadata_said(value))
            if before is not None and before.written != value.written:
                said.append("written: the nodeset is in the metadata log" if value.written else "not written yet")
            return f"{log_said(operation.log)}{status}: " + "; ".join(said) if said or status else ""
        if isinstance(operation, SetLastCleanEpoch | GetLastCleanEpoch) and isinstance(value, LastCleanEpoch):
            if isinstance(operation, GetLastCleanEpoch):
                return f"{log_said(operation.log)}{status}: last clean epoch {value.epoch}"
            tail = "" if value.tail is None else f", tail {lsn_said(value.tail.lsn)}"
            return f"{log_said(operation.log)}{status}: last clean epoch is {value.epoch} from here on{tail}"
        return ""

    # What came of it

    def lines(self, focus: Focus) -> list[str]:
        """The story, a line an event."""
        assert self._began is not None
        shown = _joined([each for each in self.events if focus.takes(each)])
        width = max((len(each.who) for each in shown if len(each.who) <= _WIDTH_MAX), default=0)
        digits = max((len(self._time(each.at)) for each in shown), default=0)
        lines = []
        for each in shown:
            mark = ""
            if each.targets and each.arrival is None:
                mark = "   (never arrives)"
            elif each.arrival is not None and each.arrival - each.at > _LATE:
                mark = f"   (arrives at {self._time(each.arrival)})"
            lines.append(f"{self._time(each.at):>{digits}}  {each.who:<{width}}  {each.text}{mark}".rstrip())
        return lines

    def _time(self, at: int) -> str:
        assert self._began is not None
        return f"{(at - self._began) / 1000:.1f} ms"


def _ends(message: Any, who: str, peer: str) -> tuple[str, str]:
    """Sender and receiver; the shard in place of its node where the message is from or for one."""
    shard = getattr(message, "shard", None)
    if not isinstance(shard, int):
        return who, peer
    named, node = format_shard(ShardId(shard)), f"N{node_of(ShardId(shard))}"
    if node == who and (node != peer or is_answer(message)):
        return named, peer
    return (who, named) if node == peer else (who, peer)


def _joined(events: list[StoryEvent]) -> list[StoryEvent]:
    """Messages that say the same at the same time become one line: first those from one sender, then those to one receiver."""
    for by_sender in (True, False):
        joined: list[StoryEvent] = []
        found: dict[Any, StoryEvent] = {}
        for each in events:
            fixed, varied = (each.sources, each.targets) if by_sender else (each.targets, each.sources)
            late = each.arrival if each.arrival is None or each.arrival - each.at > _LATE else 0
            key = (each.at, tuple(fixed), each.text, late)
            first = found.get(key) if each.targets or (each.disk and not by_sender) else None
            if first is None:
                copy = replace(each, sources=list(each.sources), targets=list(each.targets))
                joined.append(copy)
                found[key] = copy
            else:
                into = first.targets if by_sender else first.sources
                into += [name for name in varied if name not in into]
        events = joined
    return events
