"""Coverage marks: rare branches say that they were reached, tests and simulation check that they were.

``marks.hit("second_wave")`` costs one dictionary update.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

HITS: Final[Counter[str]] = Counter()
"""How often each mark was reached in this process."""


def hit(name: str) -> None:
    """Note that the branch `name` was taken."""
    HITS[name] += 1
