"""What must hold of an index log, worked out from its raw logs and from the commands of its manifest alone, without the code that deals, merges and reads.

1. Equal versions of the manifest are equal states, in all processes.
2. The pages of a reader, folded, are what the raw logs come to at the moment when it began: with all that was acknowledged before, without what was dropped.
3. A page token says the same at every process, and expires only when its state was forgotten, or when raw logs that it names were replaced, those after them as well, and both are dealt.
4. Ranges of a raw log are dealt one behind the other, so a modification is in one container.
5. A job that was ended commits nothing.
6. A document's modifications are in an order in which they were written, and none is there twice.
7. Once nothing is under way, exactly those files are in the store that the manifest counts on.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from google_crc32c import value as crc32c

from client.replica.applied_state import StateKind
from client.replica.commands import StateVersion
from indexlog.manifest.commands import (
    Deal,
    DropIndex,
    EndJob,
    Forget,
    ManifestCommand,
    Replace,
    decode_manifest_command,
)
from indexlog.manifest.state import KIND_NAME, ManifestState
from indexlog.records import LogRecord, Modification, fold
from logdevice_py.core.units import Timestamp


@dataclass(slots=True)
class WrittenStep:
    """A modification that somebody wrote. Its timestamp is its number."""

    writer: int
    record: LogRecord
    began: int
    """In the order of all events that the history counts."""
    acknowledged: int | None = None


@dataclass(frozen=True, slots=True, order=True)
class RawPlace:
    """Where a modification is; ordered as those of a document are."""

    generation: int
    log: int
    lsn: int
    offset: int


@dataclass(frozen=True, slots=True)
class Boundary:
    """Up to where raw logs count: everything of generations before `generation`, and of logs that are named what is not behind their LSN."""

    generation: int
    lsns: Mapping[int, int]

    def holds(self, place: RawPlace) -> bool:
        """Whether the place is within it."""
        return place.generation < self.generation or place.lsn <= self.lsns.get(place.log, 0)


@dataclass(slots=True)
class ReadIndex:
    """What somebody who read all pages of an index found."""

    index: str
    began: int
    serial: int
    boundary: Boundary
    found: dict[str, Modification]


@dataclass(frozen=True, slots=True)
class ExpiredToken:
    """A page token, of the moment that was being read, that was not served."""

    serial: int | None
    """Of its state; None: it is of what was written since another moment, which raw logs hold."""
    logs: tuple[int, ...]
    """Raw logs that it names."""
    undealt: int
    """The oldest generation that was not dealt whole then."""


@dataclass(slots=True)
class IndexDrop:
    """A drop of which somebody was told that it is done."""

    index: str
    began: int
    ended: int


@dataclass(slots=True)
class IndexLogHistory:
    """All that happened to one index log."""

    events: int = 0
    written: dict[int, WrittenStep] = field(default_factory=dict)
    """By number."""
    reads: list[ReadIndex] = field(default_factory=list)
    expired: list[ExpiredToken] = field(default_factory=list)
    drops: list[IndexDrop] = field(default_factory=list)
    commands: dict[StateVersion, ManifestCommand] = field(default_factory=dict)
    """That were applied."""
    told: Counter[str] = field(default_factory=Counter)
    """What processes came to."""
    generations: dict[int, int] = field(default_factory=dict)
    """Of each raw log."""
    undealt: int = 0
    """The oldest generation that is not dealt whole."""
    _states: dict[StateVersion, int] = field(default_factory=dict)
    _cuts: dict[StateVersion, tuple[int, str, Boundary]] = field(default_factory=dict)
    """Of drops: the serial, the index, and what is not its own any more."""

    def event(self) -> int:
        """The number of something that happens now."""
        self.events += 1
        return self.events

    # The manifest

    def kind(self) -> StateKind[ManifestState]:
        """The manifest, watched in all processes."""
        history = self

        class WatchedManifest(ManifestState):
            def apply(self, command: bytes, at: StateVersion, time: Timestamp) -> bytes:
                dealt, first = dict(self.dealt), self.generations[0].number if self.generations else 0
                result = super().apply(command, at, time)
                history._on_applied(at, decode_manifest_command(command), dealt, first, self)
                return result

        return StateKind(KIND_NAME, WatchedManifest, WatchedManifest.decode)

    def _on_applied(
        self, at: StateVersion, command: ManifestCommand, dealt: dict[int, int], first: int, state: ManifestState
    ) -> None:
        encoded = crc32c(state.encode())
        assert self._states.setdefault(at, encoded) == encoded, f"rule 1: two states of version {at}"
        self.commands[at] = command
        self.generations.update({log: each.number for each in state.generations for log in each.logs})
        self.undealt = max(self.undealt, state.generations[0].number)
        if isinstance(command, DropIndex):
            lsns = {log: max(lsn, dealt.get(log, 0)) for log, lsn in {**dealt, **dict(command.floors)}.items()}
            self._cuts[at] = state.serial, command.index, Boundary(first, lsns)

    # In the end

    def check(self, raw: dict[RawPlace, LogRecord | None]) -> None:
        """Compare all that happened with what the raw logs hold now."""
        self._check_commands()
        places = self._check_places(raw)
        ordered = sorted((place, record) for place, record in raw.items() if record is not None)
        for read in self.reads:
            self._check_read(read, ordered, places)
        forgotten = max((each.serial for each in self.commands.values() if isinstance(each, Forget)), default=0)
        for token in self.expired:
            self._check_expired(token, forgotten)

    def _check_expired(self, token: ExpiredToken, forgotten: int) -> None:
        oldest = min(self.generations[log] for log in token.logs)
        if oldest + 1 < token.undealt:
            return  # of generations that are dealt whole only the last one is known
        what = f"generations from {oldest} on expired, {token.undealt} is not dealt"
        assert token.serial is not None, f"rule 3: a token of {what}"
        assert token.serial < forgotten, (
            f"rule 3: a token of state {token.serial}, and of {what}, {forgotten} was forgotten last"
        )

    def _check_commands(self) -> None:
        dealt: dict[int, int] = {}
        ended: set[int] = set()
        for at in sorted(self.commands):
            command = self.commands[at]
            if isinstance(command, Deal | Replace):
                assert command.token not in ended, f"rule 5: job {command.token} commits after its end"
            if isinstance(command, Deal):
                before = dealt.get(command.log, 0)
                assert command.start == before + 1, (
                    f"rule 4: log {command.log} is dealt from {command.start}, after {before}"
                )
                dealt[command.log] = command.until
            elif isinstance(command, EndJob):
                ended.add(command.token)

    def _check_places(self, raw: dict[RawPlace, LogRecord | None]) -> dict[int, RawPlace]:
        """Where each modification is."""
        places: dict[int, RawPlace] = {}
        of_document: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        for place in sorted(raw):
            record = raw[place]
            if record is None:
                continue
            number = record.change.timestamp
            assert number not in places, f"rule 6: modification {number} is at {places[number]} and at {place}"
            places[number] = place
            of_document[record.index, record.docid].append(number)
        for number, step in self.written.items():
            assert step.acknowledged is None or number in places, f"rule 6: modification {number} is lost"
        for document, numbers in of_document.items():
            self._check_order(document, numbers)
        return places

    def _check_order(self, document: tuple[str, str], numbers: list[int]) -> None:
        newest = 0
        last: dict[int, int] = {}
        for number in numbers:
            step = self.written[number]
            assert step.acknowledged is None or step.acknowledged > newest, (
                f"rule 6: {document}: modification {number} was acknowledged before one began that lies in front of it"
            )
            newest = max(newest, step.began)
            before = last.get(step.writer, 0)
            assert before < number, f"rule 6: {document}: {before} lies in front of {number}"
            last[step.writer] = number

    def _check_read(
        self, read: ReadIndex, ordered: list[tuple[RawPlace, LogRecord]], places: dict[int, RawPlace]
    ) -> None:
        cuts = [cut for serial, index, cut in self._cuts.values() if index == read.index and serial <= read.serial]
        steps: defaultdict[str, list[Modification]] = defaultdict(list)
        for place, record in ordered:
            is_cut = any(cut.holds(place) for cut in cuts)
            if record.index == read.index and read.boundary.holds(place) and not is_cut:
                steps[record.docid].append(record.change)
        expected = {docid: there for docid, changes in steps.items() if (there := fold(changes)) is not None}
        assert read.found == expected, f"rule 2: {_difference(read, expected)}"
        for number, step in self.written.items():
            if step.record.index == read.index and step.acknowledged is not None and step.acknowledged < read.began:
                assert read.boundary.holds(places[number]), (
                    f"rule 2: modification {number} was acknowledged before and not read"
                )
        for drop in self.drops:
            if drop.index == read.index and drop.ended < read.began:
                self._check_drop(drop, cuts, places)

    def _check_drop(self, drop: IndexDrop, cuts: list[Boundary], places: dict[int, RawPlace]) -> None:
        """Of a reader that began after it."""
        for number, step in self.written.items():
            if step.record.index == drop.index and step.acknowledged is not None and step.acknowledged < drop.began:
                assert any(cut.holds(places[number]) for cut in cuts), f"rule 2: modification {number} was not dropped"

    def check_store(self, files: set[str], state: ManifestState) -> None:
        """Nothing is under way, and everything was collected."""
        needed = set(state.paths())
        assert files == needed, f"rule 7: not needed: {sorted(files - needed)}, not there: {sorted(needed - files)}"

    def summary(self) -> dict[str, Any]:
        """How much a run has shown."""
        kinds = Counter(type(each).__name__ for each in self.commands.values())
        acknowledged = sum(step.acknowledged is not None for step in self.written.values())
        return {"acknowledged": acknowledged, "reads": len(self.reads), **kinds, **self.told}


def _difference(read: ReadIndex, expected: Mapping[str, Modification]) -> str:
    docids = sorted(
        docid for docid in read.found.keys() | expected.keys() if read.found.get(docid) != expected.get(docid)
    )
    docid = docids[0]
    return f"index {read.index} in state {read.serial}: {docid} is {read.found.get(docid)} in the pages, {expected.get(docid)} in the raw logs"
