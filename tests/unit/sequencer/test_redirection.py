"""Who serves a request."""

from __future__ import annotations

import pytest

from logdevice_py.config.location import Areas
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.placement.sequencer_locator import locate_sequencer
from logdevice_py.protocol.messages import AppendedFlags, AppendFlags, NodeState
from sequencer.redirection import Action, Route, Standing, route
from sequencer.sequencer import SequencerPhase
from sequencer.settings import SequencerSettings
from tests.unit.sequencer.fakes import LOG, ME, World, active, make_config

NO_REDIRECT = int(AppendFlags.NO_REDIRECT)
REACTIVATE = int(AppendFlags.REACTIVATE_IF_PREEMPTED)


def away() -> World:
    """A world where other nodes sequence too."""
    return World(make_config(sequencers=[0, 1, 2], logs=(1, 1000)))


def log_of_another_node(world: World) -> LogId:
    """A log whose home is another node."""
    for number in range(1, 1000):
        home = locate_sequencer(LogId(number), world.config, world.cluster.may_sequence)
        if home is not None and home != ME:
            return LogId(number)
    raise AssertionError("no log has its home elsewhere")


class TestNodesThatDoNotServe:
    @pytest.mark.parametrize(
        ("state", "status"),
        [
            (NodeState.STARTING, Status.NOTREADY),
            (NodeState.LEAVING, Status.SHUTDOWN),
            (NodeState.DEAD, Status.NOTREADY),
        ],
    )
    def test_a_node_that_is_not_up_refuses(self, state: NodeState, status: Status) -> None:
        world = World()
        world.cluster.states[ME] = state
        request = world.append()
        world.run()
        assert world.answer_to(request).status is status

    def test_an_isolated_node_refuses_even_logs_that_it_served(self) -> None:
        world = active()
        world.cluster.is_isolated = True
        world.node.on_cluster_state(world.now)
        request = world.append()
        world.run()
        assert world.answer_to(request).status is Status.ISOLATED

    def test_a_node_that_only_stores_redirects(self) -> None:
        world = World(make_config(sequencers=[1]))
        request = world.append(flags=NO_REDIRECT)
        world.run()
        assert (world.answer_to(request).status, world.answer_to(request).redirect) == (Status.REDIRECTED, 1)

    def test_without_a_sequencer_node_there_is_none(self) -> None:
        world = World(make_config(sequencers=[1]))
        world.cluster.states[NodeId(1)] = NodeState.DEAD
        request = world.append()
        world.run()
        assert world.answer_to(request).status is Status.NOSEQUENCER


class TestRedirects:
    def test_an_append_for_another_home_is_redirected_there(self) -> None:
        world = away()
        log = log_of_another_node(world)
        request = world.append(log=log)
        world.run()
        answer = world.answer_to(request)
        assert answer.status is Status.REDIRECTED
        assert answer.redirect == locate_sequencer(log, world.config, world.cluster.may_sequence)
        assert answer.flags & AppendedFlags.NOT_REPLICATED

    def test_unless_it_forbids_that(self) -> None:
        world = away()
        log = log_of_another_node(world)
        request = world.append(log=log, flags=NO_REDIRECT)
        world.run()
        assert world.answer_to(request).status is Status.OK

    def test_after_which_others_are_not_redirected_for_a_while(self) -> None:
        world = away()
        log = log_of_another_node(world)
        world.append(log=log, flags=NO_REDIRECT)
        world.run(1_000_000)
        soon = world.append(log=log)
        world.run(6_000_000)
        late = world.append(log=log)
        world.run()
        assert world.answer_to(soon).status is Status.OK
        assert world.answer_to(late).status is Status.REDIRECTED

    def test_a_log_moves_here_when_its_home_dies(self) -> None:
        world = away()
        log = log_of_another_node(world)
        for node in (1, 2):
            world.cluster.states[NodeId(node)] = NodeState.DEAD
        world.node.on_cluster_state(world.now)
        world.append(log=log)
        world.run()
        assert world.node.sequencers[log].epoch == 1


