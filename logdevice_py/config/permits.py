"""The attribute `permit` of logs: who may do what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from logdevice_py.core.principal import GROUP_PREFIX, Permission, Principal, check_principal_name
from logdevice_py.core.suggestion import suggestion

_BY_NAME: Final = {each.value: each for each in Permission}
_EXAMPLE: Final = 'write ["append:svc-clicks", "read:group/bi"]'


@dataclass(frozen=True, slots=True)
class Permits:
    """Grants: each gives one permission to a principal, to a group (``group/bi``), or to everybody (``anonymous``)."""

    grants: frozenset[tuple[Permission, str]] = frozenset()
    _grantees: dict[Permission, frozenset[str]] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        grantees = {
            permission: frozenset(who for granted, who in self.grants if granted in (permission, Permission.ADMIN))
            for permission in Permission
        }
        object.__setattr__(self, "_grantees", grantees)

    def allow(self, principal: Principal, permission: Permission) -> bool:
        """Whether the principal has the permission; `Permission.ADMIN` includes the others."""
        return not self._grantees[permission].isdisjoint(principal.grantees)

    def allow_anything(self, principal: Principal) -> bool:
        """Whether the principal has any permission."""
        return any(who in principal.grantees for _, who in self.grants)

    def __str__(self) -> str:
        return ", ".join(sorted(f"{permission.value}:{who}" for permission, who in self.grants))


NO_PERMITS: Final = Permits()


def parse_permits(raw: Any) -> Permits:
    """What is written as a list of grants, or as one string with commas between them.

    Raises:
        ValueError: it is neither, or a grant is wrong.
    """
    if isinstance(raw, str):
        written: Iterable[Any] = filter(None, map(str.strip, raw.split(",")))
    elif isinstance(raw, list):
        written = raw
    else:
        raise ValueError(f"found {type(raw).__name__}, {_EXAMPLE}")
    return Permits(frozenset(map(_grant, written)))


def parse_grantees(text: str) -> frozenset[str]:
    """Names of principals and groups (``group/bi``), with commas between them.

    Raises:
        ValueError: one is no name.
    """
    names = [name for name in map(str.strip, text.split(",")) if name]
    for name in names:
        check_principal_name(name.removeprefix(GROUP_PREFIX))
    return frozenset(names)


def _grant(text: Any) -> tuple[Permission, str]:
    if not isinstance(text, str) or ":" not in text:
        raise ValueError(f"{text!r} is no grant: {_EXAMPLE}")
    permission, _, who = text.partition(":")
    if permission not in _BY_NAME:
        raise ValueError(f"{text!r}: no such permission{suggestion(permission, list(_BY_NAME))}")
    check_principal_name(who.removeprefix(GROUP_PREFIX))
    return _BY_NAME[permission], who
