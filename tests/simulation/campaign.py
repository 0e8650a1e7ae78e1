"""What a campaign of many seeds has shown so far: counted seed by seed, kept in a file, and held against what it has to show."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Final

from tests.simulation.run_mode import RunMode, campaign_mode
from tests.simulation.search import SeedResult

MARK_HITS_MIN: Final = 10
RECORDS_MIN: Final = 2000
EPOCHS_MIN: Final = 5
FAULTS_MIN: Final = 10
EFFECTS_ARE_SHARED: Final = "effects of kinds that do the same are counted under one name, so a kind can have had an effect in more seeds than it was in"
_IN_JSON: Final = {"str": str, "int": int, "float": (int, float), "bool": bool, "list": list, "dict": dict}
"""What a value of a type is read as."""


def fault_lines(rows: Iterable[tuple[int, int, str]]) -> list[str]:
    """A table for people, of rows as `Campaign.fault_rows` has them."""
    caption = "seeds in which a kind of fault was caused, and in which it did something to somebody"
    return [
        f"{caption} ({EFFECTS_ARE_SHARED})",
        *(f"{caused:8} {effective:6} {kind}" for caused, effective, kind in rows),
    ]


class NoCampaignError(Exception):
    """A file does not hold a campaign; the text says why."""


@dataclass(slots=True, kw_only=True)
class Campaign:
    """Counts of a range of seeds, from the first one on without a gap."""

    commit: str
    """With "+ changes" when the tree differed from it."""
    sources: str
    """Digest of what decides what a seed does; seeds of other sources do not belong to the same campaign."""
    command: str
    first: int
    runs: int
    """How many seeds there are to be."""
    marks: list[str]
    """Those that must be reached."""
    kinds: dict[str, str]
    """Of faults, each with the name under which its effects are counted."""
    features: bool = False
    """Its seeds run applications of later features, each of which must have run and every kind of fault that they meet had an effect. Those check
    what they acknowledge themselves; it is not counted here."""
    store: str = ""
    """What shards are stored in; empty: as scenarios say."""
    keep_going: bool = False
    """A seed that fails does not stop it."""
    elapsed: float = 0.0
    """Seconds of real time."""
    processor: float = 0.0
    """Seconds."""
    virtual: int = 0
    """Microseconds."""
    acknowledged: list[int] = field(default_factory=list)
    """For each seed that went well."""
    epochs: list[int] = field(default_factory=list)
    faults: list[int] = field(default_factory=list)
    loss_seeds: int = 0
    rebuilding_seeds: int = 0
    seeds_with_losses: int = 0
    """Seeds of loss mode that lost acknowledged records, and were told so."""
    silent_seeds: int = 0
    """Seeds of loss mode in which a disk forgot silently what it had made durable: that things go on was checked there, not what was lost."""
    reached: dict[str, int] = field(default_factory=dict)
    """For each mark, by how many seeds."""
    example: dict[str, int] = field(default_factory=dict)
    """For each mark, the first seed that reached it."""
    caused: dict[str, int] = field(default_factory=dict)
    """For each kind of fault, in how many seeds."""
    effective: dict[str, int] = field(default_factory=dict)
    """For each kind of fault, in how many seeds it did something to somebody."""
    counted: int = 0
    """Seeds from the first one on that ended."""
    failures: dict[int, str] = field(default_factory=dict)
    """By seed."""

    def mode(self, seed: int) -> RunMode:
        """In which a seed runs."""
        return RunMode.FEATURES if self.features else campaign_mode(seed)

    @property
    def next_seed(self) -> int:
        """The first one that is not counted."""
        return self.first + self.counted

    @property
    def is_complete(self) -> bool:
        """All seeds are counted."""
        return self.counted >= self.runs

    def add(self, result: SeedResult) -> None:
        """Count the next seed."""
        assert result.seed == self.next_seed, (result.seed, self.next_seed)
        self.counted += 1
        self.processor += result.took
        if result.failure:
            self.failures[result.seed] = result.cause
            return
        self.virtual += result.virtual
        self.acknowledged.append(result.acknowledged)
        self.epochs.append(result.epochs)
        self.faults.append(sum(result.caused.values()))
        mode = self.mode(result.seed)
        self.rebuilding_seeds += mode is RunMode.REBUILDING
        if mode is RunMode.LOSS:
            self.loss_seeds += 1
            self.seeds_with_losses += result.lost > 0
            self.silent_seeds += result.silent
        for mark in sorted(result.marks):
            self.reached[mark] = self.reached.get(mark, 0) + 1
            self.example.setdefault(mark, result.seed)
        for kind, counted_as in self.kinds.items():
            if result.caused.get(kind, 0):
                self.caused[kind] = self.caused.get(kind, 0) + 1
            if result.effects.get(counted_as, 0):
                self.effective[kind] = self.effective.get(kind, 0) + 1

    @property
    def medians(self) -> tuple[float, float, float]:
        """Acknowledged records, epochs, faults that fired."""
        made = [
            statistics.median(values) if values else 0.0 for values in (self.acknowledged, self.epochs, self.faults)
        ]
        return made[0], made[1], made[2]

    def shortfalls(self) -> list[str]:
        """In which way it has not shown what a campaign has to show; empty: it has. Only all seeds together have to show what is rare."""
        found = [
            f"{self.mode(seed).replay(seed, store=self.store)} failed: {cause}"
            for seed, cause in sorted(self.failures.items())
        ]
        if not self.is_complete:
            return [*found, f"partial: {self.counted} of {self.runs} seeds"]
        for what, median, least in zip(
            ("acknowledged records", "epochs", "faults"),
            self.medians,
            (0 if self.features else RECORDS_MIN, EPOCHS_MIN, FAULTS_MIN),
            strict=True,
        ):
            if median < least:
                found.append(f"the median of {what} is {median:g}, less than {least}")
        for mark in self._by_count():
            if (count := self.reached.get(mark, 0)) < MARK_HITS_MIN:
                found.append(f"mark {mark}: reached by {count} seeds, less than {MARK_HITS_MIN}")
        for kind in self.kinds:
            if not self.effective.get(kind, 0):
                found.append(f"fault {kind}: caused in {self.caused.get(kind, 0)} seeds, and had an effect in none")
        return found

    def _by_count(self) -> list[str]:
        return sorted(self.marks, key=lambda mark: (self.reached.get(mark, 0), mark))

    # As text

    def summary(self) -> list[str]:
        """Lines of what was run and how fast."""
        records, epochs, faults = self.medians
        wall, hours = max(self.elapsed, 1e-9), self.virtual / 3.6e9
        return [
            f"commit {self.commit}",
            f"command {self.command}",
            f"seeds {self.first} to {self.next_seed - 1}: {self.counted} of {self.runs}"
            + ("" if self.is_complete else " (partial)")
            + f", {len(self.failures)} failed",
            f"{self.loss_seeds} seeds in loss mode: {self.seeds_with_losses} lost records and were told so; in {self.silent_seeds} "
            "disks forgot silently what was durable, and only that things go on was checked",
            f"{self.rebuilding_seeds} seeds in rebuilding mode: nodes left for good, and what they held was stored again",
            f"medians: {records:g} acknowledged records, {epochs:g} epochs, {faults:g} faults that fired",
            f"{sum(self.acknowledged)} acknowledged records, {sum(self.faults)} faults, {hours:.1f} virtual hours",
            f"{self.counted / wall:.2f} runs a second, {hours / (wall / 60):.2f} virtual hours a real minute, "
            f"{self.processor / max(1, self.counted):.2f} s of processor time a seed",
        ]

    def mark_rows(self) -> list[tuple[int, str, str]]:
        """Seeds that reached a mark, the mark, and the first such seed; the rarest first."""
        return [(self.reached.get(mark, 0), mark, str(self.example.get(mark, ""))) for mark in self._by_count()]

    def fault_rows(self) -> list[tuple[int, int, str]]:
        """Seeds in which a kind of fault was caused, those in which it did something, and its name."""
        return [(self.caused.get(kind, 0), self.effective.get(kind, 0), kind) for kind in self.kinds]

    def markdown(self) -> str:
        """A section for the documentation."""
        shortfalls = self.shortfalls()
        verdict = ["Everything that a campaign has to show was shown."]
        if shortfalls:
            verdict = ["Short of what a campaign has to show:", "", *(f"- {text}" for text in shortfalls)]
        return "\n".join(
            [
                *(f"- {line}" for line in self.summary()),
                "",
                *verdict,
                "",
                *_table(("Seeds", "Mark", "First seed"), self.mark_rows()),
                "",
                f"{EFFECTS_ARE_SHARED.capitalize()}.",
                "",
                *_table(("Seeds with it", "with an effect", "Fault"), self.fault_rows()),
                "",
            ]
        )

    # In a file

    def texts(self, path: Path) -> dict[Path, str]:
        """What a file is to hold of it as JSON, and one beside that as Markdown."""
        values = asdict(self) | {"shortfalls": self.shortfalls()}
        return {path: json.dumps(values, indent=1), path.with_suffix(".md"): self.markdown()}

    @classmethod
    def load(cls, path: Path) -> Campaign:
        """From the JSON of `texts`; `NoCampaignError` when the file holds something else."""
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise NoCampaignError(error.strerror) from error
        except ValueError as error:
            raise NoCampaignError(f"not JSON ({error})") from error
        if not isinstance(values, dict):
            raise NoCampaignError("its JSON is no object")
        values.pop("shortfalls", None)
        of_class = {each.name: each for each in fields(cls)}
        if strange := values.keys() - of_class.keys():
            raise NoCampaignError(f"it has {', '.join(sorted(strange))}, which none has")
        for name, each in of_class.items():
            if name not in values and each.default is MISSING and each.default_factory is MISSING:
                raise NoCampaignError(f"it has no {name}")
            if name in values and not isinstance(values[name], _IN_JSON[str(each.type).partition("[")[0]]):
                raise NoCampaignError(f"its {name} is not of type {each.type}")
        campaign = cls(**values)
        try:
            campaign.failures = {int(seed): cause for seed, cause in campaign.failures.items()}
        except ValueError as error:
            raise NoCampaignError("its failures are not by seed") from error
        return campaign


class InOrder:
    """Puts results of seeds that ran side by side into the order of the seeds."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._ahead: dict[int, SeedResult] = {}

    def put(self, result: SeedResult) -> list[SeedResult]:
        """Those that have their turn, this one perhaps among them."""
        self._ahead[result.seed] = result
        ready = []
        while (found := self._ahead.pop(self._next, None)) is not None:
            ready.append(found)
            self._next += 1
        return ready


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
