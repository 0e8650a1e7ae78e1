"""What may fail at once: how many domains of a kind can be lost before something that a log needs is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from logdevice_py.core.ids import ShardId

LOSSES_MAX: Final = 20_000
"""How many sets of lost domains are looked at; in larger clusters the answer is a lower bound."""


@dataclass(frozen=True, slots=True)
class Survival:
    """How many domains may be lost, whichever they are."""

    any_of: int
    """-1: what is needed is not there now, although none is lost."""
    fatal: tuple[str, ...] = ()
    """The smallest loss that is too much, by the names of domains; empty: not known, or even the loss of all is none."""
    is_exact: bool = True
    """False: more may be survived, too many losses would have to be looked at."""


def domains_among(shards: Iterable[ShardId], domain: Callable[[ShardId], str]) -> dict[str, frozenset[ShardId]]:
    """The domains that shards lie in, with their members, in order of names."""
    members: dict[str, set[ShardId]] = {}
    for shard in shards:
        members.setdefault(domain(shard), set()).add(shard)
    return {name: frozenset(members[name]) for name in sorted(members)}


def survival(domains: dict[str, frozenset[ShardId]], holds: Callable[[frozenset[ShardId]], bool]) -> Survival:
    """How many of the domains may be lost so that something still holds.

    Args:
        domains: by name.
        holds: whether it does without these shards; a larger loss never makes it hold.
    """
    if not holds(frozenset()):
        return Survival(-1)
    looked_at = 0
    for count in range(1, len(domains) + 1):
        for lost in combinations(domains, count):
            looked_at += 1
            if looked_at > LOSSES_MAX:
                return Survival(count - 1, is_exact=False)
            if not holds(frozenset().union(*(domains[name] for name in lost))):
                return Survival(count - 1, lost)
    return Survival(len(domains))


def copies_survive(copysets: Iterable[Sequence[ShardId]], domain: Callable[[ShardId], str]) -> Survival | None:
    """How many domains may be lost so that every entry keeps a copy; None: there are no entries.

    Args:
        copysets: of the entries, without shards that are lost already. One that is empty has lost all.
    """
    spans = [tuple(sorted({domain(shard) for shard in copyset})) for copyset in copysets]
    if not spans:
        return None
    narrowest = min(spans, key=lambda names: (len(names), names))
    return Survival(len(narrowest) - 1, narrowest)


def in_words(survived: dict[str, Survival]) -> str:
    """What is survived, as "any one region, or any two nodes"; empty: nothing is.

    Args:
        survived: by the name of the scope, large to small. Scopes that say no more than a larger one are left out.
    """
    parts: list[str] = []
    most = 0
    for scope, found in survived.items():
        if found.any_of > most:
            most = found.any_of
            number = _NUMBERS[found.any_of] if found.any_of < len(_NUMBERS) else str(found.any_of)
            parts.append(f"any {number} {scope}{'s' * (found.any_of != 1)}{'' if found.is_exact else ' or more'}")
    return ", or ".join(parts)


_NUMBERS: Final = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
