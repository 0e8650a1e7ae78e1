"""Documents as a table of Delta Lake, for whatever reads these: as of one moment, and replaced as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import deltalake
import pyarrow as pa
from deltalake.exceptions import DeltaError, TableNotFoundError

from indexlog.effects import DoWork, Steps, View
from indexlog.index_log import IndexLog
from indexlog.records import check_index
from indexlog.spark.options import PARTITION_BYTES, TAIL_BYTES_MAX, IndexOptions
from indexlog.spark.planning import PlannedRead, documents_of, plan_read, read_piece
from indexlog.stores import FileStore
from logdevice_py.core.status import LogDeviceError, Status

DOCUMENTS: Final = pa.schema(
    [
        pa.field("index", pa.string(), nullable=False),
        pa.field("docid", pa.string(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("fields", pa.map_(pa.string(), pa.string())),
        pa.field("variables", pa.map_(pa.int32(), pa.float64()), nullable=False),
        pa.field("categories", pa.map_(pa.string(), pa.string()), nullable=False),
    ]
)
"""The columns, those of ``format("indexlog")``."""
_S3: Final = {"region": "AWS_REGION", "endpoint_override": "AWS_ENDPOINT_URL"}


@dataclass(frozen=True, slots=True)
class DeltaReport:
    """What was exported."""

    version: int
    """Of the table."""
    state: int
    """Of the index log."""
    documents: int
    indexes: int
    """That have documents."""


async def export_delta(
    log: IndexLog,
    url: str,
    *,
    indexes: Sequence[str] = (),
    live_tail: bool = True,
    tail_bytes_max: int = TAIL_BYTES_MAX,
) -> DeltaReport:
    """Make a table the documents of this moment. Who reads it gets those before or these, never a part; versions before stay until they are vacuumed.

    Args:
        log: the index log.
        url: of the table: ``file:///srv/documents``, ``s3://bucket/path?region=...``. It is made if there is none.
        indexes: only the rows of these are replaced; empty: all rows are.
        live_tail: with what is not dealt.
        tail_bytes_max: more that is not dealt is refused.

    Raises:
        LogDeviceError: INVALID_PARAM: there is another table, or too much is not dealt; STALE: files were collected meanwhile; FAILED: Delta
            Lake's error, also when somebody else wrote to the table; others as `IndexLog.read_page`. The table is as before.
    """
    try:
        wanted = tuple(map(check_index, indexes))
    except ValueError as error:
        raise LogDeviceError(Status.INVALID_PARAM, str(error)) from None
    options = IndexOptions("", log.path, wanted, live_tail, tail_bytes_max, PARTITION_BYTES)
    return await log.run(export_steps(lambda: log.state, log.store, options, url))


def export_steps(view: View, store: FileStore, options: IndexOptions, url: str) -> Steps[DeltaReport]:
    """As `export_delta`."""
    reads: list[PlannedRead] = yield from plan_read(view, store, options)
    state = reads[0].serial if reads else view().serial
    report: DeltaReport = yield DoWork(lambda: _write(store, options, url, reads, state))
    return report


def _write(store: FileStore, options: IndexOptions, url: str, reads: Sequence[PlannedRead], state: int) -> DeltaReport:
    target, storage = delta_target(url)
    stream = _Documents(store, reads)
    told = {"index_log": options.path, "state": str(state)}
    try:
        _check_columns(target, storage)
        deltalake.write_deltalake(
            target,
            pa.RecordBatchReader.from_batches(DOCUMENTS, iter(stream)),
            mode="overwrite",
            predicate=" OR ".join(f"index = '{index}'" for index in options.indexes) or None,
            storage_options=storage,
            commit_properties=deltalake.CommitProperties(custom_metadata=told),
        )
        version = deltalake.DeltaTable(target, storage_options=storage).version()
    except (DeltaError, OSError) as error:
        if stream.failure is not None:
            raise stream.failure from None
        raise LogDeviceError(Status.FAILED, f"the table {url}: {error}") from None
    return DeltaReport(version, state, stream.documents, stream.indexes)


class _Documents:
    """All documents, index by index."""

    def __init__(self, store: FileStore, reads: Sequence[PlannedRead]) -> None:
        self._store = store
        self._reads = reads
        self.documents = 0
        self.indexes = 0
        self.failure: LogDeviceError | None = None
        """What ended it early; whoever takes the batches tells it in other words."""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        seen = ""
        try:
            for read in self._reads:
                for piece in read.pieces:
                    for table in read_piece(self._store, read.serial, piece):
                        self.indexes += piece.index != seen
                        seen = piece.index
                        self.documents += len(table)
                        yield documents_of(table, piece.index, DOCUMENTS)
        except LogDeviceError as error:
            self.failure = error
            raise


def _check_columns(target: str, storage: dict[str, str]) -> None:
    """A table of other columns is somebody else's, and is not replaced."""
    try:
        table = deltalake.DeltaTable(target, storage_options=storage)
    except TableNotFoundError:
        return
    found = [field.name for field in table.schema().fields]
    if found != DOCUMENTS.names:
        text = f"the table {target} is another one: it has the columns {', '.join(found)}"
        raise LogDeviceError(Status.INVALID_PARAM, text)


def delta_target(url: str) -> tuple[str, dict[str, str]]:
    """A table as Delta Lake is told of it: a URL without options, and these. The options of ``s3://`` are those of stores."""
    parts = urlsplit(url)
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    storage = {_S3[name]: value for name, value in options.items() if name in _S3}
    if (endpoint := options.get("endpoint_override", "")) and "://" not in endpoint:
        storage["AWS_ENDPOINT_URL"] = f"{options.get('scheme', 'https')}://{endpoint}"
    if options.get("scheme") == "http":
        storage["AWS_ALLOW_HTTP"] = "true"
    if unknown := set(options) - {*_S3, "scheme"}:
        raise LogDeviceError(Status.INVALID_PARAM, f"the table {url}: {min(unknown)} is not known")
    return parts._replace(query="").geturl(), storage
