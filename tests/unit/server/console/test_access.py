"""Who the viewer of a console is, and what may be done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from logdevice_py.config.parse import load_cluster
from server.console.access import describe_access

OPEN = """
version = 1
name = "c"
uuid = "6a3dbd0c-30a5-4b4e-9b35-5e4f4b7a7a11"
epoch_store = "memory:"

[nodes.N0]
host = "127.0.0.1"
port = 16110

[metadata_log]
replicate = "node:1"

[defaults]
replicate = "node:1"
permit = ["admin:ops"]

[logs."/clicks"]
ids = "1..8"
permit = ["append:svc", "read:group/bi"]

[logs."/open"]
ids = "9"
permit = ["read:anonymous"]
"""
PROTECTED = OPEN + '\n[settings.security]\ntls = "require"\nca_file = "ca.pem"\npermissions = true\n'


def described(text: str, path: Path, **options: Any) -> dict[str, Any]:
    given = {"from": "127.0.0.1"}
    return describe_access(load_cluster(text), path, given, **{"shown": False, "wanted": True, **options})


def may(found: dict[str, Any]) -> dict[str, str]:
    return {row["path"]: " ".join(name for name in ("append", "read", "trim") if row[name]) for row in found["groups"]}


@pytest.fixture(autouse=True)
def no_identity(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOGDEVICE_IDENTITY", "LOGDEVICE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)


def test_without_permissions_everybody_may_everything(tmp_path: Path) -> None:
    found = described(OPEN, tmp_path / "cluster.toml")
    assert (found["principal"], found["proof"], found["permissions"]) == ("anonymous", "nothing", False)
    assert may(found) == {"/clicks": "append read trim", "/open": "append read trim"}


def test_the_token_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    assert described(OPEN, path, shown=True)["token"] == "shown"
    assert described(OPEN, path)["token"] == "not shown"
    assert described(OPEN, path, wanted=False)["token"] == "none"


@pytest.mark.parametrize(
    ("name", "groups", "expected"),
    [
        ("svc", [], {"/clicks": "append", "/open": "read"}),
        ("ann", ["bi"], {"/clicks": "read", "/open": "read"}),
        ("ops", [], {"/clicks": "append read trim", "/open": "append read trim"}),
    ],
)
def test_a_certificate_beside_the_cluster_file_says_who_reads(
    name: str, groups: list[str], expected: dict[str, str], tmp_path: Path
) -> None:
    pytest.importorskip("cryptography")
    from logdevice_py.core.principal import Principal
    from logdevice_py.runtime.certificates import CertificateAuthority

    authority = CertificateAuthority(tmp_path / "identity", load_cluster(PROTECTED).uuid)
    authority.make()
    made = authority.certify_principal(Principal(name, frozenset(groups)), 3)
    (tmp_path / "cluster.pem").write_bytes(made.path.read_bytes())
    found = described(PROTECTED, tmp_path / "cluster.toml")
    assert (found["principal"], found["principal_groups"], found["proof"]) == (name, groups, "certificate")
    assert found["administrator"] is (name == "ops")
    assert found["expires"] > 0
    assert may(found) == expected


def test_without_a_certificate_it_is_anybody(tmp_path: Path) -> None:
    found = described(PROTECTED, tmp_path / "cluster.toml")
    assert (found["principal"], may(found)) == ("anonymous", {"/clicks": "", "/open": "read"})
