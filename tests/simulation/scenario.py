"""What a seed stands for: a cluster, its settings, its workload and its faults."""

from __future__ import annotations

import dataclasses
import itertools
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from client.read.settings import ReadSettings
from client.settings import ClientSettings, WriterSettings
from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.location import Location
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import LogId
from logdevice_py.core.units import MILLISECOND, SECOND
from logdevice_py.simulation.connection import Bandwidth
from logdevice_py.simulation.network import NetworkSettings
from sequencer.recovery.settings import RecoverySettings
from sequencer.settings import SequencerSettings
from server.simulation.faults.nemesis import CATALOG, FaultSchedule
from server.simulation.machines import CLIENT_ADDRESS, SimMachines
from storage_node.settings import StorageSettings
from tests.simulation.cluster_plan import ClusterPlan, NodePlan
from tests.simulation.profiles import PROFILES, TroubleProfile
from tests.simulation.run_mode import RunMode

_GOSSIP = (
    ("gossip_interval_us = '100ms'", "gossip_threshold = 10", "starting_intervals = 3"),
    *3 * (("gossip_interval_us = '250ms'", "gossip_threshold = 4", "starting_intervals = 2"),),
)
"""A death is noticed within a little more than a second. Slower detection would only make runs longer; frequent gossip is half of the events of a run,
and shows little more than rare gossip does."""


_HOSTILE_SHARE = 0.15
"""Of the runs that have peers which send what they made up."""
_PROFILE_SHARE = 0.5
"""Of the runs that are devoted to one kind of trouble."""
_MOVES_SHARE = 0.3
"""Of the runs whose records are spread over racks."""
_REMOVALS_SHARE = 0.5
"""Of the runs in rebuilding mode."""


