"""Which objects of a store belong to nothing that counts."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from streams.cold.copies import FILE_SUFFIX, MANIFEST_SUFFIX

_OURS: Final = re.compile(r"[0-9a-f]{64}(\.parquet|\.json)(\.[0-9a-f]+\.part)?")


def plan_sweep(
    names: Iterable[str],
    committed: Mapping[str, AbstractSet[str]],
    live: AbstractSet[str],
    over: Container[str] | None = None,
) -> list[str]:
    """The objects of one log's folder to delete, in the order of deletion: a manifest goes before its files, so that no manifest that can be read
    names a file that is gone.

    Args:
        names: paths of objects below the folder of the log: ``TOKEN/HASH.parquet``.
        committed: tokens of committed copies, and the last parts of the names that they use.
        live: tokens of attempts that may still be committed: nothing of theirs is deleted.
        over: tokens of attempts of which only what is in `committed` counts, now and for ever: nothing of others is deleted. None: all that are not live.
    """
    leftovers = []
    for name in names:
        token, _, last = name.partition("/")
        if token in live or (over is not None and token not in over):
            continue
        if _OURS.fullmatch(last) and last not in committed.get(token, ()):
            leftovers.append(name)
    order = {MANIFEST_SUFFIX: 0, FILE_SUFFIX: 1}
    return sorted(leftovers, key=lambda name: (order.get(name[name.rindex(".") :], 2), name))
