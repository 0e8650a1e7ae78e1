"""Clusters keep away from each other's addresses."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from logdevice_py.core.ids import NodeId
from server.dev import layout
from server.dev.local_cluster import LocalCluster


def test_addresses_at_which_a_node_listens_are_not_free(tmp_path: Path) -> None:
    assert layout.is_free(tmp_path)
    with socket.create_server((layout.node_host(tmp_path, NodeId(0)), layout.NODE_PORT)):
        assert not layout.is_free(tmp_path)
    assert layout.is_free(tmp_path)


def test_a_local_cluster_takes_a_directory_whose_addresses_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Path] = []

    def is_free(directory: Path) -> bool:
        looked_at.append(directory)
        return len(looked_at) == 3

    monkeypatch.setattr(layout, "is_free", is_free)
    cluster = LocalCluster(nodes=1)
    try:
        assert cluster.directory == looked_at[-1]
        assert [directory.exists() for directory in looked_at] == [False, False, True]
    finally:
        assert cluster._scratch is not None
        cluster._scratch.remove()
