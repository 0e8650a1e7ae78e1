"""What says where a cold copy is and what it holds: the descriptor that a namespace commits, and the manifest that lies beside the files."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any, Final

from client.read.items import Gap, GapKind
from client.read.proof import Proof
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import Status
from streams.cold.errors import ColdCopyError, damaged

MANIFEST_VERSION: Final = 1
MANIFEST_SIZE_MAX: Final = 256 << 20
FILE_SIZE_MAX: Final = 1 << 30
"""Of one file: a reader holds one or two of them in memory. A copier cuts files far below, unless a single entry is as large."""
FILE_SUFFIX: Final = ".parquet"
MANIFEST_SUFFIX: Final = ".json"
_TOKEN: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_INT64: Final = 1 << 63


def content_hash(data: Any) -> str:
    """SHA-256 in hexadecimal: what objects of a store are named by."""
    return hashlib.sha256(data).hexdigest()


def check_token(token: str) -> str:
    """The token of an attempt, when it can be part of a name.

    Raises:
        ColdCopyError: INVALID_PARAM.
    """
    if not _TOKEN.fullmatch(token):
        text = (
            f"a token has 1 to 64 letters, digits, '-' and '_' and begins with neither of the last two, not {token!r}"
        )
        raise ColdCopyError(Status.INVALID_PARAM, text)
    return token


def cluster_name(cluster: bytes | str) -> str:
    """A cluster's UUID as it stands in names.

    Raises:
        ColdCopyError: INVALID_PARAM: it is none.
    """
    text = cluster.hex() if isinstance(cluster, bytes) else cluster.lower().replace("-", "")
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        raise ColdCopyError(Status.INVALID_PARAM, f"{cluster!r} is no UUID of a cluster")
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def log_prefix(cluster: str, log: int) -> str:
    """The folder of a log in a store."""
    return f"{cluster}/{log}"


@dataclass(frozen=True, slots=True)
class ColdFile:
    """One file of a cold copy; a reader takes nothing from it before all of it has the hash of its name."""

    hash: str
    size: int
    """Bytes."""
    proof: Proof
    """Of its part of the range."""
    first_timestamp: int = 0
    """Of its first entry; 0: it has none."""
    last_timestamp: int = 0
    """Of its last entry."""

    @property
    def name(self) -> str:
        """Within the folder of the copy."""
        return self.hash + FILE_SUFFIX


@dataclass(frozen=True, slots=True)
class ColdCopy:
    """The descriptor of a verified cold copy: small, of constant size. Whoever commits it makes the copy count."""

    cluster: str
    """UUID."""
    log: LogId
    token: str
    """Of the attempt that made it."""
    first: LSN
    last: LSN
    """Inclusive."""
    manifest: str
    """Hash of the manifest, which names the files."""
    files: int
    stored_bytes: int
    """Of the files."""
    entries: int
    records: int
    """Damaged ones included."""
    bytes: int
    """Of entry bodies as the cluster stores them."""
    checksum: int
    """The sum of the proof."""

    @property
    def folder(self) -> str:
        """Where its objects are."""
        return f"{log_prefix(self.cluster, self.log)}/{self.token}"

    @property
    def manifest_name(self) -> str:
        """The path of its manifest in the store."""
        return f"{self.folder}/{self.manifest}{MANIFEST_SUFFIX}"

    def as_json(self) -> dict[str, Any]:
        """For state machines and tools; `from_json` takes it."""
        return {
            "cluster": self.cluster,
            "log": int(self.log),
            "token": self.token,
            "first": int(self.first),
            "last": int(self.last),
            "manifest": self.manifest,
            "files": self.files,
            "stored_bytes": self.stored_bytes,
            "entries": self.entries,
            "records": self.records,
            "bytes": self.bytes,
            "checksum": f"{self.checksum:016x}",
        }

    @classmethod
    def from_json(cls, values: Any) -> ColdCopy:
        """From what `as_json` gives.

        Raises:
            ColdCopyError: BADPAYLOAD.
        """
        fields = _Fields("the descriptor of a cold copy", values)
        copy = cls(
            cluster_name(fields.text("cluster")),
            LogId(fields.number("log")),
            check_token(fields.text("token")),
            LSN(fields.number("first")),
            LSN(fields.number("last")),
            fields.hash("manifest"),
            fields.number("files"),
            fields.number("stored_bytes"),
            fields.number("entries"),
            fields.number("records"),
            fields.number("bytes"),
            fields.hexadecimal("checksum"),
        )
        if copy.first > copy.last:
            raise damaged("the descriptor of a cold copy", f"it ends at {copy.last}, before it begins at {copy.first}")
        return copy


@dataclass(frozen=True, slots=True)
class ColdManifest:
    """The object beside the files that lists them. Its name is its hash, so it never changes, and readers of a store without a cluster need nothing
    else: manifests of one log unite in any order."""

    cluster: str
    log: LogId
    token: str
    stream: str
    """The name of the stream, or of the log, when the copy was made."""
    files: tuple[ColdFile, ...]
    """In order; their ranges touch."""

    @property
    def proof(self) -> Proof:
        """Of the whole range."""
        return reduce(add, (file.proof for file in self.files))

    def encode(self) -> bytes:
        """Its bytes: the same for equal manifests."""
        values = {
            "version": MANIFEST_VERSION,
            "cluster": self.cluster,
            "log": int(self.log),
            "token": self.token,
            "stream": self.stream,
            "files": [
                {
                    "hash": file.hash,
                    "size": file.size,
                    "first_timestamp": file.first_timestamp,
                    "last_timestamp": file.last_timestamp,
                    "proof": proof_json(file.proof),
                }
                for file in self.files
            ],
        }
        return json.dumps(values, indent=1, sort_keys=True).encode() + b"\n"

    def copy(self) -> ColdCopy:
        """The descriptor of the copy."""
        proof = self.proof
        return ColdCopy(
            self.cluster,
            self.log,
            self.token,
            proof.first,
            proof.last,
            content_hash(self.encode()),
            len(self.files),
            sum(file.size for file in self.files),
            proof.entries,
            proof.records,
            proof.bytes,
            proof.checksum,
        )


def decode_manifest(name: str, data: bytes) -> ColdManifest:
    """A manifest from the bytes of the object with this path.

    Raises:
        ColdCopyError: BADPAYLOAD: it is damaged, or lies where another one belongs; VERSION_MISMATCH.
    """
    what = f"the manifest {name}"
    expected = name.rpartition("/")[2].removesuffix(MANIFEST_SUFFIX)
    if content_hash(data) != expected:
        raise damaged(what, "its content does not have the hash of its name")
    try:
        values = json.loads(data)
    except ValueError as error:
        raise damaged(what, str(error)) from None
    fields = _Fields(what, values)
    if (version := fields.number("version")) != MANIFEST_VERSION:
        text = f"{what} is of version {version}, this program knows {MANIFEST_VERSION}: read it with a later one"
        raise ColdCopyError(Status.VERSION_MISMATCH, text, retriable=False, maybe_applied=False)
    log = LogId(fields.number("log"))
    files = []
    for each in fields.list("files"):
        part = _Fields(what, each)
        proof = parse_proof(what, log, part.mapping("proof"))
        stamps = part.signed("first_timestamp"), part.signed("last_timestamp")
        files.append(ColdFile(part.hash("hash"), part.number("size"), proof, *stamps))
    if not files:
        raise damaged(what, "it lists no file")
    for before, after in pairwise(files):
        if before.proof.last + 1 != after.proof.first:
            raise damaged(what, f"a file ends at {before.proof.last}, the next begins at {after.proof.first}")
    manifest = ColdManifest(
        cluster_name(fields.text("cluster")),
        log,
        check_token(fields.text("token")),
        fields.text("stream"),
        tuple(files),
    )
    if name.rpartition("/")[0] != manifest.copy().folder:
        raise damaged(what, f"it belongs into {manifest.copy().folder}")
    return manifest


# Proofs as JSON that keeps them whole


def proof_json(proof: Proof) -> dict[str, Any]:
    """A proof without its log; `parse_proof` takes it."""
    return {
        "first": int(proof.first),
        "last": int(proof.last),
        "entries": proof.entries,
        "records": proof.records,
        "bytes": proof.bytes,
        "gaps": [[gap.kind.name, int(gap.lo), int(gap.hi)] for gap in proof.gaps],
        "checksum": f"{proof.checksum:016x}",
    }


def parse_proof(what: str, log: LogId, values: Any) -> Proof:
    """A proof from what `proof_json` gives; `what` it is part of, for errors.

    Raises:
        ColdCopyError: BADPAYLOAD.
    """
    fields = _Fields(what, values)
    gaps = []
    for each in fields.list("gaps"):
        if not isinstance(each, list) or len(each) != 3 or each[0] not in GapKind.__members__:
            raise damaged(what, f"{each!r} is no gap")
        gaps.append(Gap(GapKind[each[0]], LSN(_number(what, "gap", each[1])), LSN(_number(what, "gap", each[2]))))
    proof = Proof(
        log,
        LSN(fields.number("first")),
        LSN(fields.number("last")),
        fields.number("entries"),
        fields.number("records"),
        fields.number("bytes"),
        tuple(gaps),
        fields.hexadecimal("checksum"),
    )
    if proof.first > proof.last:
        raise damaged(what, f"a range ends at {proof.last}, before it begins at {proof.first}")
    return proof


def total_proof(proofs: Iterable[Proof]) -> Proof:
    """Proofs of touching ranges as one."""
    return reduce(add, proofs)


def _number(what: str, name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value < _INT64:
        raise damaged(what, f"{name} is {value!r}")
    return value


class _Fields:
    """The members of a JSON object that somebody else may have written."""

    def __init__(self, what: str, values: Any) -> None:
        self._what = what
        if not isinstance(values, dict):
            raise damaged(what, "it is no JSON object")
        self._values = values

    def _get(self, name: str, kind: type) -> Any:
        value = self._values.get(name)
        if type(value) is not kind:
            raise damaged(self._what, f"{name} is {value!r}")
        return value

    def text(self, name: str) -> str:
        value: str = self._get(name, str)
        return value

    def mapping(self, name: str) -> dict[str, Any]:
        value: dict[str, Any] = self._get(name, dict)
        return value

    def list(self, name: str) -> list[Any]:
        value: list[Any] = self._get(name, list)
        return value

    def number(self, name: str) -> int:
        return _number(self._what, name, self._values.get(name))

    def signed(self, name: str) -> int:
        value: int = self._get(name, int)
        if not -_INT64 <= value < _INT64:
            raise damaged(self._what, f"{name} is {value!r}")
        return value

    def hash(self, name: str) -> str:
        value = self.text(name)
        if not _HASH.fullmatch(value):
            raise damaged(self._what, f"{name} is {value!r}")
        return value

    def hexadecimal(self, name: str) -> int:
        value = self.text(name)
        if not re.fullmatch(r"[0-9a-f]{16}", value):
            raise damaged(self._what, f"{name} is {value!r}")
        return int(value, 16)
