"""Finds the fewest faults with which a seed still fails, and prints them."""

from __future__ import annotations

from tests.simulation.run_mode import RunMode
from tests.simulation.search import fewest_faults


def shrink(seed: int, mode: RunMode, seconds: float, store: str | None = None) -> None:
    """Look for so many seconds; not at all if that is 0, nor where faults cannot be left out."""
    if not seconds or mode is RunMode.FEATURES:
        return
    try:
        faults, in_time = fewest_faults(seed, mode, seconds=seconds, store=store)
    except KeyboardInterrupt:
        print("interrupted while looking for the fewest faults")
        return
    print("fails with these faults" + (":" if in_time else " (there was no time to try for fewer):"))
    print("\n".join(f"  {planned}" for planned in faults) or "  none")
    print(f"replay: {mode.replay(seed, only=[planned.index for planned in faults], store=store)}")
