"""With what a program asks the admin API of nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from client.identity import ClientIdentity, default_identity, may_send_in_clear_text
from logdevice_py.runtime.admin_token import program_token


@dataclass(frozen=True, slots=True)
class AdminAccess:
    """The token of the admin API, and who the program is to nodes that have TLS."""

    token: str | None = field(default=None, repr=False)
    """Of the admin API; None: the program has none."""
    cluster_file: Path | None = None
    """Beside which the files are that the cluster file names; None: in the working directory."""
    identity: ClientIdentity = field(default_factory=ClientIdentity)
    clear_text: bool = False
    """The token may be sent to other machines in clear text, where the cluster has TLS and the node does not speak it yet."""

    @classmethod
    def of_program(
        cls,
        cluster_file: Path | None,
        token_file: str | Path | None = None,
        identity: ClientIdentity | None = None,
    ) -> AdminAccess:
        """What the user of a program has.

        Args:
            cluster_file: that he named; None where there is none.
            token_file: that he named.
            identity: that he named; None: as `default_identity` finds it.

        Raises:
            LogDeviceError: INVALID_CONFIG: a file cannot be used.
        """
        token = program_token(cluster_file, token_file)
        return cls(
            token,
            cluster_file,
            identity or default_identity(cluster_file),
            clear_text=may_send_in_clear_text(),
        )

    def bearer(self, *, encrypted: bool) -> str | None:
        """What a request carries. A signed token is for those who have proved to be the node."""
        return self.token or (self.identity.newest_token() if encrypted else "") or None