@dataclass(slots=True, kw_only=True)
class Scenario:
    """Drawn from a seed."""

    seed: int
    config: ClusterConfig
    copies: int
    logs: list[LogId]
    network: NetworkSettings
    client_settings: ClientSettings
    read_settings: ReadSettings
    turn_max: int
    duration: int
    """Of the part with faults, in microseconds. Longer ones cost in proportion, and have no more epochs, faults and records."""
    faults: list[str]
    """Kinds of faults that may happen."""
    fault_interval: int
    stream_writers: int
    appenders: int
    readers: int
    write_interval: int
    wipes_max: int
    trim_interval: int
    """0: nobody trims, moves logs to other epochs, or changes the cluster file."""
    epoch_interval: int
    config_interval: int
    tail_interval: int = SECOND
    log_starts: dict[LogId, int] = field(default_factory=dict)
    """From when on a log is used, in microseconds; the others from the beginning."""
    find_interval: int = 0
    """0: nobody looks for times."""
    succession_interval: int = 0
    """Between two records of a writer that is run by one process after another; 0: there is none."""
    exclusive_interval: int = 0
    """Between two calls of each of two processes that share a write stream; 0: there are none."""
    log_ends: dict[LogId, int] = field(default_factory=dict)
    """Until when a log is used; the others to the end."""
    unused_logs: list[LogId] = field(default_factory=list)
    """Logs that nobody uses before the end."""
    move_interval: int = 0
    """Between two moves of nodes to other racks; 0: none is moved."""
    removals: bool = False
    """Nodes are drained and taken out of the cluster file, one after the other."""
    removal_interval: int = 0
    """Between two changes of which logs are in the cluster file; 0: none leaves it."""
    grows_at: int = 0
    """When nodes that were disabled take records; 0: all do from the start."""
    distances: dict[tuple[int, int], int] = field(default_factory=dict)
    """Microseconds from one region to another, by their numbers; none: nodes stand together."""
    bandwidth: int = 0
    """Bytes a second from one region to another one; 0: without limit."""
    hedged: bool = False
    """Readers ask others for what a shard owes, most of those that get each entry from one shard."""
    disk_bytes: int = 1 << 40
    """Of the file system of each shard."""
    frame_bytes_max: int = 256 << 10
    profile: str = ""
    """What the run is devoted to; empty: to nothing in particular."""
    plan: ClusterPlan = field(repr=False)
    text: str = field(repr=False)

    def writer_settings(self, rng: random.Random) -> WriterSettings:
        """Of one BufferedWriter."""
        return WriterSettings(
            time_trigger_us=rng.choice([-1, -1, 0, 10 * MILLISECOND]),
            compression=rng.choice(["none", "none", "lz4", "zstd"]),
            frames_in_flight_max=rng.choice([1, 3, 64]),
            size_trigger_bytes=min(rng.choice([64, 4096, 256 << 10]), self.frame_bytes_max),
            silence_us=rng.choice([500 * MILLISECOND, 5 * SECOND]),
            timeout_us=rng.choice([120 * SECOND] * 14 + [3 * SECOND, 500 * MILLISECOND]),
        )

    @property
    def devoted_to(self) -> frozenset[str]:
        """What the run has in particular."""
        others = zip(_DEVOTIONS, (self.move_interval, self.removals, self.distances, self.hedged), strict=True)
        return frozenset({self.profile, *(name for name, has in others if has)})

    def place(self, cluster: SimMachines) -> None:
        """Let what passes between regions take its time. Clients stand in regions in turn, too, and read near."""
        regions, addresses = self.plan.regions, [*range(_FARTHEST), *(CLIENT_ADDRESS - n for n in range(4 * _FARTHEST))]
        if self.distances:
            cluster.client_location = lambda address: Location.parse(f"region{address % regions}....")
        routes = {pair: Bandwidth(self.bandwidth) for pair in self.distances if self.bandwidth}
        for source in addresses:
            for target in addresses:
                pair = source % regions, target % regions
                distance = self.distances.get(pair)
                if distance and (source >= 0 or target >= 0):
                    cluster.network.distances[source, target] = distance
                    if pair in routes:
                        cluster.network.routes[source, target] = routes[pair]

    @property
    def fault_schedule(self) -> FaultSchedule:
        """What goes wrong."""
        return FaultSchedule(self.faults, self.fault_interval, self.duration, self.logs)

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {len(self.config.nodes)} nodes, logs {len(self.logs)}, copies {self.copies}, "
            f"{self.stream_writers} writers, {self.appenders} appenders, {self.readers} readers, "
            f"{self.duration / 1e6:.0f} s, {self.profile or 'anything'}, faults: {', '.join(self.faults) or 'none'}"
        )


_EXTRAS_FROM: Final = 100
"""Tests name seeds below."""
_EXTRAS_SHARE: Final = 0.15
_REGIONS_SHARE: Final = 0.12
_SMALL_SHARE: Final = 0.7
"""Of the runs in rebuilding mode in which nodes neither move nor leave the cluster file: the cluster begins with as few nodes as entries have copies, so that what one of these held has no
place in the nodesets of the first epochs."""
_HEDGES_SHARE: Final = 0.2
_CLOSES_DEAD_SHARE: Final = 0.7
"""Of runs whose connections to nodes that count as dead are closed when nothing passes, as in production; in the others they outlast short blocks."""
_OF_REGIONS: Final = ("region:2", "region:2,node:3")
"""What logs promise where nodes stand in regions."""
_DEVOTIONS: Final = ("moves", "removals", "regions", "hedges")
DEVOTIONS: Final = frozenset({*_DEVOTIONS, *(profile.name for profile in PROFILES)})
"""What runs may be devoted to."""
_FARTHEST: Final = 16
"""Numbers of nodes, and of clients, that stand somewhere."""


