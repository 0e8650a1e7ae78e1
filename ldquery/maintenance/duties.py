"""Which nodes see to something for the cluster, as column `duties` of table `info` tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def sees_to(duty: str, info: Iterable[Mapping[str, Any]]) -> list[str]:
    """The nodes that have a duty, as ``N3``, each with what is the matter with it.

    Args:
        info: rows of table `info`.
    """
    return [
        f"N{row['node_id']}{each.removeprefix(duty)}"
        for row in info
        for each in str(row.get("duties") or "").split("; ")
        if each == duty or each.startswith(f"{duty} (")
    ]
