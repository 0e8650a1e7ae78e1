"""The columns of documents, as Spark knows them."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    DoubleType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from client.spark.options import refusal

DOCUMENTS: Final = StructType(
    [
        StructField("index", StringType(), False),
        StructField("docid", StringType(), False),
        StructField("timestamp", TimestampType(), False),
        StructField("fields", MapType(StringType(), StringType(), False), True),
        StructField("variables", MapType(IntegerType(), DoubleType(), False), False),
        StructField("categories", MapType(StringType(), StringType(), False), False),
    ]
)


def chosen(schema: StructType) -> StructType:
    """The schema, whose columns are some of these. What may be null in it is as it says: Spark compares that with what it gets.

    Raises:
        LogDeviceError: INVALID_PARAM: there is no such column, or it is of another type.
    """
    for field in schema.fields:
        if field.name not in DOCUMENTS.names:
            raise refusal(f"there is no column {field.name}; there are {', '.join(DOCUMENTS.names)}")
        own = DOCUMENTS[field.name].dataType
        if field.dataType.simpleString() != own.simpleString():
            raise refusal(f"column {field.name} is {own.simpleString()}, not {field.dataType.simpleString()}")
    return schema
