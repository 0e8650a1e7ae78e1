"""Certificates: what is known of those that are made."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509

from logdevice_py.core.ids import NodeId
from logdevice_py.core.status import LogDeviceError
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


def test_authorities_of_a_cluster_have_names_of_their_own_and_sign_while_both_are_trusted(tmp_path: Path) -> None:
    one, other = (CertificateAuthority(tmp_path / name, CLUSTER) for name in ("one", "other"))
    one.make()
    other.make()
    of_one, of_other = (each.joinpath("ca.pem").read_bytes() for each in (one.directory, other.directory))
    both = of_one + of_other
    first, second = (each.subject for each in x509.load_pem_x509_certificates(both))
    assert first != second, "ZooKeeper trusts one authority of a name"
    for authority, subject in ((one, first), (other, second)):
        (authority.directory / "ca.pem").write_bytes(both)
        made = authority.certify_node(NodeId(1)).path
        assert x509.load_pem_x509_certificate(made.read_bytes()).issuer == subject
    (tmp_path / "one" / "ca.pem").write_bytes(of_other)
    with pytest.raises(LogDeviceError, match="none of its certificates belongs to"):
        one.certify_node(NodeId(1))
