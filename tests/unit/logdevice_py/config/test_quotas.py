"""Quotas in the cluster file and in the log tree."""

from __future__ import annotations

import pytest

from logdevice_py.config.parse import load_cluster, render_cluster
from logdevice_py.core.ids import LogId
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.token_bucket import Rates

FILE = """
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
[defaults]
replicate = "node:1"
append_bytes_per_s = "10MiB"
[logs."/team"]
read_records_per_s = 100
quota_burst = "2s"
[logs."/team/clicks"]
ids = 1
append_records_per_s = 5
[logs."/free"]
ids = 2
append_bytes_per_s = "0B"
"""


def test_attributes_are_inherited_and_a_group_may_take_one_back() -> None:
    config = load_cluster(FILE)
    clicks, free = config.log(LogId(1)), config.log(LogId(2))
    assert clicks is not None
    assert free is not None
    assert clicks.appends == Rates(10 << 20, 5, 2_000_000)
    assert clicks.reads == Rates(0, 100, 2_000_000)
    assert not free.appends
    assert not free.reads


def test_quotas_of_principals_are_read_and_written() -> None:
    config = load_cluster(
        FILE
        + """
        [quotas."svc-clicks"]
        append_bytes_per_s = "1MiB"
        quota_burst = "500ms"
        [quotas."*"]
        read_records_per_s = 7
        """
    )
    assert config.quotas["svc-clicks"].appends == Rates(1 << 20, 0, 500_000)
    assert config.quotas["*"].reads == Rates(0, 7, 1_000_000)
    assert not config.quotas["*"].appends
    assert load_cluster(render_cluster(config)) == config


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('[quotas."no name"]', "is no name of a principal"),
        ("[quotas.a]\nappend_bytes = 1", "append_bytes: no such setting"),
        ('[quotas.a]\nappend_bytes_per_s = "-1B"', "append_bytes_per_s"),
        ("[quotas.a]\nappend_bytes_per_s = 5", "with a unit"),
        ('[quotas.a]\nquota_burst = "1us"', "below the minimum"),
        ("[quotas]\na = 5", "is a table"),
    ],
)
def test_what_is_wrong_is_named(table: str, words: str) -> None:
    with pytest.raises(LogDeviceError, match=words) as caught:
        load_cluster(FILE + table)
    assert caught.value.status is Status.INVALID_CONFIG
    assert "quotas" in caught.value.detail
