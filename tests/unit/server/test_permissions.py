"""Owners of write streams, as a node remembers them."""

from __future__ import annotations

from logdevice_py.core.principal import Principal
from server.permissions import StreamOwners

A, B = Principal("a"), Principal("b")


def test_the_first_who_uses_one_owns_it() -> None:
    owners = StreamOwners()
    assert [owners.is_owner(who, b"w") for who in (A, B, A, Principal("a", frozenset({"g"})))] == [
        True,
        False,
        True,
        True,
    ]
    assert owners.is_owner(B, b"x")


def test_those_used_longest_ago_are_forgotten() -> None:
    owners = StreamOwners(most=2)
    assert all(owners.is_owner(A, writer) for writer in (b"1", b"2", b"1", b"3"))
    assert not owners.is_owner(B, b"1")
    assert owners.is_owner(B, b"2")
