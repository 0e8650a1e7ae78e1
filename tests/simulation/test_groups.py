"""Groups of readers on simulated clusters that break; rules left out, caught."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from logdevice_py import LogDeviceError, SimCluster, SimulationFailed, Status
from streams.subscriptions.group import Group
from streams.subscriptions.member import MemberMachine
from streams.subscriptions.state import SubscriptionsState
from streams.subscriptions.subscriptions import Subscriptions
from tests.simulation.deliberate_fault import DeliberateFault
from tests.simulation.group_members import COMMANDS, RECORDS, SNAPSHOTS, STREAMS, GroupHistory, troubled_group
from tests.slow import quick

SEEDS = range(3)
HUNTED_MAX = 12
LOGS = max(STREAMS.values())


@pytest.mark.parametrize("seed", quick(SEEDS, 2))
def test_each_record_is_handled_and_nobody_goes_on_behind_a_fence(simulate: Callable[..., Any], seed: int) -> None:
    handled, _, _ = simulate(troubled_group, seed=seed, logs=LOGS, nodes=5, faults="all", virtual_seconds=600)
    assert handled > RECORDS * len(STREAMS) // 2


def test_members_are_expelled_and_fenced_in_some_seeds(simulate: Callable[..., Any]) -> None:
    fenced = rejoined = 0
    for seed in SEEDS:
        _, more, again = simulate(troubled_group, seed=seed, logs=LOGS, nodes=5, virtual_seconds=600)
        fenced, rejoined = fenced + more, rejoined + again
        if fenced and rejoined:
            break
    assert fenced
    assert rejoined


async def one_of_two_dies(cluster: SimCluster) -> float:
    """For how long a stream of the one that dies is handed out to nobody."""
    loop = asyncio.get_running_loop()
    async with (
        cluster.client() as client,
        Subscriptions(client, COMMANDS, SNAPSHOTS) as subscriptions,
        cluster.client() as dying,
        Subscriptions(dying, COMMANDS, SNAPSHOTS) as others,
    ):
        group = Group(subscriptions, "billing")
        await group.add_streams(STREAMS)
        async with group.member("a") as member:
            other = Group(others, "billing").member("b")
            await other.__aenter__()
            while len(other.streams) != len(STREAMS) // 2:  # noqa: ASYNC110 - of two members
                await asyncio.sleep(0.05)
            mine = set(member.streams)
            await dying.close()
            died = loop.time()
            for stream in set(STREAMS) - mine:
                await client.append(STREAMS[stream], b"x")
            async for batch in member:
                if batch.stream not in mine:
                    return loop.time() - died
    raise AssertionError("nobody took over")


@pytest.mark.parametrize("seed", quick(range(3), 1))
def test_a_dead_members_streams_are_handed_out_within_two_seconds(simulate: Callable[..., Any], seed: int) -> None:
    assert simulate(one_of_two_dies, seed=seed, logs=LOGS) < 2.0


async def one_of_two_is_paused_with_batches_in_hand(cluster: SimCluster) -> int:
    """How many streams the other one got, and that the first hands out nothing of them before it has joined again."""
    history = GroupHistory(cluster)
    async with (
        cluster.client() as client,
        Subscriptions(client, COMMANDS, SNAPSHOTS) as subscriptions,
        cluster.client() as pausing,
        Subscriptions(pausing, COMMANDS, SNAPSHOTS) as others,
    ):
        await Group(subscriptions, "billing").add_streams(STREAMS)
        paused, other = Group(others, "billing").member("a"), Group(subscriptions, "billing").member("b")
        async with paused, other:
            while len(paused.streams) != len(STREAMS) // 2 or len(other.streams) != len(STREAMS) // 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            held = dict(paused.streams)
            for log in STREAMS.values():
                await client.append(log, b"x")
            while not all(paused._readings[stream].batch for stream in held):  # noqa: ASYNC110 - it is sent to the member
                await asyncio.sleep(0.05)
            process = pausing._network._process  # type: ignore[attr-defined]
            process.pause()
            taken: set[str] = set()
            while not taken >= held.keys():
                batch = await anext(other)
                history.on_handed_out(2, batch)
                taken.add(batch.stream)
                await other.commit(batch)
            handed_out = asyncio.ensure_future(anext(paused))
            await asyncio.sleep(1)
            if handed_out.done():
                history.on_handed_out(1, handed_out.result())
            process.resume()
            for log in STREAMS.values():
                await client.append(log, b"y")
            history.on_handed_out(1, await handed_out)
            assert paused.joins == 2
            return len(taken)


@pytest.mark.parametrize("seed", quick(range(3), 1))
def test_who_was_paused_hands_out_nothing_that_it_had_in_hand(simulate: Callable[..., Any], seed: int) -> None:
    taken = simulate(one_of_two_is_paused_with_batches_in_hand, seed=seed, logs=LOGS, nodes=3, virtual_seconds=100)
    assert taken == len(STREAMS)


async def one_commits_with_a_token_of_before(cluster: SimCluster) -> None:
    """Another member has the stream meanwhile, and has committed nothing."""
    async with cluster.client() as client, Subscriptions(client, COMMANDS, SNAPSHOTS) as subscriptions:
        group = Group(subscriptions, "billing")
        await group.add_streams(STREAMS)
        await client.append(next(iter(STREAMS.values())), b"x")
        async with group.member("a") as first:
            batch = await anext(first)
        async with group.member("b") as second:
            again = await anext(second)
            assert again.stream == batch.stream
            assert again.token > batch.token
            refusal = None
            try:
                await subscriptions.commit("billing", batch.stream, batch.last, token=batch.token)
            except LogDeviceError as error:
                refusal = error.status
            assert refusal is Status.FENCED, f"a lower token of {batch.stream} committed after a higher one: {refusal}"


def test_a_token_of_before_commits_nothing(simulate: Callable[..., Any]) -> None:
    simulate(one_commits_with_a_token_of_before, seed=0, logs=LOGS, nodes=3, virtual_seconds=100)


# Rules left out


def commits_are_not_fenced(original: Any) -> Any:
    return lambda shared, wanted: False


def assignments_keep_their_token(original: Any) -> Any:
    def take_token(self: SubscriptionsState, shared: Any) -> None:
        if not shared.token:
            original(self, shared)

    return take_token


def positions_fall(original: Any) -> Any:
    def commit(self: SubscriptionsState, wanted: Any, *where: Any) -> Any:
        return original(self, type(wanted)(*(getattr(wanted, each) for each in wanted.__slots__[:-1]), True), *where)

    return commit


def leases_do_not_end(original: Any) -> Any:
    return lambda self, stream, token, now: stream in self._held and self._held[stream].token == token


BROKEN = {
    "a lower token of": DeliberateFault(
        "commits_are_not_fenced",
        "commits are taken whatever their token is",
        commits_are_not_fenced,
        ((SubscriptionsState, "_is_fenced"),),
    ),
    "belongs to two members": DeliberateFault(
        "assignments_keep_their_token",
        "a stream that moves keeps its token",
        assignments_keep_their_token,
        ((SubscriptionsState, "_take_token"),),
    ),
    r"the position of s\d+ fell": DeliberateFault(
        "positions_fall", "a commit may go back", positions_fall, ((SubscriptionsState, "_commit"),)
    ),
    "was handed out with token": DeliberateFault(
        "leases_do_not_end",
        "a member hands out records although others may have taken over",
        leases_do_not_end,
        ((MemberMachine, "may_hand_out"),),
    ),
}


SHOWN_BY = {
    "leases_do_not_end": one_of_two_is_paused_with_batches_in_hand,
    "commits_are_not_fenced": one_commits_with_a_token_of_before,
}
"""Elsewhere members are paused, and commit late, by chance: in few seeds."""


@pytest.mark.parametrize("says", BROKEN, ids=lambda says: BROKEN[says].name)
def test_a_few_seeds_catch_a_rule_that_is_left_out(simulate: Callable[..., Any], says: str) -> None:
    fault, failures = BROKEN[says], []
    scenario = SHOWN_BY.get(fault.name)
    if scenario is not None:
        with fault.planted(), pytest.raises(SimulationFailed, match=says):
            simulate(scenario, seed=0, logs=LOGS, nodes=3, virtual_seconds=100)
        return
    with fault.planted():
        for seed in range(HUNTED_MAX):
            try:
                simulate(troubled_group, seed=seed, logs=LOGS, nodes=3, virtual_seconds=600)
            except SimulationFailed as failed:
                failures.append(failed)
                break
    assert failures, f"{fault.breaks}, and nothing shows it"
    assert re.search(says, str(failures[0])), failures
