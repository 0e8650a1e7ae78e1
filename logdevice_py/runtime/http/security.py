"""Who asks an HTTP service: by the service's token, by a certificate, or by a signed token over TLS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from logdevice_py.config.security import TLS_OFF, TLS_REQUIRE
from logdevice_py.core.ids import NodeId
from logdevice_py.core.principal import ANONYMOUS, Principal
from logdevice_py.core.units import Timestamp
from logdevice_py.runtime.clock import wall_us
from logdevice_py.runtime.tls import TlsContexts
from logdevice_py.shell.introduction import BadTokenError, CheckToken, no_tokens
from logdevice_py.shell.proof import NO_PROOF, PeerProof

PROOF: Final = "logdevice proof"
"""Under this name the transport of an HTTP connection tells what it proves (`get_extra_info`)."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and what he may have."""

    name: str
    """As the audit log writes it; empty: he proves nothing."""
    is_administrator: bool = False
    """He may have everything."""
    is_reader: bool = False
    """He may have what only reads."""


STRANGER: Final = Caller("")
TOKEN_BEARER: Final = Caller("the admin token", is_administrator=True, is_reader=True)


def _nobody(principal: Principal) -> bool:
    return False


def _any_node(node: NodeId) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class HttpSecurity:
    """How an HTTP service encrypts, and whom it believes what."""

    tls: str = TLS_OFF
    """As `tls` of ``[settings.security]``."""
    contexts: TlsContexts | None = None
    """None: the service speaks clear text."""
    permissions: bool = False
    """Administrators can prove who they are without the service's token."""
    check_token: CheckToken = no_tokens
    is_administrator: Callable[[Principal], bool] = _nobody
    is_reader: Callable[[Principal], bool] = _nobody
    is_member: Callable[[NodeId], bool] = _any_node
    """Whether the cluster has this node now: the certificate of one that was removed proves nothing."""

    @property
    def refuses_clear_text(self) -> bool:
        """TLS only."""
        return self.contexts is not None and self.tls == TLS_REQUIRE

    def fallen(self, proof: PeerProof) -> bool:
        """Whether a certificate counts no longer: it has expired or is revoked, or its authority is believed no more."""
        if self.contexts is None:
            return False
        expired = proof.until is not None and proof.until <= wall_us()
        return expired or not self.contexts.believes(proof)

    def caller(self, proof: PeerProof, bearer: str) -> Caller:
        """Who sent a request.

        Args:
            proof: what its connection proves.
            bearer: a token that came with it; empty: none did. One that came in clear text is not believed.
        """
        if self.contexts is None or not proof.encrypted or self.fallen(proof):
            return STRANGER
        if proof.node is not None and proof.cluster_uuid == self.contexts.cluster:
            if not self.is_member(proof.node):
                return STRANGER
            return Caller(f"N{proof.node}", is_administrator=True, is_reader=True)
        principal = proof.principal or self._believed(bearer)
        if principal is ANONYMOUS:
            return STRANGER
        is_administrator = self.is_administrator(principal)
        return Caller(principal.name, is_administrator, is_administrator or self.is_reader(principal))

    def _believed(self, bearer: str) -> Principal:
        if not bearer:
            return ANONYMOUS
        try:
            believed = self.check_token(bearer)
        except (BadTokenError, ValueError):  # whatever a stranger sends, it is no reason to fail
            return ANONYMOUS
        return believed.principal if believed.until > Timestamp(wall_us()) else ANONYMOUS


CLEAR_TEXT: Final = HttpSecurity()
"""No TLS; nobody proves who he is."""


def proof_of(told: object) -> PeerProof:
    """What a transport tells under `PROOF`."""
    return told if isinstance(told, PeerProof) else NO_PROOF
