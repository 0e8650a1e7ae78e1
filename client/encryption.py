"""Encryption by the client: what a BufferedWriter appends, and a reader gets, is never seen by a node.

Keys have names, so that they can be changed: a batch says by which key it was encrypted. The cipher is AES-256-GCM, with a random nonce for each batch.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from client.public_names import PublicNames
from logdevice_py.core.ids import LogId
from logdevice_py.core.principal import check_principal_name
from logdevice_py.core.sealed_batch import KEY_NAME_MAX, NONCE_SIZE, Seal, decode_sealed, encode_sealed, proved
from logdevice_py.core.status import LogDeviceError, Status

KEYS_VARIABLE: Final = "LOGDEVICE_KEYS_FILE"
_KEY_SIZE: Final = 32
_OTHERS: Final = 0o077
FindKey = Callable[[str], bytes | None]
Sealer = Callable[[LogId], Seal]
"""Gives for each log what encrypts its batches."""


class EncryptionKeys(PublicNames):
    """Keys of 32 bytes by name, for ``Client.buffered_writer(encryption=)`` and ``Client.reader(encryption=)``. Needs ``logdevice-py[security]``."""

    def __init__(self, keys: Mapping[str, bytes] | FindKey, write_with: str = "") -> None:
        """
        Args:
            keys: by name; or what gives the key of a name, None for one that it does not have. It is asked once for each name.
            write_with: name of the key that writers use; empty: these keys are for readers only.

        Raises:
            LogDeviceError: INVALID_PARAM: a key has another length, `write_with` is not among them; NOTSUPPORTED: a package is missing.
        """
        self._find: FindKey = keys.get if isinstance(keys, Mapping) else keys
        self._ciphers: dict[str, Any] = {}
        self._write_with = write_with
        for name in keys if isinstance(keys, Mapping) else ():
            self._cipher(name)
        if write_with and self._cipher(write_with) is None:
            raise LogDeviceError(Status.INVALID_PARAM, f"write_with: there is no key {write_with!r}")

    @classmethod
    def from_file(cls, path: str | Path) -> EncryptionKeys:
        """Keys from a file that its owner alone can read: on each line a name and 64 hexadecimal digits, as ``openssl rand -hex 32`` gives them. The first
        one is that of writers.

        Raises:
            LogDeviceError: INVALID_CONFIG: it cannot be read, others can read it, or a line is wrong.
        """
        keys: dict[str, bytes] = {}
        for number, line in enumerate(_private_text(Path(path)).splitlines(), 1):
            words = line.partition("#")[0].split()
            if not words:
                continue
            try:
                name, digits = words
                keys[name] = bytes.fromhex(digits)
                check_principal_name(name)
            except ValueError:
                raise _wrong_file(path, f"line {number}: write a name and 64 hexadecimal digits") from None
            if len(keys[name]) != _KEY_SIZE or len(name) > KEY_NAME_MAX:
                raise _wrong_file(
                    path, f"line {number}: a key has 64 hexadecimal digits, its name {KEY_NAME_MAX} letters at most"
                )
        if not keys:
            raise _wrong_file(path, "there is no key in it")
        return cls(keys, write_with=next(iter(keys)))

    def _cipher(self, name: str) -> Any:
        if name not in self._ciphers:
            key = self._find(name)
            self._ciphers[name] = None if key is None else _cipher_of(name, key)
        return self._ciphers[name]

    def writing(self) -> Sealer:
        """What gives for each log what encrypts its batches.

        Raises:
            LogDeviceError: INVALID_PARAM: these keys are for readers.
        """
        name = self._write_with
        if not name:
            text = "encryption: these keys are for readers: name in write_with which one writers use"
            raise LogDeviceError(Status.INVALID_PARAM, text)
        cipher = self._cipher(name)

        def seal(log: LogId, batch: bytes, records: int) -> bytes:
            nonce = os.urandom(NONCE_SIZE)
            return encode_sealed(name, nonce, len(batch), cipher.encrypt(nonce, batch, proved(name, log, records)))

        return lambda log: partial(seal, log)

    def open(self, log: LogId, payload: bytes, records: int) -> bytes:
        """The batch within a sealed one.

        Raises:
            LogDeviceError: NOKEY.
            CorruptEntryError: it is none.
        """
        from cryptography.exceptions import InvalidTag

        name, nonce, encrypted = decode_sealed(payload)
        cipher = self._cipher(name)
        if cipher is None:
            raise LogDeviceError(
                Status.NOKEY,
                f"log {log} has records that are encrypted by key {name!r}, which is not among those given",
            )
        try:
            batch: bytes = cipher.decrypt(nonce, encrypted, proved(name, log, records))
        except InvalidTag:
            text = f"log {log} has records that the key {name!r} does not open: it is another key of that name, or somebody changed them"
            raise LogDeviceError(Status.NOKEY, text) from None
        return batch


def environment_keys() -> EncryptionKeys | None:
    """Those in the file that the environment variable ``LOGDEVICE_KEYS_FILE`` names, for readers; None: it names none.

    Raises:
        LogDeviceError: as `EncryptionKeys.from_file`.
    """
    path = os.environ.get(KEYS_VARIABLE)
    return EncryptionKeys.from_file(path) if path else None


def _cipher_of(name: str, key: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError:
        text = "encryption needs cryptography: pip install 'logdevice-py[security]'"
        raise LogDeviceError(Status.NOTSUPPORTED, text) from None
    if not isinstance(key, bytes) or len(key) != _KEY_SIZE:
        raise LogDeviceError(Status.INVALID_PARAM, f"key {name!r}: a key has {_KEY_SIZE} bytes")
    if not 0 < len(name.encode()) <= KEY_NAME_MAX:
        raise LogDeviceError(Status.INVALID_PARAM, f"key {name!r}: a name has 1 to {KEY_NAME_MAX} bytes")
    return AESGCM(key)


def _private_text(path: Path) -> str:
    try:
        with path.open() as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise _wrong_file(path, f"other users may read or change it: chmod 600 {path}")
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise _wrong_file(path, str(getattr(error, "strerror", None) or "it is no text")) from None


def _wrong_file(path: str | Path, reason: str) -> LogDeviceError:
    return LogDeviceError(Status.INVALID_CONFIG, f"file of keys {path}: {reason}")
