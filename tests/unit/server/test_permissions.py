"""Owners of write streams, as a node remembers them."""

from __future__ import annotations

import subprocess
import sys

from logdevice_py.core.principal import Principal
from server.permissions import FROM_CLIENTS, StreamOwners

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


def test_nobody_who_makes_up_writers_gets_rid_of_a_stream_of_somebody_else() -> None:
    owners = StreamOwners(most=10)
    assert owners.is_owner(A, b"honest")
    assert all(owners.is_owner(B, b"%d" % number) for number in range(100))
    assert not owners.is_owner(B, b"honest")
    assert owners.is_owner(A, b"honest")
    others = [Principal(f"p{number}") for number in range(20)]
    assert all(owners.is_owner(who, who.name.encode()) for who in others)
    assert len(owners._names) == sum(map(len, owners._streams.values())) == 10


def test_what_clients_may_send_does_not_follow_from_what_is_imported_first() -> None:
    command = [sys.executable, "-c", "from server.permissions import FROM_CLIENTS; print(len(FROM_CLIENTS))"]
    alone = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(alone.stdout) == len(FROM_CLIENTS) > 10
