"""The manifest as a replicated state.

Rules that `docs/decisions/0017-index-log.md` gives reasons for and that hold here:

1. *Dealt once*: a deal goes on exactly where dealing of its log stands, in the oldest generation that is not dealt whole.
2. *Neighbours*: a file replaces parts of one index that are live and side by side.
3. *Oldest*: deletes go only with a run that begins with the index's oldest part.
4. *Ended*: a token that has ended commits nothing.
5. *Floors*: a deal that does not know of a drop is refused.
6. *Passed*: a job that commits nothing while `PASSED_MAX` later ones of its kind end is dead, and ends. So does, when `JOBS_MAX` have begun and not ended, one of more
   than `PASSED_MAX` of one kind: theirs are killed again and again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgpack

from client.replica.applied_state import StateKind
from client.replica.commands import CommandRefused, StateVersion, decode_snapshot, number_field, refuse
from indexlog.manifest.commands import (
    NUMBER_MAX,
    AddGeneration,
    BeginJob,
    Deal,
    DropIndex,
    EndGeneration,
    EndJob,
    Forget,
    Initialize,
    OutputFile,
    Replace,
    ReplaceRuns,
    decode_manifest_command,
    lsn_field,
    path_field,
    token_of,
)
from indexlog.manifest.parts import WHOLE_FILE, IndexFloor, JobKind, Part, PartKind, RetiredPart, RoutingGeneration
from indexlog.records import TIMESTAMP_MAX, check_index
from logdevice_py.core.status import Status
from logdevice_py.core.units import Timestamp

KIND_NAME: Final = "index log"
PARTS_MAX: Final = 500_000
"""Live and retired ones; a deal that makes more is refused. A snapshot has at most 64 MiB."""
FLOORS_MAX: Final = 50_000
"""Indexes that were dropped at some time."""
JOBS_MAX: Final = 1000
"""At a time."""
PASSED_MAX: Final = 100
"""So many later jobs of its kind end before a job that commits nothing meanwhile is taken for dead. That one may live costs what it has not committed."""
_FORMAT: Final = 4


class ManifestState:
    """What the commands to the manifest amount to."""

    def __init__(self) -> None:
        self.store = ""
        """The URL of the store; empty before `Initialize`."""
        self.generations: list[RoutingGeneration] = []
        """Those that are not dealt whole, and the newest one."""
        self.former: RoutingGeneration | None = None
        """The last one that is dealt whole: page tokens may name its raw logs still."""
        self.dealt: dict[int, int] = {}
        """Of each raw log of these generations, the last LSN that is dealt; 0: none is."""
        self.jobs: dict[int, int] = {}
        """Tokens of jobs that have not ended, and when they began, by the sequencer's clock: microseconds since 1970."""
        self.passed: dict[int, tuple[JobKind, int]] = {}
        """Of each of these jobs that deals or merges its kind, and how many later ones of that kind have ended since it committed something."""
        self.next_token = 1
        self.serial = 0
        """Changes of parts so far."""
        self.forgotten = 0
        """Page tokens of a serial below this one are not served any more."""
        self.drops = 0
        """Indexes that were dropped so far."""
        self.unreadable = 0
        """Records of raw logs that are no modifications."""
        self.indexes: dict[str, list[Part]] = {}
        """The live parts of each index, in the order of modifications."""
        self.floors: dict[str, IndexFloor] = {}
        """Of indexes that were dropped."""
        self.retired: list[RetiredPart] = []
        """In the order in which they were retired."""
        self._live = 0

    # Looking

    def generation(self) -> RoutingGeneration | None:
        """The generation whose raw logs are dealt: the oldest that is not dealt whole."""
        return next((each for each in self.generations if not self._is_dealt(each)), None)

    def writable(self) -> RoutingGeneration | None:
        """The one to which modifications go; None while there is none: the one before has not ended yet."""
        if not self.generations or self.generations[-1].ends is not None:
            return None
        if any(each.ends is None for each in self.generations[:-1]):
            return None
        return self.generations[-1]

    def readable(self) -> list[RoutingGeneration]:
        """Those that are not dealt whole, up to the first that has not ended: nothing is written to later ones yet, as far as it is acknowledged."""
        found = []
        for each in self.generations:
            found.append(each)
            if each.ends is None:
                break
        return found

    def end_of(self, log: int) -> int | None:
        """The last LSN of a raw log whose generation has ended and is not dealt whole; None: it has not ended, or is no such log."""
        for each in self.generations:
            if log in each.logs:
                return None if each.ends is None else each.ends[each.logs.index(log)]
        return None

    def is_raw_log(self, log: int) -> bool:
        """Whether a page token may name this log. Of generations that are dealt whole only the last one is remembered."""
        return log in self.dealt or (self.former is not None and log in self.former.logs)

    def last_drop(self, index: str) -> int:
        """Which drop of all that there were was the last one of an index; 0: it was never dropped."""
        floor = self.floors.get(index)
        return 0 if floor is None else floor.drop

    def undealt_logs(self) -> list[tuple[int, int | None]]:
        """Raw logs that are not dealt whole, in the order of dealing, each with its end if it has one."""
        found: list[tuple[int, int | None]] = []
        for each in self.generations:
            ends = each.ends or (None,) * len(each.logs)
            found += [
                (log, end)
                for log, end in zip(each.logs, ends, strict=True)
                if end is None or self.dealt.get(log, 0) < end
            ]
        return found

    def parts(self, index: str, serial: int | None = None) -> list[Part]:
        """What an index consists of, oldest first; as of `serial`, if that is not forgotten."""
        live = self.indexes.get(index, [])
        if serial is None or serial == self.serial:
            return list(live)
        found = [part for part in live if part.made <= serial]
        found += [each.part for each in self.retired if each.index == index and each.part.made <= serial < each.retired]
        return sorted(found, key=lambda part: part.order)

    def paths(self) -> Iterator[str]:
        """Files that are live, or retired and not forgotten; some more than once."""
        for parts in self.indexes.values():
            for part in parts:
                yield part.path
        for each in self.retired:
            yield each.part.path

    def _is_dealt(self, generation: RoutingGeneration) -> bool:
        return generation.ends is not None and all(
            self.dealt.get(log, 0) >= end for log, end in zip(generation.logs, generation.ends, strict=True)
        )

    # Commands

    def apply(self, command: bytes, at: StateVersion, time: Timestamp) -> bytes:
        """Change the manifest: as `StateMachine.apply`. The result of `BeginJob` is the token, of `ReplaceRuns` how many
        runs were refused, of other commands the serial behind them."""
        wanted = decode_manifest_command(command)
        if self.store == "" and type(wanted) is not Initialize:
            raise refuse(Status.NOTFOUND, "there is no index log here yet: initialize it")
        match wanted:
            case Initialize():
                self._initialize(wanted)
            case BeginJob():
                return self._begin(wanted, time)
            case EndJob():
                self._end(wanted)
            case Deal():
                self._deal(wanted)
            case Replace():
                self._replace(wanted, time)
            case ReplaceRuns():
                return self._replace_runs(wanted, time)
            case Forget():
                self._forget(wanted)
            case DropIndex():
                self._drop(wanted, time)
            case AddGeneration():
                self._add_generation(wanted)
            case EndGeneration():
                self._end_generation(wanted)
        result: bytes = msgpack.packb(self.serial)
        return result

    def _initialize(self, wanted: Initialize) -> None:
        if self.store:
            raise refuse(Status.EXISTS, f"there is an index log already, with files at {self.store[:100]}")
        self.store = wanted.store
        self._open_generation(0, wanted.logs)

    def _open_generation(self, number: int, logs: Any) -> None:
        self.generations.append(RoutingGeneration(number, tuple(logs)))
        self.dealt.update(dict.fromkeys(logs, 0))

    def _begin(self, wanted: BeginJob, time: Timestamp) -> bytes:
        if len(self.jobs) >= JOBS_MAX:
            self._make_room()
        token = self.next_token
        self.next_token += 1
        self.jobs[token] = max(0, time)
        if wanted.kind is not JobKind.OTHER:
            self.passed[token] = wanted.kind, 0
        result: bytes = msgpack.packb(token)
        return result

    def _make_room(self) -> None:
        """Of the kind of which most jobs have not ended, the one ends that most later ones have passed; of those the oldest."""
        kinds = Counter(kind for kind, _ in self.passed.values())
        kind, count = max(kinds.items(), key=lambda each: (each[1], each[0]), default=(JobKind.OTHER, 0))
        if count <= PASSED_MAX:
            raise refuse(Status.NOBUFS, f"{JOBS_MAX} jobs have begun and not ended")
        of_kind = [(passed, -token) for token, (each, passed) in self.passed.items() if each is kind]
        dead = -max(of_kind)[1]
        del self.jobs[dead], self.passed[dead]

    def _end(self, wanted: EndJob) -> None:
        self._check_token(wanted.token)
        self._remove(wanted.token)

    def _remove(self, token: int) -> None:
        """It ends, and so do those that it is the last one to pass."""
        del self.jobs[token]
        kind, _ = self.passed.pop(token, (JobKind.OTHER, 0))
        for older, (of_kind, count) in list(self.passed.items()):
            if older < token and of_kind is kind:
                self.passed[older] = kind, count + 1
        dead = [older for older, (_, count) in self.passed.items() if count >= PASSED_MAX]
        for older in dead:
            del self.jobs[older], self.passed[older]

    def _committed(self, token: int) -> None:
        """It lives."""
        if token in self.passed:
            self.passed[token] = self.passed[token][0], 0

    def _check_token(self, token: int) -> None:
        if token not in self.jobs:
            raise refuse(Status.PREEMPTED, f"job {token} has ended")

    def _check_path(self, token: int, path: str) -> None:
        if token_of(path) != token:
            raise refuse(Status.INVALID_PARAM, f"{path} was not written by job {token}")

    def _deal(self, wanted: Deal) -> None:
        self._check_token(wanted.token)
        generation = self.generation()
        if generation is None or wanted.log not in generation.logs:
            raise refuse(Status.STALE, f"log {wanted.log} is not one of those that are dealt now")
        dealt = self.dealt[wanted.log]
        if wanted.start != dealt + 1:
            raise refuse(Status.STALE, f"log {wanted.log} is dealt up to {dealt}, not up to {wanted.start - 1}")
        if wanted.until < wanted.start:
            raise refuse(Status.INVALID_PARAM, f"log {wanted.log}: {wanted.until} is not in what can be dealt")
        end = self.end_of(wanted.log)
        if end is not None and end < wanted.until:
            # its tail goes up without records, when its sequencer changes: who looked for it before knew of no end
            raise refuse(Status.AGAIN, f"log {wanted.log} ended at {end} meanwhile: deal again up to there")
        if wanted.drops != self.drops:
            raise refuse(Status.AGAIN, "an index was dropped meanwhile: deal again without its records")
        if bool(wanted.slices) != bool(wanted.path):
            raise refuse(Status.INVALID_PARAM, "a container without slices, or slices without a container")
        names = [each.index for each in wanted.slices]
        if len(set(names)) != len(names):
            raise refuse(Status.INVALID_PARAM, "a container has an index twice")
        if wanted.path:
            self._check_path(wanted.token, wanted.path)
        if self._live + len(self.retired) + len(wanted.slices) > PARTS_MAX:
            raise refuse(Status.NOSPC, f"the manifest is full: {PARTS_MAX} parts. Optimize, and collect garbage")
        self.serial += 1
        self.unreadable += wanted.unreadable
        serial = self.serial
        place = 0
        for each in wanted.slices:
            part = Part(
                wanted.path,
                place,
                PartKind.UNSORTED,
                each.records,
                each.bytes,
                each.timestamp,
                serial,
                serial,
                serial,
            )
            self.indexes.setdefault(each.index, []).append(part)
            place += each.records
        self._live += len(wanted.slices)
        self._committed(wanted.token)
        self.dealt[wanted.log] = wanted.until
        self._close_generations()

    def _close_generations(self) -> None:
        while len(self.generations) > 1 and self._is_dealt(self.generations[0]):
            self.former = self.generations.pop(0)
            for log in self.former.logs:
                del self.dealt[log]

    def _replace(self, wanted: Replace, time: Timestamp) -> None:
        self._check_token(wanted.token)
        parts = self.indexes.get(wanted.index, [])
        at = next((place for place, part in enumerate(parts) if [part.key] == wanted.inputs[:1]), None)
        if at is None:
            raise refuse(Status.STALE, f"index {wanted.index}: the first input is not live")
        run = parts[at : at + len(wanted.inputs)]
        if [part.key for part in run] != wanted.inputs:
            raise refuse(Status.STALE, f"index {wanted.index}: the inputs are not live, or not side by side")
        if wanted.drops_deletes and at > 0:
            raise refuse(Status.INVALID_PARAM, f"index {wanted.index}: deletes cannot go, there are older parts")
        if not wanted.outputs and not wanted.drops_deletes:
            raise refuse(Status.INVALID_PARAM, f"index {wanted.index}: nothing replaces parts that are not the oldest")
        for output in wanted.outputs:
            self._check_path(wanted.token, output.path)
        self.serial += 1
        self._committed(wanted.token)
        self._retire(wanted.index, run, time)
        made = [self._made(output, run) for output in wanted.outputs]
        parts[at : at + len(run)] = made
        parts.sort(key=lambda part: part.order)  # moves only files of one run, which have other documents each
        self._live += len(made)
        if not parts:
            del self.indexes[wanted.index]

    def _replace_runs(self, wanted: ReplaceRuns, time: Timestamp) -> bytes:
        self._check_token(wanted.token)
        for run in wanted.runs:
            if run.output is not None:
                self._check_path(wanted.token, run.output.path)
        refusals = 0
        for run in wanted.runs:
            try:
                outputs = [] if run.output is None else [run.output]
                self._replace(Replace(wanted.token, run.index, run.inputs, run.drops_deletes, outputs), time)
            except CommandRefused:
                refusals += 1
        result: bytes = msgpack.packb(refusals)
        return result

    def _made(self, output: OutputFile, run: list[Part]) -> Part:
        return Part(
            output.path,
            output.place,
            output.kind,
            output.records,
            output.bytes,
            output.timestamp,
            self.serial,
            run[0].since,
            run[-1].until,
        )

    def _retire(self, index: str, parts: list[Part], time: Timestamp) -> None:
        self.retired += [RetiredPart(index, part, self.serial, max(0, time)) for part in parts]
        self._live -= len(parts)

    def _forget(self, wanted: Forget) -> None:
        if wanted.serial > self.serial:
            raise refuse(Status.INVALID_PARAM, f"serial {wanted.serial} is not reached yet")
        self.forgotten = max(self.forgotten, wanted.serial)
        self.retired = [each for each in self.retired if each.retired > self.forgotten]

    def _drop(self, wanted: DropIndex, time: Timestamp) -> None:
        logs = [log for log, _ in self.undealt_logs()]
        if [log for log, _ in wanted.floors] != logs:
            raise refuse(Status.STALE, "the raw logs are other ones: look for their tails again")
        if wanted.index not in self.floors and len(self.floors) >= FLOORS_MAX:
            raise refuse(Status.NOSPC, f"{FLOORS_MAX} indexes were dropped already")
        self.serial += 1
        self.drops += 1
        self._retire(wanted.index, self.indexes.pop(wanted.index, []), time)
        lsns = dict(self.dealt)
        # somebody who found later tails may have been first
        before = self.floors.get(wanted.index, IndexFloor(0, {}, 0))
        for log, lsn in wanted.floors:
            lsns[log] = max(lsns[log], lsn, before.lsns.get(log, 0))
        self.floors[wanted.index] = IndexFloor(self.generations[0].number, lsns, self.drops)

    def _add_generation(self, wanted: AddGeneration) -> None:
        if self.writable() is None:
            raise refuse(Status.AGAIN, f"generation {self.generations[-1].number} has not begun yet")
        used = {log for each in self.generations for log in each.logs}
        if used & set(wanted.logs):
            raise refuse(Status.INVALID_PARAM, "a raw log belongs to one generation only")
        self._open_generation(self.generations[-1].number + 1, wanted.logs)

    def _end_generation(self, wanted: EndGeneration) -> None:
        place = next((at for at, each in enumerate(self.generations) if each.number == wanted.number), None)
        if place is None or self.generations[place].ends is not None:
            raise refuse(Status.STALE, f"generation {wanted.number} has ended already")
        if place == len(self.generations) - 1:
            raise refuse(Status.INVALID_PARAM, "the last generation cannot end: add another one first")
        logs = self.generations[place].logs
        if len(wanted.ends) != len(logs):
            raise refuse(Status.INVALID_PARAM, f"generation {wanted.number}: the end of each log expected")
        for log, end in zip(logs, wanted.ends, strict=True):
            if end < self.dealt[log]:
                # as of a deal: somebody found a later tail, and dealt up to it
                raise refuse(
                    Status.AGAIN, f"log {log} is dealt up to {self.dealt[log]} already: look for its end again"
                )
        self.generations[place] = RoutingGeneration(wanted.number, logs, tuple(wanted.ends))
        self._close_generations()

    # Snapshots

    def encode(self) -> bytes:
        """For a snapshot."""
        packed: bytes = msgpack.packb(
            [
                _FORMAT,
                self.store,
                [_packed_generation(each) for each in self.generations],
                None if self.former is None else _packed_generation(self.former),
                sorted(self.dealt.items()),
                [
                    [token, time, *self.passed.get(token, (JobKind.OTHER, 0))]
                    for token, time in sorted(self.jobs.items())
                ],
                self.next_token,
                self.serial,
                self.forgotten,
                self.drops,
                self.unreadable,
                [[index, [_packed(part) for part in self.indexes[index]]] for index in sorted(self.indexes)],
                [
                    [index, floor.generation, sorted(floor.lsns.items()), floor.drop]
                    for index, floor in sorted(self.floors.items())
                ],
                [[each.index, _packed(each.part), each.retired, each.time] for each in self.retired],
            ]
        )
        return packed

    @classmethod
    def decode(cls, data: bytes) -> ManifestState:
        """From `encode`; ValueError for anything else."""
        return decode_snapshot(data, "manifest", cls._decoded)

    @classmethod
    def _decoded(cls, raw: Any) -> ManifestState:
        if type(raw) is not list or raw[:1] != [_FORMAT]:
            raise ValueError(f"a manifest of format {_FORMAT} expected")
        _, store, generations, former, dealt, jobs, token, serial, forgotten, drops, unreadable, *lists = raw
        indexes, floors, gone = lists
        if type(store) is not str:
            raise ValueError("the URL of the store expected")
        found = cls()
        found.store = store
        found.generations = [_unpacked_generation(each) for each in generations]
        found.former = None if former is None else _unpacked_generation(former)
        found.dealt = {_number(log): lsn_field(lsn) for log, lsn in dealt}
        found.jobs = {_number(token): _number(time) for token, time, _, _ in jobs}
        found.passed = {
            token: (kind, number_field(count, 0, PASSED_MAX - 1))
            for token, _, number, count in jobs
            if (kind := JobKind(number)) is not JobKind.OTHER
        }
        found.next_token, found.serial, found.forgotten = map(_number, (token, serial, forgotten))
        found.drops, found.unreadable = _number(drops), _number(unreadable)
        found.indexes = {check_index(index): [_unpacked(part) for part in parts] for index, parts in indexes}
        found.floors = {
            check_index(index): IndexFloor(
                _number(number), {_number(log): lsn_field(lsn) for log, lsn in lsns}, _number(drop)
            )
            for index, number, lsns, drop in floors
        }
        found.retired = [
            RetiredPart(check_index(index), _unpacked(part), _number(retired), _number(time))
            for index, part, retired, time in gone
        ]
        found._live = sum(map(len, found.indexes.values()))
        found._check()
        return found

    def _check(self) -> None:
        """What commands rely upon; ValueError where it does not hold."""
        logs = [log for each in self.generations for log in each.logs]
        known = self.generations if self.former is None else [self.former, *self.generations]
        numbers = [each.number for each in known]
        if (
            bool(self.store) != bool(self.generations)
            or numbers != sorted(set(numbers))
            or not all(each.logs and len(each.ends or each.logs) == len(each.logs) for each in known)
            or (self.former is not None and self.former.ends is None)
        ):
            raise ValueError("generations in order, each with raw logs and their ends, expected")
        if len(set(logs)) != len(logs) or self.dealt.keys() != set(logs):
            raise ValueError("how far each raw log is dealt expected")
        if self.forgotten > self.serial or max(self.jobs, default=0) >= self.next_token:
            raise ValueError("serials and tokens that were given expected")
        if not all(self.indexes.values()):
            raise ValueError("an index without parts")


def _packed_generation(generation: RoutingGeneration) -> list[Any]:
    return [generation.number, generation.logs, generation.ends]


def _unpacked_generation(raw: Any) -> RoutingGeneration:
    number, logs, ends = raw
    return RoutingGeneration(
        _number(number), tuple(map(_number, logs)), None if ends is None else tuple(map(lsn_field, ends))
    )


def _packed(part: Part) -> list[Any]:
    return [
        part.path,
        part.place,
        part.kind,
        part.records,
        part.bytes,
        part.timestamp,
        part.made,
        part.since,
        part.until,
    ]


def _unpacked(raw: Any) -> Part:
    path, place, kind, records, size, timestamp, made, since, until = raw
    return Part(
        path_field(path),
        number_field(place, WHOLE_FILE, NUMBER_MAX),
        PartKind(kind),
        _number(records),
        _number(size),
        number_field(timestamp, 0, TIMESTAMP_MAX),
        _number(made),
        _number(since),
        _number(until),
    )


def _number(value: Any) -> int:
    return number_field(value, 0, NUMBER_MAX)


MANIFEST: Final = StateKind(KIND_NAME, ManifestState, ManifestState.decode)
