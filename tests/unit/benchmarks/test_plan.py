"""Which runs are made."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.ldbench.engine import DurabilityClass, Engine, Mode, Setting, StartOptions
from benchmarks.ldbench.engines.logdevice import ENGINE
from benchmarks.ldbench.engines.logdevice_quorum import ENGINE as QUORUM
from benchmarks.ldbench.measurement import Case
from benchmarks.ldbench.plan import all_cases, bundles, runs_of, why_not
from benchmarks.ldbench.streams import CallWindow
from benchmarks.ldbench.worker import RunOrder, WorkOrder
from benchmarks.ldbench.workload import FULL, SHORT, SMOKE, settings_of
from benchmarks.ldbench.workloads import all_workloads
from logdevice_py.core.ids import LogId

WORKLOADS = all_workloads()


class _SingleWriter:
    """A system whose logs have one writer, and whose client batches nothing."""

    name = "narrow"
    single_writer = True
    has_leaders = False

    def settings(self, mode: Mode) -> Sequence[Setting]:
        return (Setting(name="only", description=""),) if mode is Mode.SINGLE else ()

    def lone_setting(self) -> Setting:
        return self.settings(Mode.SINGLE)[0]


def engine() -> Engine:
    return ENGINE


def narrow() -> Engine:
    made: object = _SingleWriter()
    return made  # type: ignore[return-value]


def test_every_setting_is_tried_in_the_first_round_and_the_best_one_later() -> None:
    (bundle,) = bundles([Case(workload="append")], WORKLOADS, FULL)
    names = [setting.name for setting in settings_of(WORKLOADS["append"], engine())]
    first = runs_of(bundle, engine(), WORKLOADS, FULL, 1, lambda engine, key: None)
    later = runs_of(bundle, engine(), WORKLOADS, FULL, 2, lambda engine, key: names[1])
    assert [run.setting for run in first] == names
    assert [run.setting for run in later] == [names[1]]


def test_large_records_are_measured_with_the_first_setting_where_time_is_short() -> None:
    (bundle,) = bundles([Case(workload="append", payload_bytes=100_000)], WORKLOADS, FULL)
    assert len(runs_of(bundle, engine(), WORKLOADS, SHORT, 1, lambda engine, key: None)) == 1
    assert len(runs_of(bundle, engine(), WORKLOADS, FULL, 1, lambda engine, key: None)) > 1


def test_servers_are_shared_only_where_they_are_started_alike() -> None:
    cases = [
        Case(workload="append"),
        Case(workload="lone-append"),
        Case(workload="many-logs"),
        Case(workload="append", durability="async"),
        Case(workload="append", payload_bytes=1_000),
        Case(workload="leader-killed"),
    ]
    found = [[case.workload for case in bundle.cases] for bundle in bundles(cases, WORKLOADS, FULL)]
    assert found == [["append", "many-logs"], ["lone-append"], ["append"], ["append"], ["leader-killed"]]


def test_servers_are_shared_by_groups_and_sizes_where_time_is_short_and_small_records_come_first() -> None:
    sizes = (100, 1_000, 900_000)
    cases = [Case(workload=name, payload_bytes=size) for name in ("append", "lone-append") for size in sizes]
    cases += [Case(workload=name) for name in ("leader-killed", "leader-partitioned", "idle-logs")]
    shared = bundles(cases, WORKLOADS, SHORT)
    assert [(len(bundle.cases), bundle.record_bytes) for bundle in shared] == [
        (6, 900_000),
        (1, 100),
        (1, 100),
        (1, 100),
    ]
    assert [(case.workload, case.payload_bytes) for case in shared[0].cases] == [
        (name, size) for size in sizes for name in ("append", "lone-append")
    ]
    assert len(bundles(cases, WORKLOADS, FULL)) == 9


def test_a_workload_that_the_machine_cannot_run_is_left_out_with_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.ldbench.separate_machines.may_make_networks", lambda: False)
    assert "takes root" in str(why_not(WORKLOADS["leader-partitioned"], engine()))


def test_settings_are_decided_by_the_workloads_that_are_meant_for_it() -> None:
    for name, scale, runs in (("append", SHORT, 3), ("many-logs", SHORT, 1), ("many-logs", FULL, 3)):
        (bundle,) = bundles([Case(workload=name)], WORKLOADS, scale)
        assert len(runs_of(bundle, engine(), WORKLOADS, scale, 1, lambda engine, key: None)) == runs


def test_what_a_system_cannot_do_is_left_out_with_a_reason() -> None:
    reasons = {name: why_not(workload, narrow()) for name, workload in WORKLOADS.items()}
    assert reasons["append"] is None
    assert "one writer at a time" in str(reasons["many-writers"])
    assert "leads a log" in str(reasons["leader-killed"])
    assert reasons["copy-killed"] is None
    assert "nothing of the kind" in str(reasons["buffered-append"])
    assert "made for logdevice only" in str(reasons["idle-logs"])
    (bundle,) = bundles([Case(workload="buffered-append"), Case(workload="append")], WORKLOADS, FULL)
    runs = runs_of(bundle, narrow(), WORKLOADS, SMOKE, 1, lambda engine, key: None)
    assert [run.case.workload for run in runs] == ["append"]


def test_every_scale_has_cases_of_every_workload() -> None:
    for scale in (SMOKE, SHORT, FULL):
        assert {case.workload for case in all_cases(scale, list(WORKLOADS.values()))} == set(WORKLOADS)
    keys = [case.key for case in all_cases(FULL, list(WORKLOADS.values()))]
    assert len(keys) == len(set(keys))


def test_records_that_are_all_large_are_read_cold_as_well() -> None:
    workload = WORKLOADS["cold-read"]
    assert workload.sizes(FULL) == [100_000]
    assert workload.sizes(dataclasses.replace(FULL, sizes=(900_000, 2_000_000))) == [900_000]


def test_orders_survive_the_way_to_the_client_process() -> None:
    import json
    from dataclasses import asdict

    order = WorkOrder(
        engine="logdevice",
        directory="/tmp/x",
        durability="async",
        runs=[RunOrder(case=Case(workload="append", parameters={"load": "half"}), setting=None, round=2)],
    )
    assert WorkOrder.from_json(json.dumps(asdict(order))) == order
    assert order.options().durability.value == "async"


def test_a_window_is_bounded_by_records_and_by_bytes_and_lets_one_through() -> None:
    setting = Setting(
        name="x", description="", records_in_flight=1_000, bytes_in_flight=1_000_000, records_per_call=100
    )
    assert (CallWindow(setting, 100).records_max, CallWindow(setting, 100).call_records) == (1_000, 100)
    assert (CallWindow(setting, 10_000).records_max, CallWindow(setting, 10_000).call_records) == (100, 50)
    assert (CallWindow(setting, 5_000_000).records_max, CallWindow(setting, 5_000_000).call_records) == (1, 1)


def test_every_setting_of_ours_is_named_once_and_described() -> None:
    for mode in Mode:
        settings = engine().settings(mode)
        assert 1 <= len(settings) <= 3
        assert len({setting.name for setting in settings}) == len(settings)
        assert all(setting.description for setting in settings)


def test_workloads_that_want_fresh_servers_share_them_with_nobody_and_take_fresh_cases_first() -> None:
    chosen = [WORKLOADS[name] for name in ("append", "steady")]
    found = bundles(list(all_cases(SMOKE, chosen)), WORKLOADS, SMOKE)
    assert [[case.workload for case in bundle.cases] for bundle in found] == [["append"], ["steady", "steady"]]
    assert [case.parameters["servers"] for case in found[1].cases] == ["fresh", "written"]
    assert why_not(WORKLOADS["steady-rates"], _SingleWriter()) is not None  # type: ignore[arg-type]


def test_with_an_extra_copy_an_append_waits_for_one_copy_less(tmp_path: Path) -> None:
    options = StartOptions(directory=tmp_path, durability=DurabilityClass.SYNC, copies=3, logs=2)
    config = QUORUM.config(options)
    attributes = config.log(LogId(1))
    assert attributes is not None
    assert (str(attributes.replication), attributes.extra_copies) == ("node:2", 1)
    assert len(config.nodes) == 3
    assert QUORUM.acknowledgement(options) == "2 of 3 copies, each synced"
    assert QUORUM.unavailable(dataclasses.replace(options, copies=1)) is not None
