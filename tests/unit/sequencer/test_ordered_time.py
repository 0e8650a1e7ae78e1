"""`ordered_time`: timestamps never fall, whoever takes the log over and whatever its clock says."""

from __future__ import annotations

from dataclasses import replace

from logdevice_py.core.entry import parse_header
from logdevice_py.core.extensions import TailState
from logdevice_py.core.lsn import Lsn, compose_lsn
from logdevice_py.core.status import Status
from logdevice_py.core.units import SECOND, Timestamp
from logdevice_py.metadata.epoch_metadata import TailRecord
from tests.unit.sequencer.fakes import LOG, World, active, make_config
from tests.unit.sequencer.test_recovery_handoff import RecoveringWorld


def stamps(world: World) -> list[Timestamp]:
    """Of the entries of the data log, in the order of their LSNs."""
    found = {store.lsn: parse_header(store.image, alone=False).timestamp for store in world.stores if store.log == LOG}
    return [found[lsn] for lsn in sorted(found)]


def test_the_attribute_alone_makes_the_log_guarded() -> None:
    world = RecoveringWorld(config=make_config(ordered_time=True))
    request = world.append()
    world.run(SECOND)
    assert world.answer_to(request).status is Status.OK
    assert world.store.metadata[LOG].guarded_since == 1
    assert world.sequencer.guarded


def test_a_node_whose_clock_is_behind_goes_on_from_the_last_record() -> None:
    world = active(World(config=make_config(ordered_time=True)))
    world.recoveries.held = True
    assert world.sequencer.deactivate(world.now)
    world.sequencer.last_timestamp = Timestamp(0)  # as at another node
    world.sequencer.activate(world.now)
    request = world.append()
    world.run()
    assert not world.is_answered(request), "which time is the last is not known yet"
    last = Timestamp(world.wall + 3600 * SECOND)
    world.recoveries.finish(LOG, world.now, tail=TailRecord(Lsn(compose_lsn(1, 1)), last, 1, TailState()))  # type: ignore[arg-type]
    world.run()
    assert world.answer_to(request).status is Status.OK
    assert stamps(world)[-1] == last


def test_it_becomes_so_at_once_when_the_attribute_is_given() -> None:
    world = active(World())
    assert not world.store.metadata[LOG].guarded_since
    world.sequencer.on_attributes(replace(world.sequencer.attributes, ordered_time=True), world.now)
    world.sequencer.reconsider(world.now)
    world.run()
    assert world.store.metadata[LOG].guarded_since == world.sequencer.epoch == 2
    world.sequencer.reconsider(world.now)
    world.run()
    assert world.sequencer.epoch == 2


def test_without_it_a_clock_that_is_behind_shows() -> None:
    world = active(World())
    world.recoveries.held = True
    world.append()
    world.run()
    assert world.sequencer.deactivate(world.now)
    world.sequencer.last_timestamp = Timestamp(0)
    world.wall -= 10 * SECOND
    request = world.append()
    world.run()
    assert world.answer_to(request).status is Status.OK
    before, after = stamps(world)[-2:]
    assert after < before
