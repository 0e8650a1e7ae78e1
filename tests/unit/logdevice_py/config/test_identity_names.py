"""What certificates name."""

from __future__ import annotations

import pytest

from logdevice_py.config.identity_names import CertifiedNames, certified_names, node_uri, principal_uris
from logdevice_py.core.ids import NodeId
from logdevice_py.core.principal import Principal

UUID, OTHER = b"\x01" * 16, b"\x02" * 16
HOME = "logdevice://01010101-0101-0101-0101-010101010101"
NOTHING = CertifiedNames()


def test_what_is_written_is_read() -> None:
    assert certified_names([node_uri(UUID, NodeId(3))], "x", UUID) == CertifiedNames(NodeId(3), None)
    principal = Principal("svc-clicks", frozenset({"a", "b"}))
    found = certified_names(principal_uris(UUID, principal), "x", UUID).principal
    assert found == principal
    assert found.groups == principal.groups


def test_another_clusters_names_are_no_names() -> None:
    uris = [node_uri(OTHER, NodeId(3)), *principal_uris(OTHER, Principal("a", frozenset({"g"})))]
    assert certified_names(uris, "a", UUID) == NOTHING


def test_a_common_name_is_a_principal_where_no_name_of_ours_is_and_never_a_node() -> None:
    assert certified_names(["https://example.org"], "svc", UUID) == CertifiedNames(None, Principal("svc"))
    assert certified_names([], "N3", UUID).node is None
    assert certified_names([], "", UUID) == NOTHING
    assert certified_names([], "group/admins", UUID) == NOTHING
    assert certified_names([f"{HOME}/unknown/x"], "svc", UUID) == NOTHING


def test_two_principals_are_none() -> None:
    assert certified_names([f"{HOME}/principal/a", f"{HOME}/principal/b"], "a", UUID) == NOTHING


@pytest.mark.parametrize(
    "uri",
    [
        "/node/03",
        "/node/-1",
        "/node/99999",
        "/node/3/",
        "/node/",
        "/principal/a b",
        "/principal/group/x",
        "/group/x",
        "/Node/3",
        "/node/3\n",
    ],
)
def test_what_is_written_otherwise_names_nothing(uri: str) -> None:
    assert certified_names([HOME + uri], "svc", UUID) == NOTHING
