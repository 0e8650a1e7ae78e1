"""Options of Spark's source of index logs that say who the query is."""

from __future__ import annotations

import pytest

from client.spark.access import ClusterAccess
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
