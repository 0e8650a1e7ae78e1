"""A cold file: Parquet, packed by zstd, made and read in memory, a row group at a time.

The metadata of the file holds, under `logdevice.cold`, a JSON object: version of the format, cluster, log, name of the stream, whether keys are
transaction ids, the proof of the file's range, and the last LSN of each row group. A later version is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from client.read.items import Gap, GapKind
from client.read.proof import Proof, ProofBuilder
from logdevice_py.core.ids import LogId
from logdevice_py.core.lsn import LSN
from logdevice_py.core.status import Status
from streams.cold.arrow_package import arrow
from streams.cold.columns import NEEDED, check_following, decode_rows, encode_rows, schema
from streams.cold.copies import ColdFile, content_hash, parse_proof, proof_json
from streams.cold.entries import UnpackedEntry, UnpackedItem
from streams.cold.errors import ColdCopyError, damaged

FORMAT_VERSION: Final = 1
METADATA_KEY: Final = b"logdevice.cold"
_NUMBERS: Final = dict.fromkeys(
    ("lsn", "esn", "batch_offset", "timestamp", "transaction_id", "gap_lo", "gap_hi"), "DELTA_BINARY_PACKED"
)
_PLAIN: Final = (
    "key",
    "payload",
    "payload_crc",
    "gap_authoritative",
    "entry_records",
    "entry_bytes",
    "entry_crc",
    "entry_extensions",
    "entry_digest",
)
_DICTIONARY: Final = ("log_id", "log_group", "epoch", "record_type", "gap_type", "entry_flags")


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What all files of one copy have in common."""

    cluster: str
    """UUID."""
    log: LogId
    stream: str
    """Its name."""
    transaction_ids: bool = False
    """Keys of 8 bytes are transaction ids."""

    def as_json(self) -> dict[str, Any]:
        """As it stands in the metadata of a file."""
        return {
            "version": FORMAT_VERSION,
            "cluster": self.cluster,
            "log": int(self.log),
            "stream": self.stream,
            "transaction_ids": self.transaction_ids,
        }


@dataclass(frozen=True, slots=True)
class FinishedFile:
    """The bytes of a file, and what says what they are."""

    described: ColdFile
    data: Any
    """An Arrow buffer."""


class FileBuilder:
    """Makes one file in memory from entries and gaps in order."""

    def __init__(self, identity: FileIdentity, first: int) -> None:
        pa = arrow()
        self._identity = identity
        self._proof = ProofBuilder(identity.log, first)
        self._shape = schema()
        self._sink = pa.BufferOutputStream()
        self._writer = arrow("parquet").ParquetWriter(
            self._sink,
            self._shape,
            compression="zstd",
            compression_level=1,
            use_dictionary=list(_DICTIONARY),
            column_encoding=_NUMBERS | dict.fromkeys(_PLAIN, "PLAIN"),
            write_statistics=["lsn", "timestamp", "transaction_id"],
            store_schema=True,
        )
        self._stamps: list[int] = []
        self._ends: list[int] = []

    @property
    def size(self) -> int:
        """Bytes so far."""
        return int(self._sink.tell())

    @property
    def last(self) -> int:
        """The last LSN that it covers."""
        return self._proof.last

    def add_row_group(self, items: list[UnpackedItem]) -> None:
        """Append entries and gaps that follow those before."""
        for item in items:
            if type(item) is UnpackedEntry:
                self._proof.add_entry(item.lsn, len(item.records), item.size, item.crc)
                self._stamps = [*self._stamps[:1], item.timestamp]
            else:
                assert type(item) is Gap
                self._proof.add_gap(item)
        self._ends.append(self._proof.last)
        self._writer.write_batch(self._encode(items))

    def _encode(self, items: list[UnpackedItem]) -> Any:
        identity = self._identity
        return encode_rows(
            items,
            log=identity.log,
            name=identity.stream,
            transaction_ids=identity.transaction_ids,
            shape=self._shape,
        )

    def finish(self) -> FinishedFile:
        """The whole file. Call once, last."""
        proof = self._proof.build()
        head = self._identity.as_json() | {"proof": proof_json(proof), "row_group_ends": self._ends}
        self._writer.add_key_value_metadata({METADATA_KEY: json.dumps(head, sort_keys=True).encode()})
        self._writer.close()
        data = self._sink.getvalue()
        stamps = self._stamps or [0]
        return FinishedFile(ColdFile(content_hash(data), data.size, proof, stamps[0], stamps[-1]), data)


