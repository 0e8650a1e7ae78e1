"""Arrow, imported when cold copies are used first: everything else does without it."""

from __future__ import annotations

from typing import Any

from client.notebook_packages import notebook_package


def arrow(part: str = "") -> Any:
    """pyarrow, or a part of it.

    Raises:
        ImportError: it is not installed; the text says how to install it.
    """
    return notebook_package("pyarrow" + (f".{part}" if part else ""), "a cold copy", extra="cold")
