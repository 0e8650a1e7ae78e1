"""The ways in which a seed can be run."""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum


class RunMode(Enum):
    """What a run destroys, and what must come of it. The value is what `make sim` is told so that it runs a seed in this mode."""

    USUAL = ""
    """No more than the replication property tolerates: nothing is lost."""
    LOSS = "LOSS=1"
    """More than it tolerates: every loss is declared."""
    REBUILDING = "REBUILD=1"
    """Nodes are lost for good or emptied: what they held is stored again elsewhere, and nothing is lost."""
    FEATURES = "FEATURES=1"
    """Applications of later features instead of the swarm's own: see `features.py`. Nothing is lost."""

    def replay(
        self, seed: int, *, only: Collection[int] | None = None, without: Collection[int] = (), store: str | None = None
    ) -> str:
        """The command that runs the seed again.

        Args:
            only: indexes of faults, when it is run with no others.
            without: indexes of faults that are left out.
            store: what shards are stored in; None: as the scenario says.
        """
        flags = ""
        if only is not None:
            flags = f"--only {_indexes(only)}"
        elif without:
            flags = f"--without {_indexes(without)}"
        return " ".join(
            word
            for word in (
                "make sim",
                f"SEED={seed}",
                self.value,
                f"STORE={store}" if store else "",
                f"SIM_FLAGS='{flags}'" if flags else "",
            )
            if word
        )


def campaign_mode(seed: int) -> RunMode:
    """In which mode a campaign runs this seed."""
    return {7: RunMode.REBUILDING, 8: RunMode.REBUILDING, 9: RunMode.LOSS}.get(seed % 10, RunMode.USUAL)


def _indexes(indexes: Collection[int]) -> str:
    return f'"{",".join(map(str, sorted(indexes)))}"'
