"""Leases in the state of a namespace: who has something to himself, as far as anybody heard. They only choose who tries; tokens make it safe."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from client.replica.commands import number_field
from streams.fields import BEATS_MAX, LEASE_US_MAX, owner_field


@dataclass(frozen=True, slots=True)
class Lease:
    """Who owns an exclusive stream, or has the role of the janitor."""

    owner: str
    """How it calls itself."""
    token: int
    """Greater than all that were given before."""
    lease_us: int
    """How long others wait for a sign of life before they take over."""
    beats: int = 0
    """Signs of life so far."""

    def renewed(self) -> Lease:
        """After another sign of life."""
        return replace(self, beats=self.beats + 1)


def seen_of(lease: Lease | None) -> tuple[int, int]:
    """Token and signs of life, by which whoever takes over says which lease it saw; zeros: there was none."""
    return (0, 0) if lease is None else (lease.token, lease.beats)


def holder_of(lease: Lease | None) -> str:
    """For refusals."""
    return "nobody" if lease is None else f"{lease.owner} with token {lease.token}"


def lease_row(lease: Lease | None) -> list[Any] | None:
    """For a snapshot."""
    return None if lease is None else [lease.owner, lease.token, lease.lease_us, lease.beats]


def lease_field(row: Any, last_token: int) -> Lease | None:
    """From `lease_row`; ValueError or TypeError for anything else.

    Args:
        last_token: the greatest token that was given.
    """
    if row is None:
        return None
    owner, token, lease_us, beats = row
    return Lease(
        owner_field(owner),
        number_field(token, 1, last_token),
        number_field(lease_us, 1, LEASE_US_MAX),
        number_field(beats, 0, BEATS_MAX),
    )
