"""Who a query is to the cluster, and the keys of its records: options that name files.

The files are on the driver and on each executor, under the same paths. What is in them stands in no option, so Spark shows it in no plan and no page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from logdevice_py.core.status import LogDeviceError, Status

if TYPE_CHECKING:
    from client.encryption import EncryptionKeys
    from client.identity import ClientIdentity

ACCESS: Final = ("identityFile", "caFile", "tokenFile", "keysFile")
_SECRET: Final = re.compile(r"\n|-----|^eyJ[^/]*\.[^/]*\.|[0-9a-fA-F]{64}$")
"""What is the content of such a file: a certificate, a signed token, a key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """Files; empty: as the environment says."""

    identity_file: str = ""
    """A certificate and its key."""
    ca_file: str = ""
    """Of those who sign certificates of nodes."""
    token_file: str = ""
    """A signed token."""
    keys_file: str = ""
    """Keys of records that are encrypted; writers use the first one."""

    @classmethod
    def of(cls, given: Mapping[str, str]) -> ClusterAccess:
        """From options.

        Raises:
            LogDeviceError: INVALID_PARAM: what stands there is no name of a file.
        """
        values = {key.lower(): text for key, text in given.items()}
        named = {name: str(values.get(name.lower(), "")).strip() for name in ACCESS}
        for name, text in named.items():
            if _SECRET.search(text) or len(text) > 4096:
                # not repeated: it may be the secret itself
                raise LogDeviceError(Status.INVALID_PARAM, f"{name}: name a file; Spark shows options in its plans")
        return cls(
            identity_file=named["identityFile"],
            ca_file=named["caFile"],
            token_file=named["tokenFile"],
            keys_file=named["keysFile"],
        )

    def identity(self) -> ClientIdentity | None:
        """For a client; None: as the environment says.

        Raises:
            LogDeviceError: INVALID_CONFIG: a file cannot be read.
        """
        from client.identity import ClientIdentity, default_identity, read_token

        if not (self.identity_file or self.token_file):
            return replace(default_identity(None), ca=self.ca_file) if self.ca_file else None
        if self.token_file:
            read_token("tokenFile", self.token_file)  # what is wrong with it is told at once
        return ClientIdentity(
            certificate=self.identity_file or None,
            token_file=self.token_file or None,
            ca=self.ca_file or None,
        )

    def keys(self) -> EncryptionKeys | None:
        """For readers and writers; None: readers take those of the environment, writers encrypt nothing.

        Raises:
            LogDeviceError: INVALID_CONFIG, NOTSUPPORTED.
        """
        if not self.keys_file:
            return None
        from client.encryption import EncryptionKeys

        return EncryptionKeys.from_file(self.keys_file)


NO_ACCESS: Final = ClusterAccess()