class TestPreempted:
    def preempted(self) -> World:
        world = active()
        world.store.take_over(LOG, NodeId(2))
        world.sequencer.activate(world.now)
        world.run()
        assert world.sequencer.state is SequencerPhase.PREEMPTED
        return world

    def test_appends_are_sent_to_the_one_that_took_over(self) -> None:
        world = self.preempted()
        request = world.append()
        world.run()
        assert (world.answer_to(request).status, world.answer_to(request).redirect) == (Status.PREEMPTED, 2)

    @pytest.mark.parametrize("state", [NodeState.DEAD, NodeState.LEAVING, NodeState.STARTING])
    def test_unless_it_does_not_serve(self, state: NodeState) -> None:
        world = self.preempted()
        world.cluster.states[NodeId(2)] = state
        world.node.on_cluster_state(world.now)
        request = world.append()
        world.run()
        assert world.answer_to(request).lsn >> 32 == 3
        assert world.sequencer.state is SequencerPhase.ACTIVE

    def test_or_the_client_wants_it_back(self) -> None:
        world = self.preempted()
        request = world.append(flags=NO_REDIRECT | REACTIVATE)
        world.run()
        assert world.answer_to(request).lsn >> 32 == 3

    def test_an_open_batch_is_refused_and_not_applied(self) -> None:
        world = active(config=make_config(batching_time_us=1_000_000))
        request = world.append()
        world.store.take_over(LOG, NodeId(2))
        world.sequencer.activate(world.now)
        world.run()
        answer = world.answer_to(request)
        assert (answer.status, answer.redirect) == (Status.PREEMPTED, 2)
        assert answer.flags & AppendedFlags.NOT_REPLICATED

    def test_the_release_pointer_stays(self) -> None:
        world = active()
        world.answer = lambda store: None
        world.append()
        world.run()
        before = world.sequencer.last_released
        world.store.take_over(LOG, NodeId(2))
        world.sequencer.activate(world.now)
        world.run()
        world.reply_to_held()
        assert world.sequencer.last_released == before

    def test_recovery_is_stopped(self) -> None:
        world = active()
        world.recoveries.held = True
        world.sequencer.activate(world.now)
        world.run()
        world.sequencer.on_sealed(world.store.take_over(LOG, NodeId(2)), NodeId(2), world.now)
        assert world.recoveries.started == {}


class TestWhoInsists:
    def test_a_preempted_node_away_from_home_says_that_it_is_preempted(self) -> None:
        """The log's home was preempted too: only whoever knows of both can break the circle, by telling this one to take the log back."""
        world = away()
        log = log_of_another_node(world)
        home = locate_sequencer(log, world.config, world.cluster.may_sequence)
        assert home is not None
        standing = Standing(accepts=True, preempted=True, preempted_by=NodeId(1), no_redirect_until=0)

        def answer(*, no_redirect: bool, reactivate: bool) -> Route:
            return route(
                world.node.context,
                log,
                standing,
                no_redirect=no_redirect,
                reactivate_if_preempted=reactivate,
                now=world.now,
            )

        assert answer(no_redirect=False, reactivate=False).status is Status.REDIRECTED
        assert answer(no_redirect=True, reactivate=False) == Route(Action.REFUSE, Status.PREEMPTED, home)
        assert answer(no_redirect=True, reactivate=True).action is Action.REACTIVATE


class TestTakingBack:
    """Who goes on with a log after its home was cut off, and when its home has it back."""

    MINUTE = SequencerSettings().take_back_us

    def _action(self, affinity: str, preempted_by: int, since_us: int) -> Action:
        areas = Areas.parse(affinity)
        world = World(make_config(racks="uuea", sequencer_affinity=areas))
        now = Micros(10 * self.MINUTE)
        standing = Standing(True, True, NodeId(preempted_by), no_redirect_until=0, preempted_at=now - since_us)
        return route(
            world.node.context, LOG, standing, no_redirect=False, reactivate_if_preempted=False, now=now
        ).action

    @pytest.mark.parametrize("preempted_by", [2, 3])
    def test_a_log_comes_back_a_minute_later_from_a_later_place(self, preempted_by: int) -> None:
        assert self._action("u, e", preempted_by, self.MINUTE - 1) is Action.REFUSE
        assert self._action("u, e", preempted_by, self.MINUTE) is Action.REACTIVATE

    @pytest.mark.parametrize(("affinity", "preempted_by"), [("", 2), ("u, e", 1), ("e, u", 2), ("e", 2), ("x", 2)])
    def test_it_stays_with_who_took_it_over_from_a_place_that_is_no_later_one(
        self, affinity: str, preempted_by: int
    ) -> None:
        assert self._action(affinity, preempted_by, 9 * self.MINUTE) is Action.REFUSE

    def test_the_minute_begins_when_the_sequencer_hears_of_the_other_one(self) -> None:
        world = active()
        world.run(5_000_000)
        world.sequencer.on_sealed(world.store.take_over(LOG, NodeId(2)), NodeId(2), world.now)
        assert world.sequencer.standing().preempted_at == world.now > 0
