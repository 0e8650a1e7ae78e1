"""The columns of the source, as Spark and as Arrow know them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from client.spark.options import OnGap, PayloadFormat, SourceOptions, refusal

_GAP: Final = StructType(
    [
        StructField("gap_type", StringType(), False),
        StructField("gap_lo", LongType(), False),
        StructField("gap_hi", LongType(), False),
    ]
)
PROOF: Final = StructType(
    [
        StructField("first", LongType(), False),
        StructField("last", LongType(), False),
        StructField("entries", LongType(), False),
        StructField("records", LongType(), False),
        StructField("bytes", LongType(), False),
        StructField("checksum", LongType(), False),
        StructField("gaps", ArrayType(_GAP, False), False),
    ]
)
"""`client.read.proof.Proof`; the checksum's 64 bits as a signed number."""
_RECORD: Final[dict[str, tuple[DataType, bool]]] = {
    "log_id": (LongType(), False),
    "log_group": (StringType(), False),
    "lsn": (LongType(), False),
    "epoch": (IntegerType(), False),
    "esn": (LongType(), False),
    "batch_offset": (IntegerType(), False),
    "timestamp": (TimestampType(), False),
    "key": (BinaryType(), True),
    "payload": (BinaryType(), True),
}
_MARK: Final[dict[str, tuple[DataType, bool]]] = {
    "record_type": (StringType(), False),
    "gap_type": (StringType(), True),
    "gap_lo": (LongType(), True),
    "gap_hi": (LongType(), True),
}
_OF_EVERY_ROW: Final = frozenset({"log_id", "log_group"})


def source_schema(options: SourceOptions, further: Sequence[StructField] = ()) -> StructType:
    """The columns that a source with these options has; `further` ones follow those of logs.

    Raises:
        LogDeviceError: INVALID_PARAM: one that is chosen does not exist, or has to be among them.
    """
    every = StructType([*_every_column(options), *further])
    if options.columns is None:
        return every
    for name in options.columns:
        _refuse_unknown(name, every, "columns: ")
    chosen = StructType([every[name] for name in options.columns])
    _refuse_unmarked(chosen, options)
    return chosen


def _every_column(options: SourceOptions) -> StructType:
    fields = [
        StructField(name, kind, nullable or (options.has_marks and name not in _OF_EVERY_ROW))
        for name, (kind, nullable) in _RECORD.items()
    ]
    if options.has_marks:
        gaps = options.include_gaps or options.on_gap is OnGap.REPORT
        fields += [
            StructField(name, kind, nullable)
            for name, (kind, nullable) in _MARK.items()
            if gaps or name == "record_type"
        ]
    if options.include_proof:
        fields.append(StructField("proof", PROOF, True))
    if options.payload_format is PayloadFormat.UTF8:
        fields = [StructField(each.name, StringType(), True) if each.name == "payload" else each for each in fields]
    return StructType(fields)


def _refuse_unknown(name: str, have: StructType, where: str = "") -> None:
    if name not in have.names:
        raise refusal(f"{where}there is no column {name!r}; there are {', '.join(have.names)}")


def _refuse_unmarked(chosen: StructType, options: SourceOptions) -> None:
    if options.has_marks and "record_type" not in chosen.names:
        raise refusal("some rows are no records: choose record_type among the columns, which tells them apart")
    if options.include_proof and "proof" not in chosen.names:
        raise refusal("includeProof asks for proofs: choose the column proof, which holds them")


def chosen_schema(wanted: StructType, options: SourceOptions, further: Sequence[StructField] = ()) -> StructType:
    """A schema that the user gave: some of the columns, with their types.

    Raises:
        LogDeviceError: INVALID_PARAM.
    """
    have = source_schema(options, further)
    for field in wanted:
        _refuse_unknown(field.name, have)
        own = have[field.name]
        if field.dataType != own.dataType:
            raise refusal(
                f"column {field.name} is {own.dataType.simpleString()}, not {field.dataType.simpleString()}; cast it behind load()"
            )
        if own.nullable and not field.nullable:
            raise refusal(f"column {field.name} may be null")
    _refuse_unmarked(wanted, options)
    return wanted


def arrow_schema(schema: StructType) -> Any:
    """What every Arrow batch must have to the letter: Spark looks at the first one only."""
    found = to_arrow_schema(schema, timezone="UTC")
    assert isinstance(found, pa.Schema)
    return found