def draw(seed: int, mode: RunMode = RunMode.USUAL) -> Scenario:
    """The scenario of a seed. In loss mode its faults destroy more than the replication property tolerates. In rebuilding mode its cluster keeps an
    event log, and has nodes enough that what one held fits on the others."""
    loses, rebuilds = mode is RunMode.LOSS, mode is RunMode.REBUILDING
    rng = random.Random(seed)
    faults = _loss_faults(rng) if loses else _faults(rng)
    profile = _profile(rng, loses) if rng.random() < _PROFILE_SHARE else None
    if profile is not None:
        # what destroys is what runs with losses are for; each kind has the same chance as often as it stands there
        beside = faults if loses else rng.sample(faults, min(len(faults), rng.randrange(3)))
        faults = [*beside, *(rng.sample(profile.faults, 3) if loses else profile.faults)]
    if faults and random.Random(f"hostile {seed}").random() < _HOSTILE_SHARE:
        faults += [kind.name for kind in CATALOG.values() if kind.hostile]
    asynchronous = rng.random() < 0.12
    nodes = max(rng.choice([3, 3, 4, 5, 5]), 0 if profile is None else profile.nodes)
    if rebuilds:
        nodes = rng.choice([5, 6])
    removals = rebuilds and random.Random(f"removals {seed}").random() < _REMOVALS_SHARE
    if removals:
        nodes = 7
    racks = rng.choice([1, 2, 3]) if nodes > 3 else rng.choice([1, 3])
    choices = ["node:2", "node:3"] if nodes > 2 else ["node:2"]
    if racks > 1:
        choices += ["rack:2", "rack:2,node:3"]
    if racks > 2:
        choices += ["rack:3"]
    replicate = rng.choice(choices)
    logs = [LogId(number) for number in range(1, 1 + rng.choice([1, 1, 2, 3]))]
    if profile is not None and profile.logs:
        logs = [LogId(number) for number in range(1, 1 + profile.logs)]
    plan = ClusterPlan(
        replicate=replicate,
        racks=racks,
        attributes={
            "sequencer_batching": "true" if rng.random() < 0.8 else "false",
            "sticky_copysets": "true" if rng.random() < 0.5 else "false",
            "sticky_block_bytes": rng.choice(['"1B"', '"10KiB"', '"32MiB"']),
            "single_copy_delivery": "true" if rng.random() < 0.7 else "false",
            "max_writes_in_flight": str(rng.choice([2, 5, 100, 1000])),
            "window_bytes": rng.choice(['"1MiB"', '"64MiB"']),
            "batching_compression": rng.choice(['"none"', '"none"', '"lz4"']),
            "batching_time_us": rng.choice(['"0us"', '"0us"', '"5ms"']),
            "batching_size_bytes": rng.choice(['"1B"', '"1KiB"', '"1MiB"']),
            "nodeset_size": str(rng.choice([0, 0, 0, nodes])),
        },
        nodes={
            node: NodePlan(["storage"] if node > 1 and rng.random() < 0.15 else ["sequencer", "storage"], node % racks)
            for node in range(nodes)
        },
    )
    moving = random.Random(f"moves {seed}")
    moves = not loses and _may_move(replicate, profile) and moving.random() < _MOVES_SHARE
    if moves:
        _let_move(plan, moving, changes_nodes=removals or not rebuilds)
    regional = random.Random(f"regions {seed}")
    distances: dict[tuple[int, int], int] = {}
    if seed >= _EXTRAS_FROM and not moves and profile is None and nodes > 3 and regional.random() < _REGIONS_SHARE:
        distances = _let_have_regions(plan, regional)
        faults += regional.sample(_REGIONAL, regional.randrange(1, len(_REGIONAL) + 1))
    if asynchronous:
        plan.attributes["durability"] = '"async"'
    if profile is not None:
        for name, values in profile.attributes.items():
            plan.attributes[name] = rng.choice(values)
    extras = random.Random(f"extra copies {seed}")
    if seed >= _EXTRAS_FROM and extras.random() < _EXTRAS_SHARE:
        plan.let_have_extras(extras.choice([1, 1, 2]))
    for section, cls in (
        ("sequencer", SequencerSettings),
        ("recovery", RecoverySettings),
        ("storage", StorageSettings),
    ):
        plan.settings += _settings(rng, section, cls, profile)
    if removals and random.Random(f"idle logs {seed}").random() < 0.5:
        _leave_idle_logs(plan.settings)
    plan.settings += ["[settings.membership]", *rng.choice(_GOSSIP)]
    grows_at = 0
    if rebuilds:
        plan.settings += _rebuilding(rng)
        if not (removals or moves or distances or "extra_copies" in plan.attributes):
            small = random.Random(f"small {seed}")
            if small.random() < _SMALL_SHARE:
                plan.begin_small()
                grows_at = small.choice([1, 2, 3]) * SECOND
    source = plan.render()
    config = load_cluster(source)
    copies = config.log(logs[0]).replication.copies  # type: ignore[union-attr]
    minutes = any(CATALOG[kind].minutes for kind in faults)
    made = Scenario(
        seed=seed,
        config=config,
        copies=copies,
        logs=logs,
        network=NetworkSettings(
            delay_max=rng.choice([100, 500, 500, 20 * MILLISECOND]),
            slow_probability=rng.choice([0.0, 0.01, 0.1]),
            slow_max=rng.choice([20 * MILLISECOND, 500 * MILLISECOND]),
        ),
        client_settings=ClientSettings(
            coalesce_in_flight=rng.choice([1, 2, 1000]), coalesce_wait_us=rng.choice([0, 5_000, 50_000])
        ),
        read_settings=_read_settings(rng),
        turn_max=rng.choice([0, 20, 1000, 5000]),
        duration=(120 if minutes else rng.choice([5, 10])) * SECOND,
        faults=faults,
        fault_interval=rng.choice([250, 500, 500, 1000]) * MILLISECOND,
        stream_writers=rng.choice([1, 1, 2, 3]),
        appenders=rng.choice([0, 1, 2]),
        readers=rng.choice([1, 2, 3]),
        write_interval=(300 if minutes else rng.choice([20, 20, 20, 50, 100])) * MILLISECOND,
        wipes_max=copies - 1,
        text=source,
        plan=plan,
        trim_interval=rng.choice([0, 0, 0, 2, 10]) * SECOND,
        epoch_interval=rng.choice([0, 500 * MILLISECOND, 1500 * MILLISECOND, 5 * SECOND]),
        config_interval=0 if loses else rng.choice([0, 0, 3 * SECOND, 10 * SECOND]),
        find_interval=rng.choice([0, 0, 0, 0, SECOND, 3 * SECOND]),
    )
    expires = plan.attributes.get("backlog_us", '"0us"') != '"0us"'
    keeps_all = not expires and not made.trim_interval and (profile is None or not profile.trims_by_itself)
    if not loses and keeps_all and rng.random() < 0.2:
        # who takes over has to find what was written
        made.succession_interval = 40 * MILLISECOND
    elif not loses and keeps_all and rng.random() < 0.2:
        # each has to find all that was written
        made.exclusive_interval = 40 * MILLISECOND
    late = 1.0 if profile is not None and profile.late_logs else 0.6 if loses else 0.25
    if rebuilds:
        made.config_interval = 0
    made.log_starts = {log: rng.randrange(made.duration) for log in logs[1:] if rng.random() < late}
    if profile is not None:
        made.profile = profile.name
        for name, value in profile.scenario.items():
            if name != "config_interval" or not (loses or rebuilds):
                setattr(made, name, value)
        if profile.disk_bytes:
            made.disk_bytes = rng.choice(profile.disk_bytes)
        made.read_settings = dataclasses.replace(made.read_settings, **profile.reading)
    made.distances = distances
    made.grows_at = grows_at
    if distances:
        made.bandwidth = random.Random(f"bandwidth {seed}").choice(_BANDWIDTHS)
    hedging = random.Random(f"hedges {seed}")
    if seed >= _EXTRAS_FROM and hedging.random() < _HEDGES_SHARE:
        _let_hedge(made, hedging)
    if seed >= _EXTRAS_FROM:
        made.network.closes_dead = random.Random(f"dead connections {seed}").random() < _CLOSES_DEAD_SHARE
    if moves:
        made.move_interval = moving.choice([1, 2, 5]) * SECOND
    if removals:
        _add_removals(made, random.Random(f"removals of {seed}"))
    return made


