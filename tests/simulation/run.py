"""One run: a scenario under faults, then calm, then everything must work and agree."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from client.read.settings import ReadSettings
from logdevice_py.core.ids import LogId, format_shard
from logdevice_py.core.lsn import LSN_OLDEST, format_lsn
from logdevice_py.core.marks import HITS
from logdevice_py.core.units import SECOND, Micros
from logdevice_py.simulation.trace import Trace
from server.simulation.faults.nemesis import Nemesis, PlannedFault
from server.simulation.machines import SimMachines, SimPromise
from tests.simulation.departures import Departures
from tests.simulation.end_state import ENTRY_MAX, check_bounds, check_clean_epochs, check_copies, intact_copies
from tests.simulation.exclusive_writer import check_exclusive
from tests.simulation.history import Observation, Violation
from tests.simulation.invariants import Invariants
from tests.simulation.metadata_authorities import MetadataAuthorities
from tests.simulation.node_removals import NodeRemovals
from tests.simulation.operators import publish
from tests.simulation.repairs import VanishedCopies, running_shards
from tests.simulation.run_mode import RunMode
from tests.simulation.scenario import Scenario, draw
from tests.simulation.succession import check_succession
from tests.simulation.workload import Applications, StreamWriter

CALM_BOUND = 600 * SECOND
"""Virtual time within which everything must be done after the last fault."""
STALL_BOUND = 45 * SECOND
"""Virtual time without faults within which something must go on."""


EVENTS_MAX = 3_000_000
"""More than any run needs: something goes round in circles."""


@dataclass(slots=True)
class RunOutcome:
    """Of one run."""

    scenario: Scenario
    digest: str
    events: int
    acknowledged: int
    caused: dict[str, int]
    failures: dict[str, int]
    calm_after: dict[str, int] = field(default_factory=dict)
    """How long after the last fault things worked again, in microseconds."""
    effects: dict[str, int] = field(default_factory=dict)
    """For each kind of fault, how often it did something to somebody."""
    epochs: int = 0
    """Epochs in which something was appended, over all logs."""
    marks: set[str] = field(default_factory=set)
    """Rare branches that were taken."""
    virtual: int = 0
    """Microseconds that passed in the run."""
    silent: bool = False
    """A disk forgot silently what it had made durable: what rests on that was not checked."""
    lost: int = 0
    """Acknowledged records that were lost, and declared lost; only where a run destroys more than the replication property tolerates."""


class Failure(Exception):
    """A run failed; the text says how to replay it, `trace` how it came to it."""

    def __init__(
        self,
        scenario: Scenario,
        at: int,
        trace: Trace,
        plan: Sequence[PlannedFault],
        mode: RunMode,
        disabled: Collection[int] = (),
        store: str | None = None,
    ) -> None:
        kept = [planned.index for planned in plan if planned.index not in disabled]
        without = [planned.index for planned in plan if planned.index in disabled]
        only = kept if len(kept) < len(without) else None
        replay = mode.replay(scenario.seed, only=only, without=without, store=store)
        super().__init__(f"{scenario}\nfailed at {at / 1e6:.6f} s; replay: {replay}")
        self.seed = scenario.seed
        self.trace = trace
        self.plan = plan
        """All faults of the run, also those that were left out."""


def run_seed(
    seed: int,
    *,
    echo: Callable[[str], None] | None = None,
    disabled: Collection[int] = (),
    mode: RunMode = RunMode.USUAL,
    store: str | None = None,
) -> RunOutcome:
    """Run the scenario of a seed; `Failure` when something was not as it must be.

    Args:
        echo: gets a line for each event.
        disabled: indexes of faults that are left out.
        mode: what is destroyed, and what must come of it.
        store: what shards are stored in, as of `LogStoreSettings`; None: as the cluster file of the scenario says.
    """
    run = _prepared(seed, Trace(echo=echo), disabled, mode, store)
    try:
        return run.execute()
    except Exception as error:
        cluster = run.cluster
        raise Failure(
            run.scenario, cluster.scheduler.now, cluster.trace, run.nemesis.plan, mode, disabled, store
        ) from error


def planned_faults(seed: int, mode: RunMode) -> list[PlannedFault]:
    """What is to go wrong in the run of a seed."""
    return _prepared(seed, Trace(), (), mode).nemesis.plan


def _prepared(seed: int, trace: Trace, disabled: Collection[int], mode: RunMode, store: str | None = None) -> _Run:
    scenario = draw(seed, mode)
    cluster = SimMachines(
        scenario.config,
        seed,
        network=scenario.network,
        client_settings=scenario.client_settings,
        read_settings=scenario.read_settings,
        trace=trace,
        turn_max=scenario.turn_max,
        disk_bytes=scenario.disk_bytes,
        store=store,
    )
    scenario.place(cluster)
    return _Run(scenario, cluster, disabled, mode)


class _Run:
    def __init__(self, scenario: Scenario, cluster: SimMachines, disabled: Collection[int], mode: RunMode) -> None:
        loses = mode is RunMode.LOSS
        self.scenario = scenario
        self.cluster = cluster
        self.loses = loses
        self.authorities = MetadataAuthorities(cluster, scenario.logs)
        self.invariants = Invariants(cluster, scenario.logs, loses=loses)
        self.apps = Applications(
            scenario, cluster, random.Random(cluster.rng.getrandbits(64)), self.invariants, loses=loses
        )
        self.nemesis = Nemesis(
            scenario.fault_schedule,
            cluster,
            self.apps.kill_one,
            random.Random(cluster.rng.getrandbits(64)),
            disabled=disabled,
            bounded=not loses,
        )
        self.apps.take_out = self.nemesis.budget.take_out
        self.apps.move = self.nemesis.budget.move
        self.departures = Departures(scenario, cluster, self.nemesis.budget) if mode is RunMode.REBUILDING else None
        self.removals: NodeRemovals | None = None
        if self.departures is not None:
            departures = self.departures
            self.apps.departed = lambda: departures.shards
            if scenario.removals:
                self.removals = NodeRemovals(self.apps, departures, self.nemesis.budget)
        self.calm_after: dict[str, int] = {}
        self.calm_since = 0
        self.lost = 0
        self.silent = False
        self.nemesis.budget.on_silent_loss = self._on_silent_loss

    def execute(self) -> RunOutcome:
        scenario, cluster = self.scenario, self.cluster
        marks_before = Counter(HITS)
        for node in cluster.nodes.values():
            node.start()
        self.apps.start()
        self.nemesis.start()
        if self.departures is not None:
            self.departures.start()
        if scenario.grows_at:
            cluster.scheduler.after(scenario.grows_at, self._grow)
        if self.removals is not None:
            self.removals.start()
        while cluster.scheduler.now < scenario.duration:
            self._advance(scenario.duration)
            check_bounds(self.apps)
            if not self.silent and not self.loses:
                self.authorities.check()
        self.apps.stopping = True
        self.nemesis.stop()
        self.apps.calm()
        self.calm_since = cluster.scheduler.now
        self._settle()
        if self.departures is not None:
            departures = self.departures
            self._wait("rebuilding", departures.done, departures.waits_for, departures.progress)
            if departures.rebuild_again():
                self._wait("rebuilding again", departures.done, departures.waits_for, departures.progress)
            departures.check_places()
        elif not self.silent and not self.loses and scenario.seed % 2:
            self._repair()
        for log in scenario.logs:
            self._examine(log)
        if not self.silent and not self.loses:
            self._repair_dirty()
        self.apps.close()
        return RunOutcome(
            scenario,
            cluster.trace.digest(),
            cluster.scheduler.events,
            sum(history.acknowledged for history in self.apps.histories.values()),
            self.nemesis.caused | self.apps.operated,
            {status.name: count for status, count in self.apps.failures.items()},
            self.calm_after,
            dict(cluster.fault_effects),
            self.invariants.epochs,
            {name for name, count in HITS.items() if count > marks_before[name]},
            cluster.scheduler.now,
            self.silent,
            self.lost,
        )

    def _grow(self) -> None:
        plan, rng = copy.deepcopy(self.apps.plan), random.Random(self.cluster.rng.getrandbits(64))
        plan.undrain(rng)
        publish(self.apps, plan, rng.choice([0, SECOND]), rng)

    def _on_silent_loss(self) -> None:
        self.silent = True
        self.cluster.watch = None
        self.invariants.image_bytes_max = ENTRY_MAX  # nobody looks at what is stored from here on
        for history in self.apps.histories.values():
            history.betrayed = True

    def _advance(self, bound: int) -> None:
        scheduler = self.cluster.scheduler
        stopped = scheduler.run_until(min(bound, scheduler.now + SECOND // 10), events_max=EVENTS_MAX)
        if stopped:
            raise Violation(f"{scheduler.events} events: something goes round in circles")

    def _wait(
        self, what: str, done: Callable[[], bool], waits_for: Callable[[], str], progress: Callable[[], object] = int
    ) -> None:
        """Until something is so; a violation when nothing changes on the way there for too long."""
        scheduler = self.cluster.scheduler
        since, reached = max(self.calm_since, scheduler.now), progress()
        while not done():
            if progress() != reached:
                since, reached = scheduler.now, progress()
            if scheduler.now >= since + STALL_BOUND:
                raise Violation(f"{what}: nothing for {STALL_BOUND / 1e6:.0f} s without faults: {waits_for()}")
            if scheduler.now >= self.calm_since + CALM_BOUND:
                raise Violation(f"{what}: not within {CALM_BOUND / 1e6:.0f} s without faults: {waits_for()}")
            self._advance(scheduler.now + SECOND // 10)
        self.calm_after[what] = scheduler.now - self.calm_since

    def _settle(self) -> None:
        def waits_for() -> str:
            writers = [app for app in self.apps.apps if app.alive and isinstance(app, StreamWriter)]
            return f"{self.apps.unanswered()} appends; unacknowledged " + ", ".join(
                f"{writer.name} {writer.streams.unacknowledged_bytes} bytes (waits for "
                f"{[waits for log in self.scenario.logs if (waits := writer.streams.waiting_for(log, self.cluster.scheduler.now))]})"
                for writer in writers
            )

        def progress() -> object:
            """Where a recovery may store one entry at a time, and each needs several waves, hundreds of entries take minutes."""
            return self.apps.progress(), len(self.invariants.recoveries.stored)

        self._wait("answers to appends", lambda: self.apps.unanswered() == 0, waits_for, progress)
        self._wait("asyncio applications", lambda: not self.apps.running(), lambda: f"{self.apps.running()}")

    def _repair(self) -> None:
        """Copies vanish; they must all come back."""
        cluster = self.cluster
        # connections that were forgotten on the way are noticed by then
        settled = cluster.scheduler.now + cluster.network.settings.user_timeout * 3 // 2
        while cluster.scheduler.now < settled:
            self._advance(settled)
        vanished = VanishedCopies(cluster, list(self.scenario.logs), random.Random(cluster.rng.getrandbits(64)))
        if len(vanished):
            self._wait("vanished copies", vanished.check(passes=3), lambda: str(vanished.missing()), vanished.progress)

    def _repair_dirty(self) -> None:
        """Marks of dirty ranges go, and tell the truth until then."""

        def dirty() -> list[str]:
            return [
                f"{format_shard(shard)} log {log} {machines.repairs.explain(state)}"
                for shard, machines in running_shards(self.cluster)
                for log, state in machines.shard.logs.items()
                if state.dirty is not None and machines.shard.may_exist(log) and not machines.shard.failed
            ]

        def marks() -> list[object]:
            """At the lowest rate it takes minutes until the last one of a log is gone."""
            return [
                (shard, log, tuple(state.dirty))
                for shard, machines in running_shards(self.cluster)
                for log, state in machines.shard.logs.items()
                if state.dirty is not None
            ]

        self._wait("dirty ranges", lambda: not dirty(), lambda: str(dirty()), marks)
        for log in self.scenario.logs:
            self.invariants.dirty.check(log)

    def _examine(self, log: LogId) -> None:
        """Append once more, read all of it in both ways, and compare."""
        tail = self._tail(log, self._append(log))
        self._read(log, tail, single_copy=True)
        whole = self._read(log, tail, single_copy=False)
        for app, reader in self.apps.tailing():
            if app.log == log and app.seen is not None:
                seen = app.seen
                self._wait(
                    "tailing readers",
                    lambda seen=seen: seen.last >= tail,
                    reader.stream.waiting_for,
                    lambda seen=seen: seen.last,
                )  # type: ignore[misc]
        history, model = self.apps.histories[log], self.invariants.logs[log]
        if self.silent:
            return
        self.invariants.wider.refresh(log)
        history.check_end(whole)
        if self.loses:
            self.lost += history.lost(whole)
            history.check_losses(whole, lambda lsn: bool(intact_copies(self.cluster, model, lsn)))
        else:
            check_succession(history, whole)
            check_exclusive(history, whole)
            departed = None if self.departures is None else self.departures.came_to()
            check_copies(self.cluster, model, self.nemesis.budget.damaged, history.trim_asked, departed)
            check_clean_epochs(self.cluster, model, whole, history.trim_asked)

    def _append(self, log: LogId) -> int:
        """Append until it works; the LSN."""
        cluster, history = self.cluster, self.apps.histories[log]
        client = cluster.client()
        lsns: list[int] = []
        tries = 0
        errors: list[str] = []

        def attempt(now: Micros) -> None:
            nonlocal tries
            tries += 1
            made = history.attempt(f"last-{log}-{tries}".encode(), (0, 0))

            def done(promise: SimPromise) -> None:
                if promise.error is None:
                    history.acknowledge(made, promise.result.lsn, promise.result.batch_offset)
                    lsns.append(int(promise.result.lsn))
                else:
                    history.note_failure(made, maybe_applied=promise.error.maybe_applied)  # type: ignore[attr-defined]
                    errors.append(str(promise.error))
                    cluster.scheduler.after(SECOND // 10, lambda: client.event(attempt))

            client.session.append(log, made.payload, SimPromise(done))

        client.event(attempt)
        self._wait("a last append", lambda: bool(lsns), lambda: f"{tries} tries: {errors[-1:]}")
        return lsns[0]

    def _tail(self, log: LogId, lsn: int) -> int:
        cluster, history = self.cluster, self.apps.histories[log]
        client = cluster.client()
        tails: list[int] = []
        errors: list[str] = []

        def ask(now: Micros) -> None:
            def done(promise: SimPromise) -> None:
                if promise.error is None:
                    tails.append(int(promise.result))
                else:
                    errors.append(str(promise.error))
                    cluster.scheduler.after(SECOND // 10, lambda: client.event(ask))

            client.session.sequencers.tail_lsn(log, SimPromise(done), now)

        client.event(ask)
        self._wait("the tail", lambda: bool(tails), lambda: f"{errors[-1:]}")
        history.check_tail(tails[0], max(history.acknowledged_max, (lsn, 0)))
        return tails[0]

    def _read(self, log: LogId, tail: int, *, single_copy: bool) -> Observation:
        client = self.cluster.client()
        if not single_copy:
            # one of the two goes through the log in steps as small as the run's readers take, and that is slow
            client.read_settings = ReadSettings()
        name = "single-copy" if single_copy else "all-copies"
        hedged = self.scenario.hedged and single_copy
        reader, seen = self.apps.reader(client, log, LSN_OLDEST, tail, name, single_copy=single_copy, hedged=hedged)
        client.event(reader.start)
        self._wait(
            f"a {name} reader",
            lambda: reader.finished,
            lambda: f"at {format_lsn(seen.last)} of {format_lsn(tail)}: {reader.stream.waiting_for()}",
            lambda: seen.last,
        )
        return seen
