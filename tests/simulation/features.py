"""Runs of the swarm in which applications of later features share a broken cluster: guards, batches, order, segments, groups, replicas, streams, index logs.

Each seed picks a few of the applications that have tests of their own, the cluster, attributes of its logs and kinds of faults. Each application
checks its own rules; they share machines and faults, not logs.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from client.client import Client
from logdevice_py import SimCluster, SimulationFailed, simulate
from logdevice_py.core.marks import HITS
from server.simulation.cluster import usual_faults
from server.simulation.faults.catalog import CATALOG
from server.simulation.machines import SimMachines
from tests.simulation.atomic_batches import atomic_batches
from tests.simulation.configurations import changed_configurations
from tests.simulation.group_members import troubled_group
from tests.simulation.guards import guarded_appends
from tests.simulation.index_logs import troubled_index_log
from tests.simulation.janitors import kept_streams
from tests.simulation.last_records import last_records
from tests.simulation.replica_writers import change_under_faults
from tests.simulation.segments import segments_under_faults
from tests.simulation.stream_names import names
from tests.simulation.stream_owners import owners
from tests.simulation.stream_truncations import stream_truncations
from tests.simulation.strict_order import strictly_ordered_appends
from tests.simulation.tree_workers import use_under_faults

LOGS: Final = 17
"""Static ones; each application has its own of them."""
VIRTUAL_SECONDS: Final = 4000
NAMESPACES: Final = frozenset({"stream_owners", "stream_names", "stream_truncations", "janitors"})
"""Each looks at the whole namespace of streams, so there is one at most."""
NEEDS_STRICT_ORDER: Final = "strict_order"
CONFIGURATIONS: Final = "configurations"
"""Needs a cluster whose configuration is stored."""
_CONFIGURED_SHARE: Final = 0.15
DRAWN: Final[dict[str, Callable[[SimCluster], Awaitable[object]]]] = {
    "guards": guarded_appends,
    "atomic_batches": atomic_batches,
    NEEDS_STRICT_ORDER: strictly_ordered_appends,
    "segments": segments_under_faults,
    "replicas": change_under_faults,
    "groups": troubled_group,
    "log_tree": use_under_faults,
    "stream_owners": owners,
    "stream_names": names,
    "stream_truncations": stream_truncations,
    "last_records": last_records,
    "index_logs": troubled_index_log,
    "janitors": kept_streams,
}
"""Those of which each seed has some."""
FEATURES: Final = {**DRAWN, CONFIGURATIONS: changed_configurations}


EXTRAS_FROM: Final = 100
"""Logs have extra copies, and operators change a stored configuration, in some of the seeds from here on; tests name seeds below."""
SMALL_CLUSTER: Final = {"nodes": 3, "logs": LOGS, "replicate": "node:2", "log_tree": True}


@dataclass(frozen=True, slots=True)
class FeaturePlan:
    """What a seed stands for."""

    seed: int
    features: tuple[str, ...]
    cluster: dict[str, Any]
    """Arguments of `SimCluster`."""

    def __str__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.cluster.items())
        return f"seed {self.seed}: {', '.join(self.features)} ({arguments})"


@dataclass(frozen=True, slots=True)
class FeatureOutcome:
    """Of one run that went well."""

    plan: FeaturePlan
    digest: str
    caused: dict[str, int]
    effects: dict[str, int]
    marks: set[str]
    virtual: int
    """Microseconds."""
    epochs: int
    """The greatest of any log."""


class FeatureFailure(Exception):
    """A run failed; the text says how to have it again, the cause is what the application or a machine raised."""

    def __init__(self, plan: FeaturePlan, report: str, replay: str) -> None:
        super().__init__(f"{plan}\n{report}\nreplay: {replay}")
        self.seed = plan.seed


def draw_features(seed: int) -> FeaturePlan:
    """Applications, cluster, attributes and faults of a seed."""
    rng = random.Random(f"features {seed}")
    # the first goes round, so that as many seeds have each
    chosen = [list(DRAWN)[seed % len(DRAWN)], *rng.sample(sorted(DRAWN), rng.choice((0, 0, 1, 1, 2)))]
    features: list[str] = []
    for name in chosen:
        if name not in features and not (name in NAMESPACES and NAMESPACES.intersection(features)):
            features.append(name)
    nodes = rng.choice((4, 5, 5, 6))
    # the application knows how many shards of how many copies must be sealed
    copies = 2 if NEEDS_STRICT_ORDER in features else rng.choice((2, 3, 3))
    attributes: dict[str, Any] = {}
    if NEEDS_STRICT_ORDER in features or rng.random() < 0.2:
        attributes["strict_order"] = True
    if rng.random() < 0.3:
        attributes["sequencer_batching"] = False
    if rng.random() < 0.4:
        attributes["roll_every"] = rng.choice(("300ms", "1s", "5s"))
    if rng.random() < 0.2:
        attributes["roll_bytes"] = rng.choice(("1KiB", "8KiB"))
    extras = random.Random(f"extra copies {seed}")
    if seed >= EXTRAS_FROM and extras.random() < 0.2:
        attributes["extra_copies"] = extras.choice((1, 1, 2))
    configured: dict[str, Any] = {}
    may_grow = NEEDS_STRICT_ORDER not in features  # which knows how many shards there are
    if seed >= EXTRAS_FROM and may_grow and random.Random(f"configurations {seed}").random() < _CONFIGURED_SHARE:
        features.append(CONFIGURATIONS)
        configured["stored_configuration"] = True
    return FeaturePlan(
        seed,
        tuple(features),
        {
            **configured,
            "nodes": nodes,
            "logs": LOGS,
            "replicate": f"node:{copies}",
            "log_tree": True,
            "attributes": attributes,
            "faults": "all",
            "fault_interval": rng.choice((0.3, 0.7, 0.7, 2.0)),
        },
    )


def seeds_with(application: str, first: int, count: int) -> Iterator[int]:
    """The first seeds from `first` on that run an application, one of `DRAWN`."""
    return itertools.islice(
        (seed for seed in itertools.count(first) if application in draw_features(seed).features), count
    )


def kinds_for_applications() -> dict[str, str]:
    """Kinds of faults that seeds have, each with the name under which its effects are counted."""
    return {name: CATALOG[name].counted_as for name in usual_faults()}


class _Calm:
    """Faults end when all applications want them to. What broke silently is noticed before they go on: who sends to a machine that lost its power does not learn for the time-out of
    a connection that it is back."""

    def __init__(self, cluster: SimCluster, applications: int) -> None:
        self._cluster = cluster
        self._missing = applications
        self._come = asyncio.Event()

    async def wait(self) -> None:
        self._missing -= 1
        if not self._missing:
            await self._cluster.calm()
            await asyncio.sleep(self._cluster.machines.network.settings.user_timeout * 3 // 2 / 1e6)
            self._come.set()
        await self._come.wait()


class ClusterShare:
    """The cluster as one of several applications has it: a generator of its own, and a calm for which all wait."""

    def __init__(self, cluster: SimCluster, calm: _Calm, rng: random.Random) -> None:
        self._cluster = cluster
        self._calm = calm
        self.rng = rng

    @property
    def machines(self) -> SimMachines:
        """Those of the cluster."""
        return self._cluster.machines

    @property
    def faults(self) -> dict[str, int]:
        """How many of each kind happened."""
        return dict(self._cluster.faults)

    def client(self) -> Client:
        """Another client."""
        return self._cluster.client()

    async def calm(self) -> None:
        """No more faults, as soon as nobody needs them any more."""
        await self._calm.wait()


def run_features(
    seed: int, *, only: str | None = None, echo: Callable[[str], None] | None = None, replay: str = ""
) -> FeatureOutcome:
    """Run the applications of a seed; `FeatureFailure` when a rule does not hold, a machine fails, or it does not end.

    Args:
        only: run this application in place of those of the seed, on a small cluster without faults: what its own processes do to each other is enough.
        echo: gets a line for each event.
        replay: the command that runs the seed again, for the report.
    """
    plan = draw_features(seed)
    if only is not None:
        configured = {"stored_configuration": True} if only == CONFIGURATIONS else {}
        plan = replace(plan, features=(only,), cluster={**SMALL_CLUSTER, **configured})
    seen: list[SimCluster] = []
    epochs: list[int] = []
    before = Counter(HITS)

    async def share_a_cluster(cluster: SimCluster) -> None:
        seen.append(cluster)
        calm = _Calm(cluster, len(plan.features))
        async with asyncio.TaskGroup() as group:
            for name in plan.features:
                share = ClusterShare(cluster, calm, random.Random(f"{name} {seed}"))
                group.create_task(_run(name, cast("SimCluster", share)))
        epochs.append(_greatest_epoch(cluster.machines))

    try:
        simulate(share_a_cluster, seed=seed, virtual_seconds=VIRTUAL_SECONDS, echo=echo, **plan.cluster)
    except SimulationFailed as failed:
        cause = _first(failed.__cause__ or failed)
        notes = "\n".join(getattr(failed, "__notes__", []))
        raise FeatureFailure(plan, f"{type(cause).__name__}: {cause}\n{notes}", replay) from cause
    [cluster] = seen
    machines = cluster.machines
    return FeatureOutcome(
        plan,
        machines.trace.digest(),
        dict(cluster.faults),
        dict(machines.fault_effects),
        {name for name, count in HITS.items() if count > before[name]},
        machines.scheduler.now,
        epochs[0],
    )


def _greatest_epoch(machines: SimMachines) -> int:
    sequencers = (
        sequencer
        for node in machines.nodes.values()
        if node.root is not None and node.root.sequencer is not None
        for sequencer in node.root.sequencer.sequencers.values()
    )
    return max((sequencer.epoch for sequencer in sequencers), default=0)


async def _run(name: str, cluster: SimCluster) -> None:
    try:
        await FEATURES[name](cluster)
    except Exception as error:
        error.add_note(f"application: {name}")
        raise


def _first(error: BaseException) -> BaseException:
    """The exception that made a group of tasks end."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
