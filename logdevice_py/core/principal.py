"""Who somebody is, and what he may be permitted: principals and permissions."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9_.@-]{1,100}")
GROUP_PREFIX: Final = "group/"
_ANYBODY: Final = "anonymous"


class Permission(enum.Enum):
    """What a principal may do with a log; the values are what people write."""

    APPEND = "append"
    READ = "read"  # records, and what is known of them
    TRIM = "trim"
    ADMIN = "admin"  # everything; where it holds for all logs, internal logs too


def check_principal_name(name: str) -> None:
    """ValueError unless a principal, or a group of them, may be called so."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a principal: up to 100 letters, digits, _, ., @ and -")


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is at the other end of a connection, as it proves."""

    name: str
    groups: frozenset[str] = frozenset()
    """Names of groups, without the prefix with which a grant writes them."""
    grantees: frozenset[str] = field(init=False, compare=False, repr=False)
    """Under which names something may be granted to it. What anonymous peers may do everybody may, by leaving out who he is."""

    def __post_init__(self) -> None:
        names = {self.name, _ANYBODY, *(GROUP_PREFIX + group for group in self.groups)}
        object.__setattr__(self, "grantees", frozenset(names))

    def __str__(self) -> str:
        return self.name


ANONYMOUS: Final = Principal(_ANYBODY)
"""A peer that proves nothing."""
