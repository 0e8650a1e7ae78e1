"""Certificates: what is known of those that are made."""

from __future__ import annotations

from pathlib import Path

import pytest

from logdevice_py.core.ids import NodeId
from logdevice_py.core.units import Timestamp
from logdevice_py.runtime import tls
from logdevice_py.runtime.certificates import CertificateAuthority, expiry
from logdevice_py.runtime.clock import wall_us
from logdevice_py.runtime.tls import TlsContexts, TlsFiles

CLUSTER = bytes(range(16))
DAY = 86_400


def test_a_process_knows_when_its_certificate_expires_and_that_it_was_renewed(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path, CLUSTER)
    authority.make()
    path = authority.certify_node(NodeId(1), days=5).path
    assert abs(expiry(path) / 1e6 - wall_us() / 1e6 - 5 * DAY) < 60
    contexts = TlsContexts(TlsFiles(tmp_path / "ca.pem", path), CLUSTER)
    assert contexts.expires == expiry(path)
    authority.certify_node(NodeId(1), days=50)
    assert contexts.reload()
    assert abs(contexts.expires / 1e6 - wall_us() / 1e6 - 50 * DAY) < 60


def test_one_without_a_certificate_says_so(tmp_path: Path) -> None:
    CertificateAuthority(tmp_path, CLUSTER).make()
    assert TlsContexts(TlsFiles(tmp_path / "ca.pem"), CLUSTER).expires == 0


def test_one_that_tls_takes_and_nobody_can_read_is_used_and_its_end_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = CertificateAuthority(tmp_path, CLUSTER)
    authority.make()
    files = TlsFiles(tmp_path / "ca.pem", authority.certify_node(NodeId(1)).path)

    def unreadable(path: Path) -> Timestamp:
        raise ValueError("not as X.509 wants it")

    monkeypatch.setattr(tls, "expiry", unreadable)
    assert TlsContexts(files, CLUSTER).expires == 0
