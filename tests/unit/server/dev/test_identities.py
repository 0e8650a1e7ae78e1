"""Certificates of development clusters: what is made, for whom, and when."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.x509 import SubjectAlternativeName, UniformResourceIdentifier, load_pem_x509_certificate

from logdevice_py.core.ids import NodeId
from logdevice_py.core.principal import Principal
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.runtime.certificates import CertificateAuthority
from logdevice_py.runtime.tls import TlsContexts, TlsFiles, read_revoked
from logdevice_py.runtime.tokens import TokenChecker
from logdevice_py.shell.introduction import BadTokenError
from server.dev import layout
from server.dev.dev_cluster import make_config
from server.dev.identities import make_identities
from server.dev.supervisor import Supervisor, write_cluster_file

UUID = b"u" * 16


def secure(directory: Path, *, secure: bool = True) -> Supervisor:
    config = make_config(directory, nodes=2, logs=1, replicate="node:1", racks=1, epoch_store=None, secure=secure)
    write_cluster_file(directory, config)
    make_identities(directory, config)
    return Supervisor(directory, config)


def test_what_is_there_stays_and_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    supervisor = secure(tmp_path)
    files = {path: path.read_bytes() for path in (tmp_path / "identity").iterdir()}
    names = {"ca.key", "ca.pem", "token.key", "token.pem", "revoked.txt", "issued.txt", "N0.pem", "N1.pem"}
    assert names == {path.name for path in files}
    private = {path.name for path in files if b"PRIVATE KEY" in files[path]}
    assert private == {"ca.key", "token.key", "N0.pem", "N1.pem"}
    assert {path.stat().st_mode & 0o077 for path in files if path.name in private} == {0}
    assert layout.cluster_file(tmp_path).with_suffix(".pem").stat().st_mode & 0o077 == 0
    make_identities(tmp_path, supervisor.config)
    assert {path: path.read_bytes() for path in (tmp_path / "identity").iterdir()} == files


class TestFilesOfTheAuthority:
    def contents(self, directory: Path) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in directory.iterdir()}

    def test_where_its_key_is_not_another_one_does_not_take_its_place(self, tmp_path: Path) -> None:
        authority = CertificateAuthority(tmp_path, UUID)
        authority.make()
        (tmp_path / "ca.key").unlink()  # as on a node's machine
        (tmp_path / "token.key").unlink()
        before = self.contents(tmp_path)
        with pytest.raises(LogDeviceError, match="whose key is not there") as caught:
            authority.make()
        assert caught.value.status is Status.INVALID_CONFIG
        assert self.contents(tmp_path) == before

    @pytest.mark.parametrize("name", ["ca", "token", "N0", "N17"])
    def test_no_principal_takes_their_place(self, tmp_path: Path, name: str) -> None:
        authority = CertificateAuthority(tmp_path, UUID)
        authority.make()
        authority.certify_node(NodeId(0))
        before = self.contents(tmp_path)
        with pytest.raises(LogDeviceError, match="give the principal another name") as caught:
            authority.certify_principal(Principal(name))
        assert caught.value.status is Status.INVALID_PARAM
        assert self.contents(tmp_path) == before

    @pytest.mark.parametrize("last", ["", "ca.key", "ca.pem", "token.key", "token.pem"])
    def test_a_crash_on_the_way_leaves_what_can_be_made_whole(self, tmp_path: Path, last: str) -> None:
        authority = CertificateAuthority(tmp_path, UUID)
        authority.make()
        order = ["ca.key", "ca.pem", "token.key", "token.pem", "revoked.txt"]
        for name in order[order.index(last) + 1 if last else 0 :]:
            (tmp_path / name).unlink()
        before = self.contents(tmp_path)
        authority.make()
        authority.certify_principal(Principal("svc-clicks"))
        TlsContexts(TlsFiles(tmp_path / "ca.pem", tmp_path / "svc-clicks.pem", None, tmp_path / "revoked.txt"), UUID)
        assert TokenChecker(tmp_path / "token.pem", UUID)(authority.make_token(Principal("a"))).principal.name == "a"
        assert {name: self.contents(tmp_path)[name] for name in before} == before

    def test_other_keys_for_tokens_are_made_where_both_were_taken_away(self, tmp_path: Path) -> None:
        authority = CertificateAuthority(tmp_path, UUID)
        authority.make()
        lost = authority.make_token(Principal("svc-clicks"))
        (tmp_path / "token.key").unlink()
        (tmp_path / "token.pem").unlink()
        assert not authority.make()
        with pytest.raises(BadTokenError, match="not signed"):
            TokenChecker(tmp_path / "token.pem", UUID)(lost)

    def test_a_certificate_that_was_replaced_can_still_be_revoked(self, tmp_path: Path) -> None:
        authority = CertificateAuthority(tmp_path, UUID)
        authority.make()
        made = [authority.certify_principal(Principal("svc-clicks")) for _ in range(2)]
        issued = [line.split() for line in (tmp_path / "issued.txt").read_text().splitlines()]
        assert [line[:3] for line in issued] == [[each.serial, "svc-clicks", "until"] for each in made]
        (tmp_path / "revoked.txt").unlink()
        authority.revoke(made[0].serial)
        authority.revoke(made[1].serial)
        assert read_revoked(tmp_path / "revoked.txt") == {int(each.serial, 16) for each in made}


def test_without_security_nothing_is_made(tmp_path: Path) -> None:
    secure(tmp_path, secure=False)
    assert not (tmp_path / "identity").exists()


async def test_a_node_that_is_added_has_a_certificate_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[bool] = []

    async def start(self: Supervisor, node: int) -> str:
        started.append((tmp_path / "identity" / f"N{node}.pem").exists())
        return ""

    monkeypatch.setattr(Supervisor, "start", start)
    await secure(tmp_path).add(None)
    assert started == [True]


class TestTokens:
    def authority(self, directory: Path, uuid: bytes = UUID) -> CertificateAuthority:
        authority = CertificateAuthority(directory, uuid)
        authority.make()
        return authority

    def test_one_is_believed_for_its_cluster_by_its_key_and_while_it_counts(self, tmp_path: Path) -> None:
        token = self.authority(tmp_path).make_token(Principal("a", frozenset({"g"})), 60)
        believed = TokenChecker(tmp_path / "token.pem", UUID)(token)
        assert believed.principal == Principal("a", frozenset({"g"}))
        with pytest.raises(BadTokenError, match="another cluster"):
            TokenChecker(tmp_path / "token.pem", b"v" * 16)(token)
        self.authority(tmp_path / "other")
        with pytest.raises(BadTokenError, match="not signed with a key"):
            TokenChecker(tmp_path / "other" / "token.pem", UUID)(token)

    def test_what_is_no_such_token_proves_nothing(self, tmp_path: Path) -> None:
        import jwt

        authority = self.authority(tmp_path)
        check = TokenChecker(tmp_path / "token.pem", UUID)
        good = jwt.decode(authority.make_token(Principal("a")), options={"verify_signature": False})
        key = (tmp_path / "token.key").read_bytes()
        public = (tmp_path / "token.pem").read_bytes()
        forged = [
            jwt.encode(good, None, algorithm="none"),
            jwt.encode({**good, "exp": good["exp"] + 90_000}, key, algorithm="EdDSA"),
            jwt.encode({**good, "sub": "group/admins"}, key, algorithm="EdDSA"),
            jwt.encode({**good, "groups": "admins"}, key, algorithm="EdDSA"),
            jwt.encode({**good, "exp": 1}, key, algorithm="EdDSA"),
            jwt.encode({name: good[name] for name in ("sub", "aud")}, key, algorithm="EdDSA"),
            "",
            "a.b.c",
            "x" * 1000,
        ]
        for token in forged:
            with pytest.raises(BadTokenError):
                check(token)
        # the public key is no secret that signs
        import hashlib
        import hmac
        from base64 import urlsafe_b64encode as b64

        head = b64(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")
        body = authority.make_token(Principal("a")).split(".")[1].encode()
        mac = b64(hmac.new(public, head + b"." + body, hashlib.sha256).digest()).rstrip(b"=")
        with pytest.raises(BadTokenError):
            check((head + b"." + body + b"." + mac).decode())

    def test_none_counts_for_more_than_a_day(self, tmp_path: Path) -> None:
        with pytest.raises(LogDeviceError, match="at most 24 hours"):
            self.authority(tmp_path).make_token(Principal("a"), 86_401)


class TestFiles:
    def test_those_that_cannot_be_used_are_named(self, tmp_path: Path) -> None:
        CertificateAuthority(tmp_path, UUID).make()
        bad = tmp_path / "bad"
        bad.write_text("xyz")
        for files in (
            TlsFiles(bad),
            TlsFiles(tmp_path / "none"),
            TlsFiles(tmp_path / "ca.pem", bad),
            TlsFiles(tmp_path / "ca.pem", None, None, bad),
        ):
            with pytest.raises(LogDeviceError, match=r"(bad|none): cannot be"):
                TlsContexts(files, UUID)
        for keys in (bad, tmp_path / "none", tmp_path / "ca.pem"):
            with pytest.raises(LogDeviceError):
                TokenChecker(keys, UUID)

    def test_no_session_is_resumed(self, tmp_path: Path) -> None:
        """A connection that resumes one shows no certificate: what was revoked or has expired since would count on."""
        authority = CertificateAuthority(tmp_path, UUID)
        authority.make()
        node = authority.certify_node(NodeId(0))
        server = TlsContexts(TlsFiles(tmp_path / "ca.pem", node.path), UUID)._server
        assert server is not None
        assert server.num_tickets == 0

    def test_revoked_numbers_as_people_write_them(self, tmp_path: Path) -> None:
        path = tmp_path / "revoked"
        path.write_text("# lost\n0A:ff\n\n  beef # stolen\n")
        assert read_revoked(path) == {0x0AFF, 0xBEEF}


def test_a_certificate_names_what_it_was_made_for(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path, UUID)
    authority.make()
    made = [authority.certify_node(NodeId(3)), authority.certify_principal(Principal("a", frozenset({"g"})))]
    names = []
    for each in made:
        certificate = load_pem_x509_certificate(each.path.read_bytes())
        alternatives = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
        names.append(alternatives.get_values_for_type(UniformResourceIdentifier))
    uuid = "75757575-7575-7575-7575-757575757575"
    assert names == [
        [f"logdevice://{uuid}/node/3"],
        [f"logdevice://{uuid}/principal/a", f"logdevice://{uuid}/group/g"],
    ]
