from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from client.arguments import (
    count_argument,
    flag_argument,
    log_argument,
    lsn_argument,
    payload_argument,
    payloads_argument,
    time_argument,
    timeout_argument,
    writer_options,
)
from client.cli import cat
from client.client import Client
from client.cluster_file import CLUSTER_VARIABLE, LOCATION_VARIABLE
from client.location import region
from client.settings import WriterSettings
from client.sync import SyncClient
from logdevice_py.config.location import Location
from logdevice_py.config.parse import load_cluster
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.protocol.messages import Durability


def refused(check: Callable[..., Any], *arguments: Any) -> str:
    with pytest.raises(LogDeviceError) as caught:
        check(*arguments)
    assert caught.value.status is Status.INVALID_PARAM
    assert not caught.value.retriable
    assert not caught.value.maybe_applied
    return caught.value.detail


@pytest.mark.parametrize("log", [True, 1.0, None, b"/a", 0, -1, 1 << 62, object()])
def test_a_log_is_an_id_or_a_path(log: Any) -> None:
    assert repr(log) in refused(log_argument, log)


@pytest.mark.parametrize("value", [0, 1, None, "sync", Durability.SYNC, Durability.ASYNC])
def test_a_choice_is_true_or_false_and_not_a_thing_that_may_be_taken_for_it(value: Any) -> None:
    assert "synced" in refused(flag_argument, "synced", value)


CLUSTER = """
name = "options"
version = 1
uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
epoch_store = "memory:"
[metadata_log]
replicate = "node:1"
[defaults]
replicate = "node:1"
[nodes.N0]
host = "127.0.0.1"
port = 1
[logs."/team/clicks"]
ids = 7
"""


async def test_an_option_that_readers_do_not_have_is_told_with_those_that_they_have() -> None:
    client = Client(load_cluster(CLUSTER))
    text = refused(lambda: client.reader(7, singl_copy=True))
    assert text.startswith("a reader has no option 'singl_copy'; did you mean single_copy? there are ")
    for option in ("start", "until", "single_copy", "progress"):
        assert option in text
    assert "by_time" not in text
    text = refused(lambda: client.merged_reader(7, by_tiem=True))
    assert "'by_tiem'; did you mean by_time? there are by_time, " in text
    assert refused(lambda: client.reader(7, xyzzy=1)).startswith(
        "a reader has no option 'xyzzy'; there are encryption, hedged, near, progress, "
    )


def test_a_client_of_no_file_uses_that_of_the_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CLUSTER_VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(LogDeviceError, match="set LOGDEVICE_CLUSTER, or have one at") as caught:
        Client()
    assert caught.value.status is Status.INVALID_CONFIG
    own = tmp_path / "logdevice" / "cluster.toml"
    own.parent.mkdir()
    own.write_text(CLUSTER)
    assert str(own) in repr(Client())
    named = tmp_path / "named.toml"
    named.write_text(CLUSTER)
    monkeypatch.setenv(CLUSTER_VARIABLE, str(named))
    assert str(named) in repr(Client())
    with SyncClient() as client:
        assert str(named) in repr(client)


def test_choices_pass() -> None:
    assert flag_argument("synced", True)
    assert not flag_argument("synced", False)


def test_logs_that_are_named_right_pass() -> None:
    assert log_argument(7) == 7
    assert log_argument("/team/clicks") == "/team/clicks"


@pytest.mark.parametrize("value", ["oldest", "e1n1", datetime(2026, 1, 1, tzinfo=UTC), 1.5, True, None, -1, 1 << 63])
def test_a_position_that_is_no_lsn_is_refused_and_told_where_lsns_come_from(value: Any) -> None:
    text = refused(lsn_argument, "start", value)
    assert text.startswith("start is ")
    for way in ("LSN.OLDEST", "LSN.parse", "client.tail_lsn", "client.find_time"):
        assert way in text


def test_lsns_are_ints() -> None:
    assert lsn_argument("until", LSN.MAX) == LSN.MAX
    assert lsn_argument("start", 0) == 0


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 0, -1, -0.5, "1s", True, [], 1e300])
def test_timeouts_are_seconds_above_0(seconds: Any) -> None:
    assert "number of seconds" in refused(timeout_argument, seconds)


@pytest.mark.parametrize(("seconds", "micros"), [(None, None), (1, 1_000_000), (0.25, 250_000), (1e-9, 1)])
def test_timeouts_become_microseconds(seconds: float | None, micros: int | None) -> None:
    assert timeout_argument(seconds) == micros


@pytest.mark.parametrize("count", [0, -1, True, 1.0, "7", None])
def test_counts_are_integers_from_1(count: Any) -> None:
    assert "max_records" in refused(count_argument, "max_records", count)


@pytest.mark.parametrize("when", [datetime(2026, 1, 1), 1.5, "2026-01-01", True, None])
def test_points_in_time_have_a_zone_or_are_microseconds(when: Any) -> None:
    assert "aware datetime" in refused(time_argument, when)


