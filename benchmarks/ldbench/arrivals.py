"""When records arrive in an open loop: independent of how the system copes."""

from __future__ import annotations

import random
from array import array
from typing import Final

NANOSECONDS: Final = 1_000_000_000


def poisson_arrivals(rate: float, seconds: float, rng: random.Random) -> array[int]:
    """Times in nanoseconds from 0 to `seconds`, ascending, of a Poisson process with `rate` events a second."""
    if rate <= 0:
        raise ValueError("the rate must be above 0")
    times: array[int] = array("q")
    at, until = rng.expovariate(rate), seconds
    while at < until:
        times.append(int(at * NANOSECONDS))
        at += rng.expovariate(rate)
    return times