class FileContent:
    """A file whose bytes are in memory, all compared with what describes the file before any is used."""

    def __init__(self, described: ColdFile, data: Any, *, where: str) -> None:
        """
        Args:
            described: as the manifest has it.
            data: the bytes, or an Arrow buffer.
            where: the path, for errors.

        Raises:
            ColdCopyError: BADPAYLOAD: it is another file, or damaged; VERSION_MISMATCH.
        """
        self._described = described
        self._what = f"the cold file {where}"
        if len(data) != described.size:
            raise damaged(self._what, f"it has {len(data):,} of {described.size:,} bytes")
        if content_hash(data) != described.hash:
            raise damaged(self._what, "its content does not have the hash of its name")
        pa = arrow()
        with self._telling():
            self._file = arrow("parquet").ParquetFile(pa.BufferReader(pa.py_buffer(data)))
        head = _parse_head(self._what, dict(self._file.metadata.metadata or {}))
        self.identity = head.identity
        self._ends = head.row_group_ends
        if head.proof != described.proof:
            raise damaged(self._what, "the proof in it is not the one of the manifest")
        if len(self._ends) != self._file.num_row_groups:
            raise damaged(self._what, "it has another number of row groups than it says")
        if not self._file.schema_arrow.equals(schema()):
            raise damaged(self._what, "its columns are not those of a cold file")

    def _telling(self) -> _Telling:
        return _Telling(self._what)

    def check_identity(self, cluster: str, log: LogId) -> None:
        """Compare whose records these are.

        Raises:
            ColdCopyError: BADPAYLOAD: somebody else's.
        """
        if (self.identity.cluster, self.identity.log) != (cluster, log):
            raise damaged(
                self._what,
                f"it holds log {self.identity.log} of cluster {self.identity.cluster}, not log {log} of cluster {cluster}",
            )

    def items(self, start: int = 0, *, strict: bool = False) -> Iterator[list[UnpackedItem]]:
        """Entries and gaps in order, a row group at a time, checked; at the end their proof is compared with that of the manifest.

        Args:
            start: row groups that lie before this LSN are passed over, and then the proof is not compared.
            strict: compare also the columns that only others read.

        Raises:
            ColdCopyError: BADPAYLOAD.
        """
        proof = ProofBuilder(self._described.proof.log, int(self._described.proof.first))
        skipped = False
        for index, end in enumerate(self._ends):
            if end < start:
                skipped = True
                continue
            group = self._read(index, None if strict else list(NEEDED))
            decoded = decode_rows(group, log=self.identity.log, what=self._what)
            if strict:
                identity = self.identity
                check_following(
                    group,
                    decoded,
                    log=identity.log,
                    name=identity.stream,
                    transaction_ids=identity.transaction_ids,
                    what=self._what,
                )
            if not skipped:
                self._add(proof, decoded)
            yield decoded
        if not skipped and proof.build() != self._described.proof:
            raise damaged(self._what, "its proof is not the one of the manifest")

    def _read(self, index: int, columns: list[str] | None) -> Any:
        with self._telling():
            table = self._file.read_row_group(index, columns=columns)
            table.validate(full=True)
            return table

    def _add(self, proof: ProofBuilder, items: list[UnpackedItem]) -> None:
        for item in items:
            begin = item.lsn if type(item) is UnpackedEntry else item.lo  # type: ignore[union-attr]
            if begin != proof.last + 1:
                raise damaged(self._what, f"{LSN(begin)} follows {LSN(proof.last)}")
            if type(item) is UnpackedEntry:
                proof.add_entry(item.lsn, len(item.records), item.size, item.crc)
            else:
                assert type(item) is Gap
                proof.add_gap(item)


@dataclass(frozen=True, slots=True)
class _Head:
    """What the metadata of a file say."""

    identity: FileIdentity
    proof: Proof
    row_group_ends: list[int]
    """The last LSN of each."""


def _parse_head(what: str, metadata: dict[bytes, bytes]) -> _Head:
    if METADATA_KEY not in metadata:
        raise damaged(what, f"its metadata lack {METADATA_KEY.decode()}")
    try:
        head = json.loads(metadata[METADATA_KEY])
        version = head["version"]
        if version != FORMAT_VERSION:
            text = f"{what} is of version {version!r}, this program knows {FORMAT_VERSION}: read it with a later one"
            raise ColdCopyError(Status.VERSION_MISMATCH, text, retriable=False, maybe_applied=False)
        log = LogId(int(head["log"]))
        identity = FileIdentity(str(head["cluster"]), log, str(head["stream"]), head["transaction_ids"] is True)
        return _Head(identity, parse_proof(what, log, head["proof"]), list(map(int, head["row_group_ends"])))
    except (ValueError, KeyError, TypeError) as error:
        raise damaged(what, f"its metadata cannot be read: {error!r}") from None


class _Telling:
    """Turns what Arrow raises of bytes that are no sound Parquet into one error."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, (arrow().ArrowException, OSError, ValueError, KeyError)):
            raise damaged(self._what, f"Arrow cannot read it: {error}") from error


def lost_ranges(proof: Proof) -> list[Gap]:
    """Where records may have been that the cluster could not give."""
    return [gap for gap in proof.gaps if gap.kind is GapKind.DATALOSS]
