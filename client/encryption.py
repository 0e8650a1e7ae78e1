"""Encryption by the client: what a BufferedWriter appends, and a reader gets, is never seen by a node.

Keys have names, so that they can be changed: a batch says by which key it was encrypted. The cipher is AES-256-GCM, with a random nonce for each batch.

A write stream numbers its batches when it seals them, and stores each once and in order. So in the log the numbers of a stream only rise, and a reader
that finds one that does not knows that somebody repeated or moved a batch. Numbers may be missing: of frames that failed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from client.public_names import PublicNames
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN_INVALID, Lsn, format_lsn
from logdevice_py.core.principal import check_principal_name
from logdevice_py.core.sealed_batch import (
    KEY_NAME_MAX,
    NONCE_SIZE,
    SEALED_VERSION,
    STREAM_SIZE,
    VERSION_MARK,
    BatchPlace,
    OpenBatches,
    OpenSealed,
    Seal,
    SealedBatch,
    decode_sealed,
    encode_sealed,
    proved,
)
from logdevice_py.core.status import LogDeviceError, Status

KEYS_VARIABLE: Final = "LOGDEVICE_KEYS_FILE"
_KEY_SIZE: Final = 32
_OTHERS: Final = 0o077
_STREAMS_MAX: Final = 10_000
"""Write streams of which a reader of a log remembers how far it has read; some 3 MB. Those that were silent for longest are forgotten, and not compared."""
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
        """What gives for each log what encrypts batches that are no part of a write stream: they may overtake each other.

        Raises:
            LogDeviceError: INVALID_PARAM: these keys are for readers, or the key's name ends as a version does.
        """
        seal = self._seal()
        return lambda log: partial(seal, log, None)

    def writing_streams(self) -> Sealer:
        """What gives for each write stream, of a log, what encrypts its batches. They are sealed in the order in which they are stored.

        Raises:
            LogDeviceError: as `writing`.
        """
        seal = self._seal()

        def stream(log: LogId) -> Seal:
            own, numbers = os.urandom(STREAM_SIZE), itertools.count(1)
            return lambda batch, records: seal(log, BatchPlace(own, next(numbers)), batch, records)

        return stream

    def _seal(self) -> Callable[[LogId, BatchPlace | None, bytes, int], bytes]:
        name = self._write_with
        if not name:
            text = "encryption: these keys are for readers: name in write_with which one writers use"
            raise LogDeviceError(Status.INVALID_PARAM, text)
        if VERSION_MARK in name:
            text = f"write_with: {name!r} contains {VERSION_MARK!r}, which readers take for the version of a batch: use another name"
            raise LogDeviceError(Status.INVALID_PARAM, text)
        cipher = self._cipher(name)

        def seal(log: LogId, place: BatchPlace | None, batch: bytes, records: int) -> bytes:
            nonce = os.urandom(NONCE_SIZE)
            encrypted = cipher.encrypt(nonce, batch, proved(name, log, records, place))
            return encode_sealed(SealedBatch(name, nonce, encrypted, place), len(batch))

        return seal

    def reading(self) -> OpenSealed:
        """What opens the batches of one log for one reader, which reads forward.

        Each batch raises LogDeviceError when it cannot be had: NOKEY, or MISPLACED when an earlier entry, or an earlier batch of its entry, holds the
        same batch or a later one of its stream.
        """
        return _Opener(self).entry

    def open(self, log: LogId, sealed: SealedBatch, records: int) -> bytes:
        """The batch within a sealed one, wherever it stands in the log.

        Raises:
            LogDeviceError: NOKEY.
        """
        from cryptography.exceptions import InvalidTag

        name = sealed.key_name
        cipher = self._cipher(name)
        if cipher is None:
            text = f"log {log} has records that are encrypted by key {name!r}, which is not among those given"
            if VERSION_MARK in name:
                text += f": a later program sealed them, this one knows up to version {SEALED_VERSION}; upgrade it"
            raise LogDeviceError(Status.NOKEY, text)
        try:
            batch: bytes = cipher.decrypt(sealed.nonce, sealed.encrypted, proved(name, log, records, sealed.place))
        except InvalidTag:
            text = f"log {log} has records that the key {name!r} does not open: it is another key of that name, or somebody changed them"
            raise LogDeviceError(Status.NOKEY, text) from None
        return batch


class _Opener:
    """Opens the batches of one log, and compares their places."""

    __slots__ = ("_here", "_keys", "_lsn", "_seen")

    def __init__(self, keys: EncryptionKeys) -> None:
        self._keys = keys
        self._lsn = LSN_INVALID
        """Of the entry that is being unpacked."""
        self._here: dict[bytes, int] = {}
        """Of that entry: the number of the last batch of each stream. The entry may be unpacked again: a reader stays where it cannot go on."""
        self._seen: dict[bytes, tuple[int, Lsn]] = {}
        """Of the entries before: the number of the last batch of each stream, and where it was. First the stream that was silent for longest."""

    def entry(self, log: LogId, lsn: Lsn) -> OpenBatches:
        """What opens the batches of the entry at `lsn`, which is not before the last one."""
        assert lsn >= self._lsn, (lsn, self._lsn)
        if self._here:
            if lsn > self._lsn:
                self._remember()
            self._here = {}
        self._lsn = lsn
        return partial(self._open, log)

    def _remember(self) -> None:
        seen = self._seen
        for stream, number in self._here.items():
            seen.pop(stream, None)
            seen[stream] = number, self._lsn
        while len(seen) > _STREAMS_MAX:
            del seen[next(iter(seen))]

    def _open(self, log: LogId, payload: bytes, records: int) -> bytes:
        sealed = decode_sealed(payload)
        batch = self._keys.open(log, sealed, records)
        if sealed.place is not None:
            stream, number = sealed.place
            last, where = self._seen.get(stream, (0, self._lsn))
            if stream in self._here:
                last, where = self._here[stream], self._lsn
            if number <= last:
                text = (
                    f"log {log}: the encrypted batch at {format_lsn(self._lsn)} is number {number} of its writer, and number {last} is at {format_lsn(where)}: "
                    "a node repeated a batch or moved one, or somebody who may append copied one. Find out who; a reader that starts behind it goes on"
                )
                raise LogDeviceError(Status.MISPLACED, text)
            self._here[stream] = number
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
