"""Tokens: JSON Web Tokens, signed with Ed25519, by which a client without a certificate says which principal it is.

A token names the cluster (``aud``, its UUID), the principal (``sub``), perhaps groups (``groups``), and when it expires (``exp``). It counts for a day at most,
whatever it says: one that is lost is of no use for long.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from logdevice_py.config.identity_names import format_uuid
from logdevice_py.core.principal import Principal, check_principal_name
from logdevice_py.core.status import LogDeviceError, Status
from logdevice_py.core.units import Timestamp
from logdevice_py.runtime.clock import monotonic_us, wall_us
from logdevice_py.shell.introduction import BadTokenError, Believed

log = logging.getLogger("logdevice.tls")

ALGORITHM: Final = "EdDSA"
_LOOK_US: Final = 100_000
LIFETIME_MAX: Final = 86_400
"""Seconds from now on for which a token may still count."""
_PEM_BEGIN: Final = b"-----BEGIN PUBLIC KEY-----"


class TokenChecker:
    """Believes tokens that one of some keys signed."""

    def __init__(self, keys: Path, cluster: bytes) -> None:
        """
        Args:
            keys: file of public keys (PEM).

        Raises:
            LogDeviceError: INVALID_CONFIG: the file cannot be used, or PyJWT and cryptography are not installed.
        """
        self._audience = format_uuid(cluster)
        self._path = keys
        self._seen = _stamp(keys)
        self._keys = _read_keys(keys)
        self._looked_at = monotonic_us()

    def __call__(self, token: str) -> Believed:
        """Whom a token names.

        Raises:
            BadTokenError: it proves nothing.
        """
        import jwt

        self._reload()
        why = "it is not signed with a key of token_key_file"
        for name, key in self._keys.items():
            try:
                claims = jwt.decode(
                    token,
                    key,
                    algorithms=[ALGORITHM],
                    audience=self._audience,
                    options={"require": ["exp", "sub", "aud"]},
                )
                return _believed(claims, partial(self._knows, name))
            except jwt.InvalidSignatureError:
                continue
            except jwt.ExpiredSignatureError:
                why = "it has expired"
            except jwt.InvalidAudienceError:
                why = "it is for another cluster"
            except (jwt.PyJWTError, ValueError, RecursionError):  # also what is no UTF-8, or is nested deeply
                why = "it is no token of this kind"
        raise BadTokenError(why)

    def _reload(self) -> None:
        """Read the keys again if they changed. What cannot be used is told, and what was read before stays in use."""
        self._looked_at = monotonic_us()
        seen = _stamp(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._keys = _read_keys(self._path)
        except LogDeviceError as error:
            log.error("%s; what was read before stays in use", error.detail)
        else:
            log.info("%s was read again", self._path)

    def _knows(self, name: bytes) -> bool:
        """Whether a key is still among them. Who asks for many connections at once has the file looked at once."""
        if monotonic_us() - self._looked_at >= _LOOK_US:
            self._reload()
        return name in self._keys


def _stamp(path: Path) -> tuple[int, int, int]:
    try:
        stat = path.stat()
    except OSError:
        return (0, 0, 0)
    return (stat.st_mtime_ns, stat.st_size, stat.st_ino)


def _believed(claims: dict[str, Any], is_valid: Callable[[], bool]) -> Believed:
    groups = claims.get("groups", [])
    if not isinstance(groups, list) or not all(isinstance(each, str) for each in (claims["sub"], *groups)):
        raise BadTokenError("its groups are no list of names")
    try:
        for name in (claims["sub"], *groups):
            check_principal_name(name)
    except ValueError as error:
        raise BadTokenError(str(error)) from None
    until = Timestamp(int(claims["exp"]) * 1_000_000)
    if until - wall_us() > LIFETIME_MAX * 1_000_000:
        raise BadTokenError(f"it would count for more than {LIFETIME_MAX // 3600} hours from now")
    return Believed(Principal(claims["sub"], frozenset(groups)), until, is_valid)


def _read_keys(path: Path) -> dict[bytes, Any]:
    """By their bytes."""
    try:
        import jwt  # noqa: F401
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        text = "tokens need PyJWT and cryptography: pip install 'logdevice-py[security]'"
        raise LogDeviceError(Status.INVALID_CONFIG, text) from None
    try:
        parts = path.read_bytes().split(_PEM_BEGIN)[1:]
        keys: list[Any] = [load_pem_public_key(_PEM_BEGIN + part) for part in parts]
    except (OSError, ValueError) as error:
        raise LogDeviceError(Status.INVALID_CONFIG, f"{path}: cannot be read as public keys (PEM): {error}") from None
    if not keys or not all(isinstance(key, Ed25519PublicKey) for key in keys):
        raise LogDeviceError(Status.INVALID_CONFIG, f"{path}: holds no Ed25519 keys, or others beside them")
    return {key.public_bytes_raw(): key for key in keys}
