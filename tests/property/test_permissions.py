"""Every message that a client can send, against every permission: the check of nodes beside a plain evaluation that shares nothing with it."""

from __future__ import annotations

import enum
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logdevice_py.config.cluster import ClusterConfig
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.ids import EVENT_LOG_DELTAS, LOG_TREE_DELTAS, LOG_TREE_SNAPSHOTS, LogId, metadata_log_of
from logdevice_py.core.principal import ANONYMOUS, Principal
from logdevice_py.core.status import Status
from logdevice_py.protocol.declare import CODEC_OF, U8, Needs, message
from logdevice_py.protocol.framing import decode_frame
from logdevice_py.protocol.messages import Digest, DigestRange
from server.permissions import FROM_CLIENTS, refusal
from tests.hostile.mutants import FrameMutator


class _UnusedNumber(enum.IntEnum):
    UNUSED = 241


OPEN, CLOSED, ABSENT = LogId(1), LogId(2), LogId(99)
LOGS = [
    OPEN,
    CLOSED,
    ABSENT,
    metadata_log_of(OPEN),
    metadata_log_of(ABSENT),
    LOG_TREE_DELTAS,
    LOG_TREE_SNAPSHOTS,
    EVENT_LOG_DELTAS,
    metadata_log_of(EVENT_LOG_DELTAS),
]
PRINCIPALS = [
    ANONYMOUS,
    Principal("a"),
    Principal("b", frozenset({"g"})),
    Principal("root"),
    Principal("c", frozenset({"admins", "g"})),
]
WORDS = ["append", "read", "trim", "admin"]
GRANTEES = ["a", "b", "group/g", "group/admins", "anonymous", "root", "admins", "g"]
WORD_OF = {
    "Append": "append",
    "GuardedAppend": "append",
    "Start": "read",
    "Window": "read",
    "FindKey": "read",
    "DataSize": "read",
    "ListEpochs": "read",
    "Digest": "read",
    "Trim": "trim",
    "GetSeqState": "any",
    "GetConfiguration": "nothing",
    "Stop": "nothing",
    "Hello": "nothing",
}
"""Written down here once more, by hand."""
METADATA_BIT = 1 << 62
FIRST_INTERNAL = (1 << 62) - 1000


def cluster(defaults: list[str], permits: list[str]) -> ClusterConfig:
    return load_cluster(
        f"""
        version = 1
        name = "c"
        uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
        epoch_store = "memory:"
        [nodes.N0]
        host = "127.0.0.1"
        port = 1
        roles = ["sequencer", "storage"]
        [metadata_log]
        replicate = "node:1"
        [settings.log_tree]
        enabled = true
        [settings.rebuilding]
        enabled = true
        [settings.security]
        tls = "require"
        permissions = true
        [defaults]
        replicate = "node:1"
        permit = {defaults}
        [logs."/open"]
        ids = {OPEN}
        permit = {permits}
        [logs."/closed"]
        ids = {CLOSED}
        permit = []
        """
    )


def brute_force(principal: Principal, word: str, log: int, defaults: list[str], permits: list[str]) -> bool:
    """Whether it is allowed, from the written grants."""
    names = {principal.name, "anonymous"} | {"group/" + group for group in principal.groups}
    if word == "nothing":
        return True
    if f"{log}" in {str(LOG_TREE_DELTAS), str(LOG_TREE_SNAPSHOTS)} and word in ("read", "any"):
        return True
    if log >= METADATA_BIT and word in ("read", "any"):
        return True
    for name in names:
        if "admin:" + name in defaults:
            return True
    if log > FIRST_INTERNAL or log not in (OPEN, CLOSED):
        return False
    granted = permits if log == OPEN else []
    for name in names:
        for grant in granted:
            given_word, _, who = grant.partition(":")
            if who == name and (given_word in (word, "admin") or word == "any"):
                return True
    return False


def sample(kind: type[Any], log: int) -> Any:
    """A message of that class about a log."""
    mutator = FrameMutator(5, logs=[log], shards=[0], names=[kind.__name__])
    while True:
        found = decode_frame(mutator.valid())
        if not isinstance(found, Digest) or found.ranges:
            return found


SAMPLES = {(kind, log): sample(kind, log) for kind, log in product(sorted(FROM_CLIENTS, key=str), LOGS)}
GRANTS = st.lists(st.builds("{}:{}".format, st.sampled_from(WORDS), st.sampled_from(GRANTEES)), max_size=3)


@given(GRANTS, GRANTS)
def test_every_message_about_every_log_by_everybody(defaults: list[str], permits: list[str]) -> None:
    config = cluster(defaults, permits)
    for (kind, log), asked in SAMPLES.items():
        for principal in PRINCIPALS:
            status = refusal(principal, asked, config)
            allowed = brute_force(principal, WORD_OF[kind.__name__], log, defaults, permits)
            assert (status is Status.OK) == allowed, (kind, log, principal)
            if not allowed:
                assert status is (Status.NOTFOUND if log == ABSENT else Status.ACCESS)


def test_the_samples_are_all_that_clients_can_send() -> None:
    assert {kind.__name__ for kind in FROM_CLIENTS} == set(WORD_OF)
    assert {kind for kind, codec in CODEC_OF.items() if codec.needs is not Needs.NODE} == set(FROM_CLIENTS)


def test_a_message_about_many_logs_needs_the_permission_for_each() -> None:
    config = cluster([], ["read:a"])
    ranges = [DigestRange(log, 1, 2, 0) for log in (OPEN, metadata_log_of(CLOSED))]  # type: ignore[arg-type]
    allowed = Digest(request_id=1, shard=0, bytes_max=1, ranges=ranges)  # type: ignore[arg-type]
    refused = Digest(request_id=1, shard=0, bytes_max=1, ranges=[*ranges, DigestRange(CLOSED, 1, 2, 0)])  # type: ignore[arg-type]
    assert refusal(Principal("a"), allowed, config) is Status.OK
    assert refusal(Principal("a"), refused, config) is Status.ACCESS


def test_a_message_that_does_not_say_what_it_needs_does_not_import() -> None:
    with pytest.raises(TypeError, match="needs"):

        @message(_UnusedNumber.UNUSED)  # type: ignore[call-arg]
        class Careless:
            """It needs it does not say what."""


def test_a_message_that_needs_a_permission_for_a_log_names_one() -> None:
    with pytest.raises(TypeError, match="Vague needs a permission and names no log"):

        @message(_UnusedNumber.UNUSED, needs=Needs.READ)
        class Vague:
            """It names no log."""

            count: U8
