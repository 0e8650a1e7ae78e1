"""Introductions where something has to be proved: who is believed to be a node, who a client is, and when a connection ends for it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from logdevice_py.config.security import SecuritySettings
from logdevice_py.core.ids import NodeId, PeerId
from logdevice_py.core.principal import Principal
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.protocol.messages import Ack, Hello
from logdevice_py.shell.introduction import BadTokenError, Believed, Identity, Introduced, Introduction
from logdevice_py.shell.proof import NO_PROOF, PeerProof, Principals
from logdevice_py.shell.settings import RuntimeSettings
from tests.unit.logdevice_py.shell.test_introduction import CLIENT, NODE, OTHER, UUID

CLICKS, BEARER = Principal("svc-clicks"), Principal("svc-token", frozenset({"bi"}))
TLS = PeerProof(encrypted=True)
OF_CLICKS = PeerProof(encrypted=True, principal=CLICKS, serial=7, until=1_000)
OF_N0 = PeerProof(encrypted=True, node=NodeId(0), cluster_uuid=UUID, serial=10)
OF_N1 = PeerProof(encrypted=True, node=NodeId(1), cluster_uuid=UUID, serial=11)
OFF = SecuritySettings()
ACCEPT = SecuritySettings(tls="accept")
REQUIRE = SecuritySettings(tls="require")
PERMISSIONS = SecuritySettings(tls="require", permissions=True)
UPGRADING = SecuritySettings(tls="accept", permissions=True)


def check(token: str) -> Believed:
    if token != "good":
        raise BadTokenError("it is not signed by anybody who may")
    return Believed(BEARER, 500)


class AcceptingProofs:
    """The node N0."""

    def __init__(self, security: SecuritySettings) -> None:
        self.principals = Principals()
        self.introduction = Introduction(
            NODE,
            lambda node: node in (0, 1),
            RuntimeSettings(),
            lambda version: None,
            security=security,
            principals=self.principals,
            check_token=check,
        )

    def receive(self, hello: Hello, proof: PeerProof, connection: str = "a") -> Introduced:
        assert self.introduction.admission.arrived(connection, "10.0.0.1") is None
        return self.introduction.receive(connection, hello, more=False, dialled=None, proof=proof)


def said(identity: Identity, token: str = "") -> Hello:
    plain = Introduction(identity, lambda node: True, RuntimeSettings(), lambda version: None)
    return replace(plain.hello(NodeId(0)), token=token)


def status(security: SecuritySettings, identity: Identity, proof: PeerProof, token: str = "") -> Status:
    introduced = AcceptingProofs(security).receive(said(identity, token), proof)
    assert (introduced.peer is None) == (introduced.ack.status is not Status.OK)
    return introduced.ack.status


@pytest.mark.parametrize(
    ("security", "proof", "expected"),
    [
        (OFF, NO_PROOF, Status.OK),
        (ACCEPT, NO_PROOF, Status.OK),
        (ACCEPT, TLS, Status.OK),
        (ACCEPT, OF_N1, Status.OK),
        (ACCEPT, OF_N0, Status.ACCESS),
        (ACCEPT, OF_CLICKS, Status.ACCESS),
        (UPGRADING, NO_PROOF, Status.ACCESS),
        (UPGRADING, OF_N1, Status.OK),
        (REQUIRE, NO_PROOF, Status.ACCESS),
        (REQUIRE, TLS, Status.ACCESS),
        (REQUIRE, OF_CLICKS, Status.ACCESS),
        (REQUIRE, OF_N0, Status.ACCESS),
        (REQUIRE, OF_N1, Status.OK),
        (PERMISSIONS, NO_PROOF, Status.ACCESS),
        (PERMISSIONS, TLS, Status.ACCESS),
        (PERMISSIONS, replace(OF_N1, cluster_uuid=b"v" * 16), Status.ACCESS),
        (PERMISSIONS, OF_N1, Status.OK),
    ],
)
def test_a_node_is_who_proves_to_be_that_node(security: SecuritySettings, proof: PeerProof, expected: Status) -> None:
    assert status(security, OTHER, proof) is expected


@pytest.mark.parametrize(
    ("security", "proof", "expected"),
    [(ACCEPT, NO_PROOF, Status.OK), (REQUIRE, NO_PROOF, Status.ACCESS), (REQUIRE, TLS, Status.OK)],
)
def test_clear_text_is_taken_unless_tls_is_required(
    security: SecuritySettings, proof: PeerProof, expected: Status
) -> None:
    assert status(security, CLIENT, proof) is expected


def test_a_client_is_the_principal_of_its_certificate_and_is_told_so() -> None:
    node = AcceptingProofs(PERMISSIONS)
    named, anonymous = node.receive(said(CLIENT), OF_CLICKS, "a"), node.receive(said(CLIENT), TLS, "b")
    assert named.peer is not None
    assert anonymous.peer is not None
    assert (str(node.principals.of(named.peer)), named.ack.principal) == ("svc-clicks", "svc-clicks")
    assert (str(node.principals.of(anonymous.peer)), anonymous.ack.principal) == ("anonymous", "anonymous")
    node.introduction.gone("a", named.peer)
    assert str(node.principals.of(named.peer)) == "anonymous"


def test_a_certificate_of_a_node_makes_no_principal_of_a_client() -> None:
    node = AcceptingProofs(PERMISSIONS)
    introduced = node.receive(said(CLIENT), OF_N1)
    assert introduced.peer is not None
    assert introduced.peer < 0
    assert str(node.principals.of(introduced.peer)) == "anonymous"


class TestToken:
    def test_it_names_the_principal_where_the_connection_is_encrypted(self) -> None:
        node = AcceptingProofs(PERMISSIONS)
        introduced = node.receive(said(CLIENT, "good"), TLS)
        assert introduced.peer is not None
        assert node.principals.of(introduced.peer).grantees == {"svc-token", "group/bi", "anonymous"}

    @pytest.mark.parametrize("security", [OFF, ACCEPT, UPGRADING, PERMISSIONS])
    def test_in_clear_text_it_is_refused(self, security: SecuritySettings) -> None:
        assert status(security, CLIENT, NO_PROOF, "good") is Status.ACCESS

    def test_one_that_is_not_believed_is_refused_and_not_repeated(self) -> None:
        ack = AcceptingProofs(PERMISSIONS).receive(said(CLIENT, "forged"), TLS).ack
        assert ack.status is Status.ACCESS
        assert "not signed by anybody" in ack.detail
        assert "forged" not in ack.detail

    def test_it_makes_nobody_a_node(self) -> None:
        assert status(PERMISSIONS, OTHER, TLS, "good") is Status.ACCESS

    def test_the_certificate_counts_where_there_are_both(self) -> None:
        node = AcceptingProofs(PERMISSIONS)
        introduced = node.receive(said(CLIENT, "forged"), OF_CLICKS)
        assert introduced.ack.principal == "svc-clicks"


class TestDialler:
    def dialler(self, security: SecuritySettings = REQUIRE, token: str = "") -> Introduction:
        identity = replace(CLIENT, cluster_uuid=UUID, token=token)
        return Introduction(identity, lambda node: True, RuntimeSettings(), lambda version: None, security=security)

    @pytest.mark.parametrize("proof", [NO_PROOF, TLS, OF_N1, OF_CLICKS, replace(OF_N0, cluster_uuid=b"v" * 16)])
    def test_nothing_is_said_to_one_that_is_not_the_node(self, proof: PeerProof) -> None:
        with pytest.raises(LogDeviceError) as raised:
            self.dialler(token="secret").hello(NodeId(0), proof)
        assert raised.value.status is Status.ACCESS

    def test_the_token_goes_to_the_node_only_and_over_tls_only(self) -> None:
        assert self.dialler(token="secret").hello(NodeId(0), OF_N0).token == "secret"
        assert self.dialler(ACCEPT).hello(NodeId(0)).token == ""
        with pytest.raises(LogDeviceError):
            self.dialler(ACCEPT, "secret").hello(NodeId(0))
        with pytest.raises(LogDeviceError):
            self.dialler(OFF, "secret").hello(NodeId(0))

    def test_it_learns_whom_it_is_taken_for(self) -> None:
        introduction = self.dialler()
        ack = Ack(
            status=Status.OK,
            protocol=1,
            cluster_uuid=UUID,
            node=NodeId(0),
            instance=NODE.instance,
            config_version=1,
            detail="",
            principal="svc-clicks",
        )
        introduction.receive("c", ack, more=False, dialled=PeerId(0), proof=OF_N0)
        assert introduction.principals.own == "svc-clicks"


def test_a_revoked_certificate_proves_nothing() -> None:
    node = AcceptingProofs(PERMISSIONS)
    node.introduction.revoked = frozenset({OF_CLICKS.serial, OF_N1.serial})
    assert node.receive(said(CLIENT), OF_CLICKS, "a").ack.status is Status.ACCESS
    assert node.receive(said(OTHER), OF_N1, "b").ack.status is Status.ACCESS
    dialler = TestDialler().dialler()
    dialler.revoked = frozenset({OF_N0.serial})
    with pytest.raises(LogDeviceError, match="is revoked"):
        dialler.hello(NodeId(0), OF_N0)


def test_who_signed_what_is_proved_has_to_be_believed_still() -> None:
    node, is_valid = AcceptingProofs(PERMISSIONS), [True]
    node.introduction._check_token = lambda token: Believed(BEARER, 500, lambda: is_valid[0])
    first, second = replace(OF_CLICKS, authority=b"first"), replace(OF_N1, authority=b"second")
    node.receive(said(CLIENT), first, "client")
    node.receive(said(OTHER), second, "node")
    node.receive(said(CLIENT, "good"), TLS, "token")
    node.receive(said(CLIENT), OF_CLICKS, "not known")
    node.introduction.authorities = frozenset({b"first", b"second"})
    assert node.introduction.fallen(0) == []
    node.introduction.authorities = frozenset({b"second"})
    assert [connection for connection, _ in node.introduction.fallen(0)] == ["client"]
    assert node.receive(said(CLIENT), first, "again").ack.status is Status.ACCESS
    is_valid[0] = False
    assert {connection for connection, _ in node.introduction.fallen(0)} == {"client", "token"}
    dialler = TestDialler().dialler()
    dialler.authorities = frozenset({b"first"})
    with pytest.raises(LogDeviceError, match="not in ca_file any more"):
        dialler.hello(NodeId(0), replace(OF_N0, authority=b"second"))
    assert dialler.hello(NodeId(0), replace(OF_N0, authority=b"first")).destination == 0


def test_what_has_expired_or_is_revoked_falls() -> None:
    node = AcceptingProofs(PERMISSIONS)
    node.receive(said(CLIENT), OF_CLICKS, "certificate")
    node.receive(said(CLIENT, "good"), TLS, "token")
    node.receive(said(CLIENT), TLS, "anonymous")
    node.receive(said(OTHER), OF_N1, "node")

    def fallen(now: int, *revoked: int) -> dict[object, str]:
        node.introduction.revoked = frozenset(revoked)
        return dict(node.introduction.fallen(now))

    assert fallen(499) == {}
    assert set(fallen(500)) == {"token"}
    assert set(fallen(1_000)) == {"token", "certificate"}
    assert "b is revoked" in fallen(0, 11)["node"]
    assert set(fallen(0, 7)) == {"certificate"}
    node.introduction.gone("certificate", PeerId(-1))
    assert set(fallen(1_000)) == {"token"}
