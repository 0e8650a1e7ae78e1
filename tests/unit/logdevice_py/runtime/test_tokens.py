"""Bearer tokens that anybody may send before it is known who he is."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from logdevice_py.core.ids import NodeId
from logdevice_py.runtime.certificates import CertificateAuthority
from logdevice_py.runtime.http.security import STRANGER, HttpSecurity
from logdevice_py.runtime.tokens import TokenChecker
from logdevice_py.shell.introduction import BadTokenError
from logdevice_py.shell.proof import PeerProof

UUID = b"u" * 16


def token_with(header: str) -> str:
    """A token with this header, and nothing in it."""
    parts = [base64.urlsafe_b64encode(text.encode()).decode().rstrip("=") for text in (header, "{}")]
    return ".".join([*parts, "c"])


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> TokenChecker:
    directory: Path = tmp_path_factory.mktemp("identity")
    authority = CertificateAuthority(directory, UUID)
    authority.make()
    authority.certify_node(NodeId(0))
    return TokenChecker(directory / "token.pem", UUID)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "a",
        "a.b.c",
        b"a\xff.b.c".decode("utf-8", "surrogateescape"),
        "\ud800.b.c",
        token_with("[" * 6000),
        token_with("7"),
        token_with('{"alg": 7}'),
        token_with('{"alg": "none"}'),
        "\0.\0.\0",
    ],
)
def test_what_is_no_token_proves_nothing(checker: TokenChecker, token: str) -> None:
    with pytest.raises(BadTokenError):
        checker(token)


def test_a_check_that_cannot_read_a_token_names_nobody() -> None:
    def check(token: str) -> Any:
        raise UnicodeEncodeError("utf-8", token, 0, 1, "surrogates not allowed")

    contexts: Any = SimpleNamespace(cluster=UUID, believes=lambda proof: True)
    security = HttpSecurity("require", contexts, check_token=check)
    assert security.caller(PeerProof(encrypted=True), "a.b.c") == STRANGER