def devoted_seeds(what: str, first: int, count: int, mode: RunMode = RunMode.USUAL) -> Iterator[int]:
    """The first seeds from `first` on that are devoted to something, one of `DEVOTIONS`."""
    return islice((seed for seed in itertools.count(first) if what in draw(seed, mode).devoted_to), count)


_REGIONAL: Final = [kind.name for kind in CATALOG.values() if kind.regional]


_BANDWIDTHS: Final = (0, 1_000_000, 4_000_000, 20_000_000)


def _let_have_regions(plan: ClusterPlan, rng: random.Random) -> dict[tuple[int, int], int]:
    """Nodes stand in two or three regions, and most logs promise copies in two of them; how far these are apart."""
    plan.regions = rng.choice([2, 3, 3])
    if rng.random() < 0.8:
        plan.replicate = rng.choice(_OF_REGIONS)
    if rng.random() < 0.5:
        plan.attributes["sequencer_affinity"] = rng.choice(['"region0...."', '"region1...., region0...."'])
    found: dict[tuple[int, int], int] = {}
    for one in range(plan.regions):
        for two in range(one):
            found[one, two] = found[two, one] = rng.choice([1, 5, 15, 40]) * MILLISECOND
    return found


def _let_hedge(made: Scenario, rng: random.Random) -> None:
    """Readers hedge. Mostly so soon, and so often, that many hedges are under way when something goes wrong."""
    made.hedged = True
    made.read_settings = dataclasses.replace(
        made.read_settings,
        hedge_delay_us_min=rng.choice([100, 5 * MILLISECOND]),
        hedge_delay_us_initial=rng.choice([100, 5 * MILLISECOND, 50 * MILLISECOND]),
        hedge_budget_percent=rng.choice([5, 100, 100]),
        hedge_penalty_us=rng.choice([50 * MILLISECOND, 2 * SECOND, 60 * SECOND]),
    )


