"""An index log on a list of commands, lists as raw logs and files in memory: jobs, writers and readers take single steps in an order that chance decides, are
abandoned between two of them, know old states of the manifest, and every reader is compared with the fold of what was written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import msgpack

from client.replica.commands import CommandRefused, StateVersion, refusal
from indexlog.effects import (
    ConfirmView,
    DoWork,
    FindTails,
    IndexEffect,
    ManifestOutcome,
    ProposeCommand,
    RawRange,
    ReadRange,
    Steps,
    TrimmedRange,
)
from indexlog.jobs import collect_job, deal_job, drop_index, merge_job
from indexlog.manifest.commands import (
    AddGeneration,
    DropIndex,
    EndGeneration,
    EndJob,
    Initialize,
    ManifestCommand,
    encode_manifest_command,
)
from indexlog.manifest.state import ManifestState
from indexlog.paging import PageExpired, read_page
from indexlog.planning import ALL_AT_ONCE, MergePolicy
from indexlog.records import LogRecord, Modification, document, encode_record, fold, merge
from indexlog.routing import raw_log_of
from indexlog.stores import MemoryStore
from logdevice_py.core.status import LogDeviceError, Status

INDEXES = ("books", "songs")
DOCIDS = ("a", "b", "c", "d")
POLICY = MergePolicy(2, 1000, 2, 2.0)
CUT_POLICY = replace(POLICY, own_file_bytes=100, task_bytes=400)
OWN_FILES = replace(ALL_AT_ONCE, own_file_bytes=100, task_bytes=200)
"""Small indexes share a file, others have their own, or several."""


class Divergence(AssertionError):
    """What was read is not what was written."""


class LaggingReplica:
    """One process's copy of the manifest."""

    def __init__(self, pipeline: Pipeline, applied: int) -> None:
        self._pipeline = pipeline
        self.applied = 0
        self.state = pipeline.make_state()
        self.catch_up(applied)

    def catch_up(self, to: int) -> ManifestOutcome | None:
        """Apply more commands; what the last one came to."""
        outcome = None
        for number in range(self.applied, to):
            body, time = self._pipeline.commands[number]
            try:
                result = msgpack.unpackb(self.state.apply(body, StateVersion(number + 1, 0), time))
                outcome = ManifestOutcome(result)
            except CommandRefused as error:
                status, text = refusal(str(error))
                outcome = ManifestOutcome(0, status, text)
        self.applied = max(self.applied, to)
        return outcome


@dataclass
class Actor:
    """A process that is under way."""

    steps: Steps[Any]
    replica: LaggingReplica
    on_end: Callable[[Any], None] = lambda result: None
    send: Any = None
    error: Exception | None = None
    before: dict[int, int] = field(default_factory=dict)
    """Where raw logs ended when it confirmed its view last."""
    tails: dict[int, int] = field(default_factory=dict)


