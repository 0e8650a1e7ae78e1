"""Whether a request for a log is served here, and if not, by whom."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from logdevice_py.config.cluster import Roles
from logdevice_py.core.ids import LogId, NodeId
from logdevice_py.core.marks import hit
from logdevice_py.core.status import Status
from logdevice_py.core.units import Micros
from logdevice_py.placement.sequencer_locator import locate_sequencer
from logdevice_py.protocol.messages import NodeState
from sequencer.context import SequencerContext
from sequencer.frames import NO_NODE


class Action(enum.Enum):
    """What to do with a request."""

    SERVE = enum.auto()  # here, as things are
    REACTIVATE = enum.auto()  # here, in an epoch to be got: another sequencer has taken the log over
    REFUSE = enum.auto()  # answer with a status


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes."""

    action: Action
    status: Status = Status.OK
    redirect: NodeId = NO_NODE
    home: bool = False
    """SERVE: it holds for every request until cluster state or configuration changes."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What a log's sequencer at this node is, as far as routing goes."""

    accepts: bool
    """It has an epoch, or is about to."""
    preempted: bool
    preempted_by: NodeId
    no_redirect_until: int
    preempted_at: int = 0


NO_STANDING = Standing(False, False, NO_NODE, 0)
_HOME = Route(Action.SERVE, home=True)
_SERVE = Route(Action.SERVE)
_REACTIVATE = Route(Action.REACTIVATE)


def route(
    context: SequencerContext,
    log: LogId,
    standing: Standing,
    *,
    no_redirect: bool,
    reactivate_if_preempted: bool,
    now: Micros,
) -> Route:
    """Decide about one request for a data log that the configuration knows."""
    cluster, me = context.cluster, context.node
    state = cluster.state(me)
    if state is NodeState.LEAVING:
        return Route(Action.REFUSE, Status.SHUTDOWN)
    if state is not NodeState.ALIVE:
        return Route(Action.REFUSE, Status.NOTREADY)
    if cluster.isolated():
        return Route(Action.REFUSE, Status.ISOLATED)
    located = locate_sequencer(log, context.config, cluster.may_sequence)
    config = context.config.nodes.get(me)
    if config is None or Roles.SEQUENCER not in config.roles:
        return _redirect(located)
    if located != me and not _served_away_from_home(standing, located, no_redirect, reactivate_if_preempted, now):
        if no_redirect and standing.preempted and located is not None:
            # REDIRECTED would not tell who insists that it takes more than that here: he would be sent in circles for ever.
            return Route(Action.REFUSE, Status.PREEMPTED, located)
        return _redirect(located)
    if not standing.preempted:
        return _HOME if located == me else _SERVE
    preemptor = standing.preempted_by
    # One that starts or leaves answers, but serves nothing: sent there, requests would go to and fro until it is gone.
    if reactivate_if_preempted or preemptor in (me, NO_NODE) or not cluster.may_sequence(preemptor):
        return _REACTIVATE
    if located == me and _is_overdue(context, log, standing, now):
        hit("log_taken_back")
        return _REACTIVATE
    return Route(Action.REFUSE, Status.PREEMPTED, preemptor)


def _is_overdue(context: SequencerContext, log: LogId, standing: Standing, now: Micros) -> bool:
    """Whether the log's affinity prefers this node to its preemptor, which has had the log long enough: a region was cut off, and is back. Within one place it stays
    where it is, as who took it over may have had a reason that still holds."""
    attributes, nodes = context.config.log(log), context.config.nodes
    preemptor = nodes.get(standing.preempted_by)
    if attributes is None or preemptor is None or now < standing.preempted_at + context.settings.take_back_us:
        return False
    for area in attributes.sequencer_affinity.ordered:
        if nodes[context.node].location.within(area):
            return not preemptor.location.within(area)
        if preemptor.location.within(area):
            return False
    return False


def _served_away_from_home(
    standing: Standing, located: NodeId | None, no_redirect: bool, reactivate_if_preempted: bool, now: Micros
) -> bool:
    if standing.preempted:
        return reactivate_if_preempted
    if no_redirect:
        return True
    return standing.accepts and now < standing.no_redirect_until


def _redirect(located: NodeId | None) -> Route:
    if located is None:
        return Route(Action.REFUSE, Status.NOSEQUENCER)
    return Route(Action.REFUSE, Status.REDIRECTED, located)
