"""Which URLs name an epoch store."""

from __future__ import annotations

import pytest

from epoch_store.opening import check_epoch_store_url
from logdevice_py.core.status import LogDeviceError


@pytest.mark.parametrize(
    "url",
    [
        "memory:",
        "sqlite:///var/lib/epochs.db",
        "zookeeper://a:2181",
        "zookeeper://a:2181,b.example:2182,10.0.0.1:2183/some/root",
        "zookeeper://[::1]:2181/",
    ],
)
def test_these_are_well_formed(url: str) -> None:
    check_epoch_store_url(url)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "epochs.db",
        "memory:x",
        "sqlite://epochs.db",
        "sqlite:///",
        "sqlite:///dir/",
        "zookeeper://",
        "zookeeper://a",
        "zookeeper://a:1,,b:2",
        "zookeeper://a:2181//x",
        "zookeeper://a:2181/x y",
        "etcd://a:1",
    ],
)
def test_others_are_refused_with_an_example(url: str) -> None:
    with pytest.raises(LogDeviceError, match="write it like"):
        check_epoch_store_url(url)


def test_a_file_serves_one_machine_only() -> None:
    url = "sqlite:///var/lib/epochs.db"
    check_epoch_store_url(url, ["127.1.0.1", "127.1.0.2", "localhost", "::1"])
    check_epoch_store_url(url, ["a.example", "a.example"])
    with pytest.raises(LogDeviceError, match="one machine only"):
        check_epoch_store_url(url, ["a.example", "b.example"])
    check_epoch_store_url("zookeeper://a:2181", ["a.example", "b.example"])
