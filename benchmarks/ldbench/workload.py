"""What a workload is, and how long and how large the runs of it are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from benchmarks.ldbench.bench import WorkloadBench
from benchmarks.ldbench.engine import Engine, Mode, Setting
from benchmarks.ldbench.measurement import Case

OUR_ENGINES: Final = frozenset({"logdevice", "logdevice-2of3"})
"""Systems that are ours, with different promises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """How much is measured."""

    name: str
    seconds: float
    """Of the timed part of a run."""
    warmup_seconds: float
    rounds: int
    sizes: tuple[int, ...]
    contents: tuple[str, ...]
    durabilities: tuple[str, ...]
    all_settings_up_to: int
    """Bytes of a payload: larger ones are measured with the first setting only."""
    thorough: bool
    """Every setting also in workloads that do not decide which one is the best of a system; all sizes, loads and numbers of readers."""
    share_servers: bool
    """Groups of workloads and sizes of records share servers, to save their starts."""
    repeats: int
    """Of faults in one run."""
    watch_copies: float
    """Seconds of load behind the failure of a server that keeps copies."""
    idle_logs: int
    unreleased: tuple[int, ...]
    steady_bytes: int
    """What is written before the load of `steady`, where servers are not to be fresh."""
    read_records: int
    """What is written before it is read, in records of 100 B; larger records: fewer, up to as many bytes."""


SMOKE = Scale(
    name="smoke",
    seconds=0.5,
    warmup_seconds=0.1,
    rounds=1,
    sizes=(100,),
    contents=("random",),
    durabilities=("sync",),
    all_settings_up_to=0,
    thorough=False,
    share_servers=True,
    repeats=1,
    watch_copies=3.0,
    idle_logs=500,
    unreleased=(0, 100),
    steady_bytes=2_000_000,
    read_records=20_000,
)
SHORT = Scale(
    name="short",
    seconds=1.0,
    warmup_seconds=0.3,
    rounds=1,
    sizes=(100, 10_000, 100_000, 900_000),
    contents=("random",),
    durabilities=("sync",),
    all_settings_up_to=100,
    thorough=False,
    share_servers=True,
    repeats=1,
    watch_copies=6.0,
    idle_logs=5_000,
    unreleased=(0, 1_000),
    steady_bytes=5_000_000_000,
    read_records=100_000,
)
FULL = Scale(
    name="full",
    seconds=20.0,
    warmup_seconds=3.0,
    rounds=5,
    sizes=(100, 1_000, 10_000, 100_000, 900_000),
    contents=("random", "compressible"),
    durabilities=("sync", "async"),
    all_settings_up_to=900_000,
    thorough=True,
    share_servers=False,
    repeats=20,
    watch_copies=10.0,
    idle_logs=100_000,
    unreleased=(0, 1_000, 10_000, 50_000),
    steady_bytes=5_000_000_000,
    read_records=3_000_000,
)
SCALES = {scale.name: scale for scale in (SMOKE, SHORT, FULL)}


class Workload(Protocol):
    """One kind of load. Has no state: everything of a run is in its `WorkloadBench`."""

    name: str
    title: str
    """What is measured, for tables."""
    primary: str
    """The figure by which systems and settings are compared; a key of `FIGURES`."""
    group: str
    """Workloads of one group share the servers of a run."""
    mode: Mode | None
    """Whose settings are tried; None: the engine's lone setting."""
    tolerate_failure: bool
    """Servers are killed and paused."""
    engines: frozenset[str] | None
    """The only systems for which it makes sense; None: all."""
    decisive: bool
    """Every setting is tried in it, whatever the scale."""
    breaks_leaders: bool
    """The server that takes a log's appends is broken."""
    partitions: bool
    """Servers are cut off from the network."""
    several_writers: bool
    """Has several writers to one log."""
    fresh: bool
    """Shares no servers with workloads of other groups, whatever the scale."""

    def sizes(self, scale: Scale) -> Sequence[int]:
        """Payload sizes that make sense, of those of the scale."""

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """Its own variants; one empty dictionary when it has none."""

    def logs(self, case: Case) -> int:
        """How many logs a run needs."""

    def impossible(self) -> str | None:
        """Why it cannot be run on this machine, for people; None when it can."""

    async def run(self, bench: WorkloadBench) -> None:
        """Measure, verify, and fill in the measurement.

        Raises:
            WrongResultError, EngineError, AppendError: the measurement is void.
        """


class WorkloadDefaults:
    """What most workloads have in common."""

    group = "write"
    mode: Mode | None = Mode.SINGLE
    tolerate_failure = False
    breaks_leaders = False
    partitions = False
    engines: frozenset[str] | None = None
    decisive = False
    several_writers = False
    fresh = False

    def sizes(self, scale: Scale) -> Sequence[int]:
        """All of them."""
        return scale.sizes

    def parameters(self, scale: Scale) -> Sequence[dict[str, Any]]:
        """No variants."""
        return ({},)

    def logs(self, case: Case) -> int:
        """One."""
        return 1

    def impossible(self) -> str | None:
        """Everywhere."""
        return None


class SmallestOnly(WorkloadDefaults):
    """Large payloads would show the disks, as other workloads do."""

    def sizes(self, scale: Scale) -> Sequence[int]:
        """The smallest."""
        return [min(scale.sizes)]


def settings_of(workload: Workload, engine: Engine) -> Sequence[Setting]:
    """Which settings of an engine are tried; empty when its client has nothing of the kind."""
    return (engine.lone_setting(),) if workload.mode is None else engine.settings(workload.mode)
