"""Which objects of a store belong to nothing that counts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from streams.cold.copies import FILE_SUFFIX, MANIFEST_SUFFIX

_OURS: Final = re.compile(r"[0-9a-f]{64}(\.parquet|\.json)(\.[0-9a-f]+\.part)?")


def plan_sweep(names: Iterable[str], committed: Mapping[str, AbstractSet[str]], live: AbstractSet[str]) -> list[str]:
    """The objects of one log's folder to delete, in the order of deletion: a manifest goes before its files, so that no manifest that can be read
    names a file that is gone.

    Args:
        names: paths of objects below the folder of the log: ``TOKEN/HASH.parquet``.
        committed: tokens of committed copies, and the last parts of the names that they use.
        live: tokens of attempts that may still be committed: nothing of theirs is deleted.
    """
    leftovers = []
    for name in names:
        token, _, last = name.partition("/")
        if token not in live and _OURS.fullmatch(last) and last not in committed.get(token, ()):
            leftovers.append(name)
    order = {MANIFEST_SUFFIX: 0, FILE_SUFFIX: 1}
    return sorted(leftovers, key=lambda name: (order.get(name[name.rindex(".") :], 2), name))
