"""Options of Spark's source of index logs that say who the query is."""

from __future__ import annotations

from typing import Any

import pytest

from client.spark.access import ClusterAccess
from indexlog.spark.jobs import OnSpark
from indexlog.spark.options import IndexOptions
from logdevice_py.core.status import LogDeviceError


def test_files_say_who_the_query_is() -> None:
    options = IndexOptions.of({"cluster": "c.toml", "identityfile": "/etc/a.pem", "caFile": "/etc/ca.pem"})
    assert options.access == ClusterAccess(identity_file="/etc/a.pem", ca_file="/etc/ca.pem")
    assert IndexOptions.of({"cluster": "c.toml", "tokenFile": "/etc/token"}).access.token_file == "/etc/token"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("identityFile", "-----BEGIN PRIVATE KEY-----\nMC4CAQ", "identityFile: name a file"),
        ("keysFile", "/etc/keys", "there is no option keysfile"),
    ],
)
def test_secrets_and_keys_are_no_options(name: str, text: str, told: str) -> None:
    with pytest.raises(LogDeviceError) as refused:
        IndexOptions.of({"cluster": "c.toml", name: text})
    assert told in refused.value.detail
    assert "MC4CAQ" not in refused.value.detail


class Session:
    """Notes what raw logs are read with."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.read = self

    def format(self, name: str) -> Session:
        return self

    def option(self, name: str, value: str) -> Session:
        self.given[name] = value
        return self

    def options(self, **options: str) -> Session:
        self.given.update(options)
        return self

    def load(self) -> Session:
        return self

    def mapInArrow(self, task: Any, schema: Any) -> Session:
        return self

    def collect(self) -> list[Any]:
        return []


def test_raw_logs_are_dealt_with_the_identity_of_the_job() -> None:
    session = Session()
    job = OnSpark(session, "c.toml", {"identityFile": "/etc/dealer.pem"})  # type: ignore[arg-type]
    assert job._make_containers({1: (1, 5)}, None, 1000) == []  # type: ignore[arg-type]
    assert (session.given["cluster"], session.given["identityFile"]) == ("c.toml", "/etc/dealer.pem")
