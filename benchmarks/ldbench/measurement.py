"""What one run of one workload on one system came to, and the report that holds them all; both are JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

FORMAT: Final = 1


@dataclass(slots=True, kw_only=True)
class Case:
    """A workload with its parameters: what is the same for all systems."""

    workload: str
    payload_bytes: int = 100
    content: str = "random"
    durability: str = "sync"
    sync_delay_us: int = 0
    seconds: float = 5.0
    """Of the timed part."""
    warmup_seconds: float = 1.0
    parameters: dict[str, Any] = field(default_factory=dict)
    """Of the workload's own."""

    @property
    def key(self) -> str:
        """Names what may be compared: equal for runs of equal work."""
        parts = [self.workload, size_name(self.payload_bytes), self.content, self.durability]
        if self.sync_delay_us:
            parts.append(f"sync+{self.sync_delay_us}us")
        parts += [f"{name}={value}" for name, value in sorted(self.parameters.items())]
        return " ".join(parts)


@dataclass(slots=True, kw_only=True)
class Measurement:
    """One run."""

    case: Case
    engine: str
    setting: str
    round: int
    figures: dict[str, float] = field(default_factory=dict)
    """Names are those of `benchmarks.ldbench.figures`."""
    latency: dict[str, dict[str, float]] = field(default_factory=dict)
    """Milliseconds at percentiles, by what was timed."""
    histograms: dict[str, str] = field(default_factory=dict)
    """The same as encoded HDR histograms."""
    series: dict[str, list[float]] = field(default_factory=dict)
    """Over time: columns ``t`` (seconds), ``records_per_s``, ``p50_ms``, ``p99_ms``."""
    cost: dict[str, dict[str, float]] = field(default_factory=dict)
    """By role: processes, cpu_seconds, peak_bytes, written_bytes."""
    moved_records: int = 0
    moved_bytes: int = 0
    """Payload bytes that the cost was spent on."""
    verified_records: int = 0
    out_of_order: int = 0
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    """Why the measurement is void; then there are no figures to quote."""
    load: float = 0.0
    """Of the machine when it began, average of a minute."""
    started: str = ""

    def per_mb(self, column: str, *, client: bool) -> float | None:
        """Cost for a million payload bytes: of the client process, or of all servers."""
        if not self.moved_bytes:
            return None
        total = sum(cost[column] for role, cost in self.cost.items() if (role == "client") == client)
        return total / (self.moved_bytes / 1e6)

    def add_costs(self) -> None:
        """What goals say of costs, as figures: of the servers, in the timed part."""
        servers = [cost for role, cost in self.cost.items() if role != "client"]
        if not servers:
            return
        self.figures["server_peak_mb"] = max(cost["server_peak_bytes"] for cost in servers) / 1e6
        if self.moved_bytes:
            self.figures["written_per_byte"] = sum(cost["written_bytes"] for cost in servers) / self.moved_bytes

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Measurement:
        """Of what `asdict` made."""
        return cls(**{**raw, "case": Case(**raw["case"])})


@dataclass(slots=True, kw_only=True)
class EngineInfo:
    """A system as it was measured."""

    title: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    acknowledgement: dict[str, str] = field(default_factory=dict)
    """By durability class."""
    configuration: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """Name to description, of all that were tried."""
    unavailable: str | None = None
    """Why it was skipped."""


@dataclass(slots=True, kw_only=True)
class BenchReport:
    """Everything that a run of ``ldbench`` found."""

    format: int = FORMAT
    command: list[str] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    engines: dict[str, EngineInfo] = field(default_factory=dict)
    measurements: list[Measurement] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    """Workloads that a system cannot do, and why."""
    complete: bool = False
    """False: the run was cut short."""

    def save(self, path: Path) -> None:
        """Write it in one step."""
        beside = path.with_suffix(".tmp")
        beside.write_text(json.dumps(asdict(self), indent=1) + "\n")
        beside.replace(path)

    @classmethod
    def load(cls, path: Path) -> BenchReport:
        """Read one.

        Raises:
            ValueError: it is no report, or of another format.
        """
        try:
            raw = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path} is no report: {error}") from None
        if not isinstance(raw, dict) or raw.get("format") != FORMAT:
            raise ValueError(f"{path} is no report of format {FORMAT}: name the report.json of a run")
        try:
            raw["engines"] = {name: EngineInfo(**info) for name, info in raw["engines"].items()}
            raw["measurements"] = [Measurement.from_json(each) for each in raw["measurements"]]
            return cls(**raw)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is no report as this version writes it: {error!r}") from None


def size_name(size: int) -> str:
    """Decimal: ``100B``, ``1KB``, ``900KB``."""
    for unit, factor in (("MB", 1_000_000), ("KB", 1000)):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"
