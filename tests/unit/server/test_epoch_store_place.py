"""What a node is told of its epoch store, when it has no cluster file."""

from __future__ import annotations

from pathlib import Path

import pytest

from epoch_store.zookeeper_access import zookeeper_access, zookeeper_access_by
from logdevice_py.config.parse import load_cluster
from logdevice_py.config.security import parse_security
from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError, Status
from server.configuration.begin import EpochStorePlace, parse_reach
from server.logdeviced import main

TEXT = """
version = 3
name = "test"
uuid = "5f0c9d4e-0b7a-4c59-9a51-2f1d7c5f3e88"
epoch_store = "zookeeper://old:2181"
[nodes.N0]
host = "h"
port = 1
[metadata_log]
replicate = "node:1"
[settings.security]
zookeeper_auth_file = "zookeeper.auth"
audit_file = "{node}.jsonl"
"""


def test_what_it_is_told_holds_before_what_a_configuration_says(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("node:a-password-of-this-machine")
    secret.chmod(0o600)
    place = EpochStorePlace("zookeeper://new:2181/root", "test", {"zookeeper_auth_file": str(secret)})
    found = place.reached_from(load_cluster(TEXT))
    assert found.epoch_store == "zookeeper://new:2181/root"
    assert parse_security(found.settings).audit_file == "{node}.jsonl"
    expected = ("node", "a-password-of-this-machine")
    assert zookeeper_access(tmp_path / "cluster.toml", found, NodeId(0)).credentials == expected
    alone = parse_security({"security": place.security})
    assert zookeeper_access_by(alone, tmp_path, NodeId(0)).credentials == expected
    with pytest.raises(LogDeviceError) as refused:
        EpochStorePlace("zookeeper://new:2181", "other").reached_from(load_cluster(TEXT))
    assert refused.value.status is Status.INVALID_CLUSTER


def test_settings_of_how_zookeeper_is_reached_are_written_without_quotes() -> None:
    assert parse_reach("zookeeper_auth_file=/run/secrets/zk") == ("zookeeper_auth_file", "/run/secrets/zk")
    assert parse_reach("zookeeper_tls=true") == ("zookeeper_tls", True)
    for text, why in [
        ("zookeeper_tls=maybe", "write true or false"),
        ("zookeeper_auth=/x", "did you mean zookeeper_auth_file"),
        ("permissions=true", "write one of"),
        ("zookeeper_tls", "write KEY=VALUE"),
    ]:
        with pytest.raises(ValueError, match=why):
            parse_reach(text)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-n", "1"], "-c/--config (or --epoch-store)"),
        (["-n", "1", "--cluster", "x"], "stand with --epoch-store"),
        (["-n", "1", "--epoch-store", "sqlite:///x"], "--cluster says of which"),
        (["-n", "1", "--epoch-store", "sqlite:///x", "--cluster", "x"], "--data says where"),
        (["--epoch-store", "sqlite:///x", "--cluster", "x", "--data", "d", "--security", "tls=off"], "write one of"),
    ],
)
def test_options_that_lack_something_are_refused(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(words)
    assert says in capsys.readouterr().err