def test_what_may_change_later_is_copied() -> None:
    payload = bytearray(b"abc")
    taken = payload_argument(payload), payload_argument(memoryview(payload)[1:])
    payload[:] = b"xyz"
    assert taken == (b"abc", b"bc")


def test_text_is_refused_and_told_to_be_encoded() -> None:
    assert "encode" in refused(payload_argument, "text")
    assert "not int" in refused(payload_argument, 7)
    assert "record 1 " in refused(payloads_argument, [b"a", "b"])


def test_any_iterable_of_records_is_taken_but_a_single_record_is_not_many() -> None:
    assert payloads_argument(bytes([65 + n]) for n in range(3)) == [b"A", b"B", b"C"]
    for single in (b"abc", "abc", bytearray(b"a")):
        assert "use append" in refused(payloads_argument, single)
    assert "not int" in refused(payloads_argument, 7)


@pytest.mark.parametrize("compression", [None, "gzip", 1])
def test_a_compression_that_is_none_of_them_is_told_which_there_are(compression: Any) -> None:
    text = refused(writer_options, {}, {"compression": compression})
    assert "'lz4'" in text
    assert "'none'" in text
    assert "'zstd'" in text


@pytest.mark.parametrize("options", [{"memory": 0}, {"memory": True}, {"timeout": 1.5}, {"memory": None}, {"speed": 1}])
def test_writer_options_out_of_their_range_are_refused(options: dict[str, Any]) -> None:
    text = refused(writer_options, {}, options)
    assert next(iter(options)) in text


def test_options_of_a_call_come_before_those_of_the_cluster_file() -> None:
    chosen = writer_options({"compression": "lz4", "timeout_us": "1s"}, {"timeout": "2s", "memory": 5})
    assert chosen == WriterSettings(compression="lz4", timeout_us=2_000_000, memory_bytes_max=5)


class TestLocation:
    FILE = CLUSTER + '[settings.client]\nlocation = "eu.d.c.r.p"\n'

    @pytest.fixture(autouse=True)
    def no_variable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(LOCATION_VARIABLE, raising=False)

    def test_who_says_nothing_stands_where_the_file_says(self) -> None:
        assert str(Client(load_cluster(self.FILE)).location) == "eu.d.c.r.p"
        assert Client(load_cluster(CLUSTER)).location is None

    def test_the_environment_says_it_for_a_host(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(LOCATION_VARIABLE, "us....")
        client = Client(load_cluster(self.FILE))
        assert client.location is not None
        assert client.location.region == "us"
        assert client.session.location == client.location

    def test_what_the_application_says_counts_most(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(LOCATION_VARIABLE, "us....")
        config = load_cluster(self.FILE)
        assert str(Client(config, location="ap.d.c.r.p").location) == "ap.d.c.r.p"
        assert Client(config, location=region("ap")).location == region("ap")
        assert Client(config, location="").location is None

    def test_no_location_is_refused_with_who_said_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with pytest.raises(LogDeviceError, match=r"^INVALID_PARAM: location: .* has 6 labels"):
            Client(load_cluster(CLUSTER), location="a.b.c.d.e.f")
        wrong = load_cluster(self.FILE.replace("eu.d", "e u.d"))
        with pytest.raises(LogDeviceError, match=r"^INVALID_CONFIG: settings\.client: location: "):
            Client(wrong)
        monkeypatch.setenv(LOCATION_VARIABLE, "e/u")
        with pytest.raises(LogDeviceError, match=f"^INVALID_CONFIG: {LOCATION_VARIABLE}: "):
            Client(load_cluster(CLUSTER))

    def test_a_location_of_which_nothing_is_near_is_refused(self) -> None:
        config = load_cluster(CLUSTER.replace("port = 1", 'port = 1\nlocation = "us.d.c.r.p"'))
        with pytest.raises(
            LogDeviceError, match=r"^INVALID_PARAM: location: 'us' names no region, .*, or us\.\.\.\. for a region"
        ):
            Client(config, location="us")
        assert Client(config, location="us....").location == region("us")
        assert Client(load_cluster(CLUSTER), location="p").location == Location.parse("p")

    def test_programs_take_a_location_or_a_region(self) -> None:
        parsed = cat.parser().parse_args(["-c", "x", "--from-region", "us", "7"])
        assert parsed.region == region("us")
        with pytest.raises(SystemExit):
            cat.parser().parse_args(["-c", "x", "--from-region", "us.d", "7"])

    @pytest.mark.parametrize(
        ("given", "log", "near"), [(None, True, True), (None, False, False), (False, True, False), (True, False, True)]
    )
    def test_readers_want_near_copies_and_hedges_as_they_say_or_else_as_the_log_says(
        self, given: bool | None, log: bool, near: bool
    ) -> None:
        said = str(log).lower()
        config = load_cluster(CLUSTER + f"read_near = {said}\nhedged_reads = {said}\n")
        reader = Client(config, location="us....").reader(7, near=given, hedged=given)
        assert (reader._stream.request.near, reader._stream.request.hedged) == (near, near)
        assert Client(load_cluster(CLUSTER)).reader(7)._stream.request.hedged is False