class Pipeline:
    """All processes of an index log."""

    def __init__(self, seed: int, make_state: Callable[[], ManifestState] = ManifestState) -> None:
        self.rng = Random(seed)
        self.make_state = make_state
        self.commands: list[tuple[bytes, int]] = []
        self.store = MemoryStore()
        self.raw: dict[int, list[bytes | None]] = {}
        self.trimmed: dict[int, int] = {}
        self.ended: set[int] = set()
        self.written: list[tuple[int, int, LogRecord]] = []
        self.cuts: list[tuple[int, str, dict[int, int]]] = []
        self.drops: list[tuple[int, str, dict[int, int]]] = []
        """Of each drop its serial, the index, and where raw logs ended."""
        self.actors: list[Actor] = []
        self.pages = self.expired = self.compared = self.followed = self.serial = 0
        self.tails: dict[int, int] = {}
        self.master = LaggingReplica(self, 0)
        self.propose(self.master, Initialize("memory", self._new_logs()))

    def _new_logs(self) -> list[int]:
        logs = [len(self.raw) + 1, len(self.raw) + 2]
        self.raw.update({log: [] for log in logs})
        return logs

    def new_replica(self) -> LaggingReplica:
        """One that may be behind."""
        return LaggingReplica(self, self.rng.randint(max(1, len(self.commands) - 6), len(self.commands)))

    def propose(self, replica: LaggingReplica, command: ManifestCommand) -> ManifestOutcome:
        """Append a command, and apply it to the replica of who proposed it, and the master's."""
        self.commands.append((encode_manifest_command(command), len(self.commands) * 10))
        dealt = dict(self.master.state.dealt)
        told = self.master.catch_up(len(self.commands))
        outcome = replica.catch_up(len(self.commands)) if replica is not self.master else told
        assert outcome is not None
        if isinstance(command, DropIndex) and outcome.refused is None:
            floors = dict(command.floors)
            cut = {log: max(floors[log], dealt[log]) if log in floors else len(self.raw[log]) for log in self.raw}
            unknown = set(self.raw) - set(floors) - set(dealt)
            for log in unknown - self.ended:
                cut[log] = 0  # of a generation that was not added yet
            self.cuts.append((outcome.number, command.index, cut))
            ends = {log: len(payloads) for log, payloads in self.raw.items()}
            self.drops.append((outcome.number, command.index, ends))
        return outcome

    # Steps

    def start(
        self, steps: Steps[Any], replica: LaggingReplica, on_end: Callable[[Any], None] = lambda _: None
    ) -> Actor:
        """Another process."""
        actor = Actor(steps, replica, on_end)
        self.actors.append(actor)
        return actor

    def step(self, actor: Actor) -> bool:
        """One step of a process. False: it has ended."""
        try:
            if actor.error is not None:
                error, actor.error = actor.error, None
                effect = actor.steps.throw(error)
            else:
                effect = actor.steps.send(actor.send)
        except StopIteration as stop:
            actor.on_end(stop.value)
            return False
        try:
            actor.send = self._do(actor, effect)
        except (FileNotFoundError, TrimmedRange) as error:
            actor.error = error
        return True

    def _do(self, actor: Actor, effect: IndexEffect) -> Any:
        match effect:
            case ProposeCommand(command):
                return self.propose(actor.replica, command)
            case ConfirmView():
                actor.replica.catch_up(len(self.commands))
                actor.before = {log: len(payloads) for log, payloads in self.raw.items()}
                return None
            case FindTails(logs):
                # each log is asked by itself, some time after the view was confirmed
                found = {log: self.rng.randint(actor.before.get(log, 0), len(self.raw[log])) for log in logs}
                actor.tails = {**actor.before, **found}
                return found
            case ReadRange(log, start, until, _):
                assert start <= until <= len(self.raw[log])
                if start <= (trimmed := self.trimmed.get(log, 0)):
                    raise TrimmedRange(log, start, min(trimmed, until))
                until = self.rng.randint(start, until)
                return RawRange(until, [(lsn, self.raw[log][lsn - 1]) for lsn in range(start, until + 1)])
            case DoWork(work):
                return work()

    def finish(self, actor: Actor) -> None:
        """All steps of a process, and nothing else meanwhile."""
        while self.step(actor):
            pass
        self.actors.remove(actor)

    # What happens

    def write(self) -> None:
        """A modification, acknowledged at once."""
        replica = self.new_replica()
        index, docid = self.rng.choice(INDEXES), self.rng.choice(DOCIDS)
        record = LogRecord(index, docid, self._modification())
        generation = replica.state.writable()
        if generation is None:
            return
        log = raw_log_of(index, docid, generation.logs)
        if log in self.ended:
            return  # it is refused, and written again when the writer knows the next generation
        self.raw[log].append(encode_record(record))
        self.written.append((log, len(self.raw[log]), record))

    def _modification(self) -> Modification:
        rng = self.rng
        deleted, number = rng.random() < 0.3, rng.randint(0, 99)
        fields = {"n": str(number)} if rng.random() < 0.5 else None
        variables = {rng.randint(0, 2): float(number)} if rng.random() < 0.5 else {}
        categories = {} if deleted or fields or variables else {rng.choice("xy"): str(number)}
        return Modification(deleted, fields, variables, categories, number)

    def change_generation(self) -> Steps[None]:
        """Go on with other raw logs; another process may have begun that."""
        replica = self.new_replica()
        replica.catch_up(len(self.commands))
        state = replica.state
        if state.writable() is not None:
            yield ProposeCommand(AddGeneration(self._new_logs()))
        yield ConfirmView()
        generations = self.master.state.generations
        for each in generations[:-1]:
            for log in each.logs:
                self.ended.add(log)
                yield ConfirmView()
            outcome: ManifestOutcome | None = None
            while outcome is None or outcome.refused is Status.AGAIN:
                ends = [len(self.raw[log]) for log in each.logs]
                yield ConfirmView()
                outcome = yield ProposeCommand(EndGeneration(each.number, ends))
                if outcome.refused is Status.INVALID_PARAM:
                    raise Divergence(f"raw logs cannot end: {outcome.reason}")

    def change_sequencer(self) -> None:
        """The tail of a raw log that has ended goes up, although nothing is written."""
        if self.ended:
            self.raw[self.rng.choice(sorted(self.ended))].append(b"")

    def trim(self) -> None:
        """What a raw log has is trimmed up to some place that is dealt, as far as another process knows."""
        state = self.new_replica().state
        log = self.rng.choice(sorted(self.raw))
        dealt = state.dealt.get(log, len(self.raw[log]) if log < min(state.dealt) else 0)
        self.trimmed[log] = max(self.trimmed.get(log, 0), self.rng.randint(0, dealt))

    def read(self, rounds: int = 0) -> None:
        """A reader of one index, compared when it is at the end; and again after each of some rounds, in which it goes on with what was written meanwhile."""
        replica, index = self.new_replica(), self.rng.choice(INDEXES)
        found: dict[str, Modification] = {}

        def steps() -> Steps[None]:
            token: str | None = None
            for number in range(rounds + 1):
                wanted: dict[str, Modification] | None = None
                while True:
                    try:
                        page = yield from read_page(lambda: reader.replica.state, self.store, index, token)
                    except PageExpired:
                        self.expired += 1
                        return
                    if wanted is None:
                        wanted = self._expected_at(page.next_token if number == 0 else None, reader, index)
                    self.pages += 1
                    for docid, change in page.rows():
                        found[docid] = merge(found.get(docid, Modification(True)), change)
                    token = page.token
                    if page.next_token is None:
                        break
                    reader.replica = self.new_replica()  # it may be another server's
                told = {docid: there for docid, change in found.items() if (there := document(change)) is not None}
                self.compared += 1
                self.followed += number > 0
                if told != wanted:
                    raise Divergence(f"index {index}, round {number}: {told} was read, {wanted} was written")
                reader.replica = self.new_replica()

        reader = self.start(steps(), replica)

    def _expected_at(self, token: str | None, reader: Actor, index: str) -> dict[str, Modification]:
        from indexlog.paging import PageToken

        serial = reader.replica.state.serial if token is None else PageToken.decode(token).serial
        assert serial is not None
        return self.expected(index, serial, reader.tails)

    def expected(self, index: str, serial: int, tails: dict[int, int]) -> dict[str, Modification]:
        """The documents, in the order in which they were acknowledged. What was written behind a drop is not of one moment with the state before it."""
        cut: dict[int, int] = {}
        for at, dropped, floors in self.cuts:
            if at <= serial and dropped == index:
                cut = {log: max(lsn, cut.get(log, 0)) for log, lsn in floors.items()}
        for at, dropped, ends in self.drops:
            if at > serial and dropped == index:
                behind = [
                    (log, lsn)
                    for log, lsn, record in self.written
                    if record.index == index and ends.get(log, 0) < lsn <= tails.get(log, 0)
                ]
                if behind:
                    raise Divergence(f"index {index}: {behind} are behind drop {at}, and state {serial} is before it")
        found: dict[str, list[Modification]] = {}
        for log, lsn, record in self.written:
            if record.index == index and cut.get(log, 0) < lsn <= tails.get(log, 0):
                found.setdefault(record.docid, []).append(record.change)
        return {docid: there for docid, steps in found.items() if (there := fold(steps)) is not None}

    def act(self) -> None:
        """Something happens."""
        rng, chance = self.rng, self.rng.random()
        if chance < 0.24:
            self.write()
        elif chance < 0.25:
            self.trim()
            self.change_sequencer()
        elif chance < 0.75 and self.actors:
            actor = rng.choice(self.actors)
            for _ in range(rng.choice([1, 1, 2, 5])):
                if not self.step(actor):
                    self.actors.remove(actor)
                    return
            if rng.random() < 0.03:
                self.actors.remove(actor)  # killed; its token stays until somebody ends it
        elif len(self.actors) > 6:
            return
        else:
            self._begin_something(chance)

    def _begin_something(self, chance: float) -> None:
        replica = self.new_replica()
        rng, view = self.rng, lambda: replica.state
        if chance < 0.81:
            self.start(deal_job(view, self.store), replica)
        elif chance < 0.865:
            self.start(merge_job(view, self.store, rng.choice([POLICY, CUT_POLICY, ALL_AT_ONCE, OWN_FILES])), replica)
        elif chance < 0.94:
            self.read(rng.choice([0, 0, 3, 6]))
        elif chance < 0.965:
            before = len(self.commands) * 10 - rng.choice([0, 100, 400])
            self.start(collect_job(view, self.store, before), replica)
        elif chance < 0.973:
            self.start(drop_index(view, rng.choice(INDEXES)), replica)
        elif chance < 0.98:
            self.start(self.change_generation(), replica)
        elif self.master.state.jobs:
            self.propose(self.new_replica(), EndJob(rng.choice(sorted(self.master.state.jobs))))
            if rng.random() < 0.5:  # and its garbage is collected at once, while it goes on
                self.finish(self.start(collect_job(lambda: self.master.state, self.store, 0), self.master))

    def run(self, actions: int = 400) -> Pipeline:
        """Actions, and then an end: everything is dealt, merged and collected by processes that nobody disturbs."""
        for _ in range(actions):
            try:
                self.act()
            except Exception as error:
                if isinstance(error, Divergence) or not is_expected(error):
                    raise
        self.actors.clear()
        for token in sorted(self.master.state.jobs):
            self.propose(self.master, EndJob(token))
        self._undisturbed(self.change_generation())
        view = lambda: self.master.state  # noqa: E731
        self._undisturbed(deal_job(view, self.store))
        self._read_all()
        self._undisturbed(merge_job(view, self.store, ALL_AT_ONCE))
        self._undisturbed(collect_job(view, self.store, len(self.commands) * 10 + 1000))
        self._read_all()
        needed = set(self.master.state.paths())
        if set(self.store.files) != needed:
            raise Divergence(f"files {sorted(self.store.files)}, of which {sorted(needed)} are needed")
        if any(len({part.run for part in parts}) > 1 for parts in self.master.state.indexes.values()):
            raise Divergence("parts are left that can be merged")
        if ManifestState.decode(self.master.state.encode()).encode() != self.master.state.encode():
            raise Divergence("a snapshot is not what it was made of")
        return self

    def _undisturbed(self, steps: Steps[Any]) -> None:
        try:
            self.finish(self.start(steps, self.master))
        except LogDeviceError as error:
            raise Divergence(f"a job that nobody disturbs fails: {error}") from error

    def _read_all(self) -> None:
        for _ in range(3):
            self.read()
            try:
                self.finish(self.actors[-1])
            except LogDeviceError as error:
                raise Divergence(f"a reader that nobody disturbs fails: {error}") from error


def is_expected(error: Exception) -> bool:
    """A process was refused, as its job was ended by another one."""
    if isinstance(error, LogDeviceError) and error.status is Status.DATALOSS:
        raise Divergence(str(error))
    return "has ended" in str(error)