def _may_move(replicate: str, profile: TroubleProfile | None) -> bool:
    """Whether it matters where nodes stand, and a move does not disturb what the run is devoted to."""
    return "rack" in replicate and (profile is None or profile.scenario.get("config_interval", 1) != 0)


def _let_move(plan: ClusterPlan, rng: random.Random, *, changes_nodes: bool) -> None:
    """Nodes that keep metadata logs stay in their racks: those logs do without racks, or some nodes do not keep them."""
    if changes_nodes or rng.random() < 0.5:
        plan.metadata_replicate = "node:3"
    else:
        plan.metadata_nodeset = list(plan.nodes)[:4]


def _leave_idle_logs(settings: list[str]) -> None:
    """Nodes look for logs that nobody uses so late that drains would be over, if they did not wait for that."""
    name, section = "idle_logs_delay_us", "[settings.sequencer]"
    settings[:] = [line for line in settings if not line.startswith(name)]
    if section not in settings:
        settings.append(section)
    settings.insert(settings.index(section) + 1, f'{name} = "10s"')


def _add_removals(made: Scenario, rng: random.Random) -> None:
    """Drains take a while. One log more is used at the beginning only, and one not at all: of these nothing meets what departs."""
    idle, unused = (LogId(len(made.logs) + number) for number in (1, 2))
    made.logs = [*made.logs, idle, unused]
    made.log_ends[idle] = rng.randrange(SECOND, 5 * SECOND)
    made.log_starts[unused] = sys.maxsize
    made.unused_logs = [unused]
    made.removals = True
    made.duration = max(made.duration, rng.choice([30, 40]) * SECOND)
    made.write_interval = max(made.write_interval, 100 * MILLISECOND)
    made.fault_interval = max(made.fault_interval, rng.choice([1, 2, 5]) * SECOND)


