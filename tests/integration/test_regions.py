"""``ld-dev-cluster up --regions``: real nodes and real ZooKeeper servers, as far from each other as regions are."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from client.read.items import Record
from client.sync import SyncClient
from server.dev.dev_cluster import main
from server.dev.region_cluster import zookeeper_url
from server.dev.region_network import why_no_regions
from server.dev.zookeeper_server import why_no_zookeeper
from tests.integration.test_dev_cluster import Up, command_of, said

ROUND_TRIP = 0.1
_WHY_NOT = why_no_regions() or why_no_zookeeper()
needs_regions = pytest.mark.skipif(_WHY_NOT is not None, reason=str(_WHY_NOT))


@contextmanager
def up(directory: Path, *options: str) -> Iterator[Path]:
    process = Up(directory, *options)
    try:
        process.wait_until_ready()
        yield directory / "cluster.toml"
    finally:
        process.end()


def append(client: SyncClient, payload: bytes) -> float:
    """Seconds that it took until it was acknowledged, however many tries that took."""
    began = time.monotonic()
    client.append(1, payload)
    return time.monotonic() - began


@pytest.mark.parametrize(
    "without",
    [
        pytest.param([], id="namespaces", marks=needs_regions),
        pytest.param(["--no-namespaces"], id="for who is not root"),
    ],
)
def test_regions_are_apart_cut_off_and_lost(tmp_path: Path, without: list[str]) -> None:
    """Without namespaces the cluster's epoch store stands in none of them."""
    directory = tmp_path / "c"
    options = ["--regions", "us,eu,ap", "--nodes", "3", "--logs", "1", "--replicate", "region:2,node:2"]
    with (
        up(directory, *options, "--rtt", "100ms", *without) as file,
        SyncClient(file) as client,
    ):
        warned = "this is for development only" in (directory / "n0.log").read_text()
        assert warned == bool(without)
        written = [b"first"]
        append(client, written[0])
        for number in range(3):
            written.append(b"far %d" % number)
            assert append(client, written[-1]) >= ROUND_TRIP, "a copy is in another region"
        assert command_of(directory, "cut-off", "eu") == "eu is cut off\n"
        written.append(b"without eu")
        append(client, written[-1])
        assert command_of(directory, "reconnect", "eu") == "eu is reachable again\n"
        assert command_of(directory, "cut-off", "ap", "--to", "eu") == "nothing passes from ap to eu\n"
        # the sequencer's node, the server that the client's session was at, and perhaps ZooKeeper's leader
        assert command_of(directory, "kill", "us") == "N0 killed\n"
        command_of(directory, "reconnect", "ap")
        written.append(b"without us")
        append(client, written[-1])
        assert command_of(directory, "start", "us").startswith("N0 started")
        found = [item.payload for item in client.reader(1, until="tail") if isinstance(item, Record)]
        assert found == written
    with up(directory, "--rtt", "1ms") as file, SyncClient(file) as client:
        append(client, b"near")
        found = [item.payload for item in client.reader(1, until="tail") if isinstance(item, Record)]
        assert found == [*written, b"near"], "its regions are played again, and nearer"


@pytest.mark.slow
@needs_regions
def test_a_server_of_zookeeper_is_back_soon_after_its_region(tmp_path: Path) -> None:
    """Until it is, the loss of another region leaves no majority. TCP by itself tries again 19 s after it was cut off."""
    directory = tmp_path / "c"
    regions = ["us", "eu", "ap"]
    options = ["--regions", ",".join(regions), "--nodes", "3", "--logs", "1", "--replicate", "region:2,node:2"]
    with up(directory, *options, "--rtt", "80ms"):
        assert serves(directory, regions, "eu")
        command_of(directory, "cut-off", "eu")
        time.sleep(10.5)
        command_of(directory, "reconnect", "eu")
        connected = time.monotonic()
        while not serves(directory, regions, "eu"):
            assert time.monotonic() < connected + 6
            time.sleep(0.05)


def serves(directory: Path, regions: list[str], region: str) -> bool:
    """Whether a region's ZooKeeper server is one of most of them."""
    addresses = zookeeper_url(directory, regions).removeprefix("zookeeper://").split(",")
    host, _, port = addresses[regions.index(region)].partition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=1) as connection:
            connection.sendall(b"srvr")
            return b"Mode:" in connection.recv(4096)
    except OSError:
        return False


@needs_regions
def test_a_further_region(tmp_path: Path) -> None:
    directory = tmp_path / "c"
    with up(directory, "--regions", "us,eu", "--nodes", "2", "--logs", "1", "--replicate", "node:2", "--rtt", "5ms"):
        assert (
            command_of(directory, "add", "--location", "ap.dc.cluster.row.rack0")
            == "N2 added in ap.dc.cluster.row.rack0\n"
        )
        assert command_of(directory, "cut-off", "ap") == "ap is cut off\n"
        assert command_of(directory, "reconnect", "ap") == "ap is reachable again\n"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--no-namespaces"], "say which, like --regions us,eu,ap"),
        (["--rtt", "80ms"], "say which, like --regions us,eu,ap"),
        (["--regions", "us,eu", "--rtt", "us-ap:80ms"], "there is no region ap"),
        (["--regions", "us,eu", "--rtt", "80"], "is no duration"),
    ],
)
def test_what_is_no_distance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], words: str
) -> None:
    assert words in said(capsys, "up", "--dir", str(tmp_path / "c"), *options)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("text", ["us", "us,us", "us,", "us,e.u"])
def test_what_is_no_list_of_regions(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit):
        main(["up", "--dir", str(tmp_path / "c"), "--regions", text])
    assert "write two or more regions like us,eu,ap" in capsys.readouterr().err