def _rebuilding(rng: random.Random) -> list[str]:
    """Settings of a cluster that rebuilds soon."""
    return [
        "[settings.rebuilding]",
        "enabled = true",
        f'self_initiated_grace_period_us = "{rng.choice([2, 3, 5])}s"',
        'supervision_us = "200ms"',
        f'chunk_bytes = "{rng.choice([1, 1000, 1_000_000])}B"',
        f"logs_in_flight = {rng.choice([1, 8])}",
        f"snapshot_events = {rng.choice([2, 5, 20])}",
        'store_timeout_us = "2s"',
        'retry_us_max = "1s"',
        "tries_max = 8",
    ]


def _profile(rng: random.Random, loses: bool) -> TroubleProfile:
    """Any one; where more is destroyed than tolerated, one that destroys more often than not."""
    destroying = loses and rng.random() < 0.5
    return rng.choice(
        [each for each in PROFILES if not destroying or any(CATALOG[kind].destroys for kind in each.faults)]
    )


def _faults(rng: random.Random) -> list[str]:
    """A few kinds, so that each run is bad in its own way: a run with all of them hardly gets anywhere."""
    if rng.random() < 0.05:
        return []
    share = rng.choice([0.05, 0.15, 0.3])
    kinds = [kind for kind in CATALOG.values() if not kind.silent and not kind.hostile and not kind.regional]
    return [kind.name for kind in kinds if rng.random() < (share / 10 if kind.minutes else share)]


def _loss_faults(rng: random.Random) -> list[str]:
    """Kinds that destroy, and a few others. Those of which the shards do not know are rare: little can be checked afterwards."""
    silent = rng.random() < 0.2
    destructive = [kind.name for kind in CATALOG.values() if kind.destroys and kind.silent is silent]
    others = [
        kind.name for kind in CATALOG.values() if not (kind.destroys or kind.minutes or kind.hostile or kind.regional)
    ]
    return rng.sample(destructive, rng.randrange(1, 3)) + rng.sample(others, rng.randrange(3))


def _settings(rng: random.Random, section: str, cls: type[Any], profile: TroubleProfile | None) -> list[str]:
    """A few settings drawn from the range that their declarations give for simulation, and most of those of the profile."""
    lines: list[str] = []
    drawn: set[str] = set()
    for name, values in ({} if profile is None else profile.settings.get(section, {})).items():
        if profile.strict or rng.random() < 0.6:  # type: ignore[union-attr]
            drawn.add(name)
            lines.append(f"{name} = {rng.choice(values)}")
    for each in dataclasses.fields(cls):
        span = each.metadata.get("sim")
        if span is None or each.name in drawn or rng.random() < 0.7:
            continue
        value = span[0] + int((span[1] - span[0]) * rng.random() ** 4)
        unit = each.metadata["unit"]
        name = each.name
        if unit == "us":
            lines.append(f'{name} = "{value}us"')
        elif unit == "bytes":
            lines.append(f'{name} = "{value}B"')
        else:
            lines.append(f"{name} = {value}")
    return [f"[settings.{section}]", *lines] if lines else []


def _read_settings(rng: random.Random) -> ReadSettings:
    if rng.random() < 0.6:
        return ReadSettings()
    return ReadSettings(
        buffer_bytes=rng.choice([64 << 10, 1 << 20]),
        shard_buffer_bytes_min=rng.choice([100, 64 << 10]),
        window_lsns=rng.choice([2, 10, 1000]),
        far_buffer_bytes=256 << 10,
    )
